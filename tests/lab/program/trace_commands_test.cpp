// SPDX-License-Identifier: Apache-2.0
// info, import, export and synth.
#include <string>
#include <vector>

#include "hotset/trace/native_trace_writer.hpp"
#include "npy_samples.hpp"
#include "run_program.hpp"
#include "sim_samples.hpp"

namespace trace_commands_test {
namespace {

namespace support = hotset::support;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;
class trace_commands : public hotset_test::command_line {
 protected:
  [[nodiscard]] std::string replayed(const std::string& name) const {
    const auto result = run("simulate " + name + " --eviction lru,belady --slots 4");
    EXPECT_THAT(result.out, HasSubstr("belady"));
    return result.out;
  }
};

/// 3 layers, 4 experts, top-2, two tokens of one step each.
constexpr std::string_view jsonl =
    R"({"l":0,"ids":[0,1],"t":0}
{"l":1,"ids":[0,2],"t":0}
{"l":2,"ids":[3,2],"t":0}
{"l":0,"ids":[1,2],"t":1}
{"l":1,"ids":[2,0],"t":1}
{"l":2,"ids":[3,1],"t":1}
)";
const std::string as_jsonl =
    " --format jsonl --field layer=l,experts=ids --field step=t --experts 4";

TEST_F(trace_commands, info_agrees_with_counting_by_hand) {
  write("hand.jsonl", jsonl);
  const auto facts = json_of("info hand.jsonl --json" + as_jsonl);
  EXPECT_EQ(facts["schema"], "hotset.info/1");
  EXPECT_EQ(facts["format"], "jsonl");
  EXPECT_EQ(facts["layers"], 3);
  EXPECT_EQ(facts["experts"], 4);
  EXPECT_EQ(facts["top_k"], 2);
  EXPECT_EQ(facts["tokens"], 2);
  EXPECT_EQ(facts["sequences"], 1);
  EXPECT_EQ(facts["steps"], 2);
  EXPECT_EQ(facts["steps_by_kind"], json({{"decode", 2}, {"prefill", 0}, {"verify", 0}}));
  EXPECT_EQ(facts["visits"], 6);
  EXPECT_EQ(facts["routed"], 12);
  EXPECT_EQ(facts["accesses"], 12);
  EXPECT_EQ(facts["widest_union"], 2);
  EXPECT_EQ(facts["distinct_experts"], 3 + 2 + 3);
  EXPECT_EQ(facts["footprint_bytes"], nullptr);
  // 12 keys: the two most used of them have 2 accesses each.
  EXPECT_DOUBLE_EQ(facts["top_tenth_share"].get<double>(), 4.0 / 12);
}

TEST_F(trace_commands, info_sees_a_prompt_as_one_step) {
  write("hand.jsonl", jsonl);
  const auto facts = json_of("info hand.jsonl --json --as prefill" + as_jsonl);
  EXPECT_EQ(facts["steps_by_kind"], json({{"decode", 0}, {"prefill", 1}, {"verify", 0}}));
  EXPECT_EQ(facts["visits"], 3);
  EXPECT_EQ(facts["accesses"], 8);
  EXPECT_EQ(facts["widest_union"], 3);
}

TEST_F(trace_commands, info_prints_text_and_takes_several_traces) {
  make_trace("a.trace", "--expert-bytes 3MiB");
  make_trace("b.trace");
  const auto text = out_of("info a.trace b.trace");
  for (const char* part : {"steps              21 (20 decode, 1 prefill)", "3145728 (3 MiB)",
                           "optional arrays    weights", "the top 10 % of experts take"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto both = json_of("info a.trace b.trace --json");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0]["expert_bytes_min"], 3 << 20);
  EXPECT_EQ(both[1]["expert_bytes_max"], 1 << 20);
}

TEST_F(trace_commands, import_keeps_every_fact) {
  write("hand.jsonl", jsonl);
  const auto imported = run("import hand.jsonl hand.trace --name renamed" + as_jsonl);
  EXPECT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("2 tokens, 3 layers, 4 experts, top-2"));
  EXPECT_EQ(imported.err, "");
  auto before = json_of("info hand.jsonl --json" + as_jsonl);
  auto after = json_of("info hand.trace --json");
  EXPECT_EQ(after["name"], "renamed");
  EXPECT_EQ(after["format"], "native");
  for (const char* key : {"name", "format"}) {
    before.erase(key);
    after.erase(key);
  }
  EXPECT_EQ(before, after);
}

TEST_F(trace_commands, import_sets_expert_bytes_that_the_trace_lacks) {
  write("hand.jsonl", jsonl);
  (void)out_of("import hand.jsonl hand.trace --expert-bytes 3MiB" + as_jsonl);
  EXPECT_EQ(json_of("info hand.trace --json")["expert_bytes_max"], 3145728);
  const auto replaced = run("import hand.trace again.trace --expert-bytes 1MiB");
  EXPECT_THAT(replaced.err, HasSubstr("note: --expert-bytes replaces the sizes of the trace"));
  EXPECT_EQ(json_of("info again.trace --json")["expert_bytes_max"], 1048576);
  refused("import hand.jsonl x.trace --expert-bytes 0B" + as_jsonl, 2, {"--expert-bytes: '0B'"});
  EXPECT_FALSE(std::filesystem::exists(path("x.trace")));
}

TEST_F(trace_commands, import_takes_columns_and_arrays) {
  write("log.csv", "req,pos,block,ids,p\n7,0,3,1 2,.5 .5\n7,1,3,0 2,.75 .25\n");
  const auto columns = out_of(
      "import log.csv log.trace --format csv --field "
      "sequence=req,token=pos,layer=block,experts=ids,weights=p --experts 4");
  EXPECT_THAT(columns, HasSubstr("2 tokens, 1 layers, 4 experts, top-2"));
  write("ids.npy", npy_samples::npy("|i1", "(2, 1, 2)", "\1\2\0\2"s));
  (void)out_of("import ids.npy ids.trace --experts 4");
  EXPECT_EQ(json_of("counts log.trace --json")["logical_count"],
            json_of("counts ids.trace --json")["logical_count"]);
  refused("import ids.npy x.trace --experts 2", 4, {"ids.npy: 'ids'", "an expert 2", "0..1"});
  refused("import log.csv x.trace", 4, {"log.csv", "not recognised"});
}

TEST_F(trace_commands, guesses_are_reported_once_on_standard_error) {
  write("t.csv", "token,layer,experts\n0,0,0 0\n0,1,2 5\n1,0,0 0\n1,1,3 1\n");
  for (const std::string command : {"info t.csv --json", "simulate t.csv --slots 4 --json",
                                    "counts t.csv --json", "curve t.csv --json"}) {
    const auto result = run(command);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(nlohmann::json::accept(result.out)) << result.out;
    EXPECT_EQ(result.err,
              "hotset: t.csv: note: experts per layer: 6, the highest id + 1; --experts says "
              "otherwise\n"
              "hotset: t.csv: note: 2 of 4 rows name an expert twice, which no router does: taken "
              "as not routed\n"
              "hotset: t.csv: note: layer 0 without a routed row: left out as dense\n")
        << command;
  }
  EXPECT_THAT(out_of("import t.csv t.trace --experts 6"),
              HasSubstr("2 tokens, 1 layers, 6 experts, top-2"));
  EXPECT_EQ(run("info t.trace").err, "");
}

TEST_F(trace_commands, a_model_with_a_dense_first_layer_is_planned_with_all_rows) {
  write("config.json",
        R"({"model_type":"glm4_moe","hidden_size":256,"num_hidden_layers":4,)"
        R"("vocab_size":1000,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,)"
        R"("n_routed_experts":8,"num_experts_per_tok":2,"n_shared_experts":1,)"
        R"("moe_intermediate_size":128,"intermediate_size":512,"first_k_dense_replace":1,)"
        R"("max_position_embeddings":4096})");
  std::string ids;
  for (int token = 0; token < 6; ++token)
    ids += "\0\0"s + static_cast<char>(token) + static_cast<char>(token + 1) + "\3\1\7\2";
  write("ids.npy", npy_samples::npy("|i1", "(6, 4, 2)", ids));
  const auto plan =
      run("plan --model config.json --vram 4GiB --context 512 --trace ids.npy --experts 8 --json");
  EXPECT_THAT(plan.out, HasSubstr("\"moe_layers\": 3"));
  EXPECT_THAT(plan.err, HasSubstr("layer 0 without a routed row: left out as dense"));
  // A recording engine counts all layers.
  auto recorded = support::empty_trace(4, 8, 2);
  for (int token = 0; token < 6; ++token) support::add_step(recorded, {{-1, -1, 3, 1, 2, 1, 7, 2}});
  ASSERT_FALSE(hotset::write_native_trace(recorded, path("engine.trace").string()));
  const auto of_engine =
      run("plan --model config.json --vram 4GiB --context 512 --trace engine.trace --json");
  EXPECT_EQ(of_engine.code, 0) << of_engine.err;
  EXPECT_THAT(of_engine.out, HasSubstr("trace: layer 0 without a routed row: left out as dense"));
}

TEST_F(trace_commands, counts_are_a_profile) {
  write("t.csv", "token,layer,experts\n0,0,1 2\n1,0,0 2\n");
  EXPECT_THAT(out_of("counts t.csv"),
              AllOf(HasSubstr("t: 1 layers x 3 experts, 4 uses; 0 of 3 experts unused\n"),
                    HasSubstr("a profile")));
  const auto counts = json_of("counts t.csv --json");
  EXPECT_EQ(counts["schema"], "hotset.counts/1");
  EXPECT_EQ(counts["uses"], 4);
  EXPECT_EQ(counts["logical_count"].dump(), "[[1.0,1.0,2.0]]");
  write("m.gguf", "GGUF");
  refused("counts m.gguf", 4, {"m.gguf"});
  refused("counts missing", 4, {"missing"});
  (void)out_of("counts t.csv --json >c.json");
  refused("counts c.json --first 1", 2, {"--first: c.json has counts, accepted: a trace"});
  refused("counts m.gguf --experts 4", 2, {"--experts: m.gguf has counts"});
  write("n.csv", "layer,expert,count\n0,1,5\n");
  EXPECT_EQ(json_of("counts n.csv --experts 4 --json")["experts"], 4);
  refused("counts n.csv --tokens 0:1", 2, {"--tokens: n.csv has counts"});
  refused("info c.json", 4, {"c.json", "counts of experts hold no trace"});
}

TEST_F(trace_commands, import_leaves_nothing_behind_when_it_fails) {
  write("bad.jsonl", R"({"layer":0,"experts":[0,1]}
{"layer":0,"experts":[0,)");
  write("kept.trace", "earlier");
  refused("import bad.jsonl kept.trace", 4, {"bad.jsonl: line 2"});
  EXPECT_EQ(read("kept.trace"), "earlier");
  EXPECT_THAT(files(), ElementsAre("bad.jsonl", "kept.trace"));
}

TEST_F(trace_commands, options_of_reading_are_strict) {
  make_trace("t.trace");
  refused("info t.trace --format nope", 2, {"--format", "auto, native, bigmoe"});
  refused("info t.trace --as chunks", 2, {"--as", "decode, decode:", "prefill, prefill:"});
  refused("info t.trace --as prefill:0", 2, {"--as", "'prefill:0'"});
  refused("info t.trace --field nope=x", 2, {"--field", "nope"});
  refused("info t.trace --block-bytes 24XB", 2, {"--block-bytes: '24XB'", "MiB, GiB or TiB"});
  refused("info t.trace --top-k=-1", 2, {"--top-k: '-1'; accepted: 0.."});
}

TEST_F(trace_commands, synth_is_the_same_for_a_seed) {
  make_trace("a.trace");
  make_trace("b.trace");
  make_trace("c.trace", "--zipf 2");
  EXPECT_EQ(read("a.trace"), read("b.trace"));
  EXPECT_NE(read("a.trace"), read("c.trace"));
  const auto facts = json_of("info a.trace --json");
  EXPECT_EQ(facts["layers"], 2);
  EXPECT_EQ(facts["tokens"], 24);
  EXPECT_EQ(facts["steps_by_kind"]["prefill"], 1);
}

TEST_F(trace_commands, synth_records_scores_on_request) {
  make_trace("plain.trace");
  make_trace("scored.trace", "--scores");
  make_trace("again.trace", "--scores --predictor-noise 0");
  make_trace("noisy.trace", "--scores --predictor-noise 0.2");
  EXPECT_EQ(json_of("info plain.trace --json")["arrays"], json::array({"weights"}));
  EXPECT_EQ(json_of("info noisy.trace --json")["arrays"],
            json({"weights", "logits", "probabilities", "predictions"}));
  EXPECT_EQ(read("scored.trace"), read("again.trace"));
  EXPECT_NE(read("scored.trace"), read("noisy.trace"));
  // They do not change the replay.
  EXPECT_EQ(replayed("plain.trace"), replayed("noisy.trace"));
}

TEST_F(trace_commands, synth_routes_by_autoregressive_logits_on_request) {
  make_trace("plain.trace", "--scores");
  make_trace("ids.trace", "--autoregression 0.9 --no-weights");
  make_trace("logits.trace", "--autoregression 0.9 --scores");
  make_trace("again.trace", "--autoregression=0.9 --scores --predictor-noise gaussian:0");
  EXPECT_EQ(json_of("info ids.trace --json")["arrays"], json::array());
  const auto facts = json_of("info logits.trace --json");
  EXPECT_EQ(facts["arrays"], json({"weights", "logits", "probabilities", "predictions"}));
  EXPECT_EQ(facts["steps_by_kind"]["prefill"], 1);
  EXPECT_NE(replayed("logits.trace"), replayed("plain.trace"));
  EXPECT_EQ(replayed("ids.trace"), replayed("logits.trace"));
  EXPECT_EQ(replayed("again.trace"), replayed("logits.trace"));
}

TEST_F(trace_commands, synth_makes_predictions_worse_in_two_ways) {
  make_trace("number.trace", "--scores --predictor-noise 0.4");
  make_trace("exchange.trace", "--scores --predictor-noise exchange:0.4");
  make_trace("gaussian.trace", "--scores --predictor-noise gaussian:0.4");
  make_trace("more.trace", "--scores --predictor-noise gaussian:12");
  EXPECT_EQ(read("number.trace"), read("exchange.trace"));
  EXPECT_NE(read("number.trace"), read("gaussian.trace"));
  EXPECT_NE(read("more.trace"), read("gaussian.trace"));
}

TEST_F(trace_commands, synth_routes_all_positions_in_every_step) {
  const std::string shape =
      " --layers 2 --experts 16 --top-k 4 --positions 32 --steps 12 --prefill 5 ";
  (void)out_of("synth free.trace" + shape);
  (void)out_of("synth kept.trace" + shape + "--position-stickiness 0.5");
  const auto facts = json_of("info free.trace --json");
  EXPECT_EQ(facts["tokens"], 5 + 12 * 32);
  EXPECT_EQ(facts["steps_by_kind"], json({{"decode", 12}, {"prefill", 1}, {"verify", 0}}));
  EXPECT_NE(read("free.trace"), read("kept.trace"));
  // One position is one token of a step.
  make_trace("tokens.trace");
  (void)out_of(
      "synth steps.trace --layers 2 --experts 8 --top-k 2 --positions 1 --steps 20 --prefill 4 "
      "--seed 3");
  EXPECT_EQ(read("tokens.trace"), read("steps.trace"));
}

TEST_F(trace_commands, synth_requests_makes_a_request_trace) {
  EXPECT_THAT(out_of("synth-requests r.jsonl --requests 60 --conversations 3 --turns 4"),
              HasSubstr("r.jsonl: 60 requests, "));
  EXPECT_THAT(out_of("info r.jsonl"), HasSubstr("requests"));
  refused("synth-requests r --turns 0", 2, {"--turns: '0'; accepted: 1.."});
  refused("synth-requests r --turns 4000000000", 2, {"2^31 tokens"});
  refused("synth-requests nowhere/r", 1, {"nowhere"});
}

TEST_F(trace_commands, synth_refuses_parameters_that_make_no_trace) {
  using parts = std::vector<std::string_view>;
  for (const auto& [options, said] :
       {std::pair<const char*, parts>{"--zipf nan", {"--zipf: 'nan'; accepted: 0..8"}},
        {"--stickiness 1.5", {"--stickiness", "0..1"}},
        {"--autoregression 0.5 --stickiness 0.5", {"--stickiness", "--autoregression"}},
        {"--autoregression 0.5 --positions 2 --position-stickiness 0.5",
         {"--position-stickiness", "--autoregression"}},
        {"--predictor-noise 0.5", {"--predictor-noise requires --scores"}},
        {"--positions 0 --steps 2", {"--positions: '0'; accepted: 1.."}},
        {"--positions 2 --tokens 2", {"--tokens", "--positions"}},
        {"--steps 2", {"--steps requires --positions"}},
        {"--position-stickiness 0.5", {"--position-stickiness requires --positions"}},
        {"--positions 2 --position-stickiness 1.5",
         {"--position-stickiness: '1.5'; accepted: 0..1"}},
        {"--positions 65536 --steps 65536", {"1 x (0 + 65536 x 65536), accepted: 1..2147483648"}},
        {"--experts 4 --top-k 5", {"top_k = 5", "1..4"}},
        {"--tokens 0", {"accepted: 1.."}},
        {"--expert-bytes 24XB", {"--expert-bytes: '24XB'", "KiB"}}})
    refused(std::string("synth t ") + options, 2, said);
  for (const std::string bad : {"1.5", "nan", "gauss:1", "gaussian", "gaussian:-1", "gaussian:17",
                                "gaussian:1x", "exchange:1.5", ":0.5"})
    refused("synth t --scores --predictor-noise " + bad, 2,
            {"--predictor-noise: '" + bad + "'; accepted: 0..1, exchange:0..1 or gaussian:0..16"});
  for (const std::string bad : {"1", "-0.1", "nan", "x"})
    refused("synth t --autoregression=" + bad, 2,
            {"--autoregression: '" + bad + "'; accepted: 0 or more, below 1"});
  refused("synth no/such/folder/t", 1, {"no/such/folder/t: cannot be created"});
  EXPECT_TRUE(files().empty());
}

TEST_F(trace_commands, export_to_native_and_back_is_the_same_file) {
  make_trace("t.trace");
  (void)out_of("export t.trace u.trace --to native");
  EXPECT_EQ(read("t.trace"), read("u.trace"));
}

TEST_F(trace_commands, export_to_oracle_general_holds_a_record_for_each_routed_id) {
  make_trace("t.trace");
  (void)out_of("export t.trace t.oracleGeneral --to oracle-general");
  EXPECT_EQ(std::filesystem::file_size(path("t.oracleGeneral")), 24U * 24 * 2 * 2);
  const auto facts = json_of("info t.oracleGeneral --json");
  EXPECT_EQ(facts["format"], "oracle");
  EXPECT_EQ(facts["tokens"], 24 * 2 * 2);
}

TEST_F(trace_commands, export_refuses_unknown_formats_and_folders) {
  make_trace("t.trace");
  refused("export t.trace out --to parquet", 2, {"--to: 'parquet'", "native, oracle-general"});
  refused("export t.trace no/out --to native", 1, {"no/out"});
  refused("export t.trace out", 2, {"--to is required"});
  EXPECT_THAT(files(), ElementsAre("t.trace"));
}

/// Every subcommand that reads a trace refuses it with the same message.
class bad_traces : public hotset_test::command_line {
 protected:
  void refused_everywhere(std::initializer_list<std::string_view> parts) const {
    const auto before = files();
    for (const char* arguments : {"info bad", "import bad out", "export bad out --to native",
                                  "simulate bad", "simulate bad --json --out out"})
      refused(arguments, 4, parts);
    EXPECT_EQ(files(), before);
  }
};

TEST_F(bad_traces, that_are_missing_or_empty) {
  refused_everywhere({"bad: cannot be opened"});
  write("bad", "");
  refused_everywhere({"bad: byte 0: the file is empty; accepted: "});
}

TEST_F(bad_traces, of_unknown_content) {
  write("bad", "GIF89a, surely no trace");
  refused_everywhere({"bad: byte 0: the format is not recognised; it begins with "});
}

TEST_F(bad_traces, that_end_too_early) {
  make_trace("whole");
  const auto whole = read("whole");
  write("bad", std::string_view(whole).substr(0, whole.size() - 1));
  refused_everywhere({"bad: "});
  write("bad", std::string_view(whole).substr(0, 100));
  refused_everywhere({"bad: "});
}

TEST_F(bad_traces, without_tokens_or_without_routing) {
  write("bad", npy_samples::npy("|i1", "(0, 1, 2)", ""));
  refused_everywhere({"bad: "});
  auto nowhere = support::empty_trace(1, 4, 1);
  support::add_step(nowhere, {{-1}});
  ASSERT_FALSE(hotset::write_native_trace(nowhere, path("bad").string()));
  refused("info bad", 4, {"bad: ", "no expert"});
  refused("simulate bad", 4, {"bad: ", "no expert"});
}

}  // namespace
}  // namespace trace_commands_test
