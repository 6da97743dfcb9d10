// SPDX-License-Identifier: Apache-2.0
// Memory model of a GGUF file: sizes from its tensors, the KV cache from its metadata.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/gguf.hpp"
#include "lab/files/gguf_parts.hpp"
#include "lab/files/input_error.hpp"
#include "lab/models/config_keys.hpp"
#include "lab/models/hf_config.hpp"
#include "lab/models/model_description.hpp"
#include "lab/models/model_weights.hpp"
#include "lab/models/stored_weights.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

constexpr std::uint64_t most_blocks = 65536;

/// Values of general.architecture with a known cache; MoE files of "llama" are Mixtral's.
constexpr std::array<std::string_view, 17> architectures = {
    "olmoe",        "llama",       "llama4",     "qwen2moe", "qwen3moe", "qwen3vlmoe",
    "qwen3next",    "phimoe",      "deepseek2",  "jamba",    "glm4moe",  "dots1",
    "ernie4_5-moe", "hunyuan-moe", "minimax-m2", "gpt-oss",  "llada-moe"};

std::string architecture_of(const gguf_file& file, const std::string& name) {
  constexpr std::string_view key = "general.architecture";
  const auto* const value = file.find(key);
  const auto text = value == nullptr ? std::nullopt : value->text();
  if (text && std::ranges::find(architectures, *text) != architectures.end())
    return std::string(*text);
  refuse_input(
      name, fmt::format("key '{}'", key),
      text ? "is '" + printable(*text, 60) + "'" : std::string("is missing, or no string"),
      fmt::format("by hand {}; or one of {}", hand_options, fmt::join(architectures, ", ")));
}

/// An integer, an array of integers, or a flag. Other values become a text, which readers refuse.
json value_of(const gguf_file::value& value) {
  if (value.count > most_blocks) return fmt::format("{} entries", value.count);
  const auto entry = [&](std::uint64_t i) {
    const auto number = value.natural(i);
    return number ? json(*number) : json("no integer of 0 or more");
  };
  if (!value.is_array)
    return value.type == gguf_file::value_type::boolean ? json(value.natural() == 1) : entry(0);
  auto out = json::array();
  for (std::uint64_t i = 0; i < value.count; ++i) out.push_back(entry(i));
  return out;
}

/// The architecture's keys that this file reads.
json metadata_of(const gguf_file& file, const std::string& architecture) {
  auto out = json::object();
  for (const auto* key : {"expert_count",
                          "expert_used_count",
                          "context_length",
                          "block_count",
                          "embedding_length",
                          "attention.causal",
                          "attention.head_count",
                          "attention.head_count_kv",
                          "attention.key_length",
                          "attention.key_length_swa",
                          "attention.value_length",
                          "attention.value_length_swa",
                          "attention.kv_lora_rank",
                          "attention.key_length_mla",
                          "attention.sliding_window",
                          "attention.sliding_window_pattern",
                          "full_attention_interval",
                          "ssm.inner_size",
                          "ssm.state_size",
                          "ssm.conv_kernel",
                          "ssm.group_count"})
    if (const auto* const value = file.find(fmt::format("{}.{}", architecture, key)))
      out[key] = value_of(*value);
  return out;
}

void take_weights(stored_weights stored, std::uint64_t blocks, model_description& out) {
  auto& m = out.memory;
  if (stored.experts() == 0)
    refuse_input(stored.model, "", "has no tensor blk.*.ffn_*_exps",
                 "stacked experts (files of before 2024 lie otherwise: convert them again)");
  stored.check_experts(static_cast<std::uint64_t>(m.experts.experts));
  m.blocks.resize(blocks, {.is_moe = false});
  for (const auto& [number, layer] : stored.layers) {
    if (layer.is_moe() && number >= blocks)
      refuse_input(stored.model, fmt::format("layer {}", number), "has experts",
                   fmt::format("layers 0..{}, by block_count", blocks - 1));
    if (layer.is_moe()) ++m.experts.layers;
    if (number < blocks)
      m.blocks[number] = {.is_moe = layer.is_moe(), .resident_bytes = layer.resident_bytes};
  }
  // block_count may include multi-token prediction blocks, which come last.
  while (!m.blocks.empty() && stored.prediction.contains(m.blocks.size() - 1)) m.blocks.pop_back();
  if (const auto count = stored.prediction.size(); count > 0)
    out.notes.push_back(prediction_note(count));
  m.experts.expert_bytes = by_layer(stored.expert_bytes());
  m.resident_bytes = stored.all_resident_bytes();
}

/// Reads the KV cache, windows and recurrent state of each block.
class cache_reader {
 public:
  cache_reader(std::string_view architecture, const config_keys& keys, std::uint64_t blocks,
               model_description& out)
      : architecture_(architecture), keys_(keys), blocks_(blocks), out_(out), m_(out.memory) {}

  void read() {
    const auto windowed = windowed_blocks();
    const auto heads = by_block("attention.head_count", {});
    const auto kv_heads = by_block("attention.head_count_kv", heads);
    std::uint64_t recurrent = 0;
    for (std::size_t b = 0; b < m_.blocks.size(); ++b) {
      if (!windowed.empty() && windowed[b] != 0) m_.blocks[b].window = window_;
      if (!kv_heads.empty() && kv_heads[b] != 0 && !is_delta(b)) {
        const auto elements =
            elements_of_head(m_.blocks[b].window > 0, heads.empty() ? 0 : heads[b]);
        m_.blocks[b].kv_bytes_per_token = kv_bytes_of(kv_heads[b] * elements, out_.kv_bits);
      }
      if (m_.blocks[b].kv_bytes_per_token == 0) ++recurrent;
    }
    if (recurrent > 0) read_state(recurrent);
    m_.kv = kv_of(m_.blocks);
    if (is_latent())
      out_.notes.emplace_back(
          "latent attention: keys alone are kept; older builds also keep values");
    else if (keys_.find("attention.kv_lora_rank") != nullptr)
      out_.notes.emplace_back(
          "latent attention in an older form: whole keys and values are kept; convert the file "
          "again to keep one vector a token and layer");
  }

 private:
  using numbers = std::vector<std::uint64_t>;

  /// One number per block, from a list or from one number for all.
  [[nodiscard]] numbers by_block(std::string_view key, numbers otherwise) const {
    const auto* const value = keys_.find(key);
    if (value == nullptr) return otherwise;
    if (value->is_array()) return *keys_.numbers(key, blocks_);
    return numbers(blocks_, *keys_.number(key, 0));
  }
  /// Elements per token and head of the keys, and of the values unless the attention is latent: from a key, or an
  /// even share of the width.
  [[nodiscard]] std::uint64_t elements_of_head(bool windowed, std::uint64_t heads) const {
    const auto length = [&](const std::string& key) {
      if (windowed)
        if (const auto own = keys_.number(key + "_swa", 0)) return *own;
      if (const auto given = keys_.number(key, 0)) return *given;
      if (heads == 0) keys_.refuse("attention.head_count", "is missing or 0", "1 or more");
      return keys_.need("embedding_length") / heads;
    };
    return length("attention.key_length") + (is_latent() ? 0 : length("attention.value_length"));
  }
  /// In Qwen3-Next the last block of each interval has attention; the others have Gated DeltaNet.
  [[nodiscard]] bool is_delta(std::size_t block) const {
    return architecture_ == "qwen3next" &&
           (block + 1) % keys_.number("full_attention_interval").value_or(4) != 0;
  }
  [[nodiscard]] bool is_latent() const {
    return keys_.find("attention.kv_lora_rank") != nullptr &&
           keys_.find("attention.key_length_mla") != nullptr;
  }

  /// Empty if no block has a window. A pattern is either a flag for each block, or a period whose last block has no
  /// window.
  [[nodiscard]] numbers windowed_blocks() {
    // Llama 4 attends in chunks except in every fourth block; llama.cpp does so without a key.
    const bool is_llama4 = architecture_ == "llama4";
    window_ = keys_.number("attention.sliding_window", 0).value_or(is_llama4 ? 8192 : 0);
    if (window_ == 0 || (m_.max_context != 0 && window_ >= m_.max_context)) return {};
    constexpr std::string_view key = "attention.sliding_window_pattern";
    const auto* const pattern = keys_.find(key);
    if (pattern == nullptr && architecture_ != "gpt-oss" && !is_llama4) {
      out_.notes.push_back(
          fmt::format("sliding window {} is not used: no key says of which layers", window_));
      return {};
    }
    numbers out(blocks_);
    if (pattern != nullptr && pattern->is_array()) {
      out = *keys_.numbers(key, blocks_);
    } else {
      const bool alternates = pattern == nullptr && !is_llama4;
      const auto period = keys_.number(key, 0).value_or(4);
      for (std::size_t b = 0; b < blocks_; ++b)
        out[b] = static_cast<std::uint64_t>(alternates ? b % 2 == 0
                                                       : period > 1 && b % period != period - 1);
    }
    out_.notes.push_back(fmt::format(
        "sliding window {} of {} layers; an engine keeps more than the window while it computes",
        window_, std::ranges::count_if(out, [](auto flag) { return flag != 0; })));
    return out;
  }

  /// Reads the recurrent state, in F32 as llama.cpp keeps it.
  void read_state(std::uint64_t recurrent) {
    const auto inner = keys_.need("ssm.inner_size");
    const auto state = keys_.need("ssm.state_size");
    const auto kernel = keys_.need("ssm.conv_kernel");
    // Gated DeltaNet convolves its keys, queries and values; Mamba convolves the input of its scan.
    const auto groups =
        architecture_ == "qwen3next" ? keys_.need("ssm.group_count", 1, most_blocks) : 0;
    const auto convolution = detail::saturating_product(inner + 2 * groups * state, kernel - 1);
    const auto each = detail::saturating_product(
        4, detail::saturating_sum(detail::saturating_product(inner, state), convolution));
    m_.state_bytes_per_sequence = detail::saturating_product(recurrent, each);
    for (auto& block : m_.blocks)
      if (block.kv_bytes_per_token == 0) block.state_bytes = each;
    out_.notes.push_back(
        fmt::format("recurrent state of {} layers in F32, with a convolution state of {} (as "
                    "llama.cpp keeps it)",
                    recurrent, kernel - 1));
  }

  std::string_view architecture_;
  const config_keys& keys_;
  std::uint64_t blocks_;
  std::uint64_t window_ = 0;
  model_description& out_;
  memory_model& m_;
};

}  // namespace

model_description describe_gguf(const std::filesystem::path& path, const model_options& options) {
  const auto name = path.string();
  const auto parts = open_gguf_parts(path, file_extent::header);
  const auto architecture = architecture_of(parts.front(), name);
  const auto given = metadata_of(parts.front(), architecture);
  const config_keys keys(given, given, name, architecture + '.');
  model_description out;
  out.kv_bits = options.kv_bits.value_or(model_options::usual_kv_bits);
  auto& m = out.memory;
  m.name = gguf_name(path);
  const auto experts = keys.number("expert_count", 0, most_experts).value_or(0);
  if (experts < 2)
    keys.refuse("expert_count", fmt::format("is {}: a dense model has no experts to page", experts),
                "2 or more");
  m.experts.experts = static_cast<std::int32_t>(experts);
  m.experts.top_k = static_cast<std::int32_t>(keys.need("expert_used_count", 1, most_experts));
  m.max_context = keys.number("context_length", 0, ~std::uint64_t{0}).value_or(0);
  const auto blocks = keys.need("block_count", 1, most_blocks);
  auto stored = read_gguf_weights(path, parts);
  const auto missing = stored.missing_bytes;
  take_weights(std::move(stored), blocks, out);
  m.is_causal = keys.flag("attention.causal", true);
  if (m.is_causal)
    cache_reader(architecture, keys, blocks, out).read();
  else
    out.notes.emplace_back(
        "no KV cache: the model is not causal, and its plain sampler keeps none");
  if (missing > 0)
    out.notes.push_back(fmt::format("the file is cut short by {}: its header is enough for a plan",
                                    size_text(missing)));
  std::size_t tensors = 0;
  for (const auto& part : parts) tensors += part.tensors().size();
  out.source =
      fmt::format("{}: GGUF {}, {}, {} tensors{}", name, parts.front().version(), architecture,
                  tensors, parts.size() == 1 ? "" : fmt::format(" in {} parts", parts.size()));
  return out;
}

}  // namespace hotset::lab
