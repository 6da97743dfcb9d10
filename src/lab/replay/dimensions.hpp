// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Policies of each kind by name, and sets of them that are read once.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"
#include "hotset/policy/any/any_predictor.hpp"
#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/policy/routing_policy.hpp"
#include "hotset/transfer/prefetch_queue.hpp"
#include "lab/replay/registry.hpp"

namespace hotset::lab {

/// What `--prefetch` accepts.
[[nodiscard]] std::vector<std::string> prefetch_names();
/// What `--miss` accepts.
[[nodiscard]] std::vector<std::string> miss_names();
/// What `--routing` accepts.
[[nodiscard]] std::vector<std::string> routing_names();
/// What `--prefetch-guard` accepts.
[[nodiscard]] std::vector<std::string> guard_names();

/// Errors: usage_error that lists what is accepted.
/// `profile` is what `popular:profile=...` goes by.
[[nodiscard]] any_prefetch_policy::config make_prefetch(std::string_view text,
                                                        const usage_profile& profile = {});
/// Nothing for other policies, and where `popular` counts for itself.
[[nodiscard]] std::optional<profile_request> requested_prefetch_profile(std::string_view text);
/// As make_prefetch.
[[nodiscard]] any_miss_policy::config make_miss(std::string_view text);
/// As make_prefetch.
[[nodiscard]] any_routing_policy::config make_routing(std::string_view text);
/// Errors: usage_error that lists guard_names().
[[nodiscard]] prefetch_guard parse_guard(std::string_view name);
/// What `--prefetch-order` accepts.
[[nodiscard]] std::vector<std::string> fill_order_names();
/// Errors: usage_error that lists fill_order_names().
[[nodiscard]] fill_order parse_fill_order(std::string_view name);
/// Names of what prefetchers by score may go by, where there are routers, or predictions that a trace recorded.
[[nodiscard]] std::vector<std::string> predictor_names(bool has_routers, bool has_recorded);
/// One of the `accepted` ones, such as `current-gate` or `co-activation:reach=4:decay=0.8`, or a mix of some,
/// `mixed+co-activation+last-routed`.
[[nodiscard]] any_predictor::config make_predictor(std::string_view text,
                                                   const std::vector<std::string>& accepted);

/// "none", or active_evict with its parameters. Errors: usage_error.
[[nodiscard]] std::optional<active_evict::config> make_pre_eviction(std::string_view text);

/// False for the plain choice, without which an engine works as well. Errors, here and below: usage_error.
[[nodiscard]] bool prefetches(std::string_view prefetch);
/// True of a miss policy that copies every miss.
[[nodiscard]] bool fetches_everything(std::string_view miss);
/// True of a routing policy that may change what the router chose.
[[nodiscard]] bool bends_routing(std::string_view routing);
/// True of a miss policy that goes by the router's scores.
[[nodiscard]] bool wants_scores(std::string_view miss);
/// True of a miss policy that leaves what is computed alone.
[[nodiscard]] bool is_exact_miss(std::string_view miss);
/// What an eviction chain hears.
[[nodiscard]] eviction_traits heard_by(std::string_view eviction);

/// One policy of each kind; texts as the command line takes them.
struct policy_set {
  std::string eviction = "lru";
  std::string admission = "always";
  std::string prefetch = "no_prefetch";
  std::string guard = "named";
  std::string miss = "fetch";
  std::string routing = "router_order";
  std::string pre_eviction = "none";
  std::string predictor = "recorded";  ///< what prefetch, pre-eviction and eviction go by
  std::string prefetch_order = "nearest";
  std::string preset{};  ///< the name that it was asked for by, or empty
};

/// The policies that a set names. Policies that need the trace are built later: eviction, and a prefetcher with a
/// profile.
struct chosen_policies {
  policy_set names{};
  const eviction_row* eviction = nullptr;
  std::optional<profile_request> profile{};  ///< of the eviction policy
  prefetch_traits prefetch{};
  std::optional<any_prefetch_policy::config> prefetcher{};  ///< none: no prefetch
  std::optional<profile_request> prefetch_profile{};
  prefetch_guard guard = prefetch_guard::named;
  fill_order order = fill_order::nearest;
  miss_traits miss{};
  std::optional<any_miss_policy::config> misses{};      ///< none: every miss is fetched
  std::optional<any_routing_policy::config> routing{};  ///< none: the router's choice stands
  any_predictor::config predictor{};
  std::optional<active_evict::config> pre_eviction{};

  /// True of a bound of the laboratory, which owns no slots.
  [[nodiscard]] bool stands_alone() const { return !eviction->make; }
};
/// Errors: usage_error for a name or a parameter that does not work, and for policies that do nothing together.
[[nodiscard]] chosen_policies read_policies(const policy_set& names);

}  // namespace hotset::lab
