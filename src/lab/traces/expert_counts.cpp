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
#include "lab/traces/text_scan.hpp"
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

class logical_counts_reader {
 public:
  logical_counts_reader(const json& root, const std::string& file) : root_(root), file_(file) {}

  expert_counts read() {
    out_.name = text_of("name", trace_name(file_));
    out_.source = text_of("source", "logical_count");
    const auto held = root_.find("logical_count");
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

/// Positions of the layer, the expert and the count in a header, or nothing.
std::optional<std::array<std::size_t, 3>> count_columns(
    const std::vector<std::string_view>& names) {
  constexpr std::array<std::string_view, 3> wanted = {"layer", "expert", "count"};
  std::array<std::size_t, 3> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = std::ranges::find_if(
        names, [&](std::string_view name) { return name.starts_with(wanted[i]); });
    if (at == names.end()) return std::nullopt;
    out[i] = static_cast<std::size_t>(at - names.begin());
  }
  return out;
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
         beginning.find("\"logical_count\"") != std::string_view::npos;
}

expert_counts read_logical_counts(const std::filesystem::path& path) {
  const auto text = read_single_input(path);
  const auto root = parse_json_object(text, path.string(), accepted_counts, text.size());
  return logical_counts_reader(root, path.string()).read();
}

bool looks_like_count_csv(std::string_view beginning) {
  std::vector<std::string_view> names;
  const auto line = trimmed(beginning.substr(0, beginning.find('\n')));
  return split_fields(line, divider_of(line), names) && names.size() == 3 && count_columns(names);
}

expert_counts read_count_csv(const std::filesystem::path& path, std::int32_t experts,
                             reading_notes* notes) {
  const auto text = read_single_input(path);
  line_scanner lines(path.string(), text);
  std::string_view line;
  (void)lines.next_row(line);
  const auto divider = divider_of(line);
  const auto [layer, expert, count] = count_columns(lines.fields(line, divider)).value();
  expert_counts out;
  out.name = trace_name(path.string());
  out.source = "CSV of counts";
  out.experts = experts;
  std::map<std::int32_t, std::map<std::int32_t, double>> uses;
  std::size_t rows = 0;
  for (; lines.next_row(line); ++rows) {
    const auto& cells = lines.fields(line, divider);
    if (cells.size() != 3) lines.refuse(std::to_string(cells.size()) + " columns", "3");
    const auto most = experts > 0 ? experts : most_experts;
    const auto id = lines.integer(cells[expert], "expert", 0, most - 1);
    uses[lines.integer(cells[layer], "layer", 0, most_layers - 1)][id] +=
        lines.integer<double>(cells[count], "count", 0, 1LL << 53U);
    if (experts == 0) out.experts = std::max(out.experts, id + 1);
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
  if (experts == 0) note_inferred_experts(notes, out.experts);
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
