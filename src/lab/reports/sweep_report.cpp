// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/sweep_report.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/ids.hpp"
#include "lab/files/input_error.hpp"
#include "lab/reports/generator.hpp"
#include "lab/reports/json_text.hpp"

namespace hotset::lab {
namespace {

/// Order in reports.
constexpr std::array request_kinds = {request_class::prefill, request_class::decode,
                                      request_class::verify};

const access_counts& counts_of(const pager_stats& stats, request_class kind) {
  return stats.by_kind[static_cast<std::size_t>(kind)];
}

row kinds_of(const pager_stats& stats) {
  row out = row::object();
  for (const auto kind : request_kinds) {
    const auto& counts = counts_of(stats, kind);
    if (kind != request_class::verify || counts.accesses > 0)
      out[name_of(kind)] = {{"accesses", counts.accesses}, {"hits", counts.hits}};
  }
  return out;
}

row layers_of(const run_result& run) {
  row out = row::array();
  for (std::size_t layer = 0; layer < run.stats.per_layer.size(); ++layer) {
    const auto& counts = run.stats.per_layer[layer];
    const auto& slots = run.layer_slots;
    out.push_back({{"layer", layer},
                   {"accesses", counts.accesses},
                   {"hits", counts.hits},
                   {"collision_misses", counts.collisions},
                   {"compulsory_misses", counts.compulsory},
                   {"slots", layer < slots.size() ? or_null(slots[layer]) : row(nullptr)},
                   {"bytes_filled", counts.bytes_filled}});
  }
  return out;
}

row windows_of(const run_result& run) {
  if (run.windows.empty()) return nullptr;
  row out = row::array();
  for (const auto& window : run.windows)
    out.push_back({{"first_step", window.first_step},
                   {"steps", window.steps},
                   {"tokens", window.tokens},
                   {"accesses", window.accesses},
                   {"hits", window.hits},
                   {"fills", window.fills}});
  return out;
}

row sequences_of(const run_result& run) {
  if (!run.by_sequence) return nullptr;
  row out = row::array();
  for (const auto& one : *run.by_sequence)
    out.push_back({{"sequence", one.sequence},
                   {"tokens", one.tokens},
                   {"accesses", one.accesses},
                   {"hits", one.hits}});
  return out;
}

row text_or_null(const std::string& text) { return text.empty() ? row(nullptr) : row(text); }

/// Adds times; null if copies took no time.
void add_times(row& out, const run_result& run) {
  const bool timed = !run.link.empty() && run.outcome;
  const auto times = timed ? run.outcome->times : replay_times{};
  const auto seconds = [&](ticks time, std::uint64_t among = 1) {
    if (!timed || among == 0) return row(nullptr);
    return row(static_cast<double>(time) * 1e-9 / static_cast<double>(among));
  };
  out["ttft_s"] = seconds(times.first_token, times.sequences);
  out["tpot_s"] = seconds(times.decoding, times.decoded);
  out["blocking_io_s"] = seconds(times.blocked);
  out["total_io_s"] = seconds(times.link_busy + times.back_busy);
  out["total_s"] = seconds(times.total);
}

/// Names and order follow the schema.
row row_of(const sweep_result& sweep, const run_result& run) {
  const auto& s = run.stats;
  const auto outcome = run.outcome.value_or(replay_outcome{});
  const auto& predicted = outcome.predictions;
  row out{{"eviction", run.policies.eviction},
          {"admission", run.policies.admission},
          {"scope", run.scope},
          {"replay", run.replay},
          {"slots", run.slots},
          {"budget_bytes", or_null(run.budget_bytes)},
          {"accesses", s.accesses},
          {"hits", s.hits},
          {"misses", s.misses},
          {"compulsory_misses", s.compulsory_misses},
          {"collision_misses", s.collision_misses},
          {"fills", s.fills},
          {"evictions", s.evictions},
          {"bytes_filled", s.bytes_filled},
          {"miss_free_steps", s.miss_free_steps()},
          {"steps", s.steps},
          {"by_kind", kinds_of(s)},
          {"per_layer", layers_of(run)},
          {"preset", text_or_null(run.policies.preset)},
          {"prefetch", run.policies.prefetch},
          {"prefetch_guard", run.policies.guard},
          {"miss", run.policies.miss},
          {"routing", run.policies.routing},
          {"precision", text_or_null(run.precision)},
          {"link", text_or_null(run.link)}};
  add_times(out, run);
  out.update(
      {{"bytes_demand", s.bytes_demand},
       {"bytes_prefetch_used", s.bytes_prefetch_used},
       {"bytes_prefetch_wasted", s.bytes_prefetch_wasted},
       {"bytes_prefetch_cancelled", s.bytes_prefetch_cancelled},
       {"bytes_prefetch_pending", s.bytes_prefetch_pending()},
       {"bytes_refetched", s.bytes_refetched},
       {"prefetch_precision", share_of(predicted.predicted_and_routed, predicted.predicted)},
       {"prefetch_recall", predicted.predicted == 0
                               ? row(nullptr)
                               : share_of(predicted.predicted_and_routed, predicted.routed)},
       {"late_prefetches", s.late_prefetches},
       {"wasted_prefetches", s.wasted_prefetches},
       {"reuse_hits", s.reuse_hits()},
       {"prefetch_hits", s.prefetch_hits},
       {"precision_misses", s.precision_misses},
       {"bypasses", s.bypasses},
       {"dropped_misses", s.dropped_misses},
       {"substituted_misses", s.substituted_misses},
       {"quality", or_null(run.bits_per_byte)},
       {"quality_full_precision", or_null(run.full_bits_per_byte)},
       {"pre_eviction", run.policies.pre_eviction},
       {"pre_evictions", s.pre_evictions},
       {"bytes_written_back", outcome.bytes_back},
       {"lost_gate_mass",
        outcome.mass.routed > 0 ? row(outcome.mass.lost / outcome.mass.routed) : row(nullptr)},
       {"predictor", run.policies.predictor},
       {"prefetch_order", run.policies.prefetch_order},
       {"forecast_confidence", or_null(outcome.confidence)},
       {"streamed", outcome.streamed},
       {"size", text_or_null(run.size)},
       {"share", share_of(run.slots, sweep.experts_total())},
       {"target", run.found ? row(run.found->target) : row(nullptr)},
       {"reached", run.found ? row(run.found->reached) : row(nullptr)},
       {"next_smaller", run.found ? or_null(run.found->next_smaller) : row(nullptr)},
       {"windows", windows_of(run)},
       {"by_sequence", sequences_of(run)},
       {"key", text_or_null(run.key)}});
  return out;
}

/// Whether a member is for JSON alone: lists of parts, and the key.
bool is_for_json_alone(std::string_view key) {
  return key == "per_layer" || key == "windows" || key == "by_sequence" || key == "key";
}

/// Flattens a row: classes of requests become members of their own, nested members are left out.
row flat(const sweep_result& sweep, const run_result& run) {
  row out{{"trace", sweep.name}};
  const auto nested = row_of(sweep, run);
  for (const auto& [key, value] : nested.items()) {
    if (key == "by_kind") {
      for (const auto kind : request_kinds) {
        const auto& counts = counts_of(run.stats, kind);
        out[fmt::format("{}_accesses", name_of(kind))] = counts.accesses;
        out[fmt::format("{}_hits", name_of(kind))] = counts.hits;
      }
    } else if (!is_for_json_alone(key)) {
      out[key] = value;
    }
  }
  out["layers"] = sweep.layers;
  out["experts"] = sweep.experts;
  return out;
}

row percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return nullptr;
  return 100 * static_cast<double>(part) / static_cast<double>(whole);
}
row percent_over(std::uint64_t count, std::uint64_t least) {
  if (least == 0) return count == 0 ? row(0.0) : row(nullptr);
  return 100 * (static_cast<double>(count) / static_cast<double>(least) - 1);
}

bool is_belady(const run_result& run) {
  return run.policies.eviction == "belady" || run.policies.eviction == "eviction.belady";
}
bool same_cache(const run_result& a, const run_result& b) {
  return a.scope == b.scope && a.replay == b.replay && a.slots == b.slots &&
         a.budget_bytes == b.budget_bytes && a.link == b.link && a.precision == b.precision;
}
/// Compares all policies except eviction and predictor.
bool same_policies(const policy_set& a, const policy_set& b) {
  return a.admission == b.admission && a.prefetch == b.prefetch && a.guard == b.guard &&
         a.prefetch_order == b.prefetch_order && a.miss == b.miss && a.routing == b.routing &&
         a.pre_eviction == b.pre_eviction;
}
std::uint64_t bytes_copied(const run_result& run) {
  return run.stats.bytes_filled - run.stats.bytes_warm;
}

/// Adds the table's derived values: ratios, and the distance from Belady's misses. Removes bytes that are unknown.
void add_ratios(row& out, const run_result& run, const sweep_result& sweep) {
  const std::span all = sweep.results;
  const auto& s = run.stats;
  const auto& decode = counts_of(s, request_class::decode);
  out["hit"] = percent(s.hits, s.accesses);
  out["decode_hit"] = percent(decode.hits, decode.accesses);
  out["miss_free"] = percent(s.miss_free_steps(), s.steps);
  out["belady"] = !run.found && std::ranges::any_of(all, is_belady);
  const auto best = std::ranges::find_if(all, [&](const run_result& r) {
    return is_belady(r) && same_cache(r, run) && same_policies(r.policies, run.policies);
  });
  out["regret"] = best == all.end() ? row(nullptr) : percent_over(s.fills, best->stats.fills);
  const auto bound = std::ranges::find_if(all, [&](const run_result& r) {
    return is_belady(r) && r.policies.prefetch == "no_prefetch" && same_cache(r, run);
  });
  out["over_bound"] =
      bound == all.end() ? row(nullptr) : percent_over(bytes_copied(run), bytes_copied(*bound));
  for (const auto* value : {"reached", "next_smaller"})  // as the columns of hits and TPOT
    if (out[value].is_number())
      out[value] = out[value].get<double>() * (run.found->target.starts_with("hit") ? 100 : 1e3);
  for (auto& [key, value] : out.items())
    if (!sweep.sized && key.starts_with("bytes_")) value = nullptr;
}

constexpr cell percent_2{.digits = 2};
constexpr cell share_1{.digits = 1, .scale = 100};
constexpr cell share_2{.digits = 2, .scale = 100};
constexpr cell milliseconds{.digits = 3, .scale = 1e3};
constexpr const char* predicts = "prefetch_precision";

constexpr column run_columns[] = {
    {"preset", "preset", "preset", {cell::word}, 1},
    {"eviction", "eviction", "eviction", {cell::word}, 0},
    {"admission", "admission", "admission", {cell::word}, 2, "", "always"},
    {"prefetch", "prefetch", "prefetch", {cell::word}, 1, "", "no_prefetch"},
    {"guard", "prefetch_guard", "guard", {cell::word}, 3, "", "named"},
    {"order", "prefetch_order", "order", {cell::word}, 3, "", "nearest"},
    {"miss", "miss", "miss", {cell::word}, 2, "", "fetch"},
    {"routing", "routing", "routing", {cell::word}, 2, "", "router_order"},
    {"pre-eviction", "pre_eviction", "pre-eviction", {cell::word}, 2, "", "none"},
    {"predictor", "predictor", "predictor", {cell::word}, 2, "", "recorded"},
    {"precision", "precision", "precision", {cell::word}, 2},
    {"link", "link", "link", {cell::word}, 2},
    {"scope", "scope", "scope", {cell::word}, 1},
    {"replay", "replay", "replay", {cell::word}, 3, "", "event-atomic"},
    {"budget", "budget_bytes", "budget", {cell::bytes}, 1, "budget_bytes"},
    {"slots", "slots", "slots"},
    {"share", "share", "share %", share_1},
    {"target", "target", "target", {cell::word}, 1},
    {"reached", "reached", "reached", {.digits = 3}, 0, "target"},
    {"next-smaller", "next_smaller", "next smaller", {.digits = 3}, 0, "target"},
    {"hit", "hit", "hit %", percent_2},
    {"decode-hit", "decode_hit", "decode hit %", percent_2, 4},
    {"misses", "misses", "misses", {}, 2},
    {"compulsory", "compulsory_misses", "compulsory", {}, 6},
    {"collision", "collision_misses", "collision", {}, 5},
    {"fills", "fills", "fills", {}, 2},
    {"filled", "bytes_filled", "filled", {cell::bytes}, 3, "bytes_filled"},
    {"miss-free", "miss_free", "miss-free steps %", percent_2, 4},
    {"prefetch-precision", "prefetch_precision", "precision %", share_1, 3, predicts},
    {"prefetch-recall", "prefetch_recall", "recall %", share_1, 3, predicts},
    {"prefetch-hits", "prefetch_hits", "prefetch hits", {}, 5, predicts},
    {"late", "late_prefetches", "late", {}, 5, predicts},
    {"wasted", "bytes_prefetch_wasted", "wasted", {cell::bytes}, 4, predicts},
    {"demand", "bytes_demand", "on demand", {cell::bytes}, 4, if_named},
    {"prefetch-used", "bytes_prefetch_used", "used", {cell::bytes}, 4, if_named},
    {"refetched", "bytes_refetched", "refetched", {cell::bytes}, 4, if_named},
    {"ttft", "ttft_s", "TTFT ms", milliseconds, 1, "link"},
    {"tpot", "tpot_s", "TPOT ms", milliseconds, 1, "link"},
    {"blocking", "blocking_io_s", "blocking ms", milliseconds, 2, "link"},
    {"io", "total_io_s", "I/O ms", milliseconds, 4, "link"},
    {"written-back", "bytes_written_back", "written back", {cell::bytes}, 4, "bytes_written_back"},
    {"streamed", "streamed", "streamed", {}, 3, "streamed"},
    {"lost-mass", "lost_gate_mass", "lost mass %", share_2, 2, "lost_gate_mass"},
    {"regret", "regret", "regret %", percent_2, 1, "belady"},
    {"over-bound", "over_bound", "over bound %", percent_2, 4, if_named},
};

std::string json_lines_of(const sweep_result& sweep) {
  std::vector<row> rows;
  for (const auto& run : sweep.results) rows.push_back(row_of(sweep, run));
  return to_json_lines(head_of(sweep, simulate_schema), "results", rows);
}

}  // namespace

row head_of(const sweep_result& sweep, std::string_view schema) {
  row out{{"schema", schema},
          {"generator", generator_of(sweep.trace_hash)},
          {"trace",
           {{"name", sweep.name},
            {"layers", sweep.layers},
            {"experts", sweep.experts},
            {"top_k", sweep.top_k},
            {"tokens", sweep.tokens},
            {"visits", sweep.visits},
            {"experts_total", sweep.experts_total()},
            {"bytes_per_expert", or_null(sweep.bytes_per_expert)}}}};
  if (!sweep.not_replayed.empty()) out["not_replayed"] = sweep.not_replayed;
  return out;
}

std::string title_of(const sweep_result& sweep) {
  return fmt::format("{}: {} layers x {} experts, top-{}, {} tokens, {} visits\n",
                     printable(sweep.name), sweep.layers, sweep.experts, sweep.top_k, sweep.tokens,
                     sweep.visits);
}

std::string notes_of(const sweep_result& sweep) {
  std::vector<std::string> lines;
  for (const auto& run : sweep.results)
    for (const auto& note : run.notes)
      if (auto line = "note: " + printable(note, 400) + '\n';
          std::ranges::find(lines, line) == lines.end())
        lines.push_back(std::move(line));
  for (const auto& line : sweep.not_replayed)
    lines.push_back("not replayed: " + printable(line, 400) + '\n');
  return fmt::format("{}", fmt::join(lines, ""));
}

std::string to_json_text(std::span<const sweep_result> sweeps) {
  std::vector<std::string> texts;
  for (const auto& sweep : sweeps) texts.push_back(json_lines_of(sweep));
  return one_or_array(texts);
}

std::string to_json_lines(std::string_view file, std::span<const planned_run> runs) {
  std::string out;
  for (const auto& [run, finished] : runs) {
    const row line{{"trace", file},
                   {"key", run.key},
                   {"finished", finished},
                   {"preset", text_or_null(run.policies.preset)},
                   {"eviction", run.policies.eviction},
                   {"admission", run.policies.admission},
                   {"scope", run.scope},
                   {"replay", run.replay},
                   {"size", run.size},
                   {"precision", text_or_null(run.precision)},
                   {"link", text_or_null(run.link)},
                   {"prefetch", run.policies.prefetch},
                   {"prefetch_guard", run.policies.guard},
                   {"prefetch_order", run.policies.prefetch_order},
                   {"predictor", run.policies.predictor},
                   {"miss", run.policies.miss},
                   {"routing", run.policies.routing},
                   {"pre_eviction", run.policies.pre_eviction}};
    out += one_line(line) + '\n';
  }
  return out;
}

std::string to_csv(std::span<const sweep_result> sweeps) {
  const auto names = flat({}, {});
  std::vector<std::string> keys;
  for (const auto& [key, value] : names.items()) keys.push_back(key);
  std::vector<row> rows;
  for (const auto& sweep : sweeps)
    for (const auto& run : sweep.results) rows.push_back(flat(sweep, run));
  return to_csv(keys, rows);
}

std::string to_table(const sweep_result& sweep, const table_view& view) {
  std::vector<row> rows;
  for (const auto& run : sweep.results) {
    rows.push_back(row_of(sweep, run));
    add_ratios(rows.back(), run, sweep);
  }
  return folded(title_of(sweep), view.width) + to_table(run_columns, rows, view) +
         folded(notes_of(sweep), view.width);
}

std::vector<std::string> compared_columns(const sweep_request& request) {
  std::vector<std::string> out{"preset", "slots", "share", "hit", "collision"};
  if (!request.links.empty()) out.insert(out.end(), {"blocking", "io"});
  out.insert(out.end(), {"demand", "prefetch-used", "wasted", "refetched", "prefetch-precision",
                         "prefetch-recall", "over-bound"});
  return out;
}
std::vector<std::string> report_columns() { return names_of(run_columns); }

}  // namespace hotset::lab
