// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/expert_counts.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf_samples.hpp"
#include "lab/traces/open_trace.hpp"
#include "trace_samples.hpp"

namespace hotset::expert_counts_test {
namespace {

namespace gguf = gguf_samples;
using lab::count_uses;
using lab::read_imatrix;
using testing::DoubleEq;
using testing::ElementsAre;
using trace_samples::expect_refused;

/// Appends the tensors' numbers; each tensor starts at a multiple of 32 bytes.
std::string with_data(const gguf::file& file, const std::vector<std::vector<float>>& tensors) {
  auto bytes = file.bytes();
  auto at = bytes.size() - file.data_bytes();
  for (const auto& numbers : tensors) {
    std::memcpy(bytes.data() + at, numbers.data(), numbers.size() * sizeof(float));
    at += (numbers.size() * sizeof(float) + 31) / 32 * 32;
  }
  return bytes;
}
std::string imatrix(const std::vector<float>& counts) {
  gguf::file file;
  file.word("general.type", "imatrix")
      .tensor("blk.7.ffn_gate_exps.weight.counts", {1, 4}, gguf::f32)
      .tensor("blk.7.attn_q.weight.counts", {1, 1}, gguf::f32)
      .tensor("blk.11.ffn_down_exps.weight.in_sum2", {2, 4}, gguf::f32)
      .tensor("blk.11.ffn_down_exps.weight.counts", {1, 4}, gguf::f32);
  return with_data(file, {{1, 0, 5, 2}, {64}, std::vector<float>(8, 9.5F), counts});
}

TEST(expert_counts, of_a_trace_are_its_routed_ids) {
  const auto trace = lab::open_trace(trace_samples::temporary_folder().write(
      "t", "token,layer,experts\n0,2,3 1\n0,5,0 -1\n1,2,3 2\n1,5,0 1\n"));
  const auto counts = count_uses(trace);
  EXPECT_THAT(counts.layers, ElementsAre(2, 5)) << "as the recording numbers them";
  EXPECT_EQ(counts.experts, 4);
  EXPECT_THAT(counts.uses, ElementsAre(0, 1, 1, 2, 2, 1, 0, 0));
  EXPECT_EQ(counts.total(), 7);
  EXPECT_EQ(counts.unused(), 3U);
  EXPECT_THAT(counts.hottest(.25), DoubleEq(4.0 / 7));
  EXPECT_EQ(counts.hottest(0), 0);
  EXPECT_EQ(counts.hottest(1), 1);
  EXPECT_THAT(count_uses(trace, 1).uses, ElementsAre(0, 1, 0, 1, 1, 0, 0, 0)) << "the first token";
  EXPECT_EQ(count_uses(trace, 99).uses, counts.uses);
}

TEST(expert_counts, of_an_importance_matrix_are_rows_of_experts) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("m.imatrix.gguf", imatrix({0, 0, 3, 1}));
  const auto counts = read_imatrix(path);
  EXPECT_EQ(counts.name, "m");
  EXPECT_THAT(counts.layers, ElementsAre(7, 11));
  EXPECT_EQ(counts.experts, 4);
  EXPECT_THAT(counts.uses, ElementsAre(1, 0, 5, 2, 0, 0, 3, 1));
  expect_refused([&] { (void)lab::open_trace(path); }, {"holds no trace", "hotset counts"});
}

TEST(expert_counts, of_a_json_object_are_its_logical_count) {
  const trace_samples::temporary_folder folder;
  const auto read = [&](const std::string& text) {
    const auto path = folder.write("c.json", text);
    EXPECT_TRUE(lab::looks_like_logical_counts(text));
    return lab::read_logical_counts(path);
  };
  const auto plain = read(R"({"logical_count": [[5, 0, 2], [1, 1, 8]]})");
  EXPECT_EQ(plain.name, "c");
  EXPECT_EQ(plain.experts, 3);
  EXPECT_THAT(plain.layers, ElementsAre(0, 1));
  EXPECT_THAT(plain.uses, ElementsAre(5, 0, 2, 1, 1, 8));
  EXPECT_THAT(read(R"({"expert_load": [[5, 0]]})").uses, ElementsAre(5, 0));
  EXPECT_FALSE(lab::looks_like_logical_counts("{\"expert_count\": 128}\n{\"layer\": 0}\n"));
  const auto steps =
      read(R"({"logical_count": [[[5, 0]], [[1, 1.0]]], "layers": [7], "name": "n"})");
  EXPECT_THAT(steps.uses, ElementsAre(6, 1));
  EXPECT_THAT(steps.layers, ElementsAre(7));
  EXPECT_EQ(steps.name, "n");
}

TEST(expert_counts, refuses_a_json_object_without_counts) {
  const trace_samples::temporary_folder folder;
  const auto refused = [&](const std::string& text, std::string_view said) {
    expect_refused([&] { (void)lab::read_logical_counts(folder.write("c", text)); }, {"c: ", said});
  };
  refused("[[1]]", "is no JSON object");
  refused("{\"logical_count\": [[1", "cut short");
  refused(R"({"logical_count": [[1]], "logical_count": [[2]]})", "is there twice");
  refused("{}", "has none");
  refused(R"({"logical_count": [1]})", "is no such array");
  refused(R"({"logical_count": [[[[1]]]]})", "is no such array");
  refused(R"({"logical_count": [[1], [1, 2]]})", "several lengths");
  refused(R"({"logical_count": [[[1]], [[1], [2]]]})", "several shapes");
  refused(R"({"logical_count": [[[1]], [2]]})", "is no such array");
  refused(R"({"logical_count": [[0.5]]})", "holds 0.5");
  refused(R"({"logical_count": [[-1]]})", "holds -1");
  refused(R"({"logical_count": [["1"]]})", "holds");
  refused(R"({"logical_count": [[1e999]]})", "c: ");
  refused(R"({"logical_count": [[1]], "layers": [1, 2]})", "1 rising numbers");
  refused(R"({"logical_count": [[1], [2]], "layers": [2, 1]})", "2 rising numbers");
  refused(R"({"logical_count": [[1]], "layers": [-1]})", "1 rising numbers");
}

TEST(expert_counts, of_a_csv_are_summed) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("c.csv", "layer_id,expert_id,count\n5,1,9\n3,0,24990\n5,1,1\n");
  EXPECT_TRUE(lab::looks_like_count_csv(trace_samples::read_all(path)));
  lab::reading_notes notes;
  const auto counts = lab::read_count_csv(path, 0, &notes);
  EXPECT_THAT(counts.layers, ElementsAre(3, 5));
  EXPECT_THAT(counts.uses, ElementsAre(24990, 0, 0, 10));
  EXPECT_EQ(notes.size(), 1U);
  EXPECT_EQ(lab::read_count_csv(path, 4).uses.size(), 8U);
  for (const auto* rows : {"", "3,0\n", "3,x,1\n", "3,0,-1\n", "3,0,0.5\n", "3,9,1\n"})
    expect_refused(
        [&] {
          (void)lab::read_count_csv(folder.write("b", std::string("layer,expert,count\n") + rows),
                                    8);
        },
        {"b: ", "accepted"});
  expect_refused(
      [&] {
        std::string wide = "layer,expert,count\n0,1048575,1\n1,0,1\n";
        (void)lab::read_count_csv(folder.write("w", wide), 0);
      },
      {"2 layers x 1048576 experts"});
}

TEST(expert_counts, of_csv_headers_in_other_words) {
  const trace_samples::temporary_folder folder;
  for (const auto* text :
       {"Expert_ID;Layer_ID;num_tokens\n0;3;7\n1;5;9\n1;3;2\n",
        "# of a server\nlayer,expert,hits,share\n3,0,7,.5\n3,1,2,.5\n5,1,9,1\n",
        "rank,layer,expert,count\n0,3,0,3\n1,3,0,4\n0,3,1,2\n0,5,1,9\n",
        "layer,expert_0,expert_1\nlayers.3,7,2\nlayers.5,0,9\n", ",0,1\n3,7.0,2\n5,0,9\n"}) {
    SCOPED_TRACE(text);
    EXPECT_TRUE(lab::looks_like_count_csv(text));
    const auto counts = lab::read_count_csv(folder.write("c.csv", text), 0);
    EXPECT_THAT(counts.layers, ElementsAre(3, 5));
    EXPECT_THAT(counts.uses, ElementsAre(7, 2, 0, 9));
  }
  for (const auto* trace :
       {"token,layer,expert\n0,0,1\n", "layer,expert,weight\n0,1,.5\n",
        "layer,e0,e1\n0,1,2\n1,1,2\n0,2,3\n", "step,layer,requested_experts,hits\n0,0,1 2,1\n"})
    EXPECT_FALSE(lab::looks_like_count_csv(trace)) << trace;
}

TEST(expert_counts, no_expert_was_used) {
  const lab::expert_counts none{"none", "", {0}, 2, {0, 0}};
  EXPECT_EQ(none.hottest(.5), 0);
  EXPECT_EQ(none.unused(), 2U);
}

TEST(expert_counts, refuses_files_without_expert_counts) {
  const trace_samples::temporary_folder folder;
  const auto refused = [&](const std::string& bytes, std::string_view said) {
    expect_refused([&] { (void)read_imatrix(folder.write("m", bytes)); }, {"m", said});
  };
  refused(imatrix({0, 0, -3, 1}), "a count of -3");
  refused(imatrix({0, 0, .5F, 1}), "a count of 0.5");
  refused(gguf::small_model().bytes(), "counts no expert");
  gguf::file wide;
  wide.tensor("blk.0.ffn_up_exps.weight.counts", {2, 4}, gguf::f32);
  refused(wide.bytes(), "of another shape");
  gguf::file half;
  half.tensor("blk.0.ffn_up_exps.weight.counts", {1, 4}, gguf::f16);
  refused(half.bytes(), "F16 of another shape");
  gguf::file unlike;
  unlike.tensor("blk.0.ffn_up_exps.weight.counts", {1, 4}, gguf::f32)
      .tensor("blk.1.ffn_up_exps.weight.counts", {1, 8}, gguf::f32);
  refused(unlike.bytes(), "as many in each layer");
  refused("GGUF", "m");
}

}  // namespace
}  // namespace hotset::expert_counts_test
