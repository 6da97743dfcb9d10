// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a checkpoint's linear layers are stored, as the quantization_config of a Hugging Face config says it.

#include <string_view>

#include "sim/models/config_keys.hpp"
#include "sim/models/model_shape.hpp"

namespace hotset::inline v0::sim {

/// What is read, for messages.
inline constexpr std::string_view known_quantisations =
    "awq, gptq, auto-round, compressed-tensors, fp8, fbgemm_fp8, mxfp4, or modelopt with NVFP4 or "
    "FP8";

/// Fills the codes of the parts, the parts that layers leave plain, and notes of what was assumed. A format that is not
/// known sets unknown_format. Pre: the shape's layers, dtype and mixers are read.
/// Errors: trace_error for values that no format has.
void read_quantisation(const config_keys& format, model_shape& shape);

}  // namespace hotset::inline v0::sim
