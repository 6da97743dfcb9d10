// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/bench_rows.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/version.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/traces/trace_hash.hpp"

namespace hotset::lab {
namespace {

const std::vector<std::string> bench_columns{
    "trace",        "trace_hash",        "scope",    "size",   "slots",
    "eviction",     "offline",           "accesses", "misses", "fills",
    "above_belady", "host_ns_per_visit", "version"};

/// The reader knows no quotes within quotes; bench_row_of() leaves none.
std::string csv_line(const bench_row& of) {
  const auto name = printable(of.trace, 4096);
  const auto* const quote = name.find(',') == std::string::npos ? "" : "\"";
  return fmt::format("{}{}{},{},{},{},{},{},{},{},{},{},{},{},{}\n", quote, name, quote,
                     of.trace_hash, of.scope, of.size, of.slots, of.eviction, of.offline,
                     of.accesses, of.misses, of.fills, of.above_belady, of.host_ns_per_visit,
                     of.version);
}

std::string header_of_rows() { return fmt::format("{}", fmt::join(bench_columns, ",")); }

bench_row bench_row_of_line(line_scanner& lines, std::string_view line) {
  const auto& fields = lines.fields(line);
  if (fields.size() != bench_columns.size())
    lines.refuse(fmt::format("{} fields", fields.size()),
                 fmt::format("{}: {}", bench_columns.size(), fmt::join(bench_columns, ",")));
  const auto number = [&](std::size_t column, std::int64_t least = 0) {
    return lines.integer<std::int64_t>(fields[column], bench_columns[column], least,
                                       std::numeric_limits<std::int64_t>::max());
  };
  const auto count = [&](std::size_t column) { return static_cast<std::uint64_t>(number(column)); };
  const auto text = [&](std::size_t column) { return std::string(fields[column]); };
  if (fields[6] != "true" && fields[6] != "false")
    lines.refuse(fmt::format("offline is '{}'", printable(fields[6])), "true, false");
  return {text(0),
          text(1),
          text(2),
          text(3),
          count(4),
          text(5),
          fields[6] == "true",
          count(7),
          count(8),
          count(9),
          number(10, std::numeric_limits<std::int64_t>::min()),
          count(11),
          text(12)};
}

auto key_of(const bench_row& of) {
  return std::tie(of.trace_hash, of.scope, of.size, of.eviction, of.version);
}

/// A label for each hash.
std::map<std::string, std::string> labels_of(std::span<const bench_row> rows) {
  std::vector<std::string> hashes, names;
  for (const auto& one : rows)
    if (std::ranges::find(hashes, one.trace_hash) == hashes.end()) {
      hashes.push_back(one.trace_hash);
      names.push_back(one.trace);
    }
  const auto labels = trace_labels(std::move(names));
  std::map<std::string, std::string> out;
  for (std::size_t i = 0; i < hashes.size(); ++i) out[hashes[i]] = labels[i];
  return out;
}

}  // namespace

bench_row bench_row_of(const routing_trace& trace) {
  bench_row out;
  out.trace = trace.name;
  std::ranges::replace(out.trace, '"', '\'');
  out.trace_hash = fmt::format("{:016x}", trace_hash(trace));
  out.version = HOTSET_VERSION_TEXT;
  return out;
}

bool has_row(std::span<const bench_row> rows, const bench_row& wanted) {
  return std::ranges::any_of(rows,
                             [&](const bench_row& one) { return key_of(one) == key_of(wanted); });
}

std::vector<bench_row> read_bench_rows(const std::filesystem::path& file) {
  std::vector<bench_row> rows;
  if (!std::filesystem::exists(file)) return rows;
  const auto text = read_single_input(file);
  const auto header = header_of_rows();
  line_scanner lines(file.string(), text);
  for (std::string_view line; lines.next(line);) {
    if (lines.number() == 1 && line != header)
      lines.refuse(fmt::format("the header is '{}'", printable(line, 120)),
                   fmt::format("results of hotset bench: {}", header));
    if (line == header) continue;
    auto made = bench_row_of_line(lines, line);
    if (!has_row(rows, made)) rows.push_back(std::move(made));
  }
  return rows;
}

void add_runs(std::vector<bench_row>& rows, const bench_row& cell, const sweep_result& sweep) {
  const auto first = rows.size();
  for (const auto& run : sweep.results) {
    auto& out = rows.emplace_back(cell);
    out.slots = run.slots;
    out.eviction = run.policies.eviction;
    out.offline = sees_future(out.eviction);
    out.accesses = run.stats.accesses;
    out.misses = run.stats.misses;
    out.fills = run.stats.fills;
    const auto visits = static_cast<double>(std::max<std::uint64_t>(sweep.visits, 1));
    out.host_ns_per_visit = static_cast<std::uint64_t>(1e9 * run.host_seconds / visits);
  }
  auto bound = cell;
  bound.eviction = rank_bound;
  const auto found = std::ranges::find_if(
      rows, [&](const bench_row& one) { return key_of(one) == key_of(bound); });
  if (found == rows.end()) return;
  for (auto i = first; i < rows.size(); ++i)
    rows[i].above_belady =
        static_cast<std::int64_t>(rows[i].misses) - static_cast<std::int64_t>(found->misses);
}

std::string to_csv(std::span<const bench_row> rows) {
  auto text = header_of_rows() + '\n';
  for (const auto& one : rows) text += csv_line(one);
  return text;
}

leaderboard leaderboard_of(std::span<const bench_row> rows) {
  const auto labels = labels_of(rows);
  std::vector<ranked_run> runs;
  for (const auto& one : rows)
    if (one.version == HOTSET_VERSION_TEXT)
      runs.push_back({{labels.at(one.trace_hash), one.scope, one.size, one.slots, {}, one.accesses},
                      one.eviction,
                      one.offline,
                      one.misses,
                      static_cast<double>(one.host_ns_per_visit)});
  return rank_runs(runs);
}

}  // namespace hotset::lab
