// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Policies that the laboratory's programs know by name, and sets of them, parsed once.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/prefetch/active_evict.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/transfer/prefetch_queue.hpp"
#include "lab/errors.hpp"

namespace hotset::lab {

/// Returns the value, or throws its error as usage_error.
template <class T>
[[nodiscard]] T asked(result<T> made) {
  if (!made) throw usage_error(made.error().message);
  return *std::move(made);
}

/// The library's policies, those that a program has added (`policies()`), and belady_bypass, a row without a policy.
[[nodiscard]] const policy_registry& known_policies();

/// Refuses a policy that does not support several precisions, and several precisions without a miss policy (`miss`).
/// Errors, here and below: usage_error.
void check_precisions(std::string_view eviction, const pool_layout& layout, bool miss);
/// Makes a pager of the named policies.
[[nodiscard]] erased_pager make_pager(const pager_request& request,
                                      const policy_knowledge& knowledge = {});

/// `profile`: usage counts for `popular:profile=...`.
[[nodiscard]] any_prefetch_policy::config make_prefetch(std::string_view text,
                                                        const usage_profile& profile = {});
[[nodiscard]] any_miss_policy::config make_miss(std::string_view text);
[[nodiscard]] any_routing_policy::config make_routing(std::string_view text);
/// Predictors that work with routers, or with predictions recorded in a trace.
[[nodiscard]] std::vector<std::string> predictor_names(bool has_routers, bool has_recorded);
/// Parses one of `accepted`, such as `current-gate` or `co-activation:reach=4:decay=0.8`, or a mix,
/// `mixed+co-activation+last-routed`.
[[nodiscard]] any_predictor::config make_predictor(std::string_view text,
                                                   const std::vector<std::string>& accepted);

/// One policy of each kind, as text of the command line.
struct policy_set {
  std::string eviction = "lru";
  std::string admission = "always";
  std::string prefetch = "no_prefetch";
  std::string guard = "named";
  std::string miss = "fetch";
  std::string routing = "router_order";
  std::string pre_eviction = "none";
  std::string predictor = "recorded";  ///< used by prefetch, pre-eviction and eviction
  std::string prefetch_order = "nearest";
  std::string preset{};  ///< requested preset, or empty

  bool operator==(const policy_set&) const = default;
};

/// Parsed policies of a set. Policies that need the trace are built later: eviction, and a prefetcher with a profile.
struct chosen_policies {
  policy_set names{};
  const eviction_row* eviction = nullptr;
  std::optional<profile_request> profile{};  ///< for the eviction policy
  prefetch_traits prefetch{};
  std::optional<any_prefetch_policy::config> prefetcher{};  ///< none: no prefetch
  std::optional<profile_request> prefetch_profile{};
  prefetch_guard guard = prefetch_guard::named;
  fill_order order = fill_order::nearest;
  miss_traits miss{};
  std::optional<any_miss_policy::config> misses{};      ///< none: every miss is fetched
  std::optional<any_routing_policy::config> routing{};  ///< none: the router's choice is kept
  any_predictor::config predictor{};
  std::optional<active_evict::config> pre_eviction{};

  /// True for a bound of the laboratory, which has no slots.
  [[nodiscard]] bool stands_alone() const { return !eviction->make; }
};
/// `predictors`: accepted names. Errors: also for combinations of policies without effect.
[[nodiscard]] chosen_policies read_policies(
    const policy_set& names,
    const std::vector<std::string>& predictors = predictor_names(false, true));

}  // namespace hotset::lab
