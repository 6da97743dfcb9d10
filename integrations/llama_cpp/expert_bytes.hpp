// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where experts are copied from: the model's own memory, or its file.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
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
  /// time. `pages_fit`: see weight_mapping. Errors: an unknown source; a file that cannot be opened this way.
  static hotset::result<expert_bytes> open(const hotset::lab::expert_files& files,
                                           const layer_weights& weights, std::int32_t source,
                                           std::size_t readers, bool pages_fit);

  [[nodiscard]] std::span<const std::uint64_t> sizes(hotset::expert_key key,
                                                     hotset::precision_id) const noexcept {
    return sizes_[hotset::index_of(key.layer)];
  }
  [[nodiscard]] bool read(hotset::expert_key key, hotset::precision_id, std::size_t tensor,
                          std::uint64_t at, std::span<std::byte> to) const noexcept;
  [[nodiscard]] std::string problem() const { return file_ ? file_->problem() : std::string(); }

  /// Begins the visit of a layer. If it `passes` the slots, the layer is computed from the model's memory. `read` then
  /// copies nothing of it: `computed` copies a tensor while its pages are in memory, and `end_visit` the rest.
  void begin_visit(hotset::layer_id layer, bool passes) noexcept;
  [[nodiscard]] bool passes(hotset::layer_id layer) const noexcept { return late_->layer == layer; }
  /// The layer passes, and was computed with this tensor.
  void computed(hotset::layer_id layer, std::size_t tensor) noexcept;
  void end_visit() noexcept;
  /// See weight_mapping.
  void request_others_after(hotset::layer_id layer) const noexcept {
    mapping_->request_others_after(hotset::index_of(layer));
  }
  /// "mapping", "reads", "direct reads" or "io_uring".
  [[nodiscard]] const char* name() const noexcept { return name_; }

 private:
  struct late_copy {
    std::size_t tensor = 0;
    std::span<const std::byte> from{};
    std::byte* to = nullptr;
  };
  /// Copies that wait until their tensor was computed with.
  struct late_copies {
    std::mutex mutex;
    hotset::layer_id layer = hotset::before_layers;  ///< that passes the slots
    std::vector<late_copy> waiting{};
  };

  /// The tensor in the model's memory.
  [[nodiscard]] std::span<const std::byte> in_memory(hotset::expert_key key,
                                                     std::size_t tensor) const noexcept;

  std::vector<std::vector<std::uint64_t>> sizes_;  ///< [layers][tensors]
  /// [layers][tensors] all experts in the model's memory
  std::vector<std::vector<std::span<const std::byte>>> whole_;
  std::unique_ptr<weight_mapping> mapping_;
  std::unique_ptr<expert_file> file_;  ///< null: the model's memory
  std::unique_ptr<late_copies> late_ = std::make_unique<late_copies>();
  bool pages_fit_ = true;
  const char* name_ = "mapping";
};
static_assert(hotset::expert_reader<expert_bytes>);

}  // namespace hotset_llama_cpp
