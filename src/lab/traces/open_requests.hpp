// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Opens a request trace of any known format, which it recognises by its beginning: Mooncake's or Azure's.

#include <filesystem>

#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

/// Compressed input is unpacked. Errors: trace_error.
[[nodiscard]] kv_trace open_requests(const std::filesystem::path& path);

/// The same for what looks at blocks: where the requests name none, as Azure's, each has blocks of its own.
[[nodiscard]] kv_trace open_block_requests(const std::filesystem::path& path);

}  // namespace hotset::lab
