// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Adapters served over one base model through a registry: loaded when requests use them, evicted when others need
/// room.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/adapters/adapter_registry.hpp"
#include "hotset/adapters/page_pool.hpp"
#include "hotset/adapters/uploader.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/kv_pool.hpp"
#include "tiny_moe/model/model.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace tiny_moe {

/// Source of a registry's adapters. The i-th belongs to sequences with id i + 1.
struct adapter_source {
  struct entry {
    std::string name;  ///< unique name
    tuned_experts tuned;
  };
  std::vector<entry> adapters{};
  /// Reads a part's weights: 0 gate, 1 up, 2 down.
  hotset::adapter_loader read{};
};

/// Adapters in host memory. An adapter with the name of an earlier one becomes "name#2", and so on: a separate
/// adapter with its own places and bytes. Pre: the adapters outlive the source.
[[nodiscard]] adapter_source source_of(std::span<const adapter_weights* const> adapters);

struct registered_adapters_config {
  std::size_t places = 0;  ///< adapters on the device at the same time; 0: all
  /// Bytes of adapters that the host keeps, at least those of the largest; 0: of all.
  std::uint64_t host_bytes = 0;
  std::size_t page_bytes = 0;  ///< multiple of the machine's page size; 0: one page
};

/// Counts of the computed work.
struct registered_adapters_stats {
  std::uint64_t steps = 0;
  std::uint64_t visits = 0;
  std::uint64_t reroute_ns = 0;  ///< time of the reroute alone, with one clock reading per visit
  /// Distinct experts of a visit, summed over visits: virtual ones, and those chosen by the router, which the base
  /// model alone would read.
  std::uint64_t virtual_experts = 0;
  std::uint64_t base_experts = 0;
};

/// Experts of the base model and of adapters in virtual weight tensors; each row of a pass has its own adapter. The
/// host plays the device: tensors have their own pages, filled by copies. Threads: one at a time.
class registered_adapters final : public expert_provider {
 public:
  /// Pre: the source's data outlives the provider; the engine has room for virtual_experts().
  /// Errors: hotset::invalid_config for adapters of another model, host_bytes below one adapter, invalid page_bytes,
  /// or no memory for the base model's experts.
  registered_adapters(const model& weights, adapter_source source,
                      const registered_adapters_config& config = {});
  registered_adapters(const registered_adapters&) = delete;
  registered_adapters& operator=(const registered_adapters&) = delete;

  /// Pins an adapter, and loads it if it is not resident: rows may use it until `release`. Rows may always use the
  /// base model. On a failure it is not pinned and other adapters are unchanged, except that unpinned ones may have
  /// been evicted for it.
  hotset::adapter_status acquire(adapter_id adapter);
  /// Ends one `acquire`. Errors: unknown, not_pinned.
  hotset::adapter_status release(adapter_id adapter) noexcept;

  /// Errors: provider_error for a row with an adapter that is not acquired.
  void on_step(const step_inputs& step) override;
  void run(const visit_inputs& visit, visit_compute& compute) override;

  /// Experts of a layer, including unused places.
  [[nodiscard]] std::size_t virtual_experts() const noexcept { return seen_.size(); }
  [[nodiscard]] const registered_adapters_stats& stats() const noexcept { return stats_; }
  [[nodiscard]] const hotset::adapter_registry_stats& registry_stats() const noexcept {
    return registry_.stats();
  }

 private:
  using memory_type = hotset::host_virtual_memory;
  using registry_type = hotset::adapter_registry<memory_type, hotset::host_uploader>;

  struct known_adapter {
    std::string name;
    std::int32_t place = -1;  // while it is pinned
    std::uint32_t pins = 0;
  };

  void add(std::vector<adapter_source::entry> adapters);
  void fill_base(const model& weights);
  [[nodiscard]] std::int32_t place_of(adapter_id adapter) const;
  [[nodiscard]] std::uint64_t distinct(std::span<const std::int32_t> ids) noexcept;
  [[nodiscard]] expert_tensors tensors(std::size_t layer, std::int32_t expert) const noexcept;

  std::size_t tensor_bytes_;
  memory_type memory_;
  hotset::page_pool<memory_type> pool_;
  hotset::host_uploader copies_;
  registry_type registry_;
  std::vector<known_adapter> known_;          // [adapters]
  std::vector<const std::byte*> first_;       // [layers, weights], addresses of the experts
  std::vector<std::int32_t> adapter_of_row_;  // adapter of each row of the pass, for the reroute
  std::vector<std::uint64_t> seen_;           // [virtual experts], number of the last count with it
  std::uint64_t counts_ = 0;                  // number of counts of distinct experts
  registered_adapters_stats stats_;
};

/// Acquires adapters when their requests are admitted, and releases them when these end. Pre: `experts` outlives the
/// serving.
[[nodiscard]] serving_config with_pins(serving_config config, registered_adapters& experts);

}  // namespace tiny_moe
