// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A GGUF model in several files, as llama-gguf-split writes it.

#include <filesystem>
#include <string>
#include <vector>

#include "lab/files/gguf.hpp"

namespace hotset::lab {

/// Opens all parts of a model, given any part, in order; a single file is its only part.
/// Errors: trace_error: a part that is missing, damaged, or has another number than its name.
[[nodiscard]] std::vector<gguf_file> open_gguf_parts(const std::filesystem::path& path,
                                                     file_extent extent = file_extent::whole);

/// Returns the first part of a model, which llama.cpp opens, given any part; or a single file itself.
[[nodiscard]] std::filesystem::path first_gguf_part(const std::filesystem::path& path);

/// Returns "model" for "model-00002-of-00003.gguf" and for "model.gguf".
[[nodiscard]] std::string gguf_name(const std::filesystem::path& path);

}  // namespace hotset::lab
