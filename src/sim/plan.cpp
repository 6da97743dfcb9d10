// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/plan.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "hotset/budget/admission_floor.hpp"
#include "hotset/budget/equimarginal.hpp"
#include "hotset/budget/right_size.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/units.hpp"
#include "hotset/curve/curve_recorder.hpp"
#include "hotset/curve/recency_bitmap.hpp"
#include "hotset/curve/reuse_histogram.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/sim/errors.hpp"
#include "hotset/sim/io/input_error.hpp"
#include "hotset/sim/replay.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::ordered_json;

std::uint64_t experts_of(const memory_model& model) {
  return static_cast<std::uint64_t>(model.experts.experts);
}
/// Of the model, or of a trace that routes more.
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
  if (request.routing == nullptr) return;
  const auto& trace = *request.routing;
  const auto& shape = request.model.experts;
  if (trace.layers != shape.layers || trace.experts != shape.experts)
    throw usage_error(
        fmt::format("the trace is of {} layers x {} experts; accepted: {} x {}, the model's",
                    trace.layers, trace.experts, shape.layers, shape.experts));
}

/// Bytes of the experts of a step that the step before did not use.
double new_bytes_per_step(const visit_sequence& visits, const geometry& shape) {
  std::vector<std::uint32_t> last(shape.keys(), 0);  // the last step that used it, + 2
  double bytes = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto view = visits[i];
    const auto step = static_cast<std::uint32_t>(view.step) + 2;
    for (const auto id : view.experts) {
      if (id < 0) continue;
      const auto before = std::exchange(last[shape.index({view.layer, id})], step);
      if (before == step || before + 1 == step) continue;
      bytes += static_cast<double>(shape.bytes_of(view.layer));
    }
  }
  return bytes / static_cast<double>(visits.steps());
}

expert_curves recorded_curves(const routing_trace& trace, const geometry& model) {
  const auto visits = visit_sequence::create(trace);
  if (!visits) throw usage_error(visits.reason().message);
  curve_recorder recorder(visits->shape(), cache_scope::per_layer);
  for (std::size_t i = 0; i < visits->size(); ++i) recorder.observe((*visits)[i]);
  expert_curves out;
  for (const auto& histogram : recorder.histograms()) {
    out.layers.push_back(sampled_miss_curve::per_step(histogram.misses(), visits->steps()));
    out.accesses += static_cast<double>(histogram.accesses());
  }
  out.accesses /= static_cast<double>(visits->steps());
  out.new_bytes = new_bytes_per_step(*visits, model);
  out.widest = visits->widest_union();
  return out;
}

/// Every token draws its experts anew, all alike: a union of U of E, of which a share C / E is resident.
expert_curves uniform_curves(const plan_request& request) {
  const auto& shape = request.model.experts;
  const auto experts = static_cast<double>(shape.experts);
  const auto kept = 1 - static_cast<double>(shape.top_k) / experts;
  const auto used = experts * (1 - std::pow(kept, static_cast<double>(request.concurrency)));
  std::vector<double> misses;
  for (std::int32_t cap = 0; cap <= shape.experts; ++cap)
    misses.push_back(used * (1 - cap / experts));
  expert_curves out;
  for (layer_id l = 0; l < shape.layers; ++l) {
    out.layers.emplace_back(misses);
    out.accesses += used;
    out.new_bytes += used * (1 - used / experts) * static_cast<double>(shape.bytes_of(l));
  }
  out.widest = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(experts_of(request.model), request.concurrency * top_k_of(request)));
  return out;
}

sampled_miss_curve summed(const expert_curves& curves) {
  std::vector<double> misses(curves.layers.front().max_slots() + 1, 0.0);
  for (const auto& layer : curves.layers)
    for (std::size_t slots = 0; slots < misses.size(); ++slots)
      misses[slots] += layer.misses(slots);
  return sampled_miss_curve(std::move(misses));
}

/// Misses of a step by blocks of the plan: requests are served one after the other, `concurrency` tokens a step.
sampled_miss_curve kv_curve(const plan_request& request) {
  const auto& kv = *request.requests;
  const auto accesses = block_accesses(kv);
  if (!accesses) throw usage_error(accesses.reason().message);
  const auto keys = static_cast<std::size_t>(accesses->experts);
  recency_bitmap stack(keys);
  reuse_histogram histogram(keys);
  for (const auto id : accesses->ids) {
    histogram.add(stack.distance(static_cast<std::size_t>(id)));
    stack.touch(static_cast<std::size_t>(id));
  }
  std::uint64_t tokens = 0;
  for (const auto length : kv.output_length) tokens += length;
  const auto steps =
      std::max(1.0, static_cast<double>(tokens) / static_cast<double>(request.concurrency));
  // A block of the trace is several of the plan's, or a part of one.
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

/// What every session keeps whatever its length: windows that are full, and recurrent state.
std::uint64_t fixed_session_bytes(const plan_request& request) {
  const auto& model = request.model;
  return model.kv_bytes(request.context) - model.kv_bytes_per_token() * request.context;
}

double mean_expert_bytes(const memory_model& model) {
  return static_cast<double>(model.expert_slot_bytes()) / static_cast<double>(model.experts.layers);
}

configurator question_of(const plan_request& request, std::uint64_t budget,
                         std::uint64_t min_blocks, std::uint64_t block_bytes) {
  configurator out;
  out.budget_bytes = budget;
  out.slot_bytes = request.model.expert_slot_bytes();
  out.block_bytes = block_bytes;
  out.min_cap = top_k_of(request);
  out.max_cap = experts_of(request.model);
  out.min_blocks = min_blocks;
  out.seconds_per_expert_miss = request.cost.seconds_per_byte * mean_expert_bytes(request.model);
  out.seconds_per_kv_miss = request.cost.kv_miss(request.block_tokens);
  return out;
}

/// Bytes that are gone before anything is paged.
std::uint64_t fixed_bytes(const plan_request& request) {
  return detail::saturating_sum(
      detail::saturating_sum(request.reserve_bytes, request.model.resident_bytes),
      detail::saturating_product(request.concurrency, fixed_session_bytes(request)));
}

void need_memory(const plan_request& request, std::uint64_t fixed, const configurator& question) {
  const auto needed = detail::saturating_sum(fixed, question.smallest_budget());
  if (request.device_bytes >= needed) return;
  throw infeasible_error(fmt::format(
      "a device of {} bytes for {}: {} always resident, {} reserved, {} for {} experts a layer, {} "
      "for the KV cache of {} sessions of {} tokens; accepted: {} bytes or more",
      request.device_bytes, printable(request.model.name), request.model.resident_bytes,
      request.reserve_bytes, question.min_cap * question.slot_bytes, question.min_cap,
      detail::saturating_sum(
          detail::saturating_product(request.concurrency, fixed_session_bytes(request)),
          question.min_blocks * question.block_bytes),
      request.concurrency, request.context, needed));
}
void need_host_memory(const plan_request& request) {
  const auto needed = request.model.all_expert_bytes();
  if (request.host_bytes == 0 || request.host_bytes >= needed) return;
  throw infeasible_error(
      fmt::format("host memory of {} bytes for the experts of {}; accepted: {} bytes or more",
                  request.host_bytes, printable(request.model.name), needed));
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
/// Layers that do not fit stay on the host for good; bytes is what a step moves if all of them do.
plan_alternative offload(std::string name, const memory_plan& plan, const configurator& question,
                         double bytes) {
  plan_alternative out;
  out.name = std::move(name);
  out.kv_bytes = question.min_blocks * question.block_bytes;
  const auto all = static_cast<double>(plan.request.model.all_expert_bytes());
  const auto held = static_cast<double>(question.budget_bytes - out.kv_bytes);
  const auto on_host = std::max(0.0, 1 - held / all);
  out.seconds_per_step = on_host * bytes * plan.request.cost.seconds_per_byte +
                         question.seconds_per_kv_miss * question.kv.misses(question.min_blocks);
  out.feasible = true;
  return out;
}

/// The two divisions that go by no cost.
void add_fixed_priors(const expert_curves& curves, const configurator& question,
                      memory_plan& plan) {
  plan.alternatives.push_back(
      alternative("50-50", question, question.budget_bytes / 2 / question.slot_bytes));
  // KV-blind: the experts' working set first, as the cap that has all but a hundredth of the hits there are to have.
  const auto all = question.experts.misses(static_cast<std::size_t>(question.max_cap));
  const auto reachable = (curves.accesses - all) / curves.accesses;
  const auto cap = right_size(question.experts, curves.accesses, 0.99 * reachable);
  plan.alternatives.push_back(alternative("flux-prop", question, cap ? *cap : question.max_cap));
}
void compare(const expert_curves& curves, const configurator& question, memory_plan& plan) {
  plan.alternatives.push_back(
      {"hotset", plan.split.cap, plan.kv_bytes(), plan.split.seconds, true});
  if (plan.block_bytes != 0) add_fixed_priors(curves, question, plan);
  const auto& model = plan.request.model;
  plan.alternatives.push_back(
      offload("static-offload", plan, question, static_cast<double>(model.all_expert_bytes())));
  plan.alternatives.push_back(
      offload("read-in-place", plan, question, curves.accesses * mean_expert_bytes(model)));
}

std::vector<memory_consumer> layers_of(const plan_request& request, const expert_curves& curves) {
  std::vector<memory_consumer> out;
  for (layer_id l = 0; l < request.model.experts.layers; ++l) {
    const auto bytes = request.model.experts.bytes_of(l);
    out.push_back({.curve = curves.layers[static_cast<std::size_t>(l)],
                   .unit_bytes = bytes,
                   .seconds_per_miss = request.cost.seconds_per_byte * static_cast<double>(bytes),
                   .min_units = top_k_of(request),
                   .max_units = experts_of(request.model)});
  }
  return out;
}
double misses_with(const expert_curves& curves, std::span<const std::uint64_t> quotas) {
  double misses = 0;
  for (std::size_t l = 0; l < quotas.size(); ++l)
    misses += curves.layers[l].misses(static_cast<std::size_t>(quotas[l]));
  return misses;
}
/// Counted by replay: visits that are wider than a quota are split, and of those the curves know nothing.
std::uint64_t replayed_misses(const visit_sequence& visits, std::span<const std::uint64_t> quotas) {
  const std::vector<std::int64_t> slots(quotas.begin(), quotas.end());
  auto layout = pool_layout::per_layer(visits.shape(), slots);
  if (!layout) throw usage_error(layout.reason().message);
  pager<lru> pages({.layout = *std::move(layout)});
  auto plan = pages.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i) {
    auto code = pages.plan(visits[i], plan);
    while (code == status::ok) {
      code = pages.commit(plan);
      if (code != status::ok || !plan.more()) break;
      code = pages.plan_next(plan);
    }
    if (code != status::ok)
      throw infeasible_error(fmt::format("visit {} of the trace: {}", i, describe(code)));
  }
  return pages.stats().misses;
}
/// The better of the division by marginal value and of one cap for all. `trace`: what the curves were recorded of.
std::vector<std::uint64_t> better_quotas(const plan_request& request, const expert_curves& curves,
                                         std::uint64_t cap, const routing_trace* trace) {
  std::vector<std::uint64_t> uniform(curves.layers.size(), cap);
  const auto layers = layers_of(request, curves);
  const auto found = equimarginal().allocate(layers, cap * request.model.expert_slot_bytes());
  // Fewer misses by more than rounding: layers of one and the same curve are no reason to differ.
  const auto even = misses_with(curves, uniform);
  if (!found || misses_with(curves, found->units) >= even * (1 - 1e-9)) return uniform;
  if (trace == nullptr || curves.widest <= *std::ranges::min_element(found->units))
    return found->units;
  const auto visits = visit_sequence::create(*trace);
  if (!visits) throw usage_error(visits.reason().message);
  return replayed_misses(*visits, found->units) > replayed_misses(*visits, uniform) ? uniform
                                                                                    : found->units;
}
/// The rows of a trace from the first to the last.
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
  out.ids = slice(trace.ids, trace.index(first, 0), trace.index(last, 0));
  return out;
}
void hold_out(const plan_request& request, std::uint64_t cap, plan_quotas& quotas) {
  const auto& trace = *request.routing;
  auto middle = trace.tokens() / 2;
  while (middle > 0 && middle < trace.tokens() && trace.step[middle] == trace.step[middle - 1])
    ++middle;
  if (middle == 0 || middle >= trace.tokens()) return;
  const auto first_half = part_of(trace, 0, middle);
  const auto first = recorded_curves(first_half, request.model.experts);
  const auto second =
      recorded_curves(part_of(trace, middle, trace.tokens()), request.model.experts);
  const auto made = better_quotas(request, first, cap, &first_half);
  quotas.held_out = misses_with(second, made);
  quotas.held_out_uniform =
      misses_with(second, std::vector<std::uint64_t>(second.layers.size(), cap));
}

void add_marginals(const plan_request& request, const expert_curves& curves,
                   const configurator& question, memory_plan& plan) {
  const auto saved = [](double now, double then, std::uint64_t bytes) {
    return (now - then) / static_cast<double>(bytes);
  };
  for (std::size_t l = 0; l < curves.layers.size(); ++l) {
    const auto quota = static_cast<std::size_t>(plan.quotas.quotas[l]);
    const auto bytes = request.model.experts.bytes_of(static_cast<layer_id>(l));
    const auto price = request.cost.seconds_per_byte * static_cast<double>(bytes);
    plan.marginals.push_back(
        {fmt::format("layer {}", l),
         price * saved(curves.layers[l].misses(quota), curves.layers[l].misses(quota + 1), bytes)});
  }
  if (question.block_bytes == 0) return;
  const auto blocks = static_cast<std::size_t>(plan.split.blocks);
  plan.marginals.push_back({"kv", question.seconds_per_kv_miss *
                                      saved(question.kv.misses(blocks),
                                            question.kv.misses(blocks + 1), question.block_bytes)});
}

void add_notes(const plan_request& request, const expert_curves& curves, memory_plan& plan) {
  auto& notes = plan.notes;
  if (request.routing != nullptr && request.routing->top_k != request.model.experts.top_k)
    notes.push_back(fmt::format(
        "the trace routes top-{}, the model top-{}: hits and misses are those of the trace, and "
        "the model's own visits are {}",
        request.routing->top_k, request.model.experts.top_k,
        request.routing->top_k < request.model.experts.top_k ? "wider" : "narrower"));
  if (request.routing == nullptr)
    notes.emplace_back(
        "no routing trace: routing is taken as uniform and independent, which no model's is; real "
        "routing hits more");
  else if (curves.widest > plan.split.cap)
    notes.push_back(fmt::format(
        "a visit of the trace uses {} experts, more than the cap of {}: such visits are split, and "
        "miss more than predicted",
        curves.widest, plan.split.cap));
  if (request.model.has_kv() && request.requests == nullptr)
    notes.emplace_back(
        "no request trace: KV has what its sessions need, and more is taken as worth nothing");
  if (!request.model.has_kv())
    notes.emplace_back("the model keeps no KV cache: all of the budget goes to experts");
  if (request.reserve_bytes == 0)
    notes.emplace_back(
        "nothing is reserved: activations and workspace need memory, and a device filled to the "
        "last byte spills");
}

}  // namespace

memory_plan make_plan(const plan_request& request) {
  check(request);
  need_host_memory(request);
  memory_plan plan;
  plan.request = request;
  plan.block_bytes = request.model.kv_bytes_per_token() * request.block_tokens;
  if (plan.block_bytes != 0)
    plan.min_blocks =
        admission_floor{request.concurrency, request.context, request.block_tokens}.blocks();
  const auto fixed = fixed_bytes(request);
  auto question = question_of(request, 0, plan.min_blocks, plan.block_bytes);
  need_memory(request, fixed, question);
  plan.budget_bytes = request.device_bytes - fixed;
  question.budget_bytes = plan.budget_bytes;
  if (const auto bad = question.validate()) throw usage_error(bad->message);

  const auto curves = request.routing != nullptr
                          ? recorded_curves(*request.routing, request.model.experts)
                          : uniform_curves(request);
  const auto experts = summed(curves);
  question.experts = experts;
  const auto kv = request.requests != nullptr && plan.block_bytes != 0 ? kv_curve(request)
                                                                       : sampled_miss_curve();
  question.kv = kv;
  plan.split = question.best();
  plan.hit_rate = 1 - plan.split.expert_misses / curves.accesses;
  plan.new_bytes_per_step = curves.new_bytes;
  plan.ceiling_tokens_per_second =
      request.cost.ceiling(curves.new_bytes) * static_cast<double>(request.concurrency);

  plan.quotas.quotas = better_quotas(request, curves, plan.split.cap, request.routing);
  plan.quotas.uniform_misses = plan.split.expert_misses;
  plan.quotas.misses = misses_with(curves, plan.quotas.quotas);
  if (request.routing != nullptr) hold_out(request, plan.split.cap, plan.quotas);
  add_marginals(request, curves, question, plan);
  compare(curves, question, plan);
  add_notes(request, curves, plan);
  return plan;
}

namespace {

std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(1_GiB));
}

/// Layers whose experts all fit into the bytes of the cap.
std::uint64_t whole_layers(const memory_plan& plan) {
  const auto& model = plan.request.model;
  auto left = plan.split.cap * model.expert_slot_bytes();
  std::uint64_t layers = 0;
  for (layer_id l = model.experts.layers - 1; l >= 0; --l) {
    const auto bytes = model.experts.bytes_of(l) * experts_of(model);
    if (bytes > left) break;
    left -= bytes;
    ++layers;
  }
  return layers;
}

/// Settings to paste, by engine.
std::vector<std::pair<std::string, std::string>> settings_of(const memory_plan& plan) {
  const auto& r = plan.request;
  const auto& model = r.model;
  const auto expert_bytes = plan.split.cap * model.expert_slot_bytes();
  const auto moved = model.all_expert_bytes() - expert_bytes;
  std::vector<std::pair<std::string, std::string>> out;
  const auto kv = plan.block_bytes == 0 ? std::string()
                                        : fmt::format(" --kv-cache-memory-bytes {} --block-size {}",
                                                      plan.kv_bytes(), r.block_tokens);
  out.emplace_back(
      "vllm", fmt::format("--max-model-len {} --max-num-seqs {}{}", r.context, r.concurrency, kv));
  if (moved > 0)
    out.emplace_back(
        "vllm, without an expert pager",
        fmt::format("--cpu-offload-gb {:.1f}",
                    std::ceil(10 * static_cast<double>(moved) / static_cast<double>(1_GiB)) / 10));
  out.emplace_back(
      "llama.cpp",
      fmt::format("-ngl 99 -c {} -np {} --n-cpu-moe {}", r.context * r.concurrency, r.concurrency,
                  static_cast<std::uint64_t>(model.experts.layers) - whole_layers(plan)));
  out.emplace_back("llama.cpp, with its expert cache",
                   fmt::format("-ngl 99 --cpu-moe --moe-cache-mib {} -c {} -np {}",
                               expert_bytes / 1_MiB, r.context * r.concurrency, r.concurrency));
  out.emplace_back("hotset", fmt::format("pool_layout::per_layer(shape, {})", plan.split.cap));
  return out;
}

json rate_to_json(double rate) { return std::isfinite(rate) ? json(rate) : json(nullptr); }

std::string rate_text(double rate) {
  return std::isfinite(rate) ? fmt::format("{:.1f} tokens/s", rate) : "no limit";
}

std::string quotas_text(const memory_plan& plan) {
  const auto& q = plan.quotas;
  const auto [least, most] = std::minmax_element(q.quotas.begin(), q.quotas.end());
  const auto fewer = [](double misses, double uniform) {
    return uniform > 0 ? 100 * (1 - misses / uniform) : 0.0;
  };
  auto text = fmt::format("{}..{} a layer: {:.1f} % fewer misses than one cap", *least, *most,
                          fewer(q.misses, q.uniform_misses));
  if (q.held_out)
    text += fmt::format(" ({:.1f} % made on the first half, measured on the second)",
                        fewer(*q.held_out, *q.held_out_uniform));
  return text;
}

}  // namespace

nlohmann::ordered_json to_json(const memory_plan& plan) {
  const auto& model = plan.request.model;
  json marginals = json::array();
  for (const auto& m : plan.marginals)
    marginals.push_back({{"consumer", m.consumer}, {"seconds_per_byte", m.seconds_per_byte}});
  json alternatives = json::array();
  for (const auto& a : plan.alternatives)
    alternatives.push_back({{"name", a.name},
                            {"cap", a.cap},
                            {"kv_bytes", a.kv_bytes},
                            {"seconds_per_step", a.seconds_per_step},
                            {"feasible", a.feasible}});
  json settings = json::object();
  for (const auto& [engine, text] : settings_of(plan)) settings[engine] = text;
  return {
      {"schema", plan_schema},
      {"model",
       {{"name", model.name},
        {"moe_layers", model.experts.layers},
        {"experts", model.experts.experts},
        {"top_k", model.experts.top_k},
        {"bytes_per_expert_slot", model.expert_slot_bytes()},
        {"kv_bytes_per_token", model.kv_bytes_per_token()},
        {"resident_bytes", model.resident_bytes}}},
      {"budget_bytes", plan.budget_bytes},
      {"cap", plan.split.cap},
      {"quotas", plan.quotas.quotas},
      {"kv_blocks", plan.split.blocks},
      {"kv_bytes", plan.kv_bytes()},
      {"kv_tokens", plan.kv_tokens()},
      {"binds", name_of(plan.split.binds)},
      {"marginals", std::move(marginals)},
      {"predicted",
       {{"hit_rate", plan.hit_rate},
        {"seconds_per_step", plan.split.seconds},
        {"ceiling_tokens_per_s", rate_to_json(plan.ceiling_tokens_per_second)},
        {"new_bytes_per_step", plan.new_bytes_per_step},
        {"uniform_misses_per_step", plan.quotas.uniform_misses},
        {"quota_misses_per_step", plan.quotas.misses},
        {"held_out_uniform_misses",
         plan.quotas.held_out_uniform ? json(*plan.quotas.held_out_uniform) : json(nullptr)},
        {"held_out_misses", plan.quotas.held_out ? json(*plan.quotas.held_out) : json(nullptr)}}},
      {"alternatives", std::move(alternatives)},
      {"settings", std::move(settings)},
      {"notes", plan.notes}};
}

std::string to_text(const memory_plan& plan) {
  const auto& r = plan.request;
  const auto& model = r.model;
  std::string out;
  const auto line = [&](std::string_view label, const std::string& value) {
    out += fmt::format("{:<18} {}\n", label, value);
  };
  line("model", fmt::format("{}: {} MoE layers x {} experts, top-{}", printable(model.name),
                            model.experts.layers, model.experts.experts, model.experts.top_k));
  line("device", fmt::format("{}: {} always resident, {} reserved, {} to divide",
                             gibibytes(r.device_bytes), gibibytes(model.resident_bytes),
                             gibibytes(r.reserve_bytes), gibibytes(plan.budget_bytes)));
  line("experts", fmt::format("{} of {} in every layer, {}", plan.split.cap, experts_of(model),
                              gibibytes(plan.split.cap * model.expert_slot_bytes())));
  if (plan.block_bytes != 0)
    line("KV cache",
         fmt::format(
             "{} blocks of {} tokens, {} tokens, {}; {} blocks are needed for {} sessions of "
             "{} tokens",
             plan.split.blocks, r.block_tokens, plan.kv_tokens(), gibibytes(plan.kv_bytes()),
             plan.min_blocks, r.concurrency, r.context));
  line("binds", std::string(name_of(plan.split.binds)));
  const auto kv_seconds = r.cost.kv_miss(r.block_tokens) * plan.split.kv_misses;
  line("predicted",
       fmt::format("{:.1f} % hits, {:.2f} ms a step for misses{}", 100 * plan.hit_rate,
                   1e3 * plan.split.seconds,
                   kv_seconds > 0 ? fmt::format(", {:.2f} of them for KV", 1e3 * kv_seconds) : ""));
  line("ceiling", fmt::format("{} for a cache of the step before ({} of new experts a step)",
                              rate_text(plan.ceiling_tokens_per_second),
                              gibibytes(static_cast<std::uint64_t>(plan.new_bytes_per_step))));
  if (r.routing != nullptr) line("unequal quotas", quotas_text(plan));
  out += fmt::format("{:<18} {:>6} {:>12} {:>14}\n", "alternatives", "cap", "KV", "ms a step");
  for (const auto& a : plan.alternatives)
    out += fmt::format("  {:<16} {:>6} {:>12} {:>14.2f}{}\n", a.name,
                       a.cap == 0 ? "-" : fmt::format("{}", a.cap), gibibytes(a.kv_bytes),
                       1e3 * a.seconds_per_step,
                       a.feasible ? "" : "  does not start: the KV cache is below its floor");
  out += "settings\n";
  for (const auto& [engine, text] : settings_of(plan))
    out += fmt::format("  {}: {}\n", engine, text);
  for (const auto& note : plan.notes) out += fmt::format("note: {}\n", note);
  return out;
}

}  // namespace hotset::inline v0::sim
