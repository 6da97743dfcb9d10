// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where experts are copied from: the model's own memory, or its file.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
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

  /// When a visit's experts are copied.
  enum class copies {
    at_once,
    before_use,  ///< tensor by tensor, while the layer is computed with the tensors before
    after_use,   ///< computed from the model's memory, whose pages are then copied
  };
  /// Begins the visit of a layer. Unless its copies are made at once, `read` copies nothing of the layer.
  void begin_visit(hotset::layer_id layer, copies when) noexcept;
  /// Whether the layer's visit is under way, and copies wait for its operations.
  [[nodiscard]] bool is_late(hotset::layer_id layer) const noexcept {
    return late_->layer == layer;
  }
  /// Starts the copies before use, after all were passed to `read`.
  void start_copies();
  /// Waits for the copies of a tensor before its use. Returns false if one has failed.
  [[nodiscard]] bool has_arrived(std::size_t tensor);
  /// The layer was computed from the model's memory with this tensor.
  void computed(hotset::layer_id layer, std::size_t tensor) noexcept;
  /// Completes the copies. Returns the layer if one of them has failed.
  std::optional<hotset::layer_id> end_visit() noexcept;
  /// See weight_mapping.
  void request_others_after(hotset::layer_id layer) const noexcept {
    mapping_->request_others_after(hotset::index_of(layer));
  }
  /// "mapping", "reads", "direct reads" or "io_uring".
  [[nodiscard]] const char* name() const noexcept { return name_; }

 private:
  struct late_copy {
    hotset::expert_key key;
    std::size_t tensor = 0;
    std::uint64_t at = 0;
    std::span<std::byte> to{};
  };
  /// Copies that wait for the operations of a layer.
  struct late_copies {
    std::mutex mutex;
    hotset::layer_id layer = hotset::before_layers;
    copies when = copies::at_once;
    std::vector<late_copy> waiting{};
    std::vector<std::size_t> order_of_use{};  ///< tensors, as far as known
    // Copies before use that were started.
    std::deque<std::latch> left{};  ///< by tensor
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> failed = false;
    std::vector<std::jthread> threads{};
  };

  [[nodiscard]] bool copy(const late_copy& what) const noexcept;
  void copy_from_memory(const late_copy& what) const noexcept;
  [[nodiscard]] std::span<const std::byte> in_memory(const late_copy& what) const noexcept;

  std::vector<std::vector<std::uint64_t>> sizes_;  ///< [layers][tensors]
  /// [layers][tensors] all experts in the model's memory
  std::vector<std::vector<std::span<const std::byte>>> whole_;
  std::unique_ptr<weight_mapping> mapping_;
  std::unique_ptr<expert_file> file_;  ///< null: the model's memory
  std::unique_ptr<late_copies> late_ = std::make_unique<late_copies>();
  std::size_t readers_ = 1;
  bool pages_fit_ = true;
  const char* name_ = "mapping";
};
static_assert(hotset::expert_reader<expert_bytes>);

}  // namespace hotset_llama_cpp
