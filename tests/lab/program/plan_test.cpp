// SPDX-License-Identifier: Apache-2.0
#include "run_program.hpp"

namespace plan_test {
namespace {

using testing::HasSubstr;
class plan_command : public hotset_test::command_line {};

TEST_F(plan_command, plans_a_known_model) {
  const auto json = json_of(
      "plan --model qwen3-30b-a3b --vram 24GiB --context 8192 --concurrency 4 --json --host-ram "
      "64GiB");
  EXPECT_EQ(json["schema"], "hotset.plan/1");
  EXPECT_EQ(json["model"]["bytes_per_expert_slot"], 452984832);
  EXPECT_GE(json["kv_tokens"].get<std::uint64_t>(), 4 * 8192U);
  EXPECT_EQ(json["binds"], "floor");
  EXPECT_EQ(out_of("plan --model qwen3-30b-a3b --vram 24GiB --out plan.txt"), "");
  EXPECT_THAT(read("plan.txt"), HasSubstr("--kv-cache-memory-bytes"));
}

TEST_F(plan_command, takes_a_trace_and_requests) {
  (void)out_of("synth t.trace --layers 16 --experts 64 --top-k 8 --tokens 200 --seed 3");
  write("requests.jsonl",
        R"({"timestamp":0,"input_length":1024,"output_length":9,"hash_ids":[0,1]}
{"timestamp":5,"input_length":1024,"output_length":9,"hash_ids":[0,2]}
)");
  const auto json = json_of(
      "plan --model olmoe-1b-7b --vram 8GiB --trace t.trace --kv-trace requests.jsonl --json");
  EXPECT_GT(json["predicted"]["hit_rate"].get<double>(), 0);
  EXPECT_FALSE(json["predicted"]["held_out_misses"].is_null());
  refused("plan --model mixtral-8x7b --vram 80GiB --trace t.trace", 2,
          {"accepted: 32 x 8, the model's"});
}

TEST_F(plan_command, takes_a_model_by_hand) {
  const std::string hand =
      "--layers 48 --experts 128 --top-k 8 --expert-bytes 9437184B "
      "--kv-bytes-per-token 96KiB ";
  const auto json =
      json_of("plan --json --vram 24GiB --reserve 1GiB " + hand + "--resident-bytes 3082186752B");
  const auto same = json_of("plan --json --vram 24GiB --reserve 1GiB --model qwen3-30b-a3b");
  for (const auto* key : {"cap", "kv_blocks", "kv_bytes", "budget_bytes", "predicted", "quotas"})
    EXPECT_EQ(json[key], same[key]) << key;
  EXPECT_EQ(json["model"]["name"], "by hand");
  EXPECT_THAT(out_of("plan --vram 24GiB " + hand), HasSubstr("note: no resident bytes by hand"));
  EXPECT_THAT(
      out_of("plan --model qwen3-30b-a3b --vram 24GiB --expert-bytes 3MiB --resident-bytes 1GiB"),
      testing::AllOf(HasSubstr("note: size of an expert by hand: 3 MiB; 9 MiB was read"),
                     HasSubstr("note: what stays resident by hand: 1 GiB; 2.9 GiB was read")));
}

TEST_F(plan_command, refuses_a_model_by_hand_that_is_not_whole) {
  for (const auto& [options, why] :
       {std::pair("", "--model is required, or by hand --layers"),
        {"--layers 4 --experts 8",
         "a model by hand: top-k, expert-bytes, kv-bytes-per-token is missing; accepted: --layers"},
        {"--layers 0", "--layers: '0'; accepted: 1..65536"},
        {"--layers 3.. --experts 8 --top-k 2 --expert-bytes 1MiB --kv-bytes-per-token 1KiB",
         "--layers: a model by hand has a last layer, such as 3..45; or --model"},
        {"--model olmoe-1b-7b --layers 4", "layers and experts by hand"},
        {"--layers 4 --experts 8 --top-k 9 --expert-bytes 1MiB --kv-bytes-per-token 1KiB",
         "top_k = 9, accepted: 1..8"},
        {"--layers 4 --experts 8 --top-k 2 --expert-bytes x --kv-bytes-per-token 1KiB",
         "--expert-bytes: 'x'; accepted"}})
    refused(std::string("plan --vram 24GiB ") + options, 2, {why});
}

TEST_F(plan_command, a_number_that_no_double_holds_is_one_line) {
  write("config.json", R"({"model_type":"mixtral","rope_theta":1e999})");
  refused("plan --model config.json --vram 24GiB", 4, {"config.json", "no double"});
}

TEST_F(plan_command, takes_several_devices) {
  const auto json = json_of(
      "plan --model minimax-m2 --vram 48GiB --devices 4 --concurrency 8 --json --parallel expert");
  EXPECT_EQ(json["device_count"], 4);
  EXPECT_EQ(json["parallel"], "expert");
  ASSERT_EQ(json["devices"].size(), 4U);
  EXPECT_EQ(json["devices"][3]["first_expert"], 192);
  EXPECT_EQ(json["model"]["experts"], 256);
  EXPECT_THAT(json["settings"]["vllm"].get<std::string>(),
              HasSubstr("--data-parallel-size 4 --enable-expert-parallel"));
  EXPECT_THAT(out_of("plan --model minimax-m2 --vram 48GiB --devices 4 --parallel tensor"),
              HasSubstr("a part of each of 256 experts"));
  refused("plan --model minimax-m2 --vram 48GiB --devices 0", 2, {"--devices: '0'; accepted: 1.."});
  refused("plan --model minimax-m2 --vram 48GiB --devices 257", 2,
          {"devices = 257, accepted: 1..256, the experts of a layer"});
  refused("plan --model minimax-m2 --vram 48GiB --parallel rows", 2,
          {"--parallel: 'rows'; accepted: expert, tensor"});
  refused("plan --model minimax-m2 --vram 6500MiB --devices 2", 3,
          {"each of 2 devices of", "or more, or ", " tokens of --context, or --weights "});
}

TEST_F(plan_command, says_which_options_have_no_effect) {
  const std::string plan = "plan --model mixtral-8x7b --vram 80GiB";
  refused(plan + " --recompute 2ms", 2, {"--recompute requires --kv-trace"});
  const auto own = out_of(plan + " --experts 16 --top-k 4");
  EXPECT_THAT(own, HasSubstr("--experts has no effect: the model has 8"));
  EXPECT_THAT(own, HasSubstr("--top-k has no effect: the model has 2"));
  EXPECT_EQ(out_of(plan + " --experts 8 --top-k 2"), out_of(plan));
}

TEST_F(plan_command, requests_alone_leave_layers_of_one_curve_even) {
  (void)out_of("synth-requests chats.jsonl --requests 40");
  for (const auto* model : {"qwen3-30b-a3b --vram 24GiB", "deepseek-v2-lite --vram 16GiB"}) {
    const auto json = json_of(std::string("plan --json --kv-trace chats.jsonl --model ") + model);
    const auto quotas = json["quotas"].get<std::vector<int>>();
    const auto [least, most] = std::ranges::minmax(quotas);
    EXPECT_LE(most - least, 1) << model;
  }
}

TEST_F(plan_command, cache_bits_are_the_checkpoints_unless_an_option_sets_them) {
  write("config.json",
        R"({"model_type":"mixtral","torch_dtype":"bfloat16","hidden_size":32,
"num_hidden_layers":2,"vocab_size":10,"num_attention_heads":2,"num_local_experts":4,
"num_experts_per_tok":2,"intermediate_size":8,"quantization_config":{"quant_method":"fp8",
"kv_cache_scheme":{"num_bits":8,"type":"float"}}})");
  const std::string plan = "plan --model config.json --vram 2GiB --context 64 --json";
  for (const auto& [options, bytes] : std::vector<std::pair<std::string, int>>{
           {"", 128}, {" --kv-bits auto", 128}, {" --kv-bits 16", 256}, {" --kv-bits 4.5", 72}})
    EXPECT_EQ(json_of(plan + options)["model"]["kv_bytes_per_token"], bytes) << options;
  EXPECT_THAT(json_of(plan)["settings"]["vllm"].get<std::string>(),
              HasSubstr("--kv-cache-dtype fp8"));
  for (const auto* bits : {"half", "6.25", "65"})
    refused(plan + " --kv-bits " + bits, 2,
            {"--kv-bits: '", "auto, or multiples of 0.5 in 0.5..64"});
  EXPECT_EQ(json_of(plan + " --kv-type FP8_E4M3")["model"]["kv_bytes_per_token"], 128);
  refused(plan + " --kv-type q8", 2, {"--kv-type: 'q8'", "accepted: f32, f16", "q8_0"});
  EXPECT_EQ(json_of(plan + " --experts 9 --top-k 3")["model"]["experts"], 4) << "of a trace";
}

TEST_F(plan_command, prints_the_caches_type_in_the_engines_flags) {
  const auto json = json_of("plan --model qwen3-30b-a3b --vram 24GiB --kv-bits 8.5 --json");
  EXPECT_THAT(json["settings"]["llama.cpp"].get<std::string>(), HasSubstr("-ctk q8_0 -ctv q8_0"));
  EXPECT_FALSE(json["settings"].contains("vllm"));
  const std::string named = "plan --model qwen3-30b-a3b --vram 24GiB --json --kv-type ";
  EXPECT_THAT(json_of(named + "FP8-E5M2")["settings"]["vllm"].get<std::string>(),
              HasSubstr("--kv-cache-dtype fp8_e5m2"));
  EXPECT_THAT(json_of(named + "int8")["notes"].dump(), HasSubstr("it has no KV cache of int8"));
  refused(named + "int8 --engine vllm", 3, {"it has no KV cache of int8"});
}

TEST_F(plan_command, a_card_and_options_set_speeds) {
  const std::string plan = "plan --model gpt-oss-120b --host-ram 64GiB --engine llama.cpp --json ";
  const auto speed = [&](const std::string& options) {
    const auto json = json_of(plan + options);
    EXPECT_EQ(json["engines"].size(), 1U);
    EXPECT_EQ(json["recommended"], json["settings"]["llama.cpp"]);
    return json["engines"][0]["decode_tokens_per_s"].get<double>();
  };
  const auto usual = speed("--vram 24GiB");
  EXPECT_GT(speed("--gpu rtx4090"), usual) << "24 GiB, faster memory";
  EXPECT_EQ(speed("--gpu 'RTX 3090 24GB' --link 25GB/s"), usual) << "the default speeds";
  EXPECT_EQ(speed("--gpu rtx4090 --vram 24GiB --device-bandwidth 936GB/s --device-flops 142"),
            usual);
  EXPECT_GT(speed("--vram 24GiB --host-bandwidth 200GB/s"), 1.5 * usual);
  EXPECT_GT(speed("--gpu rtx5090"), speed("--gpu rtx4090"));
  EXPECT_THAT(out_of("plan --model gpt-oss-120b --vram 24GiB --measure"),
              HasSubstr("note: measured here: "));
  refused(plan + "--gpu gtx0", 2, {"--gpu: 'gtx0'; accepted: none, rtx3060, "});
  refused(plan + "--gpu rtx4091", 2, {"did you mean rtx4090?"});
  refused(plan + "--gpu 2x3090", 2, {"accepted: --gpu rtx3090 --devices 2"});
  refused(plan + "--vram 24GiB --host-bandwidth 60", 2, {"--host-bandwidth: '60'"});
  refused(plan + "--vram 24GiB --host-flops none", 2, {"--host-flops: 'none'; accepted: "});
}

TEST_F(plan_command, an_engine_has_one_command) {
  const std::string plan = "plan --model qwen3-30b-a3b --vram 24GiB --json ";
  EXPECT_THAT(json_of(plan + "--engine vllm,sglang")["settings"].size(), 2U);
  const auto llama = json_of(plan + "--weights Q4_K_M --threads 8 --ubatch 256");
  EXPECT_THAT(llama["settings"]["llama.cpp"].get<std::string>(),
              testing::StartsWith("llama-server -m qwen3-30b-a3b-Q4_K_M.gguf -c 4096 -np 1 -b 2048 "
                                  "-ub 256 -fa on -ngl 99 -t 8"));
  EXPECT_FALSE(llama["settings"].contains("vllm"));
  refused(plan + "--weights Q4_K_M --engine vllm", 3, {"vllm left out: it reads .safetensors"});
  refused(plan + "--engine ollama", 2, {"--engine: 'ollama'; accepted: llama.cpp, vllm"});
  write("my model.json", R"({"model_type":"mixtral","torch_dtype":"bfloat16","hidden_size":32,
"num_hidden_layers":2,"vocab_size":10,"num_attention_heads":2,"num_local_experts":4,
"num_experts_per_tok":2,"intermediate_size":8})");
  const auto quoted = json_of("plan --model 'my model.json' --vram 2GiB --context 64 --json");
  EXPECT_THAT(quoted["settings"]["llama.cpp"].get<std::string>(), HasSubstr("-m 'my model.gguf' "));
}

TEST_F(plan_command, a_cards_link_counts_for_prompts) {
  const std::string plan = "plan --model gpt-oss-120b --vram 24GiB --engine llama.cpp --json ";
  const auto prompt = [&](const std::string& options) {
    return json_of(plan + options)["engines"][0]["prompt_tokens_per_s"].get<double>();
  };
  EXPECT_GT(prompt("--gpu rtx5090"), 1.5 * prompt("--gpu rtx4090"));
  EXPECT_EQ(prompt("--gpu rtx5090 --link 10GB/s --device-flops 330 --device-bandwidth 1008GB/s"),
            prompt("--gpu rtx4090 --link 10GB/s --device-flops 330"));
}

TEST_F(plan_command, options_of_a_trace_need_one) {
  for (const auto* option : {"--first 9", "--tokens 0:9", "--sequences 0:9", "--as decode",
                             "--format npy", "--field layer=l"})
    refused(std::string("plan --model gpt-oss-20b --vram 24GiB ") + option, 2, {"--trace"});
}

TEST_F(plan_command, plans_unified_memory_and_no_card) {
  const std::string plan = "plan --model gpt-oss-20b --engine llama.cpp ";
  const auto mac = out_of(plan + "--unified --host-ram 32GiB");
  EXPECT_THAT(mac, testing::AllOf(HasSubstr("device             24.00 GiB"), HasSubstr("-ngl 99"),
                                  HasSubstr("; all on the device")));
  EXPECT_THAT(out_of(plan + "--gpu none --host-ram 32GiB"),
              testing::AllOf(HasSubstr("memory             28.80 GiB"), HasSubstr("-ngl 0")));
  refused(plan + "--unified", 2, {"--host-ram is required"});
  refused(plan + "--gpu none", 2, {"--host-ram is required"});
  for (const auto* option : {"--vram 8GiB", "--link 9GB/s", "--device-flops 9", "--unified"})
    refused(plan + "--gpu none --host-ram 32GiB " + option, 2, {"accepted without --vram"});
  refused(plan + "--unified --host-ram 32GiB --vram 48GiB", 2, {"a part of --host-ram"});
  refused(plan + "--unified --host-ram 32GiB --devices 2", 2, {"one device"});
}

// Given back, the memory that a refusal names is enough.
TEST_F(plan_command, a_refusal_names_host_memory_where_the_host_gives_it) {
  for (const auto& [plan, memory] : std::vector<std::pair<std::string, std::string>>{
           {"kimi-k2 --gpu none", "2GiB"},
           {"gpt-oss-120b --gpu none", "2GiB"},
           {"gpt-oss-120b --unified", "2GiB"},
           {"qwen3-30b-a3b --context 40000 --unified", "2GiB"},
           {"qwen3-30b-a3b --engine vllm --unified", "24GiB"},
           {"deepseek-v2-lite --engine vllm --unified", "24GiB"},
           {"qwen3-30b-a3b --engine sglang --unified", "24GiB"},
           {"qwen3-30b-a3b --engine transformers --unified", "24GiB"},
           {"qwen3-30b-a3b --engine llama.cpp --context 100 --concurrency 1000 --unified",
            "24GiB"}}) {
    const auto with = "plan --model " + plan + " --host-ram ";
    const auto told = run(with + memory);
    EXPECT_EQ(told.code, 3) << plan << told.err;
    const std::string before = "accepted: --host-ram ";
    const auto at = told.err.find(before);
    ASSERT_NE(at, std::string::npos) << plan << told.err;
    const auto size = told.err.substr(at + before.size());
    EXPECT_EQ(run(with + size.substr(0, size.find(' '))).code, 0) << plan << told.err;
  }
}

// A larger device may take larger batches, which reserve more of it.
TEST_F(plan_command, unified_memory_that_is_advised_holds_all_experts) {
  for (const std::string plan : {"plan --model gpt-oss-120b --json --unified --host-ram ",
                                 "plan --model gemma-4-26b-a4b --json --unified --host-ram "}) {
    const auto advice = json_of(plan + "8GiB")["advice"].get<std::string>();
    ASSERT_TRUE(advice.starts_with("--host-ram ")) << advice;
    const auto size = advice.substr(11, advice.find_first_of(",:") - 11);
    EXPECT_TRUE(json_of(plan + size)["advice"].is_null()) << advice;
  }
}

TEST_F(plan_command, reads_names_as_people_write_them) {
  const std::string vram = " --vram 24GiB --engine llama.cpp";
  EXPECT_EQ(out_of("plan --model Qwen/Qwen3-30B-A3B" + vram),
            out_of("plan --model qwen3-30b-a3b" + vram));
  refused("plan --model Qwen/Qwen3-30B-A3C" + vram, 2, {"did you mean qwen3-30b-a3b?"});
}

// Tokens per second that people published, with the machine: no ceiling is below them.
TEST_F(plan_command, ceilings_are_above_published_measurements) {
  for (const auto& [machine, measured] : std::vector<std::pair<std::string, double>>{
           {"qwen3-30b-a3b --weights Q4_K_M --gpu rtx4090", 196},
           {"qwen3-30b-a3b --weights Q4_K_M --vram 24GiB --device-bandwidth 1008GB/s", 166.9},
           {"qwen3-30b-a3b --weights Q4_K_M --vram 8GiB --device-bandwidth 448GB/s "
            "--host-bandwidth "
            "102.4GB/s",
            36.7},
           {"gpt-oss-20b --vram 20GiB --device-bandwidth 800GB/s", 94},
           {"gpt-oss-20b --gpu rtx5090", 221},
           {"gemma-4-26b-a4b --weights Q4_K_M --gpu rtx3090", 101.4},
           {"nemotron-3-nano-30b-a3b --weights Q4_K_M --gpu rtx3090", 134.2}}) {
    const auto json = json_of("plan --json --engine llama.cpp --model " + machine);
    const auto share = measured / json["engines"][0]["decode_tokens_per_s"].get<double>();
    EXPECT_LT(share, 0.6) << machine;
    EXPECT_GT(share, 0.3) << machine;
  }
}

TEST_F(plan_command, a_precision_that_fits_is_named) {
  for (const std::string plan : {"plan --model minimax-m2 --gpu rtx3090 --host-ram 64GiB ",
                                 "plan --model kimi-k2 --gpu rtx5090 --host-ram 64GiB ",
                                 "plan --model qwen3-30b-a3b --gpu none --host-ram 16GiB ",
                                 "plan --model gpt-oss-120b --unified --host-ram 64GiB "}) {
    const auto advice = json_of(plan + "--json")["advice"].get<std::string>();
    const auto at = advice.find(" --weights ");
    const auto changed = at == std::string::npos ? advice : advice.substr(at + 1);
    const auto end = std::min(changed.find(':'), changed.find(", or"));
    // The last of an option counts; --host-ram is refused twice.
    auto whole = plan;
    if (changed.find("--host-ram") < end) whole = plan.substr(0, plan.find("--host-ram"));
    const auto json = json_of(whole + "--json " + changed.substr(0, end));
    EXPECT_TRUE(json["advice"].is_null()) << plan << advice;
  }
  refused("plan --model deepseek-v3 --vram 12GiB --host-ram 64GiB", 3, {"or more, or --weights "});
  refused("plan --model glm-4.5-air --vram 12GiB --host-ram 32GiB --context 131072", 3,
          {"or more, or --weights ", " --context "});
}

TEST_F(plan_command, refuses_unknown_arguments) {
  write("config.json", R"({"model_type":"bert"})");
  const std::string qwen = "plan --model qwen3-30b-a3b ";
  refused("plan --model gpt-2 --vram 24GiB", 2, {"unknown model 'gpt-2', accepted: olmoe-1b-7b"});
  refused("plan --model config.json --vram 24GiB", 4, {"a dense model has no experts to page"});
  refused(qwen, 2, {"--vram is required"});
  refused(qwen + "--vram 24XB", 2, {"--vram: '24XB'; accepted"});
  refused(qwen + "--vram 24GiB --reserve -1GiB", 2, {"--reserve: '-1GiB'; accepted"});
  refused(qwen + "--vram 24GiB --context 99999999", 2, {"the model's own"});
  refused(qwen + "--vram 24GiB --link 0GB/s", 2, {"--link: '0GB/s'"});
  refused(qwen + "--vram 24GiB --concurrency 0", 2, {"--concurrency: '0'"});
  refused(qwen + "--vram 24GiB --kv-trace absent.jsonl", 4, {"absent.jsonl"});
  refused(qwen + "--vram 4GiB", 3, {"accepted: "});
}

}  // namespace
}  // namespace plan_test
