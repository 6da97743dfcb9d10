// SPDX-License-Identifier: Apache-2.0
// hotset diff: what changed between two results of hotset simulate.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
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

/// A replay, or the facts of a trace: its name, and an object of its numbers by the path to each.
struct numbers {
  std::string name;
  json values = json::object();
};

/// Reads one result file; everything that is refused names the file and the place.
class result_reader {
 public:
  explicit result_reader(const std::filesystem::path& path) : path_(input_path(path)) {}

  [[nodiscard]] std::vector<numbers> read() {
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
    // Copies of nested values recurse: deep nesting is refused before there is any.
    const std::string name = path_.string();
    lab::unique_keys keys(name);
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth > 16) refuse("", "nested more than 16 deep", "what hotset simulate --json wrote");
      keys.check(event, parsed);
      return true;
    };
    try {
      return json::parse(file.text(), check);
    } catch (const json::parse_error& error) {
      refuse(fmt::format("byte {}", error.byte), "not JSON", "what hotset simulate --json wrote");
    } catch (const json::out_of_range&) {
      refuse("", "a number is out of range", "whole numbers below 2^64");
    }
  }

  const json& member(const json& object, const std::string& name, const std::string& place) const {
    if (!object.is_object()) refuse(place, "not an object", "an object");
    const auto found = object.find(name);
    if (found == object.end()) refuse(place, fmt::format("no \"{}\"", name), "an object with it");
    return *found;
  }

  std::string text(const json& object, const std::string& name, const std::string& place) const {
    const json& value = member(object, name, place);
    if (!value.is_string()) refuse(place, fmt::format("\"{}\" is no text", name), "a string");
    return printable(value.get<std::string>());
  }

  void add_sweep(const json& sweep, const std::string& place) {
    if (const auto schema = text(sweep, "schema", place); schema != lab::simulate_schema)
      refuse(place, fmt::format("schema \"{}\"", schema),
             fmt::format("\"{}\"", lab::simulate_schema));
    const json& trace = member(sweep, "trace", place);
    const auto name = text(trace, "name", place);
    add_row(name, trace, {"name"}, place + "trace");
    const json& results = member(sweep, "results", place);
    if (!results.is_array()) refuse(place + "results", "not an array", "an array");
    for (std::size_t i = 0; i < results.size(); ++i)
      add_result(name, results[i], fmt::format("{}results[{}]", place, i));
  }

  /// Choices are the row's name: those that every result has, and of the others what is not the default.
  void add_result(const std::string& trace, const json& result, const std::string& place) {
    static const json plain = lab::plain_run();
    std::string name = trace + ":";
    for (const char* const choice : {"eviction", "admission", "scope", "replay"})
      name += ' ' + text(result, choice, place);
    name += fmt::format(" slots {}", count(member(result, "slots", place), place + ".slots"));
    const json& budget = member(result, "budget_bytes", place);
    if (!budget.is_null())
      name += fmt::format(" budget {}", count(budget, place + ".budget_bytes"));
    std::set<std::string> besides{"eviction", "admission", "scope",
                                  "replay",   "slots",     "budget_bytes"};
    for (const auto& [choice, usual] : plain.items()) {
      const bool unnamed = choice == "preset" || choice == "precision" || choice == "link";
      if (besides.contains(choice) || (!usual.is_string() && !unnamed)) continue;
      besides.insert(choice);
      const auto found = result.find(choice);
      if (found == result.end() || found->is_null()) continue;
      const auto chosen = text(result, choice, place);
      if (unnamed || chosen != usual) name += fmt::format(" {} {}", choice, chosen);
    }
    add_row(name, result, besides, place);
  }

  /// Rows of the same name are told apart by their order.
  void add_row(const std::string& name, const json& object, const std::set<std::string>& besides,
               const std::string& place) {
    if (!object.is_object()) refuse(place, "not an object", "an object");
    const auto nth = ++seen_[name];
    rows_.push_back({nth == 1 ? name : fmt::format("{} (#{})", name, nth)});
    for (const auto& [path, value] : object.items())
      if (!besides.contains(path)) add_numbers(path, value, place + '.' + path);
  }

  [[nodiscard]] std::uint64_t count(const json& value, const std::string& place) const {
    if (!value.is_number_unsigned())
      refuse(place, printable(lab::one_line(value), 40), "a whole number of 0 or more");
    return value.get<std::uint64_t>();
  }

  /// Seconds, ratios and qualities may be null, which is not measured; all else is counts.
  void add_numbers(const std::string& path, const json& value, const std::string& place) {
    static const json plain = lab::plain_run();
    if (value.is_structured()) {
      for (const auto& [key, entry] : value.items())
        add_numbers(path + (value.is_array() ? '[' + key + ']' : '.' + key), entry,
                    place + '.' + key);
    } else if (plain.contains(path) && plain[path].is_null()) {
      if (!value.is_number() && !value.is_null())
        refuse(place, printable(lab::one_line(value), 40), "a number, or null");
      if (value.is_number()) rows_.back().values[path] = value.get<double>();
    } else {
      rows_.back().values[printable(path)] = count(value, place);
    }
  }

  std::filesystem::path path_;
  std::vector<numbers> rows_;
  std::map<std::string, std::size_t> seen_;
};

std::string shown(const json& value) {
  if (value.is_null()) return "none";
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

/// A line, or nothing if the numbers are the same within the tolerance, a share of the larger one.
std::string change(const std::string& path, const json& a, const json& b, double tolerance) {
  if (a == b) return {};
  std::string apart;
  if (a.is_number_unsigned() && b.is_number_unsigned()) {
    const auto [before, after] = std::pair(a.get<std::uint64_t>(), b.get<std::uint64_t>());
    const auto distance = std::max(before, after) - std::min(before, after);
    if (static_cast<double>(distance) <= tolerance * static_cast<double>(std::max(before, after)))
      return {};
    apart = fmt::format(" ({}{})", after > before ? '+' : '-', distance);
  } else if (a.is_number() && b.is_number()) {
    const auto [before, after] = std::pair(a.get<double>(), b.get<double>());
    if (std::abs(before - after) <= tolerance * std::max(std::abs(before), std::abs(after)))
      return {};
  }
  return fmt::format("  {}: {} -> {}{}\n", path, shown(a), shown(b), apart);
}

std::string changes(const json& a, const json& b, double tolerance) {
  std::string out;
  for (const auto& [path, before] : a.items())
    out += change(path, before, b.value(path, json()), tolerance);
  for (const auto& [path, after] : b.items())
    if (!a.contains(path)) out += change(path, nullptr, after, tolerance);
  return out;
}

int diff(const diff_options& options) {
  const auto before = result_reader(options.before).read();
  const auto after = result_reader(options.after).read();
  std::string lines;
  std::size_t equal = 0, changed = 0, removed = 0, added = 0;
  for (const auto& a : before) {
    const auto b = std::ranges::find(after, a.name, &numbers::name);
    if (b == after.end()) {
      ++removed;
      lines += "- " + a.name + '\n';
      continue;
    }
    const auto found = changes(a.values, b->values, options.tolerance);
    ++(found.empty() ? equal : changed);
    if (!found.empty()) lines += "~ " + a.name + '\n' + found;
  }
  for (const auto& b : after) {
    if (std::ranges::find(before, b.name, &numbers::name) != before.end()) continue;
    ++added;
    lines += "+ " + b.name + '\n';
  }
  print(fmt::format("{}{} rows equal, {} changed, {} removed, {} added\n", lines, equal, changed,
                    removed, added));
  return lines.empty() ? ok : failure;
}

}  // namespace

command add_diff(CLI::App& root) {
  auto* app = root.add_subcommand("diff", "Compare two results of simulate --json");
  auto options = std::make_shared<diff_options>();
  add_file(*app, "A", options->before, "result before")->required();
  add_file(*app, "B", options->after, "result after")->required();
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
