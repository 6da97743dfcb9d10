// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/column_csv.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lab/files/input_files.hpp"
#include "lab/traces/row_places.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
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

/// "e07" is "e", 7 and a width of 2. No number: a name that ends in no digit, or in more than 6.
struct numbered_name {
  std::string_view stem;
  std::size_t width = 0;
  std::optional<std::size_t> number;

  explicit numbered_name(std::string_view name) : stem(name) {
    const auto end = name.find_last_not_of("0123456789");
    const auto digits = end == std::string_view::npos ? name : name.substr(end + 1);
    if (digits.empty() || digits.size() > 6) return;
    stem.remove_suffix(digits.size());
    width = digits.size();
    number = parse_number<std::size_t>(digits);
  }
  [[nodiscard]] std::string with(std::size_t other) const {
    const auto digits = std::to_string(other);
    return std::string(stem).append(width - std::min(width, digits.size()), '0') + digits;
  }
};

/// Names of columns and their positions.
class column_names {
 public:
  explicit column_names(std::vector<std::string_view> names) : names_(std::move(names)) {
    for (std::size_t i = 0; i < names_.size(); ++i) positions_.emplace(names_[i], i);
  }

  [[nodiscard]] const std::vector<std::string_view>& all() const noexcept { return names_; }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const {
    const auto at = positions_.find(name);
    return at == positions_.end() ? std::nullopt : std::optional(at->second);
  }

  /// Positions of "e0", "e1", ... as far as they go on.
  [[nodiscard]] std::vector<std::size_t> run_from(std::string_view first) const {
    std::vector<std::size_t> out;
    const numbered_name name(first);
    if (!name.number) return out;
    for (auto n = *name.number;; ++n) {
      const auto at = find(name.with(n));
      if (!at) return out;
      out.push_back(*at);
    }
  }

  /// The columns that a field names: "ids" or "e0..e5". A field with its usual name may stand in the singular. Empty if
  /// one is missing.
  [[nodiscard]] std::vector<std::size_t> of(std::string_view field, std::string_view usual) const {
    if (const auto at = find(field)) return {*at};
    if (field == usual)
      if (const auto at = find(usual.substr(0, usual.size() - 1))) return {*at};
    const auto dots = field.find("..");
    if (dots == std::string_view::npos) return {};
    const numbered_name first(field.substr(0, dots));
    const numbered_name last(field.substr(dots + 2));
    const bool rises = first.number && last.number && *first.number <= *last.number;
    if (!rises || first.stem != last.stem) return {};
    auto run = run_from(field.substr(0, dots));
    const auto wanted = *last.number - *first.number + 1;
    if (run.size() < wanted) return {};
    run.resize(wanted);
    return run;
  }

  /// The longest run as "e0..e5", else the first name that has one of the words, else "COLUMN".
  [[nodiscard]] std::string likely_experts() const {
    std::size_t longest = 1;
    std::string out;
    for (const auto name : names_) {
      const numbered_name numbered(name);
      if (!numbered.number || (*numbered.number > 0 && find(numbered.with(*numbered.number - 1))))
        continue;
      const auto run = run_from(name);
      if (run.size() <= longest) continue;
      longest = run.size();
      out = std::string(name) + ".." + std::string(names_[run.back()]);
    }
    return out.empty() ? first_with({"expert", "topk", "top_k", "ids"}) : out;
  }
  [[nodiscard]] std::string first_with(std::initializer_list<std::string_view> words) const {
    for (const auto word : words)
      for (const auto name : names_)
        if (name.find(word) != std::string_view::npos) return std::string(name);
    return "COLUMN";
  }

 private:
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, std::size_t> positions_;
};

auto place_of(const trace_record& r) { return std::tie(r.sequence, r.step, r.token, r.layer); }

class column_reader {
 public:
  column_reader(std::string_view text, const std::string& file, field_map fields,
                std::int32_t experts, reading_notes* notes)
      : lines_(file, text), fields_(std::move(fields)) {
    facts_.file = file;
    facts_.source = "CSV";
    facts_.experts = experts;
    facts_.notes = notes;
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
    places_.join_layer_by_layer(records_, facts_.notes);
    sequences_.settle(records_);
    facts_.places_inferred = places_.inferred();
    if (!rank_) number_ranks();
    std::erase_if(records_, [](const trace_record& r) { return r.expert == no_expert; });
    return trace_of(std::move(records_), facts_);
  }

 private:
  using place = std::optional<std::size_t>;

  void header(std::string_view line) {
    divider_ = divider_of(line);
    const column_names names(split(line));
    columns_ = names.all().size();
    const auto layer = names.find(fields_.layer);
    experts_ = names.of(fields_.experts, "experts");
    weights_ = names.of(fields_.weights, "weights");
    if (!layer || experts_.empty())
      lines_.refuse("the header has no '" + (layer ? fields_.experts : fields_.layer) + "'",
                    "columns '" + fields_.layer + "' and '" + fields_.experts + "'; " +
                        suggested_fields(line));
    refuse_one_of_many(names, fields_.experts);
    refuse_one_of_many(names, fields_.weights);
    layer_ = *layer;
    lists_ = experts_.size() > 1;
    step_ = names.find(fields_.step);
    token_ = names.find(fields_.token);
    phase_ = names.find(fields_.phase);
    sequence_ = names.find(fields_.sequence);
    rank_ = names.find(fields_.rank);
    facts_.weights = !weights_.empty();
  }

  /// "e0" alone would read top-1 where "e1" stands beside it.
  void refuse_one_of_many(const column_names& names, const std::string& field) const {
    const auto run = names.run_from(field);
    if (run.size() < 2) return;
    const std::string last(names.all()[run.back()]);
    lines_.refuse("the header has '" + field + "' to '" + last + "', and the field names one",
                  field + ".." + last + ", or " + field + ".." + field + " for that one alone");
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
    if (const auto named = phase_named(cell)) return *named;
    if (cell.size() != 1 || cell[0] < '0' || cell[0] > '2')
      lines_.refuse(fields_.phase + " is '" + printable(cell) + "'", accepted_phases);
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
    r.sequence = sequences_.add(sequence_ ? cells[*sequence_] : "0");
    if (phase_) r.kind = phase(cells[*phase_]);
    if (rank_)
      r.rank = static_cast<std::int32_t>(number(cells[*rank_], fields_.rank, 0, most_ranks - 1));
    r.step = count(cells, step_, fields_.step);
    r.token = count(cells, token_, fields_.token);
    auto& here = places_.add(
        r, {step_.has_value(), token_.has_value(), rank_.has_value(), phase_.has_value()});
    here.rank = add_experts(r, items_in(cells, experts_), items_in(cells, weights_));
  }

  /// An empty column is an absent expert if experts have several columns.
  static std::vector<std::string_view> items_in(const std::vector<std::string_view>& cells,
                                                const std::vector<std::size_t>& columns) {
    if (columns.size() == 1) return items_of(cells[columns.front()]);
    std::vector<std::string_view> out;
    out.reserve(columns.size());
    for (const auto column : columns)
      out.push_back(cells[column].empty() ? std::string_view("-1") : cells[column]);
    return out;
  }

  /// Returns the rank of the last one.
  std::int32_t add_experts(trace_record r, const std::vector<std::string_view>& ids,
                           const std::vector<std::string_view>& weights) {
    if (ids.empty()) lines_.refuse(fields_.experts + " is empty", "ids of experts, or -1");
    if (facts_.weights && weights.size() != ids.size())
      lines_.refuse(std::to_string(weights.size()) + " weights for " + std::to_string(ids.size()) +
                        " experts",
                    "one for each");
    if (ids.size() > static_cast<std::size_t>(most_ranks - r.rank))
      lines_.refuse("a token has too many experts", "up to " + std::to_string(most_ranks));
    lists_ = lists_ || ids.size() > 1;
    const auto most = (facts_.experts > 0 ? facts_.experts : most_experts) - 1;
    for (std::size_t i = 0; i < ids.size(); ++i, ++r.rank) {
      r.expert = static_cast<expert_id>(number(ids[i], fields_.experts, -1, most));
      if (facts_.weights) {
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
  std::vector<std::size_t> experts_;
  std::vector<std::size_t> weights_;  ///< empty: none
  place step_;
  place token_;
  place phase_;
  place sequence_;
  place rank_;
  bool lists_ = false;
  row_places places_;
  sequence_names sequences_;
  std::vector<trace_record> records_;
};

}  // namespace

bool looks_like_column_csv(std::string_view header, const field_map& fields) {
  auto split = fields_of(header, divider_of(header));
  if (!split) return false;
  const column_names names(*std::move(split));
  return names.find(fields.layer) && !names.of(fields.experts, "experts").empty();
}

bool have_same_columns(std::string_view header, std::string_view row) {
  const auto divider = divider_of(header);
  const auto names = fields_of(header, divider);
  const auto cells = fields_of(row, divider);
  return names && cells && names->size() > 1 && names->size() == cells->size();
}

std::string suggested_fields(std::string_view header) {
  const column_names names(
      fields_of(header, divider_of(header)).value_or(std::vector<std::string_view>{}));
  const auto layer = names.find("layer") ? "layer" : names.first_with({"layer", "block"});
  return "--format csv --field layer=" + layer + ",experts=" + names.likely_experts();
}

routing_trace parse_column_csv(std::string_view text, const std::string& file,
                               const field_map& fields, std::int32_t experts,
                               reading_notes* notes) {
  return column_reader(text, file, fields, experts, notes).read();
}

routing_trace read_column_csv(const std::filesystem::path& path, const field_map& fields,
                              std::int32_t experts, reading_notes* notes) {
  const auto input = read_input(path);
  if (input.size() != 1)
    refuse_input(path.string(), "", std::to_string(input.size()) + " files", "one CSV");
  return parse_column_csv(input.front().text, path.string(), fields, experts, notes);
}

}  // namespace hotset::lab
