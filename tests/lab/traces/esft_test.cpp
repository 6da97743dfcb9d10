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

TEST(esft, tokens_are_in_rank_order_and_the_file_order_is_kept) {
  const auto esft = parse_esft(small(), "law", {.top_k = 2});
  const auto& trace = esft.trace;
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
  EXPECT_EQ(format_esft_layer(esft, 0_layer), trace_samples::esft_layer_1);
  EXPECT_EQ(format_esft_layer(esft, 1_layer), trace_samples::esft_layer_2);
}

TEST(esft, top_k_is_inferred_from_distinct_experts_and_weights) {
  EXPECT_EQ(parse_esft(small(), "law").trace.top_k, 2);
  // Four distinct experts and small weights could be one token of four.
  EXPECT_EQ(
      parse_esft({{"expert_weights_3.txt", "0\t1\t2\t3\t\t0.1\t0.1\t0.1\t0.1\n"}}, "x").trace.top_k,
      4);
  EXPECT_EQ(
      parse_esft({{"expert_weights_3.txt", "0\t1\t2\t3\t\t0.6\t0.1\t0.6\t0.1\n"}}, "x").trace.top_k,
      2);
  EXPECT_EQ(
      parse_esft({{"expert_weights_3.txt", "0\t1\t1\t0\t\t0.1\t0.1\t0.1\t0.1\n"}}, "x").trace.top_k,
      2);
}

TEST(esft, writes_the_folder_that_was_read) {
  const trace_samples::temporary_folder folder;
  const auto esft = parse_esft(small(), "law");
  write_esft(esft, folder.path() / "out");
  EXPECT_EQ(trace_samples::read_all(folder.path() / "out" / "expert_weights_1.txt"),
            trace_samples::esft_layer_1);
  const auto again = read_esft(folder.path() / "out");
  EXPECT_EQ(again.trace.ids, esft.trace.ids);
  EXPECT_EQ(again.file_position, esft.file_position);
  auto ranked = esft;
  ranked.file_position.clear();
  write_esft(ranked, folder.path() / "ranked");
  EXPECT_EQ(read_esft(folder.path() / "ranked").trace.ids, esft.trace.ids);
}

TEST(esft, refuses_to_write_what_the_format_cannot_say) {
  auto esft = parse_esft(small(), "law");
  auto no_weights = esft;
  no_weights.trace.weights.clear();
  expect_refused([&] { (void)format_esft_layer(no_weights, 0_layer); },
                 {"weights or experts are absent"});
  auto absent = esft;
  absent.trace.ids[0] = no_expert;
  expect_refused([&] { (void)format_esft_layer(absent, 0_layer); },
                 {"weights or experts are absent"});
  esft.file_position[0] = 2;
  expect_refused([&] { (void)format_esft_layer(esft, 0_layer); },
                 {"file_position holds 2", "0..1"});
}

TEST(esft, scores_are_means_and_shares) {
  const auto scores = score_esft(parse_esft(small(), "law").trace);
  EXPECT_NEAR(scores.gate[0][0], (0.7 + 0.4) / 3, 1e-6);
  EXPECT_NEAR(scores.token[0][0], 2.0 / 6, 1e-12);
  EXPECT_NEAR(scores.token[1][1], 2.0 / 6, 1e-12);
}

TEST(esft, weights_are_printed_as_python_prints_them) {
  const std::string text = "0\t1\t2\t\t0.0\t1e-05\t0.0003\n";
  EXPECT_EQ(
      format_esft_layer(parse_esft({{"expert_weights_0.txt", text}}, "x", {.top_k = 3}), 0_layer),
      text);
}

TEST(esft, the_number_of_experts_comes_from_the_summary) {
  auto entries = small();
  entries.push_back({"summary.json",
                     R"({"gate_scores":{"1":{"0":0,"1":0,"2":0,"3":0,"4":0}},"token_scores":{}})"});
  EXPECT_EQ(parse_esft(entries, "law").trace.experts, 5);
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
