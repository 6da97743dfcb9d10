// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Traces built by hand or from a seed, replays in one call, and other helpers for the simulator's tests.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/trace/routing_trace.hpp"
#include "lab/errors.hpp"
#include "lab/replay/preset.hpp"
#include "lab/replay/sweep.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::support {

inline routing_trace empty_trace(std::int32_t layers, std::int32_t experts, std::int32_t top_k) {
  routing_trace trace;
  trace.name = "hand";
  trace.layers = layers;
  trace.experts = experts;
  trace.top_k = top_k;
  trace.expert_bytes = {1};
  return trace;
}

/// A token's experts, layer by layer, as ids or numbers.
struct token_row {
  token_row(std::initializer_list<written_expert> of) : ids(of.begin(), of.end()) {}  // NOLINT
  token_row(std::vector<expert_id> of) : ids(std::move(of)) {}                        // NOLINT
  token_row(const std::vector<std::int32_t>& of) {                                    // NOLINT
    for (const auto n : of) ids.push_back(static_cast<expert_id>(n));
  }
  std::vector<expert_id> ids;
};
struct token_rows {
  token_rows(std::initializer_list<token_row> of) : rows(of) {}   // NOLINT
  token_rows(std::vector<token_row> of) : rows(std::move(of)) {}  // NOLINT
  token_rows(const std::vector<std::vector<expert_id>>& of)       // NOLINT
      : rows(of.begin(), of.end()) {}
  std::vector<token_row> rows;
};

/// Adds a step. `tokens`: one row per token, layer by layer, top_k ids each.
inline void add_step(routing_trace& trace, const token_rows& tokens,
                     request_class kind = request_class::decode) {
  const auto step = trace.step.empty() ? 0U : trace.step.back() + 1;
  for (const auto& row : tokens.rows) {
    trace.step.push_back(step);
    trace.sequence.push_back(0);
    trace.kind.push_back(kind);
    trace.ids.insert(trace.ids.end(), row.ids.begin(), row.ids.end());
  }
}

/// One layer; each list of ids is a step of one token.
inline routing_trace one_layer(std::int32_t experts, const token_rows& steps) {
  auto trace = empty_trace(1, experts, static_cast<std::int32_t>(steps.rows.front().ids.size()));
  for (const auto& row : steps.rows) add_step(trace, {row});
  return trace;
}

/// Parameters of a random trace.
struct random_shape {
  std::int32_t layers = 2;
  std::int32_t experts = 8;
  std::int32_t top_k = 2;
  std::size_t steps = 40;
  std::uint64_t most_tokens = 1;    ///< per step; steps of several are sometimes prefill
  std::uint64_t absent_one_in = 0;  ///< chance of an absent id; 0: never
  bool skewed = true;
};

/// Ids of a token are distinct, except absent ones.
inline routing_trace random_trace(std::uint64_t seed, const random_shape& shape) {
  random_source random(seed);
  auto trace = empty_trace(shape.layers, shape.experts, shape.top_k);
  trace.name = "random-" + std::to_string(seed);
  for (std::size_t s = 0; s < shape.steps; ++s) {
    const auto tokens = 1 + random.below(shape.most_tokens);
    std::vector<std::vector<expert_id>> rows(tokens);
    for (auto& row : rows)
      for (std::int32_t l = 0; l < shape.layers; ++l) {
        std::vector<expert_id> ids;
        while (ids.size() < static_cast<std::size_t>(shape.top_k)) {
          expert_id id{random.id_below(shape.experts)};
          if (shape.skewed) id = std::min(id, expert_id{random.id_below(shape.experts)});
          if (shape.absent_one_in != 0 && random.one_in(shape.absent_one_in)) id = no_expert;
          if (id == no_expert || std::find(ids.begin(), ids.end(), id) == ids.end())
            ids.push_back(id);
        }
        row.insert(row.end(), ids.begin(), ids.end());
      }
    const auto kind = tokens == 1        ? request_class::decode
                      : random.one_in(4) ? request_class::verify
                                         : request_class::prefill;
    add_step(trace, rows, kind);
  }
  for (const auto id : trace.ids)
    trace.weights.push_back(id < 0 ? 0.0F : static_cast<float>(1 + random.below(255)) / 256.0F);
  return trace;
}

/// Every combination, eviction policies innermost; other dimensions have their defaults.
inline std::vector<lab::policy_set> policy_sets(const std::vector<std::string>& evictions,
                                                const std::vector<std::string>& admissions = {
                                                    "always"}) {
  return lab::combine_policies({.evictions = evictions, .admissions = admissions});
}
/// The eviction policies that work with one precision.
inline std::vector<std::string> plain_evictions() {
  std::vector<std::string> names;
  for (const auto& row : lab::known_policies().eviction.rows())
    if (row.traits.fewest_precisions == 1) names.push_back(row.name);
  return names;
}

/// Parameters of one_run.
struct run_request {
  std::string eviction = "lru";
  std::string scope = "shared";
  std::string slots = "50%";  ///< or bytes, "64B"
  std::string replay = "event-atomic";
  std::string admission = "always";
  visit_split split = visit_split::by_token;
};

inline lab::sweep_request sweep_of(const run_request& wanted) {
  lab::sweep_request request;
  request.policies = policy_sets({wanted.eviction}, {wanted.admission});
  request.scopes = {lab::parse_scope(wanted.scope)};
  request.replays = {lab::parse_replay_mode(wanted.replay)};
  request.sizes = {wanted.slots.ends_with('B') ? lab::size_request::parse_budget(wanted.slots)
                                               : lab::size_request::parse_slots(wanted.slots)};
  request.split = wanted.split;
  return request;
}
inline lab::run_result one_run(const routing_trace& trace, const run_request& wanted) {
  return lab::run_sweep(trace, sweep_of(wanted)).results.front();
}

/// Message of the exception that call() throws; a failure if it throws another or none.
template <class Exception, class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Exception& refused) {
    return refused.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "threw another exception: " << other.what();
    return {};
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

}  // namespace hotset::support
