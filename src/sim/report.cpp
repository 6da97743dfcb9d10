// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/report.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/sim/io/input_error.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::ordered_json;

struct named_kind {
  request_class kind;
  const char* name;
  bool always;  ///< shown even if nothing of the kind was replayed
};
constexpr std::array kinds = {named_kind{request_class::prefill, "prefill", true},
                              named_kind{request_class::decode, "decode", true},
                              named_kind{request_class::verify, "verify", false}};

const access_counts& counts_of(const pager_stats& stats, request_class kind) {
  return stats.by_kind[static_cast<std::size_t>(kind)];
}

json kinds_to_json(const pager_stats& stats) {
  json out = json::object();
  for (const auto& [kind, name, always] : kinds) {
    const auto& counts = counts_of(stats, kind);
    if (always || counts.accesses > 0)
      out[name] = {{"accesses", counts.accesses}, {"hits", counts.hits}};
  }
  return out;
}

json layers_to_json(const pager_stats& stats) {
  json out = json::array();
  for (std::size_t layer = 0; layer < stats.per_layer.size(); ++layer) {
    const auto& counts = stats.per_layer[layer];
    out.push_back({{"layer", layer}, {"accesses", counts.accesses}, {"hits", counts.hits}});
  }
  return out;
}

json run_to_json(const run_result& run) {
  const auto& stats = run.stats;
  json out{{"eviction", run.eviction},
           {"admission", run.admission},
           {"scope", run.scope},
           {"replay", run.replay},
           {"slots", run.slots},
           {"budget_bytes", nullptr},
           {"accesses", stats.accesses},
           {"hits", stats.hits},
           {"misses", stats.misses},
           {"compulsory_misses", stats.compulsory_misses},
           {"collision_misses", stats.collision_misses},
           {"fills", stats.fills},
           {"evictions", stats.evictions},
           {"bytes_filled", stats.bytes_filled},
           {"miss_free_steps", stats.miss_free_steps()},
           {"steps", stats.steps},
           {"by_kind", kinds_to_json(stats)},
           {"per_layer", layers_to_json(stats)}};
  if (run.budget_bytes) out["budget_bytes"] = *run.budget_bytes;
  return out;
}

json trace_to_json(const sweep_result& sweep) {
  return {{"name", sweep.name},   {"layers", sweep.layers}, {"experts", sweep.experts},
          {"top_k", sweep.top_k}, {"tokens", sweep.tokens}, {"visits", sweep.visits}};
}

std::string one_line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string sweep_text(const sweep_result& sweep) {
  std::string out = "{\"schema\":" + one_line(simulate_schema) +
                    ",\"trace\":" + one_line(trace_to_json(sweep)) + ",\"results\":[";
  for (std::size_t i = 0; i < sweep.results.size(); ++i)
    out += (i == 0 ? "\n" : ",\n") + one_line(run_to_json(sweep.results[i]));
  return out + "\n]}";
}

/// Quoted where the text would not survive otherwise.
std::string csv_field(const std::string& text) {
  std::string plain = printable(text, 4096);
  if (plain.find_first_of(",\"") == std::string::npos) return plain;
  std::string quoted = "\"";
  for (const char c : plain) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

void append_csv_row(std::string& out, const std::string& trace, const run_result& run) {
  for (const auto* text : {&trace, &run.eviction, &run.admission, &run.scope, &run.replay})
    out += csv_field(*text) + ',';
  const auto& s = run.stats;
  out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", run.slots,
                     run.budget_bytes ? std::to_string(*run.budget_bytes) : "", s.accesses, s.hits,
                     s.misses, s.compulsory_misses, s.collision_misses, s.fills, s.evictions,
                     s.bytes_filled, s.miss_free_steps(), s.steps);
  for (const auto& kind : kinds) {
    const auto& counts = counts_of(s, kind.kind);
    out += fmt::format(",{},{}", counts.accesses, counts.hits);
  }
  out += '\n';
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.2f}", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

bool is_belady(const run_result& run) {
  return run.eviction == "belady" || run.eviction == "eviction.belady";
}

bool same_cache(const run_result& a, const run_result& b) {
  return a.admission == b.admission && a.scope == b.scope && a.replay == b.replay &&
         a.slots == b.slots && a.budget_bytes == b.budget_bytes;
}

std::string regret(const sweep_result& sweep, const run_result& run) {
  for (const auto& best : sweep.results) {
    if (!is_belady(best) || !same_cache(best, run)) continue;
    if (best.stats.fills == 0) return run.stats.fills == 0 ? "0.00" : "-";
    const auto ratio = static_cast<double>(run.stats.fills) / static_cast<double>(best.stats.fills);
    return fmt::format("{:.2f}", 100 * (ratio - 1));
  }
  return "-";
}

/// One column of the table.
struct column {
  std::string title;
  bool text = false;  ///< aligned to the left
  std::vector<std::string> cells;

  [[nodiscard]] std::size_t width() const {
    std::size_t most = title.size();
    for (const auto& cell : cells) most = std::max(most, cell.size());
    return most;
  }
};

template <class Cell>
column make_column(const sweep_result& sweep, std::string title, bool text, Cell&& cell) {
  column out{std::move(title), text, {}};
  for (const auto& run : sweep.results) out.cells.push_back(cell(run));
  return out;
}

std::vector<column> make_columns(const sweep_result& sweep) {
  std::vector<column> out;
  const auto words = [&](const char* title, auto&& cell) {
    out.push_back(make_column(sweep, title, true, cell));
  };
  const auto number = [&](const char* title, auto&& cell) {
    out.push_back(make_column(sweep, title, false, cell));
  };
  const auto any = [&](auto&& is) {
    return std::any_of(sweep.results.begin(), sweep.results.end(), is);
  };
  const auto count = [](std::uint64_t n) { return std::to_string(n); };
  words("eviction", [](const run_result& r) { return printable(r.eviction); });
  words("admission", [](const run_result& r) { return printable(r.admission); });
  words("scope", [](const run_result& r) { return r.scope; });
  words("replay", [](const run_result& r) { return r.replay; });
  if (any([](const run_result& r) { return r.budget_bytes.has_value(); }))
    number("budget MiB", [](const run_result& r) {
      return r.budget_bytes ? mebibytes(*r.budget_bytes) : std::string("-");
    });
  number("slots", [&](const run_result& r) { return count(r.slots); });
  number("hit %", [](const run_result& r) { return percent(r.stats.hits, r.stats.accesses); });
  number("decode hit %", [](const run_result& r) {
    const auto& decode = counts_of(r.stats, request_class::decode);
    return percent(decode.hits, decode.accesses);
  });
  number("misses", [&](const run_result& r) { return count(r.stats.misses); });
  number("compulsory", [&](const run_result& r) { return count(r.stats.compulsory_misses); });
  number("collision", [&](const run_result& r) { return count(r.stats.collision_misses); });
  number("fills", [&](const run_result& r) { return count(r.stats.fills); });
  number("MiB filled", [](const run_result& r) { return mebibytes(r.stats.bytes_filled); });
  number("miss-free steps %",
         [](const run_result& r) { return percent(r.stats.miss_free_steps(), r.stats.steps); });
  if (any(is_belady)) number("regret %", [&](const run_result& r) { return regret(sweep, r); });
  return out;
}

void append_cell(std::string& line, const column& c, const std::string& cell, std::size_t width) {
  if (!line.empty()) line += "  ";
  line += c.text ? fmt::format("{:<{}}", cell, width) : fmt::format("{:>{}}", cell, width);
}

std::string notes_of(const sweep_result& sweep) {
  std::vector<std::string> seen;
  std::string out;
  for (const auto& run : sweep.results) {
    for (const auto& note : run.notes) {
      if (std::find(seen.begin(), seen.end(), note) != seen.end()) continue;
      seen.push_back(note);
      out += "note: " + printable(note, 400) + '\n';
    }
  }
  return out;
}

}  // namespace

json to_json(const sweep_result& sweep) {
  json results = json::array();
  for (const auto& run : sweep.results) results.push_back(run_to_json(run));
  return {{"schema", simulate_schema},
          {"trace", trace_to_json(sweep)},
          {"results", std::move(results)}};
}

std::string to_json_text(std::span<const sweep_result> sweeps) {
  if (sweeps.size() == 1) return sweep_text(sweeps.front()) + '\n';
  std::string out = "[";
  for (std::size_t i = 0; i < sweeps.size(); ++i)
    out += (i == 0 ? "\n" : ",\n") + sweep_text(sweeps[i]);
  return out + "\n]\n";
}

std::string to_csv(std::span<const sweep_result> sweeps) {
  std::string out =
      "trace,eviction,admission,scope,replay,slots,budget_bytes,accesses,hits,misses,"
      "compulsory_misses,collision_misses,fills,evictions,bytes_filled,miss_free_steps,steps";
  for (const auto& kind : kinds) out += fmt::format(",{0}_accesses,{0}_hits", kind.name);
  out += '\n';
  for (const auto& sweep : sweeps)
    for (const auto& run : sweep.results) append_csv_row(out, sweep.name, run);
  return out;
}

std::string to_table(const sweep_result& sweep) {
  std::string out = fmt::format("{}: {} layers x {} experts, top-{}, {} tokens, {} visits\n",
                                printable(sweep.name), sweep.layers, sweep.experts, sweep.top_k,
                                sweep.tokens, sweep.visits);
  const auto columns = make_columns(sweep);
  std::string header;
  for (const auto& c : columns) append_cell(header, c, c.title, c.width());
  out += header + '\n';
  for (std::size_t row = 0; row < sweep.results.size(); ++row) {
    std::string line;
    for (const auto& c : columns) append_cell(line, c, c.cells[row], c.width());
    out += line + '\n';
  }
  return out + notes_of(sweep);
}

}  // namespace hotset::inline v0::sim
