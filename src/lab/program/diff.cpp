// SPDX-License-Identifier: Apache-2.0
// hotset diff: what changed between two results of hotset simulate.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/sweep_report.hpp"

namespace hotset::cli {
namespace {

using json = nlohmann::ordered_json;

struct diff_options {
  std::filesystem::path before;
  std::filesystem::path after;
  double tolerance = 0;
};

using counters = std::vector<std::pair<std::string, std::uint64_t>>;
using measures = std::vector<std::pair<std::string, double>>;

/// A replay, or the facts of a trace, under the text that names it.
struct row {
  std::string key;
  counters values;
  measures reals;  ///< seconds, ratios, quality; what was not measured is left out
};

/// Members of a result that are no counters.
constexpr std::array real_names{"ttft_s",
                                "tpot_s",
                                "blocking_io_s",
                                "total_io_s",
                                "total_s",
                                "prefetch_precision",
                                "prefetch_recall",
                                "quality",
                                "quality_full_precision",
                                "lost_gate_mass",
                                "forecast_confidence"};
/// Members that name a result besides those that it always has; null or missing: the plain choice.
struct dimension {
  const char* name;
  std::string_view plain;
};
constexpr std::array<dimension, 10> dimensions{{{"preset", ""},
                                                {"prefetch", "no_prefetch"},
                                                {"prefetch_guard", "named"},
                                                {"miss", "fetch"},
                                                {"routing", "router_order"},
                                                {"pre_eviction", "none"},
                                                {"predictor", "recorded"},
                                                {"prefetch_order", "nearest"},
                                                {"precision", ""},
                                                {"link", ""}}};

/// Reads one result file; everything that is refused names the file and the place.
class result_reader {
 public:
  explicit result_reader(const std::filesystem::path& path) : path_(input_path(path)) {}

  [[nodiscard]] std::vector<row> read() {
    const json root = parse();
    if (root.is_array()) {
      for (std::size_t i = 0; i < root.size(); ++i) add_sweep(root[i], fmt::format("[{}]", i));
    } else {
      add_sweep(root, "");
    }
    return std::move(rows_);
  }

 private:
  [[noreturn]] void refuse(const std::string& place, const std::string& found,
                           const std::string& accepted) const {
    lab::refuse_input(path_.string(), place, found, accepted);
  }

  [[nodiscard]] json parse() const {
    const lab::mapped_file file(path_);
    const auto* const text = reinterpret_cast<const char*>(file.bytes().data());
    // Copies of nested values recurse: deep nesting is refused before there is any.
    const std::string name = path_.string();
    lab::unique_keys keys(name);
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth > 16) refuse("", "nested more than 16 deep", "what hotset simulate --json wrote");
      keys.check(event, parsed);
      return true;
    };
    try {
      return json::parse(text, text + file.bytes().size(), check);
    } catch (const json::parse_error& error) {
      refuse(fmt::format("byte {}", error.byte), "not JSON", "what hotset simulate --json wrote");
    } catch (const json::out_of_range&) {
      refuse("", "a number is out of range", "whole numbers below 2^64");
    }
  }

  const json& member(const json& object, const char* name, const std::string& place) const {
    if (!object.is_object()) refuse(place, "not an object", "an object");
    const auto found = object.find(name);
    if (found == object.end()) refuse(place, fmt::format("no \"{}\"", name), "an object with it");
    return *found;
  }

  std::string text(const json& object, const char* name, const std::string& place) const {
    const json& value = member(object, name, place);
    if (!value.is_string()) refuse(place, fmt::format("\"{}\" is no text", name), "a string");
    return printable(value.get<std::string>());
  }

  void add_sweep(const json& sweep, const std::string& place) {
    if (text(sweep, "schema", place) != lab::simulate_schema)
      refuse(place, fmt::format("schema \"{}\"", text(sweep, "schema", place)),
             fmt::format("\"{}\"", lab::simulate_schema));
    const json& trace = member(sweep, "trace", place);
    const auto name = text(trace, "name", place);
    add_row(name, trace, {"name"}, place + "trace");
    const json& results = member(sweep, "results", place);
    if (!results.is_array()) refuse(place + "results", "not an array", "an array");
    for (std::size_t i = 0; i < results.size(); ++i)
      add_result(name, results[i], fmt::format("{}results[{}]", place, i));
  }

  void add_result(const std::string& trace, const json& result, const std::string& place) {
    std::string key = trace + ":";
    for (const char* name : {"eviction", "admission", "scope", "replay"})
      key += ' ' + text(result, name, place);
    const json& slots = member(result, "slots", place);
    const json& budget = member(result, "budget_bytes", place);
    key += fmt::format(" slots {}", count(slots, place + ".slots"));
    if (!budget.is_null()) key += fmt::format(" budget {}", count(budget, place + ".budget_bytes"));
    std::vector<std::string> names{"eviction", "admission", "scope",
                                   "replay",   "slots",     "budget_bytes"};
    for (const auto& [name, plain] : dimensions) {
      names.emplace_back(name);
      const auto found = result.find(name);
      if (found == result.end() || found->is_null()) continue;
      const auto chosen = text(result, name, place);
      if (chosen != plain) key += fmt::format(" {} {}", name, chosen);
    }
    names.insert(names.end(), real_names.begin(), real_names.end());
    add_row(key, result, names, place);
    for (const char* name : real_names) add_measure(result, name, place);
  }

  void add_measure(const json& result, const char* name, const std::string& place) {
    const auto found = result.find(name);
    if (found == result.end() || found->is_null()) return;
    if (!found->is_number())
      refuse(fmt::format("{}.{}", place, name),
             printable(found->dump(-1, ' ', false, json::error_handler_t::replace), 40),
             "a number, or null");
    rows_.back().reals.emplace_back(name, found->get<double>());
  }

  /// Rows of the same key are told apart by their order.
  void add_row(const std::string& key, const json& object, const std::vector<std::string>& names,
               const std::string& place) {
    row out;
    const auto nth = ++seen_[key];
    out.key = nth == 1 ? key : fmt::format("{} (#{})", key, nth);
    if (!object.is_object()) refuse(place, "not an object", "an object");
    for (const auto& [name, value] : object.items())
      if (std::find(names.begin(), names.end(), name) == names.end())
        add_counters(out.values, name, value, place + '.' + name);
    rows_.push_back(std::move(out));
  }

  std::uint64_t count(const json& value, const std::string& place) const {
    if (!value.is_number_unsigned())
      refuse(place, printable(value.dump(-1, ' ', false, json::error_handler_t::replace), 40),
             "a whole number of 0 or more");
    return value.get<std::uint64_t>();
  }

  /// Numbers in objects and arrays get the path to them as their name.
  void add_counters(counters& out, const std::string& name, const json& value,
                    const std::string& place) const {
    if (!value.is_structured()) {
      out.emplace_back(printable(name), count(value, place));
      return;
    }
    for (const auto& [key, entry] : value.items())
      add_counters(out, name + (value.is_array() ? '[' + key + ']' : '.' + key), entry,
                   place + '.' + key);
  }

  std::filesystem::path path_;
  std::vector<row> rows_;
  std::map<std::string, std::size_t> seen_;
};

bool close(std::uint64_t a, std::uint64_t b, double tolerance) {
  const auto apart = a > b ? a - b : b - a;
  return apart == 0 ||
         static_cast<double>(apart) <= tolerance * static_cast<double>(std::max(a, b));
}

std::optional<std::uint64_t> value_of(const counters& values, const std::string& name) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (found == values.end()) return std::nullopt;
  return found->second;
}

std::string change(const std::string& name, std::optional<std::uint64_t> a,
                   std::optional<std::uint64_t> b) {
  const auto shown = [](std::optional<std::uint64_t> v) {
    return v ? std::to_string(*v) : std::string("none");
  };
  std::string line = fmt::format("  {}: {} -> {}", name, shown(a), shown(b));
  if (a && b) line += fmt::format(" ({}{})", *b > *a ? '+' : '-', *b > *a ? *b - *a : *a - *b);
  return line + '\n';
}

bool close(double a, double b, double tolerance) {
  return a == b || std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

std::string real_changes(const measures& a, const measures& b, double tolerance) {
  std::string out;
  const auto of = [](const measures& values, const std::string& name) -> std::optional<double> {
    for (const auto& [n, value] : values)
      if (n == name) return value;
    return std::nullopt;
  };
  const auto shown = [](std::optional<double> v) {
    return v ? fmt::format("{}", *v) : std::string("none");
  };
  for (const char* name : real_names) {
    const auto before = of(a, name);
    const auto after = of(b, name);
    if (before == after || (before && after && close(*before, *after, tolerance))) continue;
    out += fmt::format("  {}: {} -> {}\n", name, shown(before), shown(after));
  }
  return out;
}

std::string changes(const row& a, const row& b, double tolerance) {
  std::string out;
  for (const auto& [name, before] : a.values) {
    const auto after = value_of(b.values, name);
    if (!after || !close(before, *after, tolerance)) out += change(name, before, after);
  }
  for (const auto& [name, after] : b.values)
    if (!value_of(a.values, name)) out += change(name, std::nullopt, after);
  return out + real_changes(a.reals, b.reals, tolerance);
}

const row* find_row(const std::vector<row>& rows, const std::string& key) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const row& r) { return r.key == key; });
  return found == rows.end() ? nullptr : &*found;
}

struct tally {
  std::size_t equal = 0, changed = 0, removed = 0, added = 0;
};

std::string compare(const std::vector<row>& a, const std::vector<row>& b, double tolerance,
                    tally& count) {
  std::string out;
  for (const row& before : a) {
    const row* after = find_row(b, before.key);
    const auto changed = after != nullptr ? changes(before, *after, tolerance) : std::string();
    if (after == nullptr) {
      ++count.removed;
      out += "- " + before.key + '\n';
    } else if (!changed.empty()) {
      ++count.changed;
      out += "~ " + before.key + '\n' + changed;
    } else {
      ++count.equal;
    }
  }
  for (const row& after : b) {
    if (find_row(a, after.key) != nullptr) continue;
    ++count.added;
    out += "+ " + after.key + '\n';
  }
  return out;
}

int diff(const diff_options& options) {
  const auto before = result_reader(options.before).read();
  const auto after = result_reader(options.after).read();
  tally count;
  const auto lines = compare(before, after, options.tolerance, count);
  print(fmt::format("{}{} rows equal, {} changed, {} removed, {} added\n", lines, count.equal,
                    count.changed, count.removed, count.added));
  return lines.empty() ? ok : failure;
}

}  // namespace

command add_diff(CLI::App& root) {
  auto* app = root.add_subcommand("diff", "Compare two results of simulate --json");
  auto options = std::make_shared<diff_options>();
  app->add_option("A", options->before, "result before")->required()->type_name("FILE");
  app->add_option("B", options->after, "result after")->required()->type_name("FILE");
  add_number(*app, "--tolerance", options->tolerance, 0.0, 1.0,
             "accept counters that differ by this share of the larger one");
  app->footer(
      R"(Rows are matched by trace, policies, scope, replay, slots, budget, precision and link; so are the
facts of each trace. Marks: ~ changed, - only in A, + only in B. Exit code 0: equal; 1: different.
Examples:
  hotset diff before.json after.json
  hotset diff before.json after.json --tolerance 0.01)");
  return {app, [options] { return diff(*options); }};
}

}  // namespace hotset::cli
