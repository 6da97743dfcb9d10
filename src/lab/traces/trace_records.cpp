// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_records.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/ids.hpp"
#include "lab/files/input_error.hpp"
#include "lab/traces/text_scan.hpp"

namespace hotset::lab {
namespace {

auto order_of(const trace_record& r) {
  return std::tie(r.sequence, r.step, r.token, r.layer, r.rank);
}
auto token_of(const trace_record& r) { return std::tie(r.sequence, r.step, r.token); }

std::string line_of(const trace_record& r) { return "line " + std::to_string(r.line); }

std::vector<std::int32_t> layers_of(const std::vector<trace_record>& records) {
  std::vector<std::int32_t> layers;
  for (const auto& r : records)
    if (layers.empty() || layers.back() != r.layer) layers.push_back(r.layer);
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

void sort_and_check(std::vector<trace_record>& records, const record_facts& facts) {
  std::sort(records.begin(), records.end(), [](const trace_record& a, const trace_record& b) {
    return std::tuple_cat(order_of(a), std::tie(a.line)) <
           std::tuple_cat(order_of(b), std::tie(b.line));
  });
  const auto twice =
      std::adjacent_find(records.begin(), records.end(),
                         [](const auto& a, const auto& b) { return order_of(a) == order_of(b); });
  if (twice != records.end())
    refuse_input(facts.file, line_of(*(twice + 1)),
                 "layer " + std::to_string(twice->layer) + ", rank " + std::to_string(twice->rank) +
                     " of this token was given in line " + std::to_string(twice->line),
                 "each rank of a token once");
}

void infer_shape(routing_trace& trace, const std::vector<trace_record>& records,
                 const record_facts& facts) {
  std::int32_t experts = 0;
  std::int32_t ranks = 0;
  for (const auto& r : records) {
    if (facts.experts > 0 && r.expert >= facts.experts)
      refuse_input(facts.file, line_of(r), "expert " + to_string(r.expert),
                   "0.." + std::to_string(facts.experts - 1));
    if (facts.top_k > 0 && r.rank >= facts.top_k)
      refuse_input(facts.file, line_of(r), "rank " + std::to_string(r.rank),
                   "0.." + std::to_string(facts.top_k - 1));
    experts = std::max(experts, number(r.expert) + 1);
    ranks = std::max(ranks, r.rank + 1);
  }
  trace.top_k = facts.top_k > 0 ? facts.top_k : ranks;
  trace.experts = facts.experts > 0 ? facts.experts : std::max(experts, trace.top_k);
  if (facts.experts == 0) note_inferred_experts(facts.notes, trace.experts);
}

/// Bytes are known for every layer, or for none.
std::vector<std::uint64_t> bytes_of(const std::vector<std::int32_t>& layers,
                                    const record_facts& facts) {
  std::vector<std::uint64_t> bytes;
  for (const auto layer : layers)
    if (const auto at = facts.layer_bytes.find(layer); at != facts.layer_bytes.end())
      bytes.push_back(at->second);
  if (bytes.size() != layers.size()) bytes.clear();
  return bytes;
}

void add_token(routing_trace& trace, const trace_record& r, const trace_record* before) {
  const bool same_sequence = before != nullptr && before->sequence == r.sequence;
  const bool same_step = same_sequence && before->step == r.step;
  const auto following = [](const std::vector<std::uint32_t>& values, bool same) {
    return values.empty() ? 0U : values.back() + (same ? 0U : 1U);
  };
  const auto step = following(trace.step, same_step);
  const auto sequence = following(trace.sequence, same_sequence);
  trace.step.push_back(step);
  trace.sequence.push_back(sequence);
  trace.kind.push_back(r.kind);
  const auto width = static_cast<std::size_t>(trace.layers) * static_cast<std::size_t>(trace.top_k);
  trace.ids.resize(trace.ids.size() + width, no_expert);
}

/// Pre: records are sorted.
std::size_t tokens_without_all_layers(const std::vector<trace_record>& records,
                                      std::size_t layers) {
  std::size_t lacking = 0;
  std::size_t has = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const bool same_token = i > 0 && token_of(records[i]) == token_of(records[i - 1]);
    if (!same_token) {
      lacking += i > 0 && has < layers ? 1U : 0U;
      has = 0;
    }
    has += same_token && records[i].layer == records[i - 1].layer ? 0U : 1U;
  }
  return lacking + (has < layers ? 1U : 0U);
}

void note_missing_layers(const std::vector<trace_record>& records, std::size_t tokens,
                         std::size_t layers, reading_notes* notes) {
  const auto lacking = tokens_without_all_layers(records, layers);
  if (2 * lacking <= tokens) return;
  add_note(notes, std::to_string(lacking) + " of " + std::to_string(tokens) +
                      " tokens have not all layers: fields token and step say which rows are one "
                      "token's");
}

}  // namespace

std::string trace_name(const std::string& file) {
  const auto name = std::filesystem::path(file).filename().string();
  return name.substr(0, name.find('.', 1));
}

routing_trace trace_of(std::vector<trace_record> records, const record_facts& facts) {
  if (records.empty()) refuse_input(facts.file, "", "routes no expert", "1 or more");
  const auto layers = layers_of(records);
  sort_and_check(records, facts);
  routing_trace trace;
  trace.name = trace_name(facts.file);
  trace.model = facts.model;
  trace.source = facts.source;
  trace.layers = static_cast<std::int32_t>(layers.size());
  infer_shape(trace, records, facts);
  trace.expert_bytes = bytes_of(layers, facts);
  keep_layer_numbers(trace, layers);

  std::size_t tokens = 1;
  for (std::size_t i = 1; i < records.size(); ++i)
    tokens += token_of(records[i]) != token_of(records[i - 1]) ? 1U : 0U;
  if (facts.places_inferred) note_missing_layers(records, tokens, layers.size(), facts.notes);
  const auto cells = detail::product(
      {tokens, layers.size(), static_cast<std::size_t>(trace.top_k), sizeof(expert_id)});
  // A few far-apart numbers must not ask for all the memory there is.
  constexpr std::size_t free_bytes = std::size_t{8} << 20U;
  constexpr std::size_t bytes_per_record = 64;  // a sixteenth of the cells is filled
  if (!cells || *cells > free_bytes + bytes_per_record * records.size())
    refuse_input(facts.file, "",
                 std::to_string(tokens) + " tokens x " + std::to_string(layers.size()) +
                     " layers x top-" + std::to_string(trace.top_k) + " for " +
                     std::to_string(records.size()) + " routed experts",
                 "a trace in which most tokens visit most layers");
  trace.ids.reserve(*cells / sizeof(expert_id));
  const trace_record* before = nullptr;
  for (const auto& r : records) {
    if (before == nullptr || token_of(*before) != token_of(r)) add_token(trace, r, before);
    const auto layer = std::lower_bound(layers.begin(), layers.end(), r.layer) - layers.begin();
    const auto at = trace.index(trace.tokens() - 1, static_cast<layer_id>(layer)) +
                    static_cast<std::size_t>(r.rank);
    trace.ids[at] = r.expert;
    if (facts.weights) {
      trace.weights.resize(trace.ids.size());
      trace.weights[at] = r.weight;
    }
    before = &r;
  }
  if (const auto bad = trace.validate()) refuse_input(facts.file, "", bad->message, "");
  return trace;
}

void refuse_a_broken_end(const std::vector<trace_record>& records, std::int32_t top_k,
                         const line_scanner& lines) {
  if (records.empty()) return;
  std::int32_t layer = 0;
  for (const auto& r : records) {
    layer = std::max(layer, r.layer);
    top_k = std::max(top_k, r.rank + 1);
  }
  const auto& last = records.back();
  if (last.layer != layer || last.rank + 1 != top_k)
    lines.refuse(
        fmt::format("the file ends inside a token, at layer {}, slot {}", last.layer, last.rank),
        fmt::format("a last row of layer {}, slot {}", layer, top_k - 1));
}

std::vector<std::int32_t> layer_numbers(const routing_trace& trace) {
  std::vector<std::int32_t> out;
  const auto text = trace.fact("layers").value_or("");
  field_scanner scan(text, ',');
  while (const auto field = scan.next())
    if (const auto layer = parse_number<std::int32_t>(*field)) out.push_back(*layer);
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

std::optional<request_class> parse_phase(std::string_view text) {
  if (text == "prompt") return request_class::prefill;
  if (text == "0" || text == "1" || text == "2") return static_cast<request_class>(text[0] - '0');
  for (const auto& [phase, known] : request_classes)
    if (text == known) return phase;
  return std::nullopt;
}

}  // namespace hotset::lab
