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

/// Keys of an object, and of the one around it where the inner one lacks them. A key that is null is missing.
/// Errors: trace_error that names the key, what was found and what is accepted.
class config_keys {
 public:
  using json = nlohmann::json;

  static constexpr std::uint64_t most_extent = std::uint64_t{1} << 24U;

  /// Pre: both are objects and outlive this. Messages put `prefix` before a key.
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the inner one is asked first
  config_keys(const json& inner, const json& outer, std::string file, std::string_view prefix = {})
      : inner_(inner), outer_(outer), file_(std::move(file)), prefix_(prefix) {}

  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// Returns nullptr where the key is missing or null.
  [[nodiscard]] const json* find(std::string_view key) const;

  /// A number, or a list of one number again and again, as some families have one for each layer.
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view key, std::uint64_t least = 1,
                                                    std::uint64_t most = most_extent) const;
  [[nodiscard]] std::uint64_t need(std::string_view key, std::uint64_t least = 1,
                                   std::uint64_t most = most_extent) const;
  /// The first of several names of one thing that is there.
  [[nodiscard]] std::optional<std::uint64_t> any(std::initializer_list<std::string_view> keys,
                                                 std::uint64_t least = 1) const;
  [[nodiscard]] std::uint64_t need_any(std::initializer_list<std::string_view> keys) const;
  /// A number above 0 that may have a fraction.
  [[nodiscard]] std::optional<double> real(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  /// Integers of 0 or more; where `size` is not 0, as many as that.
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> numbers(std::string_view key,
                                                                  std::size_t size = 0) const;
  [[nodiscard]] std::optional<std::vector<std::string>> words(std::string_view key,
                                                              std::size_t size = 0) const;
  [[nodiscard]] const json* object(std::string_view key) const;

  [[noreturn]] void refuse(std::string_view key, const std::string& found,
                           const std::string& accepted) const;

 private:
  const json& inner_;
  const json& outer_;
  std::string file_;
  std::string prefix_;
};

}  // namespace hotset::lab
