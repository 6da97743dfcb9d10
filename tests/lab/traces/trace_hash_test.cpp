// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_hash.hpp"

#include <cstdint>
#include <set>

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

}  // namespace
}  // namespace trace_hash_test
