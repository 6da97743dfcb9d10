// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Storage format of a checkpoint's linear layers, from the quantization_config of a Hugging Face config.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Supported methods, for messages.
inline constexpr std::string_view known_quantisations =
    "awq, gptq, auto-round, compressed-tensors, fp8, fbgemm_fp8, mxfp4, mlx, or modelopt with "
    "NVFP4 or FP8";

/// Fills in the modules' codes, those that differ in a layer, the cache bits that the checkpoint declares, and notes
/// on assumptions. An unknown format, or an unknown pattern of modules, sets unknown_format. Pre: the shape's layers,
/// dtype, experts and mixers are read; format is an object.
/// Errors: trace_error for values that no format has.
void read_quantisation(const nlohmann::json& format, const std::string& file, model_shape& shape);

}  // namespace hotset::lab
