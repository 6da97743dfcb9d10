// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The text form of a policy: `lfu:history=resident`, or decorated, `protect_hot:uses=4+lru`.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotset::inline v0::sim {

/// One policy name with its parameters.
struct policy_spec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;

  /// The same text again, parameters in the given order.
  [[nodiscard]] std::string text() const;
};

/// A policy and what decorates it, outermost first; the last one is the policy itself.
/// Grammar: element ("+" element)*, element = name (":" key "=" value)*.
/// Errors: usage_error that shows the text and the grammar.
[[nodiscard]] std::vector<policy_spec> parse_policy_chain(std::string_view text);
[[nodiscard]] policy_spec parse_policy(std::string_view text);

/// Reads parameters by name and refuses those that nobody asked for.
class parameter_reader {
 public:
  explicit parameter_reader(const policy_spec& spec)
      : spec_(spec), used_(spec.parameters.size(), false) {}

  /// Errors: usage_error naming the parameter, its value and the accepted range.
  [[nodiscard]] std::uint64_t number(std::string_view key, std::uint64_t otherwise);
  [[nodiscard]] double real(std::string_view key, double otherwise);
  /// Returns the position of the value in `accepted`.
  [[nodiscard]] std::size_t choice(std::string_view key, std::vector<std::string_view> accepted,
                                   std::size_t otherwise);
  [[nodiscard]] std::string text(std::string_view key, std::string_view otherwise);
  /// Errors: usage_error for a parameter that was never read, listing those that were.
  void finish() const;

 private:
  const std::string* find(std::string_view key);

  const policy_spec& spec_;
  std::vector<bool> used_;
  std::vector<std::string> known_;
};

}  // namespace hotset::inline v0::sim
