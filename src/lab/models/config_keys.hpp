// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Typed access to the keys of a config.json.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace hotset::lab {

/// Keys of an object; missing ones are looked up in the enclosing object. A key with value null is missing.
/// Errors: trace_error with the key, the found and the accepted value.
class config_keys {
 public:
  using json = nlohmann::json;

  static constexpr std::uint64_t most_extent = std::uint64_t{1} << 24U;

  /// Pre: both are objects and outlive this. Messages put `prefix` before a key.
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the inner object is searched first
  config_keys(const json& inner, const json& outer, std::string file, std::string_view prefix = {})
      : inner_(inner), outer_(outer), file_(std::move(file)), prefix_(prefix) {}

  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// Returns nullptr if the key is missing or null.
  [[nodiscard]] const json* find(std::string_view key) const;

  /// A number, or a list that repeats one number, as some families have for each layer.
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view key, std::uint64_t least = 1,
                                                    std::uint64_t most = most_extent) const;
  [[nodiscard]] std::uint64_t need(std::string_view key, std::uint64_t least = 1,
                                   std::uint64_t most = most_extent) const;
  /// The first of several alternative keys that is present.
  [[nodiscard]] std::optional<std::uint64_t> any(std::initializer_list<std::string_view> keys,
                                                 std::uint64_t least = 1) const;
  /// `otherwise` is added to the accepted values: what else helps.
  [[nodiscard]] std::uint64_t need_any(std::initializer_list<std::string_view> keys,
                                       std::uint64_t least = 1,
                                       const std::string& otherwise = {}) const;
  /// A number above 0, possibly with a fraction.
  [[nodiscard]] std::optional<double> real(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  /// Non-negative integers, or flags as 0 and 1; exactly `size` of them unless that is 0.
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> numbers(std::string_view key,
                                                                  std::size_t size = 0) const;
  [[nodiscard]] std::optional<std::vector<std::string>> words(std::string_view key,
                                                              std::size_t size = 0) const;
  [[nodiscard]] const json* object(std::string_view key) const;
  /// Keys that contain a word and have a value.
  [[nodiscard]] std::vector<std::string> like(std::string_view word) const;

  [[noreturn]] void refuse(std::string_view key, const std::string& found,
                           const std::string& accepted) const;

 private:
  const json& inner_;
  const json& outer_;
  std::string file_;
  std::string prefix_;
};

}  // namespace hotset::lab
