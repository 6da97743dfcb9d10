// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/numbers/units.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/planning/budget/equimarginal.hpp"
#include "hotset/planning/budget/even_shares.hpp"
#include "hotset/planning/budget/split_limits.hpp"
#include "hotset/planning/control/right_sizing.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"
#include "hotset/planning/curve/reuse_distance.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/replay/replay.hpp"
#include "lab/sizes.hpp"
#include "lab/studies/device_share.hpp"
#include "lab/studies/engine_settings.hpp"

namespace hotset::lab {
namespace {

std::uint64_t experts_of(const memory_model& model) {
  return static_cast<std::uint64_t>(model.experts.experts);
}
/// The model's top-k, or that of a trace with a larger one.
std::uint64_t top_k_of(const plan_request& request) {
  const auto own = request.model.experts.top_k;
  return static_cast<std::uint64_t>(
      request.routing == nullptr ? own : std::max(own, request.routing->top_k));
}

void check(const plan_request& request) {
  const auto refuse = [](const validation& bad) {
    if (bad) throw usage_error(bad->message);
  };
  refuse(request.model.validate());
  refuse(request.cost.validate());
  const admission_floor floor{request.concurrency, request.context, request.block_tokens};
  refuse(floor.validate());
  if (request.concurrency > 4096)
    throw usage_error(fmt::format("concurrency = {}, accepted: 1..4096", request.concurrency));
  if (request.model.max_context != 0 && request.context > request.model.max_context)
    throw usage_error(fmt::format("context = {} tokens, accepted: at most {}, the model's own",
                                  request.context, request.model.max_context));
  if (const auto most = most_devices(request); request.devices < 1 || request.devices > most)
    throw usage_error(fmt::format("devices = {}, accepted: 1..{}, {}", request.devices, most,
                                  request.split == device_split::expert
                                      ? "the experts of a layer"
                                      : "a byte of an expert on each"));
  if (request.routing == nullptr) return;
  const auto& trace = *request.routing;
  const auto& shape = request.model.experts;
  if (trace.layers != shape.layers || trace.experts != shape.experts)
    throw usage_error(fmt::format(
        "the trace is of {} layers x {} experts; accepted: {} x {}, the model's{}", trace.layers,
        trace.experts, shape.layers, shape.experts,
        trace.layers != shape.layers && trace.tokens() == static_cast<std::size_t>(shape.layers)
            ? fmt::format(" (it has {} tokens: transposed?)", trace.tokens())
            : ""));
}

/// Sum over the layers in experts of the mean size: a miss of twice the bytes counts twice.
double in_mean_experts(const geometry& shape, double mean, std::span<const double> by_layer) {
  double total = 0;
  for (std::size_t l = 0; l < by_layer.size(); ++l)
    total += by_layer[l] * (static_cast<double>(shape.bytes_of(static_cast<layer_id>(l))) / mean);
  return total;
}
sampled_miss_curve summed(const geometry& shape, double mean, const expert_curves& curves) {
  std::vector<double> misses;
  std::vector<double> by_layer(curves.layers.size());
  for (std::size_t slots = 0; slots <= curves.layers.front().max_slots(); ++slots) {
    for (std::size_t l = 0; l < by_layer.size(); ++l) by_layer[l] = curves.layers[l].misses(slots);
    misses.push_back(in_mean_experts(shape, mean, by_layer));
  }
  return sampled_miss_curve(std::move(misses));
}

/// Misses per step by number of the plan's blocks: requests are served one after the other, `concurrency` tokens a
/// step.
sampled_miss_curve kv_curve(const plan_request& request) {
  const auto& kv = *request.requests;
  const auto accesses = block_accesses(kv);
  if (!accesses) throw usage_error(accesses.error().message);
  const auto keys = static_cast<std::size_t>(accesses->experts);
  recency_bitmap stack(keys);
  reuse_histogram histogram(keys);
  for (const auto id : accesses->ids) {
    histogram.add(stack.distance(index_of(id)));
    stack.touch(index_of(id));
  }
  std::uint64_t tokens = 0;
  for (const auto length : kv.output_length) tokens += length;
  const auto steps =
      std::max(1.0, static_cast<double>(tokens) / static_cast<double>(request.concurrency));
  // A block of the trace covers several blocks of the plan, or a part of one.
  const auto ratio =
      static_cast<double>(kv.block_tokens) / static_cast<double>(request.block_tokens);
  const auto misses = histogram.misses();
  const auto points = static_cast<std::size_t>(std::ceil(static_cast<double>(keys) * ratio)) + 1;
  const auto width = std::max<std::size_t>(1, points >> 16U);
  std::vector<double> out;
  for (std::size_t blocks = 0; blocks < points + width; blocks += width) {
    const auto slots =
        std::min(keys, static_cast<std::size_t>(std::floor(static_cast<double>(blocks) / ratio)));
    out.push_back(static_cast<double>(misses[slots]) * ratio / steps);
  }
  return sampled_miss_curve(std::move(out), width);
}

double mean_expert_bytes(const memory_model& model) {
  return static_cast<double>(model.expert_slot_bytes()) / static_cast<double>(model.experts.layers);
}

std::uint64_t sum_of(std::initializer_list<std::uint64_t> parts) {
  return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}, detail::saturating_sum);
}

/// Bytes that cannot be paged.
std::uint64_t fixed_bytes(const plan_request& request) {
  return sum_of({request.reserve_bytes, request.model.resident_bytes,
                 detail::saturating_product(request.concurrency, fixed_session_bytes(request))});
}

/// Minimum memory of one device, all of whose experts stay on the host.
std::uint64_t least_bytes(const plan_request& device) {
  const admission_floor floor{device.concurrency, device.context, device.block_tokens};
  const auto block_bytes =
      detail::saturating_product(device.model.kv_bytes_per_token(), device.block_tokens);
  const auto blocks = block_bytes == 0 ? 0 : floor.blocks();
  return sum_of({fixed_bytes(device), detail::saturating_product(blocks, block_bytes)});
}
std::uint64_t top_k_bytes(const plan_request& device) {
  return detail::saturating_product(top_k_of(device), device.model.expert_slot_bytes());
}
/// Whether a pager has room for the experts of one token.
bool can_hold_top_k(const plan_request& device) {
  return sum_of({least_bytes(device), top_k_bytes(device)}) <= device.device_bytes;
}
bool fits(const plan_request& request) {
  return least_bytes(device_request(request, 0)) <= request.device_bytes;
}
/// Smallest number of devices, above the request's, that could hold the model; 0: none.
std::uint32_t enough_devices(plan_request request) {
  const auto most = most_devices(request);
  for (++request.devices; request.devices <= most; ++request.devices)
    if (fits(request)) return request.devices;
  return 0;
}
/// Largest value below the request's own with which the model fits; 0: none.
std::uint64_t most_that_fits(const plan_request& request, std::uint64_t plan_request::*member) {
  std::uint64_t least = 0;
  auto over = request.*member;
  auto tried = request;
  while (over - least > 1) {
    tried.*member = least + (over - least) / 2;
    (fits(tried) ? least : over) = tried.*member;
  }
  return least;
}

void need_memory(const memory_plan& plan) {
  const auto& request = plan.request;
  const auto& device = plan.device;
  const auto needed = least_bytes(device);
  if (device.device_bytes >= needed) return;
  std::string others;
  const auto offer = [&](std::uint64_t value, std::string_view text) {
    if (value > 0) others += fmt::format(", or {} {}", value, text);
  };
  if (device.devices > 1) offer(enough_devices(request), "devices");
  offer(most_that_fits(request, &plan_request::context), "tokens of --context");
  offer(most_that_fits(request, &plan_request::concurrency), "of --concurrency");
  throw infeasible_error(fmt::format(
      "{} of {} for {}: {} always resident, {} reserved, {} for the KV cache of {} session{} of {} "
      "tokens; accepted: {}{}{}",
      device.devices > 1 ? fmt::format("each of {} devices", device.devices) : "a device",
      size_text(device.device_bytes), printable(device.model.name),
      size_text(device.model.resident_bytes), size_text(device.reserve_bytes),
      size_text(needed - sum_of({device.model.resident_bytes, device.reserve_bytes})),
      device.concurrency, device.concurrency == 1 ? "" : "s", device.context,
      request.is_part_of_host() ? "--host-ram " : "", at_least_text(request.least_memory(needed)),
      others));
}

configurator question_of(const plan_request& request, std::uint64_t budget,
                         std::uint64_t min_blocks, std::uint64_t block_bytes) {
  configurator out;
  out.budget_bytes = budget;
  out.slot_bytes = request.model.expert_slot_bytes();
  out.block_bytes = block_bytes;
  out.min_cap = can_hold_top_k(request) ? top_k_of(request) : 0;
  out.max_cap = out.min_cap == 0 ? 0 : experts_of(request.model);
  out.min_blocks = min_blocks;
  out.seconds_per_expert_miss = request.cost.seconds_per_byte * mean_expert_bytes(request.model);
  out.seconds_per_kv_miss = request.cost.kv_miss(request.block_tokens);
  return out;
}

plan_alternative alternative(std::string name, const configurator& question, std::uint64_t cap) {
  plan_alternative out;
  out.name = std::move(name);
  out.cap = std::clamp(cap, question.min_cap, question.max_cap);
  while (out.cap > 0 && out.cap * question.slot_bytes > question.budget_bytes) --out.cap;
  const auto split = question.at(out.cap);
  out.kv_bytes = split.blocks * question.block_bytes;
  out.seconds_per_step = split.seconds;
  out.feasible = out.cap >= question.min_cap && split.blocks >= question.min_blocks;
  return out;
}
/// The first layers that do not fit stay on the host. `moved`: experts that a step moves for each of them.
plan_alternative offload(std::string name, const plan_request& device, const configurator& question,
                         std::span<const double> moved) {
  plan_alternative out;
  out.name = std::move(name);
  const auto floor = question.min_blocks * question.block_bytes;
  out.host_layers = layers_left_on_host(device.model, question.budget_bytes - floor);
  const auto held = expert_bytes_from(device.model, out.host_layers);
  const auto blocks =
      question.block_bytes == 0 ? 0 : (question.budget_bytes - held) / question.block_bytes;
  out.kv_bytes = blocks * question.block_bytes;
  for (std::uint64_t l = 0; l < out.host_layers; ++l)
    out.seconds_per_step +=
        moved[l] * device.cost.expert_miss(device.model.experts.bytes_of(static_cast<layer_id>(l)));
  out.seconds_per_step +=
      question.seconds_per_kv_miss * question.kv.misses(static_cast<std::size_t>(blocks));
  out.feasible = true;
  return out;
}

/// Adds the two divisions that ignore costs. accesses: per step, in experts of the mean size.
void add_fixed_priors(double accesses, const configurator& question, memory_plan& plan) {
  plan.alternatives.push_back(
      alternative("50-50", question, question.budget_bytes / 2 / question.slot_bytes));
  // KV-blind: gives the experts their working set first, the smallest cap with 99 % of the possible hits.
  const auto all = question.experts.misses(static_cast<std::size_t>(question.max_cap));
  const auto reachable = accesses > 0 ? (accesses - all) / accesses : 0;
  const auto cap = accesses > 0 ? right_size(question.experts, accesses, 0.99 * reachable)
                                : std::optional<std::size_t>(question.min_cap);
  plan.alternatives.push_back(alternative("flux-prop", question, cap ? *cap : question.max_cap));
}
void compare(const expert_curves& curves, const configurator& question, memory_plan& plan) {
  const auto& device = plan.device;
  const auto [least, most] = std::ranges::minmax(plan.quotas.quotas);
  plan.alternatives.push_back({.name = "hotset",
                               .cap = least == most ? least : 0,
                               .kv_bytes = plan.kv_bytes(),
                               .seconds_per_step = plan.seconds,
                               .feasible = plan.can_page()});
  plan.alternatives.push_back(alternative("one-cap", question, plan.split.cap));
  if (plan.block_bytes != 0)
    add_fixed_priors(
        in_mean_experts(device.model.experts, mean_expert_bytes(device.model), curves.used),
        question, plan);
  const std::vector<double> all(curves.used.size(),
                                static_cast<double>(device.model.experts.experts));
  plan.alternatives.push_back(offload("static-offload", device, question, all));
  plan.alternatives.push_back(offload("read-in-place", device, question, curves.used));
  const auto* best = &plan.alternatives.front();  // smallest seconds, by more than rounding
  for (const auto& a : plan.alternatives)
    if (a.feasible && a.name != "one-cap" &&
        (!best->feasible || a.seconds_per_step < best->seconds_per_step * (1 - 1e-9)))
      best = &a;
  plan.best = best->name;
}

std::vector<memory_consumer> layers_of(const plan_request& request, const expert_curves& curves) {
  std::vector<memory_consumer> out;
  for (const auto l : each<layer_id>(request.model.experts.layers)) {
    const auto bytes = request.model.experts.bytes_of(l);
    out.push_back({.curve = curves.layers[index_of(l)],
                   .unit_bytes = bytes,
                   .seconds_per_miss = request.cost.seconds_per_byte * static_cast<double>(bytes),
                   .min_units = can_hold_top_k(request) ? top_k_of(request) : 0,
                   .max_units = can_hold_top_k(request) ? experts_of(request.model) : 0});
  }
  return out;
}
std::uint64_t bytes_of(const geometry& shape, std::span<const std::uint64_t> quotas) {
  std::uint64_t bytes = 0;
  for (std::size_t l = 0; l < quotas.size(); ++l)
    bytes += quotas[l] * shape.bytes_of(static_cast<layer_id>(l));
  return bytes;
}
double seconds_with(std::span<const memory_consumer> consumers,
                    std::span<const std::uint64_t> units) {
  double seconds = 0;
  for (std::size_t i = 0; i < units.size(); ++i) seconds += consumers[i].seconds(units[i]);
  return seconds;
}
/// Counted by replay, because visits wider than a quota are split, which the curves ignore.
/// Units: bytes.
double replayed_bytes(const visit_sequence& visits, const geometry& model,
                      std::span<const std::uint64_t> quotas) {
  const std::vector<std::int64_t> slots(quotas.begin(), quotas.end());
  auto layout = pool_layout::per_layer(visits.shape(), slots);
  if (!layout) throw usage_error(layout.error().message);
  pager<lru> pages({.layout = *std::move(layout)});
  auto plan = pages.make_plan();
  double bytes = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto code = pages.serve(visits[i], plan, [&](const visit_group& group) {
      bytes += static_cast<double>(group.plan().fills().size()) *
               static_cast<double>(model.bytes_of(group.layer()));
    });
    if (code != status::ok)
      throw infeasible_error(fmt::format("visit {} of the trace: {}", i, describe(code)));
  }
  return bytes;
}

/// Units with one cap for all layers: bytes that it leaves over give some layers one expert more.
std::vector<std::uint64_t> even_units(std::span<const memory_consumer> consumers,
                                      const std::vector<std::uint64_t>& start, std::size_t layers,
                                      std::uint64_t bytes) {
  std::vector<memory_consumer> capped(consumers.begin(), consumers.end());
  for (std::size_t l = 0; l < layers; ++l) {
    capped[l].min_units = start[l];
    capped[l].max_units = std::min(start[l] + 1, capped[l].max_units);
  }
  return without_idle_bytes(capped, start, bytes);
}

/// Division of a budget among layers, and KV if it takes part. Quotas are unequal only if `may_differ`: the better of
/// equal marginal values, and of one cap with the leftover bytes spent.
/// trace: source of the curves. start: units of the cap, which fit.
std::vector<std::uint64_t> best_units(const plan_request& device, const expert_curves& curves,
                                      std::span<const memory_consumer> consumers,
                                      const std::vector<std::uint64_t>& start, std::uint64_t bytes,
                                      const routing_trace* trace, bool may_differ) {
  const auto layers = curves.layers.size();
  std::vector<std::vector<std::uint64_t>> found;
  if (may_differ) {
    found.push_back(without_idle_bytes(consumers, start, bytes));
    if (const auto even = equimarginal().allocate(consumers, bytes))
      found.push_back(without_idle_bytes(consumers, even->units, bytes));
  } else {
    found.push_back(even_units(consumers, start, layers, bytes));
  }
  auto narrowest = std::ranges::min(std::span(start).first(layers));
  for (const auto& units : found)
    narrowest = std::min(narrowest, std::ranges::min(std::span(units).first(layers)));
  const bool is_split =
      trace != nullptr && narrowest > 0 && curves.widest > narrowest && !routes_nothing(*trace);
  if (is_split) found.insert(found.begin(), start);
  std::optional<visit_sequence> visits;
  if (is_split) visits.emplace(visit_sequence::create(*trace).value());
  const auto steps = is_split ? static_cast<double>(steps_of(*trace)) : 1.0;
  const auto seconds = [&](std::span<const std::uint64_t> units) {
    if (!visits) return seconds_with(consumers, units);
    const auto moved = replayed_bytes(*visits, device.model.experts, units.first(layers)) / steps;
    return moved * device.cost.seconds_per_byte +
           seconds_with(consumers.subspan(layers), units.subspan(layers));
  };
  // Must be lower by more than rounding: layers with equal curves should get equal quotas.
  auto least = seconds(found.front());
  std::size_t best = 0;
  for (std::size_t i = 1; i < found.size(); ++i)
    if (const auto other = seconds(found[i]); other < least * (1 - 1e-9)) {
      least = other;
      best = i;
    }
  return found[best];
}

/// Rows first..last of a trace.
routing_trace part_of(const routing_trace& trace, std::size_t first, std::size_t last) {
  routing_trace out;
  out.layers = trace.layers;
  out.experts = trace.experts;
  out.top_k = trace.top_k;
  const auto slice = [](const auto& from, std::size_t begin, std::size_t end) {
    return std::vector(from.begin() + static_cast<std::ptrdiff_t>(begin),
                       from.begin() + static_cast<std::ptrdiff_t>(end));
  };
  out.step = slice(trace.step, first, last);
  out.sequence = slice(trace.sequence, first, last);
  out.kind = slice(trace.kind, first, last);
  out.ids = slice(trace.ids, trace.index(first, layer_id{}), trace.index(last, layer_id{}));
  return out;
}
/// Measures quotas made on the first half of the trace on the second half, beside one cap of as many bytes.
void hold_out(const plan_request& request, std::uint64_t bytes, plan_quotas& quotas) {
  const auto& trace = *request.routing;
  auto middle = trace.tokens() / 2;
  while (middle > 0 && middle < trace.tokens() && trace.step[middle] == trace.step[middle - 1])
    ++middle;
  if (middle == 0 || middle >= trace.tokens()) return;
  const auto first_half = part_of(trace, 0, middle);
  const auto first = recorded_curves(first_half, request.model.experts);
  const auto second =
      recorded_curves(part_of(trace, middle, trace.tokens()), request.model.experts);
  const auto slot_bytes = request.model.expert_slot_bytes();
  const auto cap = bytes / slot_bytes;
  const std::vector<std::uint64_t> uniform(first.layers.size(), cap);
  const auto made = best_units(request, first, layers_of(request, first), uniform, cap * slot_bytes,
                               &first_half, true);
  quotas.held_out = misses_with(second, made);
  quotas.held_out_uniform = misses_with(second, uniform);
}

/// Adds the saving of one more unit for each consumer: layers, then KV.
void add_marginals(std::span<const memory_consumer> consumers, memory_plan& plan) {
  const auto& quotas = plan.quotas.quotas;
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    const auto& c = consumers[i];
    const bool is_layer = i < quotas.size();
    const auto units = static_cast<std::size_t>(is_layer ? quotas[i] : plan.kv_blocks);
    plan.marginals.push_back(
        {is_layer ? fmt::format("layer {}", i) : "kv",
         c.seconds_per_miss * ((c.curve.misses(units) - c.curve.misses(units + 1)) /
                               static_cast<double>(c.unit_bytes))});
  }
}

void add_notes(const plan_request& request, const expert_curves& curves, memory_plan& plan) {
  auto& notes = plan.notes;
  if (request.routing != nullptr && request.routing->top_k != request.model.experts.top_k)
    notes.push_back(fmt::format(
        "the trace routes top-{}, the model top-{}: hits and misses are those of the trace, and "
        "the model's own visits are {}",
        request.routing->top_k, request.model.experts.top_k,
        request.routing->top_k < request.model.experts.top_k ? "wider" : "narrower"));
  if (!plan.can_page())
    notes.push_back(fmt::format(
        "nothing can be paged: the {} experts of a token need {} more", top_k_of(request),
        size_text(sum_of({least_bytes(request), top_k_bytes(request)}) - request.device_bytes)));
  if (request.routing == nullptr && !plan.is_all_resident())
    notes.emplace_back(
        "no routing trace: routing is taken as uniform and independent, which no model's is; real "
        "routing hits more");
  if (const auto least = std::ranges::min(plan.quotas.quotas);
      request.routing != nullptr && plan.can_page() && curves.widest > least)
    notes.push_back(fmt::format(
        "a visit of the trace uses {} experts, more than the quota of {}: such visits are split, "
        "and miss more than predicted; quotas were compared by replay",
        curves.widest, least));
  if (plan.best != "hotset" && plan.can_page())
    notes.push_back(
        fmt::format("{} beats the quotas: on this trace a cache of the experts used "
                    "last moves more than experts that stay where they are",
                    plan.best));
  if (!request.model.has_kv())
    notes.emplace_back("the model keeps no KV cache: all of the budget goes to experts");
  if (request.reserve_bytes == 0)
    notes.emplace_back(
        "nothing is reserved: activations and workspace need memory, and a device filled to the "
        "last byte spills");
}

/// Says how the trace's steps differ from the load's; nothing: they do not. width: of its own, in tokens.
std::string steps_note(const plan_request& request, double width) {
  if (request.routing == nullptr) return "";
  const auto sessions = static_cast<double>(request.concurrency);
  if (width < sessions)
    return fmt::format(
        "the trace's steps have {:.3g} token{}: its decoded tokens are cut into {} stretches, one "
        "a session, which makes {} steps",
        width, width == 1 ? "" : "s", request.concurrency, steps_of(*request.routing));
  return width > sessions
             ? fmt::format(
                   "the trace's steps have {:.3g} tokens, and those of the load {}: fewer "
                   "experts are used, and rates are higher, than predicted",
                   width, request.concurrency)
             : "";
}

/// Spends bytes that save nothing: makes all experts resident if possible, else gives them to KV.
void spend_the_rest(std::uint64_t budget_bytes, memory_plan& plan) {
  const auto all = plan.device.model.all_expert_bytes();
  auto free = budget_bytes - plan.quotas.bytes - plan.kv_bytes();
  if (all - plan.quotas.bytes <= free) {
    free -= all - plan.quotas.bytes;
    plan.quotas.bytes = all;
    std::ranges::fill(plan.quotas.quotas, experts_of(plan.device.model));
  }
  if (plan.block_bytes != 0) plan.kv_blocks += free / plan.block_bytes;
}
binding binds(const memory_plan& plan) {
  if (plan.is_all_resident()) return binding::full;
  if (plan.block_bytes == 0) return binding::budget;
  auto least = std::numeric_limits<std::uint64_t>::max();  // bytes of one more expert
  const auto& shape = plan.device.model.experts;
  for (std::size_t l = 0; l < plan.quotas.quotas.size(); ++l)
    if (plan.quotas.quotas[l] < experts_of(plan.device.model))
      least = std::min(least, shape.bytes_of(static_cast<layer_id>(l)));
  const auto spare = plan.budget_bytes - plan.quotas.bytes - plan.min_blocks * plan.block_bytes;
  return spare < least ? binding::floor : binding::budget;
}

/// Divides the whole budget into quotas of layers and KV blocks.
void divide(const plan_request& device, const expert_curves& curves, const configurator& question,
            memory_plan& plan) {
  auto consumers = layers_of(device, curves);
  std::vector<std::uint64_t> start(curves.layers.size(), plan.split.cap);
  if (question.block_bytes != 0) {
    consumers.push_back({.curve = question.kv,
                         .unit_bytes = question.block_bytes,
                         .seconds_per_miss = question.seconds_per_kv_miss,
                         .min_units = question.min_blocks});
    start.push_back(std::clamp(plan.split.blocks, question.min_blocks, consumers.back().cap()));
  }
  const auto divided = [&](bool may_differ) {
    return best_units(device, curves, consumers, start, plan.budget_bytes, device.routing,
                      may_differ);
  };
  auto units = divided(false);
  if (device.routing != nullptr && plan.can_page() && !routes_nothing(*device.routing)) {
    auto unequal = divided(true);
    const auto quotas = std::span(unequal).first(curves.layers.size());
    hold_out(device,
             std::max(bytes_of(device.model.experts, quotas),
                      plan.split.cap * device.model.expert_slot_bytes()),
             plan.quotas);
    if (plan.quotas.may_differ()) units = std::move(unequal);
  }
  if (question.block_bytes != 0) {
    plan.kv_blocks = units.back();
    units.pop_back();
  }
  plan.quotas.quotas = std::move(units);
  plan.quotas.bytes = bytes_of(device.model.experts, plan.quotas.quotas);
  spend_the_rest(plan.budget_bytes, plan);
  plan.binds = binds(plan);
  plan.kv_seconds =
      question.seconds_per_kv_miss * question.kv.misses(static_cast<std::size_t>(plan.kv_blocks));
  plan.seconds = seconds_with(consumers, plan.quotas.quotas) + plan.kv_seconds;
  add_marginals(consumers, plan);
}

/// Best split with one cap. If all experts fit at no extra cost, all are resident.
expert_kv_split best_cap(const configurator& question) {
  const auto best = question.best();
  if (question.largest_cap() < question.max_cap) return best;
  const auto full = question.at(question.max_cap);
  return full.seconds <= best.seconds ? full : best;
}

/// Steps per second that the link allows a cache of the previous step; infinite if the plan is better, or nothing
/// moves.
double ceiling_of(const memory_plan& plan) {
  const auto none = std::numeric_limits<double>::infinity();
  if (plan.is_all_resident()) return none;
  const auto steps = plan.device.cost.ceiling(plan.new_bytes_per_step);
  const auto predicted = plan.seconds > 0 ? 1 / plan.seconds : none;
  return predicted <= steps * (1 + 1e-9) ? steps * static_cast<double>(plan.request.concurrency)
                                         : none;
}

/// Plan of one device, possibly of several: `device` has its experts, sessions and traces.
memory_plan plan_of(const plan_request& whole, const plan_request& device) {
  memory_plan plan;
  plan.request = whole;
  plan.device = device;
  plan.device.routing = nullptr;
  plan.device.requests = nullptr;
  plan.block_bytes = device.model.kv_bytes_per_token() * device.block_tokens;
  if (plan.block_bytes != 0)
    plan.min_blocks =
        admission_floor{device.concurrency, device.context, device.block_tokens}.blocks();
  need_memory(plan);
  plan.budget_bytes = device.device_bytes - fixed_bytes(device);
  auto question = question_of(device, plan.budget_bytes, plan.min_blocks, plan.block_bytes);
  if (const auto bad = question.validate(); bad && question.max_cap > 0)
    throw usage_error(bad->message);

  auto curves = curves_of(device, whole);
  const auto experts = summed(device.model.experts, mean_expert_bytes(device.model), curves);
  question.experts = experts;
  const auto kv =
      device.requests != nullptr && plan.block_bytes != 0 ? kv_curve(device) : sampled_miss_curve();
  question.kv = kv;
  plan.split = best_cap(question);
  plan.new_bytes_per_step = curves.new_bytes;
  divide(device, curves, question, plan);
  plan.quotas.uniform_misses =
      misses_with(curves, std::vector<std::uint64_t>(curves.layers.size(), plan.split.cap));
  plan.quotas.misses = misses_with(curves, plan.quotas.quotas);
  plan.hit_rate = curves.accesses > 0 ? 1 - plan.quotas.misses / curves.accesses : 1;
  plan.ceiling_tokens_per_second = ceiling_of(plan);
  compare(curves, question, plan);
  add_notes(device, curves, plan);
  plan.curves_of_device = std::move(curves);
  return plan;
}

/// Plans every device; a step waits for the slowest. Settings are common, for the minimum over all devices.
memory_plan plan_of_several(const plan_request& request) {
  std::optional<memory_plan> slowest;
  std::vector<device_share> shares;
  for (std::uint32_t d = 0; d < request.devices; ++d) {
    auto device = device_request(request, d);
    const auto experts = experts_on(request, d);
    std::optional<routing_trace> routing;
    if (request.routing != nullptr)
      device.routing =
          request.split == device_split::tensor
              ? request.routing
              : &routing.emplace(trace_on(*request.routing, experts, device.model.experts.top_k));
    std::optional<kv_trace> requests;
    if (request.requests != nullptr && request.requests->requests() >= request.devices)
      device.requests = &requests.emplace(requests_on(*request.requests, d, request.devices));
    auto plan = plan_of(request, device);
    shares.push_back(
        {experts.first, experts.count, plan.quotas.quotas, plan.kv_blocks, plan.seconds});
    if (!slowest || plan.seconds > slowest->seconds) slowest = std::move(plan);
  }
  slowest->devices = std::move(shares);
  slowest->notes.push_back(fmt::format(
      "{} devices: each has all weights but the routed experts', and sessions of its own; "
      "what they send each other is not counted",
      request.devices));
  return *std::move(slowest);
}

}  // namespace

std::uint64_t activation_bytes(const plan_request& request) noexcept {
  const auto& a = request.arithmetic;
  if (a.vocabulary == 0) return 0;
  const auto mask = detail::saturating_product(2, request.context);
  const auto token = sum_of({4 * a.vocabulary, 32 * a.hidden, mask});
  return sum_of({512_MiB, detail::saturating_product(request.ubatch, token)});
}

const engine_setting* memory_plan::recommended() const noexcept {
  const auto per_token = [this](const engine_setting& s) {
    // It knows few models, which are not known here.
    if (s.engine == "ktransformers" && settings.size() > 1)
      return std::numeric_limits<double>::infinity();
    const auto time = 1 / s.decode + (s.prompt ? 4 / *s.prompt : 0);
    // A mapped file's misses read more than LRU's, with which both are predicted. That outweighs the whole contexts
    // that hotset's server keeps of windows.
    return s.disk_bytes > 0 && s.engine == "llama.cpp" ? time * 1.05 : time;
  };
  const auto fastest = std::ranges::min_element(settings, {}, per_token);
  return fastest == settings.end() ? nullptr : &*fastest;
}

memory_plan make_plan(const plan_request& asked) {
  check(asked);
  auto request = asked;
  std::optional<routing_trace> regrouped;
  const auto width = asked.routing != nullptr ? decode_width(*asked.routing) : 0;
  if (asked.routing != nullptr && width < static_cast<double>(asked.concurrency))
    request.routing = &regrouped.emplace(side_by_side(*asked.routing, asked.concurrency));
  auto plan = request.devices == 1 ? plan_of(request, request) : plan_of_several(request);
  plan.curves = request.devices == 1 ? plan.curves_of_device : curves_of(request, request);
  if (auto note = steps_note(request, width); !note.empty()) plan.notes.push_back(std::move(note));
  add_settings(plan);
  plan.request.routing = asked.routing;
  return plan;
}

}  // namespace hotset::lab
