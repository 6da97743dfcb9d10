// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Builds predictors' reasons to refuse a configuration: each names the value and the accepted range.

#include <cstdint>
#include <string>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset::detail {

/// Maximum memory in bytes of one predictor, or of a part that documents it.
inline constexpr std::uint64_t most_predictor_bytes = std::uint64_t{1} << 34U;

/// Formats a shape as "48 layers x 128 experts".
template <class Number>
[[nodiscard]] std::string shape_text(Number layers, Number experts) {
  return std::to_string(layers) + " layers x " + std::to_string(experts) + " experts";
}

/// Refuses a predictor that needs more than most_predictor_bytes for a shape.
[[nodiscard]] inline validation refuse_bytes(std::string_view name, const geometry& shape,
                                             std::uint64_t bytes) {
  if (bytes <= most_predictor_bytes) return std::nullopt;
  return refusal(name, " of ", shape_text(shape.layers, shape.experts), " needs ", bytes,
                 " bytes for visits of ", shape.max_tokens_per_visit, " tokens, accepted: at most ",
                 most_predictor_bytes);
}
/// Returns why a predictor cannot be made: errors of the shape or the options, more layers ahead than the model has,
/// or more than most_predictor_bytes. `bytes_of` is called only for valid options.
template <class Config>
[[nodiscard]] validation refuse_predictor(std::string_view name, const geometry& shape,
                                          const Config& options,
                                          std::uint64_t (*bytes_of)(const geometry&,
                                                                    const Config&) noexcept) {
  if (auto bad = shape.validate()) return bad;
  if (auto bad = options.validate()) return bad;
  if (auto bad = within(std::string(name) + " depth", options.depth, 1, shape.layers, "layers"))
    return bad;
  return refuse_bytes(name, shape, bytes_of(shape, options));
}
/// Returns the object that `make` builds. Errors: no host memory.
template <class Make>
[[nodiscard]] auto or_no_memory(Make make) -> result<decltype(make())> {
  using made = result<decltype(make())>;
  return unless_out_of_memory([&]() -> made { return make(); }, made(no_host_memory()));
}

}  // namespace hotset::detail
