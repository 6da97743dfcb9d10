// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Batches to reroute: the worked example of ExpertWeave's Figure 4, and random ones with ids out of range.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/adapters/expert_redirect.hpp"
#include "hotset/adapters/reroute.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::reroute_samples {

struct batch {
  std::int32_t tokens = 0;
  std::int32_t top_k = 0;
  std::int32_t adapters = 0;
  std::int32_t experts = 0;
  std::vector<expert_id> map;                  // [adapters * experts]
  std::vector<std::int32_t> adapter_of_token;  // [tokens]
  std::vector<expert_id> ids;                  // [tokens * top_k]

  [[nodiscard]] redirect_rows rows() const { return {map.data(), adapters, experts}; }
};

/// M = 64, K = 6, A = 2, E_max = 8.
inline expert_redirect figure_4_map() {
  auto map = *expert_redirect::create({.experts = 64, .adapters = 2, .most_tuned = 8});
  (void)map.assign(0, std::vector<std::int32_t>{3, 14, 47});
  (void)map.assign(1, std::vector<std::int32_t>{5, 13, 14, 27, 35, 57, 59});
  return map;
}
inline batch figure_4() {
  const auto map = figure_4_map();
  return {10,
          6,
          2,
          64,
          {map.rows().begin(), map.rows().end()},
          {-1, -1, 0, 0, -1, 1, 1, 1, 0, 1},
          support::expert_ids({
              15, 14, 45, 47, 3,  57,  //
              35, 1,  32, 43, 11, 54,  //
              31, 13, 62, 12, 34, 14,  //
              26, 47, 31, 3,  58, 60,  //
              30, 14, 58, 46, 50, 44,  //
              13, 31, 14, 35, 15, 5,   //
              8,  27, 35, 59, 5,  63,  //
              35, 59, 52, 58, 7,  37,  //
              3,  13, 60, 0,  14, 32,  //
              57, 5,  3,  13, 27, 59,  //
          })};
}
/// The right half of the figure.
inline std::vector<expert_id> figure_4_rerouted() {
  return support::expert_ids({
      15, 14, 45, 47, 3,  57,  //
      35, 1,  32, 43, 11, 54,  //
      31, 13, 62, 12, 34, 65,  //
      26, 66, 31, 64, 58, 60,  //
      30, 14, 58, 46, 50, 44,  //
      73, 31, 74, 76, 15, 72,  //
      8,  75, 76, 78, 72, 63,  //
      76, 78, 52, 58, 7,  37,  //
      64, 13, 60, 0,  65, 32,  //
      77, 72, 3,  73, 75, 78,  //
  });
}

/// The rule as a loop.
inline std::vector<expert_id> rerouted(const batch& b, std::uint64_t& refused) {
  std::vector<expert_id> out = b.ids;
  refused = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto id = b.ids[i];
    const auto adapter = b.adapter_of_token[i / static_cast<std::size_t>(b.top_k)];
    if (id < 0) continue;
    if (id >= b.experts || adapter >= b.adapters) {
      out[i] = no_expert;
      ++refused;
    } else if (adapter >= 0) {
      out[i] = b.map.at(static_cast<std::size_t>(adapter * b.experts + number(id)));
    }
  }
  return out;
}

/// About one of 16 ids and adapters is out of range, some at the extreme values.
inline batch random_batch(support::random_source& random) {
  const auto upto = [&](std::int32_t n) { return 1 + random.id_below(n); };
  batch b{.tokens = upto(40),
          .top_k = upto(17),
          .adapters = random.id_below(random.one_in(2) ? 5 : 24),
          .experts = upto(130),
          .map = {},
          .adapter_of_token = {},
          .ids = {}};
  auto map = *expert_redirect::create({.experts = b.experts,
                                       .adapters = b.adapters,
                                       .most_tuned = b.experts,
                                       .stride = b.experts + random.id_below(9)});
  for (std::int32_t a = 0; a < b.adapters; ++a) {
    std::vector<expert_id> tuned;
    for (std::int32_t e = b.experts; e-- > 0;)
      if (random.one_in(4)) tuned.push_back(expert_id{e});
    (void)map.assign(a, tuned);
  }
  b.map.assign(map.rows().begin(), map.rows().end());
  const auto outside = [&](std::int32_t limit) {
    switch (random.below(4)) {
      case 0: return -1 - random.id_below(3);
      case 1: return limit + random.id_below(3);
      case 2: return std::numeric_limits<std::int32_t>::min();
      default: return std::numeric_limits<std::int32_t>::max();
    }
  };
  for (std::int32_t t = 0; t < b.tokens; ++t)
    b.adapter_of_token.push_back(random.one_in(16) ? outside(b.adapters)
                                                   : random.id_below(b.adapters + 1) - 1);
  for (std::int32_t i = 0; i < b.tokens * b.top_k; ++i)
    b.ids.push_back(expert_id{random.one_in(16) ? outside(b.experts) : random.id_below(b.experts)});
  return b;
}

}  // namespace hotset::reroute_samples
