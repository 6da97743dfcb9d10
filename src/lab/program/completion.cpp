// SPDX-License-Identifier: Apache-2.0
// hotset completion: shell scripts that ask the program for the possible next words.
#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "hotset/registry/parameters.hpp"
#include "lab/errors.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/help.hpp"

namespace hotset::cli {
namespace {

// Each script prints "word<TAB>description" lines of `hotset complete`. Without any, the shell completes file names.
constexpr std::string_view bash_script =
    R"(# bash completion for hotset; use it with: source <(hotset completion bash)
_hotset() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("${line%%$'\t'*}")
    [[ $line == *'separated by commas' ]] && compopt -o nospace 2>/dev/null
  done < <(hotset complete "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
}
complete -o bashdefault -o default -F _hotset hotset
)";
constexpr std::string_view zsh_script =
    R"(#compdef hotset
# zsh completion for hotset; use it with: source <(hotset completion zsh)
_hotset() {
  local -a found
  found=("${(@f)$(hotset complete "${(@)words[1,CURRENT]}" 2>/dev/null)}")
  found=("${(@)found//:/\\:}")
  found=("${(@)found/$'\t'/:}")
  if [[ -n $found[1] ]]; then _describe hotset found; else _files; fi
}
if [[ $funcstack[1] == _hotset ]]; then _hotset "$@"; else compdef _hotset hotset; fi
)";
constexpr std::string_view fish_script =
    R"(# fish completion for hotset; use it with: hotset completion fish | source
function __hotset_complete
    set -l word (commandline -ct)
    set -l found (hotset complete (commandline -opc) "$word" 2>/dev/null)
    if test -n "$found"
        printf '%s\n' $found
    else
        __fish_complete_path "$word"
    end
end
complete -c hotset -e
complete -c hotset -f -a '(__hotset_complete)'
)";

/// Removes text in parentheses, with the space before it.
std::string without_notes(std::string_view text) {
  std::string out;
  int depth = 0;
  for (const char c : text) {
    if (c == '(' && depth++ == 0 && out.ends_with(' ')) out.pop_back();
    if (depth == 0) out += c;
    if (c == ')' && depth > 0) --depth;
  }
  return out;
}

bool is_value(std::string_view word) {
  return !word.empty() && std::ranges::none_of(word, [](unsigned char c) {
    return std::isspace(c) != 0 || std::isupper(c) != 0;
  });
}

/// Values listed in an option's help: "title: a, b (a note), c; more: d". Files and numbers are skipped.
std::vector<std::string> values_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  if (is_value(type)) return {type};  // the only value
  constexpr std::string_view named[] = {"NAME", "LIST", "SHAPE", "MODEL", "KIND:N"};
  std::vector<std::string> out;
  if (std::ranges::find(named, type) == std::end(named)) return out;
  const auto text = without_notes(option.get_description());
  for (auto list : detail::split_at(text, ';')) {
    if (const auto colon = list.rfind(": "); colon != list.npos) list.remove_prefix(colon + 1);
    for (auto word : detail::split_at(list, ',')) {
      if (word.starts_with(' ')) word.remove_prefix(1);
      if (is_value(word)) out.emplace_back(word);
    }
  }
  return out;
}

/// Completes the last of the words; the first is the program.
class completer {
 public:
  completer(const CLI::App& root, std::vector<std::string> words)
      : app_(&root), words_(std::move(words)) {}

  [[nodiscard]] std::string lines() {
    if (words_.size() < 2) return {};
    for (std::size_t i = 1; i + 1 < words_.size(); ++i)
      if (const auto* const app = find_subcommand(*app_, words_[i]); app && words_[i] != "help")
        app_ = app;
    if (const auto* const option = option_with_value()) {
      offer_values(*option);
    } else if (word_.starts_with('-')) {
      for (const auto* one : app_->get_options())
        for (const auto& name : one->get_lnames()) offer("--" + name, one->get_description());
    } else {
      for (const auto* app : subcommands_of(*app_)) offer(app->get_name(), app->get_description());
      for (const auto* one : app_->get_options())
        if (one->get_positional()) offer_values(*one);
    }
    return out_;
  }

 private:
  /// The option whose value is the last word. Readline splits "--eviction=lru" into three words; other shells keep
  /// one.
  const CLI::Option* option_with_value() {
    word_ = words_.back();
    words_.pop_back();
    if (word_ == "=")
      word_.clear();
    else if (words_.back() == "=")
      words_.pop_back();
    auto name = words_.back();
    if (const auto end = word_.find('='); word_.starts_with("--") && end != word_.npos) {
      name = word_.substr(0, end);
      before_ = word_.substr(0, end + 1);
      word_.erase(0, end + 1);
    }
    const auto* const option = name.starts_with('-') ? app_->get_option_no_throw(name) : nullptr;
    return option != nullptr && option->get_items_expected_max() > 0 ? option : nullptr;
  }

  void offer_values(const CLI::Option& option) {
    const bool is_list = option.get_type_name() == "LIST";
    if (const auto comma = word_.rfind(','); is_list && comma != word_.npos) {
      before_ += word_.substr(0, comma + 1);
      word_.erase(0, comma + 1);
    }
    for (const auto& value : values_of(option))
      offer(value, is_list ? "one or more, separated by commas" : "");
  }

  void offer(const std::string& word, const std::string& description) {
    if (word.starts_with(word_)) out_ += fmt::format("{}{}\t{}\n", before_, word, description);
  }

  const CLI::App* app_;
  std::vector<std::string> words_;
  std::string word_;    ///< part to complete
  std::string before_;  ///< part of the word that stays
  std::string out_;
};

int completion(const std::string& shell) {
  constexpr std::string_view scripts[] = {bash_script, zsh_script, fish_script};
  print(scripts[lab::choice_of<std::size_t>("completion:", shell, {"bash", "zsh", "fish"})]);
  return ok;
}

}  // namespace

command add_complete(CLI::App& root) {
  auto* app = root.add_subcommand("complete", "Print the possible next words");
  app->group("")->prefix_command();
  return {app, [&root, app] {
            print(completer(root, app->remaining()).lines());
            return static_cast<int>(ok);
          }};
}

command add_completion(CLI::App& root) {
  auto* app = root.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash, zsh, fish")->required()->type_name("NAME");
  app->footer(R"(Examples:
  source <(hotset completion bash)
  hotset completion bash > /etc/bash_completion.d/hotset
  hotset completion zsh > "${fpath[1]}/_hotset"
  hotset completion fish > ~/.config/fish/completions/hotset.fish)");
  return {app, [shell] { return completion(*shell); }};
}

}  // namespace hotset::cli
