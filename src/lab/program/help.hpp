// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Help that fits the terminal, and what a mistyped command line is answered with.

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace hotset::cli {

/// The subcommand that was named last, or the program.
[[nodiscard]] const CLI::App& named(const CLI::App& root);

/// The help of the program, or of a subcommand of it, as wide as the terminal and at most 100 columns.
[[nodiscard]] std::string help_of(const CLI::App& app);

/// Those that help shows.
[[nodiscard]] std::vector<const CLI::App*> subcommands_of(const CLI::App& app);
/// Null: there is none of this name.
[[nodiscard]] const CLI::App* find_subcommand(const CLI::App& app, const std::string& name);

/// One line for what the parser refused.
[[nodiscard]] std::string parse_trouble(const CLI::App& root, const CLI::ParseError& error);

}  // namespace hotset::cli
