// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/expert_files.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/files/gguf.hpp"
#include "lab/files/gguf_parts.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/models/expert_names.hpp"
#include "lab/models/stored_weights.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t most_experts = std::uint64_t{1} << 20U;

/// Experts that lie one behind the other in one tensor.
struct expert_run {
  std::uint64_t first = 0;
  std::uint64_t count = 1;
  hotset::file_extent extent;
};
/// The tensors of one layer by part: "up_proj.weight" of each expert, or of all.
using layer_parts = std::map<std::string, std::vector<expert_run>>;

std::uint64_t experts_of(const std::vector<expert_run>& runs) {
  std::uint64_t out = 0;
  for (const auto& run : runs) out += run.count;
  return out;
}

class finder {
 public:
  explicit finder(std::string model) : model_(std::move(model)) {}

  void add_path(const fs::path& path) { out_.paths.push_back(path.string()); }
  void set_top_k(std::uint64_t k) { top_k_ = k; }
  /// A tensor of so many routed experts.
  void add(const std::string& name, const tensor_place& place, std::uint64_t stacked,
           const hotset::file_extent& extent) {
    if (stacked == 0 || extent.bytes == 0 || extent.bytes % stacked != 0)
      refuse_input(out_.paths[extent.file], "tensor '" + printable(name) + "'",
                   fmt::format("stacks {} experts in {} bytes", stacked, extent.bytes),
                   "1 or more of equal size, of 1 byte or more");
    layers_[*place.layer][std::string(place.part)].push_back(
        {place.expert.value_or(0), stacked, extent});
  }
  /// Its tensors are nobody's.
  void leave_out(std::uint64_t layer) { left_out_.insert(layer); }

  expert_files finish() {
    for (const auto layer : left_out_) layers_.erase(layer);
    if (layers_.empty())
      refuse_input(model_, "", "has no tensors of routed experts", "a Mixture-of-Experts model");
    const auto experts = experts_of(layers_.begin()->second.begin()->second);
    if (experts > most_experts / layers_.size())
      refuse_input(model_, "", fmt::format("has {} layers of {} experts", layers_.size(), experts),
                   fmt::format("at most {} experts in all", most_experts));
    for (auto& [number, parts] : layers_) add_layer(number, parts, experts);
    out_.shape.layers = static_cast<std::int32_t>(layers_.size());
    out_.shape.experts = static_cast<std::int32_t>(experts);
    out_.shape.top_k = static_cast<std::int32_t>(std::clamp<std::uint64_t>(top_k_, 1, experts));
    if (const auto bad = out_.shape.validate()) refuse_input(model_, "", bad->message, "");
    return std::move(out_);
  }

 private:
  void add_layer(std::uint64_t number, layer_parts& parts, std::uint64_t experts) {
    if (parts.size() > expert_layout::max_tensors)
      refuse_input(model_, fmt::format("layer {}", number),
                   fmt::format("has experts of {} tensors", parts.size()),
                   fmt::format("1..{}", expert_layout::max_tensors));
    expert_layout layout;
    auto& all = out_.extents.emplace_back(experts * parts.size());
    for (auto& [part, runs] : parts) {
      const auto bytes =
          check_runs(fmt::format("layer {}, '{}'", number, printable(part)), runs, experts);
      for (const auto& run : runs)
        for (std::uint64_t e = 0; e < run.count; ++e)
          all[(run.first + e) * parts.size() + layout.tensors.size()] = {
              run.extent.file, run.extent.offset + e * bytes, bytes};
      layout.tensors.push_back({part, bytes});
    }
    out_.layers.push_back(number);
    out_.shape.expert_bytes.push_back(layout.bytes());
    out_.shape.layer_size_class.push_back(class_of(std::move(layout)));
  }
  /// That they are each expert's, once, and of one size, which is returned. Sorts them.
  std::uint64_t check_runs(const std::string& place, std::vector<expert_run>& runs,
                           std::uint64_t experts) const {
    std::ranges::sort(runs, {}, &expert_run::first);
    const auto bytes = runs.front().extent.bytes / runs.front().count;
    std::uint64_t next = 0;
    for (const auto& run : runs) {
      if (run.first != next)
        refuse_input(model_, place,
                     fmt::format("has expert {} where {} should be", run.first, next),
                     "each expert once (is a file missing?)");
      if (run.extent.bytes / run.count != bytes)
        refuse_input(model_, place,
                     fmt::format("expert {} has {} bytes", run.first, run.extent.bytes / run.count),
                     fmt::format("{}, as expert 0", bytes));
      next += run.count;
    }
    if (next != experts)
      refuse_input(model_, place, fmt::format("is of {} experts", next),
                   fmt::format("{}, as elsewhere (is a file missing?)", experts));
    return bytes;
  }
  size_class_id class_of(expert_layout layout) {
    const auto same = [&](const expert_layout& other) {
      return std::ranges::equal(layout.tensors, other.tensors, [](const auto& a, const auto& b) {
        return a.name == b.name && a.bytes == b.bytes;
      });
    };
    const auto found = std::ranges::find_if(out_.layouts, same);
    const auto at = found - out_.layouts.begin();
    if (found == out_.layouts.end()) out_.layouts.push_back(std::move(layout));
    return static_cast<size_class_id>(at);
  }

  std::string model_;
  expert_files out_;
  std::map<std::uint64_t, layer_parts> layers_;
  std::set<std::uint64_t> left_out_;
  std::uint64_t top_k_ = 1;
};

std::uint64_t scalar(const gguf_file& file, const std::string& key, std::uint64_t otherwise) {
  const auto* const value = file.find(key);
  return value == nullptr || value->is_array ? otherwise : value->natural().value_or(otherwise);
}

void add_gguf(const gguf_file& file, std::size_t at, finder& found) {
  found.add_path(file.path());
  if (at == 0) {
    const auto* const architecture = file.find("general.architecture");
    const auto name = architecture == nullptr ? std::nullopt : architecture->text();
    found.set_top_k(name ? scalar(file, std::string(*name) + ".expert_used_count", 1) : 1);
  }
  for (const auto& t : file.tensors()) {
    const auto place = place_in_gguf(t.name);
    if (place.layer && place.rest.starts_with("nextn.")) found.leave_out(*place.layer);
    if (place.is_of_experts())
      found.add(t.name, place, t.dimensions.back(), {at, t.offset, t.bytes});
  }
}

void add_safetensors(const fs::path& path, std::size_t at, finder& found) {
  found.add_path(path);
  const safetensors_file file(path);
  for (const auto& name : file.names()) {
    const auto place = place_in_safetensors(name);
    if (!place.is_of_experts()) continue;
    const auto& t = file.at(name);
    const auto stacked = !place.is_stacked ? 1 : t.shape.empty() ? 0 : t.shape.front();
    found.add(name, place, stacked, {at, t.offset, t.described_bytes});
  }
}

}  // namespace

expert_files find_experts(const fs::path& path) {
  finder found(path.string());
  if (path.extension() == ".gguf") {
    const auto parts = open_gguf_parts(path);
    for (std::size_t i = 0; i < parts.size(); ++i) add_gguf(parts[i], i, found);
    return found.finish();
  }
  const auto files = find_safetensors(path);
  if (files.empty())
    refuse_input(path.string(), "", "holds no weights",
                 "a .gguf or .safetensors file, or a folder of .safetensors files");
  for (std::size_t i = 0; i < files.size(); ++i) add_safetensors(files[i], i, found);
  return found.finish();
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
