// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Exceptions of the laboratory, by the exit code of a program.

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"

namespace hotset::lab {

/// A request that is wrong for every trace: an unknown policy, an invalid size. Exit code 2.
struct usage_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
/// A request that is too small for this trace: fewer slots than one token needs. Exit code 3.
struct infeasible_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Errors: always throws usage_error "<what> '<text>' (did you mean lru?); accepted: <known><more>".
[[noreturn]] void refuse_name(std::string_view what, std::string_view text,
                              const std::vector<std::string>& known, std::string_view more = "");
/// Returns the value whose number is the place of its name among the known ones. Errors: those of refuse_name.
template <class Value>
[[nodiscard]] Value choice_of(std::string_view what, std::string_view text,
                              const std::vector<std::string>& known) {
  const auto found = std::ranges::find(known, text);
  if (found == known.end()) refuse_name(what, text, known);
  return static_cast<Value>(found - known.begin());
}
// trace_error (core/error.hpp): a damaged or unrecognised file. Exit code 4.

}  // namespace hotset::lab
