// SPDX-License-Identifier: Apache-2.0
// hotset completion: completion scripts for shells, made from the options themselves.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/curves/miss_curves.hpp"
#include "lab/errors.hpp"
#include "lab/models/model_description.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/help.hpp"
#include "lab/replay/dimensions.hpp"
#include "lab/replay/preset.hpp"
#include "lab/replay/registry.hpp"
#include "lab/reports/miss_curve_report.hpp"
#include "lab/reports/split_report.hpp"
#include "lab/reports/sweep_report.hpp"
#include "lab/studies/split_replay.hpp"
#include "lab/traces/open_trace.hpp"

namespace hotset::cli {
namespace {

using names = std::vector<std::string>;

/// How an argument is completed.
struct argument {
  std::string name;  ///< with its dashes; empty for a positional
  std::string description;
  bool takes_value = true;
  bool file = false;
  bool list = false;
  names values;
};

names eviction_values() {
  auto values = lab::eviction_names();
  for (const auto& decorator : lab::eviction_decorator_names())
    values.push_back(decorator + "+lru");
  return values;
}

names preset_values() {
  auto values = lab::preset_names();
  for (const auto& name : lab::preset_names()) values.push_back(name + "+least_stale");
  return values;
}

names format_values() {
  names values;
  for (const auto format :
       {lab::trace_format::automatic, lab::trace_format::native, lab::trace_format::bigmoe,
        lab::trace_format::esft, lab::trace_format::layer_expert, lab::trace_format::json_lines,
        lab::trace_format::columns, lab::trace_format::arrays, lab::trace_format::oracle,
        lab::trace_format::mooncake, lab::trace_format::azure})
    values.emplace_back(lab::name_of(format));
  return values;
}

names columns_of(std::string_view subcommand) {
  auto columns = subcommand == "curve"            ? lab::curve_columns()
                 : subcommand == "simulate-split" ? lab::split_columns()
                                                  : lab::report_columns();
  columns.emplace_back("all");
  return columns;
}

argument describe(const CLI::Option& option) {
  argument out;
  const bool positional = option.get_positional();
  if (!positional) out.name = option.get_name(false, true);
  out.name = out.name.substr(out.name.rfind(',') + 1);  // "-h,--help": the long form
  out.description = option.get_description();
  out.takes_value = positional || option.get_items_expected_max() > 0;
  out.file = option.get_type_name() == "FILE";
  const auto key = positional ? option.get_name(true) : out.name;
  for (const auto& known : known_values()) {
    if (known.option != key) continue;
    out.values = known.values;
    out.list = known.list;
    out.description = out.description.substr(0, out.description.find(':'));  // the list follows
  }
  return out;
}

std::vector<argument> arguments_of(const CLI::App& app) {
  std::vector<argument> out;
  for (const auto* option : app.get_options()) {
    out.push_back(describe(*option));
    if (option->get_positional() && option->get_name(true) == "COMMAND")
      out.back().values = subcommand_names(*app.get_parent());
    if (out.back().name == "--columns") {
      out.back().values = columns_of(app.get_name());
      out.back().list = true;
      out.back().description = "columns of the table, in this order";
    }
  }
  return out;
}

names option_names(const CLI::App& app) {
  names out;
  for (const auto& argument : arguments_of(app))
    if (!argument.name.empty()) out.push_back(argument.name);
  return out;
}

std::vector<const CLI::App*> subcommands(const CLI::App& root) {
  return root.get_subcommands([](const CLI::App*) { return true; });
}

bool is_group(const CLI::App& app) { return !subcommand_names(app).empty(); }

/// Subcommands that run: those of groups, not the groups.
std::vector<const CLI::App*> running(const CLI::App& root) {
  std::vector<const CLI::App*> out;
  for (const auto* app : subcommands(root)) {
    const auto own = subcommands(*app);
    if (own.empty()) out.push_back(app);
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

/// "plan", and "adapters plan" of a group.
std::string path_of(const CLI::App& app) {
  const auto* const group = app.get_parent();
  return group->get_parent() == nullptr ? app.get_name() : group->get_name() + ' ' + app.get_name();
}

std::string words(const names& list) { return fmt::format("{}", fmt::join(list, " ")); }

/// Every option that has values or names a file, once, whatever the subcommand.
std::vector<argument> valued_options(const CLI::App& root) {
  std::vector<argument> out;
  for (const auto* app : running(root)) {
    for (auto& argument : arguments_of(*app)) {
      const auto same = [&](const auto& known) { return known.name == argument.name; };
      if (argument.name.empty() || !argument.takes_value ||
          std::any_of(out.begin(), out.end(), same))
        continue;
      out.push_back(std::move(argument));
    }
  }
  return out;
}

// Readline splits words at '=' and ':', so `--eviction=lru` arrives as three words. An empty answer
// makes readline complete file names.
constexpr std::string_view bash_head =
    R"(# bash completion for hotset; use it with: source <(hotset completion bash)
_hotset_values() {  # values, word
  COMPREPLY=($(compgen -W "$1" -- "$2"))
}
_hotset_list() {  # values, word: the last entry of a list separated by commas
  local done=
  [[ $2 == *,* ]] && done=${2%,*},
  COMPREPLY=($(compgen -P "$done" -W "$1" -- "${2##*,}"))
  compopt -o nospace 2>/dev/null
}
_hotset() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} name= i
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case $name${COMP_WORDS[i]} in
)";

std::string bash_values(const argument& argument) {
  const auto label = argument.name.empty() ? std::string("*") : argument.name;
  if (argument.values.empty()) return fmt::format("    {}) return ;;\n", label);
  return fmt::format("    {}) {} \"{}\" \"$word\"; return ;;\n", label,
                     argument.list ? "_hotset_list" : "_hotset_values", words(argument.values));
}

std::string bash_options(const CLI::App& app) {
  std::string positional;
  for (const auto& argument : arguments_of(app))
    if (argument.name.empty() && !argument.values.empty()) positional = words(argument.values);
  auto line = fmt::format("    \"{}\") [[ $word == -* ]] && _hotset_values \"{}\" \"$word\"",
                          path_of(app), words(option_names(app)));
  if (!positional.empty()) line += fmt::format(" || _hotset_values \"{}\" \"$word\"", positional);
  return line + " ;;\n";
}

std::string bash_script(const CLI::App& root) {
  std::string out(bash_head);
  for (const auto* app : running(root))
    out += fmt::format("      \"{}\") name+=${{COMP_WORDS[i]}}; break ;;\n", path_of(*app));
  for (const auto* app : subcommands(root))
    if (is_group(*app)) out += fmt::format("      {0}) name=\"{0} \" ;;\n", app->get_name());
  out += "    esac\n  done\n  case $before in\n";
  for (const auto& argument : valued_options(root)) out += bash_values(argument);
  out += "  esac\n  case $name in\n";
  for (const auto* app : running(root)) out += bash_options(*app);
  for (const auto* app : subcommands(root))
    if (is_group(*app))
      out += fmt::format("    \"{} \") _hotset_values \"{} {}\" \"$word\" ;;\n", app->get_name(),
                         words(subcommand_names(*app)), words(option_names(*app)));
  out += fmt::format("    *) _hotset_values \"{} {}\" \"$word\" ;;\n",
                     words(subcommand_names(root)), words(option_names(root)));
  return out + "  esac\n}\ncomplete -o bashdefault -o default -F _hotset hotset\n";
}

/// Text inside single quotes.
std::string quoted(std::string_view text, std::string_view escaped_quote) {
  std::string out;
  for (const char c : text) c == '\'' ? out.append(escaped_quote) : out.append(1, c);
  return out;
}

std::string zsh_description(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return quoted(out, "'\\''");
}

std::string zsh_action(const argument& argument) {
  if (argument.file) return "_files";
  if (argument.values.empty()) return " ";
  if (argument.list) return fmt::format("_sequence compadd - {}", words(argument.values));
  return fmt::format("({})", words(argument.values));
}

std::string zsh_argument(const argument& argument) {
  if (argument.name.empty()) return fmt::format("'*:argument:{}'", zsh_action(argument));
  const auto text = zsh_description(argument.description);
  if (!argument.takes_value) return fmt::format("'{}[{}]'", argument.name, text);
  return fmt::format("'*{}=[{}]:value:{}'", argument.name, text, zsh_action(argument));
}

std::string zsh_subcommand(const CLI::App& app);

std::string zsh_group(const CLI::App& app) {
  auto out = fmt::format(
      "        {})\n          if (( CURRENT == 2 )); then compadd {}; return; fi\n"
      "          shift words; (( CURRENT-- ))\n          case $words[1] in\n",
      app.get_name(), words(subcommand_names(app)));
  for (const auto* one : subcommands(app)) out += zsh_subcommand(*one);
  return out + "          esac ;;\n";
}

std::string zsh_subcommand(const CLI::App& app) {
  if (is_group(app)) return zsh_group(app);
  std::string out = fmt::format("        {}) _arguments", app.get_name());
  bool positional = false;
  for (const auto& argument : arguments_of(app)) {
    if (argument.name.empty() && std::exchange(positional, true)) continue;
    out += " \\\n          " + zsh_argument(argument);
  }
  return out + " ;;\n";
}

std::string zsh_script(const CLI::App& root) {
  std::string out =
      "#compdef hotset\n# zsh completion for hotset; use it with: source <(hotset completion zsh)\n"
      "_hotset() {\n  local context state state_descr line\n  typeset -A opt_args\n"
      "  local -a commands\n  commands=(\n";
  for (const auto* app : subcommands(root))
    out += fmt::format("    '{}:{}'\n", app->get_name(), zsh_description(app->get_description()));
  out += "  )\n  _arguments -C \\\n";
  for (const auto& argument : arguments_of(root)) out += "    " + zsh_argument(argument) + " \\\n";
  out +=
      "    '1:command:->command' \\\n    '*::argument:->argument'\n  case $state in\n"
      "    command) _describe command commands ;;\n    argument)\n      case $words[1] in\n";
  for (const auto* app : subcommands(root)) out += zsh_subcommand(*app);
  return out +
         "      esac ;;\n  esac\n}\n"
         "if [[ $funcstack[1] == _hotset ]]; then _hotset \"$@\"; else compdef _hotset hotset; "
         "fi\n";
}

std::string fish_values(const argument& argument) {
  if (argument.file) return " -r -F";
  if (argument.values.empty()) return " -x";
  const auto all = fmt::format("{}", fmt::join(argument.values, " "));
  if (argument.list)
    return fmt::format(" -x -a '(__fish_complete_list , \"printf %s\\\\\\\\n {}\")'", all);
  return fmt::format(" -x -a '{}'", all);
}

std::string fish_argument(const argument& argument, const std::string& condition) {
  const auto line = fmt::format("complete -c hotset -n '{}'", condition);
  if (argument.name.empty())
    return argument.file ? line + " -F\n" : line + fish_values(argument) + '\n';
  return fmt::format("{} -l {} -d '{}'{}\n", line, argument.name.substr(2),
                     quoted(argument.description, "\\'"),
                     argument.takes_value ? fish_values(argument) : "");
}

constexpr std::string_view fish_seen_word = "__fish_seen_subcommand_from";

/// True where a subcommand was named. A group may have one of the same name as the program.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the root, then what is below it
std::string fish_seen(const CLI::App& root, const CLI::App& app) {
  const auto* const group = app.get_parent();
  auto out = fmt::format("{} {}", fish_seen_word, app.get_name());
  if (group != &root) return fmt::format("{}; and {} {}", out, fish_seen_word, group->get_name());
  for (const auto* other : subcommands(root))
    for (const auto& name : subcommand_names(*other))
      if (name == app.get_name())
        out += fmt::format("; and not {} {}", fish_seen_word, other->get_name());
  return out;
}

std::string fish_script(const CLI::App& root) {
  std::string out =
      "# fish completion for hotset; use it with: hotset completion fish | source\n"
      "complete -c hotset -e\ncomplete -c hotset -f\n";
  for (const auto& argument : arguments_of(root))
    out += fish_argument(argument, "__fish_use_subcommand");
  for (const auto* app : subcommands(root))
    out += fmt::format("complete -c hotset -n __fish_use_subcommand -a {} -d '{}'\n",
                       app->get_name(), quoted(app->get_description(), "\\'"));
  for (const auto* app : subcommands(root))
    for (const auto* one : subcommands(*app))
      out += fmt::format("complete -c hotset -n '{}; and not {} {}' -a {} -d '{}'\n",
                         fish_seen(root, *app), fish_seen_word, words(subcommand_names(*app)),
                         one->get_name(), quoted(one->get_description(), "\\'"));
  for (const auto* app : running(root))
    for (const auto& argument : arguments_of(*app))
      out += fish_argument(argument, fish_seen(root, *app));
  return out;
}

int completion(const CLI::App& root, const std::string& shell) {
  if (shell == "bash") {
    print(bash_script(root));
  } else if (shell == "zsh") {
    print(zsh_script(root));
  } else if (shell == "fish") {
    print(fish_script(root));
  } else {
    lab::refuse_name("completion:", shell, {"bash", "zsh", "fish"});
  }
  return ok;
}

}  // namespace

std::vector<option_values> known_values() {
  return {{"--eviction", eviction_values(), true},
          {"--admission", lab::admission_names(), true},
          {"--preset", preset_values(), true},
          {"--prefetch", lab::prefetch_names(), true},
          {"--prefetch-guard", lab::guard_names(), true},
          {"--prefetch-order", lab::fill_order_names(), true},
          {"--predictor", lab::predictor_names(false, true), true},
          {"--compare", {"systems"}, false},
          {"--stride", {"aligned"}, false},
          {"--miss", lab::miss_names(), true},
          {"--routing", lab::routing_names(), true},
          {"--scope", {"shared", "per-layer"}, true},
          {"--replay", {"event-atomic", "deferred", "per-access", "expert-by-expert"}, true},
          {"--method", {"exact", "shards:0.01", "shards:8192"}, true},
          {"--model", lab::model_names(), false},
          {"--split", {"by-token", "by-expert", "leave-rest"}, false},
          {"--parallel", {"expert", "tensor"}, false},
          {"--format", format_values(), false},
          {"--as", {"decode", "decode:4", "prefill", "prefill:512"}, false},
          {"--to", {"native", "esft", "oracle-general"}, false},
          {"--predictor-noise", {"exchange:0.2", "gaussian:0.5"}, false},
          {"SHELL", {"bash", "zsh", "fish"}, false}};
}

command add_completion(CLI::App& root) {
  auto* app = root.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash, zsh or fish")->required()->type_name("NAME");
  app->footer(R"(Examples:
  source <(hotset completion bash)
  hotset completion bash > /etc/bash_completion.d/hotset
  hotset completion zsh > "${fpath[1]}/_hotset"
  hotset completion fish > ~/.config/fish/completions/hotset.fish)");
  return {app, [&root, shell] { return completion(root, *shell); }};
}

}  // namespace hotset::cli
