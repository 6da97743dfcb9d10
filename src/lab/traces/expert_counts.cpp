// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/expert_counts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "lab/files/gguf.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_rows.hpp"

namespace hotset::lab {
namespace {

/// The layer whose experts' rows such a tensor counts, or nothing.
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
