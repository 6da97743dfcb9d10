// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The storage of a checkpoint's linear layers, by the quantization_config of a Hugging Face config.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// The methods that are read, for messages.
inline constexpr std::string_view known_quantisations =
    "awq, gptq, auto-round, compressed-tensors, fp8, fbgemm_fp8, mxfp4, mlx, or modelopt with "
    "NVFP4 or FP8";

/// Fills the codes of the modules, those that layers store otherwise, the bits of the cache that the checkpoint declares,
/// and notes of what was assumed. A format that is not known, or a pattern of modules that is not understood, sets
/// unknown_format. Pre: the shape's layers, dtype, experts and mixers are read; format is an object.
/// Errors: trace_error for values that no format has.
void read_quantisation(const nlohmann::json& format, const std::string& file, model_shape& shape);

}  // namespace hotset::lab
