// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Policies by name: what `--eviction` and `--admission` accept.

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/eviction/any_eviction_policy.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/miss/any_miss_policy.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/sim/any_pager.hpp"
#include "hotset/sim/policy_spec.hpp"
#include "hotset/sim/simulated_engine.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset::inline v0::sim {

/// Dotted names of everything that can be asked for, such as `eviction.least_stale`; the folder may be left out.
[[nodiscard]] std::vector<std::string> eviction_names();
[[nodiscard]] std::vector<std::string> eviction_decorator_names();
[[nodiscard]] std::vector<std::string> admission_names();

/// What policies that look beyond the running visit are given. A missing part refuses the policy that needs it.
struct policy_knowledge {
  std::shared_ptr<const future_uses> future{};  ///< belady
  popularity::config profile{};                 ///< popularity
};

/// True if the named policy needs the future of the trace.
[[nodiscard]] bool needs_future(std::string_view eviction);
/// Where `popularity` takes its profile from.
struct profile_request {
  std::string source{"trace"};  ///< "trace": the one that is replayed; else a trace file
  std::uint64_t first = 0;      ///< tokens of it to count; 0: all
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the defaulted comparison for a 0
  friend auto operator<=>(const profile_request&, const profile_request&) = default;
};
/// Nothing for other policies.
[[nodiscard]] std::optional<profile_request> requested_profile(std::string_view eviction);

/// A policy chain such as `protect_hot:uses=4+lru`, to be built for any layout.
/// Errors: usage_error that lists what is accepted.
[[nodiscard]] any_eviction_policy::config make_eviction(std::string_view eviction,
                                                        const policy_knowledge& knowledge = {});

struct pager_request {
  std::string eviction = "lru";
  std::string admission = "always";
  pool_layout layout;
  visit_split split = visit_split::by_token;
  std::optional<any_miss_policy::config> miss{};  ///< none: fetch
  prefetch_guard guard = prefetch_guard::named;
};

/// Errors: usage_error if they cannot work over these precisions: belady knows one, lhu needs two, and without a
/// miss policy (`miss`) everything is fetched at one.
void check_precisions(std::string_view eviction, const pool_layout& layout, bool miss);
/// Errors: usage_error if the two cannot be built together, whatever trace they will see.
void check_policies(std::string_view eviction, std::string_view admission);

/// A pager of the library behind one virtual call per visit; plain policies are composed at compile time.
/// Errors: usage_error.
[[nodiscard]] std::unique_ptr<any_pager> make_pager(const pager_request& request,
                                                    const policy_knowledge& knowledge);

/// The same pager under a slot cache on a virtual clock. Errors: usage_error.
[[nodiscard]] std::unique_ptr<simulated_engine> make_engine(const pager_request& request,
                                                            const policy_knowledge& knowledge,
                                                            const link_model& link,
                                                            const visit_costs& costs);

/// As make_engine, an expert_engine. Pre: the pools of `request` are of one_by_one(shape).
/// Errors: usage_error.
[[nodiscard]] std::unique_ptr<simulated_engine> make_expert_engine(
    const pager_request& request, const policy_knowledge& knowledge, const geometry& shape,
    const link_model& link, const visit_costs& costs);

}  // namespace hotset::inline v0::sim
