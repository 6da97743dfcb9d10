// SPDX-License-Identifier: Apache-2.0
#include "lab/models/vision_towers.hpp"

#include <string_view>
#include <vector>

namespace hotset::lab {
namespace {

std::uint64_t need_small(const config_keys& keys, std::string_view key) {
  return keys.need(key, 1, 65536);
}

/// MoonViT and its projector: every linear layer and norm has a bias.
std::uint64_t kimi_vision(const config_keys& keys, std::uint64_t text_width) {
  const auto h = need_small(keys, "hidden_size");
  const auto width = need_small(keys, "intermediate_size");
  const auto patch = need_small(keys, "patch_size");
  const auto positions =
      need_small(keys, "init_pos_emb_height") * need_small(keys, "init_pos_emb_width");
  const auto merge = keys.numbers("merge_kernel_size").value_or(std::vector<std::uint64_t>{2, 2});
  if (merge.size() != 2 || merge[0] * merge[1] == 0 || merge[0] > 16 || merge[1] > 16)
    keys.refuse("merge_kernel_size", "is no pair of small integers", "[rows, columns] in 1..16");
  const auto layer = 4 * h * h + 4 * h + 2 * h * width + width + h + 4 * h;
  const auto tower = need_small(keys, "num_hidden_layers") * layer + positions * h +
                     3 * h * patch * patch + h + 2 * h;
  const auto joined = merge[0] * merge[1] * h;
  const auto projector = 2 * h + joined * joined + joined + joined * text_width + text_width;
  return tower + projector;
}

/// Llama 4's tower, its adapter and the projector, all without bias.
std::uint64_t llama4_vision(const config_keys& keys, std::uint64_t text_width) {
  const auto h = need_small(keys, "hidden_size");
  const auto width = need_small(keys, "intermediate_size");
  const auto patch = need_small(keys, "patch_size");
  const auto side = need_small(keys, "image_size") / patch;
  const auto out = need_small(keys, "projector_output_dim");
  const auto layer = 4 * (h * h + h) + 2 * h * width + width + h + 4 * h;
  const auto tower = need_small(keys, "num_hidden_layers") * layer + 3 * h * patch * patch + h +
                     (side * side + 1) * h + 4 * h;
  return tower + width * need_small(keys, "projector_input_dim") + out * out +
         need_small(keys, "vision_output_dim") * text_width;
}

}  // namespace

std::optional<std::uint64_t> vision_elements(std::string_view type, const config_keys& vision,
                                             std::uint64_t text_width) {
  if (type == "kimi_vl") return kimi_vision(vision, text_width);
  if (type == "llama4") return llama4_vision(vision, text_width);
  return std::nullopt;
}

}  // namespace hotset::lab
