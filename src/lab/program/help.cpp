// SPDX-License-Identifier: Apache-2.0
// hotset help, and the formatting of all help texts.
#include "lab/program/help.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/text/names.hpp"
#include "lab/errors.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/reports/folded_text.hpp"

namespace hotset::cli {
namespace {

/// Folds a long command with backslashes, so that it can be pasted; a value stays with its option.
std::string folded_command(std::string_view line, std::size_t width) {
  constexpr std::string_view next = " --";
  constexpr std::size_t indent = 6;
  std::string out;
  for (std::size_t lead = 0; lead + line.size() > width; lead = indent) {
    auto cut = line.rfind(next, width - lead - 2);
    if (cut == std::string_view::npos || cut < indent) cut = line.find(next, indent);
    if (cut == std::string_view::npos) break;
    out.append(line.substr(0, cut)).append(" \\\n").append(indent, ' ');
    line.remove_prefix(cut + 1);
  }
  return out.append(line);
}

/// "hotset adapters plan".
std::string path_of(const CLI::App& app) {
  const auto* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : path_of(*parent) + ' ' + app.get_name();
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* one : subcommands_of(app)) names.push_back(one->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// The first unknown option as typed, without its value; empty if all are known.
std::string unknown_option(const CLI::App& app) {
  for (const auto& word : app.remaining())
    if (word.size() > 1 && word.starts_with('-')) return word.substr(0, word.find('='));
  return {};
}

}  // namespace

const CLI::App& named(const CLI::App& root) {
  const auto chosen = root.get_subcommands();
  return chosen.empty() ? root : named(*chosen.back());
}

std::string help_of(const CLI::App& app) {
  const auto width = std::clamp<std::size_t>(lab::output_width(), 40, 100);
  // Narrow terminals: half of the width is left for descriptions.
  const auto column = std::min<std::size_t>(28, width / 2);
  app.get_formatter()->column_width(column);
  // app.help() would show the running subcommand's help.
  const auto text = app.get_formatter()->make_help(&app, path_of(app), CLI::AppFormatMode::Normal);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    out += line.starts_with("  hotset ")
               ? folded_command(line, width)
               : lab::folded_line(line, width, line.starts_with(' ') ? column : 0);
    out += '\n';
    begin = end + 1;
  }
  return out;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

const CLI::App* find_subcommand(const CLI::App& app, const std::string& name) {
  for (const auto* one : subcommands_of(app))
    if (one->get_name() == name) return one;
  return nullptr;
}

std::string parse_trouble(const CLI::App& root, const CLI::ParseError& error) {
  const auto& app = named(root);
  const auto path = path_of(app);
  const auto command = path.substr(std::min(path.find(' ') + 1, path.size()));
  const auto option = unknown_option(app);
  const auto subcommands = subcommand_names(app);
  auto known = option_names(app);
  if (subcommands.empty())
    return fmt::format(
        "{0}: {1}; see hotset {0} --help", command,
        option.empty() ? error.what()
                       : fmt::format("'{}' is no option{}", option, did_you_mean(option, known)));
  // The program or a group was followed by no subcommand, or by an unknown word.
  const auto rest = app.remaining();
  const auto found = rest.empty() ? std::string() : option.empty() ? rest.front() : option;
  known.insert(known.begin(), subcommands.begin(), subcommands.end());
  return fmt::format("{}{}; accepted: {}", &app == &root ? "" : command + ": ",
                     found.empty() ? error.what()
                                   : fmt::format("'{}' is no subcommand or option{}", found,
                                                 did_you_mean(found, known)),
                     fmt::join(subcommands, ", "));
}

command add_help(CLI::App& root) {
  auto* app = root.add_subcommand("help", "Print the help of the program, or of a subcommand");
  auto path = std::make_shared<std::vector<std::string>>();
  app->add_option("COMMAND", *path, "a subcommand, and its own subcommand if it has one")
      ->type_name("NAME");
  app->footer("Examples:\n  hotset help\n  hotset help simulate\n  hotset help adapters plan");
  return {app, [&root, path] {
            const CLI::App* of = &root;
            for (const auto& name : *path) {
              const auto* const below = find_subcommand(*of, name);
              if (below == nullptr) lab::refuse_name("help:", name, subcommand_names(*of));
              of = below;
            }
            print(help_of(*of));
            return static_cast<int>(ok);
          }};
}

}  // namespace hotset::cli
