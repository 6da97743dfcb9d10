// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots in place of a model's expert weights, filled by a cache.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/lab/expert_files.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset_llama.h"
#include "model_file.hpp"

namespace hotset_llama_cpp {

/// Experts of all layers, with layers numbered as in expert_files.
class paged_experts {
 public:
  virtual ~paged_experts() = default;
  /// Fills slots with a layer's routed experts. They stay there until the next visit or `rest`.
  /// Errors: does_not_fit, fill_failed and others of slot_cache::resolve.
  virtual hotset::status visit(const hotset::routing_view& view) = 0;
  /// Slot of an expert within its layer, from 0. Pre: the last visit routed it.
  [[nodiscard]] virtual std::int32_t slot_of(hotset::layer_id layer, std::int32_t expert) const = 0;
  /// Call when nothing uses the last visit's slots any more.
  virtual void rest() = 0;
  /// Reason for a failed copy, if known.
  [[nodiscard]] virtual std::string problem() const = 0;
  [[nodiscard]] virtual hotset::pager_stats stats() const = 0;
};

/// Memory of all slots: for each weight of each layer, [slots] experts at the model's distance.
struct slot_memory {
  std::int32_t slots = 0;   ///< per layer
  std::uint64_t bytes = 0;  ///< all slots together
  /// [layers][tensors of the layer, in the order of expert_files]
  std::vector<std::vector<std::span<std::byte>>> arrays{};
  std::vector<std::unique_ptr<std::byte[]>> held{};
};

/// Slots per layer from the options. Errors: neither or both of bytes and slots; fewer than a token needs.
[[nodiscard]] hotset::result<std::int32_t> slots_asked_for(const hotset::lab::expert_files& files,
                                                           const hotset_llama_options& options);
/// Errors: no memory.
[[nodiscard]] hotset::result<slot_memory> take_slots(const hotset::lab::expert_files& files,
                                                     std::int32_t slots);
/// Errors: unknown policies.
[[nodiscard]] hotset::validation check_policies(const hotset::lab::expert_files& files,
                                                const hotset_llama_options& options);

/// `weights`: [layers][tensors], in the order of expert_files. All arguments outlive the result.
/// Errors: unknown policies; a file that cannot be opened this way.
[[nodiscard]] hotset::result<std::unique_ptr<paged_experts>> make_paged_experts(
    const hotset::lab::expert_files& files, const slot_memory& memory, const layer_weights& weights,
    const hotset_llama_options& options);

}  // namespace hotset_llama_cpp
