// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Help that fits the terminal, and answers to mistyped command lines.

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace hotset::cli {

/// The subcommand that was named last, or the program.
[[nodiscard]] const CLI::App& named(const CLI::App& root);

/// Help of the program or a subcommand, as wide as the terminal, at most 100 columns.
[[nodiscard]] std::string help_of(const CLI::App& app);

/// Subcommands that help lists.
[[nodiscard]] std::vector<const CLI::App*> subcommands_of(const CLI::App& app);
/// Returns nullptr if no subcommand has this name.
[[nodiscard]] const CLI::App* find_subcommand(const CLI::App& app, const std::string& name);

/// One line for a parse error.
[[nodiscard]] std::string parse_trouble(const CLI::App& root, const CLI::ParseError& error);

}  // namespace hotset::cli
