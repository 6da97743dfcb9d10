// SPDX-License-Identifier: Apache-2.0
#include "lab/models/expert_names.hpp"

#include <algorithm>
#include <array>

#include "lab/traces/text_scan.hpp"

namespace hotset::lab {
namespace {

/// Takes the number and the point behind it off the front of text.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  const auto part = text.substr(0, text.find('.'));
  const auto number = parse_number<std::uint64_t>(part);
  if (number) text.remove_prefix(std::min(text.size(), part.size() + 1));
  return number;
}

/// "ffn_up_exps" and its like.
bool stacks_experts(std::string_view part) {
  constexpr std::array<std::string_view, 8> parts = {
      "ffn_up_exps",   "ffn_down_exps",   "ffn_gate_exps",   "ffn_gate_up_exps",
      "ffn_up_chexps", "ffn_down_chexps", "ffn_gate_chexps", "ffn_gate_up_chexps"};
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

/// The name behind "layers." of the decoder; nothing for another name, such as that of a vision tower's layer.
std::optional<std::string_view> behind_layers(std::string_view name) {
  constexpr std::string_view layers = "layers.";
  if (name.starts_with(layers)) return name.substr(layers.size());
  for (const std::string_view before :
       {"language_model.layers.", "model.layers.", "backbone.layers."})
    if (const auto at = name.find(before); at == 0 || (at != name.npos && name[at - 1] == '.'))
      return name.substr(at + before.size());
  return std::nullopt;
}

}  // namespace

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
    const bool is_folder = stack.ends_with('.');  // else one weight, which is its own part
    out.part = out.rest.substr(is_folder ? at + stack.size() : at);
    if (stack == "experts.") out.expert = take_number(out.part);
    out.is_stacked = !out.expert;
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
  if (!out.layer || !stacks_experts(out.rest.substr(0, out.rest.find('.')))) return out;
  out.is_stacked = true;
  out.part = out.rest;
  return out;
}

}  // namespace hotset::lab
