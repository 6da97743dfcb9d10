// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine on a virtual clock: the library's own slot cache over a link that takes time, and arithmetic that does.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/prefetch/active_evict.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/transfer/memory/transient_slots.hpp"
#include "lab/replay/clock_stream.hpp"
#include "lab/replay/decision_log.hpp"
#include "lab/replay/timeline.hpp"
#include "lab/replay/write_back_clock.hpp"

namespace hotset::lab {

/// What a visit costs besides its copies. Units: nanoseconds.
struct visit_costs {
  ticks gate = 0;             ///< from the end of the visit before until the experts are known
  ticks per_visit = 0;        ///< of each group of tokens
  ticks per_token = 0;        ///< of each token of a group
  ticks per_host_expert = 0;  ///< of each expert that the host computes, beside the device
  /// Slots beside the cache's, through which experts come that the host would compute.
  std::size_t transient = 0;
};

/// The link of an engine. Its clock has the shape of the engine's pager.
struct engine_clock {
  link_model link = link_model::instant();
  write_back_config back{};
};

/// What an engine looks ahead with, visit by visit.
struct look_ahead {
  any_prefetch_policy* prefetcher = nullptr;
  active_evict* pre_evictor = nullptr;
  forecast expected{};                     ///< of the layers after the view's
  std::span<prefetch_request> requests{};  ///< scratch for what the prefetcher proposes
  std::size_t proposed = 0;                ///< written: so many of them
  /// The gate weights of view.chosen() where a routing policy has changed the view's. Empty: the view's.
  std::span<const float> router_weights{};
};

/// The gate weight that the routers gave, and what of it was computed with nothing. Sums over tokens and layers.
struct gate_mass {
  double routed = 0;
  double lost = 0;

  /// One token of a visit. `computed`: the ids that a kernel was given for the visit's places.
  void take(const routing_view& view, const look_ahead& ahead, id_view<expert_id> computed,
            std::size_t token, std::size_t top_k) noexcept;
};

/// The order of a visit is that of SpecMD's Algorithm 1: (routing, by the caller,) cache management, submission of
/// prefetches, while the experts run. The next visit's gate starts when this one's arithmetic has ended.
/// A visit is an event: all of it is judged, protected and fetched at once.
class simulated_engine {
 public:
  simulated_engine(erased_pager decisions, const engine_clock& clock, const visit_costs& costs,
                   const slot_cache_config& setup = {});
  simulated_engine(const simulated_engine&) = delete;
  simulated_engine& operator=(const simulated_engine&) = delete;
  virtual ~simulated_engine() = default;

  /// Before the first step: fills free slots with `keys`, least wanted first, and lets the time for it pass.
  status warm(std::span<const expert_key> keys);
  /// Before a step's first gate: what is expected of its first layers. Pre: view.layer == before_layers.
  void open_step(const routing_view& view, look_ahead& ahead);
  virtual status visit(const routing_view& view, look_ahead& ahead);
  /// With the free slots, where the engine has freed some for the layer's next visit.
  [[nodiscard]] residency_view residents(layer_id layer) const;
  /// Lets all of what was submitted arrive; no time passes for the arithmetic.
  void finish() noexcept;
  void watch(decision_log* decisions, timeline* times) noexcept;

  [[nodiscard]] pager_stats stats() const { return cache_.stats(); }
  [[nodiscard]] prefetch_queue_stats queue() const { return cache_.queue().stats(); }
  [[nodiscard]] std::uint64_t decision_hash() const { return cache_.pager().decision_hash(); }
  /// The time now, and how much of it the arithmetic waited for copies.
  [[nodiscard]] const clock_stream& stream() const { return stream_; }
  [[nodiscard]] const clock_backend& link() const { return *backend_; }
  /// The same link, if victims are copied back; else nullptr.
  [[nodiscard]] const write_back_clock* way_back() const { return victims_; }
  /// Experts that were streamed through the slots beside the cache's.
  [[nodiscard]] std::uint64_t streamed() const { return transient_.streamed(); }
  [[nodiscard]] const gate_mass& mass() const { return mass_; }

 protected:
  /// Policies hear of the forecast even where nothing is prefetched.
  void prefetch(const routing_view& view, const visit_context& context, look_ahead& ahead);
  /// The gate of a visit: then its experts are known.
  void run_gate() noexcept;
  void run_arithmetic(ticks time, const visit_context& visit, std::size_t tokens);

  // The parts of one engine, named as its own: only expert_engine derives from this.
  // NOLINTBEGIN(readability-identifier-naming)
  clock_stream stream_;
  std::unique_ptr<clock_backend> backend_;
  visit_costs costs_;
  slot_cache<erased_pager, clock_backend> cache_;
  cache_visit visit_;
  decision_log* decisions_ = nullptr;
  gate_mass mass_;
  // NOLINTEND(readability-identifier-naming)

 private:
  void pre_evict(const routing_view& view, look_ahead& ahead);
  std::size_t left_on_host(const visit_plan& plan);
  void compute(const visit_plan& plan, ticks begin);

  write_back_clock* victims_;
  transient_slots<clock_backend> transient_;
  timeline* times_ = nullptr;
  /// The layer whose next visit finds slots that were freed for it.
  layer_id freed_for_ = before_layers;
};

/// An engine over a pager of the policies that are named. Errors: usage_error.
[[nodiscard]] std::unique_ptr<simulated_engine> make_engine(const pager_request& request,
                                                            const policy_knowledge& knowledge,
                                                            const engine_clock& clock,
                                                            const visit_costs& costs,
                                                            const slot_cache_config& setup = {});

}  // namespace hotset::lab
