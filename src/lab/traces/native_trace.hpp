// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads hotset's native trace, a safetensors file (written by trace/native_trace_writer.hpp).

#include <filesystem>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/safetensors.hpp"

namespace hotset::lab {

/// Half-precision arrays stay in the mapped file, which the trace keeps open.
/// Errors: trace_error: file, tensor, accepted values.
[[nodiscard]] routing_trace read_native_trace(const std::filesystem::path& path);

}  // namespace hotset::lab
