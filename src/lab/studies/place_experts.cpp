// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/place_experts.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/placement/even_packing.hpp"
#include "lab/errors.hpp"
#include "lab/progress.hpp"
#include "lab/replay/run_all.hpp"

namespace hotset::lab {
namespace {

/// Tokens of a sample by which copies are counted.
constexpr std::size_t most_tokens = 8192;

/// Every n-th token of a sample's steps.
std::vector<expert_id> some_tokens(const step_sample& sample, layer_id layer) {
  std::vector<expert_id> all;
  for (std::size_t s = 0; s < sample.steps(); ++s) {
    const auto ids = sample.ids(s, layer);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  const auto k = sample.top_k();
  const auto tokens = all.size() / k;
  const auto each = (tokens + most_tokens - 1) / most_tokens;
  std::vector<expert_id> out;
  for (std::size_t t = 0; t < tokens; t += each)
    out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(t * k),
               all.begin() + static_cast<std::ptrdiff_t>((t + 1) * k));
  return out;
}

}  // namespace

step_sample::step_sample(std::span<const routing_trace* const> traces, const served_steps& how)
    : model_(traces.front()) {
  for (const auto* trace : traces)
    if (trace->layers != layers() || trace->experts != experts() || trace->top_k != model_->top_k)
      throw usage_error(fmt::format(
          "{}: {} layers x {} experts, top-{}; accepted: traces of one model, "
          "{} layers x {} experts, top-{}",
          trace->name, trace->layers, trace->experts, trace->top_k, layers(), experts(), top_k()));
  if (how.running > 0) {
    draw(divided(traces, &routing_trace::sequence), how);
    return;
  }
  auto all = divided(traces, &routing_trace::step);
  const auto wanted = std::min(all.size(), static_cast<std::size_t>(how.steps));
  for (std::size_t n = 0; n < wanted; ++n)
    steps_.push_back(std::move(all[n * all.size() / wanted]));
}

std::vector<step_sample::run> step_sample::divided(std::span<const routing_trace* const> traces,
                                                   std::vector<std::uint32_t> routing_trace::*by) {
  std::vector<run> out;
  for (const auto* trace : traces)
    for (std::size_t t = 0; t < trace->tokens(); ++t) {
      if (t == 0 || (trace->*by)[t] != (trace->*by)[t - 1]) out.emplace_back();
      out.back().push_back({trace, t});
    }
  return out;
}

void step_sample::draw(std::vector<run> sequences, const served_steps& how) {
  struct request {
    std::size_t sequence, next;
  };
  constexpr std::int32_t together = 2;  // steps that are drawn from one half
  splitmix64 numbers(1);
  auto drawn_from = sequences.size();
  std::vector<request> running;
  for (std::int32_t n = 0; n < how.steps; ++n) {
    if (n == 0 || (how.halves && n % together == 0)) {
      if (how.halves) drawn_from = (sequences.size() + 1) / 2;
      for (std::size_t i = 0; how.halves && i < drawn_from; ++i)
        std::swap(sequences[i], sequences[i + numbers.below(sequences.size() - i)]);
      running.clear();
      for (std::int32_t r = 0; r < how.running; ++r) {
        const auto s = numbers.below(drawn_from);
        running.push_back({s, numbers.below(sequences[s].size())});
      }
    }
    auto& step = steps_.emplace_back();
    for (auto& one : running) {
      step.push_back(sequences[one.sequence][one.next]);
      if (++one.next == sequences[one.sequence].size()) one = {numbers.below(drawn_from), 0};
    }
  }
}

step_loads step_sample::loads(layer_id layer) const {
  step_loads out(experts());
  for (const auto& step : steps_) {
    out.add_step();
    for (const auto& token : step)
      for (const auto e : token.trace->ids_of(token.row, layer))
        if (e >= 0) out.add(e);
  }
  return out;
}

std::vector<expert_id> step_sample::ids(std::size_t step, layer_id layer) const {
  std::vector<expert_id> out;
  for (const auto& token : steps_[step])
    for (const auto e : token.trace->ids_of(token.row, layer)) out.push_back(e);
  return out;
}

std::vector<expert_placement> place_layers(const step_sample& sample, const placement_shape& shape,
                                           const place_config& how,
                                           std::span<const expert_placement> start, unsigned jobs) {
  std::vector<expert_placement> out(static_cast<std::size_t>(sample.layers()));
  progress shown(out.size());
  std::mutex mutex;
  std::uint64_t done = 0;
  run_all(out.size(), jobs, [&](std::size_t l) {
    const auto layer = static_cast<layer_id>(l);
    auto own = how;
    if (!start.empty()) own.start = start[l];
    std::vector<expert_id> tokens;
    if (how.copy_cost > 0) {
      tokens = some_tokens(sample, layer);
      own.tokens = tokens;
      own.top_k = sample.top_k();
    }
    out[l] = place_by_steps(shape, sample.loads(layer), own).value();
    const std::lock_guard lock(mutex);
    shown.at(++done);
  });
  return out;
}

std::vector<expert_placement> pack_layers(const step_sample& sample, const placement_shape& shape) {
  std::vector<expert_placement> out;
  for (const auto l : each<layer_id>(sample.layers()))
    out.push_back(even_packing(shape, sample.loads(l).sums()));
  return out;
}

std::vector<expert_placement> layers_in_order(std::int32_t layers, const placement_shape& shape) {
  return std::vector<expert_placement>(static_cast<std::size_t>(layers), placement_in_order(shape));
}

placed_scores score_layers(const step_sample& sample, const placement_shape& shape,
                           std::span<const expert_placement> layers, unsigned jobs) {
  std::vector<placed_scores> parts(layers.size());
  run_all(layers.size(), jobs, [&](std::size_t l) {
    const auto layer = static_cast<layer_id>(l);
    auto& part = parts[l];
    part.even = score_of(shape, layers[l], sample.loads(layer));
    token_dispatch hash(shape, layers[l], replica_choice::hash);
    token_dispatch near(shape, layers[l], replica_choice::near);
    token_dispatch own(shape, layers[l], replica_choice::own_tokens);
    for (std::size_t s = 0; s < sample.steps(); ++s) {
      const auto ids = sample.ids(s, layer);
      for (auto* dispatch : {&hash, &near, &own}) dispatch->add_step(ids, sample.top_k());
    }
    part.hash = hash.score();
    part.near = near.score();
    part.own_tokens = own.score();
  });
  placed_scores out;
  for (const auto& part : parts) {
    out.even += part.even;
    out.hash += part.hash;
    out.near += part.near;
    out.own_tokens += part.own_tokens;
  }
  return out;
}

std::int64_t moved_in_layers(const placement_shape& shape, std::span<const expert_placement> before,
                             std::span<const expert_placement> after) {
  std::int64_t out = 0;
  for (std::size_t l = 0; l < after.size(); ++l) out += moved_experts(shape, before[l], after[l]);
  return out;
}

}  // namespace hotset::lab
