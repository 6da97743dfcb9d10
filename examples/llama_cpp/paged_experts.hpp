// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots in the place of a model's expert weights, and what brings experts into them.

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

/// Experts of all layers; layers are counted as expert_files counts them.
class paged_experts {
 public:
  virtual ~paged_experts() = default;
  /// Brings what a layer routed into slots; until the next visit, and after the last one until `rest`, they stay there.
  /// Errors: does_not_fit, fill_failed and others of slot_cache::resolve.
  virtual hotset::status visit(const hotset::routing_view& view) = 0;
  /// The slot of an expert of a layer, from 0 on. Pre: it was routed by the last visit.
  [[nodiscard]] virtual std::int32_t slot_of(hotset::layer_id layer, std::int32_t expert) const = 0;
  /// Nothing is computed any more with what the last visit named.
  virtual void rest() = 0;
  /// Why a copy failed, as far as it is known.
  [[nodiscard]] virtual std::string problem() const = 0;
  [[nodiscard]] virtual hotset::pager_stats stats() const = 0;
};

/// Memory of all slots: for each weight of each layer [slots] experts as far apart as the model's own are.
struct slot_memory {
  std::int32_t slots = 0;   ///< of each layer
  std::uint64_t bytes = 0;  ///< of all
  /// [layers][tensors of the layer, in the order of expert_files]
  std::vector<std::vector<std::span<std::byte>>> arrays{};
  std::vector<std::unique_ptr<std::byte[]>> held{};
};

/// As many slots of each layer as the options ask for. Errors: neither or both of bytes and slots; fewer than a token needs.
[[nodiscard]] hotset::result<std::int32_t> slots_asked_for(const hotset::lab::expert_files& files,
                                                           const hotset_llama_options& options);
/// Errors: no memory.
[[nodiscard]] hotset::result<slot_memory> take_slots(const hotset::lab::expert_files& files,
                                                     std::int32_t slots);
/// Errors: policies that are none.
[[nodiscard]] hotset::validation check_policies(const hotset::lab::expert_files& files,
                                                const hotset_llama_options& options);

/// `weights`: [layers][tensors], in the order of expert_files. All outlive it.
/// Errors: policies that are none; a file that cannot be opened in this way.
[[nodiscard]] hotset::result<std::unique_ptr<paged_experts>> make_paged_experts(
    const hotset::lab::expert_files& files, const slot_memory& memory, const layer_weights& weights,
    const hotset_llama_options& options);

}  // namespace hotset_llama_cpp
