// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/esft.hpp"
#include "lab/traces/open_trace.hpp"
#include "lab/traces/requests.hpp"
#include "trace_samples.hpp"

namespace real_data_test {
namespace {
using namespace hotset;
using namespace hotset::lab;

class real_data : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(HOTSET_DATA_DIR).empty())
      GTEST_SKIP() << "HOTSET_DATA_DIR is empty: recorded traces are not available";
    if (!std::filesystem::exists(data("routing")))
      GTEST_SKIP() << "HOTSET_DATA_DIR holds no folder 'routing'";
  }
  static std::filesystem::path data(const std::string& name) {
    return std::filesystem::path(HOTSET_DATA_DIR) / name;
  }
};

TEST_F(real_data, gemma_has_the_published_counts) {
  const auto trace = open_trace(data("routing/bigmoe-gemma/gemma.route.csv"));
  EXPECT_EQ(trace.layers, 30);
  EXPECT_EQ(trace.experts, 128);
  EXPECT_EQ(trace.top_k, 6);
  EXPECT_EQ(trace.model, "google_gemma-4-26B-A4B-it-Q4_K_M.gguf");
  EXPECT_EQ(trace.expert_bytes.at(0), 4336640U);
  EXPECT_EQ(trace.expert_bytes.at(29), 3593216U);
  std::size_t prefill = 0;
  std::size_t decode = 0;
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    (trace.kind[t] == request_class::prefill ? prefill : decode) += 30 * 6;
  EXPECT_EQ(prefill, 5220U);
  EXPECT_EQ(decode, 23040U);
  const visit_sequence visits(trace);
  EXPECT_EQ(visits.size(), 30U * 129U) << "one step of prompt, 128 of decoding";
  EXPECT_EQ(visits.routed(), 28260U);
  EXPECT_EQ(visits.at(0).count, 29U * 6U);
}

TEST_F(real_data, esft_has_the_scores_of_its_summary) {
  const auto entries = read_input(data("routing/esft-law/esft-law.tar.xz"));
  const auto trace = parse_esft(entries, "esft-law");
  EXPECT_EQ(trace.tokens(), 8327U);
  EXPECT_EQ(trace.sequence.back(), 32U);
  EXPECT_EQ(trace.layers, 26);
  EXPECT_EQ(trace.experts, 64);
  EXPECT_EQ(trace.top_k, 6);
  const auto held = std::ranges::find(entries, "summary.json", &input_entry::name);
  ASSERT_NE(held, entries.end());
  const auto summary = nlohmann::json::parse(held->text);
  for (const auto layer : each<layer_id>(26)) {
    std::vector<double> gate(64);
    std::vector<double> token(64);
    for (std::size_t t = 0; t < trace.tokens(); ++t)
      for (std::size_t rank = 0; rank < 6; ++rank) {
        const auto e = index_of(trace.ids_of(t, layer)[rank]);
        gate[e] += double{trace.weights_of(t, layer)[rank]} / 8327;
        token[e] += 1.0 / (8327 * 6);
      }
    for (std::size_t e = 0; e < 64; ++e)
      for (const auto& [name, score] :
           {std::pair("gate_scores", gate[e]), {"token_scores", token[e]}})
        ASSERT_NEAR(
            score,
            summary[name][std::to_string(number(layer) + 1)][std::to_string(e)].get<double>(),
            5e-5 + 1e-9);
  }
}

TEST_F(real_data, mooncake_has_the_published_counts) {
  const auto path = data("kv/mooncake-synthetic/synthetic_trace.jsonl.xz");
  const auto kv = open_requests(path);
  EXPECT_EQ(kv.requests(), 3993U);
  EXPECT_EQ(kv.references(), 121877U);
  EXPECT_EQ(kv.distinct(), 43924U);
  const auto trace = open_trace(path);
  EXPECT_EQ(trace.tokens(), 121877U);
  EXPECT_EQ(trace.experts, 43924);
}

TEST_F(real_data, azure_has_all_requests) {
  const auto kv = open_requests(data("kv/azure-code/AzureLLMInferenceTrace_code.csv.xz"));
  EXPECT_EQ(kv.requests(), 8819U);
  EXPECT_EQ(kv.input_length.front(), 4808U);
  EXPECT_TRUE(std::is_sorted(kv.timestamp.begin(), kv.timestamp.end()));
}

TEST_F(real_data, other_files_are_refused_in_one_line) {
  for (const auto* name :
       {"routing/bigmoe-gemma/gemma-curve.csv", "routing/event-atomic-toy/events.csv",
        "tiny-moe/model.safetensors", "adapters/esft/law.json", "README.md", "adapters"})
    if (std::filesystem::exists(data(name)))
      trace_samples::expect_refused([&] { (void)open_trace(data(name)); }, {"accepted"});
}

}  // namespace
}  // namespace real_data_test
