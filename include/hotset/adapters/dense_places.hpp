// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Places of a layer's virtual weight tensor for adapters that come and go: runs of places, side by side.
///
/// Rule: take gives the first run that is long enough (first fit); places that are given back join their neighbours.
/// Source: none. Exact: yes. Cost: O(places) per take, O(run) per give.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/status.hpp"

namespace hotset {

/// Threads: compatible. Memory: 1 byte per place. No allocation after construction.
class dense_places {
 public:
  struct config {
    expert_id first{};        ///< place of all; behind the base model's experts it is M
    std::int32_t places = 0;  ///< from there on

    [[nodiscard]] validation validate() const {
      if (first < 0 || first > most_places) return refuse("first", number(first), most_places);
      if (places < 0 || places > most_places - number(first))
        return refuse("places", places, most_places - number(first));
      return std::nullopt;
    }

   private:
    static validation refuse(const char* name, std::int32_t value, std::int32_t most) {
      return error{std::string(name) + " = " + std::to_string(value) + ", accepted: 0.." +
                   std::to_string(most)};
    }
  };
  static constexpr std::int32_t most_places = 1 << 28;

  /// All places are free at first.
  static result<dense_places> create(const config& setup) noexcept {
    return unless_out_of_memory(
        [&]() -> result<dense_places> {
          if (auto bad = setup.validate()) return *std::move(bad);
          return dense_places(setup);
        },
        result<dense_places>(no_host_memory()));
  }

  /// Returns: the first place of a run that is the caller's from now on; no_expert if no free run is as long, or
  /// count < 1.
  [[nodiscard]] expert_id take(std::int32_t count) noexcept {
    if (count < 1) return no_expert;
    const auto at = std::search_n(places_.begin(), places_.end(), count, state::free);
    if (at == places_.end()) return no_expert;
    std::fill_n(at, count, state::inside);
    *at = state::first;
    return first_ + static_cast<std::int32_t>(at - places_.begin());
  }
  /// Makes a run that was taken free again.
  /// Errors: invalid_argument (not a run that take gave, whole), with nothing changed.
  status give(expert_id first, std::int32_t count) noexcept {
    if (!is_run(first, count)) return status::invalid_argument;
    std::fill_n(places_.begin() + (first - first_), count, state::free);
    return status::ok;
  }
  /// May be in runs that are each too short. Complexity: O(places).
  [[nodiscard]] std::int32_t free_places() const noexcept {
    return static_cast<std::int32_t>(std::count(places_.begin(), places_.end(), state::free));
  }

 private:
  enum class state : std::uint8_t { free, first, inside };  ///< of a run that is taken

  explicit dense_places(const config& setup)
      : first_(setup.first), places_(static_cast<std::size_t>(setup.places), state::free) {}
  [[nodiscard]] bool is_run(expert_id first, std::int32_t count) const noexcept {
    const auto places = static_cast<std::int64_t>(places_.size());
    const auto begin = std::int64_t{number(first)} - number(first_);
    const auto end = begin + count;
    if (count < 1 || begin < 0 || end > places) return false;
    const auto of = [this](std::int64_t place) { return places_[static_cast<std::size_t>(place)]; };
    if (of(begin) != state::first) return false;
    for (auto place = begin + 1; place < end; ++place)
      if (of(place) != state::inside) return false;
    return end == places || of(end) != state::inside;
  }

  expert_id first_;
  std::vector<state> places_;
};

}  // namespace hotset
