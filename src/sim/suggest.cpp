// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/suggest.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/sim/errors.hpp"
#include "hotset/sim/io/input_error.hpp"

namespace hotset::inline v0::sim {
namespace {

constexpr std::size_t longest_name = 64;  // nobody mistypes more than that

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else
      out += c == '_' ? '-' : c;
  }
  return out;
}

/// Optimal string alignment: edits, of which no letter takes two.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto other = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

/// What a name costs, or no less than `never`.
constexpr std::size_t never = 2 * longest_name;
std::size_t distance(const std::string& text, const std::string& name) {
  const auto letters = std::min(text.size(), name.size());
  const auto found = edits(text, name);
  if (found <= std::max<std::size_t>(1, letters / 3) && found < letters) return found;
  // A name cut short is behind any misspelt one.
  if (text.size() >= 3 && name.starts_with(text)) return longest_name + name.size() - text.size();
  return never;
}

}  // namespace

std::string nearest_name(std::string_view text, std::span<const std::string> known) {
  if (text.empty() || text.size() > longest_name) return {};
  const auto wanted = plain(text);
  std::string best;
  auto least = never;
  for (const auto& name : known) {
    if (name.size() > longest_name) continue;
    const auto found = distance(wanted, plain(name));
    if (found >= least) continue;
    least = found;
    best = name;
  }
  return best;
}

std::string did_you_mean(std::string_view text, std::span<const std::string> known) {
  const auto name = nearest_name(text, known);
  return name.empty() ? name : fmt::format(" (did you mean {}?)", name);
}

void refuse_name(std::string_view what, std::string_view text,
                 const std::vector<std::string>& known, std::string_view more) {
  throw usage_error(fmt::format("{} '{}'{}; accepted: {}{}", what, printable(text),
                                did_you_mean(text, known), fmt::join(known, ", "), more));
}

}  // namespace hotset::inline v0::sim
