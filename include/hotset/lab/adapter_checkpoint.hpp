// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes an adapter's folder: expert_cfg.json beside the weights of the experts that it names.
///
/// Weights are safetensors files, one or several, of one tensor for each matrix of each tuned expert, such as
/// `model.layers.3.mlp.experts.17.gate_proj.weight`, with or without `model.`; layers have the model's own numbers.
/// Set-equal: a tensor that the configuration does not ask for, or one that is missing, refuses the folder.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/lab/esft_config.hpp"

namespace hotset::lab {

/// A matrix of an expert, as the checkpoint has it.
struct expert_matrix {
  std::string name;           ///< such as gate_proj
  std::uint64_t rows = 0;     ///< 1..2^24
  std::uint64_t columns = 0;  ///< 1..2^24
};

/// How the base model keeps its experts, by which a checkpoint is judged.
struct adapter_format {
  esft_base base;
  /// Each weight is its matrices one behind the other, such as {{gate_proj, up_proj}, {down_proj}}.
  std::vector<std::vector<expert_matrix>> weights;
  std::string dtype = "BF16";  ///< of the base: "F16", "BF16" or "F32"
  bool converts = false;       ///< tensors of the other two are converted; else they are refused

  /// Of one expert, by weight. Errors: usage_error for a format that is none.
  [[nodiscard]] std::vector<std::size_t> expert_bytes() const;
};

/// Move-only; its files stay mapped. Threads: const use is safe.
class adapter_checkpoint {
 public:
  /// Everything is checked before it returns, but for the values of the weights.
  /// Errors: usage_error for a format that is none; trace_error, one line: file, tensor or key, what was found, what is
  /// accepted.
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

/// Gives the bytes of a matrix of a tuned expert, in the base's dtype; they are valid until it is called again.
using matrix_source =
    std::function<std::span<const std::byte>(layer_id, expert_id, const expert_matrix&)>;

/// Writes expert_cfg.json and model.safetensors into a folder, which is made if it is not there. Names have `model.`.
/// Nothing half-written stays: each file is written beside its place and then renamed.
/// The source is asked by layer, then by ascending expert, then by matrix.
/// Errors: usage_error for a format that is none or that the configuration does not fit, and for a matrix of another size;
/// std::runtime_error for a file that cannot be written, or other weights in the folder.
void write_adapter_checkpoint(const std::filesystem::path& folder, const adapter_format& format,
                              const esft_config& config, const matrix_source& source);

}  // namespace hotset::lab
