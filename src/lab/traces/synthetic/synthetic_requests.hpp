// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests of conversations, from a seed: each turn sends the whole conversation so far and new blocks.
///
/// Rule: a fixed number of conversations is alive; each turn's conversation is drawn. A turn's prompt is the shared
///       beginning, all earlier blocks of the conversation, and new ones. After its last turn a new conversation
///       replaces it.
/// Source: the shape of agent and chat traffic in WiSP 5.3 and of Mooncake's trace; ours.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "lab/traces/kv_trace.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset {

/// Number, length and timing of the conversations.
struct synthetic_requests_config {
  std::uint32_t requests = 200;
  std::uint32_t conversations = 4;  ///< alive at the same time
  std::uint32_t turns = 6;          ///< per conversation; 1: nothing is reused
  std::uint32_t shared_blocks = 0;  ///< common beginning of all prompts
  std::uint32_t first_blocks = 4;   ///< additional blocks of a conversation's first turn
  std::uint32_t turn_blocks = 1;    ///< new blocks of each later turn
  std::uint32_t block_tokens = 512;
  std::uint32_t output_tokens = 512;
  std::uint32_t gap_ms = 1000;  ///< between requests
  std::uint64_t seed = 1;

  [[nodiscard]] validation validate() const {
    for (const auto& [name, value] : {std::pair("requests", requests),
                                      {"conversations", conversations},
                                      {"turns", turns},
                                      {"first_blocks", first_blocks},
                                      {"block_tokens", block_tokens}})
      if (value == 0)
        return error{std::string("synthetic requests: ") + name + " = 0, accepted: 1 or more"};
    const auto longest =
        std::uint64_t{shared_blocks} + first_blocks + std::uint64_t{turns - 1} * turn_blocks;
    if (longest > (std::uint64_t{1} << 31U) / block_tokens)
      return error{"synthetic requests: prompts of " + std::to_string(longest) + " blocks of " +
                   std::to_string(block_tokens) + " tokens, accepted: at most 2^31 tokens"};
    return std::nullopt;
  }
};

/// Returns the trace, or an error. Complexity: O(blocks of all prompts).
[[nodiscard]] inline result<kv_trace> synthetic_requests(const synthetic_requests_config& config) {
  if (auto bad = config.validate()) return *std::move(bad);
  struct conversation {
    std::vector<std::uint64_t> blocks;
    std::uint32_t turn = 0;
  };
  kv_trace out;
  out.name = "synthetic";
  out.source = "hotset synthetic requests, seed " + std::to_string(config.seed);
  out.block_tokens = config.block_tokens;
  splitmix64 random(config.seed);
  std::uint64_t next_block = config.shared_blocks;
  std::vector<conversation> alive(config.conversations);
  for (std::uint32_t r = 0; r < config.requests; ++r) {
    auto& c = alive[random.below(alive.size())];
    if (c.turn == config.turns) c = {};
    const auto fresh = c.turn++ == 0 ? config.first_blocks : config.turn_blocks;
    for (std::uint32_t i = 0; i < fresh; ++i) c.blocks.push_back(next_block++);
    for (std::uint64_t b = 0; b < config.shared_blocks; ++b) out.blocks.push_back(b);
    out.blocks.insert(out.blocks.end(), c.blocks.begin(), c.blocks.end());
    const auto blocks = config.shared_blocks + static_cast<std::uint32_t>(c.blocks.size());
    out.timestamp.push_back(std::uint64_t{r} * config.gap_ms);
    out.input_length.push_back(blocks * config.block_tokens);
    out.output_length.push_back(config.output_tokens);
    out.block_end.push_back(out.blocks.size());
  }
  return out;
}

}  // namespace hotset
