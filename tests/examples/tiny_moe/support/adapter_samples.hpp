// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by the tests of adapters: three adapters and the expected result of each.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "paging_samples.hpp"
#include "random_source.hpp"
#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace adapter_samples {

using namespace tiny_moe;
using hotset::support::random_source;
using paging_samples::bytes_of;
using paging_samples::weights;

/// Each tuned expert has the weights of another one: a wrong place gives a wrong answer.
inline adapter_weights shuffled(const std::string& name, std::uint64_t seed, std::size_t most) {
  const auto& shape = weights().config();
  random_source random(seed);
  tuned_experts tuned(shape.layers);
  std::vector<std::uint16_t> halves;
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (const auto e : hotset::each<hotset::expert_id>(shape.experts))
      if (tuned[l].size() < most && random.one_in(3)) tuned[l].push_back(e);
    for (const auto e : tuned[l]) {
      const auto other = (index_of(e) + 1 + random.below(shape.experts - 1)) % shape.experts;
      for (const auto& tensor : weights().expert_bytes(l, other)) {
        const auto at = halves.size();
        halves.resize(at + tensor.size() / 2);
        std::memcpy(&halves[at], tensor.data(), tensor.size());
      }
    }
  }
  return {shape, name, std::move(tuned), std::move(halves)};
}

/// Three adapters; the third tunes fewer experts.
inline const std::vector<adapter_weights>& three_adapters() {
  static const std::vector<adapter_weights> made = [] {
    std::vector<adapter_weights> out;
    out.push_back(shuffled("a", 1, 8));
    out.push_back(shuffled("b", 2, 8));
    out.push_back(shuffled("c", 3, 3));
    return out;
  }();
  return made;
}
inline std::vector<const adapter_weights*> pointers(const std::vector<adapter_weights>& adapters) {
  std::vector<const adapter_weights*> out;
  for (const auto& one : adapters) out.push_back(&one);
  return out;
}

inline const std::vector<const adapter_weights*>& three_pointers() {
  static const auto made = pointers(three_adapters());
  return made;
}

/// One of the three adapters by id. None: the base model.
inline const adapter_weights* one_of_three(adapter_id adapter) {
  return adapter == base_model ? nullptr : three_pointers()[adapter - 1];
}

/// Model whose bytes the rows of an adapter must have. None: the base model.
inline std::unique_ptr<expert_provider> merged_alone(const adapter_weights* adapter) {
  if (adapter == nullptr) return std::make_unique<resident_experts>(weights());
  return std::make_unique<merged_experts>(weights(), *adapter);
}

/// Each request is complete and has the answer of its adapter's model alone.
inline void expect_complete(const serving_report& report,
                            std::span<const serving_request> requests) {
  ASSERT_EQ(report.requests.size(), requests.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    SCOPED_TRACE(testing::Message() << "request " << r);
    EXPECT_EQ(report.requests[r].refusal, "");
    const auto model = merged_alone(one_of_three(requests[r].adapter));
    EXPECT_EQ(report.requests[r].output, paging_samples::greedy(*model, requests[r]));
  }
}

inline constexpr std::string_view text =
    "The ledger was kept in two columns: return a + b; 17 + 25 = 42.";

inline std::vector<float> logits_alone(const adapter_weights* adapter, std::string_view words) {
  const auto provider = merged_alone(adapter);
  return paging_samples::logits_of(*provider, words);
}

/// All logits of four sequences over the text: the base model's and one of each adapter. Passes mix rows of chunks of
/// different lengths. The last sequence is complete; the others may not be. Shape: [4][rows * 256].
inline std::vector<std::vector<float>> mixed_logits(expert_provider& experts,
                                                    std::size_t virtual_experts) {
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 64});
  batch_engine decoder(weights(), experts, pool, {.virtual_experts = virtual_experts});
  std::vector<sequence_id> sequences;
  for (adapter_id a = 0; a <= 3; ++a) sequences.push_back(pool.open(text.size(), a));
  std::vector<std::vector<float>> got(4);
  random_source random(5);
  while (pool.length(sequences[3]) < text.size()) {
    std::vector<token_row> rows;
    std::vector<std::size_t> whose;
    for (std::size_t s = 0; s < 4; ++s) {
      const auto length = pool.length(sequences[s]);
      const auto count = std::min(text.size() - length, s == 3 ? 5 : random.below(9));
      EXPECT_TRUE(pool.reserve(sequences[s], count));
      for (std::size_t i = 0; i < count; ++i) {
        rows.push_back({sequences[s], static_cast<std::uint8_t>(text[length + i])});
        whose.push_back(s);
      }
    }
    const auto logits = decoder.forward(rows, request_kind::prefill);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto row = logits.subspan(r * 256, 256);
      got[whose[r]].insert(got[whose[r]].end(), row.begin(), row.end());
    }
  }
  for (const auto s : sequences) decoder.close(s);
  return got;
}

/// True if the rows equal the first rows of the adapter's merged model.
inline bool begins_as_alone(const std::vector<float>& rows, const adapter_weights* adapter) {
  const auto wanted = logits_alone(adapter, text);
  return rows.size() >= 256 && rows.size() <= wanted.size() &&
         std::memcmp(rows.data(), wanted.data(), rows.size() * sizeof(float)) == 0;
}
/// begins_as_alone for one of the three adapters, by id.
inline bool begins_as_alone(const std::vector<float>& rows, adapter_id adapter) {
  return begins_as_alone(rows, one_of_three(adapter));
}

}  // namespace adapter_samples
