// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes routing traces from a seed: skewed, sticky, with phases, also as diffusion routes; the same on every machine.
///
/// Everything random is integer arithmetic: splitmix64, cumulative tables in fixed point, rejection
/// instead of rounding. The popularity 1 / rank^s is computed bit by bit from integers, because pow and
/// log differ between C libraries and compilers may fuse a * b + c. Router scores are integers, too,
/// until a last division or product.

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/trace/half_array.hpp"
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
  std::uint32_t sequences = 1;  ///< one after the other
  std::uint32_t prefill = 0;    ///< prompt tokens of each sequence: one step
  std::uint32_t tokens = 256;   ///< decoded tokens of each sequence: a step each
  std::uint32_t positions = 1;  ///< tokens of each such step; diffusion routes all it has anew
  double zipf = 1.0;            ///< popularity of the r-th expert ~ 1 / r^zipf; 0: uniform
  double stickiness = 0.0;      ///< chance that a rank repeats the previous token's expert
  double position_stickiness =
      0;  ///< chance that a position keeps its experts of a layer for a step
  std::uint32_t phase_length = 0;  ///< tokens after which the popular experts change; 0: never
  bool weights = true;
  bool scores = false;           ///< logits, probabilities and predictions as well
  double routed_mass = 0.5;      ///< least share of the probability that the routed experts hold
  double predictor_noise = 0.0;  ///< chance that the prediction of an expert is another one's
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
    if (!(position_stickiness >= 0 && position_stickiness <= 1))
      return error{"position_stickiness = " + std::to_string(position_stickiness) +
                   ", accepted: 0..1"};
    if (positions < 1) return error{"positions = 0, accepted: 1 or more"};
    if (!(routed_mass >= 0 && routed_mass <= 0.99))
      return error{"routed_mass = " + std::to_string(routed_mass) + ", accepted: 0..0.99"};
    if (!(predictor_noise >= 0 && predictor_noise <= 1))
      return error{"predictor_noise = " + std::to_string(predictor_noise) + ", accepted: 0..1"};
    return validate_rows();
  }

 private:
  [[nodiscard]] validation validate_rows() const {
    constexpr auto most = std::uint64_t{1} << 31U;
    const auto rows = prefill + std::uint64_t{positions} * tokens;  // of a sequence, below 2^64
    if (sequences > 0 && rows > 0 && rows <= most / sequences) return std::nullopt;
    return error{"sequences x (prefill + positions x tokens) = " + std::to_string(sequences) +
                 " x (" + std::to_string(prefill) + " + " + std::to_string(positions) + " x " +
                 std::to_string(tokens) + "), accepted: 1..2147483648"};
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

/// ln(n) in units of 2^-18, rounded down. Pre: 0 < n < 2^62.
[[nodiscard]] constexpr std::int64_t ln_q18(std::uint64_t n) noexcept {
  constexpr std::uint64_t ln2_q24 = 11629080;
  const auto digits = static_cast<unsigned>(std::bit_width(n));
  const unsigned excess = digits > 32 ? digits - 32 : 0;
  const std::uint64_t log2 =
      (std::uint64_t{excess} << 30U) + log2_q30(static_cast<std::uint32_t>(n >> excess));
  return static_cast<std::int64_t>((log2 * ln2_q24) >> 36U);
}

/// A threshold for draws of 53 bits: below it lies the given share of them.
[[nodiscard]] constexpr std::uint64_t chance_q53(double share) noexcept {
  return static_cast<std::uint64_t>(share * 0x1p53);
}

/// The router scores behind a routing that is decided already, drawn from streams of their own.
///
/// Masses: a routed expert has its gate weight. Each other one has its popularity times a draw, to the power 1, 1/2 or
/// 1/4, scaled so that the best of them has a share in (0, 1) of what the least routed one has. The
/// power and the share are drawn for each token and layer: some are peaked, some flat. Where the routed
/// experts would hold less than routed_mass, all others are made smaller by one factor.
/// Probabilities are masses by their sum, logits the logarithms of probabilities in steps of 2^-18. Logits of the
/// routed experts descend strictly in rank order and all others lie strictly below; rounded to half
/// precision, each probability of the others lies strictly below those of the routed, too.
/// Predictions are the next layer's probabilities as recorded, worse by predictor_noise: each expert is drawn with that
/// chance, the drawn ones are put in random order, and each takes the probability of the one after it,
/// the last one that of the first. The last layer has nothing to predict: zeros.
class synthetic_scores {
 public:
  explicit synthetic_scores(const synthetic_config& config)
      : layers_(static_cast<std::size_t>(config.layers)),
        random_(splitmix64(~config.seed).next()),
        predictor_(splitmix64(~config.seed).next() ^ 1U),
        noise_(config.predictor_noise),
        threshold_(chance_q53(noise_)),
        // A smaller mass sets no limit: none of the others passes a routed one, and they are 2^20 at most.
        others_per_routed_((1.0 - config.routed_mass) / std::max(config.routed_mass, 0x1p-20)),
        masses_(static_cast<std::size_t>(config.experts)),
        steps_(masses_.size()) {}

  [[nodiscard]] splitmix64& random() noexcept { return random_; }

  /// The next layer of the token in hand. `gates`: of the ids, descending, in 1..2^32. `popular`: all experts, the most
  /// popular first; `cumulative`: their popularities, summed up.
  void add_layer(std::span<const expert_id> ids, std::span<const std::uint64_t> gates,
                 std::span<const expert_id> popular, std::span<const std::uint64_t> cumulative) {
    std::ranges::fill(masses_, 0);
    std::uint64_t routed = 0;
    for (std::size_t rank = 0; rank < ids.size(); ++rank) {
      mass(ids[rank]) = gates[rank] << 8U;  // what is below a gate weight of 1 needs room
      routed += mass(ids[rank]);
    }
    const auto total = routed + weigh_others(gates.back() << 8U, routed, popular, cumulative);
    add_logits(ids, total);
    add_probabilities(ids, total);
  }

  /// After the last layer of a token.
  void end_token() {
    const auto experts = masses_.size();
    const auto token = predictions_.size();
    for (std::size_t layer = 1; layer < layers_; ++layer) {
      const auto next = token + layer * experts;
      predictions_.insert(predictions_.end(),
                          probabilities_.begin() + static_cast<std::ptrdiff_t>(next),
                          probabilities_.begin() + static_cast<std::ptrdiff_t>(next + experts));
      exchange(std::span(predictions_).last(experts), std::span(probabilities_).subspan(next));
    }
    predictions_.resize(token + layers_ * experts, 0);
  }

  void move_into(routing_trace& trace) {
    trace.logits = std::move(logits_);
    trace.probabilities = half_array(std::move(probabilities_));
    trace.predictions = half_array(std::move(predictions_));
    trace.prediction_depth = 1;
    std::array<char, 32> chance{};  // to_string would ask the locale
    const auto end = std::to_chars(chance.data(), chance.data() + chance.size(), noise_).ptr;
    trace.metadata = {{"logits", "logarithms of the probabilities"},
                      {"predictions",
                       "probabilities of the next layer; chance of an expert to have another "
                       "one's: " +
                           std::string(chance.data(), end)}};
  }

 private:
  [[nodiscard]] std::uint64_t& mass(expert_id id) { return masses_[static_cast<std::size_t>(id)]; }

  /// Of everything that has no mass yet. Returns their sum.
  std::uint64_t weigh_others(std::uint64_t least, std::uint64_t routed,
                             std::span<const expert_id> popular,
                             std::span<const std::uint64_t> cumulative) {
    const std::uint64_t share = (random_.next() >> 40U) | 1U;  // of 2^24
    const auto roots = random_.below(3);
    others_.clear();
    std::uint64_t best = 1;
    for (std::size_t rank = 0; rank < popular.size(); ++rank) {
      if (mass(popular[rank]) != 0) continue;
      const auto popularity = cumulative[rank] - (rank == 0 ? 0 : cumulative[rank - 1]);
      const auto drawn = (random_.next() >> 33U) + 1;  // of 2^31
      others_.emplace_back((std::max<std::uint64_t>(popularity >> 8U, 1) * drawn) >> 31U,
                           popular[rank]);
      best = std::max(best, others_.back().first);
    }
    const std::uint64_t most = (least * share) >> 24U;
    std::uint64_t sum = 0;
    for (auto& [value, id] : others_) {
      value = (value << 23U) / best;
      for (std::uint64_t n = 0; n < roots; ++n) value = integer_sqrt(value << 23U);
      value = (most * std::max<std::uint64_t>(value, 1)) >> 23U;
      sum += value;
    }
    return hand_out(shrinking(routed, sum));
  }

  /// The factor that leaves the routed experts their share; at most 1.
  [[nodiscard]] double shrinking(std::uint64_t routed, std::uint64_t others) const {
    const double room = others_per_routed_ * static_cast<double>(routed);
    const auto taken = static_cast<double>(others);
    return taken > room ? room / taken : 1.0;
  }

  std::uint64_t hand_out(double factor) {
    std::uint64_t sum = 0;
    for (const auto& [value, id] : others_) {
      const double shrunk = static_cast<double>(value) * factor;
      mass(id) = std::max<std::uint64_t>(static_cast<std::uint64_t>(shrunk), 1);
      sum += mass(id);
    }
    return sum;
  }

  void add_logits(std::span<const expert_id> ids, std::uint64_t total) {
    const auto whole = ln_q18(total);
    for (std::size_t e = 0; e < steps_.size(); ++e) steps_[e] = ln_q18(masses_[e]) - whole;
    auto least = steps_[static_cast<std::size_t>(ids[0])] + 1;
    for (const auto id : ids) {
      auto& step = steps_[static_cast<std::size_t>(id)];
      step = least = std::min(step, least - 1);
    }
    for (const auto& [value, id] : others_) {
      auto& step = steps_[static_cast<std::size_t>(id)];
      step = std::min(step, least - 1);
    }
    for (const auto step : steps_) logits_.push_back(static_cast<float>(step) * 0x1p-18F);  // exact
  }

  void add_probabilities(std::span<const expert_id> ids, std::uint64_t total) {
    const auto begin = probabilities_.size();
    for (const auto m : masses_)
      probabilities_.push_back(
          float_to_half(static_cast<float>(static_cast<double>(m) / static_cast<double>(total))));
    const auto row = std::span(probabilities_).subspan(begin);
    // The bits of halves that are not negative are ordered as the halves are.
    std::uint16_t least = 0;
    for (const auto id : ids) {
      auto& half = row[static_cast<std::size_t>(id)];
      half = least = std::max<std::uint16_t>(half, 1);
    }
    for (const auto& [value, id] : others_) {
      auto& half = row[static_cast<std::size_t>(id)];
      half = std::min(half, static_cast<std::uint16_t>(least - 1));
    }
  }

  /// Draws as much whatever the chance is, so that a higher one exchanges the same experts and more.
  void exchange(std::span<std::uint16_t> predicted, std::span<const std::uint16_t> real) {
    drawn_.clear();
    for (std::size_t e = 0; e < predicted.size(); ++e) {
      const bool is_drawn = (predictor_.next() >> 11U) < threshold_;
      const auto place = predictor_.next();
      if (is_drawn) drawn_.emplace_back(place, e);
    }
    std::ranges::sort(drawn_);
    for (std::size_t i = 0; i < drawn_.size(); ++i)
      predicted[drawn_[i].second] = real[drawn_[(i + 1) % drawn_.size()].second];
  }

  std::size_t layers_;
  splitmix64 random_;
  splitmix64 predictor_;
  double noise_;
  std::uint64_t threshold_;
  double others_per_routed_;
  std::vector<std::uint64_t> masses_;  // [E]
  std::vector<std::int64_t> steps_;    // [E] logits
  std::vector<std::pair<std::uint64_t, expert_id>> others_;
  std::vector<std::pair<std::uint64_t, std::size_t>> drawn_;
  std::vector<float> logits_;
  std::vector<std::uint16_t> probabilities_;
  std::vector<std::uint16_t> predictions_;
};

/// The state of one generation; a token goes through all layers before the next.
class synthetic_generator {
 public:
  explicit synthetic_generator(const synthetic_config& config)
      : config_(config),
        random_(config.seed),
        table_(zipf_table(static_cast<std::size_t>(config.experts), config.zipf)),
        popular_(static_cast<std::size_t>(config.layers)),
        threshold_(chance_q53(config.stickiness)),
        keep_random_(splitmix64(~config.seed).next() ^ 2U),
        keep_threshold_(chance_q53(config.position_stickiness)),
        scores_(config) {}

  template <class Told>
  [[nodiscard]] routing_trace run(Told told) {
    const auto total = std::uint64_t{config_.sequences} *
                       (config_.prefill + std::uint64_t{config_.tokens} * config_.positions);
    trace_.name = "synthetic";
    trace_.source = "hotset synthetic, seed " + std::to_string(config_.seed);
    trace_.layers = config_.layers;
    trace_.experts = config_.experts;
    trace_.top_k = config_.top_k;
    trace_.expert_bytes = {config_.expert_bytes};
    for (std::uint32_t s = 0; s < config_.sequences; ++s) {
      for (std::uint32_t t = 0; t < config_.prefill; ++t) {
        told(std::uint64_t{trace_.tokens()}, total);
        add_token(s, request_class::prefill, false);
      }
      if (config_.prefill > 0) ++step_;
      for (std::uint32_t t = 0; t < config_.tokens; ++t, ++step_)
        for (std::uint32_t p = 0; p < config_.positions; ++p) {
          told(std::uint64_t{trace_.tokens()}, total);
          add_token(s, request_class::decode, t > 0);
        }
    }
    if (config_.scores) scores_.move_into(trace_);
    return std::move(trace_);
  }

 private:
  /// `again`: the position has been routed in the step before.
  void add_token(std::uint32_t sequence, request_class kind, bool again) {
    const auto token = trace_.tokens();
    const bool shift = config_.phase_length > 0 && token % config_.phase_length == 0;
    if (token == 0 || shift) shuffle(config_.phase_length > 0 ? token / config_.phase_length : 0);
    const bool follows = token > 0 && trace_.sequence[token - 1] == sequence;
    trace_.step.push_back(step_);
    trace_.sequence.push_back(sequence);
    trace_.kind.push_back(kind);
    for (layer_id layer = 0; layer < config_.layers; ++layer) {
      if (again && keeps())
        repeat(token, layer);
      else
        route(token, layer, follows);
      if (config_.weights) weigh();
      if (config_.scores) score(token, layer);
    }
    if (config_.scores) scores_.end_token();
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

  /// Draws from a stream of its own.
  bool keeps() { return keep_threshold_ > 0 && (keep_random_.next() >> 11U) < keep_threshold_; }

  void repeat(std::size_t token, layer_id layer) {
    const auto before = trace_.index(token - config_.positions, layer);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(config_.top_k); ++rank) {
      const auto id = trace_.ids[before + rank];
      trace_.ids.push_back(id);
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

  /// One draw for each rank, descending. Returns their sum.
  std::uint64_t draw_gates(splitmix64& random) {
    draws_.resize(static_cast<std::size_t>(config_.top_k));
    std::uint64_t total = 0;
    for (auto& d : draws_) {
      d = (random.next() >> 32U) + 1;
      total += d;
    }
    std::sort(draws_.begin(), draws_.end(), [](auto a, auto b) { return a > b; });
    return total;
  }

  /// Gate weights of one token in one layer: descending, their sum 1 up to rounding.
  void weigh() {
    const auto total = draw_gates(random_);
    for (const auto d : draws_)
      trace_.weights.push_back(
          static_cast<float>(static_cast<double>(d) / static_cast<double>(total)));
  }

  /// The gate weights are those of the trace, if it has them.
  void score(std::size_t token, layer_id layer) {
    if (!config_.weights) draw_gates(scores_.random());
    scores_.add_layer(trace_.ids_of(token, layer), draws_,
                      popular_[static_cast<std::size_t>(layer)], table_);
  }

  synthetic_config config_;
  splitmix64 random_;
  std::vector<std::uint64_t> table_;
  std::vector<std::vector<expert_id>> popular_;  ///< [L][E], most popular first
  std::uint64_t threshold_;
  splitmix64 keep_random_;
  std::uint64_t keep_threshold_;
  std::vector<std::uint64_t> draws_;
  synthetic_scores scores_;
  routing_trace trace_;
  std::uint32_t step_ = 0;
};

}  // namespace detail

/// Returns why the configuration is refused, or the trace. Complexity: O(T L K^2 + E), and with scores
/// O(T L E log E). `told(done, total)` is called before every token, with the tokens made and to make.
template <class Told>
[[nodiscard]] result<routing_trace> synthetic_trace(const synthetic_config& config, Told told) {
  if (auto bad = config.validate()) return *std::move(bad);
  return detail::synthetic_generator(config).run(std::move(told));
}
[[nodiscard]] inline result<routing_trace> synthetic_trace(const synthetic_config& config) {
  return synthetic_trace(config, [](std::uint64_t, std::uint64_t) {});
}

}  // namespace hotset::inline v0
