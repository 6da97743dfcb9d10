// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/expert_files.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "lab/files/gguf_parts.hpp"
#include "lab/files/input_error.hpp"
#include "lab/models/model_shape.hpp"
#include "lab/models/stored_weights.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

size_class_id class_of(expert_layout layout, std::vector<expert_layout>& layouts) {
  const auto found = std::ranges::find_if(layouts, [&](const expert_layout& other) {
    return std::ranges::equal(layout.tensors, other.tensors, [](const auto& a, const auto& b) {
      return a.name == b.name && a.bytes == b.bytes;
    });
  });
  const auto at = found - layouts.begin();
  if (found == layouts.end()) layouts.push_back(std::move(layout));
  return static_cast<size_class_id>(at);
}

/// Pre: the layer's experts were checked.
void add_layer(const stored_layer& layer, std::uint64_t experts, expert_files& out) {
  expert_layout layout;
  const auto tensors = layer.parts.size();
  auto& all = out.extents.emplace_back(experts * tensors);
  for (const auto& [part, runs] : layer.parts) {
    const auto bytes = runs.front().extent.bytes / runs.front().count;
    for (const auto& run : runs)
      for (std::uint64_t e = 0; e < run.count; ++e)
        all[(run.first + e) * tensors + layout.tensors.size()] = {
            run.extent.file, run.extent.offset + e * bytes, bytes};
    layout.tensors.push_back({part, bytes});
  }
  out.shape.expert_bytes.push_back(layout.bytes());
  out.shape.layer_size_class.push_back(class_of(std::move(layout), out.layouts));
}

expert_files files_of(stored_weights stored, std::uint64_t top_k) {
  std::erase_if(stored.layers, [](const auto& layer) { return !layer.second.is_moe(); });
  const auto refuse = [&](const std::string& place, const std::string& found,
                          const std::string& accepted) {
    refuse_input(stored.model, place, found, accepted);
  };
  if (stored.layers.empty())
    refuse("", "has no tensors of routed experts", "a Mixture-of-Experts model");
  const auto experts = stored.experts();
  if (experts > most_model_experts / stored.layers.size())
    refuse("", fmt::format("has {} layers of {} experts", stored.layers.size(), experts),
           fmt::format("at most {} experts in all", most_model_experts));
  stored.check_experts(experts);
  expert_files out;
  out.paths = std::move(stored.paths);
  for (const auto& [number, layer] : stored.layers) {
    if (layer.parts.size() > expert_layout::max_tensors)
      refuse(fmt::format("layer {}", number),
             fmt::format("has experts of {} tensors", layer.parts.size()),
             fmt::format("1..{}", expert_layout::max_tensors));
    for (const auto& [part, runs] : layer.parts)
      if (runs.front().extent.bytes == 0)
        refuse(fmt::format("layer {}, '{}'", number, printable(part)), "has experts of 0 bytes",
               "1 byte or more");
    add_layer(layer, experts, out);
    out.layers.push_back(number);
  }
  out.shape.layers = static_cast<std::int32_t>(out.layers.size());
  out.shape.experts = static_cast<std::int32_t>(experts);
  out.shape.top_k = static_cast<std::int32_t>(std::clamp<std::uint64_t>(top_k, 1, experts));
  if (const auto bad = out.shape.validate()) refuse("", bad->message, "");
  return out;
}

/// The top-k in the file's metadata, else 1.
std::uint64_t top_k_of(const gguf_file& file) {
  const auto* const architecture = file.find("general.architecture");
  const auto name = architecture == nullptr ? std::nullopt : architecture->text();
  const auto* const value = name ? file.find(std::string(*name) + ".expert_used_count") : nullptr;
  return value == nullptr || value->is_array ? 1 : value->natural().value_or(1);
}

}  // namespace

expert_files find_experts(const fs::path& path) {
  if (path.extension() == ".gguf") {
    const auto parts = open_gguf_parts(path);
    return files_of(read_gguf_weights(path, parts), top_k_of(parts.front()));
  }
  const auto files = find_safetensors(path);
  if (files.empty())
    refuse_input(path.string(), "", "holds no weights",
                 "a .gguf or .safetensors file, or a folder of .safetensors files");
  return files_of(read_safetensors_weights(path, files, file_extent::whole), 1);
}

file_expert_source open_experts(const expert_files& files, file_reads how, std::size_t beside) {
  auto source = file_expert_source::open(files.shape, files.paths, how, beside);
  if (!source) throw trace_error(source.error().message);
  for (const auto l : each<layer_id>(files.shape.layers))
    for (const auto e : each<expert_id>(files.shape.experts))
      if (const auto bad = source->add({l, e}, {}, files.at({l, e})))
        throw trace_error(bad->message);
  return *std::move(source);
}

}  // namespace hotset::lab
