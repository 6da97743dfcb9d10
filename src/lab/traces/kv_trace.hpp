// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests with the blocks of their prompts, and their trace of block accesses.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset {

/// Shape: R requests; the blocks of all requests form one array, in order.
struct kv_trace {
  std::string name;
  std::string source;
  std::uint32_t block_tokens = 512;          ///< tokens of one block
  std::vector<std::uint64_t> timestamp;      ///< [R], milliseconds
  std::vector<std::uint32_t> input_length;   ///< [R], tokens
  std::vector<std::uint32_t> output_length;  ///< [R], tokens
  std::vector<std::uint64_t> block_end;      ///< [R], end of the request's blocks; non-decreasing
  std::vector<std::uint64_t> blocks;         ///< ids of the source; equal ids are equal prefixes
  bool own_blocks = false;                   ///< made by give_own_blocks: sharing is unknown

  [[nodiscard]] std::size_t requests() const noexcept { return timestamp.size(); }
  [[nodiscard]] std::size_t references() const noexcept { return blocks.size(); }
  /// Pre: r < requests().
  [[nodiscard]] std::span<const std::uint64_t> blocks_of(std::size_t r) const noexcept {
    const std::size_t begin = r == 0 ? 0 : block_end[r - 1];
    return std::span(blocks).subspan(begin, block_end[r] - begin);
  }
  /// Complexity: O(n log n) in the references.
  [[nodiscard]] std::size_t distinct() const {
    std::vector<std::uint64_t> sorted = blocks;
    std::sort(sorted.begin(), sorted.end());
    return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
  }
  [[nodiscard]] validation validate() const {
    const auto refuse = [](std::string text) { return validation(error{std::move(text)}); };
    const auto r = requests();
    if (r == 0) return refuse("the trace has no requests, accepted: 1 or more");
    if (input_length.size() != r || output_length.size() != r || block_end.size() != r)
      return refuse("arrays of unequal length, accepted: one entry per request in each");
    if (!std::is_sorted(block_end.begin(), block_end.end()) || block_end.back() != blocks.size())
      return refuse("block_end does not divide the blocks, accepted: non-decreasing ends");
    return std::nullopt;
  }
};

/// Gives every prompt its own blocks if the requests name none: nothing is shared. Otherwise does nothing.
/// Returns an error if there would be too many blocks: a short file may name long prompts.
[[nodiscard]] inline validation give_own_blocks(kv_trace& kv) {
  if (!kv.blocks.empty()) return std::nullopt;
  const std::uint64_t most = (std::uint64_t{1} << 20U) + 64 * kv.requests();
  std::uint64_t count = 0;
  std::vector<std::uint64_t> ends;
  ends.reserve(kv.requests());
  for (const auto tokens : kv.input_length) {
    count += (std::uint64_t{tokens} + kv.block_tokens - 1) / kv.block_tokens;
    ends.push_back(count);
  }
  if (count > most)
    return refusal(kv.name, ": prompts of ", count, " blocks of ", kv.block_tokens,
                   " tokens, accepted: at most ", most);
  kv.blocks.resize(count);
  std::iota(kv.blocks.begin(), kv.blocks.end(), std::uint64_t{0});
  kv.block_end = std::move(ends);
  kv.own_blocks = true;
  return std::nullopt;
}

/// A routing trace of one layer whose experts are the blocks: top_k 1, one step per reference.
///
/// Blocks are renumbered in order of first appearance; the request is the sequence.
/// Returns the trace, or an error. Complexity: O(n) in the references.
[[nodiscard]] inline result<routing_trace> block_accesses(const kv_trace& kv,
                                                          std::uint64_t block_bytes = 1) {
  if (auto bad = kv.validate()) return *std::move(bad);
  if (kv.blocks.empty())
    return error{kv.name +
                 ": the requests name no blocks, accepted: a trace of what prompts share"};
  routing_trace out;
  out.name = kv.name;
  out.source = kv.source;
  out.layers = 1;
  out.top_k = 1;
  out.expert_bytes = {block_bytes};
  out.kind.assign(kv.references(), request_class::decode);
  std::unordered_map<std::uint64_t, expert_id> dense;
  for (std::size_t r = 0; r < kv.requests(); ++r)
    for (const auto block : kv.blocks_of(r)) {
      out.step.push_back(static_cast<std::uint32_t>(out.ids.size()));
      out.sequence.push_back(static_cast<std::uint32_t>(r));
      const auto next = static_cast<expert_id>(dense.size());
      out.ids.push_back(dense.try_emplace(block, next).first->second);
    }
  if (dense.size() > static_cast<std::size_t>(geometry::max_keys))
    return refusal(dense.size(), " distinct blocks, accepted: 1..", geometry::max_keys);
  out.experts = static_cast<std::int32_t>(dense.size());
  if (auto bad = out.validate()) return *std::move(bad);
  return out;
}

}  // namespace hotset
