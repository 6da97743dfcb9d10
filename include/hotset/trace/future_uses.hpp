// SPDX-License-Identifier: Apache-2.0
#pragma once
/// For every key the visits that will use it, ascending: what an offline policy knows.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Memory: 8 bytes per use and 12 per key. With token groups, a group is an event.
class future_uses {
 public:
  /// A key is used at an ordinal.
  struct event {
    std::uint64_t ordinal = 0;
    expert_key key{};
  };
  /// Stands behind every ordinal: the key is not used again.
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();

  /// Errors: ordinals that fall, or are 2^32 - 1 or more; keys outside the shape; 2^32 - 1 uses or more.
  /// An event that repeats an earlier (ordinal, key) is counted once.
  static result<future_uses> create(const geometry& shape, std::span<const event> events) {
    if (events.size() >= never)
      return error{"a future of " + std::to_string(events.size()) +
                   " events, accepted: fewer than 4294967295"};
    future_uses out;
    out.keys_in_order_.reserve(events.size());
    std::vector<std::uint64_t> last(shape.keys(), std::uint64_t{never});
    out.first_.assign(shape.keys() + 1, 0);
    for (std::size_t n = 0; n < events.size(); ++n) {
      const auto& e = events[n];
      const auto refuse = [&](const char* what) {
        return error{"event " + std::to_string(n) + ": ordinal " + std::to_string(e.ordinal) +
                     ", layer " + to_string(e.key.layer) + ", expert " + to_string(e.key.expert) +
                     ", accepted: " + what};
      };
      if (!shape.contains(e.key)) return refuse("keys of the geometry");
      if (e.ordinal >= never) return refuse("ordinals below 4294967295");
      if (n > 0 && e.ordinal < events[n - 1].ordinal) return refuse("ordinals that do not fall");
      const auto k = shape.index(e.key);
      if (last[k] == e.ordinal) continue;
      last[k] = e.ordinal;
      ++out.first_[k + 1];
      out.keys_in_order_.push_back(static_cast<std::uint32_t>(k));
    }
    for (std::size_t k = 0; k < shape.keys(); ++k) out.first_[k + 1] += out.first_[k] + 1;
    out.ordinals_.assign(out.first_.back(), never);
    std::vector<std::size_t> at(out.first_.begin(), out.first_.end() - 1);
    for (const auto& e : events) {
      const auto k = shape.index(e.key);
      const auto ordinal = static_cast<std::uint32_t>(e.ordinal);
      if (at[k] > out.first_[k] && out.ordinals_[at[k] - 1] == ordinal) continue;
      out.ordinals_[at[k]++] = ordinal;
    }
    return out;
  }

  [[nodiscard]] std::size_t keys() const noexcept { return first_.empty() ? 0 : first_.size() - 1; }
  /// Ordinals that use the key, ascending. Pre: index < keys().
  [[nodiscard]] std::span<const std::uint32_t> uses(std::size_t index) const noexcept {
    return {ordinals_.data() + first_[index], first_[index + 1] - first_[index] - 1};
  }
  /// Where the uses of a key begin in ordinals(); `never` closes them.
  [[nodiscard]] std::size_t first(std::size_t index) const noexcept { return first_[index]; }
  [[nodiscard]] std::span<const std::uint32_t> ordinals() const noexcept { return ordinals_; }
  /// The key index of every use, by ascending ordinal.
  [[nodiscard]] std::span<const std::uint32_t> keys_in_order() const noexcept {
    return keys_in_order_;
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::uint32_t> ordinals_;
  std::vector<std::uint32_t> keys_in_order_;
};

}  // namespace hotset
