// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/program/report.hpp"

#include <cstdarg>
#include <cstdio>
#include <iterator>

#include "cuda_decode/program/ceiling.hpp"
#include "cuda_decode/program/json_text.hpp"

namespace cuda_decode {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* form, ...) {
  std::va_list arguments;
  va_start(arguments, form);
  char line[512];
  (void)std::vsnprintf(line, sizeof(line), form, arguments);
  va_end(arguments);
  return line;
}

// Formats in the largest binary unit in which the value is at least 1.
std::string binary_size(std::uint64_t bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return format("%.2f %s", value, units[unit]);
}

std::string hex(std::uint64_t value) {
  return format("%016llx", static_cast<unsigned long long>(value));
}

// Formats "-" if there is no figure.
std::string figure(double value, int digits) {
  return value > 0 ? format("%.*f", digits, value) : "-";
}

const char* name_of(routing_known known) {
  return known == routing_known::in_time ? "in-time" : "ahead";
}
const char* name_of(offload_fetch fetch) {
  return fetch == offload_fetch::routed ? "routed" : "layer";
}

std::string iso_text(const decode_report& r) {
  const auto rows = iso_memory_table(r);
  if (rows.empty()) return {};
  auto out = format(
      "\nequal device memory for experts (as WiSP's Table 2): as many layers resident as fit into "
      "hotset's slots; static offload fetches: %s\n%-11s %-49s %9s   %-30s %9s %8s\n",
      name_of(r.fetch), "device", "baseline", "tokens/s", "hotset", "tokens/s", "speedup");
  for (const auto& row : rows)
    out += format("%-11s %-49s %9.2f   %-30s %9.2f %7.2fx\n", binary_size(row.device_bytes).c_str(),
                  row.baseline.c_str(), row.baseline_tokens_per_second, row.hotset.c_str(),
                  row.hotset_tokens_per_second, row.speedup());
  return out;
}

std::string ceiling_text(const decode_report& r) {
  return format(
      "\nmandatory traffic of a cache that holds the step before: %.1f MB a step (%.2f GiB), at "
      "most %s tokens/s at the plain rate\n",
      r.turnover_bytes / 1e6, r.turnover_bytes / (1024.0 * 1024.0 * 1024.0),
      figure(tokens_per_second_ceiling(r.turnover_bytes, r.plain_rate), 1).c_str());
}

std::string bits_text(const decode_report& r) {
  std::string out;
  for (const auto& line : r.differences) out += "BITS DIFFER: " + line + "\n";
  if (!r.differences.empty() || r.results.empty()) return out;
  out += format("bits: %zu runs, all equal, hash ", r.results.size()) +
         hex(r.results.front().hash) + "\n";
  if (r.checked_steps != 0)
    out += format("bits: the host computed %zu steps too, equal\n", r.checked_steps);
  return out;
}

void add_result(json_text& json, const arm_result& a, const decode_report& r) {
  json.begin_object()
      .add("arm", a.what.name(r.shape))
      .add("mode", cuda_decode::name_of(a.what.mode))
      .add("tokens_per_second", a.tokens_per_second())
      .add("seconds", a.seconds)
      .add("steps", a.steps)
      .add("bytes_moved", a.traffic.bytes_moved)
      .add("bytes_per_second", a.bytes_per_second())
      .add("bytes_per_step", a.bytes_per_step())
      .add("ceiling_tokens_per_second", tokens_per_second_ceiling(a.bytes_per_step(), r.plain_rate))
      .add("accesses", a.traffic.accesses)
      .add("hits", a.traffic.hits)
      .add("hit_rate", a.hit_rate())
      .add("device_bytes", a.device_bytes)
      .add("replayed_steps", a.counts.replayed_steps)
      .add("missing_experts", a.counts.missing_experts)
      .add("hash", hex(a.hash))
      .end_object();
}

}  // namespace

std::vector<iso_memory_row> iso_memory_table(const decode_report& report) {
  std::vector<iso_memory_row> rows;
  for (const auto& ours : report.results) {
    if (ours.what.kind != arm_kind::hotset) continue;
    const bool holds_all = ours.what.cap == report.shape.experts;
    for (const auto& other : report.results) {
      const bool is_rival = holds_all ? other.what.kind == arm_kind::full_residency
                                      : other.what.kind == arm_kind::static_offload &&
                                            other.what.cap == ours.what.cap;
      // Static offload cannot run a step as one graph: compare with its layer graphs.
      const auto rival_mode = ours.what.mode == decode_mode::step_graph && !holds_all
                                  ? decode_mode::layer_graphs
                                  : ours.what.mode;
      if (!is_rival || other.what.mode != rival_mode) continue;
      const auto text = [&](const arm_result& a) {
        return a.what.name(report.shape) + ", " + std::string(name_of(a.what.mode));
      };
      rows.push_back({ours.device_bytes, text(other), other.tokens_per_second(), text(ours),
                      ours.tokens_per_second()});
    }
  }
  return rows;
}

std::string text_before_arms(const decode_report& r) {
  const auto& s = r.shape;
  auto out = s.name + format(": %d layers", s.layers);
  if (s.layers != r.layers_of_model)
    out += format(" (a part: the model has %d)", r.layers_of_model);
  out += format(", %d experts, top-%d, hidden %u, inner %u, %zu tensors and %llu bytes an expert\n",
                s.experts, s.top_k, s.form.hidden, s.form.inner, s.tensors.size(),
                static_cast<unsigned long long>(s.expert_bytes()));
  out += "host: " + binary_size(r.page_locked_bytes) + " page-locked of a budget of " +
         binary_size(r.host_budget) + "\n";
  out +=
      "routing: " + r.routing +
      format("; known %s; %zu steps after %zu of warm-up\n", name_of(r.known), r.steps, r.warmup);
  out += "hotset evicts by " + r.eviction + "\n";
  out += format("plain page-locked copies, expert by expert: %.2f GB/s\n\n", r.plain_rate / 1e9);
  out += format("%-34s %-13s %9s %9s %8s %10s %9s %9s %8s\n", "arm", "mode", "tokens/s", "GB/s h2d",
                "hits", "device", "MB/step", "ceiling", "replayed");
  return out;
}

std::string text_of(const arm_result& a, const decode_report& r) {
  return format("%-34s %-13s %9.2f %9.2f %7.1f%% %10s %9.1f %9s %8llu\n",
                a.what.name(r.shape).c_str(), std::string(name_of(a.what.mode)).c_str(),
                a.tokens_per_second(), a.bytes_per_second() / 1e9, 100 * a.hit_rate(),
                binary_size(a.device_bytes).c_str(), a.bytes_per_step() / 1e6,
                figure(tokens_per_second_ceiling(a.bytes_per_step(), r.plain_rate), 1).c_str(),
                static_cast<unsigned long long>(a.counts.replayed_steps));
}

std::string text_after_arms(const decode_report& r) {
  std::string out;
  for (const auto& [arm, reason] : r.left_out) out += arm + ": left out: " + reason + "\n";
  out +=
      "ceiling: tokens/s if the arm's own copies ran at the plain rate and nothing else took "
      "time\n";
  return out + iso_text(r) + ceiling_text(r) + bits_text(r);
}

std::string json_of(const decode_report& r) {
  json_text json;
  json.begin_object()
      .add("shape", r.shape.name)
      .add("layers", r.shape.layers)
      .add("layers_of_model", r.layers_of_model)
      .add("experts", r.shape.experts)
      .add("top_k", r.shape.top_k)
      .add("expert_bytes", r.shape.expert_bytes())
      .add("routing", r.routing)
      .add("routing_known", name_of(r.known))
      .add("static_fetch", name_of(r.fetch))
      .add("eviction", r.eviction)
      .add("warmup", r.warmup)
      .add("steps", r.steps)
      .add("page_locked_bytes", r.page_locked_bytes)
      .add("host_budget", r.host_budget)
      .add("plain_copy_bytes_per_second", r.plain_rate)
      .add("mandatory_bytes_per_step", r.turnover_bytes)
      .add("mandatory_ceiling_tokens_per_second",
           tokens_per_second_ceiling(r.turnover_bytes, r.plain_rate))
      .add("finished", r.finished)
      .add("bits_equal", r.differences.empty())
      .add("checked_steps", r.checked_steps);
  json.begin_array("arms");
  for (const auto& a : r.results) add_result(json, a, r);
  json.end_array().begin_array("iso_memory");
  for (const auto& row : iso_memory_table(r))
    json.begin_object()
        .add("device_bytes", row.device_bytes)
        .add("baseline", row.baseline)
        .add("baseline_tokens_per_second", row.baseline_tokens_per_second)
        .add("hotset", row.hotset)
        .add("hotset_tokens_per_second", row.hotset_tokens_per_second)
        .add("speedup", row.speedup())
        .end_object();
  json.end_array().begin_array("left_out");
  for (const auto& [arm, reason] : r.left_out)
    json.begin_object().add("arm", arm).add("reason", reason).end_object();
  json.end_array().begin_array("differences");
  for (const auto& line : r.differences) json.add({}, line);
  json.end_array().end_object();
  return json.text() + "\n";
}

std::string json_of_skip(const std::string& reason) {
  json_text json;
  json.begin_object().add("skipped", reason).end_object();
  return json.text() + "\n";
}

}  // namespace cuda_decode
