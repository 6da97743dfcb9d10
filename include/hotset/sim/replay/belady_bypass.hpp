// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The offline optimum when a miss need not take a slot.
///
/// Rule: misses are served from transient slots outside the pool; afterwards the pool keeps those of its residents
///       and of the visit's experts that are used soonest. Ties: the more recently used one stays.
/// Source: Belady 1966 with bypassing.
/// Deviations: visits are never split: the transient slots hold whatever does not fit; notes() states their bytes.
/// Exact: yes (never changes what is computed). Offline: needs the trace beforehand.
/// Cost: O(log S) per distinct expert.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "hotset/registry/any_pager.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset::inline v0::sim {

/// A simulator's bound, not an engine's policy: it counts, and owns no slots that could be filled.
class belady_bypass final : public any_pager {
 public:
  /// Errors: usage_error if there is no future or it belongs to another shape.
  belady_bypass(pool_layout layout, std::shared_ptr<const future_uses> future);

  status visit(const routing_view& view) override;
  /// Not offered: transient slots and a byte budget after the visit do not go together. Returns invalid_argument.
  status visit_within(const routing_view& view, std::uint64_t bytes) override;
  [[nodiscard]] pager_stats stats() const override { return stats_; }
  [[nodiscard]] std::uint64_t decision_hash() const override { return hash_; }
  [[nodiscard]] std::vector<std::string> notes() const override;

 private:
  /// Ordered so that the first one is given up first.
  struct resident {
    std::uint32_t next_use = 0;
    std::uint64_t position = 0;
    std::uint32_t key = 0;
    friend bool operator<(const resident& a, const resident& b) {
      if (a.next_use != b.next_use) return a.next_use > b.next_use;
      if (a.position != b.position) return a.position < b.position;
      return a.key < b.key;
    }
  };

  [[nodiscard]] std::uint32_t next_use(std::size_t key, std::uint64_t ordinal);
  void count_miss(std::size_t key, const routing_view& view);
  void use(std::size_t key, const routing_view& view, std::set<resident>& pool);
  std::uint64_t shed(pool_id pool, const routing_view& view);

  pool_layout layout_;
  std::shared_ptr<const future_uses> future_;
  unique_ids unique_;
  std::vector<expert_id> experts_;
  std::vector<std::uint32_t> order_;
  std::vector<std::size_t> cursor_;  ///< by key, into the future
  std::vector<std::set<resident>> pools_;
  std::vector<std::optional<resident>> where_;  ///< by key: its entry in its pool
  std::vector<std::uint8_t> seen_;
  std::vector<step_id> evicted_in_;
  std::uint64_t clock_ = 0;
  std::uint64_t transient_bytes_ = 0;  ///< most that one visit needed beside the pool
  std::optional<step_id> last_step_;
  bool step_has_miss_ = false;
  std::uint64_t hash_ = 0;
  pager_stats stats_;
};

}  // namespace hotset::inline v0::sim
