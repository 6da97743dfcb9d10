// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The pager whose policies are chosen at run time, compiled once; and what replays traces, one virtual call for many visits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_admission_policy.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset {

/// Any policies; without others it admits and fetches every miss. A visit is one virtual call of its eviction policy. Programs
/// that link hotset::policies do not compile it again.
using erased_pager = pager<any_eviction_policy, any_admission_policy, any_miss_policy>;
extern template class pager<any_eviction_policy, any_admission_policy, any_miss_policy>;

/// Is told what a pager decided; for decision logs and comparisons.
class decision_sink {
 public:
  virtual ~decision_sink() = default;
  /// One committed plan: a visit, or one group of it.
  virtual void on_plan(const visit_plan& plan) = 0;
  /// Keys that a byte budget evicted after a visit.
  virtual void on_trim(const visit_context& context, std::span<const expert_key> evicted) = 0;
};

/// What replay needs of a pager. Visits are carried out whole: every group planned and committed.
class any_pager {
 public:
  any_pager() = default;
  any_pager(const any_pager&) = delete;
  any_pager& operator=(const any_pager&) = delete;
  virtual ~any_pager() = default;

  virtual status visit(const routing_view& view) = 0;
  /// How far several visits came.
  struct [[nodiscard]] visits_done {
    status code = status::ok;
    std::size_t end = 0;  ///< the first visit that was not carried out
  };
  /// The same for visits first..last-1 of a sequence, numbered as they are there, until one fails. Pre: last <= all.size().
  virtual visits_done visits(const visit_sequence& all, std::size_t first, std::size_t last) {
    for (; first < last; ++first)
      if (const auto done = visit(all[first]); done != status::ok) return {done, first};
    return {status::ok, last};
  }
  /// Then evicts until the visit's pool takes at most `bytes`, sparing what the visit used.
  virtual status visit_within(const routing_view& view, std::uint64_t bytes) = 0;
  [[nodiscard]] virtual pager_stats stats() const = 0;
  [[nodiscard]] virtual std::uint64_t decision_hash() const = 0;
  /// Facts that a reader of the result must know.
  [[nodiscard]] virtual std::vector<std::string> notes() const = 0;

  void watch(decision_sink* sink) noexcept { sink_ = sink; }

 protected:
  [[nodiscard]] decision_sink* sink() const noexcept { return sink_; }

 private:
  decision_sink* sink_ = nullptr;
};

/// Any pager of the library as an any_pager.
template <class Pager>
class pager_model final : public any_pager {
 public:
  explicit pager_model(Pager decisions) : pager_(std::move(decisions)), plan_(pager_.make_plan()) {}

  status visit(const routing_view& view) override {
    return pager_.serve(view, plan_, [this](const visit_group& group) {
      if (sink() != nullptr) sink()->on_plan(group.plan());
    });
  }
  /// Erased once for all of them, where nobody watches.
  visits_done visits(const visit_sequence& all, std::size_t first, std::size_t last) override {
    if (sink() != nullptr) return any_pager::visits(all, first, last);
    for (; first < last; ++first)
      if (const auto done = pager_.serve(all[first], plan_, [](const visit_group&) {});
          done != status::ok)
        return {done, first};
    return {status::ok, last};
  }
  status visit_within(const routing_view& view, std::uint64_t bytes) override {
    if (const auto s = visit(view); s != status::ok) return s;
    if (sink() != nullptr) return trim_aloud(bytes);
    pager_.trim(plan_.context(), bytes, plan_.slots());
    return status::ok;
  }
  [[nodiscard]] pager_stats stats() const override { return pager_.stats(); }
  [[nodiscard]] std::uint64_t decision_hash() const override { return pager_.decision_hash(); }
  [[nodiscard]] std::vector<std::string> notes() const override {
    std::vector<std::string> out;
    if (pager_.splitting() == visit_split::by_expert)
      out.emplace_back("visits are split by expert: sums change their order (not exact)");
    return out;
  }

 private:
  status trim_aloud(std::uint64_t bytes) {
    std::vector<expert_key> before;
    for (std::size_t s = 0; s < pager_.layout().slots(); ++s)
      if (const auto& entry = pager_.slot(static_cast<slot_id>(s)); entry.state != slot_state::free)
        before.push_back(entry.key);
    pager_.trim(plan_.context(), bytes, plan_.slots());
    std::erase_if(before, [this](expert_key key) { return pager_.locate(key) != no_slot; });
    sink()->on_trim(plan_.context(), before);
    return status::ok;
  }

  Pager pager_;
  visit_plan plan_;
};

}  // namespace hotset
