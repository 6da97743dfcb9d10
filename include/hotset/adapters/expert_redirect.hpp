// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Expert map of one layer: position of each adapter's experts in the virtual weight tensor.
///
/// The tensor holds the base model's experts, then places for tuned experts. The tuned experts of an adapter lie side
/// by side, by ascending expert. All other experts are the base model's.
/// Strided: adapter i's places begin at experts + i * stride. Dense: an allocator of places chooses where they begin.
/// Source: ExpertWeave, section 4.1 (the ESFT expert map; `stride` is its E_max).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// Placement of adapters: a fixed stride apart, or in any gap.
enum class adapter_placement : std::uint8_t { strided, dense };

/// Threads: compatible. Memory: 4 bytes per adapter and expert.
class expert_redirect {
 public:
  struct config {
    std::int32_t experts = 0;     ///< experts in the base layer, M
    std::int32_t adapters = 0;    ///< most adapters present at once, A
    std::int32_t most_tuned = 0;  ///< most experts that one adapter may tune, E_max
    std::int32_t stride = 0;      ///< strided only: places of an adapter; 0: most_tuned
    adapter_placement placement = adapter_placement::strided;
    std::int32_t places = 0;  ///< dense only: places of all adapters; 0: adapters x most_tuned

    [[nodiscard]] validation validate() const {
      if (experts < 1) return refuse_value("experts", experts, "1 or more");
      if (adapters < 0) return refuse_value("adapters", adapters, "0 or more");
      if (auto bad = detail::within("most_tuned", most_tuned, 0, experts)) return bad;
      const auto entries = experts + std::int64_t{adapters} * experts;
      if (entries > most_places)
        return refuse_value("experts x (adapters + 1)", entries,
                            "at most " + std::to_string(most_places));
      const bool is_dense = placement == adapter_placement::dense;
      if (is_dense && stride != 0) return refuse_value("stride", stride, "0 if placement is dense");
      if (stride != 0 && stride < most_tuned)
        return refuse_value("stride", stride,
                            "0, or most_tuned (" + std::to_string(most_tuned) + ") and more");
      if (!is_dense && places != 0)
        return refuse_value("places", places, "0 if placement is strided");
      if (places < 0) return refuse_value("places", places, "0 or more");
      if (experts + all_places() > most_places)
        return refuse_value("virtual experts", experts + all_places(),
                            "at most " + std::to_string(most_places));
      return std::nullopt;
    }
    /// Number of places after the base model's experts, used or not.
    [[nodiscard]] std::int64_t all_places() const noexcept {
      if (places != 0) return places;
      return std::int64_t{adapters} * (stride != 0 ? stride : most_tuned);
    }
  };
  static constexpr std::int64_t most_places = std::int64_t{1} << 28;

  /// At first no adapter redirects an expert.
  static result<expert_redirect> create(const config& setup) noexcept {
    return unless_out_of_memory(
        [&]() -> result<expert_redirect> {
          if (auto bad = setup.validate()) return *std::move(bad);
          return expert_redirect(setup);
        },
        result<expert_redirect>(no_host_memory()));
  }

  /// Sets the tuned experts of an adapter, in any order. Dense: their places begin at `first`; if `tuned` is empty,
  /// `first` is ignored. Strided: the places are fixed, so `first` must be omitted. On an error nothing has changed.
  /// Errors: invalid_argument (an adapter or expert out of range; an expert named twice; more than most_tuned
  /// experts; places out of range or taken by another adapter).
  status assign(std::int32_t adapter, id_view<expert_id> tuned,
                expert_id first = no_expert) noexcept {
    if (!is_adapter(adapter) || tuned.size() > static_cast<std::size_t>(setup_.most_tuned))
      return status::invalid_argument;
    const run wanted{is_dense() && !tuned.empty() ? first : own_place(adapter),
                     static_cast<std::int32_t>(tuned.size())};
    if (is_dense() ? !tuned.empty() && !may_take(adapter, wanted) : first != no_expert)
      return status::invalid_argument;
    std::fill(is_tuned_.begin(), is_tuned_.end(), std::uint8_t{0});
    for (const expert_id e : tuned) {
      if (e < 0 || e >= setup_.experts || is_tuned_[e] != 0) return status::invalid_argument;
      is_tuned_[e] = 1;
    }
    runs_[static_cast<std::size_t>(adapter)] = wanted;
    auto place = wanted.first;
    expert_id* const row =
        &rows_[static_cast<std::size_t>(adapter) * static_cast<std::size_t>(setup_.experts)];
    for (const auto e : each<expert_id>(setup_.experts)) {
      row[index_of(e)] = is_tuned_[e] != 0 ? place : e;
      place = place + is_tuned_[e];
    }
    return status::ok;
  }
  /// Removes all redirections of an adapter.
  status clear(std::int32_t adapter) noexcept { return assign(adapter, {}); }

  /// Shape: [adapters * experts], one row for each adapter. Kernels read this array.
  [[nodiscard]] std::span<const expert_id> rows() const noexcept { return rows_; }
  /// Shape: [experts]. Pre: 0 <= adapter < adapters.
  [[nodiscard]] std::span<const expert_id> row(std::int32_t adapter) const noexcept {
    return std::span(rows_).subspan(
        static_cast<std::size_t>(adapter) * static_cast<std::size_t>(setup_.experts),
        static_cast<std::size_t>(setup_.experts));
  }
  /// First place of an adapter in the virtual weight tensor. Dense: no_expert if the adapter redirects nothing. Pre:
  /// 0 <= adapter < adapters.
  [[nodiscard]] expert_id first_place(std::int32_t adapter) const noexcept {
    return runs_[static_cast<std::size_t>(adapter)].first;
  }
  /// Experts of the virtual weight tensor, unused places included.
  [[nodiscard]] std::int32_t virtual_experts() const noexcept {
    return setup_.experts + static_cast<std::int32_t>(setup_.all_places());
  }
  [[nodiscard]] std::int32_t experts() const noexcept { return setup_.experts; }
  [[nodiscard]] std::int32_t adapters() const noexcept { return setup_.adapters; }

 private:
  /// Adjacent places.
  struct run {
    expert_id first = no_expert;
    std::int32_t count = 0;
    [[nodiscard]] std::int64_t end() const noexcept { return std::int64_t{number(first)} + count; }
  };
  explicit expert_redirect(const config& setup)
      : setup_(setup),
        rows_(static_cast<std::size_t>(setup.adapters) * static_cast<std::size_t>(setup.experts)),
        runs_(static_cast<std::size_t>(setup.adapters)),
        is_tuned_(static_cast<std::size_t>(setup.experts)) {
    for (std::int32_t a = 0; a < setup.adapters; ++a) (void)clear(a);
  }
  [[nodiscard]] bool is_dense() const noexcept {
    return setup_.placement == adapter_placement::dense;
  }
  [[nodiscard]] bool is_adapter(std::int32_t adapter) const noexcept {
    return adapter >= 0 && adapter < setup_.adapters;
  }
  [[nodiscard]] bool may_take(std::int32_t adapter, run wanted) const noexcept {
    if (wanted.first < setup_.experts || wanted.end() > virtual_experts()) return false;
    for (std::int32_t other = 0; other < setup_.adapters; ++other) {
      const run& there = runs_[static_cast<std::size_t>(other)];
      if (other != adapter && wanted.first < there.end() && there.first < wanted.end())
        return false;
    }
    return true;
  }
  /// First place of a strided adapter.
  [[nodiscard]] expert_id own_place(std::int32_t adapter) const noexcept {
    if (is_dense()) return no_expert;
    const auto stride = setup_.stride != 0 ? setup_.stride : setup_.most_tuned;
    return static_cast<expert_id>(setup_.experts + adapter * stride);
  }

  config setup_;
  std::vector<expert_id> rows_;
  std::vector<run> runs_;  ///< [adapters]
  per_expert<std::uint8_t> is_tuned_;
};

}  // namespace hotset
