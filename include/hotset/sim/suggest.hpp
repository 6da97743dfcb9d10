// SPDX-License-Identifier: Apache-2.0
#pragma once
/// "did you mean": the known name that a mistyped one is closest to, in the one form that messages have.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotset::inline v0::sim {

/// The known name that takes fewest edits (a letter more, less or other, two neighbours exchanged), or that the text
/// begins; case, '-' and '_' do not count.
/// Returns nothing where no name is close, so that a wrong guess is rarer than none.
[[nodiscard]] std::string nearest_name(std::string_view text, std::span<const std::string> known);

/// " (did you mean lru?)", or nothing.
[[nodiscard]] std::string did_you_mean(std::string_view text, std::span<const std::string> known);

/// Errors: always throws usage_error "<what> '<text>' (did you mean lru?), accepted: <known>".
[[noreturn]] void refuse_name(std::string_view what, std::string_view text,
                              const std::vector<std::string>& known, std::string_view more = "");

}  // namespace hotset::inline v0::sim
