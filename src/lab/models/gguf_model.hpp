// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The memory model of a GGUF file: bytes from its tensors, the cache from its metadata.

#include <filesystem>

#include "lab/models/model_description.hpp"

namespace hotset::lab {

/// Errors: trace_error.
[[nodiscard]] model_description describe_gguf(const std::filesystem::path& path,
                                              const model_options& options);

}  // namespace hotset::lab
