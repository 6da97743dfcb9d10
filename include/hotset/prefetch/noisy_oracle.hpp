// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests the experts that the next visit will route, degraded to a stated accuracy.
///
/// Rule: each distinct expert of the next visit, in routed order, is kept with probability `recall` (one draw of
///   splitmix64 each). Each kept one adds (1 - precision) / precision to an account of wrong requests. The whole part
///   of the account is requested too, at most all other experts of the layer. The wrong ones are drawn one after the
///   other, uniformly among the other experts that are left (by ascending id).
/// Source: none; a predictor of known accuracy for traces without hidden states. It knows the future: results must
///   say so.
/// Deviations: none. The kept ones come first, so a list that is cut short is better than stated.
/// Exact: yes (never changes what is computed).
/// Cost: O(ids), plus O(experts) if there are wrong ones. Memory: 24 bytes per expert of a layer.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/policy/prefetch_policy.hpp"

namespace hotset {

/// Call `propose` at most once per visit, because it draws. The draws depend only on the truths.
class noisy_oracle {
 public:
  struct config {
    double precision = 1.0;  ///< share of requests that are right, in the long run
    double recall = 1.0;     ///< share of routed experts that are requested, in the long run
    std::uint64_t seed = 1;
    /// Parameters by name, as in `noisy_oracle:precision=0.9:recall=0.8`.
    template <class From>
    static config read(From& from) {
      return {.precision = from.real("precision", config{}.precision),
              .recall = from.real("recall", config{}.recall),
              .seed = from.number("seed", config{}.seed)};
    }
    [[nodiscard]] validation validate() const {
      if (!(precision > 0.0 && precision <= 1.0))
        return refusal("noisy_oracle precision = ", precision, ", accepted: above 0, at most 1");
      if (!(recall >= 0.0 && recall <= 1.0))
        return refusal("noisy_oracle recall = ", recall, ", accepted: 0..1");
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "noisy_oracle";
  static constexpr prefetch_traits traits{.needs = forecast_need::truth};

  noisy_oracle(const geometry& shape, const config& options)
      : layers_(shape.layers),
        experts_(shape.expert_count()),
        probability_(static_cast<float>(options.precision)),
        recall_(options.recall),
        wrong_per_kept_(in_parts((1.0 - options.precision) / options.precision)),
        random_(options.seed),
        unique_(experts_, 0) {
    truth_.reserve(experts_);
    chosen_.reserve(experts_);
    others_.reserve(experts_);
  }

  [[nodiscard]] std::int32_t depth() const noexcept { return 1; }
  [[nodiscard]] std::size_t most_requests() const noexcept { return experts_; }
  void observe(const routing_view&) noexcept {}
  /// Pre: the truth belongs to a visit after the view's.
  [[nodiscard]] std::size_t propose(const routing_view&, const forecast& expected,
                                    std::span<prefetch_request> out) noexcept {
    if (expected.truth_layer < 0 || expected.truth_layer >= layers_) return 0;
    choose(expected.truth);
    const auto count = std::min(chosen_.size(), out.size());
    for (std::size_t n = 0; n < count; ++n)
      out[n] = {{expected.truth_layer, chosen_[n]}, expected.truth_step, probability_};
    return count;
  }

 private:
  // The account is in units of 2^-32, rounded to nearest: integers are the same on every machine.
  static constexpr std::uint64_t one = std::uint64_t{1} << 32U;
  static constexpr std::uint64_t most_owed = std::uint64_t{1} << 62U;

  static std::uint64_t in_parts(double wrong) noexcept {
    return static_cast<std::uint64_t>(std::llround(std::min(wrong, 0x1p29) * 0x1p32));
  }

  /// Fills chosen_ with the kept experts, then the wrong ones.
  void choose(id_view<expert_id> truth) noexcept {
    chosen_.clear();
    truth_.clear();
    unique_.collect(truth, [this](std::size_t, expert_id e) { truth_.push_back(e); });
    for (const auto e : truth_) {
      if (!(random_.uniform() < recall_)) continue;
      chosen_.push_back(e);
      owed_ = std::min(owed_ + wrong_per_kept_, most_owed);
    }
    if (truth_.empty()) return;
    auto wrong = std::min<std::uint64_t>(owed_ / one, experts_ - truth_.size());
    if (wrong == 0) return;
    owed_ -= wrong * one;
    others_.clear();
    for (const auto e : each<expert_id>(experts_))
      if (!unique_.contains(e)) others_.push_back(e);
    for (std::size_t n = 0; wrong > 0; ++n, --wrong) {
      std::swap(others_[n], others_[n + random_.below(others_.size() - n)]);
      chosen_.push_back(others_[n]);
    }
  }

  std::int32_t layers_;
  std::size_t experts_;
  float probability_;
  double recall_;
  std::uint64_t wrong_per_kept_;
  std::uint64_t owed_ = 0;
  splitmix64 random_;
  unique_ids unique_;
  std::vector<expert_id> truth_, chosen_, others_;  // each has room for a layer
};

static_assert(prefetch_policy<noisy_oracle>);

}  // namespace hotset
