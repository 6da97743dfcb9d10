// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_hash.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace trace_hash_test {
namespace {

using namespace hotset;
using lab::trace_hash;

TEST(trace_hash, changes_with_every_id_step_and_sequence_and_with_the_shape) {
  const auto good = trace_samples::full_trace();
  std::set<std::uint64_t> hashes{trace_hash(good)};
  std::size_t traces = 1;
  const auto expect_another = [&](auto change) {
    auto other = good;
    change(other);
    hashes.insert(trace_hash(other));
    EXPECT_EQ(hashes.size(), ++traces);
  };
  for (std::size_t i = 0; i < good.ids.size(); ++i)
    expect_another([&](auto& t) { t.ids[i] = static_cast<expert_id>(100 + i); });
  for (std::size_t t = 0; t < good.tokens(); ++t) {
    expect_another([&](auto& trace) { trace.step[t] += 7; });
    expect_another([&](auto& trace) { trace.sequence[t] += 7; });
  }
  expect_another([](auto& t) { ++t.experts; });
  expect_another([](auto& t) { std::swap(t.layers, t.top_k), ++t.layers; });
}

TEST(trace_hash, depends_on_the_routing_alone) {
  const auto good = trace_samples::full_trace();
  auto other = good;
  other.name = "another";
  other.weights.clear();
  other.expert_bytes = {5};
  EXPECT_EQ(trace_hash(other), trace_hash(good));
  EXPECT_EQ(trace_hash(good), trace_hash(trace_samples::full_trace()));
}

TEST(trace_hash, the_content_covers_the_arrays_beside_the_routing) {
  const auto good = trace_samples::full_trace();
  std::set<std::uint64_t> hashes{lab::content_hash(good)};
  std::size_t traces = 1;
  const auto expect_another = [&](auto change) {
    auto other = good;
    change(other);
    hashes.insert(lab::content_hash(other));
    EXPECT_EQ(hashes.size(), ++traces);
  };
  expect_another([](auto& t) { t.ids[0] = no_expert; });
  expect_another([](auto& t) { t.kind.front() = request_class::verify; });
  expect_another([](auto& t) { t.expert_bytes = {5}; });
  expect_another([](auto& t) { t.weights.back() += 1; });
  expect_another([](auto& t) { t.logits.back() += 1; });
  expect_another([](auto& t) { t.hidden = {}; });
  expect_another([](auto& t) { t.predictions = {}; });
  expect_another([](auto& t) { ++t.token_ids.back(); });
  auto renamed = good;
  renamed.name = "another";
  EXPECT_EQ(lab::content_hash(renamed), lab::content_hash(good));
}

TEST(trace_hash, texts_that_differ_anywhere_have_other_hashes) {
  const std::string good(100, 'a');
  std::set<std::uint64_t> hashes{lab::text_hash(good), lab::text_hash(good + 'a'),
                                 lab::text_hash("")};
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto other = good;
    other[i] = 'b';
    hashes.insert(lab::text_hash(other));
  }
  EXPECT_EQ(hashes.size(), 103U);
}

}  // namespace
}  // namespace trace_hash_test
