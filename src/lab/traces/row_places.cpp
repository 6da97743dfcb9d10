// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/row_places.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>

namespace hotset::lab {
namespace {

/// Records of one token in one layer. Pre: no record says its step or token.
struct row {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::uint64_t sequence = 0;
  std::uint64_t step = 0;
  std::uint64_t token = 0;
  std::int32_t layer = 0;
};

std::vector<row> rows_of(const std::vector<trace_record>& records) {
  const auto place = [](const auto& r) { return std::tie(r.sequence, r.step, r.token, r.layer); };
  std::vector<row> rows;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto& r = records[i];
    if (rows.empty() || place(rows.back()) != place(r))
      rows.push_back({i, i, r.sequence, r.step, r.token, r.layer});
    rows.back().end = i + 1;
  }
  return rows;
}

/// Rows from begin on, up to where the layer falls or the sequence ends.
std::span<const row> pass_at(std::span<const row> rows) {
  std::size_t end = 1;
  while (end < rows.size() && rows[end].sequence == rows[end - 1].sequence &&
         rows[end].layer >= rows[end - 1].layer)
    ++end;
  return rows.first(end);
}

/// Returns the tokens of a pass that has as many rows, 2 or more, in each of 2 or more layers; else 0. A line that lists several tokens
/// has said which rows belong together.
std::size_t tokens_by_layer(std::span<const row> pass) {
  const auto same_layer = [&](const row& r) { return r.layer == pass.front().layer; };
  const auto tokens = static_cast<std::size_t>(std::ranges::count_if(pass, same_layer));
  if (tokens < 2 || tokens == pass.size() || pass.size() % tokens != 0) return 0;
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const bool begins = i % tokens == 0;
    const bool rises = i > 0 && pass[i].layer > pass[i - 1].layer;
    if (pass[i].token != 0 || (i > 0 && begins != rises)) return 0;
  }
  return tokens;
}

}  // namespace

row_places::place& row_places::add(trace_record& r, const row_facts& facts) {
  const auto [found, first] = last_.try_emplace(r.sequence);
  auto& before = found->second;
  const bool same_layer =
      !first && r.layer == before.layer && (!facts.step || r.step == before.step);
  const bool same_token = same_layer && facts.rank && r.rank > before.rank;
  if (facts.token) {
    if (!facts.step) r.step = r.token;
  } else if (facts.step) {
    r.token = same_layer ? before.token + (same_token ? 0U : 1U) : 0;
  } else {
    const bool goes_on = r.layer > before.layer || same_token;
    r.step = first ? 0 : before.step + (goes_on ? 0U : 1U);
    r.token = 0;
  }
  numbered_ = numbered_ || facts.step || facts.token;
  phased_ = phased_ || facts.phase;
  before = {r.step, r.token, r.layer, r.rank};
  return before;
}

void row_places::join_layer_by_layer(std::vector<trace_record>& records,
                                     reading_notes* notes) const {
  if (numbered_) return;
  // In place: a stable sort would copy all records.
  std::ranges::sort(records, {}, [](const trace_record& r) {
    return std::tie(r.sequence, r.line, r.token, r.rank);
  });
  const auto rows = rows_of(records);
  std::size_t steps = 0;
  for (auto rest = std::span(rows); !rest.empty();) {
    const auto pass = pass_at(rest);
    rest = rest.subspan(pass.size());
    const auto tokens = tokens_by_layer(pass);
    if (tokens == 0) continue;
    ++steps;
    for (std::size_t i = 0; i < pass.size(); ++i)
      for (auto n = pass[i].begin; n < pass[i].end; ++n) {
        records[n].step = pass.front().step;
        records[n].token = i % tokens;
        if (!phased_) records[n].kind = request_class::prefill;
      }
  }
  if (steps > 0)
    add_note(notes, "rows of several tokens stand layer by layer: taken for " +
                        std::to_string(steps) + (steps == 1 ? " step" : " steps") +
                        " of a prompt; fields token and step say otherwise");
}

}  // namespace hotset::lab
