// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/sweep_report.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/ids.hpp"
#include "lab/files/input_error.hpp"
#include "lab/reports/csv_field.hpp"
#include "lab/reports/json_text.hpp"
#include "lab/reports/report_parts.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::ordered_json;

/// In the order of reports.
constexpr std::array kinds = {request_class::prefill, request_class::decode, request_class::verify};

const access_counts& counts_of(const pager_stats& stats, request_class kind) {
  return stats.by_kind[static_cast<std::size_t>(kind)];
}

json kinds_to_json(const pager_stats& stats) {
  json out = json::object();
  for (const auto kind : kinds) {
    const auto& counts = counts_of(stats, kind);
    if (kind != request_class::verify || counts.accesses > 0)
      out[name_of(kind)] = {{"accesses", counts.accesses}, {"hits", counts.hits}};
  }
  return out;
}

json layers_to_json(const pager_stats& stats) {
  json out = json::array();
  for (std::size_t layer = 0; layer < stats.per_layer.size(); ++layer) {
    const auto& counts = stats.per_layer[layer];
    out.push_back({{"layer", layer},
                   {"accesses", counts.accesses},
                   {"hits", counts.hits},
                   {"collision_misses", counts.collisions}});
  }
  return out;
}

std::optional<double> ratio(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}
std::optional<double> seconds(ticks time) { return static_cast<double>(time) * 1e-9; }

/// What a run on a clock took; nothing where copies took no time.
struct run_times {
  std::optional<double> first_token, per_token, blocking, total_io, total;
};
run_times times_of(const run_result& run) {
  if (run.link.empty() || !run.outcome) return {};
  const auto& t = run.outcome->times;
  run_times out;
  if (t.sequences != 0)
    out.first_token = *seconds(t.first_token) / static_cast<double>(t.sequences);
  if (t.decoded != 0) out.per_token = *seconds(t.decoding) / static_cast<double>(t.decoded);
  out.blocking = seconds(t.blocked);
  out.total_io = seconds(t.link_busy + t.back_busy);
  out.total = seconds(t.total);
  return out;
}
prediction_score::counts predictions_of(const run_result& run) {
  return run.outcome ? run.outcome->predictions : prediction_score::counts{};
}
std::optional<double> prefetch_precision(const run_result& run) {
  const auto p = predictions_of(run);
  return ratio(p.predicted_and_routed, p.predicted);
}
/// Nothing where nobody predicted.
std::optional<double> prefetch_recall(const run_result& run) {
  const auto p = predictions_of(run);
  return p.predicted == 0 ? std::nullopt : ratio(p.predicted_and_routed, p.routed);
}

/// The share of the routers' gate weight that nothing was computed with.
std::optional<double> lost_mass(const run_result& run) {
  if (!run.outcome || run.outcome->mass.routed <= 0) return std::nullopt;
  return run.outcome->mass.lost / run.outcome->mass.routed;
}

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }
json or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

/// The other dimensions, and what a clock and a forecast add.
void add_dimensions(json& out, const run_result& run) {
  const auto& s = run.stats;
  const auto t = times_of(run);
  out["preset"] = or_null(run.policies.preset);
  out["prefetch"] = run.policies.prefetch;
  out["prefetch_guard"] = run.policies.guard;
  out["miss"] = run.policies.miss;
  out["routing"] = run.policies.routing;
  out["precision"] = or_null(run.precision);
  out["link"] = or_null(run.link);
  out["ttft_s"] = or_null(t.first_token);
  out["tpot_s"] = or_null(t.per_token);
  out["blocking_io_s"] = or_null(t.blocking);
  out["total_io_s"] = or_null(t.total_io);
  out["total_s"] = or_null(t.total);
  out["bytes_demand"] = s.bytes_demand;
  out["bytes_prefetch_used"] = s.bytes_prefetch_used;
  out["bytes_prefetch_wasted"] = s.bytes_prefetch_wasted;
  out["bytes_prefetch_cancelled"] = s.bytes_prefetch_cancelled;
  out["bytes_prefetch_pending"] = s.bytes_prefetch_pending();
  out["bytes_refetched"] = s.bytes_refetched;
  out["prefetch_precision"] = or_null(prefetch_precision(run));
  out["prefetch_recall"] = or_null(prefetch_recall(run));
  out["late_prefetches"] = s.late_prefetches;
  out["wasted_prefetches"] = s.wasted_prefetches;
  out["reuse_hits"] = s.reuse_hits();
  out["prefetch_hits"] = s.prefetch_hits;
  out["precision_misses"] = s.precision_misses;
  out["bypasses"] = s.bypasses;
  out["dropped_misses"] = s.dropped_misses;
  out["substituted_misses"] = s.substituted_misses;
  out["quality"] = or_null(run.bits_per_byte);
  out["quality_full_precision"] = or_null(run.full_bits_per_byte);
  out["pre_eviction"] = run.policies.pre_eviction;
  out["pre_evictions"] = s.pre_evictions;
  out["bytes_written_back"] = run.outcome ? run.outcome->bytes_back : 0;
  out["lost_gate_mass"] = or_null(lost_mass(run));
  out["predictor"] = run.policies.predictor;
  out["prefetch_order"] = run.policies.prefetch_order;
  out["forecast_confidence"] = or_null(run.outcome ? run.outcome->confidence : std::nullopt);
  out["streamed"] = run.outcome ? run.outcome->streamed : 0;
}

json run_to_json(const run_result& run) {
  const auto& stats = run.stats;
  json out{{"eviction", run.policies.eviction},
           {"admission", run.policies.admission},
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
  add_dimensions(out, run);
  return out;
}

std::string sweep_text(const sweep_result& sweep) {
  std::string out = "{\"schema\":" + one_line(simulate_schema) +
                    ",\"trace\":" + one_line(trace_to_json(sweep)) + ",";
  if (!sweep.not_replayed.empty()) out += "\"not_replayed\":" + one_line(sweep.not_replayed) + ",";
  out += "\"results\":[";
  for (std::size_t i = 0; i < sweep.results.size(); ++i)
    out += (i == 0 ? "\n" : ",\n") + one_line(run_to_json(sweep.results[i]));
  return out + "\n]}";
}

void append_csv_row(std::string& out, const std::string& trace, const run_result& run) {
  const auto& policies = run.policies;
  for (const auto* text :
       {&trace, &policies.eviction, &policies.admission, &run.scope, &run.replay})
    out += csv_field(*text) + ',';
  const auto& s = run.stats;
  out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", run.slots,
                     run.budget_bytes ? std::to_string(*run.budget_bytes) : "", s.accesses, s.hits,
                     s.misses, s.compulsory_misses, s.collision_misses, s.fills, s.evictions,
                     s.bytes_filled, s.miss_free_steps(), s.steps);
  for (const auto kind : kinds) {
    const auto& counts = counts_of(s, kind);
    out += fmt::format(",{},{}", counts.accesses, counts.hits);
  }
  json more;
  add_dimensions(more, run);
  for (const auto& [key, value] : more.items()) {
    out += ',';
    if (value.is_string()) out += csv_field(value.get<std::string>());
    if (value.is_number()) out += value.dump();
  }
  out += '\n';
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.2f}", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

bool is_belady(const run_result& run) {
  return run.policies.eviction == "belady" || run.policies.eviction == "eviction.belady";
}

bool same_cache(const run_result& a, const run_result& b) {
  return a.scope == b.scope && a.replay == b.replay && a.slots == b.slots &&
         a.budget_bytes == b.budget_bytes && a.link == b.link && a.precision == b.precision;
}
/// But for the eviction, and what other policies go by.
bool same_policies(const policy_set& a, const policy_set& b) {
  return a.admission == b.admission && a.prefetch == b.prefetch && a.guard == b.guard &&
         a.prefetch_order == b.prefetch_order && a.miss == b.miss && a.routing == b.routing &&
         a.pre_eviction == b.pre_eviction;
}
std::string percent_over(std::uint64_t count, std::uint64_t least) {
  if (least == 0) return count == 0 ? "0.00" : "-";
  return fmt::format("{:.2f}", 100 * (static_cast<double>(count) / static_cast<double>(least) - 1));
}

std::string regret(const sweep_result& sweep, const run_result& run) {
  for (const auto& best : sweep.results)
    if (is_belady(best) && same_cache(best, run) && same_policies(best.policies, run.policies))
      return percent_over(run.stats.fills, best.stats.fills);
  return "-";
}

std::uint64_t bytes_copied(const run_result& run) {
  return run.stats.bytes_filled - run.stats.bytes_warm;
}
/// Of a system, whatever it is made of, by the run of nothing but Belady's choice.
std::string over_bound(const sweep_result& sweep, const run_result& run) {
  for (const auto& best : sweep.results)
    if (is_belady(best) && best.policies.prefetch == "no_prefetch" && same_cache(best, run))
      return percent_over(bytes_copied(run), bytes_copied(best));
  return "-";
}

std::string or_dash(const std::optional<double>& value, double scale, int digits) {
  return value ? fmt::format("{:.{}f}", *value * scale, digits) : std::string("-");
}

/// The table of a sweep while it is made. What all rows have in common is said once, above them.
class report_table {
 public:
  explicit report_table(const sweep_result& sweep) : runs_(sweep.results) {}

  /// A word of each run; `plain` goes without saying.
  template <class Text>
  void words(const char* name, int rank, const char* plain, Text&& text) {
    text_table::column out{name, name, true, rank, false, {}};
    for (const auto& run : runs_) {
      const std::string word = text(run);
      out.telling = out.telling || word != plain;
      out.cells.push_back(word.empty() ? "-" : printable(word));
    }
    const bool same = std::ranges::adjacent_find(out.cells, std::not_equal_to{}) == out.cells.end();
    if (same && out.telling && rank > 0) {
      common_ += fmt::format("{}{} {}", common_.empty() ? "" : ", ", name, out.cells.front());
      out.telling = false;
    }
    table_.add(std::move(out));
  }
  template <class Cell>
  void number(const char* name, const char* title, int rank, bool telling, Cell&& cell) {
    text_table::column out{name, title, false, rank, telling, {}};
    for (const auto& run : runs_) out.cells.push_back(cell(run));
    table_.add(std::move(out));
  }
  template <class Count>
  void count(const char* name, const char* title, int rank, bool telling, Count&& count) {
    number(name, title, rank, telling,
           [&](const run_result& r) { return std::to_string(count(r)); });
  }
  template <class Bytes>
  void bytes(const char* name, const char* title, int rank, bool telling, Bytes&& bytes) {
    std::vector<std::optional<std::uint64_t>> sizes;
    for (const auto& run : runs_) sizes.push_back(bytes(run));
    table_.add_bytes(name, title, rank, telling, sizes);
  }
  template <class Is>
  [[nodiscard]] bool any(Is&& is) const {
    return std::ranges::any_of(runs_, is);
  }
  [[nodiscard]] std::vector<std::string> names() const { return table_.names(); }
  [[nodiscard]] std::string render(const table_view& view) const {
    auto table = table_.render(view);
    // Columns that were named are all that is asked for.
    if (common_.empty() || !view.columns.empty()) return table;
    return folded(common_ + '\n', view.width) + table;
  }

 private:
  const std::vector<run_result>& runs_;
  text_table table_;
  std::string common_;
};

void add_dimension_columns(report_table& out) {
  out.words("preset", 1, "", [](const run_result& r) { return r.policies.preset; });
  out.words("eviction", 0, "", [](const run_result& r) { return r.policies.eviction; });
  out.words("admission", 2, "always", [](const run_result& r) { return r.policies.admission; });
  out.words("prefetch", 1, "no_prefetch", [](const run_result& r) { return r.policies.prefetch; });
  out.words("guard", 3, "named", [](const run_result& r) { return r.policies.guard; });
  out.words("order", 3, "nearest", [](const run_result& r) { return r.policies.prefetch_order; });
  out.words("miss", 2, "fetch", [](const run_result& r) { return r.policies.miss; });
  out.words("routing", 2, "router_order", [](const run_result& r) { return r.policies.routing; });
  out.words("pre-eviction", 2, "none", [](const run_result& r) { return r.policies.pre_eviction; });
  out.words("predictor", 2, "recorded", [](const run_result& r) { return r.policies.predictor; });
  out.words("precision", 2, "", [](const run_result& r) { return r.precision; });
  out.words("link", 2, "", [](const run_result& r) { return r.link; });
  out.words("scope", 1, "", [](const run_result& r) { return r.scope; });
  out.words("replay", 3, "event-atomic", [](const run_result& r) { return r.replay; });
}

void add_count_columns(report_table& out) {
  out.bytes("budget", "budget", 1,
            out.any([](const run_result& r) { return r.budget_bytes.has_value(); }),
            [](const run_result& r) { return r.budget_bytes; });
  out.count("slots", "slots", 0, true, [](const run_result& r) { return r.slots; });
  out.number("hit", "hit %", 0, true,
             [](const run_result& r) { return percent(r.stats.hits, r.stats.accesses); });
  out.number("decode-hit", "decode hit %", 4, true, [](const run_result& r) {
    const auto& decode = counts_of(r.stats, request_class::decode);
    return percent(decode.hits, decode.accesses);
  });
  out.count("misses", "misses", 2, true, [](const run_result& r) { return r.stats.misses; });
  out.count("compulsory", "compulsory", 6, true,
            [](const run_result& r) { return r.stats.compulsory_misses; });
  out.count("collision", "collision", 5, true,
            [](const run_result& r) { return r.stats.collision_misses; });
  out.count("fills", "fills", 2, true, [](const run_result& r) { return r.stats.fills; });
  out.bytes("filled", "filled", 3, true,
            [](const run_result& r) { return std::optional(r.stats.bytes_filled); });
  out.number("miss-free", "miss-free steps %", 4, true,
             [](const run_result& r) { return percent(r.stats.miss_free_steps(), r.stats.steps); });
}

void add_prefetch_columns(report_table& out) {
  const bool predicts =
      out.any([](const run_result& r) { return predictions_of(r).predicted != 0; });
  out.number("prefetch-precision", "precision %", 3, predicts,
             [](const run_result& r) { return or_dash(prefetch_precision(r), 100, 1); });
  out.number("prefetch-recall", "recall %", 3, predicts,
             [](const run_result& r) { return or_dash(prefetch_recall(r), 100, 1); });
  out.count("prefetch-hits", "prefetch hits", 5, predicts,
            [](const run_result& r) { return r.stats.prefetch_hits; });
  out.count("late", "late", 5, predicts,
            [](const run_result& r) { return r.stats.late_prefetches; });
  const auto bytes = [&](const char* name, const char* title, bool telling,
                         std::uint64_t pager_stats::*count) {
    out.bytes(name, title, 4, telling,
              [count](const run_result& r) { return std::optional(r.stats.*count); });
  };
  bytes("wasted", "wasted", predicts, &pager_stats::bytes_prefetch_wasted);
  // Where they are named.
  bytes("demand", "on demand", false, &pager_stats::bytes_demand);
  bytes("prefetch-used", "used", false, &pager_stats::bytes_prefetch_used);
  bytes("refetched", "refetched", false, &pager_stats::bytes_refetched);
}

void add_time_columns(report_table& out) {
  const bool timed = out.any([](const run_result& r) { return !r.link.empty(); });
  const auto milliseconds = [&](const char* name, const char* title, int rank,
                                auto run_times::*time) {
    out.number(name, title, rank, timed,
               [time](const run_result& r) { return or_dash(times_of(r).*time, 1e3, 3); });
  };
  milliseconds("ttft", "TTFT ms", 1, &run_times::first_token);
  milliseconds("tpot", "TPOT ms", 1, &run_times::per_token);
  milliseconds("blocking", "blocking ms", 2, &run_times::blocking);
  milliseconds("io", "I/O ms", 4, &run_times::total_io);
  out.bytes("written-back", "written back", 4,
            out.any([](const run_result& r) { return r.outcome && r.outcome->bytes_back != 0; }),
            [](const run_result& r) {
              return r.outcome ? std::optional(r.outcome->bytes_back) : std::nullopt;
            });
  out.number("streamed", "streamed", 3,
             out.any([](const run_result& r) { return r.outcome && r.outcome->streamed != 0; }),
             [](const run_result& r) {
               return r.outcome ? fmt::format("{}", r.outcome->streamed) : std::string("-");
             });
  out.number("lost-mass", "lost mass %", 2,
             out.any([](const run_result& r) { return lost_mass(r).value_or(0) > 0; }),
             [](const run_result& r) { return or_dash(lost_mass(r), 100, 2); });
}

report_table make_table(const sweep_result& sweep) {
  report_table out(sweep);
  add_dimension_columns(out);
  add_count_columns(out);
  add_prefetch_columns(out);
  add_time_columns(out);
  out.number("regret", "regret %", 1, out.any(is_belady),
             [&](const run_result& r) { return regret(sweep, r); });
  out.number("over-bound", "over bound %", 4, false,
             [&](const run_result& r) { return over_bound(sweep, r); });
  return out;
}

}  // namespace

json trace_to_json(const sweep_result& sweep) {
  return {{"name", sweep.name},   {"layers", sweep.layers}, {"experts", sweep.experts},
          {"top_k", sweep.top_k}, {"tokens", sweep.tokens}, {"visits", sweep.visits}};
}

std::string title_of(const sweep_result& sweep) {
  return fmt::format("{}: {} layers x {} experts, top-{}, {} tokens, {} visits\n",
                     printable(sweep.name), sweep.layers, sweep.experts, sweep.top_k, sweep.tokens,
                     sweep.visits);
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
  for (const auto& line : sweep.not_replayed) out += "not replayed: " + printable(line, 400) + '\n';
  return out;
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
  for (const auto kind : kinds) out += fmt::format(",{0}_accesses,{0}_hits", name_of(kind));
  json more;
  add_dimensions(more, {});
  for (const auto& [key, value] : more.items()) out += ',' + key;
  out += '\n';
  for (const auto& sweep : sweeps)
    for (const auto& run : sweep.results) append_csv_row(out, sweep.name, run);
  return out;
}

std::string to_table(const sweep_result& sweep, const table_view& view) {
  return folded(title_of(sweep), view.width) + make_table(sweep).render(view) +
         folded(notes_of(sweep), view.width);
}

std::vector<std::string> compared_columns(const sweep_request& request) {
  std::vector<std::string> out{"preset", "slots", "hit", "collision"};
  if (!request.links.empty()) out.insert(out.end(), {"blocking", "io"});
  out.insert(out.end(), {"demand", "prefetch-used", "wasted", "refetched", "prefetch-precision",
                         "prefetch-recall", "over-bound"});
  return out;
}
std::vector<std::string> report_columns() { return make_table({}).names(); }

}  // namespace hotset::lab
