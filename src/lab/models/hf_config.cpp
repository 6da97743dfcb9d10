// SPDX-License-Identifier: Apache-2.0
#include "lab/models/hf_config.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/models/config_keys.hpp"
#include "lab/models/quantisation.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

/// Where the layers without softmax attention over all tokens are, if layer_types does not say it.
enum class pattern : std::uint8_t {
  none,
  even_windows,  ///< even layers have a sliding window
  chunks,        ///< no_rope_layers: those with positions attend within a chunk
  delta_interval,  ///< full_attention_interval: the last of so many has attention, the others Gated DeltaNet
  lightning_list,  ///< attn_type_list: 0 is lightning attention
  odd_lightning,   ///< odd layers have lightning attention
};

/// What a model_type fixes and no key says, and the keys that it cannot do without.
struct family {
  std::string_view type;
  std::string_view expert_width = "intermediate_size";
  /// A key that must be there; empty: shared experts are optional.
  std::string_view shared_width{};
  std::uint64_t shared_experts = 0;  ///< where no key counts them
  qk_norm norm = qk_norm::none;
  std::string_view norm_key{};  ///< turns the norm on or off
  bool norm_otherwise = true;   ///< where that key is missing
  bool is_latent = false;
  bool is_mamba = false;
  bool input_bias = false;      ///< of queries, keys and values, whatever attention_bias says
  bool attention_bias = false;  ///< where the key is missing
  bool plain_output = false;    ///< the way out of the attention has no bias in any case
  bool gated_attention = false;
  bool norm_bias = false;
  bool correction_bias = false;
  bool correction_in_f32 = false;
  bool router_in_f32 = false;
  bool biased_experts = false;  ///< and a biased router
  bool shared_gate = false;
  bool tied_otherwise = false;  ///< where tie_word_embeddings is missing
  bool has_sinks = false;
  pattern layers = pattern::none;
  bool window_needs_asking = false;  ///< use_sliding_window
  bool window_from_a_layer = false;  ///< max_window_layers
  bool is_causal = true;
};

constexpr std::uint64_t most_layers = 65536;
constexpr std::string_view moe_width = "moe_intermediate_size";

constexpr family deepseek_v3_like(std::string_view type) {
  return {.type = type,
          .expert_width = moe_width,
          .shared_width = "n_shared_experts",
          .is_latent = true,
          .correction_bias = true};
}
constexpr family lightning_like(std::string_view type, pattern layers) {
  return {.type = type, .layers = layers};
}
constexpr family llada_like(std::string_view type) {
  return {.type = type,
          .expert_width = "expert_intermediate_size",
          .norm = qk_norm::per_head,
          .norm_key = "qk_layernorm",
          .is_causal = false};
}
constexpr family qwen3_like(std::string_view type) {
  return {.type = type,
          .expert_width = moe_width,
          .norm = qk_norm::per_head,
          .window_needs_asking = true,
          .window_from_a_layer = true};
}
/// Without moe_intermediate_size the experts have the width of a dense MLP.
constexpr family hunyuan_like(std::string_view type) {
  return {.type = type,
          .expert_width = moe_width,
          .shared_experts = 1,
          .norm = qk_norm::per_head,
          .norm_key = "use_qk_norm",
          .router_in_f32 = true};
}

constexpr std::array families = {
    family{.type = "olmoe", .norm = qk_norm::whole},
    family{.type = "mixtral"},
    family{.type = "qwen2_moe",
           .expert_width = moe_width,
           .shared_width = "shared_expert_intermediate_size",
           .input_bias = true,
           .shared_gate = true,
           .window_needs_asking = true,
           .window_from_a_layer = true},
    qwen3_like("qwen3_moe"),
    qwen3_like("qwen3_vl_moe_text"),
    family{.type = "qwen3_next",
           .expert_width = moe_width,
           .shared_width = "shared_expert_intermediate_size",
           .norm = qk_norm::per_head,
           .gated_attention = true,
           .shared_gate = true,
           .layers = pattern::delta_interval},
    family{.type = "phimoe", .norm_bias = true},
    family{.type = "deepseek_v2",
           .expert_width = moe_width,
           .shared_width = "n_shared_experts",
           .is_latent = true},
    deepseek_v3_like("deepseek_v3"),
    deepseek_v3_like("kimi_k2"),
    family{.type = "glm4_moe",
           .expert_width = moe_width,
           .shared_width = "n_shared_experts",
           .norm = qk_norm::per_head,
           .norm_key = "use_qk_norm",
           .norm_otherwise = false,
           .plain_output = true,
           .correction_bias = true,
           .correction_in_f32 = true},
    family{.type = "dots1",
           .expert_width = moe_width,
           .shared_width = "n_shared_experts",
           .norm = qk_norm::per_head,
           .correction_bias = true,
           .correction_in_f32 = true,
           .window_from_a_layer = true},
    family{.type = "ernie4_5_moe",
           .expert_width = moe_width,
           .correction_bias = true,
           .correction_in_f32 = true,
           .tied_otherwise = true},
    family{.type = "llama4_text", .shared_experts = 1, .layers = pattern::chunks},
    hunyuan_like("hunyuan"),
    hunyuan_like("hunyuan_v1_moe"),
    family{.type = "jamba", .is_mamba = true},
    family{.type = "minimax_m2",
           .norm = qk_norm::whole,
           .norm_key = "use_qk_norm",
           .correction_bias = true,
           .router_in_f32 = true},
    lightning_like("minimax_text_01", pattern::lightning_list),
    lightning_like("minimax_m1", pattern::lightning_list),
    lightning_like("minimax", pattern::odd_lightning),
    family{.type = "gpt_oss",
           .attention_bias = true,
           .biased_experts = true,
           .has_sinks = true,
           .layers = pattern::even_windows},
    llada_like("llada"),
    llada_like("lladamoe"),
    family{.type = "tiny_moe", .expert_width = moe_width},  // examples/data/tiny-moe
};

/// Families whose language model stands under text_config, with a vision tower that is counted.
constexpr std::string_view kimi_vl = "kimi_vl";
constexpr std::string_view kimi_vl_text = "deepseek_v3";
constexpr std::string_view llama4 = "llama4";
constexpr std::string_view llama4_text = "llama4_text";

constexpr std::array<std::string_view, 4> expert_keys = {"num_experts", "num_local_experts",
                                                         "n_routed_experts", "moe_num_experts"};
constexpr std::array<std::string_view, 4> top_k_keys = {"num_experts_per_tok", "experts_per_token",
                                                        "moe_topk", "moe_k"};
constexpr std::array<std::string_view, 3> dense_width_keys = {
    "dense_intermediate_size", "intermediate_size_mlp", "intermediate_size"};
constexpr std::array<std::string_view, 3> shared_count_keys = {
    "n_shared_experts", "moe_num_shared_experts", "num_shared_expert"};

const family* find_family(std::string_view type) noexcept {
  const auto* const at = std::find_if(families.begin(), families.end(),
                                      [&](const family& f) { return f.type == type; });
  return at == families.end() ? nullptr : at;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

/// Of the layers that attend to all tokens, if layers of several kinds have their own.
const json* rope_scaling(const config_keys& keys) {
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto* const given = keys.object(key);
    if (given == nullptr) continue;
    const auto full = given->find("full_attention");
    return full != given->end() && full->is_object() ? &*full : given;
  }
  return nullptr;
}

/// The longest context in tokens, which rope scaling may extend, as vLLM derives it; 0: unknown.
std::uint64_t longest_context(const config_keys& keys, std::vector<std::string>& notes) {
  const auto own = keys.number("max_position_embeddings").value_or(0);
  const auto* const scaling = rope_scaling(keys);
  if (scaling == nullptr) return own;
  const config_keys rope(*scaling, *scaling, keys.file());
  const auto type = rope.text("rope_type").value_or(rope.text("type").value_or("default"));
  // Their max_position_embeddings is what they reach.
  if (is_one_of(type, {"default", "mrope", "longrope", "su", "llama3", "proportional"})) return own;
  const bool is_yarn = is_one_of(type, {"yarn", "deepseek_yarn"});
  if (!is_yarn && !is_one_of(type, {"linear", "dynamic", "ntk"})) {
    notes.push_back(
        fmt::format("rope scaling '{}' is not known: max_position_embeddings, {}, is taken as the "
                    "longest context",
                    printable(type, 60), own));
    return own;
  }
  const auto factor = rope.real("factor").value_or(1);
  const auto original = rope.number("original_max_position_embeddings");
  const auto base = is_yarn && original ? *original : own;
  const auto context = factor * static_cast<double>(base);
  constexpr std::uint64_t most = std::uint64_t{1} << 32U;
  if (context > static_cast<double>(most))
    keys.refuse("rope_scaling", fmt::format("makes a context of {:.0f} tokens", context),
                fmt::format("at most {}", most));
  const auto tokens = static_cast<std::uint64_t>(context);
  if (tokens != own)
    notes.push_back(
        fmt::format("rope scaling '{}', {} times {} tokens: the longest context is {}; "
                    "max_position_embeddings is {}",
                    type, factor, base, tokens, own));
  return tokens;
}

class config_reader {
 public:
  config_reader(const config_keys& keys, const family& kind) : keys_(keys), kind_(kind) {}

  model_shape read() {
    shape_.type = kind_.type;
    shape_.hidden = keys_.need("hidden_size");
    shape_.vocabulary = keys_.need("vocab_size");
    shape_.layers.resize(keys_.need("num_hidden_layers", 1, most_layers));
    shape_.tied_embeddings = keys_.flag("tie_word_embeddings", kind_.tied_otherwise);
    shape_.head_bias = keys_.flag("lm_head_bias", false);
    shape_.norm_bias = kind_.norm_bias;
    shape_.is_causal = kind_.is_causal;
    read_dtype();
    shape_.max_context = longest_context(keys_, shape_.notes);
    read_experts();
    read_moe_layers();
    kind_.is_latent ? read_latent() : read_grouped();
    if (kind_.is_mamba) read_mamba();
    read_mixers();
    read_windows();
    read_format();
    note_what_is_left_out();
    return std::move(shape_);
  }

 private:
  static constexpr std::uint64_t most_experts = std::uint64_t{1} << 20U;

  [[noreturn]] void refuse(std::string_view key, const std::string& found,
                           const std::string& accepted) const {
    keys_.refuse(key, found, accepted);
  }
  /// A product of keys, where it is no larger than a single key may be.
  [[nodiscard]] std::uint64_t extent(std::string_view key, std::uint64_t product) const {
    if (product > config_keys::most_extent)
      refuse(key, fmt::format("makes a width of {}", product),
             fmt::format("a width of at most {}", config_keys::most_extent));
    return product;
  }

  void read_dtype() {
    const std::string_view key = keys_.find("torch_dtype") != nullptr ? "torch_dtype" : "dtype";
    const auto name = keys_.text(key);
    if (!name) shape_.notes.emplace_back("no torch_dtype: bfloat16 is assumed");
    const auto dtype = name.value_or("bfloat16");
    if (dtype == "float32")
      shape_.dtype_bytes = 4;
    else if (dtype != "bfloat16" && dtype != "float16")
      refuse(key, "is '" + dtype + "'", "bfloat16, float16 or float32");
  }

  void read_format() {
    shape_.codes.fill(shape_.plain_code());
    const auto* const given = keys_.object("quantization_config");
    if (given != nullptr) read_quantisation(*given, keys_.file(), shape_);
  }

  void read_experts() {
    const auto* const used =
        std::find_if(expert_keys.begin(), expert_keys.end(),
                     [&](const auto& key) { return keys_.find(key) != nullptr; });
    if (used == expert_keys.end())
      refuse_input(keys_.file(), "",
                   fmt::format("has none of {}: a dense model has no experts to page",
                               fmt::join(expert_keys, ", ")),
                   "a Mixture-of-Experts model");
    shape_.experts = *keys_.alike(*used, 0, most_experts);
    if (shape_.experts < 2)
      refuse(*used, fmt::format("is {}: a dense model has no experts to page", shape_.experts),
             "2 or more");
    shape_.top_k = keys_.need_any(top_k_keys);
    shape_.expert_width = expert_width();
    shape_.expert_bias = kind_.biased_experts;
    shape_.router_bias = kind_.biased_experts;
    shape_.router_in_f32 = kind_.router_in_f32;
    shape_.correction_bias = kind_.correction_bias;
    shape_.correction_in_f32 = kind_.correction_in_f32;
    if (keys_.find("use_bias") != nullptr && keys_.flag("use_bias", false))
      refuse("use_bias", "is true", "false");
    read_shared();
  }

  [[nodiscard]] std::uint64_t expert_width() const {
    if (const auto given = keys_.alike(kind_.expert_width)) return *given;
    return keys_.need(is_hunyuan() ? "intermediate_size" : kind_.expert_width);
  }
  [[nodiscard]] bool is_hunyuan() const { return kind_.type.starts_with("hunyuan"); }

  void read_shared() {
    if (!kind_.shared_width.empty()) (void)keys_.need(kind_.shared_width, 0);
    auto count = kind_.shared_experts;
    // Hunyuan's own code has shared experts where MLPs and experts are mixed.
    if (keys_.find("use_mixed_mlp_moe") != nullptr && !keys_.flag("use_mixed_mlp_moe", true) &&
        kind_.type == "hunyuan")
      count = 0;
    for (const auto key : shared_count_keys)
      if (const auto given = keys_.alike(key, 0)) count = *given;
    shape_.shared_width = extent("n_shared_experts", count * shape_.expert_width);
    for (const auto* key : {"shared_expert_intermediate_size", "shared_intermediate_size"})
      if (const auto width = keys_.alike(key, 0)) shape_.shared_width = *width;
    shape_.shared_gate = kind_.shared_gate;
  }

  void read_moe_layers() {
    const auto dense = first_moe_layer();
    const auto last = last_moe_layer();
    const auto sparse_step = keys_.number("decoder_sparse_step").value_or(1);
    const auto without = layer_set("mlp_only_layers");
    const auto period = kind_.is_mamba ? keys_.need("expert_layer_period")
                                       : keys_.number("expert_layer_period").value_or(1);
    const auto offset = kind_.is_mamba ? keys_.need("expert_layer_offset", 0)
                                       : keys_.number("expert_layer_offset", 0).value_or(0);
    const auto interval = step_of("moe_layer_interval") * step_of("interleave_moe_layer_step");
    const bool named = keys_.find("moe_layers") != nullptr;
    const auto with = layer_set("moe_layers");
    const auto listed = moe_layer_list();
    const auto every = listed ? 1 : keys_.number("moe_layer_freq").value_or(1);
    bool any = false;
    bool all = true;
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      auto& layer = shape_.layers[i];
      layer.is_moe = i >= dense && i <= last && (i + 1) % sparse_step == 0 && !without[i] &&
                     i % period == offset && (listed ? (*listed)[i] != 0 : i % every == 0) &&
                     (named ? bool{with[i]} : (i + 1) % interval == 0);
      any = any || layer.is_moe;
      all = all && layer.is_moe;
    }
    if (!any)
      refuse_input(keys_.file(), "",
                   fmt::format("none of its {} layers has experts", shape_.layers.size()),
                   "1 or more");
    if (!all) shape_.dense_width = keys_.need_any(dense_width_keys);
  }
  [[nodiscard]] std::uint64_t step_of(std::string_view key) const {
    return keys_.number(key, 1, most_layers).value_or(1);
  }
  [[nodiscard]] std::uint64_t first_moe_layer() const {
    if (kind_.is_latent) return keys_.need("first_k_dense_replace", 0);
    for (const auto* key :
         {"first_k_dense_replace", "moe_layer_start_index", "moe_layer_num_skipped"})
      if (const auto given = keys_.number(key, 0)) return *given;
    return 0;
  }
  /// -1 is the last layer.
  [[nodiscard]] std::uint64_t last_moe_layer() const {
    const auto* const given = keys_.find("moe_layer_end_index");
    if (given == nullptr || *given == -1) return most_layers;
    return *keys_.number("moe_layer_end_index", 0);
  }

  /// The layers that a list of their numbers names; those past the last one are passed over.
  [[nodiscard]] std::vector<bool> layer_set(std::string_view key) const {
    std::vector<bool> out(shape_.layers.size());
    const auto numbers = keys_.numbers(key).value_or(std::vector<std::uint64_t>());
    for (const auto number : numbers)
      if (number < out.size()) out[static_cast<std::size_t>(number)] = true;
    return out;
  }

  /// LLaDA-MoE says of each layer what DeepSeek says of every n-th.
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> moe_layer_list() const {
    const auto* const given = keys_.find("moe_layer_freq");
    if (given == nullptr || !given->is_array()) return std::nullopt;
    return keys_.numbers("moe_layer_freq", shape_.layers.size());
  }

  void read_grouped() {
    auto& a = shape_.grouped;
    a.heads = keys_.need("num_attention_heads");
    a.kv_heads = keys_.number("num_key_value_heads").value_or(a.heads);
    a.head_dim = head_dim(a.heads);
    const bool biased = keys_.flag("attention_bias", kind_.attention_bias);
    a.output_bias = biased && !kind_.plain_output;
    a.input_bias = biased || kind_.input_bias;
    a.sinks = kind_.has_sinks;
    a.is_gated = kind_.gated_attention;
    const bool on = kind_.norm_key.empty() || keys_.flag(kind_.norm_key, kind_.norm_otherwise);
    a.norm = on ? kind_.norm : qk_norm::none;
    read_shared_caches();
    if (kind_.layers == pattern::lightning_list) return;
    if (const auto types = keys_.numbers("attn_type_list", shape_.layers.size()))
      for (std::size_t i = 0; i < types->size(); ++i)
        if ((*types)[i] != 1)
          refuse("attn_type_list", fmt::format("entry {} is {}", i, (*types)[i]),
                 "1, which is softmax attention");
  }

  /// Cross-layer attention: the first of so many layers has keys and values, which the others read.
  void read_shared_caches() {
    if (!keys_.flag("use_cla", false)) return;
    const auto share = keys_.need("cla_share_factor");
    for (std::size_t i = 0; i < shape_.layers.size(); ++i)
      shape_.layers[i].shares_kv = i % share != 0;
  }

  [[nodiscard]] std::uint64_t head_dim(std::uint64_t heads) const {
    for (const auto* key : {"head_dim", "attention_head_dim"})
      if (const auto given = keys_.number(key)) return *given;
    if (shape_.hidden % heads != 0)
      refuse("head_dim", "is missing",
             fmt::format("an integer, as hidden_size {} is no multiple of {} heads", shape_.hidden,
                         heads));
    return shape_.hidden / heads;
  }

  void read_latent() {
    if (keys_.flag("attention_bias", false))
      refuse("attention_bias", "is true", "false with latent attention");
    latent_attention a;
    a.heads = keys_.need("num_attention_heads");
    a.q_rank = keys_.number("q_lora_rank").value_or(0);
    a.kv_rank = keys_.need("kv_lora_rank");
    a.plain = keys_.need("qk_nope_head_dim", 0);
    a.rope = keys_.need("qk_rope_head_dim", 0);
    a.value = keys_.need("v_head_dim");
    shape_.latent = a;
    shape_.notes.push_back(
        fmt::format("latent attention: one vector of {} elements a token and layer is kept",
                    a.kv_rank + a.rope));
  }

  void read_mamba() {
    mamba_mixer m;
    m.inner = extent("mamba_expand", keys_.need("mamba_expand") * shape_.hidden);
    m.state = keys_.need("mamba_d_state");
    m.kernel = keys_.need("mamba_d_conv");
    m.rank = time_step_rank();
    m.kernel_bias = keys_.flag("mamba_conv_bias", true);
    m.projection_bias = keys_.flag("mamba_proj_bias", false);
    shape_.mamba = m;
    const auto period = keys_.need("attn_layer_period");
    const auto offset = keys_.need("attn_layer_offset", 0);
    for (std::size_t i = 0; i < shape_.layers.size(); ++i)
      if (i % period != offset) shape_.layers[i].mixer = mixer_kind::mamba;
    note_state(m.kernel - 1);
  }
  void note_state(std::uint64_t convolution) {
    shape_.notes.push_back(fmt::format(
        "recurrent state in the model's dtype, with a convolution state of {} (as vLLM keeps it)",
        convolution));
  }

  /// Layers of linear attention, by layer_types or by what the family has instead.
  void read_mixers() {
    if (kind_.layers == pattern::delta_interval) return read_delta();
    if (kind_.layers != pattern::lightning_list && kind_.layers != pattern::odd_lightning) return;
    const auto linear = linear_layers();
    std::size_t count = 0;
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      if (!linear[i]) continue;
      shape_.layers[i].mixer = mixer_kind::lightning;
      ++count;
    }
    shape_.notes.push_back(fmt::format(
        "lightning attention in {} of {} layers: a matrix a head is kept, in the model's dtype",
        count, shape_.layers.size()));
  }
  [[nodiscard]] std::vector<bool> linear_layers() const {
    const auto layers = shape_.layers.size();
    std::vector<bool> out(layers);
    if (const auto types = keys_.words("layer_types", layers)) {
      for (std::size_t i = 0; i < layers; ++i) out[i] = is_linear((*types)[i]);
    } else if (kind_.layers == pattern::lightning_list) {
      const auto kinds = keys_.numbers("attn_type_list", layers);
      if (!kinds) refuse("attn_type_list", "is missing", fmt::format("{} of 0 or 1", layers));
      for (std::size_t i = 0; i < layers; ++i) {
        if ((*kinds)[i] > 1)
          refuse("attn_type_list", fmt::format("entry {} is {}", i, (*kinds)[i]), "0 or 1");
        out[i] = (*kinds)[i] == 0;
      }
    } else {
      const auto interval = kind_.layers == pattern::delta_interval
                                ? keys_.number("full_attention_interval").value_or(4)
                                : 0;
      for (std::size_t i = 0; i < layers; ++i)
        out[i] = interval == 0 ? i % 2 == 1 : (i + 1) % interval != 0;
    }
    return out;
  }
  [[nodiscard]] static bool is_linear(std::string_view type) noexcept {
    return type == "linear_attention";
  }

  void read_delta() {
    delta_mixer d;
    const auto key_heads = keys_.need("linear_num_key_heads");
    d.value_heads = keys_.need("linear_num_value_heads");
    d.key_dim = keys_.need("linear_key_head_dim");
    d.value_dim = keys_.need("linear_value_head_dim");
    d.keys = extent("linear_num_key_heads", key_heads * d.key_dim);
    d.values = extent("linear_num_value_heads", d.value_heads * d.value_dim);
    d.kernel = keys_.need("linear_conv_kernel_dim");
    shape_.delta = d;
    const auto linear = linear_layers();
    for (std::size_t i = 0; i < shape_.layers.size(); ++i)
      if (linear[i]) shape_.layers[i].mixer = mixer_kind::delta;
    note_state(d.kernel - 1);
  }

  [[nodiscard]] std::uint64_t time_step_rank() const {
    const auto* const given = keys_.find("mamba_dt_rank");
    if (given != nullptr && *given == "auto") return (shape_.hidden + 15) / 16;
    return keys_.need("mamba_dt_rank");
  }

  void read_windows() {
    if (kind_.layers == pattern::chunks) return read_chunks();
    const auto kinds = layer_kinds("sliding_attention");
    const bool asked = !kind_.window_needs_asking || keys_.flag("use_sliding_window", false);
    if (asked) shape_.window = keys_.number("sliding_window", 0).value_or(0);
    const bool alternate = kind_.layers == pattern::even_windows;
    const bool needed =
        kinds ? std::find(kinds->begin(), kinds->end(), true) != kinds->end() : alternate;
    if (needed && shape_.window == 0) shape_.window = keys_.need("sliding_window");
    if (!window_binds("sliding window")) return;
    const auto first = kind_.window_from_a_layer && !kinds ? keys_.need("max_window_layers", 0) : 0;
    set_windows("sliding window", [&](std::size_t i) {
      if (kinds) return bool{(*kinds)[i]};
      return alternate ? i % 2 == 0 : i >= first;
    });
  }
  /// Attention within chunks: a sequence keeps a chunk at most.
  void read_chunks() {
    shape_.window = keys_.number("attention_chunk_size", 0).value_or(8192);
    const auto kinds = layer_kinds("chunked_attention");
    const auto listed = keys_.numbers("no_rope_layers").value_or(std::vector<std::uint64_t>());
    if (!listed.empty() && listed.size() < shape_.layers.size())
      refuse("no_rope_layers", fmt::format("has {} entries", listed.size()),
             fmt::format("none, or one a layer ({})", shape_.layers.size()));
    const auto interval = keys_.number("no_rope_layer_interval").value_or(4);
    if (!window_binds("attention chunk")) return;
    set_windows("attention chunk", [&](std::size_t i) {
      if (kinds) return bool{(*kinds)[i]};
      return listed.empty() ? (i + 1) % interval != 0 : listed[i] != 0;
    });
  }
  [[nodiscard]] bool window_binds(std::string_view what) {
    if (shape_.window == 0) return false;
    if (shape_.max_context == 0 || shape_.window < shape_.max_context) return true;
    shape_.notes.push_back(fmt::format("{} {} never binds: the longest context is {}", what,
                                       shape_.window, shape_.max_context));
    shape_.window = 0;
    return false;
  }
  template <class HasWindow>
  void set_windows(std::string_view what, HasWindow has_window) {
    std::size_t windowed = 0;
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      auto& layer = shape_.layers[i];
      layer.is_windowed = layer.mixer == mixer_kind::attention && has_window(i);
      if (layer.is_windowed) ++windowed;
    }
    shape_.notes.push_back(
        fmt::format("{} {} of {} layers; an engine keeps more than the window while it computes",
                    what, shape_.window, windowed));
  }

  /// Whether each layer is of the limited kind, where layer_types says it. Linear attention is for families that have it.
  [[nodiscard]] std::optional<std::vector<bool>> layer_kinds(std::string_view limited) const {
    const auto types = keys_.words("layer_types", shape_.layers.size());
    if (!types) return std::nullopt;
    const bool has_linear = kind_.layers == pattern::delta_interval ||
                            kind_.layers == pattern::odd_lightning ||
                            kind_.layers == pattern::lightning_list;
    std::vector<bool> windowed;
    for (const auto& type : *types) {
      if (type != "full_attention" && type != limited && !(has_linear && is_linear(type)))
        refuse("layer_types", fmt::format("entry {} is '{}'", windowed.size(), printable(type, 60)),
               fmt::format("full_attention or {}{}", limited,
                           has_linear ? " or linear_attention" : ""));
      windowed.push_back(type == limited);
    }
    return windowed;
  }

  void note_what_is_left_out() {
    auto layers = keys_.number("num_nextn_predict_layers", 0).value_or(0);
    if (keys_.flag("use_mtp", false)) layers += keys_.number("num_mtp_modules", 0).value_or(0);
    if (layers > 0)
      shape_.notes.push_back(fmt::format(
          "multi-token prediction ({} layer{}) is not counted: ordinary serving does not load it",
          layers, layers == 1 ? "" : "s"));
  }

  const config_keys& keys_;
  const family& kind_;
  model_shape shape_;
};

/// A key of a vision_config itself, never of the object around it.
class vision_keys {
 public:
  vision_keys(const json& root, const json& vision, const std::string& file)
      : vision_(vision), keys_(vision, root, file) {}

  [[nodiscard]] std::uint64_t operator()(const char* key) const {
    constexpr std::uint64_t most = 65536;
    if (!vision_.contains(key))
      keys_.refuse(fmt::format("vision_config.{}", key), "is missing", "it");
    return keys_.need(key, 1, most);
  }
  [[nodiscard]] const config_keys& keys() const noexcept { return keys_; }

 private:
  const json& vision_;
  config_keys keys_;
};

/// MoonViT and the projector behind it: every linear layer and norm has a bias. Units: elements.
std::uint64_t kimi_vision(const vision_keys& own, std::uint64_t text_width) {
  const auto h = own("hidden_size");
  const auto width = own("intermediate_size");
  const auto patch = own("patch_size");
  const auto positions = own("init_pos_emb_height") * own("init_pos_emb_width");
  const auto& keys = own.keys();
  const auto merge = keys.numbers("merge_kernel_size").value_or(std::vector<std::uint64_t>{2, 2});
  if (merge.size() != 2 || merge[0] * merge[1] == 0 || merge[0] > 16 || merge[1] > 16)
    keys.refuse("merge_kernel_size", "is no pair of small integers", "[rows, columns] in 1..16");
  const auto layer = 4 * h * h + 4 * h + 2 * h * width + width + h + 4 * h;
  const auto tower =
      own("num_hidden_layers") * layer + positions * h + 3 * h * patch * patch + h + 2 * h;
  const auto joined = merge[0] * merge[1] * h;
  const auto projector = 2 * h + joined * joined + joined + joined * text_width + text_width;
  return tower + projector;
}

/// Llama 4's tower, its adapter and the projector, which have no bias. Units: elements.
std::uint64_t llama4_vision(const vision_keys& own, std::uint64_t text_width) {
  const auto h = own("hidden_size");
  const auto width = own("intermediate_size");
  const auto patch = own("patch_size");
  const auto side = own("image_size") / patch;
  const auto out = own("projector_output_dim");
  const auto layer = 4 * (h * h + h) + 2 * h * width + width + h + 4 * h;
  const auto tower =
      own("num_hidden_layers") * layer + 3 * h * patch * patch + h + (side * side + 1) * h + 4 * h;
  return tower + width * own("projector_input_dim") + out * out +
         own("vision_output_dim") * text_width;
}

json parse(std::string_view text, const std::string& file) {
  return parse_json_object(text, file, "a Hugging Face config.json, a JSON object in UTF-8");
}

/// OpenAI's own files have no model_type, but keys that no other has.
bool is_openai_gpt_oss(const config_keys& keys) {
  return keys.find("model_type") == nullptr && keys.find("swiglu_limit") != nullptr &&
         keys.find("initial_context_length") != nullptr;
}

/// Whether any key of the object, or of one inside it, counts experts.
bool counts_experts(const json& object, int depth = 0) {
  constexpr int deepest = 4;
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && depth < deepest && counts_experts(value, depth + 1)) return true;
    if (value.is_number() && key.ends_with("experts") && value > 1) return true;
  }
  return false;
}

/// The family of an object's model_type.
const family& family_of(const json& root, const config_keys& keys) {
  if (is_openai_gpt_oss(keys)) return *find_family("gpt_oss");
  const auto accepted =
      fmt::format("by hand {}; the folder of its .safetensors files; or one of {}", hand_options,
                  hf_model_types());
  const auto type = keys.text("model_type");
  if (!type) keys.refuse("model_type", "is missing", accepted);
  const auto* const found = find_family(*type);
  if (found != nullptr) return *found;
  keys.refuse("model_type",
              fmt::format("is '{}'{}", printable(*type, 60),
                          counts_experts(root)
                              ? ""
                              : ", and no number of experts is given: dense models have none to "
                                "page"),
              accepted);
}

model_shape read_with(const config_keys& keys, const family& kind) {
  auto shape = config_reader(keys, kind).read();
  if (is_openai_gpt_oss(keys)) {
    const auto initial = keys.number("initial_context_length").value_or(0);
    const auto factor = keys.real("rope_scaling_factor").value_or(1);
    shape.max_context =
        static_cast<std::uint64_t>(std::min(factor, 65536.0) * static_cast<double>(initial));
    shape.notes.push_back(fmt::format(
        "no model_type: its keys are those of OpenAI's gpt_oss files; {}initial_context_length is "
        "taken as the longest context",
        factor == 1 ? "" : "rope_scaling_factor times "));
  }
  return shape;
}

/// A model whose tower is counted: `type` around a language model of `text_type`.
model_shape read_with_tower(const json& root, const std::string& file, std::string_view type,
                            std::string_view text_type,
                            std::uint64_t (*tower)(const vision_keys&, std::uint64_t)) {
  const config_keys outer(root, root, file);
  const auto* const text = outer.object("text_config");
  if (text == nullptr) outer.refuse("text_config", "is missing", "an object");
  const config_keys keys(*text, root, file);
  const auto own_type = text->find("model_type");
  if (own_type != text->end() && !own_type->is_null() && *own_type != text_type)
    keys.refuse("text_config.model_type", "is not " + std::string(text_type),
                std::string(text_type));
  auto shape = read_with(keys, *find_family(text_type));
  shape.type = type;
  const auto* const vision = outer.object("vision_config");
  if (vision == nullptr) outer.refuse("vision_config", "is missing", "an object");
  shape.vision = tower(vision_keys(root, *vision, file), shape.hidden);
  shape.notes.push_back(
      fmt::format("vision tower and projector, {}, are always on the device; the rotary "
                  "buffers in published files are not counted",
                  size_text(shape.vision * shape.dtype_bytes)));
  return shape;
}

/// Any other model around a language model of a known family. Returns nothing if it is none.
std::optional<model_shape> read_nested(const json& root, const config_keys& outer) {
  const auto* const text = outer.object("text_config");
  if (text == nullptr) return std::nullopt;
  const auto own = text->find("model_type");
  if (own == text->end() || !own->is_string()) return std::nullopt;
  const auto* const kind = find_family(own->get_ref<const std::string&>());
  if (kind == nullptr) return std::nullopt;
  const config_keys keys(*text, root, outer.file());
  auto shape = read_with(keys, *kind);
  shape.notes.push_back(fmt::format(
      "'{}' around {}: what stands beside the language model, a vision tower or the like, is not "
      "counted; --reserve may hold it",
      printable(outer.text("model_type").value_or(""), 60), kind->type));
  return shape;
}

/// MLX declares under "quantization" how its files are stored, and may repeat it where others declare theirs.
bool take_mlx(const std::string& file, json& root) {
  const auto at = root.find("quantization");
  if (at == root.end() || at->is_null()) return false;
  if (!at->is_object() || !at->contains("bits"))
    refuse_input(file, "key 'quantization'", "is " + told(*at),
                 "MLX's: an object with bits and group_size");
  auto format = std::move(*at);
  format["quant_method"] = "mlx";
  root["quantization_config"] = std::move(format);
  return true;
}

bool is_known_type(std::string_view name) {
  return name == kimi_vl || name == llama4 || find_family(name) != nullptr;
}

/// Puts the quantisation of MLX, of a file of its own, or of OpenAI's files where it is looked for.
void add_quantisation(std::string_view text, const std::string& file, json& root) {
  if (take_mlx(file, root) || root.contains("quantization_config")) return;
  if (is_openai_gpt_oss(config_keys(root, root, file)))
    root["quantization_config"] = {{"quant_method", "mxfp4"}};
  if (text.empty()) return;
  auto beside = parse(text, file + " (hf_quant_config.json)");
  const auto at = beside.find("quantization");
  if (at == beside.end() || !at->is_object()) return;
  (*at)["quant_method"] = "modelopt";
  root["quantization_config"] = std::move(*at);
}

}  // namespace

std::string hf_model_types() {
  std::vector<std::string_view> types;
  types.reserve(families.size() + 2);
  for (const auto& f : families) types.push_back(f.type);
  types.push_back(kimi_vl);
  types.push_back(llama4);
  return fmt::format("{}", fmt::join(types, ", "));
}

std::optional<unknown_family> read_unknown_family(std::string_view text, const std::string& file) {
  const auto root = parse(text, file);
  const config_keys outer(root, root, file);
  const auto type = outer.text("model_type");
  if (!type || is_known_type(*type)) return std::nullopt;
  const auto* const nested = outer.object("text_config");
  if (nested != nullptr &&
      is_known_type(config_keys(*nested, *nested, file).text("model_type").value_or("")))
    return std::nullopt;
  const config_keys keys(nested != nullptr ? *nested : root, root, file);
  unknown_family out{.type = *type};
  for (const auto key : top_k_keys)
    if (!out.top_k) out.top_k = keys.alike(key);
  out.layers = keys.number("num_hidden_layers", 1, most_layers).value_or(0);
  std::vector<std::string> unused;
  out.max_context = longest_context(keys, unused);
  return out;
}

model_shape parse_hf_config(std::string_view text, std::string_view quantisation,
                            const std::string& file) {
  auto root = parse(text, file);
  add_quantisation(quantisation, file, root);
  const config_keys keys(root, root, file);
  const auto type = keys.text("model_type");
  if (type == kimi_vl) return read_with_tower(root, file, kimi_vl, kimi_vl_text, kimi_vision);
  if (type == llama4) return read_with_tower(root, file, llama4, llama4_text, llama4_vision);
  if (type && find_family(*type) == nullptr)
    if (auto nested = read_nested(root, keys)) return *std::move(nested);
  return read_with(keys, family_of(root, keys));
}

}  // namespace hotset::lab
