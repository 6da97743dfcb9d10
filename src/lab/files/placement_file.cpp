// SPDX-License-Identifier: Apache-2.0
#include "lab/files/placement_file.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "hotset/core/error.hpp"
#include "hotset/placement/even_packing.hpp"
#include "hotset/registry/parameters.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"

namespace hotset::lab {
namespace {

using placement_json = nlohmann::ordered_json;
constexpr std::string_view schema_of_placements = "hotset.placement/1";

std::vector<std::int32_t> numbers_of(const expert_placement& placed) {
  std::vector<std::int32_t> out;
  for (const auto e : placed) out.push_back(number(e));
  return out;
}

/// One line for each member and each row.
std::string lines_of(const placement_json& object) {
  std::string out = "{";
  const char* separator = "\n";
  for (const auto& [key, value] : object.items()) {
    out += fmt::format("{}\"{}\": ", std::exchange(separator, ",\n"), key);
    if (!value.is_array() || value.empty() || !value[0].is_array()) {
      out += value.dump();
      continue;
    }
    const char* comma = "[\n";
    for (const auto& row : value) out += std::exchange(comma, ",\n") + row.dump();
    out += "]";
  }
  return out + "\n}\n";
}

std::string vllm_text(const placed_model& model) {
  placement_json out{{"schema", schema_of_placements}, {"experts", model.shape.experts},
                     {"ranks", model.shape.ranks},     {"nodes", model.shape.nodes},
                     {"groups", model.shape.groups},   {"dense_layers", model.dense_layers}};
  for (const auto& layer : model.layers)
    out["physical_to_logical_map"].push_back(numbers_of(layer));
  return lines_of(out);
}

std::string sglang_text(const placed_model& model) {
  placement_json out;
  const auto in_order = numbers_of(placement_in_order(model.shape));
  for (std::int32_t l = 0; l < model.dense_layers; ++l)
    out["physical_to_logical_map"].push_back(in_order);
  for (const auto& layer : model.layers)
    out["physical_to_logical_map"].push_back(numbers_of(layer));
  return lines_of(out);
}

std::string tensorrt_llm_text(const placed_model& model) {
  auto out = fmt::format("num_slots: {}\ninitial_global_assignments:\n", model.shape.slots());
  for (std::size_t l = 0; l < model.layers.size(); ++l)
    out += fmt::format("  {}: [{}]\n", l + static_cast<std::size_t>(model.dense_layers),
                       fmt::join(numbers_of(model.layers[l]), ", "));
  return out + "layer_updates_per_iter: 0\n";
}

std::string deepseek_text(const placed_model& model) {
  placement_json out{{"phy2log", placement_json::array()},
                     {"log2phy", placement_json::array()},
                     {"logcnt", placement_json::array()}};
  for (const auto& layer : model.layers) {
    const auto counts = replicas_of(model.shape.experts, layer);
    const auto most = static_cast<std::size_t>(std::ranges::max(counts));
    std::vector<std::vector<std::int32_t>> slots(counts.size());
    for (std::size_t slot = 0; slot < layer.size(); ++slot)
      slots[index_of(layer[slot])].push_back(static_cast<std::int32_t>(slot));
    for (auto& of : slots) of.resize(most, -1);
    out["phy2log"].push_back(numbers_of(layer));
    out["log2phy"].push_back(slots);
    out["logcnt"].push_back(counts);
  }
  return lines_of(out);
}

using rows_of_ids = std::vector<std::vector<std::int64_t>>;

rows_of_ids rows_in(const nlohmann::json& object, const char* key, const std::string& file) {
  const auto& rows = object.at(key);
  const auto is_row = [](const nlohmann::json& row) {
    return row.is_array() &&
           std::ranges::all_of(row, [](const auto& id) { return id.is_number_integer(); });
  };
  if (!rows.is_array() || !std::ranges::all_of(rows, is_row))
    refuse_input(file, key, described(rows), "an array of rows of expert numbers");
  return rows.get<rows_of_ids>();
}

/// Reads the rows of "  3: [1, 2]", in the order of the layers' numbers.
rows_of_ids rows_of_yaml(std::string_view text, const std::string& file) {
  std::map<std::int64_t, std::vector<std::int64_t>> rows;
  const auto number_at = [](std::string_view& rest) {
    std::int64_t out = 0;
    const auto [end, bad] = std::from_chars(rest.data(), rest.data() + rest.size(), out);
    const bool found = bad == std::errc{};
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return found ? std::optional(out) : std::nullopt;
  };
  std::size_t line_number = 0;
  for (auto line : detail::split_at(text, '\n')) {
    ++line_number;
    if (!line.starts_with("  ")) continue;
    line.remove_prefix(2);
    const auto layer = number_at(line);
    if (!layer || !line.starts_with(": ["))
      refuse_input(file, fmt::format("line {}", line_number), "no layer",
                   "lines such as \"  3: [0, 1]\"");
    line.remove_prefix(3);
    auto& row = rows[*layer];
    while (const auto id = number_at(line)) {
      row.push_back(*id);
      if (line.starts_with(", ")) line.remove_prefix(2);
    }
    if (line != "]")
      refuse_input(file, fmt::format("line {}", line_number), "no list of expert numbers",
                   "lines such as \"  3: [0, 1]\"");
  }
  rows_of_ids out;
  for (auto& [layer, row] : rows) out.push_back(std::move(row));
  return out;
}

struct found_rows {
  rows_of_ids rows;
  bool has_dense = false;  ///< the first rows are of layers without experts
};
found_rows find_rows(std::string_view text, const std::string& file) {
  constexpr std::string_view accepted =
      "a file of hotset place: JSON with \"physical_to_logical_map\" or \"phy2log\", or YAML with "
      "initial_global_assignments";
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    if (text.find("initial_global_assignments:") == std::string_view::npos)
      refuse_input(file, "", "no placement", accepted);
    return {rows_of_yaml(text, file)};
  }
  const auto object = parse_json_object(text, file, accepted);
  if (object.contains("phy2log")) return {rows_in(object, "phy2log", file)};
  if (!object.contains("physical_to_logical_map")) refuse_input(file, "", "no placement", accepted);
  return {rows_in(object, "physical_to_logical_map", file), !object.contains("schema")};
}

}  // namespace

placement_format parse_placement_format(std::string_view text) {
  return choice_of<placement_format>("placement format", text,
                                     {"vllm", "sglang", "tensorrt-llm", "deepseek"});
}

std::string to_text(const placed_model& model, placement_format format) {
  switch (format) {
    case placement_format::vllm: return vllm_text(model);
    case placement_format::sglang: return sglang_text(model);
    case placement_format::tensorrt_llm: return tensorrt_llm_text(model);
    case placement_format::deepseek: break;
  }
  return deepseek_text(model);
}

// NOLINTBEGIN(bugprone-easily-swappable-parameters): the model's dense layers, then the others
std::vector<expert_placement> parse_placement(std::string_view text, const std::string& file,
                                              const placement_shape& shape,
                                              std::int32_t dense_layers, std::int32_t layers) {
  // NOLINTEND(bugprone-easily-swappable-parameters)
  const auto found = find_rows(text, file);
  const auto dense = static_cast<std::size_t>(found.has_dense ? dense_layers : 0);
  const auto wanted = dense + static_cast<std::size_t>(layers);
  if (found.rows.size() != wanted)
    refuse_input(file, "", fmt::format("{} layers", found.rows.size()),
                 dense > 0
                     ? fmt::format("{}, of which {} are dense (--dense-layers)", wanted, dense)
                     : fmt::format("{}", wanted));
  std::vector<expert_placement> out;
  for (std::size_t l = dense; l < wanted; ++l) {
    auto& placed = out.emplace_back();
    for (const auto id : found.rows[l])
      placed.push_back(static_cast<expert_id>(std::clamp<std::int64_t>(id, -1, shape.experts)));
    if (const auto bad = check_placement(shape, placed))
      throw trace_error(fmt::format("{}: layer {}: {}", file, l, bad->message));
  }
  return out;
}

}  // namespace hotset::lab
