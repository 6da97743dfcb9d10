// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/plan_report.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/files/input_error.hpp"
#include "lab/reports/rows.hpp"

namespace hotset::lab {
namespace {

std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(1_GiB));
}

/// Says whether a trace supports unequal quotas.
std::string quotas_text(const plan_quotas& q) {
  const auto fewer = [](double misses, double uniform) {
    return uniform > 0 ? 100 * (1 - misses / uniform) : 0.0;
  };
  if (!q.held_out) return "not tried: the trace has no second half to measure them on";
  const auto gain = fewer(*q.held_out, *q.held_out_uniform);
  if (!q.may_differ())
    return fmt::format(
        "no: made on the first half of the trace, they miss {} on the second {} one cap",
        gain > -.05 ? "as often" : fmt::format("{:.1f} % more", -gain),
        gain > -.05 ? "as" : "than");
  const auto [least, most] = std::ranges::minmax(q.quotas);
  return fmt::format(
      "{}..{} a layer: {:.1f} % fewer misses than with one cap ({:.1f} % made on the first half, "
      "measured on the second)",
      least, most, fewer(q.misses, q.uniform_misses), gain);
}

std::string resident_text(const memory_plan& plan) {
  const auto [least, most] = std::ranges::minmax(plan.quotas.quotas);
  return fmt::format("{}{} of {} in every layer, {}", least,
                     least == most ? "" : fmt::format("..{}", most),
                     plan.device.model.experts.experts, gibibytes(plan.quotas.bytes));
}

std::string device_text(const memory_plan& plan) {
  const auto& r = plan.device;
  auto text = fmt::format("{}: {} always resident, {} reserved, ", gibibytes(r.device_bytes),
                          gibibytes(r.model.resident_bytes), gibibytes(r.reserve_bytes));
  // Windows and recurrent state, which do not grow with a session's length.
  const auto rest = r.device_bytes - r.model.resident_bytes - r.reserve_bytes - plan.budget_bytes;
  if (rest >= 10_MiB)
    text += fmt::format("{} of sessions whatever their length, ", gibibytes(rest));
  return text + fmt::format("{} to divide", gibibytes(plan.budget_bytes));
}

std::string sessions_text(std::uint64_t count) {
  return fmt::format("{} session{}", count, count == 1 ? "" : "s");
}

std::string split_text(const memory_plan& plan) {
  const auto& r = plan.request;
  const auto experts = plan.device.model.experts.experts;
  return fmt::format(
      "{} of these, {} on each; {}; figures are the slowest's", r.devices,
      sessions_text(plan.device.concurrency),
      r.split == device_split::expert
          ? fmt::format("{} of {} experts of every layer", experts, r.model.experts.experts)
          : fmt::format("a part of each of {} experts of every layer", experts));
}

std::string kv_text(const memory_plan& plan) {
  return fmt::format(
      "{} blocks of {} tokens, {} tokens, {}; {} blocks are needed for {} of {} tokens",
      plan.kv_blocks, plan.request.block_tokens, plan.kv_tokens(), gibibytes(plan.kv_bytes()),
      plan.min_blocks, sessions_text(plan.device.concurrency), plan.request.context);
}

/// "31.2", or "-" if it is unknown.
std::string rate_text(const std::optional<double>& rate) {
  return rate ? fmt::format("{:.1f}", *rate) : "-";
}

/// Speeds and host memory of each engine's line.
std::string engines_text(const memory_plan& plan) {
  auto out = fmt::format("{:<22} {:>8} {:>9} {:>12} {:>12}\n", "engines", "decode/s", "prompt/s",
                         "on the host", "on disk");
  const auto add = [&](const engine_setting& s) {
    out += fmt::format("  {:<20} {:>8} {:>9} {:>12} {:>12}\n", s.engine, rate_text(s.decode),
                       rate_text(s.prompt), gibibytes(s.host_bytes), gibibytes(s.disk_bytes));
  };
  for (const auto& s : plan.settings) add(s);
  if (plan.own) add(*plan.own);
  return out;
}

std::string recommended_text(const memory_plan& plan) {
  const auto* const best = plan.recommended();
  if (best == nullptr) return "none: the notes say why";
  const auto place = best->disk_bytes > 0 ? gibibytes(best->disk_bytes) + " of experts on disk"
                     : best->host_bytes > 0
                         ? gibibytes(best->host_bytes) + " of experts in host memory"
                         : "all on the device";
  return fmt::format(
      "{}: at most {} tokens/s of {} at {} tokens of context{}; {}", best->engine,
      rate_text(best->decode), sessions_text(plan.request.concurrency), plan.request.context,
      best->prompt ? fmt::format(", prompts {} tokens/s", rate_text(best->prompt)) : "", place);
}

/// An array with make(item) for each item.
template <class List, class Make>
row each_of(const List& list, Make make) {
  row out = row::array();
  for (const auto& one : list) out.push_back(make(one));
  return out;
}

row json_of_line(const engine_setting& s) {
  return {{"name", s.engine},
          {"line", s.text},
          {"decode_tokens_per_s", s.decode},
          {"prompt_tokens_per_s", or_null(s.prompt)},
          {"host_bytes", s.host_bytes},
          {"disk_bytes", s.disk_bytes}};
}

row json_of(const memory_plan& plan) {
  const auto& r = plan.request;
  const auto& model = r.model;
  row settings = row::object();
  for (const auto& s : plan.settings) settings[s.engine] = s.text;
  const auto* const recommended = plan.recommended();
  return {{"schema", plan_schema},
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
          {"kv_blocks", plan.kv_blocks},
          {"kv_bytes", plan.kv_bytes()},
          {"kv_tokens", plan.kv_tokens()},
          {"binds", name_of(plan.binds)},
          {"marginals",
           each_of(plan.marginals,
                   [](const plan_marginal& m) -> row {
                     return {{"consumer", m.consumer}, {"seconds_per_byte", m.seconds_per_byte}};
                   })},
          {"predicted",
           {{"hit_rate", plan.hit_rate},
            {"seconds_per_step", plan.seconds},
            {"ceiling_tokens_per_s", plan.ceiling_tokens_per_second},
            {"new_bytes_per_step", plan.new_bytes_per_step},
            {"uniform_misses_per_step", plan.quotas.uniform_misses},
            {"quota_misses_per_step", plan.quotas.misses},
            {"held_out_uniform_misses", or_null(plan.quotas.held_out_uniform)},
            {"held_out_misses", or_null(plan.quotas.held_out)}}},
          {"alternatives",
           each_of(plan.alternatives,
                   [](const plan_alternative& a) -> row {
                     return {{"name", a.name},         {"cap", a.cap},
                             {"kv_bytes", a.kv_bytes}, {"seconds_per_step", a.seconds_per_step},
                             {"feasible", a.feasible}, {"host_layers", a.host_layers}};
                   })},
          {"best_division", plan.best},
          {"recommended", recommended == nullptr ? row(nullptr) : row(recommended->text)},
          {"device_count", r.devices},
          {"parallel", r.devices > 1 ? row(name_of(r.split)) : row(nullptr)},
          {"devices", each_of(plan.devices,
                              [](const device_share& d) -> row {
                                return {{"first_expert", d.first_expert},
                                        {"experts", d.experts},
                                        {"quotas", d.quotas},
                                        {"kv_blocks", d.kv_blocks},
                                        {"seconds_per_step", d.seconds}};
                              })},
          {"engines", each_of(plan.settings, json_of_line)},
          {"settings", std::move(settings)},
          {"own", plan.own ? json_of_line(*plan.own) : row(nullptr)},
          {"advice", plan.advice.empty() ? row(nullptr) : row(plan.advice)},
          {"notes", plan.notes}};
}

/// Lines on the misses of the quotas.
std::string paging_text(const memory_plan& plan) {
  auto out =
      labelled("binds", name_of(plan.binds)) +
      labelled("predicted", fmt::format("{:.1f} % hits, {:.2f} ms a step for misses{}",
                                        100 * plan.hit_rate, 1e3 * plan.seconds,
                                        plan.kv_seconds > 0 ? fmt::format(", {:.2f} of them for KV",
                                                                          1e3 * plan.kv_seconds)
                                                            : ""));
  if (std::isfinite(plan.ceiling_tokens_per_second))
    out += labelled(
        "ceiling",
        fmt::format("{:.1f} tokens/s for a cache of the step before ({} of new experts a step)",
                    plan.ceiling_tokens_per_second,
                    gibibytes(static_cast<std::uint64_t>(plan.new_bytes_per_step))));
  if (plan.request.routing != nullptr && !plan.is_all_resident() && plan.quotas.quotas.size() > 1)
    out += labelled("unequal quotas", quotas_text(plan.quotas));
  return out;
}

}  // namespace

std::string to_json_text(const memory_plan& plan) { return indented(json_of(plan)) + '\n'; }

std::string to_text(const memory_plan& plan) {
  const auto& r = plan.request;
  const auto& experts = r.model.experts;
  auto out = labelled("model", fmt::format("{}: {} MoE layers x {} experts, top-{}; {} of experts",
                                           printable(r.model.name), experts.layers, experts.experts,
                                           experts.top_k, gibibytes(r.model.all_expert_bytes())));
  const auto* const best = plan.recommended();
  out += labelled("recommended", recommended_text(plan));
  if (best != nullptr) out += fmt::format("  {}\n", best->text);
  if (!plan.advice.empty()) out += labelled("or change", plan.advice);
  out += engines_text(plan) + labelled(r.has_card ? "device" : "memory", device_text(plan));
  if (r.devices > 1) out += labelled("devices", split_text(plan));
  if (plan.can_page()) out += labelled("experts", resident_text(plan));
  if (plan.block_bytes != 0) out += labelled("KV cache", kv_text(plan));
  if (plan.can_page()) out += paging_text(plan);
  out += "other settings\n";
  for (const auto& setting : plan.settings)
    if (&setting != best) out += fmt::format("  {}: {}\n", setting.engine, setting.text);
  if (plan.own) out += fmt::format("  {}: {}\n", plan.own->engine, plan.own->text);
  for (const auto& note : plan.notes) out += fmt::format("note: {}\n", note);
  return out;
}

}  // namespace hotset::lab
