// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine on a virtual clock: the library's slot cache over a timed link, with timed arithmetic.

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
#include "lab/replay/part_counts.hpp"
#include "lab/replay/timeline.hpp"
#include "lab/replay/write_back_clock.hpp"

namespace hotset::lab {

/// Time of a visit besides its copies. Units: nanoseconds.
struct visit_costs {
  ticks gate = 0;             ///< from the end of the previous visit until the experts are known
  ticks per_visit = 0;        ///< per group of tokens
  ticks per_token = 0;        ///< per token of a group
  ticks per_host_expert = 0;  ///< per expert that the host computes, parallel to the device
  /// Slots beside the cache's, through which experts are streamed instead of computed on the host.
  std::size_t transient = 0;
};

/// An engine's link. Its clock has the shape of the engine's pager.
struct engine_clock {
  link_model link = link_model::instant();
  write_back_config back{};
};

/// Inputs for looking ahead, for one visit.
struct look_ahead {
  any_prefetch_policy* prefetcher = nullptr;
  active_evict* pre_evictor = nullptr;
  forecast expected{};                     ///< for the layers after the view's
  std::span<prefetch_request> requests{};  ///< scratch for the prefetcher's proposals
  std::size_t proposed = 0;                ///< number of proposals written
  /// Gate weights of view.chosen() if a routing policy has changed the view's. Empty: the view's.
  std::span<const float> router_weights{};
};

/// Gate weight assigned by the routers, and the part that was not computed. Sums over tokens and layers.
struct gate_mass {
  double routed = 0;
  double lost = 0;

  /// Adds one token of a visit. `computed`: the ids that a kernel received.
  void take(const routing_view& view, const look_ahead& ahead, id_view<expert_id> computed,
            std::size_t token, std::size_t top_k) noexcept;
};

/// A visit has the order of SpecMD's Algorithm 1: (routing, by the caller,) cache management, submission of
/// prefetches, while the experts run. The next visit's gate starts when this visit's arithmetic has ended.
/// A visit is one event: all of it is judged, protected and fetched at once.
class simulated_engine {
 public:
  simulated_engine(erased_pager decisions, const engine_clock& clock, const visit_costs& costs,
                   const slot_cache_config& setup = {});
  simulated_engine(const simulated_engine&) = delete;
  simulated_engine& operator=(const simulated_engine&) = delete;
  virtual ~simulated_engine() = default;

  /// Before the first step: fills free slots with `keys`, least wanted first, and advances the time for it.
  status warm(std::span<const expert_key> keys);
  /// Before a step's first gate: passes the forecast of its first layers. Pre: view.layer == before_layers.
  void open_step(const routing_view& view, look_ahead& ahead);
  virtual status visit(const routing_view& view, look_ahead& ahead);
  /// Residents of the layer; includes the free slots if the engine freed some for the layer's next visit.
  [[nodiscard]] residency_view residents(layer_id layer) const;
  /// Completes all submitted copies without time for the arithmetic.
  void finish() noexcept;
  void watch(decision_log* decisions, timeline* times, part_counts* parts = nullptr) noexcept;

  [[nodiscard]] pager_stats stats() const { return cache_.stats(); }
  [[nodiscard]] prefetch_queue_stats queue() const { return cache_.queue().stats(); }
  [[nodiscard]] std::uint64_t decision_hash() const { return cache_.pager().decision_hash(); }
  /// The arithmetic's time, and how long it waited for copies.
  [[nodiscard]] const clock_stream& stream() const { return stream_; }
  [[nodiscard]] const clock_backend& link() const { return *backend_; }
  /// The link as write_back_clock if victims are copied back; else nullptr.
  [[nodiscard]] const write_back_clock* way_back() const { return victims_; }
  /// Experts streamed through the slots beside the cache's.
  [[nodiscard]] std::uint64_t streamed() const { return transient_.streamed(); }
  [[nodiscard]] const gate_mass& mass() const { return mass_; }

 protected:
  /// Notifies policies of the forecast even if nothing is prefetched.
  void prefetch(const routing_view& view, const visit_context& context, look_ahead& ahead);
  /// Runs the gate of a visit; its experts are known afterwards.
  void run_gate() noexcept;
  void run_arithmetic(ticks time, const visit_context& visit, std::size_t tokens);

  // Protected members named as private ones: only expert_engine derives from this.
  // NOLINTBEGIN(readability-identifier-naming)
  clock_stream stream_;
  std::unique_ptr<clock_backend> backend_;
  visit_costs costs_;
  slot_cache<erased_pager, clock_backend> cache_;
  cache_visit visit_;
  decision_log* decisions_ = nullptr;
  part_counts* parts_ = nullptr;
  gate_mass mass_;
  // NOLINTEND(readability-identifier-naming)

 private:
  void pre_evict(const routing_view& view, look_ahead& ahead);
  std::size_t left_on_host(const visit_plan& plan);
  void compute(const visit_plan& plan, ticks begin);

  write_back_clock* victims_;
  transient_slots<clock_backend> transient_;
  timeline* times_ = nullptr;
  /// Layer for whose next visit slots were freed.
  layer_id freed_for_ = before_layers;
};

/// Makes an engine over a pager of the named policies. Errors: usage_error.
[[nodiscard]] std::unique_ptr<simulated_engine> make_engine(const pager_request& request,
                                                            const policy_knowledge& knowledge,
                                                            const engine_clock& clock,
                                                            const visit_costs& costs,
                                                            const slot_cache_config& setup = {});

}  // namespace hotset::lab
