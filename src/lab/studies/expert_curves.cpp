// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/expert_curves.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "hotset/planning/curve/curve_recorder.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"
#include "lab/studies/plan.hpp"

namespace hotset::lab {
namespace {

/// Bytes per step of experts that the previous step did not use.
double new_bytes_of(const visit_sequence& visits, const geometry& shape) {
  std::vector<std::uint32_t> last(shape.keys(), 0);  // last step that used it, + 2
  double bytes = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto view = visits[i];
    const auto step = static_cast<std::uint32_t>(view.step) + 2;
    for (const auto id : view.experts) {
      if (id < 0) continue;
      const auto before = std::exchange(last[shape.index({view.layer, id})], step);
      if (before == step || before + 1 == step) continue;
      bytes += static_cast<double>(shape.bytes_of(view.layer));
    }
  }
  return bytes;
}

/// Assumes that every token draws its experts independently and uniformly: a step uses U of E experts, and a share C
/// / E of them is resident.
/// All tokens of `whole`, over all devices, draw this device's experts.
expert_curves uniform_curves(const plan_request& request, const plan_request& whole) {
  const auto& shape = request.model.experts;
  const auto experts = static_cast<double>(shape.experts);
  const auto used =
      experts * used_share(whole.model.experts, static_cast<double>(whole.concurrency));
  std::vector<double> misses;
  for (std::int32_t cap = 0; cap <= shape.experts; ++cap)
    misses.push_back(used * (1 - cap / experts));
  expert_curves out;
  for (const auto l : each<layer_id>(shape.layers)) {
    out.layers.emplace_back(misses);
    out.used.push_back(used);
    out.accesses += used;
    out.new_bytes += used * (1 - used / experts) * static_cast<double>(shape.bytes_of(l));
  }
  out.widest = static_cast<std::uint32_t>(
      std::min(static_cast<std::uint64_t>(shape.experts),
               whole.concurrency * static_cast<std::uint64_t>(shape.top_k)));
  return out;
}

/// Rows that decode; all, if none does.
std::vector<std::size_t> decoded_rows(const routing_trace& trace) {
  std::vector<std::size_t> rows;
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    if (trace.kind[t] != request_class::prefill) rows.push_back(t);
  if (!rows.empty()) return rows;
  rows.resize(trace.tokens());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return rows;
}

}  // namespace

double used_share(const geometry& experts, double tokens) noexcept {
  return 1 - std::pow(1 - static_cast<double>(experts.top_k) / static_cast<double>(experts.experts),
                      tokens);
}

std::uint64_t steps_of(const routing_trace& trace) {
  std::uint64_t steps = trace.tokens() > 0 ? 1 : 0;
  for (std::size_t t = 1; t < trace.tokens(); ++t)
    if (trace.step[t] != trace.step[t - 1]) ++steps;
  return steps;
}
bool routes_nothing(const routing_trace& trace) {
  return std::ranges::all_of(trace.ids, [](expert_id id) { return id < 0; });
}

double decode_width(const routing_trace& trace) {
  const auto rows = decoded_rows(trace);
  std::size_t steps = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (i == 0 || trace.step[rows[i]] != trace.step[rows[i - 1]]) ++steps;
  return steps == 0 ? 0 : static_cast<double>(rows.size()) / static_cast<double>(steps);
}

routing_trace side_by_side(const routing_trace& trace, std::uint64_t sessions) {
  auto rows = decoded_rows(trace);
  const auto length = rows.size() / sessions;
  if (length == 0)
    throw usage_error(fmt::format(
        "the trace has {} decoded tokens; accepted: one or more for each session, of which there "
        "are {}",
        rows.size(), sessions));
  std::ranges::stable_sort(rows, {}, [&](std::size_t t) { return trace.sequence[t]; });
  routing_trace out;
  out.layers = trace.layers;
  out.experts = trace.experts;
  out.top_k = trace.top_k;
  for (std::uint32_t step = 0; step < length; ++step)
    for (std::uint32_t s = 0; s < sessions; ++s) {
      const auto row = rows[s * length + step];
      const auto first = trace.ids.begin() + static_cast<std::ptrdiff_t>(trace.index(row, {}));
      out.step.push_back(step);
      out.sequence.push_back(s);
      out.ids.insert(out.ids.end(), first, first + std::ptrdiff_t{trace.layers} * trace.top_k);
    }
  out.kind.assign(out.tokens(), request_class::decode);
  return out;
}

expert_curves recorded_curves(const routing_trace& trace, const geometry& model) {
  expert_curves out;
  const auto layers = static_cast<std::size_t>(model.layers);
  if (routes_nothing(trace)) {
    out.layers.assign(layers, sampled_miss_curve(std::vector<double>(
                                  static_cast<std::size_t>(model.experts) + 1, 0.0)));
    out.used.assign(layers, 0.0);
    return out;
  }
  const auto visits = visit_sequence::create(trace);
  if (!visits) throw usage_error(visits.error().message);
  const auto steps = steps_of(trace);
  curve_recorder recorder(visits->shape(), cache_scope::per_layer);
  for (std::size_t i = 0; i < visits->size(); ++i) recorder.observe((*visits)[i]);
  for (const auto& histogram : recorder.histograms()) {
    out.layers.push_back(sampled_miss_curve::per_step(histogram.misses(), steps));
    out.used.push_back(static_cast<double>(histogram.accesses()) / static_cast<double>(steps));
    out.accesses += out.used.back();
  }
  out.new_bytes = new_bytes_of(*visits, model) / static_cast<double>(steps);
  out.widest = visits->widest_union();
  return out;
}

expert_curves curves_of(const plan_request& device, const plan_request& whole) {
  return device.routing != nullptr ? recorded_curves(*device.routing, device.model.experts)
                                   : uniform_curves(device, whole);
}

double misses_with(const expert_curves& curves, std::span<const std::uint64_t> quotas) {
  double misses = 0;
  for (std::size_t l = 0; l < quotas.size(); ++l)
    misses += curves.layers[l].misses(static_cast<std::size_t>(quotas[l]));
  return misses;
}

}  // namespace hotset::lab
