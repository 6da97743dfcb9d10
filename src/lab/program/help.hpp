// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Help that fits the terminal, and what a mistyped command line is answered with.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace hotset::cli {

/// Descriptions and examples are broken at `width` columns.
[[nodiscard]] std::shared_ptr<CLI::Formatter> folding_formatter(std::size_t width);

/// The subcommand that was named last, or the program.
[[nodiscard]] const CLI::App& named(const CLI::App& root);

/// The help of the program, or of a subcommand of it.
[[nodiscard]] std::string help_of(const CLI::App& app);

[[nodiscard]] std::vector<std::string> subcommand_names(const CLI::App& root);

/// Errors: usage_error with the name that was meant.
[[nodiscard]] const CLI::App& find_subcommand(const CLI::App& root, const std::string& name);

/// One line for what the parser refused.
[[nodiscard]] std::string parse_trouble(const CLI::App& root, const CLI::ParseError& error);

}  // namespace hotset::cli
