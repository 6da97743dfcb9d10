// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/decision_log.hpp"

#include <utility>

#include <nlohmann/json.hpp>

namespace hotset::lab {

void decision_log::on_plan(const visit_plan& plan) {
  const auto& context = plan.context();
  nlohmann::ordered_json line{
      {"run", run_}, {"event", context.ordinal}, {"step", context.step}, {"layer", context.layer}};
  if (plan.groups() > 1) line["group"] = plan.group();
  auto& hits = line["hits"] = nlohmann::ordered_json::array();
  auto& host = line["host"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < plan.experts().size(); ++i) {
    if (plan.services()[i] == service::hit) hits.push_back(plan.experts()[i]);
    if (plan.services()[i] == service::host) host.push_back(plan.experts()[i]);
  }
  auto& fills = line["fills"] = nlohmann::ordered_json::array();
  for (const auto& f : plan.fills()) {
    nlohmann::ordered_json one{{"expert", f.key.expert}, {"slot", f.slot}};
    if (f.victim != no_key) one["victim"] = {f.victim.layer, f.victim.expert};
    fills.push_back(std::move(one));
  }
  out_ << line.dump() << '\n';
}

}  // namespace hotset::lab
