// SPDX-License-Identifier: Apache-2.0
/// Miss curves of the C interface, and the division of bytes by them.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/planning/budget/equimarginal.hpp"
#include "hotset/planning/curve/curve_recorder.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

using namespace hotset;  // NOLINT(google-build-using-namespace): a source of one handle
using c::call;
using c::refuse;

/// Handle that C sees.
struct hotset_curve : c::handle {
  hotset_curve(geometry of, cache_scope scope)
      : shape(std::move(of)), recorder(shape, scope), gathered(shape) {}

  /// Returns the curve of the visits so far, of a layer or of all. Throws if memory runs out.
  const sampled_miss_curve& of(std::int32_t layer) {
    if (curves.empty()) {
      std::vector<sampled_miss_curve> made;
      for (const auto& histogram : recorder.histograms())
        made.push_back(sampled_miss_curve::per_step(histogram.misses(),
                                                    std::max<std::uint64_t>(1, recorder.steps())));
      curves = std::move(made);
    }
    return curves[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] hotset_status check_layer(std::int32_t layer) const noexcept {
    const auto pools = recorder.histograms().size();
    if (layer >= 0 && static_cast<std::size_t>(layer) < pools) return HOTSET_OK;
    return refuse(HOTSET_INVALID_ARGUMENT, "layer %d, accepted: 0..%zu", layer, pools - 1);
  }

  geometry shape;
  curve_recorder recorder;
  c::gathered_rows gathered;
  std::vector<sampled_miss_curve> curves{};  ///< [pools]; empty: must be computed
};

namespace {

hotset_status check_table(const hotset_consumer& of, std::size_t at) noexcept {
  if (of.misses == nullptr || of.misses_count == 0)
    return refuse(HOTSET_INVALID_ARGUMENT, "consumer %zu has no misses, accepted: 1 or more", at);
  for (std::size_t u = 0; u < of.misses_count; ++u)
    if (!(of.misses[u] >= 0) || std::isinf(of.misses[u]) ||
        (u > 0 && of.misses[u] > of.misses[u - 1]))
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "consumer %zu: misses[%zu] = %g, accepted: 0 or more, never rising", at, u,
                    of.misses[u]);
  return HOTSET_OK;
}

hotset_status divide(std::span<const hotset_consumer> given, std::uint64_t total_bytes,
                     std::uint64_t* units, double* seconds) {
  std::vector<sampled_miss_curve> tables(given.size());
  std::vector<memory_consumer> consumers(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& want = given[i];
    auto& out = consumers[i];
    out.unit_bytes = want.unit_bytes;
    out.seconds_per_miss = want.seconds_per_miss;
    out.min_units = want.min_units;
    if (want.max_units != 0) out.max_units = want.max_units;
    if (const auto bad = check_table(want, i); bad != HOTSET_OK) return bad;
    tables[i] = sampled_miss_curve({want.misses, want.misses + want.misses_count});
    out.curve = tables[i];
  }
  auto divided = equimarginal().allocate(consumers, total_bytes);
  if (!divided) {
    // Floors whose sum overflows fit no budget: an invalid argument, not a lack of memory.
    constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();
    const bool is_wrong = validate_consumers(consumers, unlimited).has_value();
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
  return c::create(options, out,
                   [](const hotset_curve_options& o) -> result<std::unique_ptr<hotset_curve>> {
                     const auto shape = c::shape_of(o);
                     if (auto bad = shape.validate()) return *std::move(bad);
                     const auto scope = c::scope_of(o.scope);
                     if (!scope) return scope.error();
                     return std::make_unique<hotset_curve>(shape, *scope);
                   });
}
void hotset_curve_destroy(hotset_curve* curve) { delete curve; }

hotset_status hotset_curve_observe(hotset_curve* curve, const hotset_view* view) {
  hotset_view given{};
  return call(curve).reads(view, given, "view").run([&](hotset_curve& of) -> hotset_status {
    routing_view routed;
    if (const auto bad = c::read_view(given, of.shape, of.gathered, routed); bad != HOTSET_OK)
      return bad;
    of.recorder.observe(routed);
    of.curves.clear();
    return HOTSET_OK;
  });
}
hotset_status hotset_curve_misses(hotset_curve* curve, int32_t layer, size_t slots,
                                  double* misses) {
  return call(curve).needs(misses, "misses").layer(layer).run([&](hotset_curve& of) {
    *misses = of.of(layer).misses(slots);
  });
}
hotset_status hotset_curve_most_slots(hotset_curve* curve, int32_t layer, size_t* slots) {
  return call(curve).needs(slots, "slots").layer(layer).run([&](hotset_curve& of) {
    *slots = of.of(layer).max_slots();
  });
}

hotset_status hotset_divide(const hotset_consumer* consumers, size_t count, uint64_t total_bytes,
                            uint64_t* units, double* seconds) {
  if (count == 0) return refuse(HOTSET_INVALID_ARGUMENT, "no consumers, accepted: 1 or more");
  if (const auto bad = c::needs(consumers, "consumers"); bad != HOTSET_OK) return bad;
  if (const auto bad = c::needs(units, "units"); bad != HOTSET_OK) return bad;
  return c::guarded([&] { return divide({consumers, count}, total_bytes, units, seconds); });
}

}  // extern "C"
