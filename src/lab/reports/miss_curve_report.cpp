// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/miss_curve_report.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/reports/generator.hpp"

namespace hotset::lab {
namespace {

constexpr column size_columns[] = {
    {"share", "share", "share %", {.digits = 1, .scale = 100}},
    {"slots", "slots", "slots"},
    {"size", "bytes", "size", {cell::bytes}, 0, "bytes"},
    {"misses", "misses", "misses", {.digits = 0}},
    {"hits", "hits", "hits %", {.digits = 2, .scale = 100}},
};

/// Misses of a pool, or null; a sample's estimates have fractions.
row misses_of(const pool_curve& pool, std::size_t slots) {
  const auto misses = pool.misses[slots];
  if (misses == std::floor(misses)) return static_cast<std::uint64_t>(misses);
  return misses;
}

row layer_of(const pool_curve& pool) {
  return pool.layer ? row(number(*pool.layer)) : row(nullptr);
}

/// Bytes of a pool's slots, or null.
row bytes_of(const pool_curve& pool, std::size_t slots) {
  return pool.slot_bytes == 0 ? row(nullptr) : row(slots * pool.slot_bytes);
}

/// Whether the policy was requested by name.
bool names_eviction(const curve_set& curves) { return !curves.eviction.empty(); }

row json_of(const curve_set& curves) {
  row pools = row::array();
  for (const auto& pool : curves.pools) {
    row misses = row::array();
    for (std::size_t slots = 0; slots < pool.misses.size(); ++slots)
      misses.push_back(slots < pool.widest ? row(nullptr) : misses_of(pool, slots));
    pools.push_back({{"layer", layer_of(pool)},
                     {"widest", pool.widest},
                     {"misses", std::move(misses)},
                     {"slot_bytes", bytes_of(pool, 1)},
                     {"below_cycle", std::min(curves.cycle, pool.misses.size())}});
  }
  row out{{"schema", curve_schema},
          {"generator", generator_of(curves.trace_hash)},
          {"name", curves.name},
          {"scope", curves.scope}};
  if (names_eviction(curves)) out["eviction"] = curves.eviction;
  out.update({{"method", curves.method},
              {"replay", curves.replay},
              {"accesses", curves.accesses},
              {"compulsory_misses", curves.compulsory_misses},
              {"widest", curves.widest},
              {"experts_total", curves.layers * curves.experts},
              {"cycle", curves.cycle},
              {"curves", std::move(pools)}});
  return out;
}

/// Slots, bytes and misses of all pools together, at a share of all keys.
row row_at(const curve_set& curves, double share) {
  const auto all = static_cast<double>(curves.pools.front().misses.size() - 1);
  const auto slots =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(share * all + 0.5)));
  row out{{"share", share}, {"slots", slots * curves.pools.size()}};
  std::uint64_t bytes = 0;
  for (const auto& pool : curves.pools) bytes += slots * pool.slot_bytes;
  out["bytes"] = bytes == 0 ? row(nullptr) : row(bytes);
  if (std::ranges::any_of(curves.pools, [&](const auto& pool) { return slots < pool.widest; }))
    return out;
  double misses = 0;
  for (const auto& pool : curves.pools) misses += pool.misses[slots];
  out["misses"] = misses;
  out["hits"] = 1 - misses / static_cast<double>(curves.accesses);
  return out;
}

}  // namespace

std::string to_json_text(std::span<const curve_set> sets) {
  row out = row::array();
  for (const auto& set : sets) out.push_back(json_of(set));
  return one_line(out.size() == 1 ? out.front() : out) + '\n';
}

std::string to_csv(std::span<const curve_set> sets) {
  std::vector<row> rows;
  for (const auto& set : sets)
    for (const auto& pool : set.pools)
      for (std::size_t slots = pool.widest; slots < pool.misses.size(); ++slots)
        rows.push_back({{"trace", set.name},
                        {"scope", set.scope},
                        {"eviction", set.eviction},
                        {"method", set.method},
                        {"replay", set.replay},
                        {"layer", layer_of(pool)},
                        {"slots", slots},
                        {"misses", misses_of(pool, slots)},
                        {"share", share_of(slots, pool.misses.size() - 1)},
                        {"bytes", bytes_of(pool, slots)},
                        {"layers", set.layers},
                        {"experts", set.experts},
                        {"below_cycle", slots < set.cycle}});
  std::vector<std::string> names{"trace",  "scope", "method", "replay", "layer",   "slots",
                                 "misses", "share", "bytes",  "layers", "experts", "below_cycle"};
  if (std::ranges::any_of(sets, names_eviction)) names.insert(names.begin() + 2, "eviction");
  return to_csv(names, rows);
}

std::vector<std::string> curve_columns() { return names_of(size_columns); }

std::string to_table(const curve_set& curves, const table_view& view) {
  std::vector<row> rows;
  for (const double share : {0.05, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0})
    rows.push_back(row_at(curves, share));
  auto out = folded(fmt::format("{}: {} accesses, {:.0f} first sights, scope {}, {}{}, {}\n",
                                printable(curves.name), curves.accesses, curves.compulsory_misses,
                                curves.scope, names_eviction(curves) ? curves.eviction + ", " : "",
                                curves.method, curves.replay),
                    view.width) +
             to_table(size_columns, rows, view);
  if (!rows.front().contains("misses"))
    out += folded(fmt::format("-: fewer slots{} than the widest visit needs, {}: see hotset "
                              "simulate\n",
                              curves.pools.front().layer ? " in a layer" : "", curves.widest),
                  view.width);
  if (curves.pools.size() == 1 && curves.layers > 1 &&
      rows.front()["slots"].get<std::size_t>() < curves.cycle)
    out += folded(fmt::format("below {} slots, one token's cycle, recency orders such as lru lose "
                              "an expert before its next use\n",
                              curves.cycle),
                  view.width);
  return out;
}

}  // namespace hotset::lab
