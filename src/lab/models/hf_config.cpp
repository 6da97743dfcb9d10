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

/// Norms of queries and keys, and the key that turns them on or off.
struct norm_rule {
  qk_norm norm = qk_norm::none;
  std::string_view key{};
  bool otherwise = true;  ///< where the key is missing
};

/// What a model_type fixes and no key says, and the keys that it cannot do without.
struct family {
  std::array<std::string_view, 2> types{};  ///< a second one may be empty
  std::string_view expert_width = "intermediate_size";
  std::string_view
      shared_width{};  ///< a key that must be there; empty: shared experts are optional
  norm_rule norm{};
  trait_set traits = 0;
  pattern layers = pattern::none;
};

constexpr std::uint64_t most_layers = 65536;
constexpr std::string_view moe_width = "moe_intermediate_size";
constexpr std::string_view shared_count = "n_shared_experts";
constexpr std::string_view shared_expert_width = "shared_expert_intermediate_size";

using enum trait;
constexpr std::array families = {
    family{.types = {"olmoe"}, .norm = {qk_norm::whole}}, family{.types = {"mixtral"}},
    family{.types = {"qwen2_moe"},
           .expert_width = moe_width,
           .shared_width = shared_expert_width,
           .traits = set_of(input_bias, gated_shared, window_needs_asking, window_from_a_layer)},
    family{.types = {"qwen3_moe", "qwen3_vl_moe_text"},
           .expert_width = moe_width,
           .norm = {qk_norm::per_head},
           .traits = set_of(window_needs_asking, window_from_a_layer)},
    family{.types = {"qwen3_next"},
           .expert_width = moe_width,
           .shared_width = shared_expert_width,
           .norm = {qk_norm::per_head},
           .traits = set_of(gated_attention, gated_shared),
           .layers = pattern::delta_interval},
    family{.types = {"phimoe"}, .traits = set_of(norm_bias)},
    family{.types = {"deepseek_v2"},
           .expert_width = moe_width,
           .shared_width = shared_count,
           .traits = set_of(keeps_latents)},
    family{.types = {"deepseek_v3", "kimi_k2"},
           .expert_width = moe_width,
           .shared_width = shared_count,
           .traits = set_of(keeps_latents, correction_bias)},
    family{.types = {"glm4_moe"},
           .expert_width = moe_width,
           .shared_width = shared_count,
           .norm = {qk_norm::per_head, "use_qk_norm", false},
           .traits = set_of(plain_output, correction_bias, correction_in_f32)},
    family{.types = {"dots1"},
           .expert_width = moe_width,
           .shared_width = shared_count,
           .norm = {qk_norm::per_head},
           .traits = set_of(correction_bias, correction_in_f32, window_from_a_layer)},
    family{.types = {"ernie4_5_moe"},
           .expert_width = moe_width,
           .traits = set_of(correction_bias, correction_in_f32, tied_embeddings)},
    family{.types = {"llama4_text"}, .traits = set_of(shared_expert), .layers = pattern::chunks},
    // Without moe_intermediate_size the experts have the width of a dense MLP.
    family{.types = {"hunyuan", "hunyuan_v1_moe"},
           .expert_width = moe_width,
           .norm = {qk_norm::per_head, "use_qk_norm"},
           .traits = set_of(shared_expert, router_in_f32, dense_width_experts)},
    family{.types = {"jamba"}, .traits = set_of(has_mamba)},
    family{.types = {"minimax_m2"},
           .norm = {qk_norm::whole, "use_qk_norm"},
           .traits = set_of(correction_bias, router_in_f32)},
    family{.types = {"minimax_text_01", "minimax_m1"}, .layers = pattern::lightning_list},
    family{.types = {"minimax"}, .layers = pattern::odd_lightning},
    family{.types = {"gpt_oss"},
           .traits = set_of(attention_bias, biased_experts, has_sinks),
           .layers = pattern::even_windows},
    family{.types = {"llada", "lladamoe"},
           .expert_width = "expert_intermediate_size",
           .norm = {qk_norm::per_head, "qk_layernorm"},
           .traits = set_of(non_causal)},
    family{.types = {"tiny_moe"}, .expert_width = moe_width},  // examples/data/tiny-moe
};

constexpr std::array<std::string_view, 4> expert_keys = {"num_experts", "num_local_experts",
                                                         "n_routed_experts", "moe_num_experts"};
constexpr std::array<std::string_view, 4> top_k_keys = {"num_experts_per_tok", "experts_per_token",
                                                        "moe_topk", "moe_k"};
constexpr std::array<std::string_view, 3> dense_width_keys = {
    "dense_intermediate_size", "intermediate_size_mlp", "intermediate_size"};
constexpr std::array<std::string_view, 3> shared_count_keys = {
    "n_shared_experts", "moe_num_shared_experts", "num_shared_expert"};

const family* find_family(std::string_view type) noexcept {
  const auto* const at = std::ranges::find_if(families, [&](const family& f) {
    return !type.empty() && std::ranges::find(f.types, type) != f.types.end();
  });
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
  config_reader(const config_keys& keys, std::string_view type)
      : keys_(keys), kind_(*find_family(type)) {
    shape_.type = type;
    shape_.traits = kind_.traits;
  }

  model_shape read() {
    shape_.hidden = keys_.need("hidden_size");
    shape_.vocabulary = keys_.need("vocab_size");
    shape_.layers.resize(keys_.need("num_hidden_layers", 1, most_layers));
    take_flag("tie_word_embeddings", tied_embeddings);
    take_flag("lm_head_bias", head_bias);
    read_dtype();
    shape_.max_context = longest_context(keys_, shape_.notes);
    read_experts();
    read_moe_layers();
    has(keeps_latents) ? read_latent() : read_grouped();
    if (has(has_mamba)) read_mamba();
    read_mixers();
    read_windows();
    read_format();
    note_what_is_left_out();
    return std::move(shape_);
  }

 private:
  static constexpr std::uint64_t most_experts = std::uint64_t{1} << 20U;
  static constexpr std::string_view linear_word = "linear_attention";

  [[noreturn]] void refuse(std::string_view key, const std::string& found,
                           const std::string& accepted) const {
    keys_.refuse(key, found, accepted);
  }
  [[nodiscard]] bool has(trait t) const noexcept { return shape_.has(t); }
  /// A key that says of a model what its family says otherwise.
  void take_flag(std::string_view key, trait t) { shape_.set(t, keys_.flag(key, has(t))); }
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
    if (keys_.flag("use_bias", false)) refuse("use_bias", "is true", "false");
    read_shared();
  }

  [[nodiscard]] std::uint64_t expert_width() const {
    if (const auto given = keys_.alike(kind_.expert_width)) return *given;
    return keys_.need(has(dense_width_experts) ? "intermediate_size" : kind_.expert_width);
  }

  void read_shared() {
    if (!kind_.shared_width.empty()) (void)keys_.need(kind_.shared_width, 0);
    // Hunyuan's own code has shared experts where MLPs and experts are mixed.
    const bool mixed = keys_.flag("use_mixed_mlp_moe", true) || shape_.type != "hunyuan";
    std::uint64_t count = has(shared_expert) && mixed ? 1 : 0;
    for (const auto key : shared_count_keys)
      if (const auto given = keys_.alike(key, 0)) count = *given;
    shape_.shared_width = extent("n_shared_experts", count * shape_.expert_width);
    for (const auto* key : {"shared_expert_intermediate_size", "shared_intermediate_size"})
      if (const auto width = keys_.alike(key, 0)) shape_.shared_width = *width;
  }

  void read_moe_layers() {
    const auto dense = first_moe_layer();
    const auto last = last_moe_layer();
    const auto sparse_step = keys_.number("decoder_sparse_step").value_or(1);
    const auto without = layer_set("mlp_only_layers");
    const auto period = has(has_mamba) ? keys_.need("expert_layer_period")
                                       : keys_.number("expert_layer_period").value_or(1);
    const auto offset = has(has_mamba) ? keys_.need("expert_layer_offset", 0)
                                       : keys_.number("expert_layer_offset", 0).value_or(0);
    const auto interval = step_of("moe_layer_interval") * step_of("interleave_moe_layer_step");
    const bool named = keys_.find("moe_layers") != nullptr;
    const auto with = layer_set("moe_layers");
    const auto listed = moe_layer_list();
    const auto every = listed ? 1 : keys_.number("moe_layer_freq").value_or(1);
    for (std::size_t i = 0; i < shape_.layers.size(); ++i)
      shape_.layers[i].is_moe = i >= dense && i <= last && (i + 1) % sparse_step == 0 &&
                                !without[i] && i % period == offset &&
                                (listed ? (*listed)[i] != 0 : i % every == 0) &&
                                (named ? bool{with[i]} : (i + 1) % interval == 0);
    const auto moe_layers =
        static_cast<std::size_t>(std::ranges::count(shape_.layers, true, &model_layer::is_moe));
    if (moe_layers == 0)
      refuse_input(keys_.file(), "",
                   fmt::format("none of its {} layers has experts", shape_.layers.size()),
                   "1 or more");
    if (moe_layers < shape_.layers.size()) shape_.dense_width = keys_.need_any(dense_width_keys);
  }
  [[nodiscard]] std::uint64_t step_of(std::string_view key) const {
    return keys_.number(key, 1, most_layers).value_or(1);
  }
  [[nodiscard]] std::uint64_t first_moe_layer() const {
    if (has(keeps_latents)) return keys_.need("first_k_dense_replace", 0);
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
    take_flag("attention_bias", attention_bias);
    const auto& [norm, key, otherwise] = kind_.norm;
    if (key.empty() || keys_.flag(key, otherwise)) a.norm = norm;
    read_shared_caches();
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
    const auto layers = shape_.layers.size();
    const auto types = has_linear() ? keys_.words("layer_types", layers) : std::nullopt;
    const bool is_listed = kind_.layers == pattern::lightning_list;
    std::optional<std::vector<std::uint64_t>> list;
    if (is_listed ? !types : !has(keeps_latents)) list = attention_list(is_listed);
    if (!has_linear()) return;
    const bool is_delta = kind_.layers == pattern::delta_interval;
    if (is_delta) read_delta();
    const auto interval =
        is_delta && !types ? keys_.number("full_attention_interval").value_or(4) : 1;
    std::size_t count = 0;
    for (std::size_t i = 0; i < layers; ++i) {
      const bool linear = types       ? (*types)[i] == linear_word
                          : is_listed ? (*list)[i] == 0
                          : is_delta  ? (i + 1) % interval != 0
                                      : i % 2 == 1;
      if (!linear) continue;
      shape_.layers[i].mixer = is_delta ? mixer_kind::delta : mixer_kind::lightning;
      ++count;
    }
    if (!is_delta)
      shape_.notes.push_back(fmt::format(
          "lightning attention in {} of {} layers: a matrix a head is kept, in the model's dtype",
          count, layers));
  }
  [[nodiscard]] bool has_linear() const noexcept {
    return kind_.layers == pattern::delta_interval || kind_.layers == pattern::odd_lightning ||
           kind_.layers == pattern::lightning_list;
  }
  /// attn_type_list: 1 is softmax attention, 0 is linear attention where a family has it.
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> attention_list(bool may_be_linear) const {
    constexpr std::string_view key = "attn_type_list";
    auto list = keys_.numbers(key, shape_.layers.size());
    if (may_be_linear && !list)
      refuse(key, "is missing", fmt::format("{} of 0 or 1", shape_.layers.size()));
    for (std::size_t i = 0; list && i < list->size(); ++i)
      if ((*list)[i] > 1 || (!may_be_linear && (*list)[i] == 0))
        refuse(key, fmt::format("entry {} is {}", i, (*list)[i]),
               may_be_linear ? "0 or 1" : "1, which is softmax attention");
    return list;
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
    note_state(d.kernel - 1);
  }

  [[nodiscard]] std::uint64_t time_step_rank() const {
    const auto* const given = keys_.find("mamba_dt_rank");
    if (given != nullptr && *given == "auto") return (shape_.hidden + 15) / 16;
    return keys_.need("mamba_dt_rank");
  }

  /// Layers whose attention sees a sliding window alone, or its own chunk of the context.
  void read_windows() {
    const bool chunked = kind_.layers == pattern::chunks;
    const bool alternate = kind_.layers == pattern::even_windows;
    const std::string_view key = chunked ? "attention_chunk_size" : "sliding_window";
    const std::string_view what = chunked ? "attention chunk" : "sliding window";
    const auto kinds = layer_kinds(chunked ? "chunked_attention" : "sliding_attention");
    auto& window = shape_.window;
    if (!has(window_needs_asking) || keys_.flag("use_sliding_window", false))
      window = keys_.number(key, 0).value_or(chunked ? 8192 : 0);
    if (!chunked && window == 0 && (kinds ? std::ranges::count(*kinds, true) > 0 : alternate))
      window = keys_.need(key);
    const auto no_rope = chunked ? no_rope_layers() : std::vector<std::uint64_t>();
    const auto interval =
        chunked ? keys_.number("no_rope_layer_interval").value_or(4) : std::uint64_t{1};
    if (window == 0) return;
    if (shape_.max_context != 0 && window >= shape_.max_context) {
      shape_.notes.push_back(fmt::format("{} {} never binds: the longest context is {}", what,
                                         window, shape_.max_context));
      window = 0;
      return;
    }
    const auto first = has(window_from_a_layer) && !kinds ? keys_.need("max_window_layers", 0) : 0;
    std::size_t windowed = 0;
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      auto& layer = shape_.layers[i];
      const bool limited = kinds              ? bool{(*kinds)[i]}
                           : !no_rope.empty() ? no_rope[i] != 0
                           : chunked          ? (i + 1) % interval != 0
                           : alternate        ? i % 2 == 0
                                              : i >= first;
      layer.is_windowed = limited && layer.mixer == mixer_kind::attention;
      if (layer.is_windowed) ++windowed;
    }
    shape_.notes.push_back(
        fmt::format("{} {} of {} layers; an engine keeps more than the window while it computes",
                    what, window, windowed));
  }
  /// Empty, or one entry a layer or more: 0 where a layer has no positions, and sees all tokens.
  [[nodiscard]] std::vector<std::uint64_t> no_rope_layers() const {
    auto listed = keys_.numbers("no_rope_layers").value_or(std::vector<std::uint64_t>());
    if (!listed.empty() && listed.size() < shape_.layers.size())
      refuse("no_rope_layers", fmt::format("has {} entries", listed.size()),
             fmt::format("none, or one a layer ({})", shape_.layers.size()));
    return listed;
  }

  /// Whether each layer is of the limited kind, where layer_types says it. Some families have linear attention, too.
  [[nodiscard]] std::optional<std::vector<bool>> layer_kinds(std::string_view limited) const {
    const auto types = keys_.words("layer_types", shape_.layers.size());
    if (!types) return std::nullopt;
    std::vector<bool> windowed;
    for (const auto& type : *types) {
      if (type != "full_attention" && type != limited && !(has_linear() && type == linear_word))
        refuse("layer_types", fmt::format("entry {} is '{}'", windowed.size(), printable(type, 60)),
               fmt::format("full_attention or {}{}", limited,
                           has_linear() ? " or linear_attention" : ""));
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

/// Elements of a vision tower and of the projector behind it.
using vision_elements = std::uint64_t (*)(const config_keys& vision, std::uint64_t text_width);

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

/// Llama 4's tower, its adapter and the projector, which have no bias.
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

/// A model around a language model of `text_type` whose vision tower is counted.
struct tower_model {
  std::string_view type, text_type;
  vision_elements elements;
};
constexpr std::array towers = {tower_model{"kimi_vl", "deepseek_v3", kimi_vision},
                               tower_model{"llama4", "llama4_text", llama4_vision}};

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

/// The model_type of an object, which is that of a known family.
std::string known_type(const json& root, const config_keys& keys) {
  if (is_openai_gpt_oss(keys)) return "gpt_oss";
  const auto accepted =
      fmt::format("by hand {}; the folder of its .safetensors files; or one of {}", hand_options,
                  hf_model_types());
  const auto type = keys.text("model_type");
  if (!type) keys.refuse("model_type", "is missing", accepted);
  if (find_family(*type) != nullptr) return *type;
  keys.refuse("model_type",
              fmt::format("is '{}'{}", printable(*type, 60),
                          counts_experts(root)
                              ? ""
                              : ", and no number of experts is given: dense models have none to "
                                "page"),
              accepted);
}

/// Pre: the type is that of a known family.
model_shape read_with(const config_keys& keys, std::string_view type) {
  auto shape = config_reader(keys, type).read();
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

const json& need_object(const config_keys& keys, std::string_view key) {
  const auto* const found = keys.object(key);
  if (found == nullptr) keys.refuse(key, "is missing", "an object");
  return *found;
}

model_shape read_with_tower(const json& root, const config_keys& outer, const tower_model& known) {
  const auto& text = need_object(outer, "text_config");
  const config_keys keys(text, root, outer.file());
  const auto own_type = text.find("model_type");
  if (own_type != text.end() && !own_type->is_null() && *own_type != known.text_type)
    keys.refuse("text_config.model_type", fmt::format("is not {}", known.text_type),
                std::string(known.text_type));
  auto shape = read_with(keys, known.text_type);
  shape.type = known.type;
  const auto& vision = need_object(outer, "vision_config");
  shape.vision =
      known.elements(config_keys(vision, vision, outer.file(), "vision_config."), shape.hidden);
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
  if (own == text->end() || !own->is_string() || find_family(own->get<std::string>()) == nullptr)
    return std::nullopt;
  auto shape = read_with(config_keys(*text, root, outer.file()), own->get<std::string>());
  shape.notes.push_back(fmt::format(
      "'{}' around {}: what stands beside the language model, a vision tower or the like, is not "
      "counted; --reserve may hold it",
      printable(outer.text("model_type").value_or(""), 60), shape.type));
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
  return std::ranges::find(towers, name, &tower_model::type) != towers.end() ||
         find_family(name) != nullptr;
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
  for (const auto& f : families)
    for (const auto type : f.types)
      if (!type.empty()) types.push_back(type);
  for (const auto& tower : towers) types.push_back(tower.type);
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
  for (const auto& tower : towers)
    if (type == tower.type) return read_with_tower(root, keys, tower);
  if (type && find_family(*type) == nullptr)
    if (auto nested = read_nested(root, keys)) return *std::move(nested);
  return read_with(keys, known_type(root, keys));
}

}  // namespace hotset::lab
