// SPDX-License-Identifier: Apache-2.0
// tiny_moe score-experts: measures the use of each expert on texts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/text/names.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/files/program.hpp"
#include "lab/sizes.hpp"
#include "tiny_moe/commands/commands.hpp"
#include "tiny_moe/studies/expert_scores.hpp"

namespace tiny_moe {
namespace {

using text_bytes = std::vector<std::uint8_t>;

text_bytes read_text(const std::filesystem::path& given) {
  const auto path = hotset::lab::input_path(given);
  const hotset::lab::mapped_file file(path);
  auto text = hotset::lab::copy_elements<std::uint8_t>(file.bytes());
  if (text.empty()) hotset::lab::refuse_input(path.string(), "", "has 0 bytes", "1 or more");
  return text;
}

/// Scores all texts together, weighted by bytes. Each text begins a window.
expert_scores scores_of(const model& weights, std::span<const text_bytes> texts,
                        std::size_t window) {
  const auto& shape = weights.config();
  std::size_t all = 0;
  for (const auto& text : texts) all += text.size();
  expert_scores sum;
  sum.token.resize(shape.layers * shape.experts);
  sum.gate.resize(sum.token.size());
  for (const auto& text : texts) {
    const auto share = static_cast<double>(text.size()) / static_cast<double>(all);
    const auto one = score_experts(weights, text, window);
    for (std::size_t i = 0; i < sum.token.size(); ++i) {
      sum.token[i] += share * one.token[i];
      sum.gate[i] += share * one.gate[i];
    }
  }
  return sum;
}

/// Formats {layer: {expert: score}}, with four decimals like the published summaries.
std::string layers_text(const model_config& shape, std::span<const double> scores) {
  std::string out;
  for (std::size_t l = 0; l < shape.layers; ++l) {
    out += fmt::format("{}\"{}\": {{", l == 0 ? "{" : ", ", l);
    for (std::size_t e = 0; e < shape.experts; ++e)
      out += fmt::format("{}\"{}\": {:.4f}", e == 0 ? "" : ", ", e, scores[l * shape.experts + e]);
    out += '}';
  }
  return out + '}';
}
std::string summary_text(const model_config& shape, const expert_scores& scores) {
  return fmt::format("{{\"token_scores\": {}, \"gate_scores\": {}}}\n",
                     layers_text(shape, scores.token), layers_text(shape, scores.gate));
}

}  // namespace

int score_experts(const options& all) {
  const auto& chosen = all.scoring;
  const model weights(all.model);
  const auto& shape = weights.config();
  if (chosen.window < 1 || chosen.window > shape.max_positions)
    throw hotset::lab::usage_error(
        fmt::format("--window '{}'; accepted: 1..{}", chosen.window, shape.max_positions));
  hotset::lab::output_file out(chosen.out);
  std::vector<text_bytes> texts;
  std::size_t count = 0;
  for (const auto& path : chosen.texts) {
    auto& text = texts.emplace_back(read_text(path));
    if (chosen.limit != 0) text.resize(std::min(text.size(), chosen.limit));
    count += text.size();
  }
  const bool on_output = out.is_standard_output();
  out.finish(summary_text(shape, scores_of(weights, texts, chosen.window)));
  if (on_output) return ok;
  fmt::print("{}: {} experts of {} layers, by {} bytes\n", hotset::printable(out.name(), 4096),
             shape.layers * shape.experts, shape.layers, count);
  return ok;
}

}  // namespace tiny_moe
