// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/files/input_error.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

/// Finds repeated ids of a row in one pass.
class repeated_ids {
 public:
  explicit repeated_ids(std::int32_t experts) : row_of_(static_cast<std::size_t>(experts)) {}

  [[nodiscard]] bool in(id_view<expert_id> row) {
    ++row_;
    for (const auto id : row)
      if (id != no_expert && std::exchange(row_of_[index_of(id)], row_) == row_) return true;
    return false;
  }

 private:
  std::uint64_t row_ = 0;
  std::vector<std::uint64_t> row_of_;  ///< [E] the last row that has the expert
};

void empty_row(routing_trace& trace, std::size_t at) {
  const auto wide = static_cast<std::size_t>(trace.top_k);
  std::fill_n(trace.ids.begin() + static_cast<std::ptrdiff_t>(at), wide, no_expert);
  if (!trace.weights.empty())
    std::fill_n(trace.weights.begin() + static_cast<std::ptrdiff_t>(at), wide, 0.0F);
}

std::size_t empty_filled_rows(routing_trace& trace) {
  std::size_t found = 0;
  repeated_ids repeated(trace.experts);
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(trace.layers)) {
      if (!repeated.in(trace.ids_of(t, l))) continue;
      empty_row(trace, trace.index(t, l));
      ++found;
    }
  return found;
}

/// [L] whether any row of the layer routes an expert.
std::vector<bool> routed_layers(const routing_trace& trace) {
  std::vector<bool> routed(static_cast<std::size_t>(trace.layers));
  const auto wide = static_cast<std::size_t>(trace.top_k);
  for (std::size_t i = 0; i < trace.ids.size(); ++i)
    if (trace.ids[i] != no_expert) routed[i / wide % routed.size()] = true;
  return routed;
}

/// Calls change(values) for each array that has a row for each token in each layer and is not empty.
template <class Change>
void change_rows(routing_trace& trace, Change change) {
  const auto unless_empty = [&](auto& values) {
    if (!values.empty()) change(values);
  };
  unless_empty(trace.ids);
  unless_empty(trace.weights);
  unless_empty(trace.logits);
  for (auto* const halves : {&trace.probabilities, &trace.hidden, &trace.predictions}) {
    std::vector<std::uint16_t> raw(halves->size());
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = halves->raw(i);
    unless_empty(raw);
    *halves = half_array(std::move(raw));
  }
}

/// values: [parts, any width]. Leaves out the parts p for which kept[p modulo its size] is false.
template <class Value>
void keep_parts(std::vector<Value>& values, std::size_t parts, const std::vector<bool>& kept) {
  const auto width = static_cast<std::ptrdiff_t>(values.size() / parts);
  auto from = values.begin();
  auto to = values.begin();
  for (std::size_t part = 0; part < parts; ++part, from += width)
    if (kept[part % kept.size()]) to = std::copy(from, from + width, to);
  values.erase(to, values.end());
}

std::vector<std::int32_t> numbers_of(const routing_trace& trace, const std::vector<bool>& layers,
                                     bool wanted) {
  const auto all = layer_numbers(trace);
  std::vector<std::int32_t> out;
  for (std::size_t l = 0; l < layers.size(); ++l)
    if (layers[l] == wanted) out.push_back(all[l]);
  return out;
}

void keep_layers(routing_trace& trace, const std::vector<bool>& kept) {
  keep_layer_numbers(trace, numbers_of(trace, kept, true));
  trace.predictions = {};
  trace.prediction_depth = 0;
  const auto rows = trace.tokens() * kept.size();
  change_rows(trace, [&](auto& values) { keep_parts(values, rows, kept); });
  if (trace.expert_bytes.size() > 1) keep_parts(trace.expert_bytes, kept.size(), kept);
  trace.layers = static_cast<std::int32_t>(std::ranges::count(kept, true));
}

std::string list_of(const std::vector<std::int32_t>& layers) {
  const auto shown = std::min<std::size_t>(layers.size(), 8);
  const auto more = layers.size() - shown;
  return fmt::format("layer{} {}{}", layers.size() == 1 ? "" : "s",
                     fmt::join(std::span(layers).first(shown), ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// rows[i] is the token of before that comes to place i.
void reorder(routing_trace& trace, const std::vector<std::size_t>& rows) {
  const auto reordered = [&, before = trace.tokens()](auto& values) {
    const auto width = static_cast<std::ptrdiff_t>(values.size() / before);
    std::remove_reference_t<decltype(values)> out;
    out.reserve(rows.size() * static_cast<std::size_t>(width));
    for (const auto row : rows) {
      const auto from = values.begin() + static_cast<std::ptrdiff_t>(row) * width;
      out.insert(out.end(), from, from + width);
    }
    values = std::move(out);
  };
  change_rows(trace, reordered);
  if (!trace.adapter.empty()) reordered(trace.adapter);
  if (!trace.token_ids.empty()) reordered(trace.token_ids);
  reordered(trace.sequence);
  reordered(trace.kind);
  reordered(trace.step);
}

/// The rows that are left of a run of one sequence's.
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

void empty_filled_rows(routing_trace& trace, const std::string& file, reading_notes* notes) {
  const auto rows = trace.tokens() * static_cast<std::size_t>(trace.layers);
  const auto found = empty_filled_rows(trace);
  const auto counted = std::to_string(found) + " of " + std::to_string(rows) +
                       " rows name an expert twice, which no router does";
  if (std::ranges::count(trace.ids, no_expert) == std::ssize(trace.ids))
    refuse_input(file, "", found > 0 ? counted : "routes no expert",
                 "rows of a token's experts in a layer, each expert once");
  if (found > 0) add_note(notes, counted + ": taken as not routed");
}

void leave_out_dense_layers(routing_trace& trace, reading_notes* notes) {
  const auto routed = routed_layers(trace);
  const auto dense = numbers_of(trace, routed, false);
  if (dense.empty() || dense.size() == routed.size()) return;
  keep_layers(trace, routed);
  add_note(notes, list_of(dense) + " without a routed row: left out as dense");
}

void keep_first(routing_trace& trace, std::size_t tokens) {
  if (tokens >= trace.tokens()) return;
  std::vector<std::size_t> rows(tokens);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  reorder(trace, rows);
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
