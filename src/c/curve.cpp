// SPDX-License-Identifier: Apache-2.0
/// Miss curves of the C interface, and the division of bytes by them.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/planning/budget/equimarginal.hpp"
#include "hotset/planning/curve/curve_recorder.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

/// The handle that C sees.
struct hotset_curve : hotset::c::handle {
  hotset_curve(hotset::geometry of, hotset::cache_scope scope)
      : shape(std::move(of)), recorder(shape, scope), gathered(shape) {}

  /// Of the visits so far, of a layer or of all. Throws where there is no memory.
  const hotset::sampled_miss_curve& of(std::size_t pool) {
    if (curves.empty()) {
      std::vector<hotset::sampled_miss_curve> made;
      for (const auto& histogram : recorder.histograms())
        made.push_back(hotset::sampled_miss_curve::per_step(
            histogram.misses(), std::max<std::uint64_t>(1, recorder.steps())));
      curves = std::move(made);
    }
    return curves[pool];
  }
  [[nodiscard]] hotset_status check_layer(std::int32_t layer) const noexcept {
    const auto pools = recorder.histograms().size();
    if (layer >= 0 && static_cast<std::size_t>(layer) < pools) return HOTSET_OK;
    return hotset::c::refuse(HOTSET_INVALID_ARGUMENT, "layer %d, accepted: 0..%zu", layer,
                             pools - 1);
  }

  hotset::geometry shape;
  hotset::curve_recorder recorder;
  hotset::c::gathered_rows gathered;
  std::vector<hotset::sampled_miss_curve> curves{};  ///< of the pools; empty: to be made anew
};

namespace {

using hotset::c::guarded;
using hotset::c::needs;
using hotset::c::refuse;
using hotset::c::take;
using hotset::c::with;

/// A consumer's table as a curve; it stands where it is.
struct table {
  const double* values = nullptr;
  std::size_t count = 0;
  [[nodiscard]] double misses(std::size_t units) const noexcept {
    return values[std::min(units, count - 1)];
  }
  [[nodiscard]] std::size_t max_slots() const noexcept { return count - 1; }
};

hotset_status check_table(const hotset_consumer& c, std::size_t at) noexcept {
  if (c.misses == nullptr || c.misses_count == 0)
    return refuse(HOTSET_INVALID_ARGUMENT, "consumer %zu has no curve, accepted: one, or misses",
                  at);
  for (std::size_t u = 0; u < c.misses_count; ++u)
    if (!(c.misses[u] >= 0) || std::isinf(c.misses[u]) || (u > 0 && c.misses[u] > c.misses[u - 1]))
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "consumer %zu: misses[%zu] = %g, accepted: 0 or more, never rising", at, u,
                    c.misses[u]);
  return HOTSET_OK;
}

/// The curves of a division, kept from other calls until it ends: each handle once.
class held_curves {
 public:
  [[nodiscard]] hotset_status hold(hotset_curve* curve) {
    if (std::ranges::find(curves_, curve) != curves_.end()) return HOTSET_OK;
    const auto& inside = entries_.emplace_back(curve);
    if (!inside.refused()) curves_.push_back(curve);
    return inside.code();
  }

 private:
  std::vector<hotset_curve*> curves_;
  std::deque<hotset::c::entry> entries_;
};

hotset_status divide(std::span<const hotset_consumer> given, std::uint64_t total_bytes,
                     std::uint64_t* units, double* seconds) {
  held_curves held;
  std::vector<table> tables(given.size());
  std::vector<hotset::memory_consumer> consumers(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& c = given[i];
    auto& out = consumers[i];
    out.unit_bytes = c.unit_bytes;
    out.seconds_per_miss = c.seconds_per_miss;
    out.min_units = c.min_units;
    if (c.max_units != 0) out.max_units = c.max_units;
    if (c.curve == nullptr) {
      if (const auto bad = check_table(c, i); bad != HOTSET_OK) return bad;
      tables[i] = {c.misses, c.misses_count};
      out.curve = hotset::miss_curve_ref(tables[i]);
      continue;
    }
    if (const auto bad = held.hold(c.curve); bad != HOTSET_OK) return bad;
    if (const auto bad = c.curve->check_layer(c.layer); bad != HOTSET_OK) return bad;
    out.curve = hotset::miss_curve_ref(c.curve->of(static_cast<std::size_t>(c.layer)));
  }
  auto divided = hotset::equimarginal().allocate(consumers, total_bytes);
  if (!divided) {
    // Floors whose sum overflows fit no budget: the argument is wrong, not the memory short.
    constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();
    const bool is_wrong = hotset::validate_consumers(consumers, unlimited).has_value();
    return refuse(is_wrong ? HOTSET_INVALID_ARGUMENT : HOTSET_EXCEEDS_MEMORY, "%s",
                  divided.error().message.c_str());
  }
  std::copy(divided->units.begin(), divided->units.end(), units);
  if (seconds != nullptr) *seconds = divided->seconds;
  return HOTSET_OK;
}

}  // namespace

extern "C" {

hotset_status hotset_curve_create(const hotset_curve_options* options, hotset_curve** out) {
  if (const auto bad = needs(out, "out"); bad != HOTSET_OK) return bad;
  *out = nullptr;
  hotset_curve_options given{};
  if (const auto bad = take(options, given, "options"); bad != HOTSET_OK) return bad;
  return guarded([&] {
    const auto shape = hotset::c::shape_of(given);
    if (const auto bad = shape.validate())
      return refuse(HOTSET_INVALID_CONFIG, "%s", bad->message.c_str());
    if (given.scope != HOTSET_SCOPE_PER_LAYER && given.scope != HOTSET_SCOPE_SHARED)
      return refuse(HOTSET_INVALID_CONFIG, "scope = %d, accepted: 0, 1", given.scope);
    *out = new hotset_curve(shape, given.scope == HOTSET_SCOPE_SHARED
                                       ? hotset::cache_scope::shared
                                       : hotset::cache_scope::per_layer);
    return hotset_status{HOTSET_OK};
  });
}
void hotset_curve_destroy(hotset_curve* curve) { delete curve; }

hotset_status hotset_curve_observe(hotset_curve* curve, const hotset_view* view) {
  return with(curve, [&](hotset_curve& c) {
    hotset_view given{};
    if (const auto bad = take(view, given, "view"); bad != HOTSET_OK) return bad;
    hotset::routing_view routed;
    if (const auto bad = hotset::c::read_view(given, c.shape, c.gathered, routed); bad != HOTSET_OK)
      return bad;
    c.recorder.observe(routed);
    c.curves.clear();
    return hotset_status{HOTSET_OK};
  });
}
hotset_status hotset_curve_misses(hotset_curve* curve, int32_t layer, size_t slots,
                                  double* misses) {
  return with(curve, [&](hotset_curve& c) {
    if (const auto bad = needs(misses, "misses"); bad != HOTSET_OK) return bad;
    if (const auto bad = c.check_layer(layer); bad != HOTSET_OK) return bad;
    return guarded([&] {
      *misses = c.of(static_cast<std::size_t>(layer)).misses(slots);
      return hotset_status{HOTSET_OK};
    });
  });
}
hotset_status hotset_curve_most_slots(hotset_curve* curve, int32_t layer, size_t* slots) {
  return with(curve, [&](hotset_curve& c) {
    if (const auto bad = needs(slots, "slots"); bad != HOTSET_OK) return bad;
    if (const auto bad = c.check_layer(layer); bad != HOTSET_OK) return bad;
    return guarded([&] {
      *slots = c.of(static_cast<std::size_t>(layer)).max_slots();
      return hotset_status{HOTSET_OK};
    });
  });
}

hotset_status hotset_divide(const hotset_consumer* consumers, size_t count, uint64_t total_bytes,
                            uint64_t* units, double* seconds) {
  if (count == 0) return refuse(HOTSET_INVALID_ARGUMENT, "no consumers, accepted: 1 or more");
  if (const auto bad = needs(consumers, "consumers"); bad != HOTSET_OK) return bad;
  if (const auto bad = needs(units, "units"); bad != HOTSET_OK) return bad;
  return guarded([&] { return divide({consumers, count}, total_bytes, units, seconds); });
}

}  // extern "C"
