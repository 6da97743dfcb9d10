// SPDX-License-Identifier: Apache-2.0
#include "model_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "ggml-backend.h"

namespace hotset_llama_cpp {

using namespace hotset;

namespace {

constexpr const char* the_file = ", accepted: the file that the model was loaded from";

std::string tensor_of(const lab::expert_files& files, layer_id l, const std::string& name) {
  return "blk." + std::to_string(files.layers[index_of(l)]) + "." + name;
}

bool is_matrix_or_bias(const tensor_layout& t) {
  return t.name.ends_with(".weight") || t.name.ends_with(".bias");
}

validation check_weight(const std::string& name, const expert_weight* w, const tensor_layout& t,
                        std::int32_t experts) {
  if (w == nullptr)
    return error{"the context does not use " + name + " by the ids that its router chose" +
                 the_file};
  if (w->bytes != t.bytes || w->experts != experts)
    return error{name + " has " + std::to_string(w->experts) + " experts of " +
                 std::to_string(w->bytes) + " bytes, in the file " + std::to_string(experts) +
                 " of " + std::to_string(t.bytes) + the_file};
  if (w->tensor->buffer == nullptr || !ggml_backend_buffer_is_host(w->tensor->buffer))
    return error{name +
                 " is not in host memory as the file has it, accepted: use_extra_bufts = false, "
                 "and experts that are not offloaded (n_gpu_layers = 0, or --cpu-moe)"};
  return std::nullopt;
}

}  // namespace

const expert_layout& layout_of(const lab::expert_files& files, layer_id l) {
  return files.layouts[index_of(files.shape.size_classes()[index_of(l)])];
}

result<lab::expert_files> matrices_and_biases(lab::expert_files files) {
  const auto classes = files.shape.size_classes();
  for (std::size_t l = 0; l < files.layers.size(); ++l) {
    const auto& tensors = files.layouts[index_of(classes[l])].tensors;
    std::vector<file_extent> kept;
    for (std::size_t i = 0; i < files.extents[l].size(); ++i)
      if (is_matrix_or_bias(tensors[i % tensors.size()])) kept.push_back(files.extents[l][i]);
    files.extents[l] = std::move(kept);
  }
  for (auto& layout : files.layouts)
    std::erase_if(layout.tensors, [](const auto& t) { return !is_matrix_or_bias(t); });
  if (std::ranges::any_of(files.layouts, [](const auto& l) { return l.tensors.empty(); }))
    return error{files.paths.front() + " has no matrices of experts" + the_file};
  files.shape.expert_bytes.clear();
  for (const auto c : classes)
    files.shape.expert_bytes.push_back(files.layouts[index_of(c)].bytes());
  return files;
}

result<layer_weights> match(const lab::expert_files& files, const weight_finder& found) {
  layer_weights out;
  for (const auto l : each<layer_id>(files.shape.layers)) {
    auto& of_layer = out.emplace_back();
    for (const auto& t : layout_of(files, l).tensors) {
      const auto* const w =
          found.find(static_cast<std::int32_t>(files.layers[index_of(l)]), t.name);
      if (auto bad = check_weight(tensor_of(files, l, t.name), w, t, files.shape.experts))
        return *std::move(bad);
      of_layer.push_back(*w);
    }
  }
  return out;
}

validation compare_bytes(const lab::expert_files& files, const layer_weights& weights) {
  const auto source = lab::open_experts(files);
  std::array<std::byte, 4096> read{};
  for (const auto l : each<layer_id>(files.shape.layers))
    for (const auto e : each<expert_id>(files.shape.experts)) {
      const auto& of_layer = weights[index_of(l)];
      const auto t = (index_of(l) + index_of(e)) % of_layer.size();
      const auto& w = of_layer[t];
      const auto bytes = std::span(read).first(std::min(read.size(), w.bytes));
      if (!source.read({l, e}, {}, t, 0, bytes)) return error{source.problem()};
      if (std::memcmp(bytes.data(),
                      static_cast<const std::byte*>(w.tensor->data) + index_of(e) * w.bytes,
                      bytes.size()) != 0)
        return error{tensor_of(files, l, layout_of(files, l).tensors[t].name) + ", expert " +
                     to_string(e) + " has other bytes in " + files.paths[files.at({l, e})[t].file] +
                     " than in the model" + the_file};
    }
  return std::nullopt;
}

}  // namespace hotset_llama_cpp
