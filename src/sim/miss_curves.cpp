// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/miss_curves.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/names.hpp"
#include "hotset/curve/curve_recorder.hpp"
#include "hotset/curve/sampled_reuse_distance.hpp"
#include "hotset/sim/cache_size.hpp"
#include "hotset/sim/errors.hpp"
#include "hotset/sim/io/input_error.hpp"
#include "hotset/sim/progress.hpp"
#include "hotset/sim/replay.hpp"
#include "sim/csv_field.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::ordered_json;

[[noreturn]] void refuse_method(std::string_view text) {
  throw usage_error(fmt::format(
      "'{}'{}; accepted: exact, shards:0.01 (a share of the keys, at most 1), shards:8192 (2 keys "
      "or "
      "more)",
      printable(text), did_you_mean(text, std::vector<std::string>{"exact"})));
}

void measure_exactly(const visit_sequence& visits, cache_scope scope, curve_set& out) {
  curve_recorder recorder(visits.shape(), scope);
  progress told(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    told.at(i);
    recorder.observe(visits[i]);
  }
  told.at(visits.size());
  const auto& histograms = recorder.histograms();
  for (std::size_t pool = 0; pool < histograms.size(); ++pool) {
    const auto& histogram = histograms[pool];
    pool_curve curve;
    if (scope == cache_scope::per_layer) curve.layer = static_cast<layer_id>(pool);
    curve.widest = histogram.widest();
    const auto misses = histogram.misses();
    curve.misses.assign(misses.begin(), misses.end());
    out.compulsory_misses += static_cast<double>(histogram.compulsory());
    out.pools.push_back(std::move(curve));
  }
}

void measure_sample(const visit_sequence& visits, const curve_method& method, std::uint64_t seed,
                    curve_set& out) {
  const auto& shape = visits.shape();
  sampled_reuse_distance sampled({.keys = shape.keys(),
                                  .rate = method.rate,
                                  .most_keys = method.most_keys,
                                  .bins = shape.keys(),
                                  .seed = seed});
  unique_ids distinct(static_cast<std::size_t>(shape.experts), visits.widest_union());
  std::vector<expert_id> members(visits.widest_union());
  progress told(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    told.at(i);
    const auto view = visits[i];
    sampled.visit(view.experts, shape.index({view.layer, 0}));
    sampled.end_visit(view.experts.size() == 1 ? 1
                                               : distinct.collect(view.experts, members.data()));
  }
  told.at(visits.size());
  const auto curve = sampled.curve();
  pool_curve pool;
  pool.widest = visits.widest_union();
  pool.misses.reserve(shape.keys() + 1);
  for (std::size_t slots = 0; slots <= shape.keys(); ++slots)
    pool.misses.push_back(curve.misses(slots));
  out.compulsory_misses = sampled.first_sights();
  out.pools.push_back(std::move(pool));
}

json misses_to_json(const pool_curve& pool) {
  json out = json::array();
  for (std::size_t slots = 0; slots < pool.misses.size(); ++slots) {
    const auto misses = pool.misses[slots];
    if (slots < pool.widest)
      out.push_back(nullptr);
    else if (misses == std::floor(misses))
      out.push_back(static_cast<std::uint64_t>(misses));
    else
      out.push_back(misses);
  }
  return out;
}

std::string layer_text(const pool_curve& pool) {
  return pool.layer ? fmt::format("{}", *pool.layer) : std::string();
}

}  // namespace

curve_method curve_method::parse(std::string_view text) {
  curve_method out;
  out.text = text;
  if (text == "exact") return out;
  constexpr std::string_view prefix = "shards:";
  if (!text.starts_with(prefix)) refuse_method(text);
  const auto value = text.substr(prefix.size());
  double number = 0;
  const auto [rest, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (code != std::errc{} || rest != value.data() + value.size()) refuse_method(text);
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
                         const curve_method& method, std::uint64_t seed) {
  if (!method.is_exact() && scope == cache_scope::per_layer)
    throw usage_error(fmt::format(
        "{} of a layer's experts, accepted: exact, or shards in the shared scope", method.text));
  curve_set out;
  out.scope = name_of(scope);
  out.method = method.text;
  out.replay = name_of(visits.per_access() ? replay_mode::per_access : replay_mode::event_atomic);
  out.accesses = visits.accesses();
  out.widest = visits.widest_union();
  if (method.is_exact())
    measure_exactly(visits, scope, out);
  else
    measure_sample(visits, method, seed, out);
  return out;
}

nlohmann::ordered_json to_json(const curve_set& curves) {
  json pools = json::array();
  for (const auto& pool : curves.pools)
    pools.push_back({{"layer", pool.layer ? json(*pool.layer) : json(nullptr)},
                     {"widest", pool.widest},
                     {"misses", misses_to_json(pool)}});
  return {{"schema", curve_schema},
          {"name", curves.name},
          {"scope", curves.scope},
          {"method", curves.method},
          {"replay", curves.replay},
          {"accesses", curves.accesses},
          {"compulsory_misses", curves.compulsory_misses},
          {"widest", curves.widest},
          {"curves", std::move(pools)}};
}

std::string to_json_text(std::span<const curve_set> sets) {
  json out = json::array();
  for (const auto& set : sets) out.push_back(to_json(set));
  return (out.size() == 1 ? out.front() : out)
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         '\n';
}

std::string to_csv(std::span<const curve_set> sets) {
  std::string out = "trace,scope,method,replay,layer,slots,misses\n";
  for (const auto& set : sets)
    for (const auto& pool : set.pools)
      for (std::size_t slots = pool.widest; slots < pool.misses.size(); ++slots)
        out += fmt::format("{},{},{},{},{},{},{}\n", csv_field(set.name), set.scope, set.method,
                           set.replay, layer_text(pool), slots, pool.misses[slots]);
  return out;
}

namespace {
text_table empty_curve_table() {
  text_table out;
  for (const auto& [name, title] : {std::pair("share", "share %"),
                                    {"slots", "slots"},
                                    {"misses", "misses"},
                                    {"hits", "hits %"}})
    out.add({name, title, false, 0, true, {}});
  return out;
}
}  // namespace

std::vector<std::string> curve_columns() { return empty_curve_table().names(); }

std::string to_table(const curve_set& curves, const table_view& view) {
  constexpr std::array shares{0.05, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0};
  const auto slots_of = [&](double share) {
    const auto keys = static_cast<double>(curves.pools.front().misses.size() - 1);
    return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(share * keys + 0.5)));
  };
  auto out = folded(fmt::format("{}: {} accesses, {:.0f} first sights, scope {}, {}, {}\n",
                                printable(curves.name), curves.accesses, curves.compulsory_misses,
                                curves.scope, curves.method, curves.replay),
                    view.width);
  auto table = empty_curve_table();
  for (const auto share : shares) {
    const auto slots = slots_of(share);
    double misses = 0;
    bool fits = true;
    for (const auto& pool : curves.pools) {
      misses += pool.misses[slots];
      fits = fits && slots >= pool.widest;
    }
    const auto hits = 1 - misses / static_cast<double>(curves.accesses);
    table.add_row({fmt::format("{:.1f}", 100 * share), std::to_string(slots),
                   fits ? fmt::format("{:.0f}", misses) : "-",
                   fits ? fmt::format("{:.2f}", 100 * hits) : "-"});
  }
  out += table.render(view);
  if (curves.widest > slots_of(shares.front()))
    out +=
        folded(fmt::format("-: fewer slots than the widest visit needs, {}: see hotset simulate\n",
                           curves.widest),
               view.width);
  return out;
}

}  // namespace hotset::inline v0::sim
