// SPDX-License-Identifier: Apache-2.0
// hotset help, and the text of all help.
#include "lab/program/help.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/text/names.hpp"
#include "lab/errors.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"

namespace hotset::cli {
namespace {

/// Lines of `text` of at most `width`, all but the first behind `indent` spaces.
std::string broken(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  while (text.size() > width) {
    auto cut = text.rfind(' ', width);
    if (cut == std::string_view::npos || cut == 0) cut = text.find(' ', width);
    if (cut == std::string_view::npos) break;
    out.append(text.substr(0, cut)).append(1, '\n').append(indent, ' ');
    text.remove_prefix(cut + 1);
  }
  return out.append(text);
}

/// A command that is too long goes on behind a backslash, so that it can be pasted; a value stays with its option.
std::string broken_command(std::string_view line, std::size_t width) {
  constexpr std::string_view next = " --";
  constexpr std::size_t indent = 6;
  std::string out;
  std::size_t lead = 0;
  while (lead + line.size() > width) {
    auto cut = line.rfind(next, width - lead - 2);
    if (cut == std::string_view::npos || cut < indent) cut = line.find(next, indent);
    if (cut == std::string_view::npos) break;
    out.append(line.substr(0, cut)).append(" \\\n").append(indent, ' ');
    line.remove_prefix(cut + 1);
    lead = indent;
  }
  return out.append(line);
}

std::string broken_lines(const std::string& text, std::size_t width) {
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    if (begin != 0) out += '\n';
    out += line.starts_with("  ") ? broken_command(line, width) : broken(line, width, 0);
    begin = end + 1;
  }
  return out;
}

class folding : public CLI::Formatter {
 public:
  explicit folding(std::size_t width) : width_(std::max<std::size_t>(width, 40)) {}

  std::string make_option(const CLI::Option* option, bool positional) const override {
    return entry("  " + make_option_name(option, positional) + make_option_opts(option),
                 make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* app) const override {
    return entry("  " + app->get_name(), app->get_description());
  }
  std::string make_description(const CLI::App* app) const override {
    return broken(app->get_description(), width_, 0) + '\n';
  }
  std::string make_footer(const CLI::App* app) const override {
    return broken_lines(app->get_footer(), width_) + '\n';
  }

 private:
  /// Half of a narrow terminal is left to descriptions.
  [[nodiscard]] std::size_t column() const { return std::min<std::size_t>(28, width_ / 2); }
  [[nodiscard]] std::string entry(std::string name, const std::string& description) const {
    if (name.size() + 2 > column())
      name = broken(name, width_, 4) + '\n' + std::string(column(), ' ');
    else
      name.resize(column(), ' ');
    return name + broken(description, width_ - column(), column()) + '\n';
  }

  std::size_t width_;
};

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// What was typed before the '=' of an option that there is not; empty if all are known.
std::string unknown_option(const CLI::App& app) {
  for (const auto& word : app.remaining())
    if (word.size() > 1 && word.starts_with('-')) return word.substr(0, word.find('='));
  return {};
}

/// "hotset adapters plan".
std::string path_of(const CLI::App& app) {
  const auto* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : path_of(*parent) + ' ' + app.get_name();
}
/// The same without the program.
std::string command_of(const CLI::App& app) {
  const auto path = path_of(app);
  return path.substr(std::min(path.find(' ') + 1, path.size()));
}

/// Former commands of the program, and their names in the Python package.
constexpr std::pair<std::string_view, std::string_view> studies[] = {
    {"hotset coactivation", "coactivation"},
    {"hotset train-gate", "train-gate"},
    {"hotset adapters select", "select-experts"},
    {"hotset info --working-set", "working-set"}};

/// Nothing, or something that is none of its subcommands, stands behind the program or a group of subcommands.
std::string group_trouble(const CLI::App& app, const CLI::ParseError& error) {
  const auto option = unknown_option(app);
  const auto rest = app.remaining();
  const auto found = rest.empty() ? std::string() : option.empty() ? rest.front() : option;
  const auto subcommands = subcommand_names(app);
  auto known = subcommands;
  const auto options = option_names(app);
  known.insert(known.end(), options.begin(), options.end());
  return fmt::format(
      "{}{}; accepted: {}", app.get_parent() == nullptr ? "" : command_of(app) + ": ",
      found.empty()
          ? std::string(error.what())
          : fmt::format("'{}' is no subcommand or option{}", found, did_you_mean(found, known)),
      fmt::join(subcommands, ", "));
}

}  // namespace

std::shared_ptr<CLI::Formatter> folding_formatter(std::size_t width) {
  return std::make_shared<folding>(width);
}

const CLI::App& named(const CLI::App& root) {
  const auto chosen = root.get_subcommands();
  return chosen.empty() ? root : named(*chosen.back());
}

std::string help_of(const CLI::App& app) {
  // Not app.help(), which gives that of the subcommand that is running.
  return app.get_formatter()->make_help(&app, path_of(app), CLI::AppFormatMode::Normal);
}

std::vector<std::string> subcommand_names(const CLI::App& root) {
  std::vector<std::string> names;
  for (const auto* app : root.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(app->get_name());
  return names;
}

const CLI::App& find_subcommand(const CLI::App& root, const std::string& name) {
  for (const auto* app : root.get_subcommands([](const CLI::App*) { return true; }))
    if (app->get_name() == name) return *app;
  lab::refuse_name("help:", name, subcommand_names(root));
}

std::string parse_trouble(const CLI::App& root, const CLI::ParseError& error) {
  const auto& app = named(root);
  for (const auto& word : app.remaining())
    for (const auto& [before, study] : studies)
      if (path_of(app) + ' ' + word == before)
        return fmt::format("{}: is a command of the Python package now: python3 -m hotset {}",
                           before.substr(before.find(' ') + 1), study);
  if (!subcommand_names(app).empty()) return group_trouble(app, error);
  const auto option = unknown_option(app);
  const auto trouble = option.empty() ? std::string(error.what())
                                      : fmt::format("'{}' is no option of it{}", option,
                                                    did_you_mean(option, option_names(app)));
  return fmt::format("{0}: {1}; see hotset {0} --help", command_of(app), trouble);
}

command add_help(CLI::App& root) {
  auto* app = root.add_subcommand("help", "Print the help of the program, or of a subcommand");
  auto path = std::make_shared<std::vector<std::string>>();
  app->add_option("COMMAND", *path, "a subcommand, and one of its own")->type_name("NAME");
  app->footer("Examples:\n  hotset help\n  hotset help simulate\n  hotset help adapters plan");
  return {app, [&root, path] {
            const CLI::App* of = &root;
            for (const auto& name : *path) of = &find_subcommand(*of, name);
            print(help_of(*of));
            return static_cast<int>(ok);
          }};
}

}  // namespace hotset::cli
