// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/files/text_scan.hpp"
#include "lab/traces/importers.hpp"
#include "lab/traces/recorded_rows.hpp"

namespace hotset::lab {
namespace {

/// Items of a cell, separated by brackets, spaces and dividers: those in brackets in "tensor([3, 17], ...)".
std::vector<std::string_view> items_of(std::string_view cell) {
  constexpr std::string_view between = " []()|;,";
  const auto open = cell.find('[');
  if (open != cell.npos) cell = cell.substr(open, cell.rfind(']') - open);
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

/// Splits "e07" into "e", 7 and a width of 2. No number if the name ends in no digit, or in more than 6.
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

/// Names and positions of columns.
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

  /// Positions of "e0", "e1", ... without a gap.
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

  /// Columns named by a field: "ids" or "e0..e5". A field with its default name may be singular. Empty if a column is
  /// missing.
  [[nodiscard]] std::vector<std::size_t> of(std::string_view field, std::string_view usual) const {
    if (const auto at = find(field)) return {*at};
    if (field == usual)
      if (const auto at = find(usual.substr(0, usual.size() - 1))) return {*at};
    std::vector<std::size_t> out;
    for (const auto& name : columns_of(field)) {
      const auto at = find(name);
      if (!at) return {};
      out.push_back(*at);
    }
    return out;
  }

  /// The longest run of experts, else of others, as "e0..e5"; else the first name with one of the words, else "NAME".
  [[nodiscard]] std::string likely_experts() const {
    std::pair<bool, std::size_t> best(false, 1);
    std::string out;
    for (const auto name : names_) {
      const numbered_name numbered(name);
      const bool begins =
          numbered.number && (*numbered.number == 0 || !find(numbered.with(*numbered.number - 1)));
      const auto run = begins ? run_from(name) : std::vector<std::size_t>();
      const std::pair found(has_any(lower_case(name), {"exp", "top", "id"}), run.size());
      if (run.size() < 2 || found <= best || has_any(lower_case(name), {"layer"})) continue;
      best = found;
      out = std::string(name) + ".." + std::string(names_[run.back()]);
    }
    return out.empty() ? first_with({"expert", "topk", "top_k", "ids"}) : out;
  }
  /// The first name with one of the words, in any case and with marks as "_"; no length.
  [[nodiscard]] std::string first_with(std::initializer_list<std::string_view> words) const {
    for (const auto word : words)
      for (const auto name : names_) {
        auto plain = "_" + lower_case(name);
        std::ranges::replace_if(
            plain, [](char c) { return c == ' ' || c == '.' || c == '-'; }, '_');
        if (has_any(plain, {word}) && !has_any(plain, {"_len"})) return std::string(name);
      }
    return "NAME";
  }
  /// Names that probably are these fields, as ",token=pos,sequence=req". Fields that the file has are left out.
  [[nodiscard]] std::string likely_fields() const {
    std::string out;
    for (const auto& [field, likely] :
         {std::pair("token", first_with({"token_i", "tokeni", "token_p", "_pos"})),
          {"sequence", first_with({"_req", "_seq", "_conv", "_session", "_rid"})}})
      if (!find(field) && likely != "NAME") out.append(",").append(field) += "=" + likely;
    return out;
  }

 private:
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, std::size_t> positions_;
};

class column_reader {
 public:
  column_reader(std::string_view text, const std::string& file, const open_trace_options& options,
                const char* source)
      : lines_(file, text),
        fields_(options.fields),
        notes_(options.notes),
        rows_({file, source, options}, lines_) {}

  routing_trace read() {
    std::string_view line;
    if (!lines_.next_row(line)) refuse_input(lines_.file(), "", "has no rows", "a header and rows");
    header(line);
    while (lines_.next_row(line)) row(lines_.fields(line, divider_));
    if (!lists_ && !token_ && !rank_ && !rows_.empty())
      refuse_input(lines_.file(), "", "has an expert a row, and nothing says which are one token's",
                   "a column '" + fields_.token + "' or '" + fields_.rank +
                       "', lists of experts, or the format layer-expert with a top_k");
    return std::move(rows_).finish(!weights_.empty());
  }

  /// Columns layer,expert[,weight], with or without a header.
  routing_trace read_layers_and_experts(std::int32_t top_k) {
    std::string_view line;
    while (lines_.next_row(line)) {
      const auto& fields = lines_.fields(line);
      if (columns_ == 0) {
        const bool named = line == "layer,expert" || line == "layer,expert,weight";
        if (!named && !parse_number<std::int32_t>(fields[0]))
          lines_.refuse("'" + std::string(line) + "'",
                        "a header layer,expert[,weight], or numbers");
        columns_ = fields.size() == 3 ? 3 : 2;
        experts_ = {1};
        if (columns_ == 3) weights_ = {2};
        if (named) continue;
      }
      row(fields);
    }
    if (rows_.empty()) refuse_input(lines_.file(), "", "has no rows", "layer,expert rows");
    rows_.divide(top_k);
    rows_.refuse_a_broken_end();
    return std::move(rows_).finish(!weights_.empty());
  }

 private:
  using place = std::optional<std::size_t>;
  using cells = std::vector<std::string_view>;

  void header(std::string_view line) {
    divider_ = divider_of(line);
    const column_names names(lines_.fields(line, divider_));
    columns_ = names.all().size();
    const auto layer = names.find(fields_.layer);
    note_unread_fields(notes_, fields_, line);
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
  }

  /// Refuses "e0" beside "e1": it would silently be read as top-1.
  void refuse_one_of_many(const column_names& names, const std::string& field) const {
    const auto run = names.run_from(field);
    if (run.size() < 2) return;
    const std::string last(names.all()[run.back()]);
    lines_.refuse("the header has '" + field + "' to '" + last + "', and the field names one",
                  field + ".." + last + ", or " + field + ".." + field + " for that one alone");
  }

  template <class T>
  std::optional<T> integer(const cells& row, place at, std::string_view what,
                           std::int64_t most) const {
    return at ? std::optional(lines_.integer<T>(row[*at], what, 0, most)) : std::nullopt;
  }
  request_class phase(std::string_view cell) const {
    const auto phase = parse_phase(cell);
    if (!phase) lines_.refuse(fields_.phase + " is '" + printable(cell) + "'", accepted_phases);
    return *phase;
  }

  void row(const cells& row) {
    if (row.size() != columns_)
      lines_.refuse(std::to_string(row.size()) + " columns",
                    std::to_string(columns_) + ", as the header has");
    row_place here;
    const auto named = only_number(row[layer_]);
    here.layer = named ? *named : lines_.integer(row[layer_], fields_.layer, 0, most_layers - 1);
    if (sequence_) here.sequence = row[*sequence_];
    if (phase_) here.phase = phase(row[*phase_]);
    here.rank = integer<std::int32_t>(row, rank_, fields_.rank, most_ranks - 1);
    here.step = integer<std::uint64_t>(row, step_, fields_.step, 0xffffffff);
    here.token = integer<std::uint64_t>(row, token_, fields_.token, 0xffffffff);
    rows_.begin(here);
    add_experts(items_in(row, experts_), items_in(row, weights_));
  }

  /// With several expert columns, an empty one or pandas's "nan" is an absent expert.
  static cells items_in(const cells& row, const std::vector<std::size_t>& columns) {
    if (columns.size() == 1) return items_of(row[columns.front()]);
    cells out;
    out.reserve(columns.size());
    for (const auto column : columns)
      out.push_back(row[column].empty() || lower_case(row[column]) == "nan" ? "-1" : row[column]);
    return out;
  }

  void add_experts(const cells& ids, const cells& weights) {
    if (ids.empty()) lines_.refuse(fields_.experts + " is empty", "ids of experts, or -1");
    if (!weights_.empty() && weights.size() != ids.size())
      lines_.refuse(std::to_string(weights.size()) + " weights for " + std::to_string(ids.size()) +
                        " experts",
                    "one for each");
    lists_ = lists_ || ids.size() > 1;
    for (std::size_t i = 0; i < ids.size(); ++i)
      rows_.add(expert_id{lines_.integer(ids[i], fields_.experts, -1, rows_.most_expert())},
                weights_.empty() ? 0 : lines_.weight(weights[i]));
  }

  line_scanner lines_;
  field_map fields_;
  reading_notes* notes_;
  recorded_rows rows_;
  char divider_ = ',';
  std::size_t columns_ = 0;
  std::size_t layer_ = 0;
  std::vector<std::size_t> experts_;
  std::vector<std::size_t> weights_;  ///< empty: no weights
  place step_;
  place token_;
  place phase_;
  place sequence_;
  place rank_;
  bool lists_ = false;
};

/// Column names of a header; nothing if a quote is not closed.
std::optional<column_names> names_in(std::string_view header) {
  std::vector<std::string_view> fields;
  if (!split_fields(header, divider_of(header), fields)) return std::nullopt;
  return column_names(std::move(fields));
}

}  // namespace

bool looks_like_column_csv(std::string_view header, const field_map& fields) {
  const auto names = names_in(header);
  return names && names->find(fields.layer) && !names->of(fields.experts, "experts").empty();
}

bool have_same_columns(std::string_view header, std::string_view row) {
  const auto names = names_in(header);
  std::vector<std::string_view> cells;
  return names && split_fields(row, divider_of(header), cells) && cells.size() > 1 &&
         names->all().size() == cells.size();
}

std::vector<std::string> columns_of(std::string_view field) {
  std::vector<std::string> out;
  const auto dots = std::min(field.find(".."), field.size());
  const numbered_name first(field.substr(0, dots));
  const numbered_name last(field.substr(std::min(dots + 2, field.size())));
  if (dots == field.size() || !first.number || !last.number || first.stem != last.stem ||
      *last.number >= *first.number + std::size_t{most_ranks})
    return out;
  for (auto n = *first.number; n <= *last.number; ++n) out.push_back(first.with(n));
  return out;
}

std::string suggested_fields(std::string_view header, std::string_view format) {
  const auto names = names_in(header).value_or(column_names({}));
  const auto layer = names.find("layer") ? "layer" : names.first_with({"layer", "block", "moe"});
  const auto fields =
      "layer=" + layer + ",experts=" + names.likely_experts() + names.likely_fields();
  const bool plain = fields.find_first_of(" ()[]{}&;|<>*?!$#\"\\`") == fields.npos;
  return fmt::format("--format {} --field {}", format, plain ? fields : "'" + fields + "'");
}

void note_unread_fields(reading_notes* notes, const field_map& fields, std::string_view header) {
  const field_map usual;
  if (fields.token != usual.token || fields.sequence != usual.sequence) return;
  const auto likely = names_in(header).value_or(column_names({})).likely_fields();
  if (!likely.empty())
    add_note(notes, "fields of tokens or requests are not read: --field " + likely.substr(1));
}

routing_trace parse_column_csv(std::string_view text, const std::string& file,
                               const open_trace_options& options) {
  return column_reader(text, file, options, "CSV").read();
}

routing_trace parse_layer_expert_csv(std::string_view text, const std::string& file,
                                     const open_trace_options& options) {
  auto named = options;
  named.fields = {.experts = "expert"};
  return column_reader(text, file, named, "layer,expert CSV")
      .read_layers_and_experts(options.top_k);
}

}  // namespace hotset::lab
