// SPDX-License-Identifier: Apache-2.0
// tiny_moe score-experts and fine-tune: from a text to the experts that it uses, and to an adapter of them.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/core/text/names.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/files/program.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/sizes.hpp"
#include "tiny_moe/commands/commands.hpp"
#include "tiny_moe/experts/adapter_files.hpp"
#include "tiny_moe/studies/expert_selection.hpp"
#include "tiny_moe/studies/fine_tuning.hpp"
#include "tiny_moe/studies/quality.hpp"

namespace tiny_moe {
namespace {

using text_bytes = std::vector<std::uint8_t>;

template <class Value>
[[noreturn]] void refuse(std::string_view option, const Value& given, std::string_view accepted) {
  throw hotset::lab::usage_error(fmt::format("{} '{}'; accepted: {}", option, given, accepted));
}

void check_window(std::size_t window, std::size_t least, const model_config& shape) {
  if (window < least || window > shape.max_positions)
    refuse("--window", window, fmt::format("{}..{}", least, shape.max_positions));
}

text_bytes read_text(const std::filesystem::path& given, std::size_t least) {
  const auto path = hotset::lab::input_path(given);
  const hotset::lab::mapped_file file(path);
  auto text = hotset::lab::copy_elements<std::uint8_t>(file.bytes());
  if (text.size() < least)
    hotset::lab::refuse_input(path.string(), "", fmt::format("has {} bytes", text.size()),
                              fmt::format("{} or more", least));
  return text;
}

// score-experts

/// Of the bytes of all texts together; each begins a window.
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

/// {layer: {expert: score}}, to four decimals, as the published summaries are.
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

// fine-tune

void check_words(const tuning_options& chosen) {
  if (!(chosen.p > 0 && chosen.p <= 1)) refuse("--p", chosen.p, "more than 0, at most 1");
  if (!(chosen.step_size > 0 && chosen.step_size <= 1000))
    refuse("--step-size", chosen.step_size, "more than 0, at most 1000");
  if (!(chosen.momentum >= 0 && chosen.momentum < 1))
    refuse("--momentum", chosen.momentum, "0 or more, less than 1");
  if (chosen.train_bytes != 0 && chosen.train_bytes < chosen.window)
    refuse("--train-bytes", chosen.train_bytes,
           fmt::format("{} (--window) or more", chosen.window));
  if (chosen.score != "token" && chosen.score != "gate")
    hotset::lab::refuse_name("--score:", chosen.score, {"token", "gate"});
}

struct tuning_texts {
  text_bytes training;
  text_bytes evaluated;
};

tuning_texts texts_of(const tuning_options& chosen) {
  tuning_texts out;
  out.training = read_text(chosen.text, std::max(chosen.window, chosen.train_bytes));
  const auto cut = chosen.train_bytes == 0 ? out.training.size() : chosen.train_bytes;
  const auto rest = std::span(out.training).subspan(cut);
  out.evaluated = chosen.evaluated.empty() ? text_bytes(rest.begin(), rest.end())
                                           : read_text(chosen.evaluated, 2);
  out.training.resize(cut);
  return out;
}

/// Training takes minutes: what cannot be written is refused before it.
void check_folder(const std::filesystem::path& folder) {
  if (folder.empty()) refuse("OUT", "", "a folder");
  std::error_code code;
  auto at = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(at, code) && at.has_relative_path()) at = at.parent_path();
  const auto name = hotset::printable(at.string(), 4096);
  if (!std::filesystem::is_directory(at, code))
    throw std::runtime_error(name + ": is a file; accepted: a folder");
  if (::access(at.c_str(), W_OK | X_OK) != 0)
    throw std::runtime_error(
        name + ": cannot be written: " + std::error_code(errno, std::generic_category()).message());
}

tuned_experts experts_of(const model& weights, const text_bytes& text,
                         const tuning_options& chosen) {
  const auto scores = score_experts(weights, text, chosen.window);
  return select_experts(chosen.score == "token" ? scores.token : scores.gate,
                        weights.config().experts, chosen.p);
}

void print_tuned(const tuned_experts& tuned, const model_config& shape) {
  std::size_t all = 0;
  std::size_t most = 0;
  for (const auto& of_layer : tuned) {
    all += of_layer.size();
    most = std::max(most, of_layer.size());
  }
  fmt::print("{} of {} experts: at most {} of a layer, {:.2f} on average\n", all,
             shape.layers * shape.experts, most,
             static_cast<double>(all) / static_cast<double>(shape.layers));
}

/// Prints some ten lines, each the mean loss of the steps since the one before.
/// Errors: std::runtime_error where the loss is no number.
void train(fine_tuner<float>& tuner, std::span<const std::uint8_t> text,
           const tuning_options& chosen) {
  constexpr std::size_t lines = 10;
  hotset::splitmix64 random(chosen.seed);
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t step = 0; step < chosen.steps; ++step) {
    const auto begin = random.below(text.size() - chosen.window + 1);
    const auto loss = tuner.differentiate(text.subspan(begin, chosen.window));
    if (!std::isfinite(loss))
      throw std::runtime_error(fmt::format("step {}: the loss is {}; --step-size {} is too large",
                                           step + 1, loss, chosen.step_size));
    const auto left = static_cast<double>(chosen.steps - step) / static_cast<double>(chosen.steps);
    (void)tuner.step({.step = chosen.step_size * left, .momentum = chosen.momentum});
    sum += loss;
    ++count;
    if ((step + 1) * lines / chosen.steps == step * lines / chosen.steps) continue;
    fmt::print("step {:>5}: {:.4f} bits per byte\n", step + 1, sum / static_cast<double>(count));
    hotset::lab::flush_standard_output();
    sum = 0;
    count = 0;
  }
}

void print_quality(const model& weights, const adapter_weights& adapter, const text_bytes& text) {
  if (text.size() < 2) return;
  const quality_config windows{.window =
                                   std::min<std::size_t>(256, weights.config().max_positions)};
  resident_experts resident(weights);
  merged_experts merged(weights, adapter);
  const auto base = bits_per_byte(weights, resident, text, windows);
  const auto tuned = bits_per_byte(weights, merged, text, windows);
  fmt::print("{} bytes evaluated: {:.4f} bits per byte, {:.4f} with the adapter ({:+.4f})\n",
             text.size(), base, tuned, tuned - base);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int score_experts(const options& all) {
  const auto& chosen = all.scoring;
  const model weights(all.model);
  const auto& shape = weights.config();
  check_window(chosen.window, 1, shape);
  hotset::lab::output_file out(chosen.out);
  std::vector<text_bytes> texts;
  std::size_t count = 0;
  for (const auto& path : chosen.texts) {
    auto& text = texts.emplace_back(read_text(path, 1));
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

int fine_tune(const options& all) {
  const auto& chosen = all.tuning;
  check_words(chosen);
  const model weights(all.model);
  const auto& shape = weights.config();
  check_window(chosen.window, 2, shape);
  const auto texts = texts_of(chosen);
  check_folder(chosen.out);

  const auto start = std::chrono::steady_clock::now();
  fine_tuner<float> tuner(weights, experts_of(weights, texts.training, chosen));
  print_tuned(tuner.tuned(), shape);
  train(tuner, texts.training, chosen);
  write_adapter(chosen.out, shape, rounded(tuner, shape, adapter_name(chosen.out)));
  const auto trained = seconds_since(start);

  // What was written is what is measured.
  print_quality(weights, read_adapter(shape, chosen.out), texts.evaluated);
  hotset::lab::flush_standard_output();
  fmt::print(stderr, "trained in {:.1f} s, evaluated in {:.1f} s\n", trained,
             seconds_since(start) - trained);
  return ok;
}

}  // namespace tiny_moe
