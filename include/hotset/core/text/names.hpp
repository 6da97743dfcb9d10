// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the known name that is closest to a mistyped one, and formats the "did you mean" message.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"

namespace hotset {

/// Formats text for a message: replaces control characters by '?' and cuts longer text.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t longest = 120) {
  std::string out(text.substr(0, longest));
  std::replace_if(
      out.begin(), out.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  if (text.size() > longest) out += "...";
  return out;
}

/// Joins names: "a, b, c".
[[nodiscard]] inline std::string listed(std::span<const std::string> names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

namespace detail {

inline constexpr std::size_t longest_name = 64;  // longer texts are not typing errors
inline constexpr std::size_t never_meant = 2 * longest_name;

inline std::string plain_letters(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else
      out += c == '_' ? '-' : c;
  }
  return out;
}

/// Optimal string alignment distance: edits in which each letter is edited at most once.
inline std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto other = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

/// Edit distance of text and name; at least `never_meant` if the name is not close.
inline std::size_t name_distance(const std::string& text, const std::string& name) {
  const auto letters = std::min(text.size(), name.size());
  const auto found = edits_between(text, name);
  if (found <= std::max<std::size_t>(1, letters / 3) && found < letters) return found;
  // Ranks a name that begins with the text after every misspelt name.
  if (text.size() >= 3 && name.starts_with(text)) return longest_name + name.size() - text.size();
  return never_meant;
}

}  // namespace detail

/// Returns the known name with the fewest edits, or one that begins with the text. An edit adds, removes or replaces a
/// letter, or swaps two neighbours. Case, '-' and '_' are ignored. Returns nothing if no name is close: no suggestion
/// is better than a wrong one.
[[nodiscard]] inline std::string nearest_name(std::string_view text,
                                              std::span<const std::string> known) {
  if (text.empty() || text.size() > detail::longest_name) return {};
  const auto wanted = detail::plain_letters(text);
  std::string best;
  auto least = detail::never_meant;
  for (const auto& name : known) {
    if (name.size() > detail::longest_name) continue;
    const auto found = detail::name_distance(wanted, detail::plain_letters(name));
    if (found >= least) continue;
    least = found;
    best = name;
  }
  return best;
}

/// Returns " (did you mean lru?)", or nothing.
[[nodiscard]] inline std::string did_you_mean(std::string_view text,
                                              std::span<const std::string> known) {
  const auto name = nearest_name(text, known);
  return name.empty() ? name : " (did you mean " + name + "?)";
}

/// Builds "<what> '<text>' (did you mean lru?); accepted: <known><more>".
[[nodiscard]] inline error unknown_name(std::string_view what, std::string_view text,
                                        std::span<const std::string> known,
                                        std::string_view more = "") {
  return refusal(what, " '", printable(text), "'", did_you_mean(text, known),
                 "; accepted: ", listed(known), more);
}

}  // namespace hotset
