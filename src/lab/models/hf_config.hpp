// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads the shape of a MoE decoder from a Hugging Face config.json.

#include <string>
#include <string_view>

#include "lab/models/model_description.hpp"
#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Options that describe a model without a reader.
inline constexpr std::string_view hand_options =
    "--layers --experts --top-k --expert-bytes --kv-bytes-per-token, and --resident-bytes";

/// The config of a model of model_names(), reduced to the keys that decide sizes; empty: another name.
[[nodiscard]] std::string preset_config(std::string_view name);
/// Numbers of the defaults of a model_type's class in transformers, as a JSON object; "{}": not known here.
[[nodiscard]] std::string class_defaults(std::string_view type);

/// Reads a config by its keys, whatever its model_type; a note tells what was taken as usual for an unknown one. Keys
/// that are null count as missing. `file` appears in messages. `quantisation`: the text of an hf_quant_config.json
/// beside it, used if the config itself has none; empty: there is none. `given`: figures of another source, whose keys
/// may be missing.
/// Errors: trace_error, one line: the key, the found and the accepted value, and the option that gives the figure.
[[nodiscard]] model_shape parse_hf_config(std::string_view text, std::string_view quantisation,
                                          const std::string& file, const model_by_hand& given);

}  // namespace hotset::lab
