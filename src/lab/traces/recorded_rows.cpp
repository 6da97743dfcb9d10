// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/recorded_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>

#include <fmt/format.h>

#include "hotset/core/ids.hpp"
#include "lab/traces/trace_rows.hpp"

namespace hotset::lab {
namespace {

auto place_of(const trace_record& r) { return std::tie(r.sequence, r.step, r.token, r.layer); }
auto token_of(const trace_record& r) { return std::tie(r.sequence, r.step, r.token); }

std::string line_of(const trace_record& r) { return fmt::format("line {}", r.line); }

std::vector<std::int32_t> layers_of(const std::vector<trace_record>& records) {
  std::vector<std::int32_t> layers;
  for (const auto& r : records)
    if (layers.empty() || layers.back() != r.layer) layers.push_back(r.layer);
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

void note_missing_layers(const routing_trace& trace, reading_notes* notes) {
  std::size_t lacking = 0;
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    lacking += std::ranges::any_of(each<layer_id>(trace.layers), [&](layer_id layer) {
      return std::ranges::count(trace.ids_of(t, layer), no_expert) == trace.top_k;
    });
  if (2 * lacking > trace.tokens())
    add_note(notes, fmt::format("{} of {} tokens have not all layers: fields token and step say "
                                "which rows are one token's",
                                lacking, trace.tokens()));
}

/// Records of one token in one layer, all at the place of the first one.
using record_row = std::span<trace_record>;

/// Splits records wherever of(record) changes.
template <class Of>
std::vector<record_row> split(std::span<trace_record> records, Of of) {
  std::vector<record_row> rows;
  while (!records.empty()) {
    const auto end = std::ranges::find_if(
        records, [&](const trace_record& r) { return of(r) != of(records.front()); });
    rows.push_back(records.first(static_cast<std::size_t>(end - records.begin())));
    records = records.subspan(rows.back().size());
  }
  return rows;
}

/// The first rows, until the layer falls or the sequence ends.
std::span<const record_row> pass_at(std::span<const record_row> rows) {
  const auto end = std::ranges::adjacent_find(rows, [](const record_row& a, const record_row& b) {
    return b.front().sequence != a.front().sequence || b.front().layer < a.front().layer;
  });
  return end == rows.end() ? rows : rows.first(static_cast<std::size_t>(end - rows.begin()) + 1);
}

/// Tokens of a pass with the same number of rows, at least 2, in each of at least 2 layers; else 0.
std::size_t tokens_by_layer(std::span<const record_row> pass) {
  const auto layer = [&](std::size_t i) { return pass[i].front().layer; };
  const auto tokens = static_cast<std::size_t>(std::ranges::count_if(
      pass, [&](const record_row& r) { return r.front().layer == layer(0); }));
  if (tokens < 2 || tokens == pass.size() || pass.size() % tokens != 0) return 0;
  for (std::size_t i = 1; i < pass.size(); ++i)
    if ((i % tokens == 0) != (layer(i) > layer(i - 1))) return 0;
  return tokens;
}

}  // namespace

void recorded_rows::begin(const row_place& place) {
  const auto named = sequences_.try_emplace(std::string(place.sequence), sequences_.size()).first;
  const auto [found, first] = ends_.try_emplace(named->second);
  here_ = &found->second;
  next_ = {.sequence = named->second,
           .step = place.step.value_or(0),
           .token = place.token.value_or(0),
           .layer = place.layer,
           .rank = place.rank.value_or(0),
           .kind = place.phase.value_or(request_class::decode),
           .line = lines_.number()};
  const bool same_layer =
      !first && place.layer == here_->layer && (!place.step || *place.step == here_->step);
  const bool same_token = same_layer && place.rank && *place.rank > here_->rank;
  if (place.token) {
    if (!place.step) next_.step = *place.token;
  } else if (place.step) {
    next_.token = same_layer ? here_->token + (same_token ? 0U : 1U) : 0;
  } else if (!first) {
    next_.step = here_->step + (place.layer > here_->layer || same_token ? 0U : 1U);
  }
  numbered_ = numbered_ || place.step || place.token;
  phased_ = phased_ || place.phase;
  ranked_ = ranked_ || place.rank;
  *here_ = {next_.step, next_.token, next_.layer, next_.rank};
}

void recorded_rows::add(expert_id id, float weight) {
  if (next_.rank == most_ranks)
    lines_.refuse("a token has too many experts", "up to " + std::to_string(most_ranks));
  next_.expert = id;
  next_.weight = weight;
  records_.push_back(next_);
  here_->rank = next_.rank++;
}

void recorded_rows::divide(std::int32_t top_k) {
  const auto runs = split(records_, [](const trace_record& r) { return r.layer; });
  const auto size = [](const record_row& run) { return run.size(); };
  const auto ranks =
      top_k > 0 ? static_cast<std::size_t>(top_k) : std::ranges::min(runs, {}, size).size();
  if (ranks > std::size_t{most_ranks})
    refuse_input(facts_.file, "", fmt::format("every layer has {} rows or more", ranks),
                 fmt::format("a top_k of 1..{}; name it as an option", most_ranks));
  facts_.top_k = static_cast<std::int32_t>(ranks);
  numbered_ = ranked_ = true;
  std::uint64_t step = 0;
  for (auto rest = std::span(runs); !rest.empty(); ++step) {
    const auto pass = pass_at(rest);
    rest = rest.subspan(pass.size());
    const auto tokens = std::ranges::max(pass, {}, size).size() / ranks;
    for (const auto& run : pass) {
      if (run.size() % ranks != 0)
        refuse_input(facts_.file, line_of(run.back()),
                     fmt::format("layer {} ends after {} rows (is the file cut short?)",
                                 run.front().layer, run.size()),
                     fmt::format("a multiple of top_k = {}", ranks));
      for (std::size_t i = 0; i < run.size(); ++i) {
        run[i].step = step;
        run[i].token = tokens - run.size() / ranks + i / ranks;
        run[i].rank = static_cast<std::int32_t>(i % ranks);
        run[i].kind = tokens > 1 ? request_class::prefill : request_class::decode;
      }
    }
  }
}

void recorded_rows::refuse_a_broken_end() const {
  if (records_.empty()) return;
  const auto layer = std::ranges::max(records_, {}, &trace_record::layer).layer;
  const auto rank =
      std::max(facts_.top_k - 1, std::ranges::max(records_, {}, &trace_record::rank).rank);
  const auto& last = records_.back();
  if (last.layer != layer || last.rank != rank)
    lines_.refuse(
        fmt::format("the file ends inside a token, at layer {}, slot {}", last.layer, last.rank),
        fmt::format("a last row of layer {}, slot {}", layer, rank));
}

routing_trace recorded_rows::finish(bool weights) && {
  if (!numbered_) join_layer_by_layer();
  settle_sequences();
  if (!ranked_) number_ranks();
  std::erase_if(records_, [](const trace_record& r) { return r.expert == no_expert; });
  if (records_.empty()) refuse_input(facts_.file, "", "routes no expert", "1 or more");
  const auto layers = layers_of(records_);
  sort_and_check();
  for (const auto& one : split(records_, place_of)) {
    std::vector<expert_id> ids;
    for (const auto& r : one) ids.push_back(r.expert);
    if (names_twice(ids))
      for (auto& r : one) r.expert = expert_id{};  // numbers of filler count no experts
  }
  routing_trace trace;
  trace.name = trace_name(facts_.file);
  trace.model = facts_.model;
  trace.source = facts_.source;
  trace.layers = static_cast<std::int32_t>(layers.size());
  infer_shape(trace);
  for (const auto layer : layers)  // bytes are known for every layer, or for none
    if (const auto at = facts_.layer_bytes.find(layer); at != facts_.layer_bytes.end())
      trace.expert_bytes.push_back(at->second);
  if (trace.expert_bytes.size() != layers.size()) trace.expert_bytes.clear();
  keep_layer_numbers(trace, layers);
  fill(trace, layers, weights);
  if (!numbered_) note_missing_layers(trace, facts_.notes);
  if (const auto bad = trace.validate()) refuse_input(facts_.file, "", bad->message, "");
  return trace;
}

void recorded_rows::sort_and_check() {
  const auto rank_of = [](const trace_record& r) {
    return std::tuple_cat(place_of(r), std::tie(r.rank));
  };
  std::ranges::sort(records_, {}, [&](const trace_record& r) {
    return std::tuple_cat(rank_of(r), std::tie(r.line));
  });
  const auto twice = std::ranges::adjacent_find(records_, {}, rank_of);
  if (twice != records_.end())
    refuse_input(facts_.file, line_of(*(twice + 1)),
                 fmt::format("layer {}, rank {} of this token was given in line {}", twice->layer,
                             twice->rank, twice->line),
                 "each rank of a token once");
}

void recorded_rows::infer_shape(routing_trace& trace) const {
  std::int32_t experts = 0;
  std::int32_t ranks = 0;
  const auto check = [&](const trace_record& r, std::string_view what, std::int32_t value,
                         std::int32_t limit) {
    if (limit > 0 && value >= limit)
      refuse_input(facts_.file, line_of(r), fmt::format("{} {}", what, value),
                   fmt::format("0..{}", limit - 1));
  };
  for (const auto& r : records_) {
    check(r, "expert", number(r.expert), facts_.experts);
    check(r, "rank", r.rank, facts_.top_k);
    experts = std::max(experts, number(r.expert) + 1);
    ranks = std::max(ranks, r.rank + 1);
  }
  trace.top_k = facts_.top_k > 0 ? facts_.top_k : ranks;
  trace.experts = facts_.experts > 0 ? facts_.experts : std::max(experts, trace.top_k);
  if (facts_.experts == 0) note_inferred_experts(facts_.notes, trace.experts);
}

void recorded_rows::fill(routing_trace& trace, const std::vector<std::int32_t>& layers,
                         bool weights) const {
  std::size_t tokens = 1;
  for (std::size_t i = 1; i < records_.size(); ++i)
    tokens += token_of(records_[i]) != token_of(records_[i - 1]) ? 1U : 0U;
  const auto cells =
      detail::product({tokens, layers.size(), static_cast<std::size_t>(trace.top_k)});
  // Requires a sixteenth of the cells to be filled, so that a few distant numbers cannot exhaust memory.
  constexpr std::size_t free_cells = std::size_t{2} << 20U;
  if (!cells || *cells > free_cells + 16 * records_.size())
    refuse_input(facts_.file, "",
                 fmt::format("{} tokens x {} layers x top-{} for {} routed experts", tokens,
                             layers.size(), trace.top_k, records_.size()),
                 "a trace in which most tokens visit most layers");
  trace.ids.resize(*cells, no_expert);
  if (weights) trace.weights.resize(*cells);
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const auto& r = records_[i];
    if (i == 0 || token_of(records_[i - 1]) != token_of(r)) {
      const bool same_sequence = i > 0 && records_[i - 1].sequence == r.sequence;
      const bool same_step = same_sequence && records_[i - 1].step == r.step;
      trace.step.push_back(i == 0 ? 0 : trace.step.back() + (same_step ? 0U : 1U));
      trace.sequence.push_back(i == 0 ? 0 : trace.sequence.back() + (same_sequence ? 0U : 1U));
      trace.kind.push_back(r.kind);
    }
    const auto layer = std::ranges::lower_bound(layers, r.layer) - layers.begin();
    const auto at = trace.index(trace.tokens() - 1, static_cast<layer_id>(layer)) +
                    static_cast<std::size_t>(r.rank);
    trace.ids[at] = r.expert;
    if (weights) trace.weights[at] = r.weight;
  }
}

void recorded_rows::join_layer_by_layer() {
  // The order of the file: a step ends where the layer does not rise. A stable sort would copy all records.
  std::ranges::sort(records_, {}, [](const trace_record& r) {
    return std::tuple_cat(place_of(r), std::tie(r.line, r.rank));
  });
  const auto rows = split(records_, place_of);
  std::size_t steps = 0;
  for (auto rest = std::span(rows); !rest.empty();) {
    const auto pass = pass_at(rest);
    rest = rest.subspan(pass.size());
    const auto tokens = tokens_by_layer(pass);
    if (tokens == 0) continue;
    ++steps;
    const auto step = pass.front().front().step;
    for (std::size_t i = 0; i < pass.size(); ++i)
      for (auto& record : pass[i]) {
        record.step = step;
        record.token = i % tokens;
        if (!phased_) record.kind = request_class::prefill;
      }
  }
  if (steps > 0)
    add_note(facts_.notes, "rows of several tokens stand layer by layer: taken for " +
                               std::to_string(steps) + (steps == 1 ? " step" : " steps") +
                               " of a prompt; fields token and step say otherwise");
}

void recorded_rows::settle_sequences() {
  std::vector<std::uint64_t> values(sequences_.size());
  for (const auto& [name, number] : sequences_) {
    const auto value = parse_number<std::uint32_t>(name);
    if (!value) return;
    values[number] = *value;
  }
  for (auto& r : records_) r.sequence = values[r.sequence];
}

void recorded_rows::number_ranks() {
  std::ranges::stable_sort(records_, {}, place_of);
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const bool follows = i > 0 && place_of(records_[i]) == place_of(records_[i - 1]);
    records_[i].rank = follows ? records_[i - 1].rank + 1 : 0;
    if (records_[i].rank >= most_ranks)
      refuse_input(facts_.file, line_of(records_[i]), "a token has too many experts",
                   "up to " + std::to_string(most_ranks));
  }
}

}  // namespace hotset::lab
