// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/formats/column_csv.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "hotset/core/request_classes.hpp"
#include "hotset/sim/io/input_files.hpp"
#include "sim/formats/text_scan.hpp"
#include "sim/formats/trace_records.hpp"

namespace hotset::inline v0::sim {
namespace {

char divider_of(std::string_view header) noexcept {
  for (const char divider : {',', ';', '\t'})
    if (header.find(divider) != std::string_view::npos) return divider;
  return ',';
}

/// Without the quotes around them; nothing where a quote has no end.
std::optional<std::vector<std::string_view>> fields_of(std::string_view line, char divider) {
  std::vector<std::string_view> out;
  while (true) {
    const auto quoted = line.find_first_not_of(' ');
    std::size_t from = 0;
    if (quoted != std::string_view::npos && line[quoted] == '"') {
      const auto end = line.find('"', quoted + 1);
      if (end == std::string_view::npos) return std::nullopt;
      out.push_back(trimmed(line.substr(quoted + 1, end - quoted - 1)));
      from = end + 1;
    }
    const auto end = line.find(divider, from);
    if (from == 0) out.push_back(trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return out;
    line.remove_prefix(end + 1);
  }
}

/// What stands between brackets, blanks and dividers.
std::vector<std::string_view> items_of(std::string_view cell) {
  constexpr std::string_view between = " []()|;,";
  std::vector<std::string_view> out;
  while (true) {
    const auto begin = cell.find_first_not_of(between);
    if (begin == std::string_view::npos) return out;
    const auto end = cell.find_first_of(between, begin);
    out.push_back(cell.substr(begin, end - begin));
    if (end == std::string_view::npos) return out;
    cell.remove_prefix(end);
  }
}

auto place_of(const trace_record& r) { return std::tie(r.sequence, r.step, r.token, r.layer); }

class column_reader {
 public:
  column_reader(std::string_view text, const std::string& file, field_map fields,
                std::int32_t experts)
      : lines_(file, text), fields_(std::move(fields)) {
    facts_.file = file;
    facts_.source = "CSV";
    facts_.experts = experts;
  }

  routing_trace read() {
    std::string_view line;
    bool headed = false;
    while (lines_.next(line)) {
      line = trimmed(line);
      if (line.empty() || line.front() == '#') continue;
      if (std::exchange(headed, true))
        row(line);
      else
        header(line);
    }
    if (!headed) refuse_input(facts_.file, "", "has no rows", "a header and rows");
    if (!lists_ && !token_ && !rank_ && !records_.empty())
      refuse_input(facts_.file, "", "has an expert a row, and nothing says which are one token's",
                   "a column '" + fields_.token + "' or '" + fields_.rank +
                       "', lists of experts, or the format layer-expert with a top_k");
    if (!rank_) number_ranks();
    std::erase_if(records_, [](const trace_record& r) { return r.expert == no_expert; });
    return trace_of(std::move(records_), facts_);
  }

 private:
  using place = std::optional<std::size_t>;

  void header(std::string_view line) {
    divider_ = divider_of(line);
    const auto names = split(line);
    columns_ = names.size();
    const auto find = [&](std::string_view name, std::string_view singular = {}) -> place {
      auto at = std::ranges::find(names, name);
      if (at == names.end() && !singular.empty() && name == std::string(singular) + "s")
        at = std::ranges::find(names, singular);
      if (at == names.end()) return std::nullopt;
      return static_cast<std::size_t>(at - names.begin());
    };
    const auto layer = find(fields_.layer);
    const auto experts = find(fields_.experts, "expert");
    if (!layer || !experts)
      lines_.refuse("the header has no '" + (layer ? fields_.experts : fields_.layer) + "'",
                    "columns '" + fields_.layer + "' and '" + fields_.experts +
                        "', or the names of such columns as fields");
    layer_ = *layer;
    experts_ = *experts;
    weights_ = find(fields_.weights, "weight");
    step_ = find(fields_.step);
    token_ = find(fields_.token);
    phase_ = find(fields_.phase);
    sequence_ = find(fields_.sequence);
    rank_ = find(fields_.rank);
    facts_.weights = weights_.has_value();
  }

  [[nodiscard]] std::vector<std::string_view> split(std::string_view line) const {
    auto out = fields_of(line, divider_);
    if (!out) lines_.refuse("a quote has no end", "fields in pairs of quotes, or in none");
    return *std::move(out);
  }

  std::int64_t number(std::string_view cell, std::string_view what, std::int64_t least,
                      std::int64_t most) const {
    const auto value = parse_number<std::int64_t>(cell);
    if (!value || *value < least || *value > most)
      lines_.refuse(std::string(what) + " is '" + printable(cell) + "'",
                    "an integer in " + std::to_string(least) + ".." + std::to_string(most));
    return *value;
  }
  std::uint64_t count(const std::vector<std::string_view>& cells, place at,
                      std::string_view what) const {
    if (!at) return 0;
    return static_cast<std::uint64_t>(number(cells[*at], what, 0, 0xffffffff));
  }
  request_class phase(std::string_view cell) const {
    for (const auto& [phase, name] : request_classes)
      if (cell == name) return phase;
    if (cell.size() != 1 || cell[0] < '0' || cell[0] > '2')
      lines_.refuse(fields_.phase + " is '" + printable(cell) + "'",
                    "decode, prefill or verify, or 0, 1, 2");
    return static_cast<request_class>(cell[0] - '0');
  }

  void row(std::string_view line) {
    const auto cells = split(line);
    if (cells.size() != columns_)
      lines_.refuse(std::to_string(cells.size()) + " columns",
                    std::to_string(columns_) + ", as the header has");
    trace_record r;
    r.line = lines_.number();
    r.layer = static_cast<std::int32_t>(number(cells[layer_], fields_.layer, 0, most_layers - 1));
    r.sequence = count(cells, sequence_, fields_.sequence);
    if (phase_) r.kind = phase(cells[*phase_]);
    if (rank_)
      r.rank = static_cast<std::int32_t>(number(cells[*rank_], fields_.rank, 0, most_ranks - 1));
    stand(r, cells);
    last_ = r;
    last_.rank =
        add_experts(r, items_of(cells[experts_]),
                    weights_ ? items_of(cells[*weights_]) : std::vector<std::string_view>());
    begun_ = true;
  }

  /// Which step and token it is of.
  void stand(trace_record& r, const std::vector<std::string_view>& cells) const {
    r.step = count(cells, step_, fields_.step);
    r.token = count(cells, token_, fields_.token);
    if (token_) {
      if (!step_) r.step = r.token;
      return;
    }
    const bool same_layer = begun_ && r.sequence == last_.sequence && r.layer == last_.layer &&
                            (!step_ || r.step == last_.step);
    const bool same_token = same_layer && rank_ && r.rank > last_.rank;
    if (!step_ && begun_)
      r.step = last_.step +
               (r.sequence == last_.sequence && (r.layer > last_.layer || same_token) ? 0U : 1U);
    if (step_ && same_layer) r.token = last_.token + (same_token ? 0U : 1U);
  }

  /// Returns the rank of the last one.
  std::int32_t add_experts(trace_record r, const std::vector<std::string_view>& ids,
                           const std::vector<std::string_view>& weights) {
    if (ids.empty()) lines_.refuse(fields_.experts + " is empty", "ids of experts, or -1");
    if (weights_ && weights.size() != ids.size())
      lines_.refuse(std::to_string(weights.size()) + " weights for " + std::to_string(ids.size()) +
                        " experts",
                    "one for each");
    if (ids.size() > static_cast<std::size_t>(most_ranks - r.rank))
      lines_.refuse("a token has too many experts", "up to " + std::to_string(most_ranks));
    lists_ = lists_ || ids.size() > 1;
    const auto most = (facts_.experts > 0 ? facts_.experts : most_experts) - 1;
    for (std::size_t i = 0; i < ids.size(); ++i, ++r.rank) {
      r.expert = static_cast<expert_id>(number(ids[i], fields_.experts, -1, most));
      if (weights_) {
        const auto weight = parse_weight(weights[i]);
        if (!weight) lines_.refuse("a weight is '" + printable(weights[i]) + "'", "finite numbers");
        r.weight = *weight;
      }
      records_.push_back(r);
    }
    return r.rank - 1;
  }

  /// In the order of the file among those of one token and layer.
  void number_ranks() {
    std::ranges::stable_sort(records_, {}, place_of);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const bool follows = i > 0 && place_of(records_[i]) == place_of(records_[i - 1]);
      records_[i].rank = follows ? records_[i - 1].rank + 1 : 0;
      if (records_[i].rank >= most_ranks)
        refuse_input(facts_.file, "line " + std::to_string(records_[i].line),
                     "a token has too many experts", "up to " + std::to_string(most_ranks));
    }
  }

  line_scanner lines_;
  field_map fields_;
  record_facts facts_;
  char divider_ = ',';
  std::size_t columns_ = 0;
  std::size_t layer_ = 0;
  std::size_t experts_ = 0;
  place weights_;
  place step_;
  place token_;
  place phase_;
  place sequence_;
  place rank_;
  bool lists_ = false;
  bool begun_ = false;
  trace_record last_;
  std::vector<trace_record> records_;
};

}  // namespace

bool looks_like_column_csv(std::string_view header) {
  const auto names = fields_of(header, divider_of(header));
  const auto has = [&](std::string_view name) {
    return std::ranges::find(*names, name) != names->end();
  };
  return names && has("layer") && (has("experts") || has("expert"));
}

routing_trace parse_column_csv(std::string_view text, const std::string& file,
                               const field_map& fields, std::int32_t experts) {
  return column_reader(text, file, fields, experts).read();
}

routing_trace read_column_csv(const std::filesystem::path& path, const field_map& fields,
                              std::int32_t experts) {
  const auto input = read_input(path);
  if (input.size() != 1)
    refuse_input(path.string(), "", std::to_string(input.size()) + " files", "one CSV");
  return parse_column_csv(input.front().text, path.string(), fields, experts);
}

}  // namespace hotset::inline v0::sim
