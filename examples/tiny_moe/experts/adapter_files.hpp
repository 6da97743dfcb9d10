// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Adapters of the model in folders: expert_cfg.json beside the tuned experts' weights, as ESFT's are.

#include <filesystem>
#include <string>

#include "hotset/lab/adapter_checkpoint.hpp"
#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// As the model's file has its experts: three weights of a matrix each, at 16 bits; layers are numbered from 0.
[[nodiscard]] hotset::lab::adapter_format format_of(const model_config& shape);

/// What the adapter in a folder is called: as the folder itself.
[[nodiscard]] std::string adapter_name(const std::filesystem::path& folder);

/// Errors: hotset::trace_error, one line: file, tensor or key, what was found, what is accepted.
[[nodiscard]] adapter_weights read_adapter(const model_config& shape,
                                           const std::filesystem::path& folder);

/// A layer's experts are listed in ascending order. Pre: the adapter is one of such a model.
/// Errors: std::runtime_error for a file that cannot be written.
void write_adapter(const std::filesystem::path& folder, const model_config& shape,
                   const adapter_weights& adapter);

}  // namespace tiny_moe
