// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots in place of a model's expert weights, filled by a cache.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expert_bytes.hpp"
#include "hotset/cache/live_view.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "slot_memory.hpp"

namespace hotset_llama_cpp {

struct paging_options {
  std::string eviction = "similar_steps";
  std::string prefetch = "next_layer_top_k";  ///< by the predictor similar-steps; "none"
  std::size_t readers = 2;                    ///< threads
  hotset::live_view_config view{};
};

/// Experts of all layers, with layers numbered as in expert_files.
class paged_experts {
 public:
  /// Errors: unknown policies.
  static hotset::validation check(const hotset::lab::expert_files& files,
                                  const paging_options& options);
  /// `memory` outlives the result. Errors: unknown policies; no memory.
  static hotset::result<std::unique_ptr<paged_experts>> create(
      const hotset::lab::expert_files& files, const slot_memory& memory, expert_bytes bytes,
      const paging_options& options);
  paged_experts(const paged_experts&) = delete;
  paged_experts& operator=(const paged_experts&) = delete;
  ~paged_experts() { rest(); }

  /// Fills slots with a layer's routed experts. They stay there until the next visit or `rest`. If there are more than
  /// slots, the most used ones take the slots and the others the spare slots. If these do not suffice, or to read the
  /// whole layer while it is computed is faster, `is_placed` is false: the model's own weights are used, and the most
  /// used experts take the slots for later visits.
  /// Errors: fill_failed and others of slot_cache::resolve.
  hotset::status visit(const hotset::routing_view& view);
  /// Whether the last visit's experts are all in slots.
  [[nodiscard]] bool is_placed() const { return is_placed_; }
  /// Whether the last visit was of this layer, and its copies wait for its operations. Then call `has_arrived` before
  /// each of them if the visit is placed, otherwise `computed` after each.
  [[nodiscard]] bool is_late(hotset::layer_id layer) const { return made_.bytes->is_late(layer); }
  /// Waits for the experts' bytes of this tensor. Returns false if a copy has failed.
  [[nodiscard]] bool has_arrived(std::size_t tensor);
  /// The layer was computed with this tensor, whose pages are in memory: its experts are copied into slots.
  void computed(hotset::layer_id layer, std::size_t tensor) {
    made_.bytes->computed(layer, tensor);
  }
  /// Slot of an expert within its layer, from 0; spare slots follow. Pre: the last visit routed it and is placed.
  [[nodiscard]] std::int32_t slot_of(hotset::layer_id layer, std::int32_t expert) const;
  /// Call when the last visit's layer was computed.
  void rest();
  /// Reason for a failed copy, if known.
  [[nodiscard]] std::string problem() const { return made_.bytes->problem(); }
  /// Includes experts of spare slots: accesses, misses, and bytes.
  [[nodiscard]] hotset::pager_stats stats() const;
  /// Experts copied into spare slots, of all visits.
  [[nodiscard]] std::uint64_t spared() const { return spared_; }
  /// Shows the counters in the metrics, if there are any. Call it between the decodes.
  void publish();
  /// URL of the metrics; empty: none.
  [[nodiscard]] std::string metrics_url() const { return made_.view ? made_.view->url() : ""; }
  /// Reason why the timeline is not written, or nothing.
  [[nodiscard]] hotset::validation timeline_problem() const {
    return made_.view ? made_.view->problem() : std::nullopt;
  }

 private:
  using backend_type = hotset::host_backend<expert_bytes>;
  using cache_type = hotset::slot_cache<hotset::erased_pager, backend_type>;
  /// Slots of a cache or spare slots: their memory, and what copies into it.
  struct filled_slots {
    hotset::pool_layout layout;
    hotset::host_slot_bank bank;
    std::unique_ptr<backend_type> backend{};
  };
  /// Prefetches for the layers ahead.
  struct look_ahead {
    hotset::any_predictor predictor;
    hotset::any_prefetch_policy policy;
    std::vector<hotset::prefetch_request> requests;
  };

  /// The parts, made in this order.
  struct parts {
    std::unique_ptr<hotset::live_view> view{};  ///< null: none
    std::unique_ptr<expert_bytes> bytes{};
    std::unique_ptr<filled_slots> own{};
    std::unique_ptr<filled_slots> spare{};
    std::unique_ptr<cache_type> cache{};
    std::optional<look_ahead> ahead{};
  };

  paged_experts(const slot_plan& plan, std::size_t experts, parts made);
  static hotset::result<std::unique_ptr<filled_slots>> make_slots(
      const hotset::lab::expert_files& files, const hotset::geometry& shape,
      const slot_memory& memory, std::int32_t first, std::int32_t count, const parts& with,
      std::size_t readers);
  static hotset::result<std::optional<look_ahead>> make_look_ahead(const hotset::geometry& shape,
                                                                   const std::string& name);

  [[nodiscard]] bool has_spares_for(hotset::layer_id layer) const;
  void count_uses(const hotset::routing_view& view);
  void keep_most_used(hotset::routing_view& view);
  hotset::ticket copy_to_spares(hotset::layer_id layer);
  void prefetch(const hotset::routing_view& view);
  void begin_computation(const hotset::routing_view& view);
  void end_computation();

  slot_plan plan_;
  parts made_;
  hotset::host_stream stream_{};
  hotset::cache_visit visit_;
  // The last visit.
  std::vector<std::int32_t> uses_;  ///< [experts]
  bool is_placed_ = true;
  std::int32_t distinct_ = 0;           ///< experts with uses
  std::vector<std::int32_t> spare_of_;  ///< [experts] index of the spare slot, -1: none
  std::vector<std::int32_t>
      kept_;                  ///< [tokens x top_k] ids of the experts that take slots, otherwise -1
  std::uint64_t spared_ = 0;  ///< experts copied into spare slots, of all visits
  /// The running computation, for the view.
  std::optional<hotset::engine_timeline::computation> computes_{};
};

}  // namespace hotset_llama_cpp
