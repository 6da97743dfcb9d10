// SPDX-License-Identifier: Apache-2.0
#include "lab/models/layer_kinds.hpp"

#include <array>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/registry/parameters.hpp"
#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

using enum layer_kind;
using kinds = std::vector<layer_kind>;

struct layer_word {
  std::string_view words;  ///< separated by spaces
  layer_kind kind;
};
/// One translation for lists of words and for patterns of letters.
constexpr auto layer_words = std::to_array<layer_word>({
    {"full_attention attention indexed_attention deepseek_sparse_attention minimax_m3_sparse "
     "hybrid "
     "* F G",
     full},
    {"sliding_attention hybrid_sliding S L", sliding},
    {"chunked_attention C", chunked},
    {"linear_attention mamba M", recurrent},
    {"conv short_conv", convolution},
    {"moe E", experts},
    {"mlp -", mlp},
    {"compressed_sparse_attention", pooled},
    {"heavily_compressed_attention", pooled_far},
});
/// Lists of words, and patterns with a letter a layer.
constexpr std::array<std::string_view, 3> word_keys = {"layer_types", "layers_block_type",
                                                       "hybrid_override_pattern"};

/// A list of numbers with one kind for 0, and one for other numbers.
struct number_key {
  std::string_view key;
  layer_kind zero, other;
};
constexpr std::array number_keys = {number_key{"attn_type_list", recurrent, full},
                                    number_key{"hybrid_layer_pattern", full, sliding},
                                    number_key{"sliding_window_layout", full, sliding},
                                    number_key{"no_rope_layers", full, chunked}};

/// A period: layers `offset`, `offset + period`, ... have full attention. Without an offset: the last one of each.
struct period_key {
  std::string_view key, offset_key;
  layer_kind other;
};
constexpr std::array period_keys = {period_key{"full_attention_interval", {}, recurrent},
                                    period_key{"layer_group_size", {}, recurrent},
                                    period_key{"attn_layer_period", "attn_layer_offset", recurrent},
                                    period_key{"global_attn_every_n_layers", {}, sliding},
                                    period_key{"sliding_window_pattern", {}, sliding},
                                    period_key{"no_rope_layer_interval", {}, chunked}};

layer_kind kind_of(const config_keys& keys, std::string_view key, std::size_t layer,
                   std::string_view word, const std::string& otherwise) {
  std::vector<std::string_view> known;
  for (const auto& [words, kind] : layer_words)
    for (const auto one : detail::split_at(words, ' ')) {
      if (one == word) return kind;
      if (one.size() > 1) known.push_back(one);
    }
  if (otherwise.empty()) return full;
  keys.refuse(key, fmt::format("entry {} is '{}'", layer, printable(word, 60)),
              fmt::format("{}{}", fmt::join(known, ", "), otherwise));
}

/// The words of a key: an array, or a letter each of a string.
std::optional<std::vector<std::string>> words_of(const config_keys& keys, std::string_view key) {
  const auto* const value = keys.find(key);
  if (value == nullptr || value->is_number()) return std::nullopt;  // a period
  if (!value->is_string()) return keys.words(key);
  std::vector<std::string> out;
  for (const char letter : value->get_ref<const std::string&>()) out.emplace_back(1, letter);
  return out;
}

/// Refuses a list that is shorter than the model.
void need_length(const config_keys& keys, std::string_view key, std::size_t found,
                 std::size_t layers) {
  if (found < layers)
    keys.refuse(key, fmt::format("has {} entries", found), fmt::format("one a layer ({})", layers));
}

/// Lists of layers with full attention: LFM2 counts from 0, Kimi from 1.
std::optional<kinds> kinds_by_layer_numbers(const config_keys& keys, std::size_t layers) {
  const auto by = [&](const std::vector<std::uint64_t>& full_layers, std::uint64_t first,
                      layer_kind other) {
    kinds out(layers, other);
    for (const auto number : full_layers)
      if (number >= first && number - first < layers)
        out[static_cast<std::size_t>(number - first)] = full;
    return out;
  };
  if (const auto listed = keys.numbers("full_attn_idxs")) return by(*listed, 0, convolution);
  const auto* const linear = keys.object("linear_attn_config");
  if (linear == nullptr) return std::nullopt;
  const auto listed = config_keys(*linear, *linear, keys.file()).numbers("full_attn_layers");
  return listed ? std::optional(by(*listed, 1, recurrent)) : std::nullopt;
}

std::optional<kinds> kinds_by_period(const config_keys& keys, std::size_t layers) {
  for (const auto& one : period_keys) {
    const auto period = keys.number(one.key);
    if (!period) continue;
    const auto offset = one.offset_key.empty() ? *period - 1 : keys.need(one.offset_key, 0);
    // Ring's last layers, which fill no group, have attention.
    const auto whole = one.key == "layer_group_size" ? layers / *period * *period : layers;
    kinds out;
    for (std::size_t i = 0; i < layers; ++i)
      out.push_back(i % *period == offset || i >= whole ? full : one.other);
    return out;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> listed_layers(const config_keys& keys) {
  for (const auto key : word_keys)
    if (const auto listed = words_of(keys, key)) return listed->size();
  return std::nullopt;
}

std::vector<layer_kind> layer_kinds(const config_keys& keys, std::size_t layers,
                                    std::string_view usual, const std::string& otherwise) {
  kinds out;
  const auto add = [&](std::string_view key, std::string_view word) {
    out.push_back(kind_of(keys, key, out.size(), word, otherwise));
  };
  for (const auto key : word_keys)
    if (const auto listed = words_of(keys, key)) {
      need_length(keys, key, listed->size(), layers);
      for (std::size_t i = 0; i < layers; ++i) add(key, (*listed)[i]);
      return out;
    }
  constexpr std::string_view repeats = "sliding_window_pattern";
  if (const auto letters = words_of(keys, repeats); letters && !letters->empty()) {
    for (std::size_t i = 0; i < layers; ++i) add(repeats, (*letters)[i % letters->size()]);
    return out;
  }
  for (const auto& one : number_keys) {
    const auto listed = keys.numbers(one.key);
    if (!listed || listed->empty()) continue;
    need_length(keys, one.key, listed->size(), layers);
    for (std::size_t i = 0; i < layers; ++i) {
      if ((*listed)[i] > 1)
        keys.refuse(one.key, fmt::format("entry {} is {}", i, (*listed)[i]), "0 or 1");
      out.push_back((*listed)[i] == 0 ? one.zero : one.other);
    }
    return out;
  }
  if (auto numbered = kinds_by_layer_numbers(keys, layers)) return *std::move(numbered);
  if (auto periodic = kinds_by_period(keys, layers)) return *std::move(periodic);
  for (std::size_t i = 0; i < layers && !usual.empty(); ++i)
    add("model_type", usual.substr(i % usual.size(), 1));
  return out;
}

}  // namespace hotset::lab
