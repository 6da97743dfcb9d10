// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Folds text to the width of the terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace hotset::lab {

/// Columns of the terminal on standard output; COLUMNS if set; 100 if there is neither.
[[nodiscard]] std::size_t output_width();

/// Formats "label      value" as a line whose value begins at column 19.
[[nodiscard]] std::string labelled(std::string_view label, std::string_view value);

/// Breaks a line of more than `width` characters at spaces; continuation lines begin with `indent` spaces.
[[nodiscard]] std::string folded_line(std::string_view line, std::size_t width, std::size_t indent);
/// Breaks lines of more than `width` characters. Continuations are aligned with the value after "label      value",
/// "note: " or "name: ". Lines that begin with a space are kept: they are tables, or meant to be pasted. Width 0: no
/// breaks.
[[nodiscard]] std::string folded(const std::string& text, std::size_t width);

}  // namespace hotset::lab
