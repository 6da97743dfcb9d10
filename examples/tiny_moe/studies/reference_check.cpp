// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/reference_check.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/files/safetensors.hpp"
#include "tiny_moe/model/engine.hpp"

namespace tiny_moe {
namespace {

using hotset::lab::refuse_input;

constexpr std::string_view tokens_suffix = ".tokens";

// Forwards visits and keeps their routing.
class recording_experts final : public expert_provider {
 public:
  explicit recording_experts(expert_provider& inner) : inner_(inner) {}

  void on_step(const step_inputs& step) override {
    ids.clear();
    weights.clear();
    probabilities.clear();
    inner_.on_step(step);
  }
  void on_sequence_end(std::uint32_t sequence) noexcept override {
    inner_.on_sequence_end(sequence);
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    ids.insert(ids.end(), visit.ids.begin(), visit.ids.end());
    weights.insert(weights.end(), visit.weights.begin(), visit.weights.end());
    probabilities.insert(probabilities.end(), visit.probabilities.begin(),
                         visit.probabilities.end());
    inner_.run(visit, compute);
  }

  std::vector<std::int32_t> ids;     // [layers, tokens, top_k] of the last pass
  std::vector<float> weights;        // [layers, tokens, top_k] of the last pass
  std::vector<float> probabilities;  // [layers, tokens, experts]

 private:
  expert_provider& inner_;
};

// Copies tensors out of the reference, where they may be unaligned.
class reference_file {
 public:
  explicit reference_file(const std::filesystem::path& path) : file_(path) {}

  template <class Number>
  [[nodiscard]] std::vector<Number> read(const std::string& name, std::string_view dtype,
                                         std::initializer_list<std::uint64_t> shape) const {
    return hotset::lab::copy_elements<Number>(tensor_bytes(file_, name, dtype, shape));
  }

  // Length of a one-dimensional tensor.
  [[nodiscard]] std::size_t length(const std::string& name, std::size_t limit) const {
    const auto& tensor = file_.at(name);
    if (tensor.shape.size() != 1 || tensor.shape[0] == 0 || tensor.shape[0] > limit) {
      refuse_input(
          file_.path().string(), "tensor '" + name + "'",
          fmt::format("has {} dimensions, {} elements", tensor.shape.size(), tensor.elements()),
          fmt::format("one dimension of 1..{} elements", limit));
    }
    return tensor.shape[0];
  }

  [[nodiscard]] bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  [[nodiscard]] std::vector<std::string> prompts() const {
    std::vector<std::string> names;
    for (const std::string& name : file_.names()) {
      if (name.size() > tokens_suffix.size() && name.ends_with(tokens_suffix)) {
        names.push_back(name.substr(0, name.size() - tokens_suffix.size()));
      }
    }
    if (names.empty()) {
      refuse_input(file_.path().string(), "", "has no prompts", "tensors NAME.tokens");
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  hotset::lab::safetensors_file file_;
};

// A NaN difference counts as the largest.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): a difference has no order
double widened(double so_far, double left, double right) {
  const double difference = std::abs(left - right);
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  return std::max(so_far, difference);
}

}  // namespace

bool prompt_agreement::agrees(const reference_tolerance& tolerance) const noexcept {
  return logits <= tolerance.logits && weights <= tolerance.weights &&
         probabilities <= tolerance.probabilities && ids_differing == 0 && greedy_differing == 0;
}

std::vector<prompt_agreement> check_reference(const model& weights, expert_provider& experts,
                                              const std::filesystem::path& reference,
                                              const reference_tolerance& tolerance) {
  const reference_file file(reference);
  const model_config& shape = weights.config();
  constexpr std::size_t vocabulary = model_config::vocabulary;
  recording_experts recorder(experts);
  engine decoder(weights, recorder);
  std::vector<prompt_agreement> report;

  for (const std::string& name : file.prompts()) {
    prompt_agreement result;
    result.name = name;
    const std::size_t steps = file.length(name + ".greedy", shape.max_positions);
    const std::size_t count = file.length(name + ".tokens", shape.max_positions);
    if (count + steps - 1 > shape.max_positions) {
      refuse_input(reference.string(), "prompt '" + name + "'",
                   fmt::format("has {} tokens and {} greedy steps", count, steps),
                   fmt::format("{} in all", shape.max_positions + 1));
    }
    const auto tokens = file.read<std::uint8_t>(name + ".tokens", "U8", {count});
    const auto logits = file.read<float>(name + ".logits", "F32", {count, vocabulary});
    const auto ids =
        file.read<std::uint16_t>(name + ".ids", "U16", {count, shape.layers, shape.top_k});
    const auto shares =
        file.read<float>(name + ".weights", "F32", {count, shape.layers, shape.top_k});
    const auto greedy = file.read<std::uint8_t>(name + ".greedy", "U8", {steps});
    const auto margins = file.read<float>(name + ".margin", "F32", {steps});
    std::vector<float> probabilities;
    if (file.has(name + ".probabilities")) {
      probabilities =
          file.read<float>(name + ".probabilities", "F32", {count, shape.layers, shape.experts});
    }

    decoder.reset();
    auto row = decoder.forward(tokens);
    result.tokens = count;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      result.logits = widened(result.logits, row[i], logits[i]);
    }
    for (std::size_t t = 0; t < count; ++t) {
      for (std::size_t l = 0; l < shape.layers; ++l) {
        const std::size_t theirs = t * shape.layers + l;
        const std::size_t ours = l * count + t;
        for (std::size_t k = 0; k < shape.top_k; ++k) {
          ++result.ids;
          if (recorder.ids[ours * shape.top_k + k] != ids[theirs * shape.top_k + k]) {
            ++result.ids_differing;
          }
          result.weights = widened(result.weights, recorder.weights[ours * shape.top_k + k],
                                   shares[theirs * shape.top_k + k]);
        }
        for (std::size_t e = 0; e < (probabilities.empty() ? 0 : shape.experts); ++e) {
          result.probabilities =
              widened(result.probabilities, recorder.probabilities[ours * shape.experts + e],
                      probabilities[theirs * shape.experts + e]);
        }
      }
    }
    for (std::size_t step = 0; step < steps; ++step) {
      if (margins[step] > tolerance.margin) {
        ++result.greedy;
        if (largest(row.last(vocabulary)) != greedy[step]) ++result.greedy_differing;
      }
      if (step + 1 < steps) row = decoder.forward({&greedy[step], 1});
    }
    report.push_back(result);
  }
  return report;
}

}  // namespace tiny_moe
