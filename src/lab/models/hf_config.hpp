// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads the shape of a MoE decoder from a Hugging Face config.json.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Options that describe a model without a reader.
inline constexpr std::string_view hand_options =
    "--layers --experts --top-k --expert-bytes --kv-bytes-per-token, and --resident-bytes";

/// The config of a model known by name, reduced to the keys that decide sizes.
struct model_preset {
  std::string_view name;
  std::string_view config;  ///< JSON
};
[[nodiscard]] std::span<const model_preset> model_presets() noexcept;

/// The accepted values of model_type, in one line.
[[nodiscard]] std::string hf_model_types();

/// Keys of a config of an unknown family that have the same meaning in every family.
struct unknown_family {
  std::string type;  ///< model_type
  std::optional<std::uint64_t> top_k{};
  std::uint64_t layers = 0;       ///< 0: unknown
  std::uint64_t max_context = 0;  ///< tokens; 0: unknown
};
/// Returns nothing for a config that parse_hf_config() reads. Errors: those of parse_hf_config().
[[nodiscard]] std::optional<unknown_family> read_unknown_family(std::string_view text,
                                                                const std::string& file);

/// Keys that are null count as missing. `file` appears in messages. `quantisation`: the text of an
/// hf_quant_config.json beside it, used if the config itself has none; empty: there is none.
/// Errors: trace_error, one line: the key, the found and the accepted value.
[[nodiscard]] model_shape parse_hf_config(std::string_view text, std::string_view quantisation,
                                          const std::string& file);

}  // namespace hotset::lab
