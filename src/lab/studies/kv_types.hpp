// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Types of an element of the KV cache, and their names in engines.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// A type that an engine lacks has an empty name there, or is below 0.
struct kv_type {
  std::string_view name{};  ///< llama.cpp's, too; empty: the engine's default
  double bits = 0;          ///< of an element, with scales
  int ggml = -1;            ///< llama.cpp's number
  std::string_view vllm{}, sglang{};

  [[nodiscard]] bool is_default() const noexcept { return vllm == "auto"; }
  /// llama.cpp needs flash attention for values of this type.
  [[nodiscard]] bool is_quantised() const noexcept { return bits < 16; }
};

/// If several types have as many bits, the bits alone mean the first of them.
inline constexpr std::array<kv_type, 15> kv_types = {{
    {"", 16, 1, "auto", "auto"},
    {"f32", 32, 0, "", ""},
    {"f16", 16, 1, "float16", ""},
    {"bf16", 16, 30, "bfloat16", "bf16"},
    {"q8_0", 8.5, 8, "", ""},
    {"fp8", 8, -1, "fp8", "fp8_e4m3"},
    {"fp8_e4m3", 8, -1, "fp8_e4m3", "fp8_e4m3"},
    {"fp8_e5m2", 8, -1, "fp8_e5m2", "fp8_e5m2"},
    {"int8", 8, -1, "", ""},
    {"q5_1", 6, 7, "", ""},
    {"q5_0", 5.5, 6, "", ""},
    {"q4_1", 5, 3, "", ""},
    {"q4_0", 4.5, 2, "", ""},
    {"iq4_nl", 4.5, 20, "", ""},
    {"nvfp4", 4.5, -1, "nvfp4", "nvfp4"},
}};

/// The request's type by name, else by bits. No engine has a type of other bits.
[[nodiscard]] inline kv_type kv_type_of(const plan_request& r) noexcept {
  const auto* const at = r.kv_type.empty() ? std::ranges::find(kv_types, r.kv_bits, &kv_type::bits)
                                           : std::ranges::find(kv_types, r.kv_type, &kv_type::name);
  return at == kv_types.end() ? kv_type{} : *at;
}

/// Why an engine without the request's type cannot serve the model.
[[nodiscard]] inline std::string no_kv_type(const plan_request& r) {
  return r.kv_type.empty() ? fmt::format("it has no KV cache of {} bits", r.kv_bits)
                           : fmt::format("it has no KV cache of {}", r.kv_type);
}

}  // namespace hotset::lab
