// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/miss_curve_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/reports/csv_field.hpp"
#include "lab/reports/json_text.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::ordered_json;

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

/// Whether a policy was asked for by name.
bool names_eviction(const curve_set& curves) { return !curves.eviction.empty(); }

json to_json(const curve_set& curves) {
  json pools = json::array();
  for (const auto& pool : curves.pools)
    pools.push_back({{"layer", pool.layer ? json(*pool.layer) : json(nullptr)},
                     {"widest", pool.widest},
                     {"misses", misses_to_json(pool)}});
  json out{{"schema", curve_schema}, {"name", curves.name}, {"scope", curves.scope}};
  if (names_eviction(curves)) out["eviction"] = curves.eviction;
  out["method"] = curves.method;
  out["replay"] = curves.replay;
  out["accesses"] = curves.accesses;
  out["compulsory_misses"] = curves.compulsory_misses;
  out["widest"] = curves.widest;
  out["curves"] = std::move(pools);
  return out;
}

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

std::string to_json_text(std::span<const curve_set> sets) {
  json out = json::array();
  for (const auto& set : sets) out.push_back(to_json(set));
  return (out.size() == 1 ? out.front() : out)
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         '\n';
}

std::string to_csv(std::span<const curve_set> sets) {
  const bool named = std::ranges::any_of(sets, names_eviction);
  std::string out =
      fmt::format("trace,scope,{}method,replay,layer,slots,misses\n", named ? "eviction," : "");
  for (const auto& set : sets)
    for (const auto& pool : set.pools)
      for (std::size_t slots = pool.widest; slots < pool.misses.size(); ++slots)
        out += fmt::format("{},{},{}{},{},{},{},{}\n", csv_field(set.name), set.scope,
                           named ? set.eviction + ',' : "", set.method, set.replay,
                           layer_text(pool), slots, pool.misses[slots]);
  return out;
}

std::vector<std::string> curve_columns() { return empty_curve_table().names(); }

std::string to_table(const curve_set& curves, const table_view& view) {
  constexpr std::array shares{0.05, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0};
  const auto slots_of = [&](double share) {
    const auto keys = static_cast<double>(curves.pools.front().misses.size() - 1);
    return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(share * keys + 0.5)));
  };
  auto out = folded(fmt::format("{}: {} accesses, {:.0f} first sights, scope {}, {}{}, {}\n",
                                printable(curves.name), curves.accesses, curves.compulsory_misses,
                                curves.scope, names_eviction(curves) ? curves.eviction + ", " : "",
                                curves.method, curves.replay),
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

}  // namespace hotset::lab
