// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "lab/traces/importers.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

/// Rows of one layer in one pass.
struct run {
  std::uint64_t pass = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

class layer_expert_reader {
 public:
  layer_expert_reader(std::string_view text, const std::string& file,
                      const open_trace_options& options)
      : lines_(file, text), facts_(file, "layer,expert CSV", options), top_k_(options.top_k) {}

  routing_trace read() {
    std::string_view line;
    while (lines_.next_row(line)) {
      const auto& cells = lines_.fields(line);
      if (records_.empty() && !parse_number<std::int32_t>(cells[0]))
        header(line);
      else
        row(cells);
    }
    if (records_.empty()) refuse_input(facts_.file, "", "has no rows", "layer,expert rows");
    divide();
    refuse_a_broken_end(records_, facts_.top_k, lines_);
    facts_.weights = columns_ == 3;
    return trace_of(std::move(records_), facts_);
  }

 private:
  void header(std::string_view line) {
    if (columns_ != 0 || (line != "layer,expert" && line != "layer,expert,weight"))
      lines_.refuse("'" + std::string(line) + "'", "a header layer,expert[,weight], or numbers");
    columns_ = line == "layer,expert" ? 2 : 3;
  }

  void row(const std::vector<std::string_view>& cells) {
    if (columns_ == 0 && (cells.size() == 2 || cells.size() == 3)) columns_ = cells.size();
    if (cells.size() != columns_)
      lines_.refuse(std::to_string(cells.size()) + " columns",
                    columns_ == 3 ? "layer,expert,weight" : "layer,expert");
    trace_record r;
    r.layer = lines_.integer(cells[0], "layer", 0, most_layers - 1);
    r.expert = expert_id{lines_.integer(cells[1], "expert", 0, facts_.most_expert())};
    if (columns_ == 3) r.weight = lines_.weight(cells[2]);
    r.line = lines_.number();
    extend_runs(r);
    records_.push_back(r);
  }

  void extend_runs(const trace_record& r) {
    const bool first = records_.empty();
    const bool falls = !first && r.layer < records_.back().layer;
    if (first || r.layer != records_.back().layer)
      runs_.push_back({first ? 0 : runs_.back().pass + (falls ? 1U : 0U), records_.size(), 0});
    ++runs_.back().count;
  }

  /// Gives every row its token and rank.
  void divide() {
    auto top_k = static_cast<std::size_t>(std::max(top_k_, 0));
    if (top_k == 0) {
      top_k = std::numeric_limits<std::size_t>::max();
      for (const auto& r : runs_) top_k = std::min(top_k, r.count);
    }
    if (top_k > static_cast<std::size_t>(most_ranks))
      refuse_input(facts_.file, "", "every layer has " + std::to_string(top_k) + " rows or more",
                   "a top_k of 1.." + std::to_string(most_ranks) + "; name it as an option");
    facts_.top_k = static_cast<std::int32_t>(top_k);
    for (std::size_t begin = 0; begin < runs_.size();) {
      std::size_t end = begin;
      std::size_t tokens = 0;
      for (; end < runs_.size() && runs_[end].pass == runs_[begin].pass; ++end)
        tokens = std::max(tokens, tokens_of(runs_[end], top_k));
      for (; begin < end; ++begin) place(runs_[begin], tokens, top_k);
    }
  }

  [[nodiscard]] std::size_t tokens_of(const run& r, std::size_t top_k) const {
    if (r.count % top_k == 0) return r.count / top_k;
    const auto& last = records_[r.first + r.count - 1];
    refuse_input(facts_.file, "line " + std::to_string(last.line),
                 "layer " + std::to_string(last.layer) + " ends after " + std::to_string(r.count) +
                     " rows (is the file cut short?)",
                 "a multiple of top_k = " + std::to_string(top_k));
  }

  void place(const run& r, std::size_t tokens, std::size_t top_k) {
    const auto missing = tokens - r.count / top_k;
    for (std::size_t i = 0; i < r.count; ++i) {
      auto& record = records_[r.first + i];
      record.step = r.pass;
      record.token = missing + i / top_k;
      record.rank = static_cast<std::int32_t>(i % top_k);
      record.kind = tokens > 1 ? request_class::prefill : request_class::decode;
    }
  }

  line_scanner lines_;
  record_facts facts_;
  std::int32_t top_k_;
  std::size_t columns_ = 0;
  std::vector<trace_record> records_;
  std::vector<run> runs_;
};

}  // namespace

routing_trace parse_layer_expert_csv(std::string_view text, const std::string& file,
                                     const open_trace_options& options) {
  return layer_expert_reader(text, file, options).read();
}

}  // namespace hotset::lab
