// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where experts are copied from: the model's own memory, or its file.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/lab/expert_files.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset_llama.h"
#include "model_file.hpp"
#include "weight_mapping.hpp"

namespace hotset_llama_cpp {

/// Reads of a file, whatever its kind. Threads: safe.
class expert_file {
 public:
  virtual ~expert_file() = default;
  [[nodiscard]] virtual bool read(hotset::expert_key key, std::size_t tensor, std::uint64_t at,
                                  std::span<std::byte> to) const noexcept = 0;
  /// Reason of the last failed read.
  [[nodiscard]] virtual std::string problem() const = 0;
};

/// Both places hold the same bytes. Threads: safe.
class expert_bytes {
 public:
  /// `source`: HOTSET_LLAMA_...; AUTO opens the file in the first way that works. `readers`: the most reads at one
  /// time. Errors: an unknown source; a file that cannot be opened this way.
  static hotset::result<expert_bytes> open(const hotset::lab::expert_files& files,
                                           const layer_weights& weights, std::int32_t source,
                                           std::size_t readers);

  [[nodiscard]] std::span<const std::uint64_t> sizes(hotset::expert_key key,
                                                     hotset::precision_id) const noexcept {
    return sizes_[hotset::index_of(key.layer)];
  }
  [[nodiscard]] bool read(hotset::expert_key key, hotset::precision_id, std::size_t tensor,
                          std::uint64_t at, std::span<std::byte> to) const noexcept;
  [[nodiscard]] std::string problem() const { return file_ ? file_->problem() : std::string(); }

  /// Whether the model computes with its own weights. Copies then read its memory, whose pages are there.
  void set_passing(bool yes) noexcept;
  /// See weight_mapping.
  void request_others_after(hotset::layer_id layer) const noexcept {
    mapping_->request_others_after(hotset::index_of(layer));
  }
  /// "mapping", "reads", "direct reads" or "io_uring".
  [[nodiscard]] const char* name() const noexcept { return name_; }

 private:
  /// The tensor in the model's memory.
  [[nodiscard]] std::span<const std::byte> in_memory(hotset::expert_key key,
                                                     std::size_t tensor) const noexcept;

  std::vector<std::vector<std::uint64_t>> sizes_;  ///< [layers][tensors]
  /// [layers][tensors] all experts in the model's memory
  std::vector<std::vector<std::span<const std::byte>>> whole_;
  std::unique_ptr<weight_mapping> mapping_;
  std::unique_ptr<expert_file> file_;  ///< null: the model's memory
  std::unique_ptr<std::atomic<bool>> passing_ = std::make_unique<std::atomic<bool>>(false);
  const char* name_ = "mapping";
};
static_assert(hotset::expert_reader<expert_bytes>);

}  // namespace hotset_llama_cpp
