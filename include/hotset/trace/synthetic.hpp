// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes routing traces from a seed: skewed, sticky, with phases; the same on every machine.
///
/// Everything random is integer arithmetic: splitmix64, cumulative tables in fixed point, rejection
/// instead of rounding. The popularity 1 / rank^s is computed bit by bit from integers, because pow and
/// log differ between C libraries and compilers may fuse a * b + c.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::inline v0 {

/// Steele, Lea and Flood's splitmix64: 64 bits of state, passes through every one once.
class splitmix64 {
 public:
  explicit constexpr splitmix64(std::uint64_t seed) noexcept : state_(seed) {}
  constexpr std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }
  /// Uniform in [0, bound), without bias. Pre: bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(bound | 1U);
    std::uint64_t draw = next() & mask;
    while (draw >= bound) draw = next() & mask;
    return draw;
  }
  /// Uniform in [0, 1), a multiple of 2^-53.
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

struct synthetic_config {
  std::int32_t layers = 4;
  std::int32_t experts = 32;
  std::int32_t top_k = 4;
  std::uint32_t sequences = 1;     ///< one after the other
  std::uint32_t prefill = 0;       ///< prompt tokens of each sequence: one step
  std::uint32_t tokens = 256;      ///< decoded tokens of each sequence: a step each
  double zipf = 1.0;               ///< popularity of the r-th expert ~ 1 / r^zipf; 0: uniform
  double stickiness = 0.0;         ///< chance that a rank repeats the previous token's expert
  std::uint32_t phase_length = 0;  ///< tokens after which the popular experts change; 0: never
  bool weights = true;
  std::uint64_t expert_bytes = 1;
  std::uint64_t seed = 1;

  [[nodiscard]] validation validate() const {
    if (auto bad = geometry{layers, experts, top_k, 1, {expert_bytes}, {}}.validate()) return bad;
    if (experts > (1 << 20))
      return error{"experts = " + std::to_string(experts) + ", accepted: 1..1048576"};
    if (!(zipf >= 0 && zipf <= 8))
      return error{"zipf = " + std::to_string(zipf) + ", accepted: 0..8"};
    if (!(stickiness >= 0 && stickiness <= 1))
      return error{"stickiness = " + std::to_string(stickiness) + ", accepted: 0..1"};
    const auto rows = std::uint64_t{sequences} * (std::uint64_t{prefill} + tokens);
    if (rows < 1 || rows > (std::uint64_t{1} << 31U))
      return error{"sequences x (prefill + tokens) = " + std::to_string(rows) +
                   ", accepted: 1..2147483648"};
    return std::nullopt;
  }
};

namespace detail {

/// log2(n) with 30 fractional bits, by repeated squaring of the significand. Pre: n > 0.
[[nodiscard]] constexpr std::uint64_t log2_q30(std::uint32_t n) noexcept {
  const auto whole = static_cast<unsigned>(std::bit_width(n)) - 1U;
  std::uint64_t significand = std::uint64_t{n} << (31U - whole);  // in [1, 2), 31 fractional bits
  std::uint64_t fraction = 0;
  for (int bit = 0; bit < 30; ++bit) {
    significand = (significand * significand) >> 31U;
    const bool carry = (significand >> 32U) != 0;
    fraction = (fraction << 1U) | (carry ? 1U : 0U);
    if (carry) significand >>= 1U;
  }
  return (std::uint64_t{whole} << 30U) | fraction;
}

[[nodiscard]] constexpr std::uint64_t integer_sqrt(std::uint64_t n) noexcept {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31U; bit != 0; bit >>= 1U)
    if ((root + bit) * (root + bit) <= n) root += bit;
  return root;
}

/// 2^40 * 2^-x for x with 30 fractional bits, at least 1.
[[nodiscard]] constexpr std::uint64_t exp2_minus_q40(std::uint64_t x) noexcept {
  const std::uint64_t whole = x >> 30U;
  if (whole >= 40) return 1;
  std::uint64_t factor = std::uint64_t{1} << 31U;  // 2^0
  std::uint64_t value = std::uint64_t{1} << 31U;
  for (unsigned bit = 30; bit-- > 0;) {  // factor becomes 2^-(1/2), 2^-(1/4), ...
    factor = bit == 29 ? integer_sqrt(std::uint64_t{1} << 61U) : integer_sqrt(factor << 31U);
    if (((x >> bit) & 1U) != 0) value = (value * factor) >> 31U;
  }
  return std::max<std::uint64_t>((value << 9U) >> whole, 1);
}

/// cumulative[r] = sum of the popularities of ranks 0..r. Pre: 0 <= exponent <= 8.
[[nodiscard]] inline std::vector<std::uint64_t> zipf_table(std::size_t ranks, double exponent) {
  const auto s = static_cast<std::uint64_t>(exponent * 65536.0);  // exact product, then cut
  std::vector<std::uint64_t> cumulative(ranks);
  std::uint64_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    total += exp2_minus_q40((s * log2_q30(static_cast<std::uint32_t>(r + 1))) >> 16U);
    cumulative[r] = total;
  }
  return cumulative;
}

/// The state of one generation; a token goes through all layers before the next.
class synthetic_generator {
 public:
  explicit synthetic_generator(const synthetic_config& config)
      : config_(config),
        random_(config.seed),
        table_(zipf_table(static_cast<std::size_t>(config.experts), config.zipf)),
        popular_(static_cast<std::size_t>(config.layers)),
        threshold_(static_cast<std::uint64_t>(config.stickiness * 0x1p53)) {}

  [[nodiscard]] routing_trace run() {
    trace_.name = "synthetic";
    trace_.source = "hotset synthetic, seed " + std::to_string(config_.seed);
    trace_.layers = config_.layers;
    trace_.experts = config_.experts;
    trace_.top_k = config_.top_k;
    trace_.expert_bytes = {config_.expert_bytes};
    for (std::uint32_t s = 0; s < config_.sequences; ++s) {
      for (std::uint32_t t = 0; t < config_.prefill; ++t) add_token(s, request_class::prefill);
      if (config_.prefill > 0) ++step_;
      for (std::uint32_t t = 0; t < config_.tokens; ++t, ++step_)
        add_token(s, request_class::decode);
    }
    return std::move(trace_);
  }

 private:
  void add_token(std::uint32_t sequence, request_class kind) {
    const auto token = trace_.tokens();
    const bool shift = config_.phase_length > 0 && token % config_.phase_length == 0;
    if (token == 0 || shift) shuffle(config_.phase_length > 0 ? token / config_.phase_length : 0);
    const bool follows = token > 0 && trace_.sequence[token - 1] == sequence;
    trace_.step.push_back(step_);
    trace_.sequence.push_back(sequence);
    trace_.kind.push_back(kind);
    for (layer_id layer = 0; layer < config_.layers; ++layer) {
      route(token, layer, follows);
      if (config_.weights) weigh();
    }
  }

  /// The popular experts of every layer; depends on seed, layer and phase alone.
  void shuffle(std::uint64_t phase) {
    for (std::size_t layer = 0; layer < popular_.size(); ++layer) {
      splitmix64 random(splitmix64(config_.seed ^ (phase << 32U)).next() ^ layer);
      auto& order = popular_[layer];
      order.resize(static_cast<std::size_t>(config_.experts));
      std::iota(order.begin(), order.end(), 0);
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[random.below(i)]);
    }
  }

  void route(std::size_t token, layer_id layer, bool follows) {
    const auto begin = trace_.ids.size();
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(config_.top_k); ++rank) {
      expert_id chosen = no_expert;
      if ((random_.next() >> 11U) < threshold_ && follows)
        chosen = trace_.ids[trace_.index(token - 1, layer) + rank];
      if (chosen == no_expert || taken(begin, chosen)) chosen = draw(begin, layer);
      trace_.ids.push_back(chosen);
    }
  }

  [[nodiscard]] bool taken(std::size_t begin, expert_id id) const {
    return std::find(trace_.ids.begin() + static_cast<std::ptrdiff_t>(begin), trace_.ids.end(),
                     id) != trace_.ids.end();
  }

  /// By popularity, without repetition; after 64 repetitions the most popular one that is left.
  expert_id draw(std::size_t begin, layer_id layer) {
    const auto& order = popular_[static_cast<std::size_t>(layer)];
    for (int attempt = 0; attempt < 64; ++attempt) {
      const auto at = std::upper_bound(table_.begin(), table_.end(), random_.below(table_.back()));
      const auto id = order[static_cast<std::size_t>(at - table_.begin())];
      if (!taken(begin, id)) return id;
    }
    return *std::find_if(order.begin(), order.end(),
                         [&](expert_id id) { return !taken(begin, id); });
  }

  /// Gate weights of one token in one layer: descending, their sum 1 up to rounding.
  void weigh() {
    draws_.resize(static_cast<std::size_t>(config_.top_k));
    std::uint64_t total = 0;
    for (auto& d : draws_) {
      d = (random_.next() >> 32U) + 1;
      total += d;
    }
    std::sort(draws_.begin(), draws_.end(), [](auto a, auto b) { return a > b; });
    for (const auto d : draws_)
      trace_.weights.push_back(
          static_cast<float>(static_cast<double>(d) / static_cast<double>(total)));
  }

  synthetic_config config_;
  splitmix64 random_;
  std::vector<std::uint64_t> table_;
  std::vector<std::vector<expert_id>> popular_;  ///< [L][E], most popular first
  std::uint64_t threshold_;
  std::vector<std::uint64_t> draws_;
  routing_trace trace_;
  std::uint32_t step_ = 0;
};

}  // namespace detail

/// Returns why the configuration is refused, or the trace. Complexity: O(T L K^2 + E).
[[nodiscard]] inline result<routing_trace> synthetic_trace(const synthetic_config& config) {
  if (auto bad = config.validate()) return *std::move(bad);
  return detail::synthetic_generator(config).run();
}

}  // namespace hotset::inline v0
