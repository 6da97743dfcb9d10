// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes an adapter's folder: expert_cfg.json and the weights of its experts.
///
/// Weights are one or several safetensors files. Each matrix of each tuned expert is one tensor, such as
/// `model.layers.3.mlp.experts.17.gate_proj.weight`, with or without `model.`. Layers have the model's own numbers.
/// The set of tensors must equal the configuration: an extra or a missing tensor refuses the folder.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/lab/esft_config.hpp"

namespace hotset::lab {

/// A matrix of an expert in the checkpoint.
struct expert_matrix {
  std::string name;           ///< name, such as gate_proj
  std::uint64_t rows = 0;     ///< 1..2^24
  std::uint64_t columns = 0;  ///< 1..2^24
};

/// Expert format of the base model; checkpoints are checked against it.
struct adapter_format {
  esft_base base;
  /// Each weight is a sequence of matrices, such as {{gate_proj, up_proj}, {down_proj}}.
  std::vector<std::vector<expert_matrix>> weights;
  std::string dtype = "BF16";  ///< dtype of the base: "F16", "BF16" or "F32"
  bool converts = false;  ///< converts tensors of the other two dtypes; if false, they are refused

  /// Bytes of one expert, by weight. Errors: usage_error for an invalid format.
  [[nodiscard]] std::vector<std::size_t> expert_bytes() const;
};

/// Move-only; its files stay mapped. Threads: const use is safe.
class adapter_checkpoint {
 public:
  /// Checks everything except the values of the weights.
  /// Errors: usage_error for an invalid format; trace_error, one line: file, tensor or key, the found and the accepted
  /// value.
  adapter_checkpoint(const std::filesystem::path& folder, const adapter_format& format);
  adapter_checkpoint(adapter_checkpoint&&) noexcept;
  adapter_checkpoint& operator=(adapter_checkpoint&&) noexcept;
  ~adapter_checkpoint();

  [[nodiscard]] const esft_config& config() const noexcept;
  /// Fills `out` with a weight of a tuned expert, in the base's dtype. `layer` counts the layers with experts from 0.
  /// Returns false if the expert is not tuned, `out` has another size, or a value does not fit the base's dtype.
  [[nodiscard]] bool read(layer_id layer, std::size_t weight, expert_id expert,
                          std::span<std::byte> out) const noexcept;

 private:
  class contents;
  std::unique_ptr<contents> contents_;
};

/// Returns the bytes of a matrix of a tuned expert, in the base's dtype. They are valid until the next call.
using matrix_source =
    std::function<std::span<const std::byte>(layer_id, expert_id, const expert_matrix&)>;

/// Writes expert_cfg.json and model.safetensors into a folder, which is created if it does not exist. Names have
/// `model.`. Writes each file under a temporary name and then renames it, so that no partial file remains.
/// Calls the source by layer, then by ascending expert, then by matrix.
/// Errors: usage_error for an invalid format, a configuration that does not fit it, or a matrix of another size;
/// std::runtime_error for a file that cannot be written, or other weights in the folder.
void write_adapter_checkpoint(const std::filesystem::path& folder, const adapter_format& format,
                              const esft_config& config, const matrix_source& source);

}  // namespace hotset::lab
