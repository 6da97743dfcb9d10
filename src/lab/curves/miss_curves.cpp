// SPDX-License-Identifier: Apache-2.0
#include "lab/curves/miss_curves.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/text/names.hpp"
#include "hotset/planning/curve/curve_recorder.hpp"
#include "hotset/planning/curve/sampled_reuse_distance.hpp"
#include "lab/curves/every_size.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/progress.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/replay.hpp"

namespace hotset::lab {
namespace {

[[noreturn]] void refuse_method(std::string_view text) {
  throw usage_error(fmt::format(
      "'{}'{}; accepted: exact, shards:0.01 (a share of the keys, at most 1), shards:8192 (2 keys "
      "or "
      "more)",
      printable(text), did_you_mean(text, std::vector<std::string>{"exact"})));
}

bool is_lru(std::string_view eviction) {
  return eviction.empty() || eviction == evictions_of_every_size().front();
}

/// Measures from the smallest pool that splits no visit.
void measure_from_widest(const visit_sequence& visits, std::string_view eviction,
                         pool_curve& curve) {
  const auto counts = misses_of_every_size(eviction, visits, curve.layer, curve.widest);
  std::ranges::copy(counts, curve.misses.begin() + curve.widest);
}

void measure_exactly(const visit_sequence& visits, cache_scope scope, curve_set& out) {
  curve_recorder recorder(visits.shape(), scope);
  progress bar(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    bar.at(i);
    recorder.observe(visits[i]);
  }
  bar.at(visits.size());
  const auto& histograms = recorder.histograms();
  for (std::size_t pool = 0; pool < histograms.size(); ++pool) {
    const auto& histogram = histograms[pool];
    pool_curve curve;
    if (scope == cache_scope::per_layer) curve.layer = static_cast<layer_id>(pool);
    curve.widest = histogram.widest();
    const auto misses = histogram.misses();
    curve.misses.assign(misses.begin(), misses.end());
    if (!is_lru(out.eviction)) measure_from_widest(visits, out.eviction, curve);
    out.compulsory_misses += static_cast<double>(histogram.compulsory());
    out.pools.push_back(std::move(curve));
  }
}

void measure_sample(const visit_sequence& visits, const curve_method& method, std::uint64_t seed,
                    curve_set& out) {
  const auto& shape = visits.shape();
  auto sampled =
      sampled_reuse_distance::create(
          {.keys = shape.keys(), .rate = method.rate, .most_keys = method.most_keys, .seed = seed})
          .value();
  unique_ids distinct(shape.expert_count(), visits.widest_union());
  std::vector<expert_id> members(visits.widest_union());
  progress bar(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    bar.at(i);
    const auto view = visits[i];
    sampled.visit(view.experts, shape.index({view.layer, expert_id{}}),
                  view.experts.size() == 1 ? 1 : distinct.collect(view.experts, members.data()));
  }
  bar.at(visits.size());
  if (sampled.sampled_keys() == 0)
    throw usage_error(
        fmt::format("--method: {} samples none of {} experts; accepted: a larger share",
                    method.text, shape.keys()));
  const auto curve = sampled.curve();
  pool_curve pool;
  pool.widest = visits.widest_union();
  pool.misses.reserve(shape.keys() + 1);
  for (std::size_t slots = 0; slots <= shape.keys(); ++slots)
    pool.misses.push_back(curve.misses(slots));
  out.compulsory_misses = sampled.first_sights();
  out.pools.push_back(std::move(pool));
}

}  // namespace

curve_method curve_method::parse(std::string_view text) {
  curve_method out;
  out.text = text;
  if (text == "exact") return out;
  constexpr std::string_view prefix = "shards:";
  if (!text.starts_with(prefix)) refuse_method(text);
  const auto number = parse_number<double>(text.substr(prefix.size())).value_or(0);
  if (number > 0 && number <= 1) {
    out.rate = number;
    return out;
  }
  if (!(number >= 2 && number <= 1e9) || number != std::floor(number)) refuse_method(text);
  out.rate = 1;
  out.most_keys = static_cast<std::size_t>(number);
  return out;
}

curve_set measure_curves(const visit_sequence& visits, cache_scope scope,
                         const curve_method& method, std::uint64_t seed,
                         std::string_view eviction) {
  const auto known = evictions_of_every_size();
  if (!eviction.empty() && std::ranges::find(known, eviction) == known.end())
    refuse_name("eviction policy", eviction, {known.begin(), known.end()});
  if (!method.is_exact() && !is_lru(eviction))
    throw usage_error(
        fmt::format("{} of {}, accepted: exact, or shards of lru", method.text, eviction));
  if (!method.is_exact() && scope == cache_scope::per_layer)
    throw usage_error(fmt::format(
        "{} of a layer's experts, accepted: exact, or shards in the shared scope", method.text));
  curve_set out;
  out.scope = name_of(scope);
  out.method = method.text;
  out.eviction = eviction;
  out.layers = visits.shape().layers;
  out.experts = visits.shape().experts;
  out.replay = name_of(visits.per_access() ? replay_mode::per_access : replay_mode::event_atomic);
  out.accesses = visits.accesses();
  out.widest = visits.widest_union();
  if (method.is_exact())
    measure_exactly(visits, scope, out);
  else
    measure_sample(visits, method, seed, out);
  if (!has_bytes(visits.shape())) return out;
  for (auto& pool : out.pools)
    for (const auto layer : each<layer_id>(out.layers))
      if (pool.layer.value_or(layer) == layer)
        pool.slot_bytes = std::max(pool.slot_bytes, visits.shape().bytes_of(layer));
  return out;
}

}  // namespace hotset::lab
