// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/plan_report.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hotset/core/numbers/units.hpp"
#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::ordered_json;

std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(1_GiB));
}

json rate_to_json(double rate) { return std::isfinite(rate) ? json(rate) : json(nullptr); }

std::string quotas_text(const memory_plan& plan) {
  const auto& q = plan.quotas;
  const auto [least, most] = std::minmax_element(q.quotas.begin(), q.quotas.end());
  const auto fewer = [](double misses, double uniform) {
    return uniform > 0 ? 100 * (1 - misses / uniform) : 0.0;
  };
  auto text = fmt::format("{}..{} a layer: {:.1f} % fewer misses than with one cap", *least, *most,
                          fewer(q.misses, q.uniform_misses));
  if (q.held_out)
    text += fmt::format(" ({:.1f} % made on the first half, measured on the second)",
                        fewer(*q.held_out, *q.held_out_uniform));
  return text;
}

std::string resident_text(const memory_plan& plan) {
  const auto& model = plan.device.model;
  const auto [least, most] = std::ranges::minmax(plan.quotas.quotas);
  return fmt::format("{} of {} in every layer, {}",
                     least == most ? fmt::format("{}", least) : fmt::format("{}..{}", least, most),
                     model.experts.experts, gibibytes(plan.quotas.bytes));
}

std::string device_text(const memory_plan& plan) {
  const auto& r = plan.device;
  auto text = fmt::format("{}: {} always resident, {} reserved, ", gibibytes(r.device_bytes),
                          gibibytes(r.model.resident_bytes), gibibytes(r.reserve_bytes));
  // Windows and recurrent state, which a session keeps whatever its length.
  const auto rest = r.device_bytes - r.model.resident_bytes - r.reserve_bytes - plan.budget_bytes;
  if (rest >= 10_MiB)
    text += fmt::format("{} of sessions whatever their length, ", gibibytes(rest));
  return text + fmt::format("{} to divide", gibibytes(plan.budget_bytes));
}

std::string_view plural(std::uint64_t count) { return count == 1 ? "" : "s"; }

std::string split_text(const memory_plan& plan) {
  const auto& r = plan.request;
  const auto experts = plan.device.model.experts.experts;
  const auto sessions = plan.device.concurrency;
  return fmt::format(
      "{} of these, {} session{} on each; {}; figures are the slowest's", r.devices, sessions,
      plural(sessions),
      r.split == device_split::expert
          ? fmt::format("{} of {} experts of every layer", experts, r.model.experts.experts)
          : fmt::format("a part of each of {} experts of every layer", experts));
}

std::string recommended_text(const memory_plan& plan) {
  if (plan.is_all_resident()) return "all experts resident: nothing is moved";
  if (plan.recommended == "hotset") return "hotset: these quotas, paged";
  if (plan.recommended == "read-in-place") return "read-in-place: vllm, without an expert pager";
  return plan.recommended;
}

std::string alternative_text(const plan_alternative& a) {
  return fmt::format("  {:<16} {:>6} {:>12} {:>14.2f}{}{}\n", a.name,
                     a.cap == 0 ? "-" : fmt::format("{}", a.cap), gibibytes(a.kv_bytes),
                     1e3 * a.seconds_per_step,
                     a.host_layers > 0 ? fmt::format("  {} layers on the host", a.host_layers) : "",
                     a.feasible ? "" : "  does not start: the KV cache is below its floor");
}

json to_json(const memory_plan& plan) {
  const auto& model = plan.request.model;
  const auto& r = plan.request;
  json marginals = json::array();
  for (const auto& m : plan.marginals)
    marginals.push_back({{"consumer", m.consumer}, {"seconds_per_byte", m.seconds_per_byte}});
  json alternatives = json::array();
  for (const auto& a : plan.alternatives)
    alternatives.push_back({{"name", a.name},
                            {"cap", a.cap},
                            {"kv_bytes", a.kv_bytes},
                            {"seconds_per_step", a.seconds_per_step},
                            {"feasible", a.feasible},
                            {"host_layers", a.host_layers}});
  json devices = json::array();
  for (const auto& d : plan.devices)
    devices.push_back({{"first_expert", d.first_expert},
                       {"experts", d.experts},
                       {"quotas", d.quotas},
                       {"kv_blocks", d.kv_blocks},
                       {"seconds_per_step", d.seconds}});
  json settings = json::object();
  for (const auto& [engine, text] : plan.settings) settings[engine] = text;
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
      {"kv_blocks", plan.kv_blocks},
      {"kv_bytes", plan.kv_bytes()},
      {"kv_tokens", plan.kv_tokens()},
      {"binds", name_of(plan.binds)},
      {"marginals", std::move(marginals)},
      {"predicted",
       {{"hit_rate", plan.hit_rate},
        {"seconds_per_step", plan.seconds},
        {"ceiling_tokens_per_s", rate_to_json(plan.ceiling_tokens_per_second)},
        {"new_bytes_per_step", plan.new_bytes_per_step},
        {"uniform_misses_per_step", plan.quotas.uniform_misses},
        {"quota_misses_per_step", plan.quotas.misses},
        {"held_out_uniform_misses",
         plan.quotas.held_out_uniform ? json(*plan.quotas.held_out_uniform) : json(nullptr)},
        {"held_out_misses", plan.quotas.held_out ? json(*plan.quotas.held_out) : json(nullptr)}}},
      {"alternatives", std::move(alternatives)},
      {"recommended", plan.recommended},
      {"device_count", r.devices},
      {"parallel", r.devices > 1 ? json(name_of(r.split)) : json(nullptr)},
      {"devices", std::move(devices)},
      {"settings", std::move(settings)},
      {"notes", plan.notes}};
}

}  // namespace

std::string to_json_text(const memory_plan& plan) {
  return to_json(plan).dump(2, ' ', false, json::error_handler_t::replace) + '\n';
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
  line("device", device_text(plan));
  if (r.devices > 1) line("devices", split_text(plan));
  line("experts", resident_text(plan));
  if (plan.block_bytes != 0)
    line("KV cache",
         fmt::format(
             "{} blocks of {} tokens, {} tokens, {}; {} blocks are needed for {} session{} of "
             "{} tokens",
             plan.kv_blocks, r.block_tokens, plan.kv_tokens(), gibibytes(plan.kv_bytes()),
             plan.min_blocks, plan.device.concurrency, plural(plan.device.concurrency), r.context));
  line("binds", std::string(name_of(plan.binds)));
  line("predicted", fmt::format("{:.1f} % hits, {:.2f} ms a step for misses{}", 100 * plan.hit_rate,
                                1e3 * plan.seconds,
                                plan.kv_seconds > 0
                                    ? fmt::format(", {:.2f} of them for KV", 1e3 * plan.kv_seconds)
                                    : ""));
  if (std::isfinite(plan.ceiling_tokens_per_second))
    line("ceiling",
         fmt::format("{:.1f} tokens/s for a cache of the step before ({} of new experts a step)",
                     plan.ceiling_tokens_per_second,
                     gibibytes(static_cast<std::uint64_t>(plan.new_bytes_per_step))));
  if (r.routing != nullptr && !plan.is_all_resident()) line("unequal quotas", quotas_text(plan));
  line("recommended", recommended_text(plan));
  out += fmt::format("{:<18} {:>6} {:>12} {:>14}\n", "alternatives", "cap", "KV", "ms a step");
  for (const auto& a : plan.alternatives)
    if (const bool leaves_out_nothing = a.name.ends_with("offload") || a.name == "read-in-place";
        !leaves_out_nothing || a.host_layers > 0)
      out += alternative_text(a);
  out += "settings\n";
  const bool is_paged = !plan.is_all_resident();
  for (const auto& [engine, text] : plan.settings)
    out += fmt::format("  {}{}: {}\n", engine,
                       engine == "vllm" && is_paged ? ", with a pager of these quotas" : "", text);
  for (const auto& note : plan.notes) out += fmt::format("note: {}\n", note);
  return out;
}

}  // namespace hotset::lab
