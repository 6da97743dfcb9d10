// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Quotes texts for a shell.

#include <algorithm>
#include <string>
#include <string_view>

namespace hotset::lab {

/// A text, such as a file's name, as a shell's word.
[[nodiscard]] inline std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("./_-+=,:@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace hotset::lab
