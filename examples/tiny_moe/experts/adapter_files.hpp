// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Adapters of the model in folders, in ESFT's format: expert_cfg.json and the tuned experts' weights.

#include <filesystem>
#include <string>

#include "hotset/lab/adapter_checkpoint.hpp"
#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Format of the model's file: three weights of one matrix each, at 16 bits; layers are numbered from 0.
[[nodiscard]] hotset::lab::adapter_format format_of(const model_config& shape);

/// Name of the adapter in a folder: the folder's name.
[[nodiscard]] std::string adapter_name(const std::filesystem::path& folder);

/// Errors: hotset::trace_error, one line: file, tensor or key, the found and the accepted value.
[[nodiscard]] adapter_weights read_adapter(const model_config& shape,
                                           const std::filesystem::path& folder);

/// Lists a layer's experts in ascending order. Pre: the adapter belongs to such a model.
/// Errors: std::runtime_error for a file that cannot be written.
void write_adapter(const std::filesystem::path& folder, const model_config& shape,
                   const adapter_weights& adapter);

}  // namespace tiny_moe
