// SPDX-License-Identifier: Apache-2.0
#include "lab/models/hf_config.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/models/config_keys.hpp"
#include "lab/models/model_weights.hpp"
#include "lab/models/quantisation.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

/// Layers without softmax attention over all tokens, if layer_types does not give them.
enum class pattern : std::uint8_t {
  none,
  even_windows,  ///< even layers have a sliding window
  chunks,        ///< no_rope_layers: layers with positions attend within a chunk
  /// full_attention_interval: the last layer of each interval has attention, the others Gated DeltaNet.
  delta_interval,
  lightning_list,  ///< attn_type_list: 0 is lightning attention
  odd_lightning,   ///< odd layers have lightning attention
};

/// Norms of queries and keys, and the key that turns them on or off.
struct norm_rule {
  qk_norm norm = qk_norm::none;
  std::string_view key{};
  bool otherwise = true;  ///< default without the key
};

constexpr std::uint64_t most_layers = 65536;
constexpr std::string_view mlp_width = "intermediate_size";
constexpr std::string_view moe_width = "moe_intermediate_size";
constexpr std::string_view shared_count = "n_shared_experts";
constexpr std::string_view shared_expert_width = "shared_expert_intermediate_size";

/// Properties implied by a model_type without a key, and the required keys.
struct family {
  std::string_view type;
  std::string_view expert_width = mlp_width;
  /// A required key; empty: shared experts are optional.
  std::string_view shared_width{};
  norm_rule norm{};
  trait_set traits = 0;
  pattern layers = pattern::none;
};

using enum trait;
constexpr norm_rule whole{qk_norm::whole};
constexpr norm_rule per_head{qk_norm::per_head};
constexpr trait_set deepseek = set_of(keeps_latents, correction_bias);
constexpr trait_set f32_correction = set_of(correction_bias, correction_in_f32);
constexpr trait_set qwen2 =
    set_of(input_bias, gated_shared, window_needs_asking, window_from_a_layer);
constexpr trait_set qwen3 = set_of(window_needs_asking, window_from_a_layer);
// Without moe_intermediate_size the experts have the width of a dense MLP.
constexpr trait_set hunyuan = set_of(shared_expert, router_in_f32, dense_width_experts);
constexpr norm_rule hunyuan_norm{qk_norm::per_head, "use_qk_norm"};
constexpr norm_rule llada_norm{qk_norm::per_head, "qk_layernorm"};
constexpr std::string_view llada_width = "expert_intermediate_size";
constexpr auto families = std::to_array<family>({
    {"olmoe", mlp_width, {}, whole},
    {"mixtral"},
    {"qwen2_moe", moe_width, shared_expert_width, {}, qwen2},
    {"qwen3_moe", moe_width, {}, per_head, qwen3},
    {"qwen3_vl_moe_text", moe_width, {}, per_head, qwen3},
    {"qwen3_next", moe_width, shared_expert_width, per_head, set_of(gated_attention, gated_shared),
     pattern::delta_interval},
    {"phimoe", mlp_width, {}, {}, set_of(norm_bias)},
    {"deepseek_v2", moe_width, shared_count, {}, set_of(keeps_latents)},
    {"deepseek_v3", moe_width, shared_count, {}, deepseek},
    {"kimi_k2", moe_width, shared_count, {}, deepseek},
    {"glm4_moe",
     moe_width,
     shared_count,
     {qk_norm::per_head, "use_qk_norm", false},
     f32_correction | set_of(plain_output)},
    {"dots1", moe_width, shared_count, per_head, f32_correction | set_of(window_from_a_layer)},
    {"ernie4_5_moe", moe_width, {}, {}, f32_correction | set_of(tied_embeddings)},
    {"llama4_text", mlp_width, {}, {}, set_of(shared_expert), pattern::chunks},
    {"hunyuan", moe_width, {}, hunyuan_norm, hunyuan},
    {"hunyuan_v1_moe", moe_width, {}, hunyuan_norm, hunyuan},
    {"jamba", mlp_width, {}, {}, set_of(has_mamba)},
    {"minimax_m2",
     mlp_width,
     {},
     {qk_norm::whole, "use_qk_norm"},
     set_of(correction_bias, router_in_f32)},
    {"minimax_text_01", mlp_width, {}, {}, 0, pattern::lightning_list},
    {"minimax_m1", mlp_width, {}, {}, 0, pattern::lightning_list},
    {"minimax", mlp_width, {}, {}, 0, pattern::odd_lightning},
    {"gpt_oss",
     mlp_width,
     {},
     {},
     set_of(attention_bias, biased_experts, has_sinks),
     pattern::even_windows},
    {"llada", llada_width, {}, llada_norm, set_of(non_causal)},
    {"lladamoe", llada_width, {}, llada_norm, set_of(non_causal)},
    {"tiny_moe", moe_width},  // examples/data/tiny-moe
});

using names = std::initializer_list<std::string_view>;
const names expert_keys = {"num_experts", "num_local_experts", "n_routed_experts",
                           "moe_num_experts"};
const names top_k_keys = {"num_experts_per_tok", "experts_per_token", "moe_topk", "moe_k"};
const names dense_width_keys = {"dense_intermediate_size", "intermediate_size_mlp", mlp_width};

bool is_one_of(std::string_view text, names words) {
  return std::ranges::find(words, text) != words.end();
}

const family* find_family(std::string_view type) noexcept {
  const auto* const at = std::ranges::find(families, type, &family::type);
  return at == families.end() ? nullptr : at;
}

/// Scaling of the full-attention layers, if each kind of layer has its own.
const json* rope_scaling(const config_keys& keys) {
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto* const given = keys.object(key);
    if (given == nullptr) continue;
    const auto full = given->find("full_attention");
    return full != given->end() && full->is_object() ? &*full : given;
  }
  return nullptr;
}

/// Longest context in tokens, extended by rope scaling as in vLLM; 0: unknown.
std::uint64_t longest_context(const config_keys& keys, std::vector<std::string>& notes) {
  const auto own = keys.number("max_position_embeddings").value_or(0);
  const auto* const scaling = rope_scaling(keys);
  if (scaling == nullptr) return own;
  const config_keys rope(*scaling, *scaling, keys.file());
  const auto type = rope.text("rope_type").value_or(rope.text("type").value_or("default"));
  // For these types max_position_embeddings already is the extended length.
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
    read_layer_kinds();
    read_format();
    note_what_is_left_out();
    return std::move(shape_);
  }

 private:
  using numbers = std::vector<std::uint64_t>;

  [[noreturn]] void refuse(std::string_view key, const std::string& found,
                           const std::string& accepted) const {
    keys_.refuse(key, found, accepted);
  }
  [[nodiscard]] bool has(trait t) const noexcept { return shape_.has(t); }
  /// Overrides a trait of the family by a key of the config.
  void take_flag(std::string_view key, trait t) { shape_.set(t, keys_.flag(key, has(t))); }
  /// Checks a product of keys against the limit of a single key.
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
    const auto* const used = std::ranges::find_if(
        expert_keys, [&](const auto& key) { return keys_.find(key) != nullptr; });
    if (used == expert_keys.end())
      refuse_input(keys_.file(), "",
                   fmt::format("has none of {}: a dense model has no experts to page",
                               fmt::join(expert_keys, ", ")),
                   "a Mixture-of-Experts model");
    shape_.experts = *keys_.number(*used, 0, most_experts);
    if (shape_.experts < 2)
      refuse(*used, fmt::format("is {}: a dense model has no experts to page", shape_.experts),
             "2 or more");
    shape_.top_k = keys_.need_any(top_k_keys);
    shape_.expert_width = expert_width();
    if (keys_.flag("use_bias", false)) refuse("use_bias", "is true", "false");
    read_shared();
  }

  [[nodiscard]] std::uint64_t expert_width() const {
    if (const auto given = keys_.number(kind_.expert_width)) return *given;
    return keys_.need(has(dense_width_experts) ? "intermediate_size" : kind_.expert_width);
  }

  void read_shared() {
    if (!kind_.shared_width.empty()) (void)keys_.need(kind_.shared_width, 0);
    // Hunyuan's own code has shared experts only if MLPs and experts are mixed.
    const bool mixed = keys_.flag("use_mixed_mlp_moe", true) || shape_.type != "hunyuan";
    const auto count = keys_.any({"num_shared_expert", "moe_num_shared_experts", shared_count}, 0)
                           .value_or(has(shared_expert) && mixed ? 1 : 0);
    const auto width = extent(shared_count, count * shape_.expert_width);
    shape_.shared_width =
        keys_.any({"shared_intermediate_size", shared_expert_width}, 0).value_or(width);
  }

  void read_moe_layers() {
    const auto dense = first_moe_layer();
    const auto last = last_moe_layer();
    const auto sparse_step = step_of("decoder_sparse_step");
    const auto without = layer_set("mlp_only_layers");
    const bool mamba = has(has_mamba);
    const auto period = mamba ? keys_.need("expert_layer_period") : step_of("expert_layer_period");
    const auto offset = mamba ? keys_.need("expert_layer_offset", 0)
                              : keys_.number("expert_layer_offset", 0).value_or(0);
    const auto interval = step_of("moe_layer_interval") * step_of("interleave_moe_layer_step");
    const bool named = keys_.find("moe_layers") != nullptr;
    const auto with = layer_set("moe_layers");
    const auto listed = moe_layer_list();
    const auto every = listed ? 1 : step_of("moe_layer_freq");
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
    return keys_.any({"first_k_dense_replace", "moe_layer_start_index", "moe_layer_num_skipped"}, 0)
        .value_or(0);
  }
  /// -1 means the last layer.
  [[nodiscard]] std::uint64_t last_moe_layer() const {
    const auto* const given = keys_.find("moe_layer_end_index");
    if (given == nullptr || *given == -1) return most_layers;
    return *keys_.number("moe_layer_end_index", 0);
  }

  /// Layers that a list names by number; numbers past the last layer are ignored.
  [[nodiscard]] std::vector<bool> layer_set(std::string_view key) const {
    std::vector<bool> out(shape_.layers.size());
    for (const auto number : keys_.numbers(key).value_or(numbers()))
      if (number < out.size()) out[static_cast<std::size_t>(number)] = true;
    return out;
  }

  /// LLaDA-MoE lists for each layer what DeepSeek gives by a period.
  [[nodiscard]] std::optional<numbers> moe_layer_list() const {
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

  /// Cross-layer attention: the first layer of each group has keys and values, which the others read.
  void read_shared_caches() {
    if (!keys_.flag("use_cla", false)) return;
    const auto share = keys_.need("cla_share_factor");
    for (std::size_t i = 0; i < shape_.layers.size(); ++i)
      shape_.layers[i].shares_kv = i % share != 0;
  }

  [[nodiscard]] std::uint64_t head_dim(std::uint64_t heads) const {
    if (const auto given = keys_.any({"head_dim", "attention_head_dim"})) return *given;
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

  /// Kinds of layers: linear attention, a sliding window or chunks. From layer_types, or from the family's own keys.
  void read_layer_kinds() {
    const bool is_delta = kind_.layers == pattern::delta_interval;
    const bool is_chunked = kind_.layers == pattern::chunks;
    const bool is_listed = kind_.layers == pattern::lightning_list;
    const bool may_be_linear = is_delta || is_listed || kind_.layers == pattern::odd_lightning;
    const std::string_view limited = is_chunked ? "chunked_attention" : "sliding_attention";
    const auto types = keys_.words("layer_types", shape_.layers.size());
    const bool has_no_list = is_listed ? types.has_value() : has(keeps_latents);
    const auto attention = has_no_list ? numbers() : attention_list();
    const auto kinds =
        types ? kinds_of(*types, limited, may_be_linear) : kinds_of_family(attention);
    if (is_delta) read_delta();
    std::size_t linear = 0;
    for (std::size_t i = 0; i < kinds.size(); ++i)
      if (kinds[i] == layer_kind::linear) {
        shape_.layers[i].mixer = is_delta ? mixer_kind::delta : mixer_kind::lightning;
        ++linear;
      }
    if (may_be_linear && !is_delta)
      shape_.notes.push_back(fmt::format(
          "lightning attention in {} of {} layers: a matrix a head is kept, in the model's dtype",
          linear, kinds.size()));
    const bool is_said = types || kind_.layers == pattern::even_windows;
    read_window(kinds, is_chunked, is_said && std::ranges::count(kinds, layer_kind::limited) > 0);
  }

  enum class layer_kind : std::uint8_t { full, limited, linear };

  [[nodiscard]] std::vector<layer_kind> kinds_of(const std::vector<std::string>& types,
                                                 std::string_view limited,
                                                 bool may_be_linear) const {
    std::vector<layer_kind> kinds;
    for (const auto& type : types) {
      if (type != "full_attention" && type != limited &&
          !(may_be_linear && type == "linear_attention"))
        refuse("layer_types", fmt::format("entry {} is '{}'", kinds.size(), printable(type, 60)),
               fmt::format("full_attention or {}{}", limited,
                           may_be_linear ? " or linear_attention" : ""));
      kinds.push_back(type == limited            ? layer_kind::limited
                      : type == "full_attention" ? layer_kind::full
                                                 : layer_kind::linear);
    }
    return kinds;
  }

  /// Kinds without layer_types. `attention`: attn_type_list.
  [[nodiscard]] std::vector<layer_kind> kinds_of_family(const numbers& attention) const {
    using enum layer_kind;
    const auto no_rope = kind_.layers == pattern::chunks ? no_rope_layers() : numbers();
    const std::string_view key =
        kind_.layers == pattern::chunks ? "no_rope_layer_interval" : "full_attention_interval";
    const bool by_interval =
        kind_.layers == pattern::chunks || kind_.layers == pattern::delta_interval;
    const auto interval = by_interval ? keys_.number(key).value_or(4) : 1;
    const auto first =
        has(window_from_a_layer) ? keys_.number("max_window_layers", 0).value_or(0) : 0;
    std::vector<layer_kind> kinds;
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      const bool is_last = (i + 1) % interval == 0;
      switch (kind_.layers) {
        case pattern::none: kinds.push_back(i >= first ? limited : full); break;
        case pattern::even_windows: kinds.push_back(i % 2 == 0 ? limited : full); break;
        case pattern::chunks:
          kinds.push_back((no_rope.empty() ? is_last : no_rope[i] == 0) ? full : limited);
          break;
        case pattern::delta_interval: kinds.push_back(is_last ? limited : linear); break;
        case pattern::lightning_list: kinds.push_back(attention[i] == 0 ? linear : limited); break;
        case pattern::odd_lightning: kinds.push_back(i % 2 == 1 ? linear : limited); break;
      }
    }
    return kinds;
  }

  /// attn_type_list: 1 is softmax attention, 0 is linear attention if the family has it.
  [[nodiscard]] numbers attention_list() const {
    constexpr std::string_view key = "attn_type_list";
    const bool is_listed = kind_.layers == pattern::lightning_list;
    const auto list = keys_.numbers(key, shape_.layers.size());
    if (is_listed && !list)
      refuse(key, "is missing", fmt::format("{} of 0 or 1", shape_.layers.size()));
    for (std::size_t i = 0; list && i < list->size(); ++i)
      if ((*list)[i] > 1 || (!is_listed && (*list)[i] == 0))
        refuse(key, fmt::format("entry {} is {}", i, (*list)[i]),
               is_listed ? "0 or 1" : "1, which is softmax attention");
    return list.value_or(numbers());
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

  /// `is_said`: the config says which layers have a window.
  void read_window(const std::vector<layer_kind>& kinds, bool is_chunked, bool is_said) {
    const std::string_view key = is_chunked ? "attention_chunk_size" : "sliding_window";
    const std::string_view what = is_chunked ? "attention chunk" : "sliding window";
    std::uint64_t window = 0;
    if (!has(window_needs_asking) || keys_.flag("use_sliding_window", false))
      window = keys_.number(key, 0).value_or(is_chunked ? 8192 : 0);
    if (window == 0 && is_said && !is_chunked) window = keys_.need(key);
    if (window == 0) return;
    if (shape_.max_context != 0 && window >= shape_.max_context) {
      shape_.notes.push_back(fmt::format("{} {} never binds: the longest context is {}", what,
                                         window, shape_.max_context));
      return;
    }
    if (has(window_from_a_layer) && keys_.find("layer_types") == nullptr)
      (void)keys_.need("max_window_layers", 0);
    std::size_t windowed = 0;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      auto& layer = shape_.layers[i];
      if (kinds[i] != layer_kind::limited || layer.mixer != mixer_kind::attention) continue;
      layer.window = window;
      ++windowed;
    }
    shape_.notes.push_back(
        fmt::format("{} {} of {} layers; an engine keeps more than the window while it computes",
                    what, window, windowed));
  }
  /// Empty, or at least one entry per layer: 0 for a layer without positions, which sees all tokens.
  [[nodiscard]] numbers no_rope_layers() const {
    auto listed = keys_.numbers("no_rope_layers").value_or(numbers());
    if (!listed.empty() && listed.size() < shape_.layers.size())
      refuse("no_rope_layers", fmt::format("has {} entries", listed.size()),
             fmt::format("none, or one a layer ({})", shape_.layers.size()));
    return listed;
  }

  void note_what_is_left_out() {
    auto layers = keys_.number("num_nextn_predict_layers", 0).value_or(0);
    if (keys_.flag("use_mtp", false)) layers += keys_.number("num_mtp_modules", 0).value_or(0);
    if (layers > 0) shape_.notes.push_back(prediction_note(layers));
  }

  const config_keys& keys_;
  const family& kind_;
  model_shape shape_;
};

/// Elements of a vision tower and its projector.
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

/// A model that wraps a language model of `text_type`, with a vision tower that is counted.
struct tower_model {
  std::string_view type, text_type;
  vision_elements elements;
};
constexpr std::array towers = {tower_model{"kimi_vl", "deepseek_v3", kimi_vision},
                               tower_model{"llama4", "llama4_text", llama4_vision}};

json parse(std::string_view text, const std::string& file) {
  return parse_json_object(text, file, "a Hugging Face config.json, a JSON object in UTF-8");
}

/// Whether any key of the object, or of a nested one, counts experts.
bool counts_experts(const json& object, int depth = 0) {
  constexpr int deepest = 4;
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && depth < deepest && counts_experts(value, depth + 1)) return true;
    if (value.is_number() && key.ends_with("experts") && value > 1) return true;
  }
  return false;
}

/// The object's model_type, which must be a known family.
std::string known_type(const json& root, const config_keys& keys) {
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

/// A model that wraps a language model of a known family. Returns nothing for any other.
std::optional<model_shape> read_nested(const json& root, const config_keys& outer) {
  const auto type = outer.text("model_type").value_or("");
  const auto* const tower = std::ranges::find(towers, type, &tower_model::type);
  const bool has_tower = tower != towers.end();
  const auto object = [&](std::string_view key) {
    const auto* const found = outer.object(key);
    if (found == nullptr && has_tower) outer.refuse(key, "is missing", "an object");
    return found;
  };
  const auto* const text = object("text_config");
  if (text == nullptr || type.empty() || find_family(type) != nullptr) return std::nullopt;
  const auto own = config_keys(*text, *text, outer.file()).text("model_type");
  if (has_tower && own && *own != tower->text_type)
    outer.refuse("text_config.model_type", fmt::format("is not {}", tower->text_type),
                 std::string(tower->text_type));
  const auto inner = has_tower ? std::string(tower->text_type) : own.value_or("");
  if (find_family(inner) == nullptr) return std::nullopt;
  const config_keys keys(*text, root, outer.file());
  auto shape = config_reader(keys, inner).read();
  if (!has_tower) {
    shape.notes.push_back(fmt::format(
        "'{}' around {}: what stands beside the language model, a vision tower or the like, is not "
        "counted; --reserve may hold it",
        printable(type, 60), shape.type));
    return shape;
  }
  shape.type = type;
  const auto& vision = *object("vision_config");
  shape.vision =
      tower->elements(config_keys(vision, vision, outer.file(), "vision_config."), shape.hidden);
  shape.notes.push_back(
      fmt::format("vision tower and projector, {}, are always on the device; the rotary "
                  "buffers in published files are not counted",
                  size_text(shape.vision * shape.dtype_bytes)));
  return shape;
}

bool is_known_type(std::string_view name) {
  return std::ranges::find(towers, name, &tower_model::type) != towers.end() ||
         find_family(name) != nullptr;
}

/// Moves the quantisation to the key that is read. MLX declares its storage under "quantization", and may repeat it
/// under the usual key. modelopt has a separate file, whose text this is.
void add_quantisation(std::string_view text, const std::string& file, json& root) {
  json found;
  if (const auto mlx = root.find("quantization"); mlx != root.end() && !mlx->is_null()) {
    if (!mlx->is_object() || !mlx->contains("bits"))
      refuse_input(file, "key 'quantization'", "is " + described(*mlx),
                   "MLX's: an object with bits and group_size");
    found = std::move(*mlx);
    found["quant_method"] = "mlx";
  } else if (!text.empty() && !root.contains("quantization_config")) {
    found = parse(text, file + " (hf_quant_config.json)").value("quantization", json());
    if (found.is_object()) found["quant_method"] = "modelopt";
  }
  if (found.is_object()) root["quantization_config"] = std::move(found);
}

}  // namespace

std::string hf_model_types() {
  std::vector<std::string_view> types;
  types.reserve(std::size(families) + std::size(towers));
  for (const auto& one : families) types.push_back(one.type);
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
  out.top_k = keys.any(top_k_keys);
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
  if (auto nested = read_nested(root, keys)) return *std::move(nested);
  return config_reader(keys, known_type(root, keys)).read();
}

}  // namespace hotset::lab
