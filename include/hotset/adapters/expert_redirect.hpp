// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The expert map of one layer: where each adapter's experts are in the virtual weight tensor.
///
/// The tensor holds the base model's experts, then `most_tuned` places for each adapter in turn. An expert that an
/// adapter has tuned is at one of its places, by ascending expert; every other expert is the base model's.
/// Source: ExpertWeave, section 4.1 (the ESFT expert map).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/status.hpp"

namespace hotset::inline v0 {

/// Threads: compatible. Memory: 4 bytes per adapter and expert.
class expert_redirect {
 public:
  struct config {
    std::int32_t experts = 0;     ///< of the base model, M
    std::int32_t adapters = 0;    ///< that can be there at once, A
    std::int32_t most_tuned = 0;  ///< experts that one adapter may tune, E_max

    [[nodiscard]] validation validate() const {
      const auto refuse = [](const char* name, std::int64_t value, const std::string& accepted) {
        return validation(
            error{std::string(name) + " = " + std::to_string(value) + ", accepted: " + accepted});
      };
      if (experts < 1) return refuse("experts", experts, "1 or more");
      if (adapters < 0) return refuse("adapters", adapters, "0 or more");
      if (most_tuned < 0 || most_tuned > experts)
        return refuse("most_tuned", most_tuned, "0.." + std::to_string(experts));
      const auto places = experts + std::int64_t{adapters} * experts;
      if (places > most_places)
        return refuse("experts x (adapters + 1)", places, "at most " + std::to_string(most_places));
      return std::nullopt;
    }
  };
  static constexpr std::int64_t most_places = std::int64_t{1} << 28;

  /// Every adapter redirects nothing at first.
  static result<expert_redirect> create(const config& setup) noexcept {
    if (auto bad = setup.validate()) return *std::move(bad);
    return expert_redirect(setup);
  }

  /// Makes `tuned` the experts of an adapter, in any order. On an error nothing has changed.
  /// Errors: invalid_argument (an adapter or expert out of range, an expert named twice, more than most_tuned).
  status assign(std::int32_t adapter, std::span<const expert_id> tuned) noexcept {
    if (adapter < 0 || adapter >= setup_.adapters || tuned.size() > size(setup_.most_tuned))
      return status::invalid_argument;
    std::fill(is_tuned_.begin(), is_tuned_.end(), std::uint8_t{0});
    for (const expert_id e : tuned) {
      if (e < 0 || e >= setup_.experts || is_tuned_[size(e)] != 0) return status::invalid_argument;
      is_tuned_[size(e)] = 1;
    }
    auto place = first_place(adapter);
    const auto row = mutable_row(adapter);
    for (expert_id e = 0; e < setup_.experts; ++e)
      row[size(e)] = is_tuned_[size(e)] != 0 ? place++ : e;
    return status::ok;
  }
  /// Makes an adapter redirect nothing.
  status clear(std::int32_t adapter) noexcept { return assign(adapter, {}); }

  /// Shape: [adapters * experts], an adapter's row after the other; what kernels read.
  [[nodiscard]] std::span<const expert_id> rows() const noexcept { return rows_; }
  /// Shape: [experts]. Pre: 0 <= adapter < adapters.
  [[nodiscard]] std::span<const expert_id> row(std::int32_t adapter) const noexcept {
    return std::span(rows_).subspan(size(adapter) * size(setup_.experts), size(setup_.experts));
  }
  /// Where an adapter's places begin in the virtual weight tensor.
  [[nodiscard]] expert_id first_place(std::int32_t adapter) const noexcept {
    return setup_.experts + adapter * setup_.most_tuned;
  }
  /// Experts of the virtual weight tensor, with the places that nobody uses.
  [[nodiscard]] std::int32_t virtual_experts() const noexcept {
    return first_place(setup_.adapters);
  }
  [[nodiscard]] std::int32_t experts() const noexcept { return setup_.experts; }
  [[nodiscard]] std::int32_t adapters() const noexcept { return setup_.adapters; }

 private:
  explicit expert_redirect(const config& setup)
      : setup_(setup),
        rows_(size(setup.adapters) * size(setup.experts)),
        is_tuned_(size(setup.experts)) {
    for (std::int32_t a = 0; a < setup.adapters; ++a) (void)clear(a);
  }
  static std::size_t size(std::int32_t n) noexcept { return static_cast<std::size_t>(n); }
  std::span<expert_id> mutable_row(std::int32_t adapter) noexcept {
    return std::span(rows_).subspan(size(adapter) * size(setup_.experts), size(setup_.experts));
  }

  config setup_;
  std::vector<expert_id> rows_;
  std::vector<std::uint8_t> is_tuned_;
};

}  // namespace hotset::inline v0
