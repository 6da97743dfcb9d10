// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/verification.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/program.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/registry.hpp"
#include "tiny_moe/experts/paging_choice.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/model/kernels.hpp"

namespace tiny_moe {
namespace {

using hotset::cache_scope;
using hotset::lab::refuse_input;

constexpr std::size_t vocabulary = model_config::vocabulary;

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Compares the rows of one pass with the results of full residency from `position` on.
void compare_rows(std::span<const float> found, std::span<const float> wanted,
                  const std::string& prompt, std::size_t position, verification_outcome& outcome) {
  outcome.rows += found.size() / vocabulary;
  if (std::ranges::equal(std::as_bytes(found), std::as_bytes(wanted))) return;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(found[i]) == std::bit_cast<std::uint32_t>(wanted[i])) continue;
    if (!outcome.difference) outcome.difference = {prompt, position + i / vocabulary};
    const double difference = std::abs(double{found[i]} - double{wanted[i]});
    outcome.largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                             : std::max(outcome.largest, difference);
  }
}

}  // namespace

std::vector<std::string> words_of(std::span<const named_text> texts) {
  std::vector<std::string> words;
  for (const auto& one : texts) words.push_back(one.text);
  return words;
}

std::vector<named_text> read_texts(std::span<const std::filesystem::path> files,
                                   const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths(files.begin(), files.end());
  const auto prompts = folder / "prompts";
  if (paths.empty()) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(prompts, none)) {
      if (entry.path().extension() == ".txt") paths.push_back(entry.path());
    }
    if (paths.empty()) refuse_input(prompts.string(), "", "has no prompts", "files NAME.txt");
    std::sort(paths.begin(), paths.end());
  }
  std::vector<named_text> texts;
  for (const auto& path : paths) {
    const hotset::lab::mapped_file file(hotset::lab::input_path(path));
    const auto bytes = file.bytes();
    if (bytes.empty()) refuse_input(path.string(), "", "is empty", "text to continue");
    texts.push_back(
        {path.stem().string(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  return texts;
}

std::string verification_case::text() const {
  std::string words = fmt::format("{}, {} {}", eviction, hotset::lab::name_of(scope), budget);
  if (admission != "always") words += fmt::format(", admission {}", admission);
  if (transient != 0) words += fmt::format(", {} transient slots", transient);
  if (max_tokens != 0) words += fmt::format(", at most {} tokens a pass", max_tokens);
  if (split == hotset::visit_split::by_expert) words += ", split by expert";
  if (stream == hotset::host_stream::mode::worker) words += ", worker stream";
  if (prefetch != "no_prefetch") words += fmt::format(", prefetch {}, guard {}", prefetch, guard);
  if (pre_eviction != "none") words += fmt::format(", pre-eviction {}", pre_eviction);
  if (predictor != "next-router") words += fmt::format(", predictor {}", predictor);
  if (miss != "fetch") words += fmt::format(", misses {}", miss);
  if (!link.empty()) words += fmt::format(", link {}", link);
  return words;
}

namespace {
/// All policies that an engine with one precision can run, and each decorator around lru.
std::vector<std::string> live_evictions() {
  const auto& known = hotset::lab::known_policies();
  std::vector<std::string> names;
  for (const auto& row : known.eviction.rows()) {
    if (!row.traits.needs_future && row.traits.fewest_precisions == 1) names.push_back(row.name);
  }
  for (const auto& decorator : known.decorators.names()) names.push_back(decorator + "+lru");
  return names;
}

/// All predictors that an engine can use without parameters.
std::vector<std::string> live_predictors() {
  const auto& known = hotset::lab::known_policies().predictors;
  std::vector<std::string> names;
  for (const auto& row : known.rows())
    if (!row.traits.needs_recorded && known.make(row.name)) names.push_back(row.name);
  return names;
}

std::vector<std::string> evictions_by_forecast() {
  std::vector<std::string> names;
  for (const auto& row : hotset::lab::known_policies().eviction.rows())
    if (row.traits.wants_forecasts) names.push_back(row.name);
  return names;
}

/// Adds prefetches one to three layers ahead, slots freed at both points of a visit, evictions by forecast, and split
/// visits with them.
void add_looking_ahead(std::vector<verification_case>& cases, const std::string& predictor) {
  constexpr const char* at_gate = "active_evict";
  constexpr const char* at_end = "active_evict:release=end";
  const auto add = [&](verification_case next) {
    next.predictor = predictor;
    cases.push_back(std::move(next));
  };
  add({.budget = "12.5%", .prefetch = "cumulative_probability:distance=1", .pre_eviction = at_end});
  add({.budget = "8", .prefetch = "next_layer_top_k:depth=2", .pre_eviction = at_gate});
  add({.scope = cache_scope::per_layer,
       .prefetch = "cumulative_probability:distance=3",
       .guard = "none",
       .pre_eviction = at_gate});
  for (const auto& eviction : evictions_by_forecast())
    add({.eviction = eviction,
         .prefetch = "next_layer_top_k:depth=3",
         .guard = "predicted",
         .pre_eviction = at_end});
}
}  // namespace

std::vector<verification_case> exact_cases() {
  std::vector<verification_case> cases;
  for (const std::string& eviction : live_evictions()) {
    for (const char* budget : {"4", "12.5%", "25%", "50%"}) {
      cases.push_back({.eviction = eviction, .budget = budget});
    }
    for (const char* budget : {"4", "25%", "50%"}) {
      cases.push_back({.eviction = eviction, .scope = cache_scope::per_layer, .budget = budget});
    }
  }
  constexpr auto worker = hotset::host_stream::mode::worker;
  cases.push_back({.admission = "budgeted:fills_per_visit=1"});
  cases.push_back({.admission = "least_valuable:streams=2"});
  cases.push_back({.admission = "least_valuable:streams=3", .transient = 2});
  cases.push_back({.admission = "budgeted:fills_per_visit=1", .stream = worker, .transient = 4});
  cases.push_back({.admission = "after_n_uses", .scope = cache_scope::per_layer, .budget = "4"});
  cases.push_back({.scope = cache_scope::per_layer, .budget = "4", .max_tokens = 16});
  cases.push_back({.eviction = "least_stale", .max_tokens = 7});
  cases.push_back({.scope = cache_scope::per_layer, .budget = "4", .stream = worker});
  cases.push_back({.eviction = "least_stale", .stream = worker});
  for (const char* prefetch :
       {"next_layer_top_k:overfetch=2", "score_threshold", "previous_step", "popular"}) {
    for (const char* guard : {"none", "named", "predicted"}) {
      cases.push_back({.budget = "12.5%", .prefetch = prefetch, .guard = guard});
      cases.push_back({.eviction = "least_stale", .prefetch = prefetch, .guard = guard});
    }
    cases.push_back({.eviction = "least_stale", .stream = worker, .prefetch = prefetch});
    cases.push_back({.scope = cache_scope::per_layer, .prefetch = prefetch});
  }
  constexpr const char* next = "next_layer_top_k:overfetch=2:depth=2";
  cases.push_back({.admission = "budgeted:fills_per_visit=1", .prefetch = next});
  cases.push_back({.prefetch = next, .miss = "compute_on_host:split=bandwidth_matched"});
  cases.push_back({.prefetch = next, .link = "400MB/s"});
  cases.push_back(
      {.eviction = "least_stale", .prefetch = next, .guard = "none", .link = "100MB/s"});
  for (const auto& predictor : live_predictors()) add_looking_ahead(cases, predictor);
  return cases;
}

verification::verification(const model& weights, std::vector<named_text> texts,
                           std::size_t continuation)
    : model_(weights), texts_(std::move(texts)), profile_(weights, words_of(texts_)) {
  resident_experts resident(weights);
  engine decoder(weights, resident);
  for (const auto& [name, text] : texts_) {
    const std::size_t room = weights.config().max_positions;
    if (text.empty() || text.size() > room || continuation > room - text.size() + 1) {
      refuse_input(name, "", fmt::format("has {} bytes, {} to follow", text.size(), continuation),
                   fmt::format("1..{} bytes, {} in all", room, room + 1));
    }
    decoder.reset();
    auto row = decoder.forward(bytes_of(text));
    auto& all = logits_.emplace_back(row.begin(), row.end());
    auto& tokens = continuations_.emplace_back();
    for (std::size_t i = 0; i < continuation; ++i) {
      tokens.push_back(static_cast<std::uint8_t>(largest(row.last(vocabulary))));
      if (i + 1 == continuation) break;
      row = decoder.forward({&tokens.back(), 1});
      all.insert(all.end(), row.begin(), row.end());
    }
  }
}

verification_outcome verification::compare(expert_provider& experts, std::size_t max_tokens) const {
  verification_outcome outcome;
  engine decoder(model_, experts, {.max_tokens = max_tokens});
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    decoder.reset();
    const auto check = [&](std::span<const std::uint8_t> tokens, request_kind kind) {
      const std::size_t position = decoder.position();
      const auto found = decoder.forward(tokens, kind);
      compare_rows(found, std::span(logits_[i]).subspan(position * vocabulary, found.size()),
                   texts_[i].name, position, outcome);
    };
    const auto prompt = bytes_of(texts_[i].text);
    for (std::size_t t = 0; t < prompt.size(); t += decoder.max_tokens()) {
      check(std::span(prompt).subspan(t, std::min(decoder.max_tokens(), prompt.size() - t)),
            request_kind::prefill);
    }
    for (std::size_t t = 0; t + 1 < continuations_[i].size(); ++t) {
      check({&continuations_[i][t], 1}, request_kind::decode);
    }
  }
  return outcome;
}

verification_outcome verification::compare(const verification_case& one) const {
  paging_choice choice;
  choice.policies = {.eviction = one.eviction,
                     .admission = one.admission,
                     .prefetch = one.prefetch,
                     .guard = one.guard,
                     .miss = one.miss,
                     .pre_eviction = one.pre_eviction};
  choice.policies.predictor = one.predictor;
  choice.scope = hotset::lab::name_of(one.scope);
  choice.budget = one.budget;
  choice.link = one.link;
  choice.transient = one.transient;
  choice.stream = one.stream == hotset::host_stream::mode::worker ? "worker" : "caller";
  choice.max_tokens = one.max_tokens;
  choice.split = one.split;
  const auto paging = make_paging(model_, choice, profile_);
  const auto& experts = paging.experts;
  auto outcome = compare(*experts, one.max_tokens);
  const auto stats = experts->stats();
  outcome.accesses = stats.accesses;
  outcome.hits = stats.hits;
  outcome.split_visits = stats.split_visits;
  outcome.host_uses = stats.bypasses;
  outcome.prefetch_hits = stats.prefetch_hits;
  return outcome;
}

std::vector<verification_outcome> verification::compare_all(
    std::span<const verification_case> cases) const {
  std::vector<verification_outcome> outcomes(cases.size());
  std::vector<std::exception_ptr> errors(cases.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&] {
    for (auto i = next++; i < cases.size() && !stop; i = next++) {
      try {
        outcomes[i] = compare(cases[i]);
        if (outcomes[i].difference) stop = true;
      } catch (...) {
        errors[i] = std::current_exception();
        stop = true;
      }
    }
  };
  {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < std::min(cores, cases.size()); ++i) helpers.emplace_back(work);
    work();
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return outcomes;
}

}  // namespace tiny_moe
