// SPDX-License-Identifier: Apache-2.0
#include "lab/models/stored_weights.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/traces/text_scan.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view ending = ".safetensors";

/// Returns "3" for "model-00001-of-00003.safetensors"; nothing for the name of a single file.
std::optional<std::uint64_t> parts_of(std::string_view name) {
  const auto of = name.rfind("-of-");
  if (!name.ends_with(ending) || of == std::string_view::npos) return std::nullopt;
  name.remove_suffix(ending.size());
  return of + 4 < name.size() ? parse_number<std::uint64_t>(name.substr(of + 4)) : std::nullopt;
}

std::vector<fs::path> listed_files(const fs::path& index) {
  constexpr std::size_t most = std::size_t{256} << 20U;  // the index has one line per tensor
  constexpr std::string_view accepted = "an object: tensor -> file name";
  const mapped_file map(index);
  const auto root = parse_json_object(map.text(), index.string(),
                                      "an index of .safetensors files, a JSON object", most);
  const auto refuse = [&](const std::string& found) {
    refuse_input(index.string(), "key 'weight_map'", found, accepted);
  };
  const auto files_of = root.find("weight_map");
  if (files_of == root.end() || !files_of->is_object() || files_of->empty())
    refuse("is missing or empty");
  std::set<std::string> names;
  for (const auto& name : *files_of) {
    if (!name.is_string()) refuse("holds no file name");
    const auto text_of = name.get<std::string>();
    if (text_of.empty() || fs::path(text_of).filename() != text_of)
      refuse("holds '" + printable(text_of) + "'");
    names.insert(text_of);
  }
  std::vector<fs::path> files;
  files.reserve(names.size());
  for (const auto& name : names) files.push_back(index.parent_path() / name);
  return files;
}

std::vector<fs::path> every_file(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->path().extension() == ending) files.push_back(at->path());
  if (code)
    refuse_input(folder.string(), "", "cannot be listed: " + code.message(), "a readable folder");
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    const auto count = parts_of(file.filename().string());
    if (count && *count != files.size())
      refuse_input(folder.string(), "", fmt::format("holds {} {} files", files.size(), ending),
                   fmt::format("all {} parts, and no other", *count));
  }
  return files;
}

/// Parts of a tensor's name.
struct tensor_place {
  std::optional<std::uint64_t> layer;   ///< decoder layer
  std::optional<std::uint64_t> expert;  ///< expert, if experts are separate tensors
  std::string_view rest;                ///< name after the layer's number
  std::string_view part;  ///< name after the expert's number, or that of a stack of experts

  [[nodiscard]] bool is_of_experts() const noexcept { return expert || !part.empty(); }
};

/// Removes a number and the following point from the front of text.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  const auto part = text.substr(0, text.find('.'));
  const auto number = parse_number<std::uint64_t>(part);
  if (number) text.remove_prefix(std::min(text.size(), part.size() + 1));
  return number;
}

/// Name after "layers." of the decoder; nothing for another name, such as a vision tower's.
std::optional<std::string_view> behind_layers(std::string_view name) {
  constexpr std::string_view layers = "layers.";
  if (name.starts_with(layers)) return name.substr(layers.size());
  for (const std::string_view before :
       {"language_model.layers.", "model.layers.", "backbone.layers."})
    if (const auto at = name.find(before); at == 0 || (at != name.npos && name[at - 1] == '.'))
      return name.substr(at + before.size());
  return std::nullopt;
}

tensor_place place_in_safetensors(std::string_view name) {
  tensor_place out;
  const auto layers = behind_layers(name);
  if (!layers) return out;
  out.rest = *layers;
  out.layer = take_number(out.rest);
  if (!out.layer) return out;
  for (const std::string_view stack : {"experts.", "switch_mlp.", "block_sparse_moe.input_linear",
                                       "block_sparse_moe.output_linear"}) {
    const auto at = out.rest.find(stack);
    if (at == out.rest.npos || (at > 0 && out.rest[at - 1] != '.')) continue;
    const bool is_folder = stack.ends_with('.');  // else a single weight, which is its own part
    out.part = out.rest.substr(is_folder ? at + stack.size() : at);
    if (stack == "experts.") out.expert = take_number(out.part);
    break;
  }
  return out;
}

tensor_place place_in_gguf(std::string_view name) {
  constexpr std::string_view blocks = "blk.";
  constexpr std::array<std::string_view, 8> stacks = {
      "ffn_up_exps",   "ffn_down_exps",   "ffn_gate_exps",   "ffn_gate_up_exps",
      "ffn_up_chexps", "ffn_down_chexps", "ffn_gate_chexps", "ffn_gate_up_chexps"};
  tensor_place out;
  if (!name.starts_with(blocks)) return out;
  out.rest = name.substr(blocks.size());
  out.layer = take_number(out.rest);
  const auto stem = out.rest.substr(0, out.rest.find('.'));
  if (out.layer && std::ranges::find(stacks, stem) != stacks.end()) out.part = out.rest;
  return out;
}

/// Elements per token that a projection makes for the cache; 0 for any other tensor.
std::uint64_t kv_rows(std::string_view rest, const safetensors_file::tensor& t) {
  constexpr std::array<std::string_view, 8> names = {
      "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.kv_a_proj_with_mqa.weight",
      "mixer.k_proj.weight",     "mixer.v_proj.weight",     "attention.wk.weight",
      "attention.wv.weight",     "attn.wkv_a.weight"};
  const bool is_one = std::ranges::find(names, rest) != names.end();
  // A single column is bitsandbytes' packing: its rows are not the weight's.
  const bool has_rows = t.described_bytes > 0 && t.shape.size() == 2 && t.shape.back() > 1;
  return is_one && has_rows ? t.shape.front() : 0;
}

void add_file(const fs::path& path, std::uint64_t missing_bytes, stored_weights& out) {
  out.paths.push_back(path.string());
  out.missing_bytes += missing_bytes;
  if (missing_bytes > 0) ++out.cut_files;
}

/// Adds a tensor of the last added file. `stacked`: its number of experts, if the name is that of a stack.
void add_tensor(const std::string& name, const tensor_place& place, std::uint64_t stacked,
                std::uint64_t offset, std::uint64_t bytes, stored_weights& out) {
  if (!place.is_of_experts() && (out.largest_other.empty() || bytes > out.largest_other_bytes)) {
    out.largest_other = name;
    out.largest_other_bytes = bytes;
  }
  if (!place.is_of_experts()) {
    (place.layer ? out.layers[*place.layer].resident_bytes : out.resident_bytes) += bytes;
    return;
  }
  const auto count = place.expert ? 1 : stacked;
  if (count == 0 || bytes % count != 0)
    refuse_input(out.paths.back(), "tensor '" + printable(name, 120) + "'",
                 fmt::format("stacks {} experts in {} bytes", count, bytes),
                 "1 or more of equal size");
  out.layers[*place.layer].parts[std::string(place.part)].push_back(
      {place.expert.value_or(0), count, {out.paths.size() - 1, offset, bytes}});
}

std::uint64_t experts_of(const std::vector<expert_run>& runs) noexcept {
  std::uint64_t experts = 0;
  for (const auto& run : runs) experts += run.count;
  return experts;
}

}  // namespace

std::uint64_t stored_weights::experts() const noexcept {
  for (const auto& [number, layer] : layers)
    if (layer.is_moe()) return experts_of(layer.parts.begin()->second);
  return 0;
}

void stored_weights::check_experts(std::uint64_t experts) {
  for (auto& [number, layer] : layers)
    for (auto& [part, runs] : layer.parts) {
      const auto refuse = [&, number = number, &part = part](const std::string& found,
                                                             const std::string& accepted) {
        refuse_input(model, fmt::format("layer {}, '{}'", number, printable(part)), found,
                     accepted);
      };
      std::ranges::sort(runs, {}, &expert_run::first);
      const auto bytes = runs.front().extent.bytes / runs.front().count;
      std::uint64_t next = 0;
      for (const auto& run : runs) {
        if (run.first != next)
          refuse(fmt::format("has expert {} where {} should be", run.first, next),
                 "each expert once (is a file missing?)");
        if (run.extent.bytes / run.count != bytes)
          refuse(fmt::format("expert {} has {} bytes", next, run.extent.bytes / run.count),
                 fmt::format("{}, as expert 0", bytes));
        next += run.count;
      }
      if (next != experts)
        refuse(fmt::format("is of {} experts", next),
               fmt::format("{}, as elsewhere (is a file missing?)", experts));
    }
}

std::vector<std::uint64_t> stored_weights::expert_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const auto& [number, layer] : layers) {
    if (!layer.is_moe()) continue;
    bytes.push_back(0);
    for (const auto& [part, runs] : layer.parts)
      bytes.back() += runs.front().extent.bytes / runs.front().count;
  }
  return bytes;
}

std::uint64_t stored_weights::all_resident_bytes() const noexcept {
  auto bytes = resident_bytes;
  for (const auto& [number, layer] : layers) bytes += layer.resident_bytes;
  return bytes;
}

std::vector<fs::path> find_safetensors(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (const auto parts = parts_of(path.filename().string()); parts && *parts > 1)
      refuse_input(path.string(), "", fmt::format("is one of {} parts", *parts),
                   "the folder that holds all of them");
    return {path};
  }
  for (const auto* name : {"model.safetensors", "model.safetensors.index.json"})
    if (const auto found = path / name; fs::exists(found, ignored))
      return found.extension() == ending ? std::vector{found} : listed_files(found);
  return every_file(path);
}

stored_weights read_safetensors_weights(const fs::path& path, const std::vector<fs::path>& files,
                                        file_extent extent) {
  stored_weights out{.model = path.string()};
  std::set<std::string> seen;
  for (const auto& one : files) {
    const safetensors_file file(one, extent);
    add_file(one, file.missing_bytes(), out);
    for (const auto& name : file.names()) {
      const auto& t = file.at(name);
      if (!seen.insert(name).second)
        refuse_input(one.string(), "tensor '" + printable(name, 120) + "'",
                     "is in another file of the model, too", "each tensor once");
      const auto place = place_in_safetensors(name);
      add_tensor(name, place, t.shape.empty() ? 0 : t.shape.front(), t.offset, t.described_bytes,
                 out);
      if (place.layer) out.layers[*place.layer].kv_elements += kv_rows(place.rest, t);
    }
  }
  return out;
}

stored_weights read_gguf_weights(const fs::path& path, std::span<const gguf_file> parts) {
  stored_weights out{.model = path.string()};
  for (const auto& part : parts) {
    add_file(part.path(), part.missing_bytes(), out);
    for (const auto& t : part.tensors()) {
      const auto place = place_in_gguf(t.name);
      if (place.layer && place.rest.starts_with("nextn.")) out.prediction.insert(*place.layer);
      add_tensor(t.name, place, t.dimensions.empty() ? 0 : t.dimensions.back(), t.offset, t.bytes,
                 out);
    }
  }
  for (const auto layer : out.prediction) out.layers.erase(layer);
  return out;
}

}  // namespace hotset::lab
