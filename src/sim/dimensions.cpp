// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/dimensions.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "hotset/miss/compute_on_host.hpp"
#include "hotset/miss/drop.hpp"
#include "hotset/miss/drop_cascade.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/miss/fetch_priority.hpp"
#include "hotset/miss/substitute.hpp"
#include "hotset/prefetch/next_layer_top_k.hpp"
#include "hotset/prefetch/no_prefetch.hpp"
#include "hotset/prefetch/noisy_oracle.hpp"
#include "hotset/prefetch/popular.hpp"
#include "hotset/prefetch/previous_step.hpp"
#include "hotset/prefetch/score_threshold.hpp"
#include "hotset/routing/cache_aware.hpp"
#include "hotset/routing/router_order.hpp"
#include "hotset/sim/errors.hpp"
#include "hotset/sim/policy_spec.hpp"
#include "hotset/sim/suggest.hpp"

namespace hotset::inline v0::sim {

namespace {

constexpr std::array<std::string_view, 3> guards{"none", "named", "predicted"};

/// An element of one policy, its folder left out.
struct named_spec {
  policy_spec spec;
  parameter_reader read;
  std::string_view name;

  named_spec(std::string_view text, std::string_view folder)
      : spec(parse_policy(text)), read(spec), name(spec.name) {
    if (name.starts_with(folder)) name.remove_prefix(folder.size());
  }
  /// Any holder of the policy P.
  template <class Any, class P>
  typename Any::config hold(typename P::config options) {
    read.finish();
    if (const auto bad = options.validate()) throw usage_error(bad->message);
    return Any::template holding<P>(std::move(options));
  }
  [[noreturn]] void refuse(std::string_view what, const std::vector<std::string>& names) const {
    refuse_name(fmt::format("unknown {} policy", what), spec.name, names);
  }
};

template <class T>
T small_number(parameter_reader& read, std::string_view key, T otherwise) {
  const auto value = read.number(key, static_cast<std::uint64_t>(otherwise));
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  if (value > most)
    throw usage_error(fmt::format("{} = {}, accepted: at most {}", key, value, most));
  return static_cast<T>(value);
}

fetch_priority::config read_cascade(parameter_reader& read) {
  fetch_priority::config out;
  out.percentile = read.real("percentile", out.percentile);
  out.window = small_number(read, "window", out.window);
  return out;
}

}  // namespace

std::vector<std::string> prefetch_names() {
  return {"no_prefetch",   "next_layer_top_k", "score_threshold",
          "previous_step", "popular",          "noisy_oracle"};
}
std::vector<std::string> miss_names() {
  return {"fetch",        "fetch_lowest", "fetch_priority", "drop",
          "drop_cascade", "substitute",   "compute_on_host"};
}
std::vector<std::string> routing_names() { return {"router_order", "cache_aware"}; }
std::vector<std::string> guard_names() { return {guards.begin(), guards.end()}; }

std::optional<profile_request> requested_prefetch_profile(std::string_view text) {
  named_spec one(text, "prefetch.");
  const auto source = one.read.text("profile", "running");
  if (one.name != popular::name || source == "running") return std::nullopt;
  return profile_request{source, one.read.number("first", 0)};
}

any_prefetch_policy::config make_prefetch(std::string_view text,
                                          const popularity::config& profile) {
  named_spec one(text, "prefetch.");
  auto& read = one.read;
  using any = any_prefetch_policy;
  if (one.name == no_prefetch::name) return one.hold<any, no_prefetch>({});
  if (one.name == previous_step::name) return one.hold<any, previous_step>({});
  if (one.name == next_layer_top_k::name) {
    next_layer_top_k::config c;
    c.overfetch = read.real("overfetch", c.overfetch);
    c.depth = small_number(read, "depth", c.depth);
    return one.hold<any, next_layer_top_k>(c);
  }
  if (one.name == score_threshold::name) {
    score_threshold::config c;
    c.percentile = read.real("percentile", c.percentile);
    c.window = small_number(read, "window", c.window);
    c.of = static_cast<score_population>(read.choice("of", {"recent", "layer"}, 0));
    return one.hold<any, score_threshold>(c);
  }
  if (one.name == popular::name) {
    popular::config c;
    c.count = small_number(read, "count", c.count);
    (void)read.text("profile", "running");
    (void)read.number("first", 0);
    c.profile = profile.profile;
    c.source = profile.source;
    return one.hold<any, popular>(c);
  }
  if (one.name == noisy_oracle::name) {
    noisy_oracle::config c;
    c.precision = read.real("precision", c.precision);
    c.recall = read.real("recall", c.recall);
    c.seed = read.number("seed", c.seed);
    return one.hold<any, noisy_oracle>(c);
  }
  one.refuse("prefetch", prefetch_names());
}

any_miss_policy::config make_miss(std::string_view text) {
  named_spec one(text, "miss.");
  auto& read = one.read;
  using any = any_miss_policy;
  if (one.name == fetch::name) return one.hold<any, fetch>({});
  if (one.name == fetch_lowest::name) return one.hold<any, fetch_lowest>({});
  if (one.name == fetch_priority::name) return one.hold<any, fetch_priority>(read_cascade(read));
  if (one.name == drop::name) {
    drop::config c;
    c.keep = small_number(read, "keep", c.keep);
    return one.hold<any, drop>(c);
  }
  if (one.name == drop_cascade::name) {
    drop_cascade::config c;
    c.keep = small_number(read, "keep", c.keep);
    const auto cascade = read_cascade(read);
    c.percentile = cascade.percentile;
    c.window = cascade.window;
    return one.hold<any, drop_cascade>(c);
  }
  if (one.name == substitute::name) {
    substitute::config c;
    c.tolerance = read.real("tolerance", c.tolerance);
    return one.hold<any, substitute>(c);
  }
  if (one.name == compute_on_host::name) {
    compute_on_host::config c;
    c.split = static_cast<host_split>(read.choice("split", {"none", "bandwidth_matched"}, 0));
    c.fetch_cost = read.real("fetch_cost", c.fetch_cost);
    c.host_cost = read.real("host_cost", c.host_cost);
    return one.hold<any, compute_on_host>(c);
  }
  one.refuse("miss", miss_names());
}

any_routing_policy::config make_routing(std::string_view text) {
  named_spec one(text, "routing.");
  auto& read = one.read;
  using any = any_routing_policy;
  if (one.name == router_order::name) return one.hold<any, router_order>({});
  if (one.name == cache_aware::name) {
    cache_aware::config c;
    c.lambda = read.real("lambda", c.lambda);
    c.average = static_cast<logit_average>(read.choice("average", {"range", "value"}, 0));
    return one.hold<any, cache_aware>(c);
  }
  one.refuse("routing", routing_names());
}

prefetch_guard parse_guard(std::string_view name) {
  const auto found = std::ranges::find(guards, name);
  if (found == guards.end()) refuse_name("prefetch guard", name, guard_names());
  return static_cast<prefetch_guard>(found - guards.begin());
}

any_predictor::config make_predictor(std::string_view text,
                                     const std::vector<std::string>& accepted) {
  named_spec one(text, "");
  auto& read = one.read;
  if (std::ranges::find(accepted, one.name) == accepted.end())
    refuse_name("predictor", one.name, accepted);
  if (one.name == "co-activation") {
    co_activation::config c;
    c.reach = small_number(read, "reach", c.reach);
    c.decay = read.real("decay", c.decay);
    read.finish();
    if (const auto bad = c.validate()) throw usage_error(bad->message);
    any_predictor::config out;
    out.table = c;
    return out;
  }
  read.finish();
  any_predictor::config out;
  out.gate.source = one.name == "recorded"       ? gate_source::recorded
                    : one.name == "current-gate" ? gate_source::current_gate
                                                 : gate_source::next_router;
  return out;
}

std::string without_folder(std::string_view text, std::string_view folder) {
  if (text.starts_with(folder)) text.remove_prefix(folder.size());
  return std::string(text);
}

bool prefetches(std::string_view prefetch) {
  return without_folder(prefetch, "prefetch.") != no_prefetch::name;
}
bool fetches_everything(std::string_view miss) {
  return without_folder(miss, "miss.") == fetch::name;
}
namespace {
/// What any_miss_policy says of the policy that it holds, in a model in which every policy works.
any_miss_policy held(std::string_view miss) {
  const geometry shape{.layers = 1,
                       .experts = 1,
                       .top_k = 1,
                       .max_tokens_per_visit = 1,
                       .expert_bytes = {2},
                       .layer_size_class = {},
                       .lower_precisions = {{1}}};
  return {shape, make_miss(miss)};
}
}  // namespace

bool wants_scores(std::string_view miss) { return held(miss).facts().needs_logits; }
bool is_exact_miss(std::string_view miss) { return held(miss).facts().is_exact; }
bool needs_weights(std::string_view miss) { return held(miss).facts().needs_weights; }

bool bends_routing(std::string_view routing) {
  return without_folder(routing, "routing.") != router_order::name;
}

}  // namespace hotset::inline v0::sim
