// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by all subcommands: their list, the exit codes, and option parsing.

#include <concepts>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "hotset/registry/parameters.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/reports/rows.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {

enum exit_code : int { ok = 0, failure = 1, usage = 2, infeasible = 3, bad_input = 4 };

/// A subcommand: its options, and the function to run if it was named. Returns an exit code; errors are thrown.
struct command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

command add_info(CLI::App& root);
command add_simulate(CLI::App& root);
command add_bench(CLI::App& root);
command add_curve(CLI::App& root);
command add_plan(CLI::App& root);
command add_place(CLI::App& root);
command add_counts(CLI::App& root);
command add_history(CLI::App& root);
command add_simulate_split(CLI::App& root);
command add_adapters(CLI::App& root);
command add_import(CLI::App& root);
command add_export(CLI::App& root);
command add_synth(CLI::App& root);
command add_synth_requests(CLI::App& root);
command add_complete(CLI::App& root);
command add_completion(CLI::App& root);
command add_help(CLI::App& root);
command add_plot(CLI::App& root);
command add_report(CLI::App& root);
command add_top(CLI::App& root);

/// Errors: usage_error "<option>: '<text>'; accepted: <accepted>".
[[noreturn]] inline void refuse_option(std::string_view option, std::string_view text,
                                       std::string_view accepted) {
  throw lab::usage_error(
      lab::input_message(option, "", fmt::format("'{}'", printable(text)), accepted));
}

using lab::for_option;

/// Parses a number in [least, most]; nothing for any other text.
template <class T>
[[nodiscard]] std::optional<T> read_number(std::string_view text, T least, T most) {
  const auto value = lab::parse_number<T>(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

/// Parses a number in [least, most]. Errors: usage_error.
template <class T>
[[nodiscard]] T parse_number(std::string_view option, std::string_view text, T least, T most) {
  const auto value = read_number<T>(text, least, most);
  if (!value) refuse_option(option, text, fmt::format("{}..{}", least, most));
  return *value;
}

/// Adds an option whose text `parse` converts once. For the types NAME, LIST, SHAPE, MODEL and KIND:N, completion
/// offers the words listed in the description: "title: a, b (a note), c". Errors: usage_error with the option.
template <class T, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, const char* type, T& value,
                        Parse parse, const std::string& description) {
  const auto read = [&value, name, parse](const std::string& text) {
    value = for_option(name, [&] { return parse(text); });
  };
  return app.add_option_function<std::string>(name, read, description)->type_name(type);
}

/// Adds an option for a number in [least, most]. T: the value's type, or that of an optional, which has no default.
template <class Value,
          class T = typename decltype(std::optional(std::declval<Value>()))::value_type>
CLI::Option* add_number(CLI::App& app, const std::string& name, Value& value,
                        std::type_identity_t<T> least, std::type_identity_t<T> most,
                        const std::string& description) {
  const auto parse = [=](std::string_view text) {
    return parse_number<T>(name, text, least, most);
  };
  auto* const option = add_parsed(app, name, "N", value, parse, description);
  if constexpr (std::is_arithmetic_v<Value>) option->default_str(fmt::format("{}", value));
  return option;
}
/// Adds an option for any number.
template <std::unsigned_integral T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value,
                        const std::string& description) {
  return add_number(app, name, value, T{0}, std::numeric_limits<T>::max(), description);
}

/// Adds an option for bytes above 0; `or_none` also accepts 0. `usual` is the unit that an error suggests for a bare
/// number.
/// T: std::uint64_t, or an optional of it.
template <class T>
CLI::Option* add_size(CLI::App& app, const std::string& name, T& value, const char* usual,
                      const std::string& description, bool or_none = false) {
  const auto parse = [=](std::string_view text) {
    return or_none ? lab::read_size_or_none(text, usual) : lab::read_size(text, usual);
  };
  return add_parsed(app, name, "SIZE", value, parse, description);
}

/// Adds an option or positional for a file, or several. T: std::filesystem::path, or a vector of it.
template <class T>
CLI::Option* add_file(CLI::App& app, const std::string& name, T& value,
                      const std::string& description) {
  return app.add_option(name, value, description)->type_name("FILE");
}
inline CLI::Option* add_out(CLI::App& app, std::filesystem::path& out) {
  return add_file(app, "-o,--out", out, "file to write (default: standard output)");
}

/// Splits all comma-separated values of an option. Errors: usage_error for an empty entry.
[[nodiscard]] inline std::vector<std::string> split_lists(std::string_view option,
                                                          const std::vector<std::string>& values) {
  std::vector<std::string> entries;
  for (const std::string& value : values) {
    for (const auto entry : detail::split_at(value, ',')) {
      if (entry.empty())
        refuse_option(option, value, "a comma-separated list without empty entries");
      entries.emplace_back(entry);
    }
  }
  return entries;
}

/// Adds a repeatable option with comma-separated lists; `parse` converts each entry once. Errors: usage_error with
/// the option.
template <class T, class Parse>
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<T>& values, Parse parse,
                      const std::string& description) {
  const auto read = [&values, name, parse](const std::vector<std::string>& texts) {
    values.clear();
    for (const auto& text : split_lists(name, texts))
      values.push_back(for_option(name, [&] { return parse(text); }));
  };
  return app.add_option_function<std::vector<std::string>>(name, read, description)
      ->type_name("LIST")
      ->allow_extra_args(false);
}
inline CLI::Option* add_list(CLI::App& app, const std::string& name,
                             std::vector<std::string>& values, const std::string& description) {
  return add_list(
      app, name, values, [](const std::string& text) { return text; }, description);
}

/// Columns of a table, if standard output or a separate file holds it.
struct table_options {
  std::vector<std::string> columns;
};
inline CLI::Option* add_columns(CLI::App& app, table_options& options,
                                const std::vector<std::string>& known) {
  return add_list(
      app, "--columns", options.columns,
      fmt::format("columns of the table, in this order (default: as many as fit): all, {}",
                  fmt::join(known, ", ")));
}

/// Returns the requested view; a file has no width limit. Errors: usage_error for unknown columns.
[[nodiscard]] inline lab::table_view checked(const table_options& options,
                                             const std::vector<std::string>& known, bool to_file) {
  lab::table_view view{.width = to_file ? 0 : lab::output_width(), .columns = options.columns};
  lab::check_columns(view, known);
  return view;
}

}  // namespace hotset::cli
