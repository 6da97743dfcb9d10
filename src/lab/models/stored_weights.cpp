// SPDX-License-Identifier: Apache-2.0
#include "lab/models/stored_weights.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "hotset/registry/parameters.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/models/config_keys.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view ending = ".safetensors";

/// Numbers at the end of a name: "model-00001-of-00003.safetensors" is one of 3 parts.
struct file_number {
  std::string_view model;   ///< "model-"
  std::string_view number;  ///< "00001"
  std::uint64_t count = 0;
};
std::optional<file_number> read_file_number(std::string_view name) {
  if (!name.ends_with(ending)) return std::nullopt;
  name.remove_suffix(ending.size());
  const auto of = name.rfind("-of-");
  const auto dash = of == name.npos ? of : name.rfind('-', of - 1);
  if (of == name.npos || dash == name.npos) return std::nullopt;
  const auto number = name.substr(dash + 1, of - dash - 1);
  const auto count = parse_number<std::uint64_t>(name.substr(of + 4));
  if (!count || !parse_number<std::uint64_t>(number)) return std::nullopt;
  return file_number{name.substr(0, dash + 1), number, *count};
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

/// Refuses a folder without all parts that the names of its files count.
void need_all_parts(const fs::path& folder, const std::vector<fs::path>& files) {
  std::set<std::string> there;
  for (const auto& file : files) there.insert(file.filename().string());
  for (const auto& name : there) {
    const auto part = read_file_number(name);
    for (std::uint64_t n = 1; part && n <= part->count; ++n) {
      const auto other = fmt::format("{}{:0{}}-of{}", part->model, n, part->number.size(),
                                     name.substr(part->model.size() + part->number.size() + 3));
      if (!there.contains(other))
        refuse_input(folder.string(), "", fmt::format("'{}' is missing", other),
                     fmt::format("all {} parts", part->count));
    }
    if (part && part->count != files.size())
      refuse_input(folder.string(), "", fmt::format("holds {} {} files", files.size(), ending),
                   fmt::format("all {} parts, and no other", part->count));
  }
}

/// Parts of a tensor's name.
struct tensor_place {
  std::optional<std::uint64_t> layer;   ///< decoder layer
  std::optional<std::uint64_t> expert;  ///< expert, if experts are separate tensors
  std::string_view rest;                ///< name after the layer's number
  std::string part;            ///< name after the expert's number, or that of a stack of experts
  bool is_prediction = false;  ///< of multi-token prediction

  [[nodiscard]] bool is_of_experts() const noexcept { return !part.empty(); }
};

/// Removes a number and the following point from the front of text.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  const auto part = text.substr(0, text.find('.'));
  const auto number = parse_number<std::uint64_t>(part);
  if (number) text.remove_prefix(std::min(text.size(), part.size() + 1));
  return number;
}

/// Position behind `word`, which begins at the start of text or behind a point.
std::size_t end_of(std::string_view text, std::string_view word) {
  const auto at = text.find(word);
  const bool begins = at != text.npos && (at == 0 || text[at - 1] == '.');
  return begins ? at + word.size() : text.npos;
}

/// Reads the layer's number, unless the name is of another model beside the decoder, such as a vision tower.
tensor_place layer_in_safetensors(std::string_view name) {
  tensor_place out;
  for (const std::string_view word : {"layers.", "blocks.", "h."}) {
    const auto at = end_of(name, word);
    if (at == name.npos ||
        has_any(name.substr(0, at), {"vis", "audio", "talker", "mtp", "encoder", "projector"}))
      continue;
    out.rest = name.substr(at);
    out.layer = take_number(out.rest);
    break;
  }
  out.is_prediction = end_of(name, "mtp") != name.npos;
  return out;
}

tensor_place place_in_safetensors(std::string_view name, std::size_t rank) {
  auto out = layer_in_safetensors(name);
  if (!out.layer) return out;
  // A folder of tensors, or a single weight, which is its own part.
  for (const std::string_view stack : {"experts.", "switch_mlp.", "block_sparse_moe.input_linear",
                                       "block_sparse_moe.output_linear", "moe."}) {
    const auto end = end_of(out.rest, stack);
    if (end == out.rest.npos || (stack == "moe." && rank < 3)) continue;
    auto part = out.rest.substr(stack.ends_with('.') ? end : end - stack.size());
    if (stack == "experts.") out.expert = take_number(part);
    out.part = part;
    break;
  }
  return out;
}

tensor_place place_in_gguf(std::string_view name) {
  constexpr std::string_view blocks = "blk.";
  tensor_place out;
  if (!name.starts_with(blocks)) return out;
  out.rest = name.substr(blocks.size());
  out.layer = take_number(out.rest);
  if (!out.layer) return out;
  out.is_prediction = out.rest.starts_with("nextn.");
  const auto stem = out.rest.substr(0, out.rest.find('.'));
  if (stem.ends_with("exps") && !has_any(stem, {"norm"})) {  // also chexps
    out.part = out.rest;
  } else if (stem == "ffn_gate" || stem == "ffn_up" || stem == "ffn_down") {
    auto behind = out.rest.substr(std::min(out.rest.size(), stem.size() + 1));
    out.expert = take_number(behind);
    if (out.expert) out.part = fmt::format("{}.{}", stem, behind);
  }
  return out;
}

/// The number in stored_layer that a matrix's rows add to, by the end of its name; nullptr: none.
std::uint64_t stored_layer::*rows_of(std::string_view rest) {
  struct rows_name {
    std::uint64_t stored_layer::*rows;
    std::string_view endings;  ///< separated by spaces
  };
  constexpr auto names = std::to_array<rows_name>({
      {&stored_layer::key_rows, "k_proj wk attn_k"},
      {&stored_layer::value_rows, "v_proj wv attn_v"},
      {&stored_layer::latent_rows, "kv_a_proj_with_mqa wkv_a wkv attn_kv_a_mqa attn_kv"},
      {&stored_layer::router_rows, "gate gate.wg router router.layer router.proj ffn_gate_inp"},
  });
  const auto dot = rest.rfind('.');
  const auto last = dot == rest.npos ? rest : rest.substr(dot + 1);
  if (last != "weight" && last != "weight_packed") return nullptr;
  if (has_any(rest, {"compressor"})) return nullptr;
  const auto stem = rest.substr(0, dot);
  for (const auto& [rows, endings] : names)
    for (const auto name : detail::split_at(endings, ' ')) {
      if (!stem.ends_with(name)) continue;
      if (stem.size() > name.size() && stem[stem.size() - name.size() - 1] != '.') continue;
      return rows != &stored_layer::router_rows && has_any(rest, {"indexer"})
                 ? &stored_layer::index_rows
                 : rows;
    }
  return nullptr;
}

/// Notes what a tensor tells of the layer's attention. `rows`: of a matrix; 0: it is none.
void read_attention(std::string_view rest, std::uint64_t rows, stored_layer& layer) {
  if (const auto row = rows_of(rest); row != nullptr && rows <= config_keys::most_extent)
    layer.*row += rows;
  layer.has_attention |= has_any(rest, {"attn", "attention"}) && !has_any(rest, {"norm"});
  layer.has_other_rows |=
      has_any(rest, {"attn_qkv", "attn_kv_b", "query_key_value", "qkv_proj", "Wqkv"});
  layer.is_recurrent |= has_any(rest, {"ssm_", "shortconv.", "conv1d", "conv.conv", "A_log"});
}

void add_file(const fs::path& path, std::uint64_t missing_bytes, stored_weights& out) {
  out.paths.push_back(path.string());
  out.missing_bytes += missing_bytes;
  if (missing_bytes > 0) ++out.cut_files;
}

/// Adds a tensor of the last added file. `stacked`: its number of experts, if the name is that of a stack.
void add_tensor(const std::string& name, const tensor_place& place, std::uint64_t stacked,
                std::uint64_t offset, std::uint64_t bytes, stored_weights& out) {
  // A scalar or a single number is of all experts together.
  if (!place.is_of_experts() || (!place.expert && stacked < 2)) {
    if (out.largest_other.empty() || bytes > out.largest_other_bytes) {
      out.largest_other = name;
      out.largest_other_bytes = bytes;
    }
    (place.layer ? out.layers[*place.layer].resident_bytes : out.resident_bytes) += bytes;
    return;
  }
  const auto count = place.expert ? 1 : stacked;
  if (bytes % count != 0)
    refuse_input(out.paths.back(), "tensor '" + printable(name, 120) + "'",
                 fmt::format("stacks {} experts in {} bytes", count, bytes),
                 "1 or more of equal size");
  out.layers[*place.layer].parts[place.part].push_back(
      {place.expert.value_or(0), count, {out.paths.size() - 1, offset, bytes}});
}

std::uint64_t experts_of(const std::vector<expert_run>& runs) noexcept {
  std::uint64_t experts = 0;
  for (const auto& run : runs) experts += run.count;
  return experts;
}

/// Corrects what a tensor's own name and extents do not tell.
void finish(stored_weights& out) {
  for (const auto layer : out.prediction) out.layers.erase(layer);
  for (auto& [number, layer] : out.layers) {
    std::uint64_t most = 0;
    for (auto& [part, runs] : layer.parts) {
      // DBRX stacks the rows of all experts in one matrix.
      auto& run = runs.front();
      const auto rows = layer.router_rows;
      if (runs.size() == 1 && rows > 1 && run.count > rows && run.count % rows == 0)
        run.count = rows;
      most = std::max(most, experts_of(runs));
    }
    if (layer.parts.empty())
      for (const auto& [name, run] : layer.other_stacks)
        if (run.count > 1 && run.count == layer.router_rows) {
          layer.parts[name] = {run};
          layer.resident_bytes -= run.extent.bytes;
          out.found_by_shape = true;
        }
    // GroveMoE's small experts are fewer, and several of the others share one.
    std::erase_if(layer.parts, [&, &layer = layer](const auto& part) {
      const bool is_shared = has_any(part.first, {"chexps"}) && experts_of(part.second) < most;
      if (is_shared) layer.resident_bytes += part.second.front().extent.bytes;
      return is_shared;
    });
  }
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
  auto folder = path;
  if (!fs::is_directory(path, ignored)) {
    const auto name = path.filename().string();
    const auto part = read_file_number(name);
    if (!part || part->count < 2) return {path};
    folder = path.parent_path();
  }
  for (const auto* name : {"model.safetensors", "model.safetensors.index.json"})
    if (const auto found = folder / name; fs::exists(found, ignored))
      return found.extension() == ending ? std::vector{found} : listed_files(found);
  auto files = paths_in(folder, ending);
  need_all_parts(folder, files);
  return files;
}

stored_weights read_safetensors_weights(const fs::path& path, const std::vector<fs::path>& files,
                                        file_extent extent, const tensor_bytes& bytes) {
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
      const auto place = place_in_safetensors(name, t.shape.size());
      if (place.is_prediction) {
        out.prediction_bytes += t.described_bytes;
        continue;
      }
      const auto wished = bytes.find(name);
      if (!bytes.empty() && wished == bytes.end() && place.is_of_experts() && t.shape.size() > 1)
        refuse_input(path.string(), "tensor '" + printable(name, 120) + "'",
                     "has no known role: --weights needs it", "a config.json beside it");
      add_tensor(name, place, t.shape.empty() ? 0 : t.shape.front(), t.offset,
                 wished == bytes.end() ? t.described_bytes : wished->second, out);
      if (place.layer && !place.is_of_experts() && t.shape.size() == 3 && t.shape[1] > 1)
        out.layers[*place.layer].other_stacks[std::string(place.rest)] = {
            0, t.shape[0], {out.paths.size() - 1, t.offset, t.described_bytes}};
      // A single column is bitsandbytes' packing: its rows are not the weight's.
      const bool has_rows = t.described_bytes > 0 && t.shape.size() == 2 && t.shape.back() > 1;
      if (place.layer)
        read_attention(place.rest, has_rows ? t.shape.front() : 0, out.layers[*place.layer]);
    }
  }
  finish(out);
  return out;
}

stored_weights read_gguf_weights(const fs::path& path, std::span<const gguf_file> parts,
                                 const tensor_bytes& bytes) {
  stored_weights out{.model = path.string()};
  for (const auto& part : parts) {
    add_file(part.path(), part.missing_bytes(), out);
    for (const auto& t : part.tensors()) {
      const auto place = place_in_gguf(t.name);
      if (place.is_prediction) out.prediction.insert(*place.layer);
      const auto wished = bytes.find(t.name);
      add_tensor(t.name, place, t.dimensions.empty() ? 0 : t.dimensions.back(), t.offset,
                 wished == bytes.end() ? t.bytes : wished->second, out);
      if (place.layer)
        read_attention(place.rest, t.dimensions.size() == 2 ? t.dimensions[1] : 0,
                       out.layers[*place.layer]);
    }
  }
  finish(out);
  return out;
}

}  // namespace hotset::lab
