// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The memory model of a GGUF file: bytes from its tensors, the cache from its metadata.

#include <filesystem>

#include "hotset/sim/models/model_description.hpp"

namespace hotset::sim {

/// Errors: trace_error.
[[nodiscard]] model_description describe_gguf(const std::filesystem::path& path,
                                              const model_options& options);

}  // namespace hotset::sim
