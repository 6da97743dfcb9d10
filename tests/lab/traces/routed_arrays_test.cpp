// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/routed_arrays.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/traces/open_trace.hpp"
#include "npy_samples.hpp"
#include "trace_samples.hpp"

namespace hotset::routed_arrays_test {
namespace {

using lab::trace_of_arrays;
using npy_samples::bytes_of;
using npy_samples::npy;
using testing::ElementsAre;
using trace_samples::expect_refused;

/// A file of an archive. It refers to bytes that live as long as the program.
lab::npy_array array(const std::string& name, const std::string& file) {
  static std::vector<std::unique_ptr<const std::string>> kept;
  kept.push_back(std::make_unique<const std::string>(file));
  return lab::parse_npy(*kept.back(), name + ".npy");
}
template <class Number>
lab::npy_array array(const std::string& name, std::string_view type, std::string_view shape,
                     const std::vector<Number>& numbers) {
  return array(name, npy(type, shape, bytes_of(numbers)));
}
TEST(routed_arrays, tokens_of_one_request_are_steps_of_their_own) {
  const auto trace = trace_of_arrays(
      {array<std::int16_t>("routed_experts", "<i2", "(2, 2, 2)", {3, 1, 0, 2, 3, 2, -1, 0})},
      "run.npy", {.experts = 8});
  EXPECT_EQ(trace.name, "run");
  EXPECT_EQ(trace.layers, 2);
  EXPECT_EQ(trace.experts, 8);
  EXPECT_EQ(trace.top_k, 2);
  EXPECT_THAT(trace.step, ElementsAre(0, 1));
  EXPECT_THAT(trace.sequence, ElementsAre(0, 0));
  EXPECT_THAT(trace.ids, ElementsAre(3, 1, 0, 2, 3, 2, -1, 0));
  EXPECT_EQ(trace.kind[1], request_class::decode);
}

TEST(routed_arrays, arrays_of_no_known_name_are_requests_in_the_order_of_their_numbers) {
  const auto trace =
      trace_of_arrays({array<std::uint8_t>("arr_10", "|u1", "(1, 1, 2)", {4, 5}),
                       array<std::uint8_t>("arr_2", "|u1", "(2, 1, 2)", {0, 1, 2, 3}),
                       array<float>("loss", "<f4", "(1,)", {1})},
                      "runs.npz");
  EXPECT_THAT(trace.sequence, ElementsAre(0, 0, 1));
  EXPECT_THAT(trace.step, ElementsAre(0, 1, 2));
  EXPECT_THAT(trace.ids, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(trace.experts, 6);
}

TEST(routed_arrays, a_duplicate_name_is_refused) {
  const auto ids = array<std::uint8_t>("ids", "|u1", "(1, 1, 2)", {4, 5});
  expect_refused(
      [&] {
        (void)trace_of_arrays({ids, ids}, "a.npz");
      },
      {"a.npz: array 'ids': is there twice; accepted: each name once"});
}

TEST(routed_arrays, weights_sequences_and_steps_are_read_with_the_ids) {
  const auto trace =
      trace_of_arrays({array<std::int32_t>("ids", "<i4", "(3, 1, 2)", {0, 1, 2, -1, 1, 3}),
                       array<double>("weights", "<f8", "(3, 1, 2)", {.5, .5, 1, .25, .75, .25}),
                       array<std::int64_t>("sequences", "<i8", "(3,)", {7, 7, 9}),
                       array<std::int64_t>("steps", "<i8", "(3,)", {0, 0, 1})},
                      "run.npz");
  EXPECT_THAT(trace.weights, ElementsAre(.5F, .5F, 1, 0, .75F, .25F))
      << "no weight for an absent expert";
  EXPECT_THAT(trace.sequence, ElementsAre(7, 7, 9));
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 1));
  EXPECT_THAT(trace.kind,
              ElementsAre(request_class::prefill, request_class::prefill, request_class::decode));
}

TEST(routed_arrays, logits_choose_the_highest_and_ties_go_to_the_lower_id) {
  const auto trace =
      trace_of_arrays({array<float>("logits", "<f4", "(1, 2, 4)", {0, 3, 3, 1, 5, -1, 5, 5})},
                      "l.npz", {.top_k = 2});
  EXPECT_THAT(trace.ids, ElementsAre(1, 2, 0, 2));
  EXPECT_THAT(trace.weights, ElementsAre(.5F, .5F, .5F, .5F));
  EXPECT_EQ(trace.experts, 4);
  EXPECT_EQ(trace.logits.size(), 8U);
  const auto unnamed = [](float last) {
    return trace_of_arrays({array<float>("l", "<f4", "(1, 1, 3)", {0, 1, last})}, "l.npy",
                           {.top_k = 1});
  };
  EXPECT_THAT(unnamed(2.5F).ids, ElementsAre(2));
  expect_refused([&] { (void)unnamed(NAN); }, {"whole numbers stored as real ones"});
  expect_refused([&] { (void)unnamed(2); },
                 {"'l'", "whole numbers stored as real ones", "integers"});
}

TEST(routed_arrays, padding_of_an_unsigned_type_is_absent) {
  const auto ids = [](std::string_view type, const auto& numbers, std::int32_t experts) {
    return trace_of_arrays({array("ids", type, "(1, 1, 2)", numbers)}, "a.npy",
                           {.experts = experts})
        .ids;
  };
  EXPECT_THAT(ids("|u1", std::vector<std::uint8_t>{3, 255}, 128), ElementsAre(3, -1));
  EXPECT_THAT(ids("|u1", std::vector<std::uint8_t>{3, 255}, 256), ElementsAre(3, 255));
  EXPECT_THAT(ids("<u2", std::vector<std::uint16_t>{3, 65535}, 0), ElementsAre(3, -1));
  EXPECT_THAT(ids("<u4", std::vector<std::uint32_t>{3, 4294967295U}, 0), ElementsAre(3, -1));
  expect_refused(
      [&] {
        (void)ids("|u1", std::vector<std::uint8_t>{3, 255}, 0);
      },
      {"'ids'", "255, which may stand for none", "--experts"});
}

TEST(routed_arrays, filler_counts_no_experts) {
  const std::vector<std::int32_t> ids{3, 1, 8, 8, 255, 255, 0, 2};
  for (const auto experts : {0, 4}) {
    const auto trace =
        trace_of_arrays({array("ids", "<i4", "(4, 1, 2)", ids)}, "a", {.experts = experts});
    EXPECT_EQ(trace.experts, 4);
    EXPECT_THAT(trace.ids, ElementsAre(3, 1, 0, 0, 0, 0, 0, 2)) << "open_trace empties them";
  }
  const std::vector<std::uint16_t> padded{3, 65535, 65535};
  EXPECT_THAT(trace_of_arrays({array("i", "<u2", "(1, 1, 3)", padded)}, "a").ids,
              ElementsAre(3, -1, -1));
}

TEST(routed_arrays, zeros_and_ones_are_a_map_of_the_routed_experts) {
  lab::reading_notes notes;
  const std::vector<std::uint8_t> map = {0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0};
  const auto trace =
      trace_of_arrays({array("map", "|b1", "(2, 2, 4)", map)}, "m.npy", {.notes = &notes});
  EXPECT_EQ(trace.top_k, 2);
  EXPECT_EQ(trace.experts, 4);
  EXPECT_THAT(trace.ids, ElementsAre(1, 3, 0, 3, -1, -1, 2, -1));
  EXPECT_THAT(notes,
              ElementsAre("zeros and ones: read as a map of the routed experts, top-2 of 4",
                          "2 layers and 2 tokens: transposed? Arrays are [tokens, layers, top_k]"));
  expect_refused(
      [&] { (void)trace_of_arrays({array("map", "|u1", "(2, 2, 4)", map)}, "m", {.experts = 5}); },
      {"a map of 5 experts"});
  expect_refused(
      [&] { (void)trace_of_arrays({array("map", "|u1", "(2, 2, 4)", map)}, "m", {.top_k = 3}); },
      {"2 experts of a token", "--top-k"});
  const auto ids =
      trace_of_arrays({array<std::uint8_t>("i", "|u1", "(2, 1, 2)", {0, 1, 1, 0})}, "i.npy");
  EXPECT_THAT(ids.ids, ElementsAre(0, 1, 1, 0)) << "two columns are ids";
}

TEST(routed_arrays, guesses_are_reported) {
  const auto notes_of = [](const std::vector<lab::npy_array>& arrays,
                           lab::open_trace_options options = {}) {
    lab::reading_notes notes;
    options.notes = &notes;
    (void)trace_of_arrays(arrays, "a.npy", options);
    return notes;
  };
  const auto ids = array<std::int32_t>("i", "<i4", "(3, 2, 1)", {0, 1, 6, 3, 2, 4});
  const auto few = array<std::int32_t>("i", "<i4", "(2, 2, 1)", {0, 1, 2, 0});
  const auto logits = array<float>("l", "<f4", "(1, 1, 2)", {0, .5F});
  EXPECT_THAT(notes_of({ids}), ElementsAre("experts per layer: 7, the highest id + 1; --experts "
                                           "says otherwise"));
  EXPECT_THAT(notes_of({ids}, {.experts = 8}), ElementsAre());
  EXPECT_THAT(notes_of({few}, {.experts = 8}),
              ElementsAre("2 layers and 2 tokens: transposed? Arrays are [tokens, layers, top_k]"));
  EXPECT_THAT(notes_of({logits}, {.top_k = 1}), ElementsAre());
}

TEST(routed_arrays, requests_without_tokens_are_left_out) {
  lab::reading_notes notes;
  const auto trace = trace_of_arrays({array<std::int32_t>("a", "<i4", "(0, 1, 2)", {}),
                                      array<std::int32_t>("b", "<i4", "(1, 1, 2)", {3, 1})},
                                     "a.npz", {.experts = 4, .notes = &notes});
  EXPECT_THAT(trace.ids, ElementsAre(3, 1));
  EXPECT_THAT(trace.sequence, ElementsAre(0));
  EXPECT_THAT(notes, ElementsAre("1 requests without tokens: left out"));
}

TEST(routed_arrays, a_logit_of_minus_infinity_is_never_chosen) {
  constexpr float never = -std::numeric_limits<float>::infinity();
  const auto trace =
      trace_of_arrays({array<float>("logits", "<f4", "(1, 1, 4)", {never, .5F, never, .25F})},
                      "l.npy", {.top_k = 2});
  EXPECT_THAT(trace.ids, ElementsAre(1, 3));
}

TEST(routed_arrays, refuses_in_one_line) {
  const auto refused = [](const std::vector<lab::npy_array>& arrays, std::string_view said,
                          const lab::open_trace_options& options = {}) {
    expect_refused([&] { (void)trace_of_arrays(arrays, "a.npz", options); }, {"a.npz", said});
  };
  const auto ids = array<std::int32_t>("ids", "<i4", "(1, 1, 2)", {0, 1});
  refused({}, "no arrays");
  refused({array<std::int32_t>("x", "<i4", "(2,)", {0, 1})}, "'x': int32 of shape [2]");
  refused({array<float>("ids", "<f4", "(1, 1, 2)", {0, .5F})}, "float32 of shape [1, 1, 2]");
  refused({array<std::int32_t>("ids", "<i4", "(2, 1)", {0, 1})}, "int32 of shape [2, 1]");
  refused({array<std::int32_t>("ids", "<i4", "(0, 1, 2)", {})}, "int32 of shape [0, 1, 2]");
  refused({ids, array<std::int32_t>("experts", "<i4", "(1, 1, 2)", {0, 1})},
          "arrays 'experts' and 'ids'");
  refused({ids}, "an expert 1; accepted: 0..0", {.experts = 1});
  refused({ids, array<float>("weights", "<f4", "(1, 2)", {0, 1})}, "the shape of 'ids'");
  refused({ids, array<float>("weights", "<f4", "(1, 1, 2)", {0, 1.0F / 0.0F})}, "not finite");
  refused({ids, array<std::int32_t>("steps", "<i4", "(2,)", {0, 1})}, "one for each token");
  refused({ids, array<std::int32_t>("sequences", "<i4", "(1,)", {-1})}, "a -1");
  refused({array<std::int32_t>("ids", "<i4", "(2, 1, 1)", {0, 1}),
           array<std::int32_t>("steps", "<i4", "(2,)", {1, 0})},
          "steps never decrease");
  refused({array<std::int32_t>("a", "<i4", "(1, 1, 2)", {0, 1}),
           array<std::int32_t>("b", "<i4", "(1, 2, 1)", {0, 1})},
          "requests of one model");
  refused({ids}, "2 experts of a token in a layer; accepted: as many as the top_k of 3",
          {.top_k = 3});
  const auto logits = array<float>("logits", "<f4", "(1, 1, 3)", {0, 1.5F, 2});
  refused({logits}, "router logits, and no top_k is given; accepted: --top-k 1..3");
  refused({array<float>("x", "<f4", "(1, 1, 3)", {0, 1.5F, 2})}, "--top-k 1..3; or ids: integers");
  refused({logits}, "top_k of 4", {.top_k = 4});
  refused({logits}, "4 experts", {.top_k = 1, .experts = 4});
  refused({array<float>("logits", "<f4", "(1, 3)", {0, 1, 2})}, "[tokens, layers, experts]");
}

TEST(routed_arrays, files_saved_by_numpy_are_recognised_and_read) {
  const trace_samples::temporary_folder folder;
  const std::string saved(reinterpret_cast<const char*>(npy_samples::saved_npz),
                          sizeof npy_samples::saved_npz);
  const auto path = folder.write("run.npz", saved);
  EXPECT_EQ(lab::recognise_trace(path), lab::trace_format::arrays);
  const auto trace = lab::open_trace(path);
  EXPECT_THAT(trace.ids, ElementsAre(3, 1, 0, 2, 3, 2, 1, 0));
  EXPECT_THAT(trace.weights, ElementsAre(.75F, .25F, .5F, .5F, .6F, .4F, 1, 0));
  const auto single = folder.write("one", npy("|i1", "(1, 1, 2)", bytes_of<std::int8_t>({4, 2})));
  EXPECT_EQ(lab::recognise_trace(single), lab::trace_format::arrays);
  EXPECT_THAT(lab::open_trace(single).ids, ElementsAre(4, 2));
  expect_refused([&] { (void)lab::open_trace(folder.write("cut.npz", saved.substr(0, 200))); },
                 {"cut.npz"});
}

}  // namespace
}  // namespace hotset::routed_arrays_test
