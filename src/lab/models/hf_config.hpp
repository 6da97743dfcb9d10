// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The shape of a MoE decoder, read from a Hugging Face config.json.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Options by which a model that no reader knows is planned for.
inline constexpr std::string_view hand_options =
    "--layers --experts --top-k --expert-bytes --kv-bytes-per-token, and --resident-bytes";

/// A config of a model that is known by name, cut down to the keys that decide bytes.
struct model_preset {
  std::string_view name;
  std::string_view config;  ///< JSON
};
[[nodiscard]] std::span<const model_preset> model_presets() noexcept;

/// The accepted values of model_type, in one line.
[[nodiscard]] std::string hf_model_types();

/// Keys of a config of an unknown family that mean the same in every family.
struct unknown_family {
  std::string type;  ///< model_type
  std::optional<std::uint64_t> top_k{};
  std::uint64_t layers = 0;       ///< 0: unknown
  std::uint64_t max_context = 0;  ///< tokens; 0: unknown
};
/// Nothing for a config that parse_hf_config() reads. Errors: as parse_hf_config().
[[nodiscard]] std::optional<unknown_family> read_unknown_family(std::string_view text,
                                                                const std::string& file);

/// Keys that are null count as missing. `file` stands in messages. `quantisation`: the text of an hf_quant_config.json
/// beside it, which counts where the config itself says nothing; empty: there is none.
/// Errors: trace_error, one line: the key, what was found, what is accepted.
[[nodiscard]] model_shape parse_hf_config(std::string_view text, std::string_view quantisation,
                                          const std::string& file);

}  // namespace hotset::lab
