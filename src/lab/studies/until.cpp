// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/until.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/curves/every_size.hpp"
#include "lab/curves/miss_curves.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/replay/run_all.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

/// Relative error of a decimal that was read and then computed with.
constexpr double rounding = 0x1p-50;

/// Parses the "90" of "90%". Returns a fraction.
std::optional<double> read_share(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  const auto percent = parse_number<double>(text, std::chars_format::fixed);
  if (!percent || !(*percent > 0 && *percent <= 100)) return std::nullopt;
  return *percent / 100;
}
std::optional<double> read_seconds(std::string_view text) {
  const auto time = parse_duration(text);
  if (!time || *time == 0) return std::nullopt;
  return static_cast<double>(*time) * 1e-9;
}

/// The request for the setting of one run.
sweep_request setting_of(sweep_request request, const run_result& run) {
  request.policies = {run.policies};
  request.scopes = {parse_scope(run.scope)};
  request.replays = {parse_replay_mode(run.replay)};
  std::erase_if(request.precisions, [&](const auto& one) { return one.text != run.precision; });
  std::erase_if(request.links, [&](const auto& one) { return one.text != run.link; });
  request.jobs = 1;
  request.progress = {};
  request.running = {};
  return request;
}

/// One setting in caches of any size.
class sized_replay {
 public:
  /// `whole`: its replay with slots for all experts.
  sized_replay(const routing_trace& trace, const sweep_request& request, const run_result& whole)
      : trace_(trace),
        request_(setting_of(request, whole)),
        most_(static_cast<std::size_t>(trace.experts) *
              (per_layer() ? 1U : static_cast<std::size_t>(trace.layers))),
        first_(most_),
        hits_(most_ + 1) {
    runs_[most_] = whole;
    if (has_curve(whole)) measure_curve();
  }

  /// Pre: slots for all experts reach the target.
  [[nodiscard]] run_result fewest(const until_target& target) {
    auto enough = first_;
    std::size_t too_few = 0;
    for (; enough < most_ && !target.reached_by(at(target, enough)); ++enough) too_few = enough;
    bool guessed = false;
    while (enough - too_few > 1) {
      const auto middle = too_few + (enough - too_few) / 2;
      const auto value = at(target, middle);
      guessed |= value.has_value();
      (target.reached_by(value) ? enough : too_few) = middle;
    }
    auto out = run(enough).value();
    out.found = {target.text, target.value_of(out).value(), at(target, too_few)};
    if (guessed)
      out.notes.emplace_back(
          "slots found by bisection: if misses rise with slots, fewer may reach the target, too");
    return out;
  }

 private:
  [[nodiscard]] bool per_layer() const { return request_.scopes[0] == cache_scope::per_layer; }

  /// Whether measure_curves counts the hits of this setting.
  [[nodiscard]] bool has_curve(const run_result& whole) const {
    policy_set plain;
    plain.eviction = whole.policies.eviction;
    const auto mode = request_.replays[0];
    const auto known = evictions_of_every_size();
    return whole.policies == plain && std::ranges::find(known, plain.eviction) != known.end() &&
           (mode == replay_mode::event_atomic || mode == replay_mode::per_access) &&
           whole.precision.empty() && whole.link.empty() && !request_.size_classes &&
           !request_.warm_start;
  }
  void measure_curve() {
    const visit_sequence visits(
        trace_, {request_.replays[0] == replay_mode::per_access, request_.max_tokens});
    const auto curves =
        measure_curves(visits, request_.scopes[0], {}, 0, request_.policies[0].eviction);
    const auto accesses = static_cast<double>(curves.accesses);
    first_ = curves.widest;
    for (auto slots = first_; slots <= most_; ++slots) {
      double misses = 0;
      for (const auto& pool : curves.pools) misses += pool.misses[slots];
      hits_[slots] = (accesses - misses) / accesses;
    }
  }

  /// The target's value; nothing if the slots are too few for a visit.
  [[nodiscard]] std::optional<double> at(const until_target& target, std::size_t slots) {
    if (slots == 0) return std::nullopt;
    if (target.of == until_target::measure::hit && hits_[slots]) return hits_[slots];
    const auto& done = run(slots);
    return done ? target.value_of(*done) : std::nullopt;
  }
  const std::optional<run_result>& run(std::size_t slots) {
    const auto [found, is_new] = runs_.try_emplace(slots);
    if (!is_new) return found->second;
    request_.sizes = {size_request::parse_slots(std::to_string(slots))};
    try {
      auto sweep = run_sweep(trace_, request_);
      if (!sweep.results.empty()) found->second = std::move(sweep.results.front());
    } catch (const infeasible_error&) {  // fewer slots than a visit needs
    }
    return found->second;
  }

  const routing_trace& trace_;
  sweep_request request_;
  std::size_t most_;                         // slots that hold all experts of a pool
  std::size_t first_;                        // smallest size of the curve; most_ if there is none
  std::vector<std::optional<double>> hits_;  // [slots] by the curve
  std::map<std::size_t, std::optional<run_result>> runs_;  // by slots
};

/// The reason, and the nearest target that is reached. `whole`: replay with slots for all experts.
std::string why_out_of_reach(const until_target& target, const run_result& whole) {
  const auto& names = whole.policies;
  const auto value = target.value_of(whole);
  if (!value)
    throw usage_error(fmt::format(
        "--until {}: {} accesses and no decode rows, accepted: traces of decoding, or --as decode",
        target.text, whole.stats.accesses));
  const auto subject =
      fmt::format("{}: {}, {} scope, {} slots for all experts", target.text,
                  names.preset.empty() ? names.eviction : names.preset, whole.scope, whole.slots);
  if (target.of == until_target::measure::tpot)
    return fmt::format("{}: a token takes {:.3f} ms; accepted: tpot={:.3f}ms or more", subject,
                       *value * 1e3, std::ceil(*value * 1e6) / 1e3);
  return fmt::format(
      "{}: {} of {} accesses miss, {} of them on a first use; accepted: hit={:.2f}% or less",
      subject, whole.stats.misses, whole.stats.accesses, whole.stats.compulsory_misses,
      std::floor(*value * 1e4) / 1e2);
}

void check(const sweep_request& request, std::span<const until_target> targets) {
  for (const auto mode : request.replays)
    if (mode == replay_mode::deferred)
      throw usage_error("--until counts slots, and deferred replay bytes, accepted: other replays");
  for (const auto& target : targets)
    if (target.of == until_target::measure::tpot && request.links.empty())
      throw usage_error(fmt::format(
          "--until {}: a time needs the speed of the link, accepted: --link 25GB/s", target.text));
}

}  // namespace

until_target until_target::parse(std::string_view text) {
  const auto value = text.substr(std::min(text.size(), text.find('=') + 1));
  if (text.starts_with("hit="))
    if (const auto share = read_share(value)) return {measure::hit, *share, std::string(text)};
  if (text.starts_with("tpot="))
    if (const auto time = read_seconds(value)) return {measure::tpot, *time, std::string(text)};
  throw usage_error(
      fmt::format("'{}', accepted: hit=90% (at most 100%), tpot=20ms", printable(text)));
}

std::optional<double> until_target::value_of(const run_result& run) const {
  const auto share = [](auto part, auto whole) -> std::optional<double> {
    if (whole == 0) return std::nullopt;
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (of == measure::hit) return share(run.stats.hits, run.stats.accesses);
  if (!run.outcome) return std::nullopt;
  const auto nanoseconds = share(run.outcome->times.decoding, run.outcome->times.decoded);
  return nanoseconds ? std::optional(*nanoseconds * 1e-9) : std::nullopt;
}
bool until_target::reached_by(std::optional<double> value) const {
  if (!value) return false;
  return of == measure::hit ? *value >= bound * (1 - rounding) : *value <= bound * (1 + rounding);
}

sweep_result run_until(const routing_trace& trace, sweep_request request,
                       std::span<const until_target> targets) {
  check(request, targets);
  request.sizes = {size_request::parse_slots("100%")};
  request.leaves_out_sizes = false;
  auto out = run_sweep(trace, request);
  const auto settings = std::exchange(out.results, {});
  std::vector<std::optional<run_result>> found(targets.size() * settings.size());
  std::mutex reporting;
  std::size_t done = 0;
  run_all(settings.size(), request.jobs, [&](std::size_t s) {
    sized_replay replay(trace, request, settings[s]);
    for (std::size_t t = 0; t < targets.size(); ++t)
      if (targets[t].reached_by(targets[t].value_of(settings[s])))
        found[t * settings.size() + s] = replay.fewest(targets[t]);
    const std::lock_guard lock(reporting);
    if (request.progress) request.progress(++done, settings.size());
  });
  std::vector<std::string> out_of_reach;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i])
      out.results.push_back(*std::move(found[i]));
    else
      out_of_reach.push_back(
          why_out_of_reach(targets[i / settings.size()], settings[i % settings.size()]));
  if (out.results.empty() && !out_of_reach.empty()) throw infeasible_error(out_of_reach.front());
  out.not_replayed.insert(out.not_replayed.end(), out_of_reach.begin(), out_of_reach.end());
  return out;
}

}  // namespace hotset::lab
