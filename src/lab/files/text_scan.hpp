// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Scans lines and fields of text inputs; errors name the place.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/files/input_error.hpp"
#include "lab/progress.hpp"

namespace hotset::lab {

[[nodiscard]] inline std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r";
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

[[nodiscard]] std::string lower_case(std::string_view text);

[[nodiscard]] inline bool has_any(std::string_view text,
                                  std::initializer_list<std::string_view> words) noexcept {
  return std::ranges::any_of(words, [&](auto word) { return text.find(word) != text.npos; });
}

/// The whole field as a number, or nothing. `format`: none, or a std::chars_format.
template <class T, class... Format>
[[nodiscard]] std::optional<T> parse_number(std::string_view field, Format... format) noexcept {
  T value{};
  const auto* const end = field.data() + field.size();
  const auto [rest, code] = std::from_chars(field.data(), end, value, format...);
  if (code != std::errc{} || rest != end) return std::nullopt;
  return value;
}

/// The whole field as an integer, or nothing; pandas writes integers beside missing values as "3.0".
[[nodiscard]] inline std::optional<std::int64_t> parse_integer(std::string_view field) noexcept {
  if (const auto value = parse_number<std::int64_t>(field)) return value;
  const auto value = parse_number<double>(field);
  const bool whole = value && std::abs(*value) < 0x1p53 && *value == std::floor(*value);
  return whole ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt;
}

/// A finite number, or nothing.
[[nodiscard]] inline std::optional<float> parse_weight(std::string_view field) noexcept {
  const auto value = parse_number<float>(field);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// The divider of a header: comma, semicolon, tab or bar, in this order; a comma if it has none.
[[nodiscard]] char divider_of(std::string_view header) noexcept;

/// Fields without surrounding blanks and quotes. Returns false if a quote is not closed.
[[nodiscard]] bool split_fields(std::string_view line, char divider,
                                std::vector<std::string_view>& fields);

/// Reads text line by line; a carriage return before the line end is removed.
class line_scanner {
 public:
  line_scanner(std::string file, std::string_view text)
      : file_(std::move(file)), rest_(text), size_(text.size()), progress_(text.size()) {}

  bool next(std::string_view& line) {
    progress_.at(size_ - rest_.size());
    if (rest_.empty()) return false;
    const auto end = rest_.find('\n');
    line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number_;
    return true;
  }
  /// Reads the next line that is neither blank nor a comment (#), without surrounding blanks.
  bool next_row(std::string_view& row) {
    while (next(row)) {
      row = trimmed(row);
      if (!row.empty() && row.front() != '#') return true;
    }
    return false;
  }
  /// Number of the last line read, from 1.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  [[noreturn]] void refuse(std::string_view found, std::string_view accepted) const {
    refuse_input(file_, "line " + std::to_string(number_), found, accepted);
  }

  /// Errors: trace_error if a quote is not closed. The next call overwrites the result.
  const std::vector<std::string_view>& fields(std::string_view row, char divider = ',');
  /// Errors: trace_error unless the field is an integer in [least, most].
  template <class T = std::int32_t>
  [[nodiscard]] T integer(std::string_view field, std::string_view what, std::int64_t least,
                          std::int64_t most) const {
    const auto value = parse_integer(trimmed(field));
    if (!value || *value < least || *value > most) refuse_integer(field, what, least, most);
    return static_cast<T>(*value);
  }
  /// Errors: trace_error unless the field is a finite number.
  [[nodiscard]] float weight(std::string_view field) const {
    const auto value = parse_weight(trimmed(field));
    if (!value) refuse("weight is '" + printable(field) + "'", "a finite number");
    return *value;
  }

 private:
  [[noreturn]] void refuse_integer(std::string_view field, std::string_view what,
                                   std::int64_t least, std::int64_t most) const;

  std::string file_;
  std::string_view rest_;
  std::size_t size_;
  progress progress_;
  std::uint64_t number_ = 0;
  std::vector<std::string_view> fields_;
};

}  // namespace hotset::lab
