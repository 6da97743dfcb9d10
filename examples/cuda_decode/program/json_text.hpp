// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes JSON objects, arrays and values in call order.

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

namespace cuda_decode {

class json_text {
 public:
  json_text& begin_object(std::string_view key = {}) { return open(key, '{'); }
  json_text& end_object() { return close('}'); }
  json_text& begin_array(std::string_view key = {}) { return open(key, '['); }
  json_text& end_array() { return close(']'); }

  json_text& add(std::string_view key, std::string_view value) {
    begin_value(key);
    quote(value);
    return *this;
  }
  json_text& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  json_text& add(std::string_view key, bool value) {
    begin_value(key);
    text_ += value ? "true" : "false";
    return *this;
  }
  template <class Number>
    requires(std::integral<Number> || std::floating_point<Number>)
  json_text& add(std::string_view key, Number value) {
    begin_value(key);
    if constexpr (std::floating_point<Number>)
      if (!std::isfinite(value)) {
        text_ += "null";
        return *this;
      }
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    text_.append(digits.data(), end.ptr);
    return *this;
  }
  /// Pre: every begin has its end.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void begin_value(std::string_view key) {
    if (!first_) text_ += ',';
    first_ = false;
    if (key.empty()) return;
    quote(key);
    text_ += ':';
  }
  json_text& open(std::string_view key, char bracket) {
    begin_value(key);
    text_ += bracket;
    first_ = true;
    return *this;
  }
  json_text& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  void quote(std::string_view value) {
    constexpr std::string_view hex = "0123456789abcdef";
    text_ += '"';
    for (const char c : value) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (byte < 0x20) {
        text_ += "\\u00";
        text_ += hex[byte >> 4U];
        text_ += hex[byte & 0xfU];
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace cuda_decode
