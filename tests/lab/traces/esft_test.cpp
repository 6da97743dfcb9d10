// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/esft.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace esft_test {
namespace {
using namespace hotset;
using namespace hotset::lab;
using ::testing::ElementsAre;
using trace_samples::expect_refused;

std::vector<input_entry> small(std::string_view one = trace_samples::esft_layer_1,
                               std::string_view two = trace_samples::esft_layer_2) {
  return {{"expert_weights_1.txt", std::string(one)}, {"expert_weights_2.txt", std::string(two)}};
}

TEST(esft, tokens_are_in_rank_order) {
  const auto trace = parse_esft(small(), "law", {.top_k = 2});
  EXPECT_EQ(trace.tokens(), 3U);
  EXPECT_EQ(trace.layers, 2);
  EXPECT_EQ(trace.experts, 4);
  EXPECT_EQ(trace.fact("layers"), "1,2");
  EXPECT_THAT(trace.sequence, ElementsAre(0, 0, 1));
  EXPECT_THAT(trace.step, ElementsAre(0, 1, 2));
  EXPECT_THAT(trace.ids_of(0, 0_layer), ElementsAre(0, 3)) << "descending weight";
  EXPECT_THAT(trace.ids_of(2, 0_layer), ElementsAre(0, 3)) << "ties in file order";
  EXPECT_THAT(trace.ids_of(2, 1_layer), ElementsAre(1, 2));
  EXPECT_THAT(trace.weights_of(0, 0_layer), ElementsAre(0.7F, 0.1F));
}

TEST(esft, top_k_is_inferred_from_distinct_experts_and_weights) {
  EXPECT_EQ(parse_esft(small(), "law").top_k, 2);
  // Four distinct experts with small weights could be one token with top-4.
  for (const auto& [line, top_k] : {std::pair("0\t1\t2\t3\t\t0.1\t0.1\t0.1\t0.1\n", 4),
                                    {"0\t1\t2\t3\t\t0.6\t0.1\t0.6\t0.1\n", 2},
                                    {"0\t1\t1\t0\t\t0.1\t0.1\t0.1\t0.1\n", 2}})
    EXPECT_EQ(parse_esft({{"expert_weights_3.txt", line}}, "x").top_k, top_k) << line;
}

TEST(esft, the_number_of_experts_is_read_from_the_summary) {
  auto entries = small();
  entries.push_back({"summary.json",
                     R"({"gate_scores":{"1":{"0":0,"1":0,"2":0,"3":0,"4":0}},"token_scores":{}})"});
  EXPECT_EQ(parse_esft(entries, "law").experts, 5);
  entries.back().text = "[]";
  expect_refused([&] { (void)parse_esft(entries, "law"); }, {"summary.json", "gate_scores"});
}

TEST(esft, refuses_bad_files_in_one_line) {
  const auto refused = [](const std::vector<input_entry>& entries,
                          std::initializer_list<std::string_view> said,
                          const open_trace_options& options = {}) {
    expect_refused([&] { (void)parse_esft(entries, "law", options); }, said);
  };
  refused({}, {"law", "holds no expert_weights_<layer>.txt"});
  refused({{"expert_weights_x.txt", "0\t\t1\n"}}, {"holds no"});
  refused(small(""), {"expert_weights_1.txt", "is empty"});
  refused(small("0\t1\n"), {"line 1", "no empty column"});
  refused(small("0\t1\t\t0.5\n"), {"1 weights for 2 experts"});
  refused(small("0\t-1\t\t0.5\t0.5\n"), {"expert 1 is '-1'"});
  refused(small("0\t4\t\t0.5\t0.5\n"), {"expert 1 is '4'", "0..3"}, {.experts = 4});
  refused(small("0\t1\t\tnan\t0.5\n"), {"line 1", "weight 0 is 'nan'"});
  refused(small("3\t0\t2\t1\t\t0.1\t0.7\t0.25\t0.5\n"),
          {"expert_weights_2.txt", "2 sequences", "accepted: 1"});
  refused(small("0\t1\t\t0.5\t0.5\n0\t1\t\t0.5\t0.5\n"),
          {"expert_weights_2.txt: line 1", "4 experts", "accepted: 2"});
  refused(small("3\t0\t2\t1\t\t0.1\t0.7\t0.25\t0.5\n0\t3\t\t0.4\t0.4"), {"line 2", "cut short"});
  refused(small(), {"line 1", "4 experts", "a multiple of top_k = 3"}, {.top_k = 3});
}

}  // namespace
}  // namespace esft_test
