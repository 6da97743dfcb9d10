// SPDX-License-Identifier: Apache-2.0
// Memory model of a GGUF file: sizes from its tensors, the KV cache from its metadata.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
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
#include "lab/models/wished_weights.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

constexpr std::uint64_t most_blocks = 65536;

constexpr std::string_view architecture_key = "general.architecture";

/// Mixture-of-Experts architectures of llama.cpp, each with a space on both sides. Any other is read by the same rules,
/// with a note.
constexpr std::string_view known_architectures =
    " afmoe arctic bailingmoe bailingmoe2 bailingmoe3 cohere2moe dbrx deepseek deepseek2 "
    "deepseek2-ocr deepseek32 deepseek4 dots1 dots3note ernie4_5-moe exaone-moe gemma4 glm-dsa "
    "glm4moe glm5-next gpt-oss granite granitehybrid granitemoe granite_swa grok grovemoe "
    "hunyuan-moe hy_v3 hy_v4 jamba kimi-k3 kimi-linear laguna lfm2 lfm2moe llada-moe llama llama4 "
    "maple mellum mimo2 minicpm minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 nemotron_h "
    "nemotron_h_moe olmoe phimoe qwen2moe qwen35moe qwen3moe qwen3next qwen3vlmoe qwen4exp rnd1 "
    "smallthinker step35 ";

/// Windows where no key says of which blocks: all but the last of each period, or its first.
struct window_rule {
  std::string_view architecture;
  std::uint64_t period;
  bool whole_is_first = false;
  std::uint64_t window = 0;  ///< without a key
};
constexpr auto window_rules = std::to_array<window_rule>({{"afmoe", 4},
                                                          {"cohere2moe", 4, true},
                                                          {"exaone-moe", 4, false, 128},
                                                          {"gpt-oss", 2},
                                                          {"laguna", 4, true},
                                                          {"llama4", 4, false, 8192},
                                                          {"mellum", 4},
                                                          {"smallthinker", 4, true}});

/// Blocks with attention where neither tensors nor a key say it: the last of each period.
constexpr std::pair<std::string_view, std::uint64_t> attention_periods[] = {
    {"minimax-01", 8}, {"qwen35moe", 4}, {"qwen3next", 4}, {"qwen4exp", 4}};

std::string architecture_of(const gguf_file& file, const std::string& name) {
  const auto* const value = file.find(architecture_key);
  const auto text = value == nullptr ? std::nullopt : value->text();
  if (text) return std::string(*text);
  refuse_input(name, fmt::format("key '{}'", architecture_key), "is missing, or no string",
               fmt::format("the name of an architecture; or by hand {}", hand_options));
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

/// The architecture's keys, without its name.
json metadata_of(const gguf_file& file, const std::string& architecture) {
  auto out = json::object();
  const auto prefix = architecture + '.';
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(prefix)) out[key.substr(prefix.size())] = value_of(value);
  return out;
}

/// The largest entry of a key that may differ between blocks.
std::optional<std::uint64_t> largest(const config_keys& keys, std::string_view key) {
  const auto* const value = keys.find(key);
  if (value == nullptr || !value->is_array()) return keys.number(key, 0, most_model_experts);
  const auto all = *keys.numbers(key);
  return all.empty() ? std::nullopt : std::optional(std::ranges::max(all));
}

/// Bytes of each tensor in the wished format; nothing without a wish.
tensor_bytes wished(std::string_view weights, std::span<const gguf_file> parts,
                    const config_keys& keys) {
  const auto first = [&](std::string_view key) -> std::uint64_t {
    const auto* const value = keys.find(key);
    if (value == nullptr || !value->is_array()) return keys.number(key, 0).value_or(0);
    const auto all = *keys.numbers(key);
    return all.empty() ? 0 : all.front();
  };
  const auto kv_heads = first("attention.head_count_kv");
  return wish_tensors(weights, parts, first("block_count"),
                      largest(keys, "expert_count").value_or(0),
                      kv_heads == 0 ? 0 : first("attention.head_count") / kv_heads);
}

/// Number of blocks of the decoder; those of multi-token prediction come behind it.
std::uint64_t blocks_of(const config_keys& keys, stored_weights& stored, model_description& out) {
  const auto last = std::min(stored.layers.rbegin()->first, most_blocks - 1);
  const auto all = keys.number("block_count", 1, most_blocks).value_or(last + 1);
  const auto ahead = keys.number("nextn_predict_layers", 0, all - 1).value_or(0);
  for (auto b = all - ahead; b < all; ++b)
    if (stored.layers.erase(b) > 0) stored.prediction.insert(b);
  auto blocks = all - ahead;
  while (blocks > 1 && stored.prediction.contains(blocks - 1)) --blocks;
  if (const auto count = stored.prediction.size(); count > 0)
    out.notes.push_back(prediction_note(count));
  return blocks;
}

void take_weights(const config_keys& keys, stored_weights& stored, model_description& out) {
  auto& m = out.memory;
  const auto experts = largest(keys, "expert_count").value_or(stored.experts());
  if (experts < 2)
    keys.refuse("expert_count", fmt::format("is {}: a dense model has no experts to page", experts),
                "2 or more");
  if (stored.experts() == 0)
    refuse_input(stored.model, "", "has no tensor blk.*.ffn_*_exps", "experts");
  stored.check_experts(experts);
  const auto blocks = blocks_of(keys, stored, out);
  m.blocks.resize(blocks, {.is_moe = false});
  for (const auto& [number, layer] : stored.layers) {
    if (layer.is_moe() && number >= blocks)
      refuse_input(stored.model, fmt::format("layer {}", number), "has experts",
                   fmt::format("layers 0..{}, by block_count", blocks - 1));
    if (layer.is_moe()) ++m.experts.layers;
    if (number < blocks)
      m.blocks[number] = {.is_moe = layer.is_moe(), .resident_bytes = layer.resident_bytes};
  }
  if (m.experts.layers == 0)
    keys.refuse("nextn_predict_layers", "leaves no layer with experts", "fewer layers");
  m.experts.experts = static_cast<std::int32_t>(experts);
  const auto top_k = largest(keys, "expert_used_count");
  out.top_k_is_known = top_k.has_value();
  m.experts.top_k = static_cast<std::int32_t>(top_k.value_or(1));
  if (!top_k)
    out.notes.emplace_back("no expert_used_count: top-k is taken as 1 unless --top-k says it");
  m.experts.expert_bytes = by_layer(stored.expert_bytes());
  m.resident_bytes = stored.all_resident_bytes();
}

/// Reads the KV cache, windows and recurrent state of each block: by its tensors, else by keys.
class cache_reader {
 public:
  /// `is_by_hand`: the bytes of a token are given by hand.
  cache_reader(std::string_view architecture, const config_keys& keys, const stored_weights& stored,
               bool is_by_hand, model_description& out)
      : architecture_(architecture),
        keys_(keys),
        is_by_hand_(is_by_hand),
        out_(out),
        m_(out.memory) {
    for (std::size_t b = 0; b < m_.blocks.size(); ++b) {
      const auto layer = stored.layers.find(b);
      layers_.push_back(layer == stored.layers.end() ? nullptr : &layer->second);
      has_attention_ |= layers_[b] != nullptr && layers_[b]->has_attention;
      has_recurrence_ |= layers_[b] != nullptr && layers_[b]->is_recurrent;
    }
  }

  void read() {
    heads_ = by_block("attention.head_count", {});
    kv_heads_ = by_block("attention.head_count_kv", heads_);
    const bool compressed = architecture_ == "deepseek4";
    const auto ratios =
        compressed ? by_block("attention.compress_ratios", numbers(blocks())) : numbers();
    const auto windowed = windowed_blocks(compressed);
    const auto shared = keys_.number("attention.shared_kv_layers", 0, blocks()).value_or(0);
    const auto recurrent = recurrent_blocks();
    for (std::size_t b = 0; b < blocks(); ++b) {
      auto& block = m_.blocks[b];
      if (recurrent[b] != 0) continue;
      if (!windowed.empty() && windowed[b] != 0) block.window = window_;
      if (b + shared >= blocks()) continue;
      const auto elements = elements_of(b);
      block.kv_bytes_per_token = kv_bytes_of(elements, out_.kv_bits);
      if (compressed) compress(ratios[b], elements, block);
    }
    read_state(recurrent);
    m_.kv = kv_of(m_.blocks);
    note_what_was_found(shared, compressed);
  }

 private:
  using numbers = std::vector<std::uint64_t>;

  [[nodiscard]] std::size_t blocks() const noexcept { return m_.blocks.size(); }

  /// One number per block, from a list or from one number for all. A list may go on with blocks behind the decoder.
  [[nodiscard]] numbers by_block(std::string_view key, numbers otherwise) const {
    const auto* const value = keys_.find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_array()) return numbers(blocks(), *keys_.number(key, 0));
    const auto all = keys_.number("block_count", 1, most_blocks).value_or(blocks());
    auto out = *keys_.numbers(key, value->size() == blocks() ? blocks() : all);
    out.resize(blocks());
    return out;
  }

  /// Flags by tensors, by keys, or by the architecture's own period.
  [[nodiscard]] numbers recurrent_blocks() const {
    const auto* const known = std::ranges::find(attention_periods, architecture_,
                                                &std::pair<std::string_view, std::uint64_t>::first);
    const auto period = keys_.number("full_attention_interval")
                            .value_or(known == std::end(attention_periods) ? 0 : known->second);
    auto out = by_block("attention.recurrent_layers", numbers(blocks()));
    const bool has_flags = keys_.find("attention.recurrent_layers") != nullptr;
    for (std::size_t b = 0; b < blocks(); ++b) {
      if (has_recurrence_)
        out[b] = layers_[b] != nullptr && layers_[b]->is_recurrent ? 1 : 0;
      else if (!has_flags && period > 0)
        out[b] = (b + 1) % period != 0 ? 1 : 0;
      else if (!has_flags)
        out[b] = !has_attention_ && !kv_heads_.empty() && kv_heads_[b] == 0 ? 1 : 0;
    }
    return out;
  }

  [[nodiscard]] std::uint64_t elements_of(std::size_t b) {
    const auto* const layer = layers_[b];
    if (has_attention_ && (layer == nullptr || !layer->has_attention)) return 0;
    if (layer != nullptr && layer->kv_elements() > 0) return layer->kv_elements();
    const auto of = [&](const numbers& all) { return all.empty() ? 0 : all[b]; };
    if (is_by_hand_) return 0;
    if (kv_heads_.empty())
      keys_.refuse("attention.head_count", "is missing", "1 or more; or --kv-bytes-per-token");
    return of(kv_heads_) * elements_of_head(m_.blocks[b].window > 0, of(heads_));
  }
  /// Elements per token and head of the keys, and of the values unless the attention is latent: from a key, or an
  /// even share of the width.
  [[nodiscard]] std::uint64_t elements_of_head(bool windowed, std::uint64_t heads) const {
    const auto length = [&](const std::string& key) {
      if (windowed)
        if (const auto own = keys_.number(key + "_swa", 0)) return *own;
      if (const auto given = keys_.number(key, 0)) return *given;
      if (heads == 0)
        keys_.refuse("attention.head_count", "is missing or 0",
                     "1 or more; or --kv-bytes-per-token");
      return keys_.need("embedding_length") / heads;
    };
    return length("attention.key_length") + (is_latent() ? 0 : length("attention.value_length"));
  }
  /// One vector a token, not expanded to keys and values.
  [[nodiscard]] bool is_latent() const {
    for (const auto* layer : layers_)
      if (layer != nullptr && layer->latent_rows > 0) return !layer->has_other_rows;
    return keys_.find("attention.kv_lora_rank") != nullptr &&
           keys_.find("attention.key_length_mla") != nullptr;
  }

  /// DeepSeek-V4: each block keeps a window, and one key for each `ratio` tokens, by which it may choose tokens.
  void compress(std::uint64_t ratio, std::uint64_t elements, model_block& block) const {
    block.window = 0;
    block.state_bytes = detail::saturating_product(window_, block.kv_bytes_per_token);
    const auto index = ratio == 4 ? keys_.number("attention.indexer.key_length").value_or(0) : 0;
    block.kv_bytes_per_token =
        ratio == 0 ? 0 : (kv_bytes_of(elements + index, out_.kv_bits) + ratio - 1) / ratio;
    m_.state_bytes_per_sequence =
        detail::saturating_sum(m_.state_bytes_per_sequence, block.state_bytes);
  }

  /// Empty if no block has a window. A pattern is either a flag for each block, or a period whose last block has no
  /// window.
  [[nodiscard]] numbers windowed_blocks(bool in_all) {
    const auto* const rule =
        std::ranges::find(window_rules, architecture_, &window_rule::architecture);
    const bool has_rule = rule != window_rules.end();
    window_ = keys_.number("attention.sliding_window", 0).value_or(has_rule ? rule->window : 0);
    if (window_ == 0 || in_all || (m_.max_context != 0 && window_ >= m_.max_context)) return {};
    constexpr std::string_view key = "attention.sliding_window_pattern";
    const auto* const pattern = keys_.find(key);
    if (pattern == nullptr && !has_rule) {
      out_.notes.push_back(
          fmt::format("sliding window {} is not used: no key says of which layers", window_));
      return {};
    }
    numbers out(blocks());
    if (pattern != nullptr && pattern->is_array()) {
      out = by_block(key, {});
    } else {
      const auto period = pattern != nullptr ? *keys_.number(key, 0) : rule->period;
      const auto whole = has_rule && rule->whole_is_first ? 0 : period - 1;
      for (std::size_t b = 0; b < blocks(); ++b)
        out[b] = period == 0 || b % period != whole ? 1 : 0;
    }
    out_.notes.push_back(fmt::format(
        "sliding window {} of {} layers; an engine keeps more than the window while it computes",
        window_, std::ranges::count_if(out, [](auto flag) { return flag != 0; })));
    return out;
  }

  /// Elements of a sequence's state in a recurrent block, and the convolution's kernel; nothing if no key tells.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>> state_of_block() const {
    using detail::saturating_product;
    const auto heads = heads_.empty() ? 0 : heads_.front();
    if (const auto kernel = keys_.number("shortconv.l_cache"))
      return std::pair(saturating_product(keys_.need("embedding_length"), *kernel - 1), *kernel);
    if (const auto width = keys_.number("kda.head_dim")) {
      const auto kernel = keys_.number("ssm.conv_kernel").value_or(4);
      return std::pair(saturating_product(heads * *width, *width + 3 * (kernel - 1)), kernel);
    }
    if (keys_.find("ssm.inner_size") != nullptr) {
      const auto inner = keys_.need("ssm.inner_size");
      const auto state = keys_.need("ssm.state_size");
      const auto kernel = keys_.need("ssm.conv_kernel");
      // Gated DeltaNet and Mamba-2 convolve more than the input of their scan.
      const auto groups = keys_.number("ssm.group_count", 0, most_blocks).value_or(0);
      const auto convolution = saturating_product(inner + 2 * groups * state, kernel - 1);
      return std::pair(detail::saturating_sum(saturating_product(inner, state), convolution),
                       kernel);
    }
    // Lightning attention keeps one matrix a head.
    if (const auto width = keys_.number("attention.key_length"); width && heads > 0)
      return std::pair(saturating_product(heads * *width, *width), std::uint64_t{1});
    return std::nullopt;
  }
  /// Reads the recurrent state, in F32 as llama.cpp keeps it.
  void read_state(const numbers& recurrent) {
    const auto count = static_cast<std::uint64_t>(
        std::ranges::count_if(recurrent, [](auto flag) { return flag != 0; }));
    if (count == 0) return;
    const auto found = state_of_block();
    const auto each = found ? detail::saturating_product(4, found->first) : 0;
    m_.state_bytes_per_sequence = detail::saturating_product(count, each);
    for (std::size_t b = 0; b < blocks(); ++b)
      if (recurrent[b] != 0) m_.blocks[b].state_bytes = each;
    out_.notes.push_back(
        found ? fmt::format("recurrent state of {} layers in F32, with a convolution state of {} "
                            "(as llama.cpp keeps it)",
                            count, found->second - 1)
              : fmt::format("recurrent state of {} layers is not counted: no key tells its extents",
                            count));
  }

  void note_what_was_found(std::uint64_t shared, bool compressed) const {
    if (shared > 0)
      out_.notes.push_back(
          fmt::format("the last {} layers read the caches of others, and keep none", shared));
    if (compressed)
      out_.notes.push_back(fmt::format(
          "each layer keeps a window of {} tokens, counted as state, and compressed keys",
          window_));
    if (is_latent() && !compressed)
      out_.notes.emplace_back(
          "latent attention: keys alone are kept; older builds also keep values");
    else if (keys_.find("attention.kv_lora_rank") != nullptr && !compressed)
      out_.notes.emplace_back(
          "latent attention in an older form: whole keys and values are kept; convert the file "
          "again to keep one vector a token and layer");
    if (known_architectures.find(fmt::format(" {} ", architecture_)) == known_architectures.npos)
      out_.notes.push_back(
          fmt::format("architecture '{}' is not known: its cache is what tensors and keys tell",
                      printable(architecture_, 60)));
  }

  std::string_view architecture_;
  const config_keys& keys_;
  bool is_by_hand_;
  model_description& out_;
  memory_model& m_;
  std::vector<const stored_layer*> layers_{};  ///< of each block; nullptr: it has no tensors
  bool has_attention_ = false;                 ///< some block has tensors of attention
  bool has_recurrence_ = false;
  numbers heads_{}, kv_heads_{};
  std::uint64_t window_ = 0;
};

/// Counts parameters, with those of multi-token prediction.
model_arithmetic stored_arithmetic(std::span<const gguf_file> parts, const geometry& experts) {
  model_arithmetic out;
  std::uint64_t routed = 0;
  std::uint64_t embeddings = 0;
  bool has_head = false;
  for (const auto& part : parts)
    for (const auto& tensor : part.tensors()) {
      std::uint64_t elements = 1;
      for (const auto extent : tensor.dimensions)
        elements = detail::saturating_product(elements, extent);
      if (tensor.name == "token_embd.weight" && tensor.dimensions.size() == 2) {
        out.hidden = tensor.dimensions[0];
        out.vocabulary = tensor.dimensions[1];
        out.lookup_bytes = tensor.bytes;
        embeddings = elements;
      } else {
        auto& sum =
            tensor.name.find("_exps.") != std::string::npos ? routed : out.resident_parameters;
        sum = detail::saturating_sum(sum, elements);
        has_head = has_head || tensor.name == "output.weight";
      }
    }
  if (!has_head) {  // it multiplies by the embeddings
    out.lookup_bytes = 0;
    out.resident_parameters = detail::saturating_sum(out.resident_parameters, embeddings);
  }
  out.expert_parameters = routed / experts.keys();
  return out;
}

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
  m.max_context = keys.number("context_length", 0, ~std::uint64_t{0}).value_or(0);
  auto stored = read_gguf_weights(path, parts, wished(options.weights, parts, keys));
  take_weights(keys, stored, out);
  if (!options.weights.empty()) {
    auto before = read_gguf_weights(path, parts);
    out.notes.push_back(wish_note(options.weights, stored.expert_bytes(), before.expert_bytes()));
  }
  out.arithmetic = stored_arithmetic(parts, m.experts);
  if (!options.weights.empty()) out.arithmetic.lookup_bytes = 0;  // unknown in the other format
  m.is_causal = keys.flag("attention.causal", true);
  if (m.is_causal)
    cache_reader(architecture, keys, stored, options.hand.kv_bytes_per_token.has_value(), out)
        .read();
  else
    out.notes.emplace_back(
        "no KV cache: the model is not causal, and its plain sampler keeps none");
  if (stored.missing_bytes > 0)
    out.notes.push_back(fmt::format("the file is cut short by {}: its header is enough for a plan",
                                    size_text(stored.missing_bytes)));
  std::size_t tensors = 0;
  for (const auto& part : parts) tensors += part.tensors().size();
  out.source = fmt::format("{}: GGUF {}, {}, {} tensors{}", name, parts.front().version(),
                           printable(architecture, 60), tensors,
                           parts.size() == 1 ? "" : fmt::format(" in {} parts", parts.size()));
  return out;
}

}  // namespace hotset::lab
