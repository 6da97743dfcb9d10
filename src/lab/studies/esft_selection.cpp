// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/esft_selection.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/json_object.hpp"
#include "lab/traces/esft.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

constexpr std::string_view accepted_file = "an ESFT summary, a JSON object";

/// To four decimals of the exact value, as the published summaries were.
double rounded(double score) {
  const auto text = fmt::format("{:.4f}", score);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::string_view key_of(esft_score kind) {
  return kind == esft_score::token ? "token_scores" : "gate_scores";
}

class summary_reader {
 public:
  summary_reader(const json& root, const std::string& file, esft_score kind)
      : root_(root), file_(file), key_(key_of(kind)) {}

  esft_summary read() const {
    constexpr std::string_view accepted = "an object of layer: {expert: score}";
    const auto place = fmt::format("key '{}'", key_);
    const auto at = root_.find(key_);
    if (at == root_.end()) refuse_input(file_, place, "is missing", accepted);
    if (!at->is_object() || at->empty())
      refuse_input(file_, place, at->is_object() ? "has no layers" : "is " + told(*at), accepted);
    std::map<std::int32_t, std::vector<scored_expert>> layers;
    for (const auto& [key, scores] : at->items()) {
      const auto number = numeric_key(key, most_layers - 1);
      if (!number)
        refuse_input(file_, fmt::format("{}: layer '{}'", key_, printable(key, 60)),
                     "is no layer's number", fmt::format("0..{}", most_layers - 1));
      layers.emplace(*number, scores_of(*number, scores));
    }
    esft_summary out;
    for (auto& [number, scores] : layers) {
      out.layer_numbers.push_back(number);
      out.scores.push_back(std::move(scores));
    }
    return out;
  }

 private:
  std::vector<scored_expert> scores_of(std::int32_t layer, const json& scores) const {
    const auto place = fmt::format("{}: layer {}", key_, layer);
    if (!scores.is_object() || scores.empty())
      refuse_input(file_, place, scores.is_object() ? "has no experts" : "is " + told(scores),
                   "an object of expert: score");
    std::vector<scored_expert> out;
    for (const auto& [key, value] : scores.items()) {
      const auto expert = numeric_key(key, most_experts - 1);
      if (!expert)
        refuse_input(file_, place, fmt::format("expert '{}' is no number", printable(key, 60)),
                     fmt::format("0..{}", most_experts - 1));
      const auto score = value.is_number() ? value.get<double>() : -1;
      if (!(score >= 0 && score <= std::numeric_limits<float>::max()))
        refuse_input(file_, place, fmt::format("the score of expert {} is {}", key, told(value)),
                     "a number of 0 or more");
      out.push_back({expert_id{*expert}, score});
    }
    return out;
  }

  const json& root_;
  const std::string& file_;
  std::string_view key_;
};

/// The model's numbers of a recording's layers, which its reader keeps as "1,2,3".
std::vector<std::int32_t> numbers_of(const routing_trace& trace) {
  std::vector<std::int32_t> out;
  const auto text = trace.fact("layers").value_or("");
  field_scanner scan(text, ',');
  while (const auto field = scan.next())
    if (const auto number = parse_number<std::int32_t>(*field)) out.push_back(*number);
  return out;
}

esft_summary scored(const routing_trace& trace, esft_score kind) {
  const auto all = score_esft(trace);
  esft_summary out{numbers_of(trace), {}};
  for (const auto& layer : kind == esft_score::token ? all.token : all.gate) {
    auto& row = out.scores.emplace_back();
    for (std::size_t e = 0; e < layer.size(); ++e)
      row.push_back({static_cast<expert_id>(e), rounded(layer[e])});
  }
  return out;
}

}  // namespace

esft_score parse_esft_score(std::string_view name) {
  if (name == "token") return esft_score::token;
  if (name == "gate") return esft_score::gate;
  refuse_name("score", name, {"token", "gate"});
}

esft_summary parse_esft_summary(std::string_view text, const std::string& file, esft_score kind) {
  const auto root = parse_json_object(text, file, accepted_file);
  return summary_reader(root, file, kind).read();
}

esft_summary read_esft_summary(const std::filesystem::path& path, esft_score kind) {
  const auto entries = read_input(path);
  for (const auto& entry : entries)
    if (entry.name == "summary.json")
      return parse_esft_summary(
          entry.text, entries.size() == 1 ? path.string() : path.string() + ": " + entry.name,
          kind);
  if (entries.size() == 1 && !entries.front().name.starts_with("expert_weights_"))
    return parse_esft_summary(entries.front().text, path.string(), kind);
  return scored(parse_esft(entries, path.string()).trace, kind);
}

std::vector<expert_id> select_experts(std::span<const scored_expert> scores, double p) {
  std::vector<scored_expert> order(scores.begin(), scores.end());
  std::sort(order.begin(), order.end(), [](const scored_expert& a, const scored_expert& b) {
    return a.score != b.score ? a.score > b.score : a.expert < b.expert;
  });
  std::vector<expert_id> out;
  double sum = 0;
  for (const auto& one : order) {
    if (!(sum < p)) break;
    out.push_back(one.expert);
    sum += one.score;
  }
  return out;
}

esft_config select_experts(const esft_summary& summary, double p) {
  esft_config out{summary.layer_numbers, {}};
  for (const auto& layer : summary.scores) out.tuned.push_back(select_experts(layer, p));
  return out;
}

}  // namespace hotset::lab
