// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Text for people that fits the terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace hotset::lab {

/// Columns of the terminal that standard output is, of COLUMNS if that is set, or 100 if there is none.
[[nodiscard]] std::size_t output_width();

/// "label      value", a line of its own whose value begins at column 19.
[[nodiscard]] std::string labelled(std::string_view label, std::string_view value);

/// Breaks a line of more than `width` characters at spaces; the lines that follow begin with `indent` spaces.
[[nodiscard]] std::string folded_line(std::string_view line, std::size_t width, std::size_t indent);
/// Breaks lines of more than `width` characters. What follows stands below the value: behind "label      value",
/// "note: " or "name: ". Lines that begin with a space stay: they are tables, or to be pasted. Width 0: no breaks.
[[nodiscard]] std::string folded(const std::string& text, std::size_t width);

}  // namespace hotset::lab
