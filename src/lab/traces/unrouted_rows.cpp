// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/unrouted_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "lab/files/input_error.hpp"
#include "lab/traces/open_trace.hpp"
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

/// values: [T, L, any width] or empty.
template <class Value>
void keep_layers(std::vector<Value>& values, std::size_t tokens, const std::vector<bool>& kept) {
  if (values.empty()) return;
  const auto width = static_cast<std::ptrdiff_t>(values.size() / (tokens * kept.size()));
  auto from = values.begin();
  auto to = values.begin();
  for (std::size_t t = 0; t < tokens; ++t)
    for (const bool keep : kept) {
      if (keep) to = std::copy(from, from + width, to);
      from += width;
    }
  values.erase(to, values.end());
}
void keep_layers(half_array& values, std::size_t tokens, const std::vector<bool>& kept) {
  if (values.empty()) return;
  std::vector<std::uint16_t> raw(values.size());
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = values.raw(i);
  keep_layers(raw, tokens, kept);
  values = half_array(std::move(raw));
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
  const auto tokens = trace.tokens();
  keep_layers(trace.ids, tokens, kept);
  keep_layers(trace.weights, tokens, kept);
  keep_layers(trace.logits, tokens, kept);
  keep_layers(trace.probabilities, tokens, kept);
  keep_layers(trace.hidden, tokens, kept);
  if (trace.expert_bytes.size() > 1) keep_layers(trace.expert_bytes, 1, kept);
  trace.predictions = {};
  trace.prediction_depth = 0;
  trace.layers = static_cast<std::int32_t>(std::ranges::count(kept, true));
}

std::string list_of(const std::vector<std::int32_t>& layers) {
  constexpr std::size_t most = 8;
  std::string out = layers.size() == 1 ? "layer " : "layers ";
  for (std::size_t i = 0; i < std::min(most, layers.size()); ++i)
    out.append(i == 0 ? "" : ", ").append(std::to_string(layers[i]));
  if (layers.size() > most) out += " and " + std::to_string(layers.size() - most) + " more";
  return out;
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

}  // namespace hotset::lab
