// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "lab/traces/importers.hpp"
#include "lab/traces/recorded_rows.hpp"

namespace hotset::lab {
namespace {

struct layer_row {
  expert_id expert{};
  float weight = 0;
};
/// Rows of one layer in one pass.
struct run {
  std::int32_t layer = 0;
  std::uint64_t pass = 0;
  std::uint64_t last_line = 0;
  std::vector<layer_row> rows{};
};

class layer_expert_reader {
 public:
  layer_expert_reader(std::string_view text, const std::string& file,
                      const open_trace_options& options)
      : lines_(file, text),
        top_k_(static_cast<std::size_t>(options.top_k)),
        rows_({file, "layer,expert CSV", options}, lines_) {}

  routing_trace read() {
    std::string_view line;
    while (lines_.next_row(line)) {
      const auto& cells = lines_.fields(line);
      if (runs_.empty() && !parse_number<std::int32_t>(cells[0]))
        header(line);
      else
        row(cells);
    }
    if (runs_.empty()) refuse_input(lines_.file(), "", "has no rows", "layer,expert rows");
    divide();
    rows_.refuse_a_broken_end();
    return std::move(rows_).finish(columns_ == 3);
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
    const auto layer = lines_.integer(cells[0], "layer", 0, most_layers - 1);
    const expert_id expert{lines_.integer(cells[1], "expert", 0, rows_.most_expert())};
    if (runs_.empty())
      runs_.push_back({.layer = layer});
    else if (layer != runs_.back().layer)
      runs_.push_back({layer, runs_.back().pass + (layer < runs_.back().layer ? 1U : 0U)});
    runs_.back().rows.push_back({expert, columns_ == 3 ? lines_.weight(cells[2]) : 0});
    runs_.back().last_line = lines_.number();
  }

  /// Gives every row its token and rank.
  void divide() {
    const auto count = [](const run& r) { return r.rows.size(); };
    if (top_k_ == 0) top_k_ = std::ranges::min(runs_, {}, count).rows.size();
    if (top_k_ > static_cast<std::size_t>(most_ranks))
      refuse_input(lines_.file(), "", "every layer has " + std::to_string(top_k_) + " rows or more",
                   "a top_k of 1.." + std::to_string(most_ranks) + "; name it as an option");
    rows_.facts().top_k = static_cast<std::int32_t>(top_k_);
    for (auto begin = runs_.begin(); begin != runs_.end();) {
      const auto end =
          std::find_if(begin, runs_.end(), [&](const run& r) { return r.pass != begin->pass; });
      std::for_each(begin, end, [&](const run& r) { check(r); });
      const auto tokens =
          std::max_element(begin, end,
                           [&](const run& a, const run& b) { return count(a) < count(b); })
              ->rows.size() /
          top_k_;
      for (; begin != end; ++begin) place(*begin, tokens);
    }
  }

  void check(const run& r) const {
    if (r.rows.size() % top_k_ != 0)
      refuse_input(lines_.file(), "line " + std::to_string(r.last_line),
                   "layer " + std::to_string(r.layer) + " ends after " +
                       std::to_string(r.rows.size()) + " rows (is the file cut short?)",
                   "a multiple of top_k = " + std::to_string(top_k_));
  }

  /// A layer that routed fewer tokens than its pass routed the last ones.
  void place(const run& r, std::size_t tokens) {
    auto token = tokens - r.rows.size() / top_k_;
    for (std::size_t i = 0; i < r.rows.size(); ++i) {
      if (i % top_k_ == 0)
        rows_.begin({.layer = r.layer,
                     .step = r.pass,
                     .token = token++,
                     .rank = 0,
                     .phase = tokens > 1 ? request_class::prefill : request_class::decode});
      rows_.add(r.rows[i].expert, r.rows[i].weight);
    }
  }

  line_scanner lines_;
  std::size_t top_k_;
  std::size_t columns_ = 0;
  std::vector<run> runs_;
  recorded_rows rows_;
};

}  // namespace

routing_trace parse_layer_expert_csv(std::string_view text, const std::string& file,
                                     const open_trace_options& options) {
  return layer_expert_reader(text, file, options).read();
}

}  // namespace hotset::lab
