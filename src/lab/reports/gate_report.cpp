// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/gate_report.hpp"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/reports/json_text.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::ordered_json;

std::string_view name_of(gate_target target) {
  return target == gate_target::routed ? "routed" : "probabilities";
}

json share_json(const distance_quality& of, std::optional<std::uint64_t> hits) {
  if (!hits) return nullptr;
  return of.share(*hits);
}

json to_json(const gate_training_result& result) {
  const auto& size = result.weights.size();
  json distances = json::array();
  for (const auto& d : result.distances)
    distances.push_back({{"distance", d.distance},
                         {"places", d.places},
                         {"precision", d.share(d.hits)},
                         {"most_used", d.share(d.popular_hits)},
                         {"current_gate", share_json(d, d.current_gate_hits)},
                         {"recorded", share_json(d, d.recorded_hits)}});
  return {{"schema", train_gate_schema},
          {"trace", result.trace},
          {"layers", size.layers},
          {"experts", size.experts},
          {"top_k", result.top_k},
          {"d_model", size.d_model},
          {"depth", size.depth},
          {"width", size.width},
          {"epochs", result.training.epochs},
          {"seed", result.training.seed},
          {"target", name_of(result.training.target)},
          {"learnt", {{"sequences", result.learnt_sequences}, {"tokens", result.learnt_tokens}}},
          {"judged", {{"sequences", result.judged_sequences}, {"tokens", result.judged_tokens}}},
          {"distances", std::move(distances)}};
}

}  // namespace

std::string to_json_text(const gate_training_result& result) {
  return one_line(to_json(result)) + '\n';
}

std::string to_table(const gate_training_result& result, const table_view& view) {
  const auto& size = result.weights.size();
  auto head = fmt::format(
      "{} layers x {} experts, hidden states of {}; {} networks of width {}, {} epochs; learnt "
      "from "
      "{} tokens of {} sequences\n",
      size.layers, size.experts, size.d_model, size.networks(), size.width, result.training.epochs,
      result.learnt_tokens, result.learnt_sequences);
  if (result.distances.empty()) return folded(head, view.width);
  head += fmt::format("precision at {} in %, of {} tokens of {} sequences that were held out\n",
                      result.top_k, result.judged_tokens, result.judged_sequences);
  text_table table;
  table.add({"distance", "layers ahead", false, 0, true, {}});
  table.add({"learned", "learned gate", false, 0, true, {}});
  table.add({"most-used", "most used", false, 0, true, {}});
  table.add({"current",
             "current gate",
             false,
             0,
             result.distances.front().current_gate_hits.has_value(),
             {}});
  table.add(
      {"recorded", "recorded", false, 0, result.distances.front().recorded_hits.has_value(), {}});
  for (const auto& d : result.distances) {
    const auto percent = [&](std::optional<std::uint64_t> hits) {
      return hits ? fmt::format("{:.2f}", 100 * d.share(*hits)) : std::string("-");
    };
    table.add_row({std::to_string(d.distance), percent(d.hits), percent(d.popular_hits),
                   percent(d.current_gate_hits), percent(d.recorded_hits)});
  }
  return folded(head, view.width) + table.render(view);
}

}  // namespace hotset::lab
