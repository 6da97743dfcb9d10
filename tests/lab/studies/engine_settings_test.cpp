// SPDX-License-Identifier: Apache-2.0
/// Flags of other engines are converted back into bytes by their documented meaning, independently of the generator.

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/errors.hpp"
#include "lab/models/model_description.hpp"
#include "lab/reports/plan_report.hpp"
#include "lab/studies/plan.hpp"
#include "temporary_folder.hpp"

namespace hotset::engine_settings_test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Options and their values; an option without one has an empty value.
class flags {
 public:
  explicit flags(const std::string& line) {
    std::istringstream words(line.substr(line.find(" -")));
    std::string word;
    std::string last;
    while (words >> word) {
      if (word.size() > 1 && word[0] == '-' &&
          std::isdigit(static_cast<unsigned char>(word[1])) == 0) {
        EXPECT_EQ(values_.count(word), 0U) << line;
        values_[last = word] = "";
        continue;
      }
      std::erase(word, '"');
      values_.at(last) += word;
    }
  }
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }
  [[nodiscard]] const std::map<std::string, std::string>& all() const { return values_; }
  [[nodiscard]] const std::string& text(const std::string& name) const { return values_.at(name); }
  [[nodiscard]] std::uint64_t number(const std::string& name, std::uint64_t otherwise = 0) const {
    return has(name) ? std::stoull(values_.at(name)) : otherwise;
  }

 private:
  std::map<std::string, std::string> values_;
};

/// Flags and values that the parsers of these versions accept: llama.cpp of 1 October 2026 (--moe-cache-mib: build
/// 11480), vLLM 0.32.0, SGLang 0.5.23, sglang-kt and kt-kernel 0.7.2, llama-cpp-python 0.3.36 with hotset's own.
const std::map<std::string, std::map<std::string, std::string>>& accepted_flags() {
  const std::string number = "[0-9]+", real = "[0-9]+([.][0-9]+)?", word = ".+", none;
  const std::string llama_type = "f32|bf16|q8_0|q5_1|q5_0|q4_1|q4_0|iq4_nl";
  const std::map<std::string, std::string> sglang = {
      {"-m", "sglang.launch_server"},
      {"--model-path", word},
      {"--context-length", number},
      {"--max-running-requests", number},
      {"--chunked-prefill-size", number},
      {"--mem-fraction-static", "0[.][0-9]{2}"},
      {"--max-total-tokens", number},
      {"--cpu-offload-gb", number},
      {"--kv-cache-dtype", "fp8_e5m2|fp8_e4m3|bf16|nvfp4"}};
  auto ktransformers = sglang;
  ktransformers.merge(
      std::map<std::string, std::string>{{"--kt-method", "BF16|FP8|FP8_PERCHANNEL|MXFP4"},
                                         {"--kt-weight-path", word},
                                         {"--kt-num-gpu-experts", number},
                                         {"--kt-cpuinfer", R"([0-9]+|\$\(nproc\))"},
                                         {"--kt-threadpool-count", number}});
  static const std::map<std::string, std::map<std::string, std::string>> flags = {
      {"llama.cpp",
       {{"-m", word},
        {"-c", number},
        {"-np", number},
        {"-b", number},
        {"-ub", number},
        {"-fa", "on"},
        {"-ngl", number},
        {"-ctk", llama_type},
        {"-ctv", llama_type},
        {"-t", number},
        {"-sm", "layer"},
        {"-ts", "[0-9]+(,[0-9]+)*"},
        {"-ot", word},
        {"--n-cpu-moe", number},
        {"--cpu-moe", none},
        {"--moe-cache-mib", number},
        {"--no-op-offload", none},
        {"--load-mode", "none"}}},
      {"vllm",
       {{"--max-model-len", number},
        {"--max-num-seqs", number},
        {"--max-num-batched-tokens", number},
        {"--kv-cache-memory-bytes", number},
        {"--block-size", number},
        {"--kv-cache-dtype", "fp8|fp8_e4m3|fp8_e5m2|float16|bfloat16|nvfp4"},
        {"--cpu-offload-gb", real},
        {"--cpu-offload-params", "experts"},
        {"--data-parallel-size", number},
        {"--enable-expert-parallel", none}}},
      {"sglang", sglang},
      {"ktransformers", ktransformers},
      {"hotset",
       {{"-m", "hotset.llama_cpp.server"},
        {"--model", word},
        {"--n_ctx", number},
        {"--n_batch", number},
        {"--n_ubatch", number},
        {"--n_threads", number},
        {"--n_threads_batch", number},
        {"--type_k", number},
        {"--type_v", number},
        {"--flash_attn", "true"},
        {"--hotset-budget", "auto|[0-9]+MiB"}}}};
  return flags;
}
void check_flags(const std::string& engine, const std::string& line) {
  if (engine == "transformers") return;  // a program
  const auto& known = accepted_flags().at(engine);
  const flags used(line);
  for (const auto& [flag, value] : used.all()) {
    ASSERT_TRUE(known.contains(flag)) << engine << " has no " << flag;
    EXPECT_TRUE(std::regex_match(value, std::regex(known.at(flag)))) << flag << ' ' << value;
  }
}

std::uint64_t divided_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

/// One model on some devices, and the engines' settings for it.
class checked_plan {
 public:
  explicit checked_plan(const lab::plan_request& request)
      : request_(request), model_(request.model), plan_(lab::make_plan(request)) {
    for (const auto& s : plan_.settings) lines_.emplace(s.engine, s.text);
  }

  [[nodiscard]] const lab::memory_plan& plan() const { return plan_; }
  [[nodiscard]] const std::map<std::string, std::string>& lines() const { return lines_; }

  void check() const {
    if (lines_.contains("vllm")) check_vllm(flags(lines_.at("vllm")));
    if (lines_.contains("sglang")) check_sglang(flags(lines_.at("sglang")));
    if (lines_.contains("ktransformers")) check_ktransformers(flags(lines_.at("ktransformers")));
    if (lines_.contains("llama.cpp")) {
      const flags f(lines_.at("llama.cpp"));
      f.has("--moe-cache-mib") ? check_cache(f) : check_llama(f);
    }
    check_pager();
    for (const auto& s : plan_.settings) {
      check_flags(s.engine, s.text);
      EXPECT_GT(s.decode, 0) << s.engine;
      EXPECT_LE(s.host_bytes, model_.all_expert_bytes()) << s.engine;
      if (plan_.is_all_resident() && s.engine != "hotset") {
        EXPECT_EQ(s.host_bytes, 0U) << s.engine << ": all fits";
      }
    }
  }

 private:
  [[nodiscard]] std::uint64_t usable() const {
    return request_.device_bytes - request_.reserve_bytes;
  }
  /// Bytes of a layer's routed experts on one rank.
  [[nodiscard]] std::uint64_t on_rank(layer_id layer, const flags& f, std::uint64_t rank) const {
    const auto ranks = f.number("--data-parallel-size", 1);
    const auto experts = static_cast<std::uint64_t>(model_.experts.experts);
    const auto each = model_.experts.bytes_of(layer);
    if (!f.has("--enable-expert-parallel")) return experts * divided_up(each, ranks);
    return (experts / ranks + (rank < experts % ranks ? 1 : 0)) * each;
  }
  void check_sessions(const flags& f) const {
    const auto ranks = f.number("--data-parallel-size", 1);
    EXPECT_EQ(ranks, request_.devices);
    EXPECT_EQ(f.has("--enable-expert-parallel"),
              request_.devices > 1 && request_.split == lab::device_split::expert);
    EXPECT_EQ(f.number("--max-model-len"), request_.context);
    const auto sessions = f.number("--max-num-seqs");  // of a rank
    EXPECT_GE(sessions * ranks, request_.concurrency);
    EXPECT_LT((sessions - 1) * ranks, request_.concurrency);
    EXPECT_GE(f.number("--kv-cache-memory-bytes"), vllm_floor(f));
    if (request_.kv_type.empty()) {
      EXPECT_EQ(f.has("--kv-cache-dtype"), request_.kv_bits == 8 && model_.has_kv());
    }
  }
  /// vLLM's max_memory_usage_bytes and its null block; every session has room for its whole context.
  [[nodiscard]] std::uint64_t vllm_floor(const flags& f) const {
    const auto sessions = f.number("--max-num-seqs");
    const auto block = f.number("--block-size", 1);
    auto bytes = sessions * model_.state_bytes_per_sequence;
    for (const auto& group : model_.kv) {
      auto blocks = 1 + sessions * divided_up(request_.context, block);
      if (group.window > 0)
        blocks = 1 + sessions +
                 divided_up(std::min(sessions * (group.window - 1) +
                                         2 * f.number("--max-num-batched-tokens"),
                                     sessions * request_.context),
                            block);
      bytes += static_cast<std::uint64_t>(group.layers) * group.bytes_per_token * block * blocks;
    }
    return bytes;
  }
  /// The quotas and the cache share what other weights leave.
  void check_pager() const {
    const auto used = model_.resident_bytes + plan_.kv_bytes();
    auto shares = plan_.devices;
    if (shares.empty()) shares.push_back({.quotas = plan_.quotas.quotas});
    for (const auto& share : shares) {
      auto experts = std::uint64_t{0};
      for (std::size_t l = 0; l < share.quotas.size(); ++l) {
        const auto bytes = model_.experts.bytes_of(static_cast<layer_id>(l));
        const bool cut = request_.devices > 1 && request_.split == lab::device_split::tensor;
        experts += share.quotas[l] * (cut ? divided_up(bytes, request_.devices) : bytes);
      }
      EXPECT_LE(used + experts, usable());
    }
  }
  /// Bytes of every session's cache at the full context.
  [[nodiscard]] std::uint64_t floor_bytes() const {
    return plan_.min_blocks * plan_.block_bytes +
           plan_.device.concurrency *
               (model_.kv_bytes(request_.context) - request_.context * model_.kv_bytes_per_token());
  }
  /// --cpu-offload-gb: GiB of whole layers, each copied back for a pass, beside the rest.
  void check_sglang(const flags& f) const {
    EXPECT_EQ(f.number("--context-length"), request_.context);
    EXPECT_EQ(f.number("--max-running-requests"), request_.concurrency);
    if (model_.kv_bytes_per_token() > 0) {
      EXPECT_GE(f.number("--max-total-tokens"), request_.context * request_.concurrency);
    }
    const auto gone = f.number("--cpu-offload-gb") * 1_GiB;
    std::uint64_t copy = 0;
    for (const auto l : each<layer_id>(model_.experts.layers))
      copy = std::max(
          copy, model_.experts.bytes_of(l) * static_cast<std::uint64_t>(model_.experts.experts));
    EXPECT_LE(
        model_.resident_bytes + model_.all_expert_bytes() + floor_bytes() + (gone > 0 ? copy : 0),
        usable() + gone);
    const auto fraction = std::stod(f.text("--mem-fraction-static"));
    EXPECT_LE(fraction * static_cast<double>(request_.device_bytes), static_cast<double>(usable()));
  }
  /// --kt-num-gpu-experts: of each layer.
  void check_ktransformers(const flags& f) const {
    const auto kept = f.number("--kt-num-gpu-experts");
    const auto used = model_.resident_bytes + floor_bytes() + kept * model_.expert_slot_bytes();
    EXPECT_LE(used, usable());
    EXPECT_GT(used + model_.expert_slot_bytes(), usable());
    EXPECT_EQ(f.text("--kt-weight-path"), f.text("--model-path"));
  }
  void check_vllm(const flags& f) const {
    check_sessions(f);
    EXPECT_GE(f.number("--max-num-batched-tokens"), f.number("--max-num-seqs"));
    if (f.has("--cpu-offload-gb")) return check_offload(f);
    for (std::uint64_t rank = 0; rank < request_.devices; ++rank) {
      std::uint64_t experts = 0;
      for (const auto l : each<layer_id>(model_.experts.layers)) experts += on_rank(l, f, rank);
      EXPECT_LE(model_.resident_bytes + experts + f.number("--kv-cache-memory-bytes"), usable());
    }
  }
  /// --cpu-offload-gb: GiB of each rank. The two tensors of a layer's experts are offloaded in turn, from the first
  /// layer on, until this many bytes are offloaded.
  void check_offload(const flags& f) const {
    EXPECT_EQ(f.text("--cpu-offload-params"), "experts");
    const auto wanted = static_cast<std::uint64_t>(std::stold(f.text("--cpu-offload-gb")) *
                                                   static_cast<long double>(1_GiB));
    for (std::uint64_t rank = 0; rank < request_.devices; ++rank) {
      std::uint64_t experts = 0;
      std::uint64_t gone = 0;
      std::uint64_t layers = 0;
      for (const auto l : each<layer_id>(model_.experts.layers)) {
        const auto bytes = on_rank(l, f, rank);
        experts += bytes;
        for (const auto tensor : {bytes / 3 * 2, bytes - bytes / 3 * 2})
          if (gone < wanted) {
            gone += tensor;
            layers = static_cast<std::uint64_t>(l) + 1;
          }
      }
      EXPECT_LE(model_.resident_bytes + experts - gone + f.number("--kv-cache-memory-bytes"),
                usable());
      if (rank > 0) continue;
      // Not one layer too many, and not more than the corresponding alternative of the plan assumes.
      const auto last = on_rank(static_cast<layer_id>(layers - 1), f, rank);
      EXPECT_GT(model_.resident_bytes + experts - gone + last + vllm_floor(f), usable());
      for (const auto& a : plan_.alternatives)
        if (a.name == "read-in-place" && request_.devices == 1) {
          EXPECT_LE(a.host_layers, layers) << "windows keep more";
        }
    }
  }

  [[nodiscard]] static std::uint64_t padded(std::uint64_t tokens) {
    return divided_up(tokens, 256) * 256;
  }
  /// -c is divided among -np sessions, each rounded up to 256; a window has a micro batch (-ub) beside it.
  [[nodiscard]] std::uint64_t llama_kv(std::size_t block, const flags& f) const {
    const auto sessions = f.number("-np");
    EXPECT_EQ(f.number("-c") / sessions, request_.context);
    if (request_.kv_type.empty()) {
      EXPECT_EQ(f.has("-ctk"), request_.kv_bits != 16 && model_.has_kv());
    }
    const auto& b = model_.blocks[block];
    const auto context = padded(request_.context);
    const auto tokens =
        b.window == 0 ? context : std::min(context, padded(b.window + f.number("-ub")));
    return sessions * (tokens * b.kv_bytes_per_token + b.state_bytes);
  }
  [[nodiscard]] static bool is_on_host(std::size_t block, const flags& f) {
    if (f.has("--cpu-moe")) return true;
    if (block < f.number("--n-cpu-moe")) return true;  // of all blocks, from 0
    if (!f.has("-ot")) return false;
    const auto& rule = f.text("-ot");
    EXPECT_TRUE(rule.ends_with("=CPU"));
    const std::regex names(rule.substr(0, rule.size() - 4));
    const auto matches = [&](const std::string& part) {
      return std::regex_search("blk." + std::to_string(block) + ".ffn_" + part + ".weight", names);
    };
    EXPECT_FALSE(matches("up_shexp") || matches("gate_inp"));
    EXPECT_EQ(matches("up_exps"), matches("gate_up_exps"));
    EXPECT_EQ(matches("up_exps"), matches("down_exps"));
    EXPECT_EQ(matches("up_exps"), matches("gate_exps"));
    return matches("down_exps");
  }
  /// A block at position p (the output is the last) lies on the first device whose -ts share ends behind p.
  [[nodiscard]] std::vector<std::size_t> devices_of(const flags& f) const {
    std::vector<std::size_t> ends;
    std::istringstream shares(f.has("-ts") ? f.text("-ts") : "1");
    std::size_t sum = 0;
    for (std::string share; std::getline(shares, share, ',');)
      ends.push_back(sum += std::stoul(share));
    EXPECT_EQ(ends.size(), request_.devices);
    EXPECT_GE(f.number("-ngl"), model_.blocks.size() + 1);
    std::vector<std::size_t> out;
    for (std::size_t p = 0; p <= model_.blocks.size(); ++p) {
      const auto at = static_cast<float>(p) / static_cast<float>(model_.blocks.size() + 1);
      std::size_t device = 0;
      while (static_cast<float>(ends[device]) / static_cast<float>(sum) <= at) ++device;
      out.push_back(device);
    }
    return out;
  }
  struct llama_device {
    std::uint64_t used = 0;
    std::uint64_t largest_on_host = 0, largest = 0;  ///< experts of one block
    bool has_host = false;
  };
  [[nodiscard]] std::vector<llama_device> llama_devices(const flags& f) const {
    std::vector<llama_device> out(request_.devices);
    const auto device = devices_of(f);
    auto outside = model_.resident_bytes;
    layer_id layer{};
    for (std::size_t b = 0; b < model_.blocks.size(); ++b) {
      auto& d = out[device[b]];
      d.used += model_.blocks[b].resident_bytes + llama_kv(b, f);
      outside -= model_.blocks[b].resident_bytes;
      if (!model_.blocks[b].is_moe) continue;
      const auto experts =
          model_.experts.bytes_of(layer++) * static_cast<std::uint64_t>(model_.experts.experts);
      d.largest = std::max(d.largest, experts);
      if (!is_on_host(b, f)) {
        d.used += experts;
        continue;
      }
      d.has_host = true;
      d.largest_on_host = std::max(d.largest_on_host, experts);
    }
    out[device.back()].used += outside;
    return out;
  }
  void check_llama(const flags& f) const {
    EXPECT_EQ(f.has("-sm"), request_.devices > 1);
    for (const auto& d : llama_devices(f)) {
      EXPECT_LE(d.used, usable());
      if (!d.has_host) continue;
      const auto copy = f.has("--no-op-offload") ? 0 : divided_up(d.largest, 3);
      EXPECT_LE(d.used + copy, usable()) << "no room for a tensor of a prompt's experts";
      EXPECT_GT(d.used + divided_up(d.largest, 3) + d.largest_on_host, usable())
          << "a block too many";
    }
  }
  void check_cache(const flags& f) const {
    EXPECT_TRUE(f.has("--cpu-moe"));
    const auto device = llama_devices(f).front();
    const auto used =
        device.used + f.number("--moe-cache-mib") * 1_MiB + divided_up(device.largest, 3);
    EXPECT_LE(used, usable());
    EXPECT_GT(used + 1_MiB, usable());
  }

  lab::plan_request request_;
  memory_model model_;
  lab::memory_plan plan_;
  std::map<std::string, std::string> lines_;
};

lab::plan_request request_of(const std::string& model, std::uint64_t device, double kv_bits = 16) {
  lab::plan_request out;
  auto described = lab::describe_model(model, {kv_bits});
  out.model = std::move(described.memory);
  out.arithmetic = described.arithmetic;
  out.kv_bits = kv_bits;
  out.device_bytes = device;
  out.reserve_bytes = 1_GiB;
  out.context = 4096;
  out.cost = {.seconds_per_byte = 1 / 25e9, .recompute_seconds_per_token = 1e-3};
  return out;
}

/// Returns how many device configurations have a plan; devices that are too small have none.
int check_on_all_sizes(const std::string& model, double kv_bits, std::uint64_t context,
                       std::uint64_t concurrency) {
  int planned = 0;
  for (const auto split : {lab::device_split::expert, lab::device_split::tensor})
    for (const std::uint32_t devices : {1U, 2U, 3U, 8U})
      for (const std::uint64_t gib : {8U, 12U, 16U, 24U, 48U, 80U}) {
        SCOPED_TRACE(model + " on " + std::to_string(devices) + " x " + std::to_string(gib) +
                     " GiB, " + std::string(name_of(split)) + ", context " +
                     std::to_string(context));
        auto request = request_of(model, gib * 1_GiB, kv_bits);
        request.context =
            std::min(context, request.model.max_context == 0 ? context : request.model.max_context);
        request.concurrency = concurrency;
        request.devices = devices;
        request.split = split;
        try {
          const checked_plan plan(request);
          plan.check();
          EXPECT_EQ(plan.lines().contains("vllm"), request.model.is_causal);
          ++planned;
        } catch (const lab::infeasible_error&) {
        }
      }
  return planned;
}

TEST(engine_settings, every_flag_gives_each_device_the_planned_bytes) {
  int planned = 0;
  const auto names = lab::model_names();
  for (std::size_t m = 0; m < names.size(); m += 4) {
    planned += check_on_all_sizes(names[m], 16, 4096, 1);
    planned += check_on_all_sizes(names[m], 8, 5000, 6);
  }
  EXPECT_GT(planned, 600);
}

TEST(engine_settings, windows_keep_a_micro_batch) {
  auto request = request_of("gpt-oss-20b", 12_GiB);
  request.context = 8192;
  request.concurrency = 8;
  for (const std::uint64_t ubatch : {512U, 2048U, 4096U}) {
    request.ubatch = ubatch;
    const checked_plan plan(request);
    plan.check();
    EXPECT_TRUE(plan.lines().contains("llama.cpp"));
  }
}

TEST(engine_settings, vllm_starts_with_windows) {
  auto request = request_of("gpt-oss-20b", 12_GiB);
  request.ubatch = 2048;
  const checked_plan plan(request);
  plan.check();
  EXPECT_GE(flags(plan.lines().at("vllm")).number("--kv-cache-memory-bytes"), 202'113'024U)
      << "vLLM 0.32.0 for 256 blocks of 12 layers, 257 of 12 windows, and a null block";
  request.context = 131072;
  request.ubatch = 65536;
  request.device_bytes = 9_GiB;
  const checked_plan small(request);
  EXPECT_FALSE(small.lines().contains("vllm"));
  EXPECT_THAT(small.plan().notes, testing::Contains(HasSubstr("beside the sessions' tokens")));
}

TEST(engine_settings, the_cache_has_the_type_that_was_planned_with) {
  for (const double bits : {4.5, 5.0, 5.5, 6.0, 8.5, 32.0}) {
    const checked_plan plan(request_of("qwen3-30b-a3b", 24_GiB, bits));
    plan.check();
    EXPECT_TRUE(plan.lines().contains("llama.cpp"));
    EXPECT_FALSE(plan.lines().contains("vllm"));
    EXPECT_THAT(plan.plan().notes, testing::Contains(HasSubstr("left out: it has no KV")));
  }
}

TEST(engine_settings, every_engine_has_the_type_that_was_named) {
  using types = std::map<std::string, std::string>;
  for (const auto& [name, bits, expected] :
       std::initializer_list<std::tuple<const char*, double, types>>{
           {"f32", 32, {{"llama.cpp", " -ctk f32 -ctv f32"}}},
           {"f16", 16, {{"llama.cpp", ""}, {"vllm", "float16"}}},
           {"bf16",
            16,
            {{"llama.cpp", " -ctk bf16 -ctv bf16"}, {"vllm", "bfloat16"}, {"sglang", "bf16"}}},
           {"fp8_e4m3", 8, {{"vllm", "fp8_e4m3"}, {"sglang", "fp8_e4m3"}}},
           {"fp8_e5m2", 8, {{"vllm", "fp8_e5m2"}, {"sglang", "fp8_e5m2"}}},
           {"fp8", 8, {{"vllm", "fp8"}, {"sglang", "fp8_e4m3"}}},
           {"", 8, {{"vllm", "fp8"}, {"sglang", "fp8_e4m3"}}},
           {"int8", 8, {}},
           {"iq4_nl", 4.5, {{"llama.cpp", " -ctk iq4_nl -ctv iq4_nl"}}},
           {"nvfp4", 4.5, {{"vllm", "nvfp4"}, {"sglang", "nvfp4"}}},
           {"", 7, {}}}) {
    SCOPED_TRACE(name);
    auto request = request_of("qwen3-30b-a3b", 24_GiB, bits);
    request.kv_type = name;
    const checked_plan plan(request);
    plan.check();
    for (const auto* engine : {"llama.cpp", "vllm", "sglang"}) {
      ASSERT_EQ(plan.lines().contains(engine), expected.contains(engine)) << engine;
      if (!expected.contains(engine)) continue;
      const auto& type = expected.at(engine);
      const auto& line = plan.lines().at(engine);
      if (std::string(engine) != "llama.cpp")
        EXPECT_EQ(flags(line).text("--kv-cache-dtype"), type);
      else if (type.empty())
        EXPECT_THAT(line, Not(HasSubstr("-ctk")));
      else
        EXPECT_THAT(line, HasSubstr(type));
    }
    EXPECT_FALSE(plan.lines().contains("transformers"));
  }
}

TEST(engine_settings, blocks_are_counted_with_the_dense_ones) {
  const checked_plan v3(request_of("deepseek-v3", 80_GiB));
  v3.check();
  const flags f(v3.lines().at("llama.cpp"));
  const auto layers = 61 - f.number("--n-cpu-moe");
  EXPECT_EQ(layers, (80_GiB - 1_GiB - v3.plan().request.model.resident_bytes -
                     v3.plan().request.model.kv_bytes(4096) - 256 * 44'050'944ULL / 3) /
                        (256 * 44'050'944ULL));
  const checked_plan lite(request_of("deepseek-v2-lite", 16_GiB));
  lite.check();
}

TEST(engine_settings, the_flag_and_its_alternative_agree) {
  auto request = request_of("mixtral-8x7b", 80_GiB);
  request.context = 32768;
  const checked_plan plan(request);
  plan.check();
  const flags f(plan.lines().at("vllm"));
  for (const auto& a : plan.plan().alternatives)
    if (a.name == "read-in-place") {
      EXPECT_EQ(f.text("--cpu-offload-gb"),
                std::to_string(a.host_layers * 8 * 352'321'536ULL / 1_GiB) + ".125")
          << "5 layers of 2.625 GiB";
      EXPECT_EQ(f.number("--kv-cache-memory-bytes"), a.kv_bytes);
    }
}

TEST(engine_settings, if_all_fits_nothing_is_offloaded) {
  for (const auto* model : {"olmoe-1b-7b", "gpt-oss-20b", "qwen3-30b-a3b"}) {
    const checked_plan plan(request_of(model, 80_GiB));
    plan.check();
    EXPECT_TRUE(plan.plan().is_all_resident());
    for (const auto& [engine, line] : plan.lines()) {
      EXPECT_THAT(line, Not(HasSubstr("cpu"))) << engine;
      EXPECT_THAT(line, Not(HasSubstr("moe-cache"))) << engine;
      EXPECT_THAT(line, Not(HasSubstr("h.page"))) << engine;
    }
    EXPECT_FALSE(plan.lines().contains("ktransformers"));
  }
}

TEST(engine_settings, an_unsupported_option_omits_the_engine_with_a_note) {
  auto request = request_of("qwen3-30b-a3b", 24_GiB);
  request.block_tokens = 100;
  const checked_plan blocks(request);
  blocks.check();
  EXPECT_FALSE(blocks.lines().contains("vllm"));
  EXPECT_THAT(blocks.plan().notes, testing::Contains(HasSubstr("it has blocks of 1, 8, 16")));
  request.block_tokens = 16;
  for (const std::uint32_t devices : {16U, 17U}) {
    request.devices = devices;
    const checked_plan many(request);
    many.check();
    EXPECT_EQ(many.lines().contains("llama.cpp"), devices == 16);
  }
}

TEST(engine_settings, unified_memory_is_counted_once) {
  auto request = request_of("gpt-oss-120b", 48_GiB);
  request.host_bytes = 64_GiB;
  const auto on_disk = [&] { return lab::make_plan(request).settings.front().disk_bytes; };
  EXPECT_EQ(on_disk(), 0U) << "61 GiB of weights on a card and in 58 GiB of memory";
  request.is_unified = true;
  const checked_plan plan(request);
  plan.check();
  const auto& llama = plan.plan().settings.front();
  EXPECT_EQ(llama.host_bytes - llama.disk_bytes, 64_GiB - 64_GiB / 10 - 48_GiB);
  request.host_bytes = request.least_host_bytes(llama.host_bytes);
  EXPECT_EQ(on_disk(), 0U);
  request.host_bytes -= 2;
  EXPECT_GT(on_disk(), 0U) << "least_host_bytes is the least";
}

TEST(engine_settings, if_there_is_no_card_the_processor_reads_what_memory_does_not_hold) {
  auto request = request_of("gpt-oss-120b", 0);
  request.has_card = false;
  request.host_bytes = 32_GiB;
  request.device_bytes = request.usable_host_bytes();
  const auto plan = lab::make_plan(request);
  ASSERT_EQ(plan.settings.size(), 2U);
  const auto& llama = plan.settings.front();
  check_flags("llama.cpp", llama.text);
  EXPECT_THAT(llama.text, HasSubstr("-ngl 0"));
  EXPECT_EQ(llama.host_bytes - llama.disk_bytes,
            request.device_bytes - request.model.resident_bytes - request.model.kv_bytes(4096));
  EXPECT_GT(llama.decode, plan.settings.back().decode) << "whole contexts are read";
  EXPECT_EQ(plan.recommended()->engine, "hotset") << "a mapped file reads more than LRU";
  EXPECT_THAT(plan.notes, testing::Contains("vllm, sglang, ktransformers, transformers left out: a "
                                            "card is needed"));
  request.host_bytes = 80_GiB;
  request.device_bytes = request.usable_host_bytes();
  EXPECT_EQ(lab::make_plan(request).recommended()->engine, "llama.cpp");
}

/// kt-kernel's format in the line for a small model with these keys; empty: there is no line. `expert_bytes`: by hand.
std::string kt_method_for(const std::string& keys, const std::string& dtype = "bfloat16",
                          std::uint64_t expert_bytes = 0) {
  const support::temporary_folder folder;
  const auto config = folder.write(
      "config.json",
      R"({"model_type":"mixtral","hidden_size":2048,"num_hidden_layers":2,"vocab_size":10,
"num_attention_heads":2,"num_local_experts":64,"num_experts_per_tok":2,"intermediate_size":2048,
"torch_dtype":")" +
          dtype + '"' + keys + "}");
  auto request = request_of(config.string(), 1_GiB + 256_MiB);
  if (expert_bytes > 0) request.model.experts.expert_bytes = {expert_bytes};
  request.engines = {"ktransformers", "llama.cpp"};
  const auto plan = lab::make_plan(request);
  for (const auto& line : plan.settings)
    if (line.engine == "ktransformers") {
      check_flags(line.engine, line.text);
      return flags(line.text).text("--kt-method");
    }
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("ktransformers left out: its line is known "
                                                      "for experts in BF16")));
  return "";
}

TEST(engine_settings, kt_kernels_method_is_the_experts_format_not_their_bits) {
  const auto method = [](const std::string& quantisation) {
    return kt_method_for(R"(,"quantization_config":{"quant_method":)" + quantisation + "}");
  };
  const auto grouped = [&](const std::string& weights) {
    return method(R"("compressed-tensors","config_groups":{"a":{"targets":["Linear"],"weights":{)" +
                  weights + "}}}");
  };
  EXPECT_EQ(kt_method_for(""), "BF16");
  EXPECT_EQ(kt_method_for("", "float32"), "");
  EXPECT_EQ(kt_method_for("", "bfloat16", 12_MiB), "") << "8 bits a parameter by hand";
  EXPECT_EQ(method(R"("fp8","weight_block_size":[128,128])"), "FP8");
  EXPECT_EQ(method(R"("fp8")"), "") << "one scale for a whole tensor";
  EXPECT_EQ(method(R"("fbgemm_fp8")"), "FP8_PERCHANNEL");
  EXPECT_EQ(method(R"("modelopt","quant_algo":"FP8_PER_CHANNEL_PER_TOKEN")"), "FP8_PERCHANNEL");
  EXPECT_EQ(grouped(R"("num_bits":8,"type":"float","strategy":"channel")"), "FP8_PERCHANNEL");
  EXPECT_EQ(grouped(R"("num_bits":8,"type":"int","strategy":"channel")"), "");
  EXPECT_EQ(method(R"("gptq","bits":8,"group_size":128)"), "");
  EXPECT_EQ(method(R"("mxfp4")"), "MXFP4");
  EXPECT_EQ(method(R"("awq","bits":4,"group_size":64,"zero_point":false)"), "");
  EXPECT_EQ(method(R"("fp8","weight_block_size":[128,128],"ignored_layers":["model.layers.1"])"),
            "")
      << "experts in two formats";
}

TEST(engine_settings, hotsets_server_has_the_planned_batch_threads_and_cache) {
  auto request = request_of("gpt-oss-20b", 0, 8.5);
  request.has_card = false;
  request.host_bytes = 12_GiB;
  request.device_bytes = request.usable_host_bytes();
  request.ubatch = 2048;
  request.threads = 12;
  request.context = 32768;
  request.engines = {"hotset"};
  const auto plan = lab::make_plan(request);
  const auto& line = plan.settings.front();
  check_flags("hotset", line.text);
  const flags f(line.text);
  EXPECT_EQ(f.number("--n_ubatch"), 2048U);
  EXPECT_EQ(f.number("--n_batch"), 2048U);
  EXPECT_EQ(f.number("--n_threads"), 12U);
  EXPECT_EQ(f.number("--type_k"), 8U) << "GGML_TYPE_Q8_0";
  EXPECT_EQ(f.number("--type_v"), 8U);
  EXPECT_TRUE(f.has("--flash_attn")) << "llama.cpp needs it for these values";
  std::uint64_t whole = 0;  // bytes of a token, windows included
  for (const auto& group : request.model.kv)
    whole += static_cast<std::uint64_t>(group.layers) * group.bytes_per_token;
  EXPECT_EQ(line.host_bytes - line.disk_bytes,
            request.device_bytes - request.model.resident_bytes - 32768 * whole);
  request.kv_type = "fp8";
  EXPECT_THROW((void)lab::make_plan(request), lab::infeasible_error);
}

TEST(engine_settings, a_model_of_unknown_blocks_has_its_layers_counted_from_0) {
  auto request = request_of("olmoe-1b-7b", 8_GiB);
  const checked_plan known(request);
  request.model.blocks.clear();
  const checked_plan unknown(request);
  EXPECT_EQ(unknown.lines(), known.lines());
  request.devices = 2;
  const checked_plan two(request);
  EXPECT_FALSE(two.lines().contains("llama.cpp"));
  EXPECT_THAT(two.plan().notes, testing::Contains(HasSubstr("their contents are not given")));
}

}  // namespace
}  // namespace hotset::engine_settings_test
