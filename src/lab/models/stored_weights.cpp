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
#include "lab/models/expert_names.hpp"
#include "lab/traces/text_scan.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;
using tensor = safetensors_file::tensor;

constexpr std::string_view ending = ".safetensors";

/// "3" of "model-00001-of-00003.safetensors"; nothing for the name of a whole file.
std::optional<std::uint64_t> parts_of(std::string_view name) {
  const auto of = name.rfind("-of-");
  if (!name.ends_with(ending) || of == std::string_view::npos) return std::nullopt;
  name.remove_suffix(ending.size());
  return of + 4 < name.size() ? parse_number<std::uint64_t>(name.substr(of + 4)) : std::nullopt;
}

std::vector<fs::path> listed_files(const fs::path& index) {
  constexpr std::size_t most = std::size_t{256} << 20U;  // of each tensor a line
  constexpr std::string_view accepted = "an object: tensor -> file name";
  const mapped_file map(index);
  const auto json = parse_json_object(map.text(), index.string(),
                                      "an index of .safetensors files, a JSON object", most);
  const auto refuse = [&](const std::string& found) {
    refuse_input(index.string(), "key 'weight_map'", found, accepted);
  };
  const auto files_of = json.find("weight_map");
  if (files_of == json.end() || !files_of->is_object() || files_of->empty())
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
    const auto parts = parts_of(file.filename().string());
    if (parts && *parts != files.size())
      refuse_input(folder.string(), "", fmt::format("holds {} {} files", files.size(), ending),
                   fmt::format("all {} parts, and no other", *parts));
  }
  return files;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Elements of a token that a projection makes for the cache; 0 for any other tensor.
std::uint64_t kv_rows(std::string_view rest, const tensor& t) {
  constexpr std::array<std::string_view, 8> names = {
      "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.kv_a_proj_with_mqa.weight",
      "mixer.k_proj.weight",     "mixer.v_proj.weight",     "attention.wk.weight",
      "attention.wv.weight",     "attn.wkv_a.weight"};
  const bool is_one = std::ranges::find(names, rest) != names.end();
  // One column is bitsandbytes' way to pack a weight: its rows are not the weight's.
  const bool has_rows = t.described_bytes > 0 && t.shape.size() == 2 && t.shape.back() > 1;
  return is_one && has_rows ? t.shape.front() : 0;
}

void add_stacked(const std::string& file, const std::string& name, const tensor& t,
                 stored_layer& layer) {
  const auto experts = t.shape.empty() ? 0 : t.shape.front();
  const auto others = layer.stacked_experts;
  if (experts == 0 || (others != 0 && others != experts) || t.described_bytes % experts != 0)
    refuse_input(file, "tensor '" + name + "'", fmt::format("stacks {} experts", experts),
                 others == 0 ? "1 or more of equal size"
                             : fmt::format("{}, as other tensors of its layer", others));
  layer.stacked_experts = experts;
  layer.stacked_bytes += t.described_bytes;
}

void add_file(const fs::path& path, std::set<std::string>& seen, stored_weights& out) {
  const safetensors_file file(path, file_extent::header);
  if (file.missing_bytes() > 0) ++out.cut_files;
  out.missing_bytes += file.missing_bytes();
  for (const auto& name : file.names()) {
    const auto& t = file.at(name);
    if (!seen.insert(name).second)
      refuse_input(path.string(), "tensor '" + printable(name, 120) + "'",
                   "is in another file of the model, too", "each tensor once");
    const auto place = place_in_safetensors(name);
    if (!place.is_of_experts() &&
        (out.largest_other.empty() || t.described_bytes > out.largest_other_bytes)) {
      out.largest_other = name;
      out.largest_other_bytes = t.described_bytes;
    }
    if (!place.layer) {
      out.resident_bytes += t.described_bytes;
      continue;
    }
    auto& layer = out.layers[*place.layer];
    if (place.expert)
      layer.experts[*place.expert] += t.described_bytes;
    else if (place.is_stacked)
      add_stacked(path.string(), name, t, layer);
    else
      layer.resident_bytes += t.described_bytes;
    layer.kv_elements += kv_rows(place.rest, t);
  }
}

}  // namespace

std::uint64_t stored_weights::experts() const noexcept {
  for (const auto& [number, layer] : layers)
    if (layer.is_moe())
      return layer.stacked_experts > 0 ? layer.stacked_experts : layer.experts.size();
  return 0;
}

std::vector<std::uint64_t> stored_weights::expert_bytes(std::uint64_t experts,
                                                        const std::string& file) const {
  std::vector<std::uint64_t> bytes;
  for (const auto& [number, layer] : layers) {
    if (!layer.is_moe()) continue;
    const auto place = fmt::format("layer {}", number);
    const auto apart = static_cast<std::uint64_t>(layer.experts.size());
    if ((apart != 0 && apart != experts) ||
        (layer.stacked_experts != 0 && layer.stacked_experts != experts))
      refuse_input(file, place,
                   fmt::format("has {} experts", apart != 0 ? apart : layer.stacked_experts),
                   fmt::format("{}, in every layer (is a file missing?)", experts));
    if (apart != 0 && layer.experts.rbegin()->first >= experts)
      refuse_input(file, place, fmt::format("has an expert {}", layer.experts.rbegin()->first),
                   fmt::format("0..{}", experts - 1));
    const auto first = apart == 0 ? 0 : layer.experts.begin()->second;
    for (const auto& [expert, size] : layer.experts)
      if (size != first)
        refuse_input(file, place, fmt::format("expert {} has {} bytes", expert, size),
                     fmt::format("{}, as the first one", first));
    bytes.push_back(first + layer.stacked_bytes / experts);
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
  if (is_there(path / "model.safetensors")) return {path / "model.safetensors"};
  const auto index = path / "model.safetensors.index.json";
  return is_there(index) ? listed_files(index) : every_file(path);
}

stored_weights read_safetensors_weights(const std::vector<fs::path>& files) {
  stored_weights out;
  std::set<std::string> seen;
  for (const auto& file : files) add_file(file, seen, out);
  return out;
}

}  // namespace hotset::lab
