// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/working_set_report.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hotset/core/ids.hpp"
#include "lab/reports/json_text.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::ordered_json;

json mean_to_json(const share_sum& shares) {
  return shares.count > 0 ? json(shares.mean()) : json(nullptr);
}

void add_spread(const share_sum& shares, json& out) {
  out["mean"] = mean_to_json(shares);
  out["least"] = shares.count > 0 ? json(shares.least) : json(nullptr);
  out["most"] = shares.count > 0 ? json(shares.most) : json(nullptr);
}

json bursts_to_json(const working_set& set) {
  json out;
  for (const auto& [kind, name] : request_classes) {
    const auto& bursts = set.bursts[static_cast<std::size_t>(kind)];
    if (kind == request_class::verify && bursts.pool.count == 0) continue;
    out[name] = {{"count", bursts.pool.count}, {"shorter", bursts.shorter}};
    add_spread(bursts.pool, out[name]);
  }
  return out;
}

json overlap_to_json(const burst_overlap& overlap) {
  return {{"pairs", overlap.held.count},
          {"jaccard", mean_to_json(overlap.jaccard)},
          {"held", mean_to_json(overlap.held)}};
}

json sequences_to_json(const footprint& sequences) {
  json after = json::array();
  for (const auto& point : sequences.after)
    after.push_back({{"bursts", point.bursts},
                     {"sequences", point.pool.count},
                     {"share", mean_to_json(point.pool)}});
  json end{{"sequences", sequences.end.count}};
  add_spread(sequences.end, end);
  return {{"after", std::move(after)}, {"end", std::move(end)}};
}

json trace_to_json(const working_set& set) {
  json after = json::array();
  for (const auto& point : set.trace.after)
    after.push_back({{"bursts", point.bursts}, {"share", mean_to_json(point.pool)}});
  return {{"after", std::move(after)},
          {"end", {{"bursts", set.all_bursts}, {"share", mean_to_json(set.trace.end)}}}};
}

json agreement_to_json(const working_set& set) {
  json out = json::array();
  for (const auto& point : set.agreement)
    out.push_back({{"distance", point.distance},
                   {"pairs", point.in_order.count},
                   {"share", mean_to_json(point.in_order)},
                   {"shuffled_pairs", point.shuffled.count},
                   {"shuffled", mean_to_json(point.shuffled)}});
  return out;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string mean_text(const share_sum& shares) {
  return shares.count > 0 ? percent(shares.mean()) : "-";
}

std::string spread_text(const share_sum& shares) {
  if (shares.count < 2) return mean_text(shares);
  return fmt::format("{} ({} to {})", mean_text(shares), percent(shares.least),
                     percent(shares.most));
}

std::string bursts_text(const burst_sizes& bursts, std::uint32_t steps) {
  if (bursts.pool.count == 0) return "none";
  const auto shorter =
      bursts.shorter > 0 ? fmt::format(", {} of fewer than {} steps", bursts.shorter, steps) : "";
  return fmt::format("{} of the pool, {} burst{}{}", spread_text(bursts.pool), bursts.pool.count,
                     bursts.pool.count == 1 ? "" : "s", shorter);
}

std::string overlap_text(const burst_overlap& overlap) {
  if (overlap.held.count == 0) return "no neighbours";
  return fmt::format("{} alike (Jaccard), {} held by the burst before", mean_text(overlap.jaccard),
                     mean_text(overlap.held));
}

std::string step_text(const share_sum& steps) {
  if (steps.count == 0) return "no neighbours";
  return fmt::format("{} of a decode step's experts were used by the step before",
                     mean_text(steps));
}

std::string footprint_table(const working_set& set) {
  auto out = fmt::format("{:>10} {:>10} {:>14} {:>14}\n", "bursts", "sequences", "of a sequence",
                         "of the trace");
  const auto row = [&](const std::string& bursts, const share_sum& sequences,
                       const share_sum& trace) {
    out += fmt::format("{:>10} {:>10} {:>14} {:>14}\n", bursts, sequences.count,
                       mean_text(sequences), mean_text(trace));
  };
  for (std::size_t i = 0; i < set.trace.after.size(); ++i)
    row(fmt::format("{}", set.trace.after[i].bursts),
        i < set.sequences.after.size() ? set.sequences.after[i].pool : share_sum{},
        set.trace.after[i].pool);
  row("all", set.sequences.end, set.trace.end);
  return out;
}

std::string agreement_table(const working_set& set) {
  auto out = fmt::format("{:>10} {:>10} {:>14}\n", "distance", "in order", "shuffled");
  for (const auto& point : set.agreement)
    out += fmt::format("{:>10} {:>10} {:>14}\n", point.distance, mean_text(point.in_order),
                       mean_text(point.shuffled));
  return out;
}

json to_json(const working_set& set) {
  return {
      {"pool", set.pool},
      {"burst_steps", set.options.burst},
      {"seed", set.options.seed},
      {"bursts", bursts_to_json(set)},
      {"burst_overlap", overlap_to_json(set.next_burst)},
      {"decode_burst_overlap", overlap_to_json(set.next_decode_burst)},
      {"step_overlap", {{"pairs", set.next_step.count}, {"share", mean_to_json(set.next_step)}}},
      {"sequence_footprint", sequences_to_json(set.sequences)},
      {"trace_footprint", trace_to_json(set)},
      {"agreement", agreement_to_json(set)}};
}

}  // namespace

std::string to_json_text(const working_set& set) { return one_line(to_json(set)) + '\n'; }

std::string to_text(const working_set& set) {
  std::string out;
  const auto line = [&](std::string_view label, const std::string& value) {
    out += fmt::format("{:<18} {}\n", label, value);
  };
  for (const auto& [kind, name] : request_classes) {
    const auto& bursts = set.bursts[static_cast<std::size_t>(kind)];
    if (kind == request_class::verify && bursts.pool.count == 0) continue;
    line(fmt::format("{} bursts", name), bursts_text(bursts, set.options.burst));
  }
  line("next burst", overlap_text(set.next_burst));
  line("next decode burst", overlap_text(set.next_decode_burst));
  line("next step", step_text(set.next_step));
  line("growth", fmt::format("of the footprint, as a share of the pool of {} experts", set.pool));
  out += footprint_table(set);
  line("agreement", "of the decisions of steps at a distance, in order and shuffled");
  return out + agreement_table(set);
}

}  // namespace hotset::lab
