// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/recorded_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

namespace hotset::lab {
namespace {

auto place_of(const trace_record& r) { return std::tie(r.sequence, r.step, r.token, r.layer); }

/// Records of one token in one layer; all of them have the place of the first.
using row = std::span<trace_record>;

std::vector<row> rows_of(std::span<trace_record> records) {
  std::vector<row> rows;
  while (!records.empty()) {
    const auto end = std::ranges::find_if(
        records, [&](const trace_record& r) { return place_of(r) != place_of(records.front()); });
    rows.push_back(records.first(static_cast<std::size_t>(end - records.begin())));
    records = records.subspan(rows.back().size());
  }
  return rows;
}

/// The first rows, up to where the layer falls or the sequence ends.
std::span<const row> pass_at(std::span<const row> rows) {
  const auto end = std::ranges::adjacent_find(rows, [](const row& a, const row& b) {
    return b.front().sequence != a.front().sequence || b.front().layer < a.front().layer;
  });
  return end == rows.end() ? rows : rows.first(static_cast<std::size_t>(end - rows.begin()) + 1);
}

/// Returns the tokens of a pass that has the same number of rows, 2 or more, in each of 2 or more layers; else 0. A line
/// that lists several tokens has said which rows belong together.
std::size_t tokens_by_layer(std::span<const row> pass) {
  const auto layer = [&](std::size_t i) { return pass[i].front().layer; };
  const auto tokens = static_cast<std::size_t>(
      std::ranges::count_if(pass, [&](const row& r) { return r.front().layer == layer(0); }));
  if (tokens < 2 || tokens == pass.size() || pass.size() % tokens != 0) return 0;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const bool begins = i % tokens == 0;
    const bool rises = i > 0 && layer(i) > layer(i - 1);
    if (pass[i].front().token != 0 || (i > 0 && begins != rises)) return 0;
  }
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
  next_.expert = id;
  next_.weight = weight;
  records_.push_back(next_);
  skip();
}

void recorded_rows::skip() {
  if (next_.rank == most_ranks)
    lines_.refuse("a token has too many experts", "up to " + std::to_string(most_ranks));
  here_->rank = next_.rank++;
}

void recorded_rows::next_token() {
  here_->token = ++next_.token;
  next_.rank = 0;
}

routing_trace recorded_rows::finish(bool weights) && {
  facts_.weights = weights;
  facts_.places_inferred = !numbered_;
  if (!numbered_) join_layer_by_layer();
  settle_sequences();
  if (!ranked_) number_ranks();
  std::erase_if(records_, [](const trace_record& r) { return r.expert == no_expert; });
  return trace_of(std::move(records_), facts_);
}

void recorded_rows::join_layer_by_layer() {
  // In place: a stable sort would copy all records.
  std::ranges::sort(records_, {}, [](const trace_record& r) {
    return std::tie(r.sequence, r.line, r.token, r.rank);
  });
  const auto rows = rows_of(records_);
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
      refuse_input(facts_.file, "line " + std::to_string(records_[i].line),
                   "a token has too many experts", "up to " + std::to_string(most_ranks));
  }
}

}  // namespace hotset::lab
