// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A GGUF model in several files, as llama-gguf-split writes it.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lab/files/gguf.hpp"

namespace hotset::lab {

/// All parts of the model that one of them belongs to, in order; a whole file is its only part.
/// Errors: trace_error: a part that is missing, damaged, or not the one that its name says.
[[nodiscard]] std::vector<gguf_file> open_gguf_parts(const std::filesystem::path& path,
                                                     file_extent extent = file_extent::whole);

/// "model" of "model-00002-of-00003.gguf" and of "model.gguf".
[[nodiscard]] std::string gguf_name(const std::filesystem::path& path);

}  // namespace hotset::lab
