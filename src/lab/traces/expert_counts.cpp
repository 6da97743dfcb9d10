// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/expert_counts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/gguf.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/traces/trace_rows.hpp"

namespace hotset::lab {
namespace {

/// The layer whose rows per expert the tensor counts, or nothing.
std::optional<std::int32_t> counted_layer(std::string_view name) {
  constexpr std::string_view begin = "blk.";
  constexpr std::string_view end = "_exps.weight.counts";
  if (!name.starts_with(begin) || !name.ends_with(end)) return std::nullopt;
  name.remove_prefix(begin.size());
  const auto point = name.find('.');
  const auto layer = parse_number<std::int32_t>(name.substr(0, point));
  if (!layer || *layer < 0 || *layer >= most_layers) return std::nullopt;
  return layer;
}

std::vector<double> counts_of(const gguf_file::tensor& tensor, std::span<const std::byte> file,
                              const std::string& path) {
  const auto counts = copy_elements<float>(file.subspan(tensor.offset, tensor.bytes));
  for (const auto count : counts)
    if (!(count >= 0) || count != std::floor(count))
      refuse_input(path, tensor.name, "a count of " + std::to_string(count),
                   "whole numbers of 0 or more");
  return {counts.begin(), counts.end()};
}

using json = nlohmann::json;

constexpr std::string_view accepted_counts =
    "\"logical_count\": whole numbers of 0 or more, [layers][experts] or [steps][layers][experts], "
    "as many in each";

/// Names of engines for counts of experts.
constexpr std::array<std::string_view, 4> count_keys = {"logical_count", "expert_load",
                                                        "expert_counts", "expert_count"};

class logical_counts_reader {
 public:
  logical_counts_reader(const json& root, const std::string& file) : root_(root), file_(file) {}

  expert_counts read() {
    out_.name = text_of("name", trace_name(file_));
    out_.source = text_of("source", "logical_count");
    auto held = root_.end();
    for (const auto key : count_keys)
      if (held == root_.end()) held = root_.find(key);
    if (held == root_.end()) refuse("has none");
    const auto& rows = *held;
    if (depth_of(rows) == 3)
      for (const auto& step : rows) add(step);
    else
      add(rows);
    read_layers();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view found) const {
    refuse_input(file_, "key 'logical_count'", found, accepted_counts);
  }
  static int depth_of(const json& rows) {
    int depth = 0;
    for (const auto* at = &rows; depth < 4 && at->is_array() && !at->empty(); at = &at->front())
      ++depth;
    return depth;
  }
  [[nodiscard]] std::string text_of(const char* key, std::string otherwise) const {
    const auto at = root_.find(key);
    return at != root_.end() && at->is_string() ? at->get<std::string>() : std::move(otherwise);
  }

  /// Adds counts [layers][experts].
  void add(const json& rows) {
    if (depth_of(rows) != 2) refuse("is no such array");
    std::vector<double> uses;
    for (const auto& row : rows) {
      if (!row.is_array() || row.size() != rows.front().size())
        refuse("has rows of several lengths");
      for (const auto& count : row) uses.push_back(whole(count));
    }
    if (out_.uses.empty()) {
      if (rows.size() > static_cast<std::size_t>(most_layers) ||
          rows.front().size() > static_cast<std::size_t>(most_experts))
        refuse("has too many layers or experts");
      out_.layers.resize(rows.size());
      out_.experts = static_cast<std::int32_t>(rows.front().size());
      out_.uses.resize(uses.size());
    }
    if (rows.size() != out_.layers.size() || uses.size() != out_.uses.size())
      refuse("has steps of several shapes");
    std::ranges::transform(out_.uses, uses, out_.uses.begin(), std::plus<>{});
  }
  [[nodiscard]] double whole(const json& count) const {
    const auto value = count.is_number() ? count.get<double>() : -1;
    if (!(value >= 0) || value != std::floor(value) || std::isinf(value))
      refuse("holds " + count.dump(-1, ' ', true, json::error_handler_t::replace));
    return value;
  }

  void read_layers() {
    std::iota(out_.layers.begin(), out_.layers.end(), 0);
    const auto given = root_.find("layers");
    if (given == root_.end()) return;
    std::vector<std::int32_t> numbers;
    if (given->is_array())
      for (const auto& number : *given)
        if (number.is_number_unsigned() && number < most_layers)
          numbers.push_back(number.get<std::int32_t>());
    if (numbers.size() != out_.layers.size() ||
        std::ranges::adjacent_find(numbers, std::greater_equal<>{}) != numbers.end())
      refuse_input(file_, "key 'layers'", "is no number for each layer",
                   std::to_string(out_.layers.size()) + " rising numbers");
    out_.layers = std::move(numbers);
  }

  const json& root_;
  const std::string& file_;
  expert_counts out_;
};

/// Whether the key is of a list of lists: metadata of logs count experts by a number.
bool holds_table(std::string_view text, std::string_view key) {
  const auto quoted = fmt::format("\"{}\"", key);
  const auto at = text.find(quoted);
  if (at == text.npos) return false;
  std::string marks;
  for (const auto c : text.substr(at + quoted.size(), 64))
    if (!has_any(" \t\r\n", {std::string_view(&c, 1)})) marks += c;
  return marks.starts_with(":[[");
}

/// Positions of the layer, the expert and the count in a header, or nothing. A trace has tokens or lists, too.
std::optional<std::array<std::size_t, 3>> count_columns(
    const std::vector<std::string_view>& names) {
  std::array<std::optional<std::size_t>, 3> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto name = lower_case(names[i]);
    const bool counts =
        has_any(name, {"count", "hits", "uses", "usage", "freq", "load", "activation", "tokens"});
    if (name.ends_with("experts") || (!counts && has_any(name, {"token", "pos"})))
      return std::nullopt;
    auto* const column = counts                              ? &found[2]
                         : has_any(name, {"layer", "block"}) ? &found[0]
                         : has_any(name, {"expert"})         ? &found[1]
                                                             : nullptr;
    if (column != nullptr && !*column) *column = i;
  }
  if (!found[0] || !found[1] || !found[2]) return std::nullopt;
  return std::array{*found[0], *found[1], *found[2]};
}

/// Whether a header is of a layer and its experts 0, 1, 2, ..., as pandas writes a table of counts.
bool counts_in_columns(const std::vector<std::string_view>& names) {
  for (std::size_t i = 1; i < names.size(); ++i)
    if (!names[i].ends_with(std::to_string(i - 1))) return false;
  return names.size() > 2 &&
         (names[0].empty() || has_any(lower_case(names[0]), {"layer", "index"}));
}

/// Whether each row has a higher layer than the one before; rows of a trace begin anew with each token.
bool layers_rise(line_scanner& lines, char divider) {
  std::optional<std::int32_t> last;
  std::string_view line;
  std::vector<std::string_view> cells;
  while (lines.next_row(line)) {
    if (!split_fields(line, divider, cells)) return false;
    const auto layer = only_number(cells[0]);
    if (!layer || (last && *layer <= *last)) return false;
    last = layer;
  }
  return last.has_value();
}

}  // namespace

double expert_counts::total() const noexcept {
  return std::accumulate(uses.begin(), uses.end(), 0.0);
}

std::size_t expert_counts::unused() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(uses, 0.0));
}

double expert_counts::hottest(double share) const {
  const auto all = total();
  if (!(all > 0)) return 0;
  auto sorted = uses;
  std::ranges::sort(sorted, std::greater<>{});
  const auto kept = static_cast<std::ptrdiff_t>(share * static_cast<double>(sorted.size()));
  return std::accumulate(sorted.begin(), sorted.begin() + kept, 0.0) / all;
}

expert_counts count_uses(const routing_trace& trace, std::uint64_t tokens) {
  expert_counts out;
  out.name = trace.name;
  out.source = trace.source;
  out.experts = trace.experts;
  out.layers = layer_numbers(trace);
  const auto wide = static_cast<std::size_t>(trace.experts);
  out.uses.resize(out.layers.size() * wide);
  const auto rows = tokens == 0 ? trace.tokens() : std::min<std::size_t>(trace.tokens(), tokens);
  for (std::size_t i = 0; i < trace.index(rows, layer_id{}); ++i) {
    if (trace.ids[i] == no_expert) continue;
    const auto layer = i / static_cast<std::size_t>(trace.top_k) % out.layers.size();
    ++out.uses[layer * wide + index_of(trace.ids[i])];
  }
  return out;
}

bool looks_like_logical_counts(std::string_view beginning) noexcept {
  const auto first = beginning.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && beginning[first] == '{' &&
         std::ranges::any_of(count_keys, [&](auto key) { return holds_table(beginning, key); });
}

expert_counts read_logical_counts(const std::filesystem::path& path) {
  const auto text = read_single_input(path);
  const auto root = parse_json_object(text, path.string(), accepted_counts, text.size());
  return logical_counts_reader(root, path.string()).read();
}

bool looks_like_count_csv(std::string_view beginning) {
  line_scanner lines("", beginning.substr(0, beginning.rfind('\n')));
  std::string_view line;
  std::vector<std::string_view> names;
  if (!lines.next_row(line) || !split_fields(line, divider_of(line), names)) return false;
  return count_columns(names) || (counts_in_columns(names) && layers_rise(lines, divider_of(line)));
}

expert_counts read_count_csv(const std::filesystem::path& path, std::int32_t experts,
                             reading_notes* notes) {
  const auto text = read_single_input(path);
  line_scanner lines(path.string(), text);
  std::string_view line;
  (void)lines.next_row(line);
  const auto divider = divider_of(line);
  const auto names = lines.fields(line, divider);
  const auto columns = count_columns(names);
  expert_counts out;
  out.name = trace_name(path.string());
  out.source = "CSV of counts";
  const bool inferred = experts == 0 && columns;
  if (!columns) {
    const auto own = static_cast<std::int32_t>(names.size() - 1);
    if (experts != 0 && experts != own)
      lines.refuse(fmt::format("{} experts", own), fmt::format("{}, as said", experts));
    experts = own;
  }
  out.experts = experts;
  std::map<std::int32_t, std::map<std::int32_t, double>> uses;
  const auto add = [&](std::string_view layer, std::int32_t id, std::string_view count) {
    const auto number = only_number(layer);
    uses[number ? *number : lines.integer(layer, "layer", 0, most_layers - 1)][id] +=
        lines.integer<double>(count, "count", 0, 1LL << 53U);
    if (inferred) out.experts = std::max(out.experts, id + 1);
  };
  std::size_t rows = 0;
  for (; lines.next_row(line); ++rows) {
    const auto& cells = lines.fields(line, divider);
    if (cells.size() != names.size())
      lines.refuse(fmt::format("{} columns", cells.size()), std::to_string(names.size()));
    const auto most = experts > 0 ? experts : most_experts;
    if (columns)
      add(cells[(*columns)[0]], lines.integer(cells[(*columns)[1]], "expert", 0, most - 1),
          cells[(*columns)[2]]);
    else
      for (std::int32_t id = 0; id < experts; ++id)
        add(cells[0], id, cells[static_cast<std::size_t>(id) + 1]);
  }
  const auto wide = static_cast<std::size_t>(out.experts);
  if (rows == 0 || uses.size() * wide > (std::size_t{1} << 20U) + 64 * rows)
    refuse_input(path.string(), "",
                 fmt::format("{} layers x {} experts in {} rows", uses.size(), wide, rows),
                 "1 row or more, and at most 2^20 experts, or 64 for each row");
  for (const auto& [number, counts] : uses) {
    out.layers.push_back(number);
    out.uses.resize(out.uses.size() + wide);
    for (const auto& [id, used] : counts)
      out.uses[out.uses.size() - wide + static_cast<std::size_t>(id)] = used;
  }
  if (inferred) note_inferred_experts(notes, out.experts);
  return out;
}

expert_counts read_imatrix(const std::filesystem::path& path) {
  const gguf_file file(path);
  const mapped_file data(path);
  std::map<std::int32_t, const gguf_file::tensor*> found;
  for (const auto& tensor : file.tensors())
    if (const auto layer = counted_layer(tensor.name)) found.emplace(*layer, &tensor);
  if (found.empty())
    refuse_input(path.string(), "", "counts no expert",
                 "an importance matrix of a model of experts: tensors "
                 "blk.<layer>.ffn_<part>_exps.weight.counts");
  expert_counts out;
  out.name = trace_name(path.string());
  out.source = "llama.cpp imatrix";
  for (const auto& [layer, tensor] : found) {
    const auto& extents = tensor->dimensions;
    const bool one_each = extents.size() == 2 && extents[0] == 1 && tensor->type == "F32" &&
                          extents[1] <= static_cast<std::uint64_t>(most_experts);
    const bool alike =
        out.layers.empty() || (one_each && extents[1] == static_cast<std::uint64_t>(out.experts));
    if (!one_each || !alike)
      refuse_input(path.string(), tensor->name, std::string(tensor->type) + " of another shape",
                   "a number (F32) for each expert, as many in each layer");
    out.experts = static_cast<std::int32_t>(extents[1]);
    out.layers.push_back(layer);
    const auto counts = counts_of(*tensor, data.bytes(), path.string());
    out.uses.insert(out.uses.end(), counts.begin(), counts.end());
  }
  return out;
}

}  // namespace hotset::lab
