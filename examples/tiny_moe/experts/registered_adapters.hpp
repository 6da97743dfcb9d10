// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Adapters served over one base model through a registry: loaded when requests use them, gone when others need room.

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

/// What a registry reads adapters from. The i-th is that of sequences with id i + 1.
struct adapter_source {
  struct entry {
    std::string name;  ///< no other has it
    tuned_experts tuned;
  };
  std::vector<entry> adapters{};
  /// Weights of a part are 0 gate, 1 up, 2 down.
  hotset::adapter_loader read{};
};

/// Adapters in host memory. One that is named like an earlier one becomes "name#2", and so on: it is another adapter, with
/// places and bytes of its own. Pre: the adapters outlive the source.
[[nodiscard]] adapter_source source_of(std::span<const adapter_weights* const> adapters);

struct registered_adapters_config {
  std::size_t places = 0;  ///< adapters on the device at once; 0: all
  /// Of adapters that the host keeps, the largest one's or more; 0: of all.
  std::uint64_t host_bytes = 0;
  std::size_t page_bytes = 0;  ///< a multiple of the machine's pages; 0: one of them
};

/// Counts of what was computed.
struct registered_adapters_stats {
  std::uint64_t steps = 0;
  std::uint64_t visits = 0;
  std::uint64_t reroute_ns = 0;  ///< in the reroute alone; a reading of the clock a visit is in it
  /// Distinct ones of a visit, summed over visits; and of what the router chose: what the base model alone would read.
  std::uint64_t virtual_experts = 0;
  std::uint64_t base_experts = 0;
};

/// Experts of the base model and of adapters in virtual weight tensors, of which each row of a pass has its own. The host
/// plays the device: tensors are in pages of its own, filled by copies. Threads: one at a time.
class registered_adapters final : public expert_provider {
 public:
  /// Pre: what the source reads from outlives the provider; the engine has room for virtual_experts().
  /// Errors: hotset::invalid_config for adapters that are none of the model, host_bytes of less than one of them, page_bytes
  /// that are no pages, or where there is no memory for the base model's experts.
  registered_adapters(const model& weights, adapter_source source,
                      const registered_adapters_config& config = {});
  registered_adapters(const registered_adapters&) = delete;
  registered_adapters& operator=(const registered_adapters&) = delete;

  /// Pins an adapter, and loads it if it is not there: until `release` rows may be its own. The base model's always may.
  /// On a failure it is not pinned, and all others are as they were, but for some that nobody used and that left for it.
  hotset::adapter_status acquire(adapter_id adapter);
  /// Ends what one `acquire` began. Errors: unknown, not_pinned.
  hotset::adapter_status release(adapter_id adapter) noexcept;

  /// Errors: provider_error for a row of an adapter that nobody has acquired.
  void on_step(const step_inputs& step) override;
  void run(const visit_inputs& visit, visit_compute& compute) override;

  /// Experts of a layer, with the places that nobody uses.
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
  std::vector<const std::byte*> first_;       // [layers, weights], where experts begin
  std::vector<std::int32_t> adapter_of_row_;  // of the pass, as the reroute takes them
  std::vector<std::uint64_t> seen_;           // [virtual experts], in which count last
  std::uint64_t counts_ = 0;                  // of distinct experts
  registered_adapters_stats stats_;
};

/// Adapters are acquired when their requests are admitted, and released when these end. Pre: `experts` outlives the
/// serving.
[[nodiscard]] serving_config with_pins(serving_config config, registered_adapters& experts);

}  // namespace tiny_moe
