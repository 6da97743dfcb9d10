// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/registry/parameters.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

/// values: [parts, any width]. Part i becomes a copy of part chosen[i].
template <class Value>
void pick(std::vector<Value>& values, std::size_t parts, std::span<const std::size_t> chosen) {
  const auto width = values.size() / parts;
  std::vector<Value> out;
  out.reserve(chosen.size() * width);
  for (const auto part : chosen) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(part * width);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(width));
  }
  values = std::move(out);
}

/// Selects rows in each array that has one row per token and layer.
void pick_rows(routing_trace& trace, std::size_t parts, std::span<const std::size_t> chosen) {
  pick(trace.ids, parts, chosen);
  pick(trace.weights, parts, chosen);
  pick(trace.logits, parts, chosen);
  for (auto* const halves : {&trace.probabilities, &trace.hidden, &trace.predictions}) {
    std::vector<std::uint16_t> raw(halves->size());
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = halves->raw(i);
    pick(raw, parts, chosen);
    *halves = half_array(std::move(raw));
  }
}

std::string list_of(const std::vector<std::int32_t>& layers) {
  const auto shown = std::min<std::size_t>(layers.size(), 8);
  const auto more = layers.size() - shown;
  return fmt::format("layer{} {}{}", layers.size() == 1 ? "" : "s",
                     fmt::join(std::span(layers).first(shown), ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Token i becomes a copy of token rows[i].
void reorder(routing_trace& trace, std::span<const std::size_t> rows) {
  const auto tokens = trace.tokens();
  pick_rows(trace, tokens, rows);
  pick(trace.adapter, tokens, rows);
  pick(trace.token_ids, tokens, rows);
  pick(trace.sequence, tokens, rows);
  pick(trace.kind, tokens, rows);
  pick(trace.step, tokens, rows);
}

/// Keeps these tokens, and numbers their steps from 0 without gaps.
void keep_rows(routing_trace& trace, std::span<const std::size_t> rows) {
  if (rows.size() == trace.tokens()) return;
  reorder(trace, rows);
  std::uint32_t number = 0;
  for (std::size_t t = 0, end = 0; t < trace.tokens(); t = end, ++number) {
    const auto step = trace.step[t];
    for (end = t; end < trace.tokens() && trace.step[end] == step; ++end) {
    }
    std::fill(trace.step.begin() + static_cast<std::ptrdiff_t>(t),
              trace.step.begin() + static_cast<std::ptrdiff_t>(end), number);
  }
}

/// Predictions refer to layers by distance and are dropped.
void pick_layers(routing_trace& trace, std::span<const std::size_t> kept) {
  const auto layers = static_cast<std::size_t>(trace.layers);
  if (kept.size() == layers) return;
  const auto all = layer_numbers(trace);
  std::vector<std::int32_t> numbers;
  for (const auto l : kept) numbers.push_back(all[l]);
  std::vector<std::size_t> rows;
  rows.reserve(trace.tokens() * kept.size());
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : kept) rows.push_back(t * layers + l);
  trace.predictions = {};
  trace.prediction_depth = 0;
  pick_rows(trace, trace.tokens() * layers, rows);
  if (trace.expert_bytes.size() > 1) pick(trace.expert_bytes, layers, kept);
  trace.layers = static_cast<std::int32_t>(kept.size());
  keep_layer_numbers(trace, numbers);
}

/// Remaining rows of a run of one sequence.
struct row_run {
  std::size_t next = 0;
  std::size_t end = 0;
};
std::vector<row_run> runs_of(const routing_trace& trace) {
  std::vector<row_run> out;
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    if (t == 0 || trace.sequence[t] != trace.sequence[t - 1]) out.push_back({t, t});
    ++out.back().end;
  }
  return out;
}
void put_abreast(routing_trace& trace, std::uint32_t abreast) {
  auto waiting = runs_of(trace);
  auto first = waiting.begin();
  std::vector<row_run> running;
  std::vector<std::size_t> rows;
  std::vector<std::uint32_t> steps;
  for (std::uint32_t step = 0;; ++step) {
    while (running.size() < abreast && first != waiting.end()) running.push_back(*first++);
    if (running.empty()) break;
    for (auto& run : running) {
      rows.push_back(run.next++);
      steps.push_back(step);
    }
    std::erase_if(running, [](const row_run& run) { return run.next == run.end; });
  }
  reorder(trace, rows);
  trace.step = std::move(steps);
  trace.kind.assign(trace.tokens(), request_class::decode);
}

}  // namespace

std::vector<std::int32_t> layer_numbers(const routing_trace& trace) {
  std::vector<std::int32_t> out;
  const auto text = trace.fact("layers").value_or("");
  for (const auto field : detail::split_at(text, ','))
    if (const auto layer = parse_number<std::int32_t>(field)) out.push_back(*layer);
  if (out.size() == static_cast<std::size_t>(trace.layers)) return out;
  out.resize(static_cast<std::size_t>(trace.layers));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void keep_layer_numbers(routing_trace& trace, const std::vector<std::int32_t>& layers) {
  std::erase_if(trace.metadata, [](const auto& fact) { return fact.first == "layers"; });
  if (layers.front() == 0 && layers.back() == static_cast<std::int32_t>(layers.size()) - 1) return;
  std::pair<std::string, std::string> fact("layers", fmt::format("{}", fmt::join(layers, ",")));
  const auto at = std::ranges::lower_bound(trace.metadata, fact);
  trace.metadata.insert(at, std::move(fact));
}

void empty_filled_rows(routing_trace& trace, const std::string& file, reading_notes* notes) {
  const auto wide = static_cast<std::size_t>(trace.top_k);
  const auto rows = trace.ids.size() / wide;
  std::size_t found = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto ids = std::span(trace.ids).subspan(row * wide, wide);
    if (!names_twice(ids)) continue;
    ++found;
    std::ranges::fill(ids, no_expert);
    if (!trace.weights.empty())
      std::ranges::fill(std::span(trace.weights).subspan(row * wide, wide), 0.0F);
  }
  const auto counted =
      fmt::format("{} of {} rows name an expert twice, which no router does", found, rows);
  if (std::ranges::count(trace.ids, no_expert) == std::ssize(trace.ids))
    refuse_input(file, "", found > 0 ? counted : "routes no expert",
                 "rows of a token's experts in a layer, each expert once");
  if (found > 0) add_note(notes, counted + ": taken as not routed");
}

void note_constant_layers(const routing_trace& trace, reading_notes* notes) {
  const auto layers = static_cast<std::size_t>(trace.layers);
  if (trace.top_k != 1 || trace.tokens() < 8) return;
  const auto numbers = layer_numbers(trace);
  std::vector<std::int32_t> constant;
  for (std::size_t l = 0; l < layers; ++l) {
    bool same = true;
    for (auto i = l; i < trace.ids.size(); i += layers) same &= trace.ids[i] == trace.ids[l];
    if (same) constant.push_back(numbers[l]);
  }
  if (!constant.empty() && constant.size() < layers)
    add_note(notes,
             list_of(constant) + " with one expert in all rows: dense? --layers selects others");
}

void keep_layers(routing_trace& trace, std::span<const layer_range> wanted,
                 const std::string& file) {
  const auto numbers = layer_numbers(trace);
  std::vector<std::size_t> kept;
  for (std::size_t l = 0; l < numbers.size(); ++l)
    if (std::ranges::any_of(wanted, [n = numbers[l]](const layer_range& range) {
          return n >= range.first && n <= range.last;
        }))
      kept.push_back(l);
  if (kept.empty())
    refuse_input(file, "", "has none of the layers",
                 fmt::format("--layers within {}..{}", numbers.front(), numbers.back()));
  pick_layers(trace, kept);
}

void leave_out_dense_layers(routing_trace& trace, reading_notes* notes) {
  const auto layers = static_cast<std::size_t>(trace.layers);
  std::vector<bool> routed(layers);
  for (std::size_t i = 0; i < trace.ids.size(); ++i)
    if (trace.ids[i] != no_expert)
      routed[i / static_cast<std::size_t>(trace.top_k) % layers] = true;
  const auto numbers = layer_numbers(trace);
  std::vector<std::size_t> kept;
  std::vector<std::int32_t> dense;
  for (std::size_t l = 0; l < layers; ++l)
    if (routed[l])
      kept.push_back(l);
    else
      dense.push_back(numbers[l]);
  if (dense.empty() || kept.empty()) return;
  pick_layers(trace, kept);
  add_note(notes, list_of(dense) + " without a routed row: left out as dense");
}

void keep_first(routing_trace& trace, std::size_t tokens) {
  if (tokens >= trace.tokens()) return;
  std::vector<std::size_t> rows(tokens);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  reorder(trace, rows);
}

void keep_tokens(routing_trace& trace, const row_range& wanted, const std::string& file) {
  const auto tokens = trace.tokens();
  if (wanted.first >= tokens)
    refuse_input(file, "", fmt::format("has no token {}", wanted.first),
                 fmt::format("--tokens within 0:{}", tokens));
  std::vector<std::size_t> rows(std::min<std::uint64_t>(wanted.end, tokens) - wanted.first);
  std::iota(rows.begin(), rows.end(), wanted.first);
  keep_rows(trace, rows);
}

void keep_sequences(routing_trace& trace, const row_range& wanted, const std::string& file) {
  std::vector<std::size_t> rows;
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    if (wanted.has(trace.sequence[t])) rows.push_back(t);
  if (rows.empty()) {
    const auto [least, most] = std::ranges::minmax(trace.sequence);
    refuse_input(file, "", "has none of the sequences",
                 fmt::format("--sequences within {}:{}", least, std::uint64_t{most} + 1));
  }
  keep_rows(trace, rows);
}

void cut_steps(routing_trace& trace, const step_shape& shape) {
  if (shape.kind == request_class::decode && shape.abreast > 1)
    return put_abreast(trace, shape.abreast);
  const bool prefill = shape.kind == request_class::prefill;
  std::uint32_t step = 0;
  std::uint32_t filled = 0;
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    const bool other = t > 0 && trace.sequence[t] != trace.sequence[t - 1];
    const bool full = !prefill || (shape.chunk > 0 && filled == shape.chunk);
    if (t > 0 && (other || full)) {
      ++step;
      filled = 0;
    }
    ++filled;
    trace.step[t] = step;
    trace.kind[t] = shape.kind;
  }
}

}  // namespace hotset::lab
