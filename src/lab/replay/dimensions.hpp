// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Policies by name beyond eviction and admission: what `--prefetch`, `--miss` and `--routing` accept.

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

/// The plain choice, for which an engine without the dimension stands.
[[nodiscard]] bool prefetches(std::string_view prefetch);
/// True of a prefetcher that is told what is still to be routed.
[[nodiscard]] bool sees_future(std::string_view prefetch);
/// True of a miss policy that copies every miss.
[[nodiscard]] bool fetches_everything(std::string_view miss);
/// True of a routing policy that may change what the router chose.
[[nodiscard]] bool bends_routing(std::string_view routing);
/// "none", or active_evict with its parameters. Errors: usage_error.
[[nodiscard]] std::optional<active_evict::config> make_pre_eviction(std::string_view text);
/// What an eviction chain hears, and what a routing policy does nothing without. Errors: usage_error.
[[nodiscard]] eviction_traits heard_by(std::string_view eviction);
/// True of a routing policy that counts slots that were freed ahead.
[[nodiscard]] bool needs_free_slots(std::string_view routing);
/// What a miss policy goes by, and whether it leaves what is computed alone. Errors: as make_miss.
[[nodiscard]] bool wants_scores(std::string_view miss);
/// True of a miss policy that goes by gate weights.
[[nodiscard]] bool needs_weights(std::string_view miss);
/// True of a miss policy that leaves what is computed alone.
[[nodiscard]] bool is_exact_miss(std::string_view miss);

}  // namespace hotset::lab
