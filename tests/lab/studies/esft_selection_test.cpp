// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/esft_selection.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "damage.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_files.hpp"
#include "lab/traces/esft.hpp"
#include "random_source.hpp"
#include "sim_samples.hpp"

namespace hotset::lab::esft_selection_test {
namespace {

using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const std::vector<scored_expert> four{
    {0_expert, .25}, {1_expert, .125}, {2_expert, .5}, {3_expert, .125}};

TEST(esft_selection, takes_the_best_while_those_before_sum_to_less_than_p) {
  EXPECT_THAT(select_experts(four, .2), ElementsAre(2)) << "the one that crosses p is taken";
  EXPECT_THAT(select_experts(four, .5), ElementsAre(2)) << "p itself is enough";
  EXPECT_THAT(select_experts(four, .51), ElementsAre(2, 0));
  EXPECT_THAT(select_experts(four, .75), ElementsAre(2, 0));
  EXPECT_THAT(select_experts(four, .76), ElementsAre(2, 0, 1)) << "of equals the lower expert";
  EXPECT_THAT(select_experts(four, 1), ElementsAre(2, 0, 1, 3));
  EXPECT_THAT(select_experts(four, 7), ElementsAre(2, 0, 1, 3)) << "there are no more";
}

TEST(esft_selection, agrees_with_taking_the_best_that_is_left_again_and_again) {
  support::random_source random(0xe5f7);
  for (int round = 0; round < 500; ++round) {
    std::vector<scored_expert> scores;
    const auto experts = 1 + random.id_below(20);
    for (std::int32_t e = experts - 1; e >= 0; --e)
      scores.push_back({expert_id{e}, static_cast<double>(random.below(8)) / 64});
    const auto p = static_cast<double>(1 + random.below(80)) / 64;
    std::vector<expert_id> expected;
    std::vector<bool> is_taken(static_cast<std::size_t>(experts));
    for (double sum = 0; sum < p && expected.size() < scores.size();) {
      const scored_expert* best = nullptr;
      for (auto at = scores.rbegin(); at != scores.rend(); ++at)  // ascending experts
        if (!is_taken[index_of(at->expert)] && (best == nullptr || at->score > best->score))
          best = &*at;
      is_taken[index_of(best->expert)] = true;
      expected.push_back(best->expert);
      sum += best->score;
    }
    ASSERT_EQ(select_experts(scores, p), expected) << "round " << round;
  }
}

constexpr std::string_view text =
    R"({"token_scores": {"10": {"1": 0.75, "0": 0.25}, "9": {"0": 0.5, "1": 0.5}},
        "gate_scores": {"9": {"0": 0.1, "1": 0.2}, "10": {"0": 0, "1": 1}}})";

TEST(esft_selection, a_summary_has_both_scores_and_its_layers_ascend_by_number) {
  const auto token = parse_esft_summary(text, "s.json", esft_score::token);
  EXPECT_THAT(token.layer_numbers, ElementsAre(9, 10));
  EXPECT_THAT(select_experts(token, .5).tuned, ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(select_experts(token, .5).layer_numbers, ElementsAre(9, 10));
  const auto gate = parse_esft_summary(text, "s.json", esft_score::gate);
  EXPECT_THAT(select_experts(gate, .5).tuned, ElementsAre(ElementsAre(1, 0), ElementsAre(1)));
  EXPECT_EQ(parse_esft_score("token"), esft_score::token);
  EXPECT_EQ(parse_esft_score("gate"), esft_score::gate);
  EXPECT_THAT(refusal<usage_error>([] { (void)parse_esft_score("gates"); }),
              HasSubstr("'gates' (did you mean gate?); accepted: token, gate"));
}

TEST(esft_selection, refuses_what_is_no_summary) {
  const auto refused = [](std::string_view summary) {
    return refusal<trace_error>(
        [&] { (void)parse_esft_summary(summary, "s.json", esft_score::token); });
  };
  EXPECT_THAT(refused("{"), HasSubstr("s.json: ends before its JSON does"));
  EXPECT_THAT(refused("7"), HasSubstr("s.json: is no JSON object"));
  EXPECT_THAT(refused(R"({"gate_scores": {}})"), HasSubstr("key 'token_scores': is missing"));
  EXPECT_THAT(refused(R"({"token_scores": {}})"), HasSubstr("has no layers"));
  EXPECT_THAT(refused(R"({"token_scores": 1})"), HasSubstr("key 'token_scores': is 1"));
  EXPECT_THAT(refused(R"({"token_scores": {"x": {"0": 1}}})"), HasSubstr("layer 'x'"));
  EXPECT_THAT(refused(R"({"token_scores": {"1": {}}})"),
              HasSubstr("token_scores: layer 1: has no experts"));
  EXPECT_THAT(refused(R"({"token_scores": {"1": [1]}})"), HasSubstr("is an array of 1"));
  EXPECT_THAT(refused(R"({"token_scores": {"1": {"-1": 1}}})"), HasSubstr("expert '-1'"));
  EXPECT_THAT(refused(R"({"token_scores": {"1": {"0": 1, "0": 1}}})"), HasSubstr("twice"));
  for (const char* bad : {"-0.1", "\"1\"", "null", "1e300"})
    EXPECT_THAT(refused(std::string(R"({"token_scores": {"1": {"4": )") + bad + "}}}"),
                HasSubstr("layer 1: the score of expert 4 is "))
        << bad;
}

TEST(esft_selection, a_damaged_summary_is_read_or_refused_in_one_line) {
  splitmix64 random(0x5da);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto summary = damaged(std::string(text), random);
    try {
      const auto read = parse_esft_summary(summary, "s.json", esft_score::token);
      ++accepted;
      ASSERT_EQ(read.layer_numbers.size(), read.scores.size()) << summary;
      for (const auto& layer : read.scores)
        for (const auto& one : layer) ASSERT_TRUE(one.expert >= 0 && one.score >= 0) << summary;
    } catch (const trace_error& error) {
      const std::string message = error.what();
      ASSERT_TRUE(message.starts_with("s.json: ")) << summary << ": " << message;
      ASSERT_EQ(message.find('\n'), std::string::npos) << summary;
    }
  }
  EXPECT_GT(accepted, 100) << "some damage leaves a summary";
}

class published_selections : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(HOTSET_DATA_DIR).empty())
      GTEST_SKIP() << "HOTSET_DATA_DIR is empty: published configurations are not available";
    if (!std::filesystem::exists(data("adapters/esft")) ||
        !std::filesystem::exists(data("routing/esft-law")))
      GTEST_SKIP() << "HOTSET_DATA_DIR holds no folder 'adapters/esft' or 'routing/esft-law'";
  }
  static std::filesystem::path data(const std::string& name) {
    return std::filesystem::path(HOTSET_DATA_DIR) / name;
  }
  static esft_config published(const std::string& name) {
    return read_esft_config(data("adapters/esft/" + name + ".json"),
                            {.layers = 26, .experts = 64, .first_layer = 1});
  }
  static void expect_equal(const esft_config& found, const std::string& name) {
    const auto wanted = published(name);
    EXPECT_EQ(found.layer_numbers, wanted.layer_numbers) << name;
    ASSERT_THAT(found.tuned, SizeIs(wanted.tuned.size())) << name;
    for (std::size_t l = 0; l < wanted.tuned.size(); ++l)
      EXPECT_EQ(found.tuned[l], wanted.tuned[l]) << name << " layer " << wanted.layer_numbers[l];
  }
};

TEST_F(published_selections, are_those_of_token_scores_at_a_fifth_in_order) {
  for (const std::string name : {"intent", "summary", "translation"})
    expect_equal(
        select_experts(read_esft_summary(data("adapters/esft/scores/" + name + ".summary.json"),
                                         esft_score::token),
                       .2),
        name);
  expect_equal(
      select_experts(read_esft_summary(data("routing/esft-law/esft-law.tar.xz"), esft_score::token),
                     .2),
      "law");
}

// Without rounding two of the layers differ.
TEST_F(published_selections, come_out_of_the_recorded_routing_itself) {
  const auto folder = std::filesystem::temp_directory_path() / "hotset-esft-selection-test";
  std::filesystem::remove_all(folder);
  auto entries = read_input(data("routing/esft-law/esft-law.tar.xz"));
  std::erase_if(entries, [](const input_entry& entry) { return entry.name == "summary.json"; });
  write_esft(parse_esft(entries, "esft-law"), folder);
  expect_equal(select_experts(read_esft_summary(folder, esft_score::token), .2), "law");
  std::filesystem::remove_all(folder);
}

TEST_F(published_selections, by_gate_score_are_larger_for_the_same_p) {
  const auto summary =
      read_esft_summary(data("routing/esft-law/esft-law.tar.xz"), esft_score::gate);
  const auto mean = [&](double p) {
    double sum = 0;
    for (const auto e : select_experts(summary, p).counts()) sum += e;
    return sum / 26;
  };
  EXPECT_NEAR(mean(.1), 6.27, .0051);
  EXPECT_NEAR(mean(.2), 16.4, .051);
}

}  // namespace
}  // namespace hotset::lab::esft_selection_test
