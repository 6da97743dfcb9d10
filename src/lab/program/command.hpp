// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by all subcommands: their list, the exit codes, and options that are parsed once.

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/reports/rows.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {

enum exit_code : int { ok = 0, failure = 1, usage = 2, infeasible = 3, bad_input = 4 };

/// A subcommand: its options, and what runs when it was named. Returns an exit code; errors are thrown.
struct command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

command add_info(CLI::App& root);
command add_simulate(CLI::App& root);
command add_curve(CLI::App& root);
command add_plan(CLI::App& root);
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

/// Errors: usage_error "<option>: '<text>'; accepted: <accepted>".
[[noreturn]] inline void refuse_option(std::string_view option, std::string_view text,
                                       std::string_view accepted) {
  throw lab::usage_error(
      lab::input_message(option, "", fmt::format("'{}'", printable(text)), accepted));
}

using lab::for_option;

/// A number in [least, most] and nothing else, if the text is one.
template <class T>
[[nodiscard]] std::optional<T> read_number(std::string_view text, T least, T most) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc{} || rest != end || !(value >= least && value <= most)) return std::nullopt;
  return value;
}

/// The same. Errors: usage_error.
template <class T>
[[nodiscard]] T parse_number(std::string_view option, std::string_view text, T least, T most) {
  const auto value = read_number<T>(text, least, most);
  if (!value) refuse_option(option, text, fmt::format("{}..{}", least, most));
  return *value;
}

/// An option whose text `parse` turns into the value, once. For the types NAME, LIST, SHAPE, MODEL and KIND:N,
/// completion offers the words that the description lists: "what: a, b (a note), c". Errors: usage_error with the option.
template <class T, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, const char* type, T& value,
                        Parse parse, const std::string& description) {
  const auto read = [&value, name, parse](const std::string& text) {
    value = for_option(name, [&] { return parse(text); });
  };
  return app.add_option_function<std::string>(name, read, description)->type_name(type);
}

/// An option that holds a number in [least, most].
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value, T least, T most,
                        const std::string& description) {
  const auto parse = [=](std::string_view text) {
    return parse_number<T>(name, text, least, most);
  };
  return add_parsed(app, name, "N", value, parse, description)
      ->default_str(fmt::format("{}", value));
}
/// Any number.
template <std::unsigned_integral T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value,
                        const std::string& description) {
  return add_number(app, name, value, T{0}, std::numeric_limits<T>::max(), description);
}

/// An option of bytes above 0; `or_none` accepts 0, too. `usual` is the unit that a bare number is guessed to lack.
/// T: std::uint64_t, or an optional one.
template <class T>
CLI::Option* add_size(CLI::App& app, const std::string& name, T& value, const char* usual,
                      const std::string& description, bool or_none = false) {
  const auto parse = [=](std::string_view text) {
    return or_none ? lab::read_size_or_none(text, usual) : lab::read_size(text, usual);
  };
  return add_parsed(app, name, "SIZE", value, parse, description);
}

/// An option or a positional that names a file, or several. T: std::filesystem::path, or a vector of them.
template <class T>
CLI::Option* add_file(CLI::App& app, const std::string& name, T& value,
                      const std::string& description) {
  return app.add_option(name, value, description)->type_name("FILE");
}
inline CLI::Option* add_out(CLI::App& app, std::filesystem::path& out) {
  return add_file(app, "--out", out, "write there, not to standard output");
}

/// The entries of all comma-separated values of an option. Errors: usage_error for an empty entry.
[[nodiscard]] inline std::vector<std::string> split_lists(std::string_view option,
                                                          const std::vector<std::string>& values) {
  std::vector<std::string> entries;
  for (const std::string& value : values) {
    for (std::size_t begin = 0; begin <= value.size();) {
      const auto end = std::min(value.find(',', begin), value.size());
      if (end == begin)
        refuse_option(option, value, "a comma-separated list without empty entries");
      entries.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return entries;
}

/// An option that may be given several times, each with a comma-separated list; `parse` turns each entry into a value,
/// once. Errors: usage_error with the option.
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

/// The columns of a table, when standard output or a file of its own is to hold it.
struct table_options {
  std::vector<std::string> columns;
};
inline CLI::Option* add_columns(CLI::App& app, table_options& options,
                                const std::vector<std::string>& known) {
  return add_list(
      app, "--columns", options.columns,
      fmt::format("columns of the table, in this order (default: those that fit): all, {}",
                  fmt::join(known, ", ")));
}

/// The table that was asked for; a file is as wide as need be. Errors: usage_error for columns that are not known.
[[nodiscard]] inline lab::table_view checked(const table_options& options,
                                             const std::vector<std::string>& known, bool to_file) {
  lab::table_view view{.width = to_file ? 0 : lab::output_width(), .columns = options.columns};
  lab::check_columns(view, known);
  return view;
}

}  // namespace hotset::cli
