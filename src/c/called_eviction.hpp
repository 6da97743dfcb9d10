// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An eviction policy whose rule is a program's callbacks.
///
/// Rule: that of the callbacks. This class checks every answer: a victim is a candidate, and is named once.
/// Exact: yes (never changes what is computed).
/// Cost: one call of the program for a visit, and one for a choice of victims, with O(slots / 64 + candidates) for its
/// list of candidates. Allocates nothing after construction.

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset.h"
#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset::c {

// An event's arrays are handed out without a copy.
static_assert(sizeof(bypassed_use) == sizeof(hotset_bypass) &&
              offsetof(bypassed_use, expert) == offsetof(hotset_bypass, expert) &&
              offsetof(bypassed_use, weight) == offsetof(hotset_bypass, weight));

/// The first failure of a policy's callbacks since it was last reported.
class policy_failure {
 public:
  [[nodiscard]] bool happened() const noexcept { return text_.front() != '\0'; }
  [[nodiscard]] const char* text() const noexcept { return text_.data(); }
  void forget() noexcept { text_.front() = '\0'; }
  [[gnu::format(printf, 2, 3), gnu::cold]] void note(const char* format, ...) noexcept {
    if (happened()) return;
    std::va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text_.data(), text_.size(), format, arguments);
    va_end(arguments);
  }

 private:
  std::array<char, 400> text_{};
};

class called_eviction {
 public:
  struct config {
    hotset_eviction_policy calls{};
    std::string name{"called"};         ///< for messages
    policy_failure* failure = nullptr;  ///< outlives the policy
    [[nodiscard]] validation validate() const {
      if (calls.on_visit != nullptr && calls.select_victims != nullptr) return std::nullopt;
      return refusal("policy ", name, ": ",
                     calls.on_visit == nullptr ? "on_visit" : "select_victims",
                     " is null, accepted: a function");
    }
  };
  static constexpr std::string_view name = "called";
  static constexpr eviction_traits traits{
      .needs_weights = true, .moves_by_itself = true, .is_called = true};

  /// Calls reset.
  called_eviction(const pool_layout& layout, const config& options)
      : calls_(options.calls),
        name_(options.name),
        failure_(options.failure),
        keys_(std::vector<hotset_key>(layout.slots(), none)),
        pool_of_(std::vector<pool_id>(layout.slots())),
        pools_(std::vector<slot_mask>(layout.pools(), slot_mask(layout.slots()))),
        eligible_(layout.slots()),
        candidates_(layout.slots()),
        victims_(layout.slots()) {
    if (calls_.reset == nullptr) return;
    std::vector<std::int32_t> slots;
    for (const auto p : each<pool_id>(layout.pools())) slots.push_back(layout.at(p).slots);
    const hotset_policy_layout shown{.struct_size = sizeof shown,
                                     .layers = layout.shape().layers,
                                     .experts = layout.shape().experts,
                                     .top_k = layout.shape().top_k,
                                     .pools = static_cast<std::int32_t>(layout.pools()),
                                     .pool_slots = slots.data(),
                                     .slots = layout.slots(),
                                     .keys = keys_.data()};
    expect_zero("reset", calls_.reset(calls_.user, &shown));
  }

  [[nodiscard]] eviction_traits facts() const noexcept {
    auto own = traits;
    own.needs_weights = calls_.needs_weights != 0;
    return own;
  }

  void on_visit(const visit_event& event) noexcept {
    for (const auto& f : event.fills) {
      if (f.victim != no_key) leave(f.slot);
      enter(f.slot, f.key, event.context.pool);
    }
    const auto& context = event.context;
    event_ = {.struct_size = sizeof event_,
              .layer = number(context.layer),
              .pool = number(context.pool),
              .step = context.step,
              .kind = static_cast<std::int32_t>(context.kind),
              .begins = event.begins ? 1 : 0,
              .experts = reinterpret_cast<const hotset_id*>(event.experts.data()),
              .slots = reinterpret_cast<const hotset_id*>(event.used.data()),
              .weights = event.weights.empty() ? nullptr : event.weights.data(),
              .count = event.used.size(),
              .fills = reinterpret_cast<const hotset_fill*>(event.fills.data()),
              .fill_count = event.fills.size(),
              .bypassed = reinterpret_cast<const hotset_bypass*>(event.bypassed.data()),
              .bypassed_count = event.bypassed.size(),
              .counted = event.counted.empty() ? nullptr : event.counted.data()};
    expect_zero("on_visit", calls_.on_visit(calls_.user, &event_));
  }
  void on_prefetch(const prefetch_event& event) noexcept {
    enter(event.slot, event.key, event.pool);
    if (calls_.on_prefetch == nullptr) return;
    expect_zero("on_prefetch",
                calls_.on_prefetch(calls_.user, keys_[event.slot], number(event.slot),
                                   number(event.pool), event.step));
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    leave(slot);
    if (calls_.on_evict == nullptr) return;
    expect_zero("on_evict",
                calls_.on_evict(calls_.user, c_key(key), number(slot), number(pool_of_[slot])));
  }
  /// The pager of the C interface moves nothing, so the program has no function for it: an eviction, and a copy.
  void on_move(slot_id from, slot_id to) noexcept {
    const expert_key key{static_cast<layer_id>(keys_[from].layer),
                         static_cast<expert_id>(keys_[from].expert)};
    on_evict(from, key);
    on_prefetch({.key = key, .slot = to, .pool = pool_of_[from]});
  }
  /// Returns no victims if the program failed or named a wrong one.
  std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                             std::span<slot_id> out) noexcept {
    eligible_.assign_intersection(eligible, pools_[context.pool]);
    std::size_t candidates = 0;
    for (auto s = eligible_.next(); s != no_slot; s = eligible_.next(s + 1))
      candidates_[candidates++] = number(s);
    const auto count = std::min(out.size(), candidates);
    if (count == 0) return 0;
    choice_ = {.struct_size = sizeof choice_,
               .layer = number(context.layer),
               .pool = number(context.pool),
               .step = context.step,
               .kind = static_cast<std::int32_t>(context.kind),
               .speculative = context.speculative ? 1 : 0,
               .candidates = candidates_.data(),
               .candidate_count = candidates,
               .count = count};
    const auto named = calls_.select_victims(calls_.user, &choice_, victims_.data());
    if (named < 0 || static_cast<std::size_t>(named) != count) {
      named < 0 ? failure_->note("policy %s: select_victims failed with %d", name_.c_str(), named)
                : failure_->note(
                      "policy %s: select_victims named %d victims, accepted: %zu, the "
                      "choice's count",
                      name_.c_str(), named, count);
      return 0;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto slot = static_cast<slot_id>(victims_[i]);
      if (!is_within(slot, keys_.size()) || !eligible_.test(slot)) {
        refuse(slot, context);
        return 0;
      }
      eligible_.reset(slot);  // a second time it is no candidate
      out[i] = slot;
    }
    return count;
  }

 private:
  static constexpr hotset_key none{-1, -1};
  static hotset_key c_key(expert_key key) noexcept {
    return {number(key.layer), number(key.expert)};
  }

  void enter(slot_id slot, expert_key key, pool_id pool) noexcept {
    keys_[slot] = c_key(key);
    pool_of_[slot] = pool;
    pools_[pool].set(slot);
  }
  void leave(slot_id slot) noexcept {
    keys_[slot] = none;
    pools_[pool_of_[slot]].reset(slot);
  }
  void expect_zero(const char* callback, std::int32_t answer) noexcept {
    if (answer != 0)
      failure_->note("policy %s: %s returned %d, accepted: 0", name_.c_str(), callback, answer);
  }
  /// Notes why a victim is refused.
  [[gnu::cold]] void refuse(slot_id slot, const visit_context& context) noexcept {
    const auto number_of = number(slot);
    if (!is_within(slot, keys_.size())) {
      failure_->note("policy %s: select_victims named slot %d, accepted: 0..%zu", name_.c_str(),
                     number_of, keys_.size() - 1);
      return;
    }
    const auto& key = keys_[slot];
    if (key.layer < 0) {
      failure_->note("policy %s: select_victims named slot %d, which is free, accepted: candidates",
                     name_.c_str(), number_of);
      return;
    }
    bool is_candidate = false;
    for (std::size_t i = 0; i < choice_.candidate_count; ++i)
      is_candidate = is_candidate || candidates_[i] == number_of;
    const char* why = "which the visit uses, or which is pinned or waits for its copy";
    if (is_candidate)
      why = "twice";
    else if (!pools_[context.pool].test(slot))
      why = "which is in another pool";
    failure_->note(
        "policy %s: select_victims named slot %d (expert %d of layer %d) for layer %d, %s, "
        "accepted: candidates, each once",
        name_.c_str(), number_of, key.expert, key.layer, number(context.layer), why);
  }

  hotset_eviction_policy calls_;
  std::string name_;
  policy_failure* failure_;
  per_slot<hotset_key> keys_;
  per_slot<pool_id> pool_of_;             ///< of the slot's last key
  per_id<pool_id, slot_mask> pools_;      ///< the slots that hold a key of each pool
  slot_mask eligible_;                    ///< scratch: candidates that were not named yet
  std::vector<std::int32_t> candidates_;  ///< [slots]
  std::vector<std::int32_t> victims_;     ///< [slots]
  hotset_visit_event event_{};
  hotset_choice choice_{};
};

static_assert(is_eviction_policy<called_eviction>());

/// Reads the program's struct. Errors: one of another version, or without a function that it needs.
[[nodiscard]] result<called_eviction::config> read_policy(const hotset_eviction_policy* given,
                                                          policy_failure& failure);

}  // namespace hotset::c
