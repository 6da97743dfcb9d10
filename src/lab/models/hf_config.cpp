// SPDX-License-Identifier: Apache-2.0
#include "lab/models/hf_config.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "hotset/registry/parameters.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/models/config_keys.hpp"
#include "lab/models/hf_families.hpp"
#include "lab/models/layer_kinds.hpp"
#include "lab/models/model_weights.hpp"
#include "lab/models/quantisation.hpp"
#include "lab/models/vision_towers.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;
using key_names = std::initializer_list<std::string_view>;
using enum trait;
using enum qk_norm;

constexpr std::uint64_t most_model_layers = 65536;

const key_names layer_count_keys = {"num_layers", "num_hidden_layers", "n_layers", "n_layer"};
const key_names expert_keys = {
    "num_experts", "num_local_experts", "n_routed_experts",   "moe_num_experts",
    "n_experts",   "num_moe_experts",   "num_routed_experts", "moe_num_primary_experts"};
const key_names top_k_keys = {"num_experts_per_tok", "num_experts_per_token",
                              "experts_per_token",   "moe_topk",
                              "moe_top_k",           "moe_k",
                              "top_k_experts",       "n_activated_experts",
                              "num_active_experts",  "num_selected_experts",
                              "moe_router_topk",     "moe_num_active_primary_experts"};
const key_names width_keys = {"moe_intermediate_size", "expert_ffn_hidden_size",
                              "expert_intermediate_size", "moe_ffn_hidden_size"};
const key_names mlp_keys = {"intermediate_size", "ffn_hidden_size"};
const key_names dense_keys = {"dense_intermediate_size", "prefix_dense_intermediate_size",
                              "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size"};
const key_names shared_keys = {"n_shared_experts", "num_shared_experts", "num_shared_expert",
                               "moe_num_shared_experts"};
const key_names head_keys = {"num_attention_heads", "n_heads", "num_heads", "n_head"};
const key_names kv_head_keys = {"num_key_value_heads", "num_attention_groups", "kv_n_heads"};
const key_names head_dim_keys = {"head_dim", "attention_head_dim", "kv_channels"};

bool is_one_of(std::string_view text, key_names words) {
  return std::ranges::find(words, text) != words.end();
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
  const auto own =
      keys.any({"max_position_embeddings", "model_max_length", "max_seq_len"}).value_or(0);
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

constexpr figure_set of_expert = set_of(model_figure::expert_bytes);
constexpr figure_set of_kv = set_of(model_figure::kv_bytes);
constexpr figure_set of_rest = set_of(model_figure::resident_bytes);
constexpr figure_set of_attention = of_kv | of_rest;
constexpr figure_set of_top_k = set_of(model_figure::top_k);

figure_set figures_of(const model_by_hand& given) {
  return (given.expert_bytes ? of_expert : 0) | (given.kv_bytes_per_token ? of_kv : 0) |
         (given.resident_bytes ? of_rest : 0) | (given.top_k ? of_top_k : 0);
}
/// Options that give figures, in the order of model_figure.
std::string options_of(figure_set figures) {
  std::vector<std::string_view> options;
  constexpr std::array<std::string_view, 4> all = {"--expert-bytes", "--kv-bytes-per-token",
                                                   "--resident-bytes", "--top-k"};
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((figures & (1U << i)) != 0) options.push_back(all[i]);
  return fmt::format("{}", fmt::join(options, " and "));
}

class config_reader {
 public:
  config_reader(const config_keys& keys, const hf_family* known, const model_by_hand& given)
      : keys_(keys), given_(given), lacking_(~figures_of(given)) {
    if (known != nullptr) kind_ = *known;
    shape_.type = keys.text("model_type").value_or("");
    shape_.is_known = known != nullptr;
    shape_.traits = kind_.traits;
    shape_.norms = kind_.norms;
    shape_.expert_norms = kind_.expert_norms;
  }

  model_shape read() {
    count_experts();
    shape_.hidden = need({"hidden_size", "d_model"}, of_expert | of_attention);
    shape_.vocabulary = need({"vocab_size"}, of_rest);
    shape_.layers.resize(count_layers());
    take_flag("tie_word_embeddings", tied_embeddings);
    take_flag("tie_embedding", tied_embeddings);
    take_flag("lm_head_bias", head_bias);
    read_dtype();
    shape_.max_context = longest_context(keys_, shape_.notes);
    read_experts();
    read_attention();
    read_layers();
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
  /// A number that decides figures; it may be missing if another source gives all of these.
  [[nodiscard]] std::uint64_t need(key_names keys, figure_set figures, std::uint64_t least = 1) {
    if (const auto found = keys_.any(keys, least)) return *found;
    if (lacks(figures))
      return keys_.need_any(keys, least, "; or by hand " + options_of(figures & lacking_));
    shape_.missing |= figures;
    return 1;
  }
  [[nodiscard]] std::uint64_t need(std::string_view key, figure_set figures,
                                   std::uint64_t least = 1) {
    return need({key}, figures, least);
  }
  /// Whether no other source gives one of the figures.
  [[nodiscard]] bool lacks(figure_set figures) const noexcept { return (figures & lacking_) != 0; }
  /// Tells of an unknown model_type what no key says.
  void take_as_usual(std::string text) {
    if (!shape_.is_known) usual_.push_back(std::move(text));
  }
  /// Checks a product of keys against the limit of a single key.
  [[nodiscard]] std::uint64_t extent(std::string_view key, std::uint64_t product) const {
    if (product > config_keys::most_extent)
      refuse(key, fmt::format("makes a width of {}", product),
             fmt::format("a width of at most {}", config_keys::most_extent));
    return product;
  }

  [[nodiscard]] std::size_t count_layers() const {
    const auto listed = listed_layers(keys_);
    for (const auto key : layer_count_keys)
      if (const auto found = keys_.number(key, 1, most_model_layers)) return *found;
    const auto count = listed.value_or(static_cast<std::size_t>(given_.layers.value_or(0)));
    if (count == 0 || count > most_model_layers)
      (void)keys_.need_any({"num_hidden_layers"}, 1, "; or by hand --layers");
    return count;
  }

  void read_dtype() {
    const std::string_view key = keys_.find("torch_dtype") != nullptr ? "torch_dtype" : "dtype";
    const auto name = keys_.text(key);
    if (!name) shape_.notes.emplace_back("no torch_dtype: bfloat16 is assumed");
    auto dtype = name.value_or("bfloat16");
    if (dtype.starts_with("torch.")) dtype.erase(0, 6);
    if (dtype == "float32")
      shape_.dtype_bytes = 4;
    else if (dtype != "bfloat16" && dtype != "float16")
      refuse(key, "is '" + dtype + "'", "bfloat16, float16 or float32");
  }

  void read_format() {
    shape_.codes.fill(shape_.plain_code());
    const auto* const given = keys_.object("quantization_config");
    const auto before = std::ssize(shape_.notes);
    if (given != nullptr) read_quantisation(*given, keys_.file(), shape_);
    shape_.format_notes = {before, std::ssize(shape_.notes)};
  }

  void count_experts() {
    const auto* const used = std::ranges::find_if(
        expert_keys, [&](const auto& key) { return keys_.find(key) != nullptr; });
    if (used == expert_keys.end() && !given_.experts) {
      const auto like = keys_.like("expert");
      refuse_input(
          keys_.file(), "",
          fmt::format("has none of {}: {}", fmt::join(expert_keys, ", "),
                      like.empty() ? "a dense model has no experts to page"
                                   : fmt::format("there is '{}'", fmt::join(like, "', '"))),
          "a Mixture-of-Experts model; or by hand --experts");
    }
    shape_.experts = used == expert_keys.end() ? static_cast<std::uint64_t>(*given_.experts)
                                               : *keys_.number(*used, 0, most_model_experts);
    if (shape_.experts < 2)
      refuse(used == expert_keys.end() ? *expert_keys.begin() : *used,
             fmt::format("is {}: a dense model has no experts to page", shape_.experts),
             "2 or more");
  }
  void read_experts() {
    shape_.top_k = need(top_k_keys, of_top_k);
    shape_.unrouted = keys_.number("zero_expert_num", 0).value_or(0);
    shape_.expert_width = expert_width();
    shape_.expert_input = keys_.any({"moe_latent_size", "routed_expert_hidden_size"}).value_or(0);
    for (const auto* key : {"use_bias", "mlp_bias"})
      if (keys_.flag(key, false))
        shape_.notes.push_back(fmt::format("'{}' is true: such biases are not counted", key));
    if (keys_.text("mlp_hidden_act") == "relu2") shape_.set(ungated_mlps, true);
    take_flag("residual_moe", dense_beside);
    take_flag("use_residual", dense_beside);
    read_ngrams();
    if (!has(ungated_mlps)) take_as_usual("experts of three matrices");
    if (keys_.find("tie_word_embeddings") == nullptr) take_as_usual("a head of its own");
    read_correction();
    read_shared();
  }

  [[nodiscard]] std::uint64_t expert_width() {
    if (const auto given = keys_.any(width_keys)) return *given;
    if (shape_.is_known && has(mlp_wide)) return need(mlp_keys, of_expert);
    const auto mlp = keys_.any(mlp_keys);
    if (shape_.is_known || !mlp) return need(width_keys, of_expert);
    take_as_usual("experts as wide as an MLP");
    return *mlp;
  }

  /// LongCat-Flash-Lite: embeddings of n-grams, beside those of words.
  void read_ngrams() {
    const auto ratio = keys_.number("ngram_vocab_size_ratio", 0, 4096).value_or(0);
    shape_.beside = ratio * shape_.vocabulary * shape_.hidden;
    if (ratio > 0)
      shape_.notes.push_back(fmt::format("embeddings of n-grams, {}, are always on the device",
                                         size_text(shape_.beside * shape_.dtype_bytes)));
  }

  /// Scores of a sigmoid come with a bias for each expert.
  void read_correction() {
    for (const auto* key :
         {"scoring_func", "score_function", "moe_router_activation_func", "topk_method"})
      if (is_one_of(keys_.text(key).value_or(""), {"sigmoid", "sqrtsoftplus", "noaux_tc"}))
        shape_.set(correction_bias, true);
    for (const auto* key : {"use_routing_bias", "use_expert_bias", "use_moe_router_bias",
                            "moe_router_enable_expert_bias"})
      take_flag(key, correction_bias);
  }

  void read_shared() {
    // Hunyuan's own code has shared experts only if MLPs and experts are mixed.
    const bool mixed = keys_.flag("use_mixed_mlp_moe", true) || shape_.type != "hunyuan";
    const auto count = keys_.any(shared_keys, 0).value_or(has(shared_expert) && mixed ? 1 : 0);
    const auto each =
        keys_.number("moe_shared_expert_intermediate_size", 0).value_or(shape_.expert_width);
    shape_.shared_width = keys_
                              .any({"shared_intermediate_size", "shared_expert_intermediate_size",
                                    "share_expert_dim", "share_expert_dims"},
                                   0)
                              .value_or(extent(*shared_keys.begin(), count * each));
    if (has(gated_shared)) (void)need("shared_expert_intermediate_size", of_rest, 0);
  }

  void read_moe_layers(const std::vector<layer_kind>& kinds) {
    using enum layer_kind;
    const bool is_split = std::ranges::find(kinds, experts) != kinds.end();
    const auto dense = first_moe_layer();
    const auto last = last_moe_layer();
    const auto sparse_step = step_of("decoder_sparse_step");
    const auto without = layer_set(keys_.numbers("mlp_only_layers").value_or(numbers()));
    const bool is_jamba = keys_.find("attn_layer_period") != nullptr;
    const auto period =
        is_jamba ? keys_.need("expert_layer_period") : step_of("expert_layer_period");
    const auto offset = is_jamba ? keys_.need("expert_layer_offset", 0)
                                 : keys_.number("expert_layer_offset", 0).value_or(0);
    const auto interval = step_of("moe_layer_interval") * step_of("interleave_moe_layer_step") *
                          step_of("moe_layer_frequency");
    const auto named = named_moe_layers();
    const auto with = layer_set(named.value_or(numbers()));
    const auto words = keys_.words("mlp_layer_types");
    if (words && words->size() < shape_.layers.size())
      refuse("mlp_layer_types", fmt::format("has {} entries", words->size()),
             fmt::format("one a layer ({})", shape_.layers.size()));
    const auto listed = moe_layer_list();
    const auto every = listed ? 1 : step_of("moe_layer_freq");
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      auto& layer = shape_.layers[i];
      if (is_split) {
        layer.is_moe = kinds[i] == experts;
        layer.has_mlp = layer.is_moe || kinds[i] == mlp;
      } else if (words) {
        layer.is_moe = (*words)[i] != "dense";
      } else {
        layer.is_moe = (listed || named || i >= dense) && i <= last && (i + 1) % sparse_step == 0 &&
                       !without[i] && i % period == offset &&
                       (listed ? (*listed)[i] != 0 : i % every == 0) &&
                       (named ? bool{with[i]} : (i + 1) % interval == 0);
      }
    }
    const auto is_dense = [](const model_layer& layer) { return layer.has_mlp && !layer.is_moe; };
    if (std::ranges::none_of(shape_.layers, &model_layer::is_moe))
      refuse_input(keys_.file(), "",
                   fmt::format("none of its {} layers has experts", shape_.layers.size()),
                   "1 or more");
    if (has(dense_beside) || std::ranges::any_of(shape_.layers, is_dense))
      shape_.dense_width =  // that of Arctic is as wide as the model
          keys_.flag("use_residual", false) ? shape_.hidden : need(dense_keys, of_rest);
  }
  [[nodiscard]] std::uint64_t step_of(std::string_view key) const {
    return keys_.number(key, 1, most_model_layers).value_or(1);
  }
  [[nodiscard]] std::uint64_t first_moe_layer() const {
    return keys_
        .any({"first_k_dense_replace", "moe_layer_start_index", "moe_layer_num_skipped",
              "num_dense_layers", "dense_mlp_idx"},
             0)
        .value_or(kind_.dense);
  }
  /// -1 means the last layer.
  [[nodiscard]] std::uint64_t last_moe_layer() const {
    const auto* const given = keys_.find("moe_layer_end_index");
    if (given == nullptr || *given == -1) return most_model_layers;
    return *keys_.number("moe_layer_end_index", 0);
  }
  /// Numbers past the last layer are ignored.
  [[nodiscard]] std::vector<bool> layer_set(const numbers& listed) const {
    std::vector<bool> out(shape_.layers.size());
    for (const auto number : listed)
      if (number < out.size()) out[static_cast<std::size_t>(number)] = true;
    return out;
  }
  /// Layers with experts by number; Step writes them as a text, "3,4,5".
  [[nodiscard]] std::optional<numbers> named_moe_layers() const {
    const auto* const given = keys_.find("moe_layers_enum");
    if (given == nullptr || !given->is_string())
      return given != nullptr ? keys_.numbers("moe_layers_enum") : keys_.numbers("moe_layers");
    numbers out;
    for (const auto part : detail::split_at(given->get_ref<const std::string&>(), ',')) {
      const auto number = parse_number<std::uint64_t>(part);
      if (!number) refuse("moe_layers_enum", "is " + described(*given), "numbers of layers");
      out.push_back(*number);
    }
    return out;
  }
  /// LLaDA-MoE lists for each layer what DeepSeek gives by a period.
  [[nodiscard]] std::optional<numbers> moe_layer_list() const {
    for (const auto* key : {"moe_layer_freq", "is_moe_layer", "moe_layer_layout"})
      if (const auto* const given = keys_.find(key); given != nullptr && given->is_array())
        return keys_.numbers(key, shape_.layers.size());
    return std::nullopt;
  }

  void read_attention() {
    take_flag("attention_bias", attention_bias);
    take_flag("qkv_bias", input_bias);
    take_flag("use_qkv_bias", input_bias);
    take_flag("attn_output_gate", gated_attention);
    take_flag("attention_output_gate", gated_attention);
    take_flag("use_head_wise_attn_gate", head_gates);
    const bool is_latent =
        keys_.find("kv_lora_rank") != nullptr || keys_.find("qk_nope_head_dim") != nullptr;
    if (is_latent && keys_.flag("use_mla", true))
      read_latent();
    else if (keys_.find("o_lora_rank") != nullptr)
      read_compressed();
    if (!shape_.latent && !shape_.compressed) read_grouped();
    read_index();
  }

  void read_grouped() {
    grouped_attention a;
    a.heads = need(head_keys, of_attention);
    a.kv_heads = keys_.any(kv_head_keys).value_or(a.heads);
    a.head_dim = head_dim(a.heads);
    a.value_dim = keys_.number("v_head_dim", 0).value_or(0);
    if (a.value_dim == 0) a.value_dim = a.head_dim;
    a.q_rank = keys_.number("share_q_dim").value_or(0);
    a.norm = norm_of_heads();
    a.has_sinks = has(has_sinks);
    for (auto& layer : shape_.layers) layer.grouped = a;
    read_shared_caches();
  }
  [[nodiscard]] qk_norm norm_of_heads() {
    const key_names keys = {"use_qk_norm", "qk_layernorm"};
    const auto* const key =
        std::ranges::find_if(keys, [&](auto one) { return keys_.find(one) != nullptr; });
    if (has(weightless_norms)) return none;
    if (key == keys.end()) {
      if (kind_.norm == none) take_as_usual("queries and keys without norms");
      return kind_.norm;
    }
    if (!keys_.flag(*key, false)) return none;
    if (keys_.text("qk_norm_type") == "per_layer") return whole;
    return kind_.norm == none ? per_head : kind_.norm;
  }
  /// Window layers and full ones may have heads of their own.
  void read_own_heads(model_layer& layer, bool is_windowed, std::size_t number) const {
    auto& a = layer.grouped;
    const auto take = [&](key_names keys, std::uint64_t& into) {
      if (const auto own = keys_.any(keys)) into = *own;
    };
    if (is_windowed) {
      take({"swa_num_attention_heads", "num_sliding_attention_heads"}, a.heads);
      take({"swa_num_key_value_heads"}, a.kv_heads);
      take({"swa_head_dim"}, a.head_dim);
      if (keys_.find("swa_head_dim") != nullptr) a.value_dim = a.head_dim;
      take({"swa_v_head_dim"}, a.value_dim);
    } else if (const auto global = keys_.number("global_head_dim")) {
      a.head_dim = a.value_dim = *global;
      a.key_is_value = keys_.flag("attention_k_eq_v", false);
      if (a.key_is_value) take({"num_global_key_value_heads"}, a.kv_heads);
    }
    if (const auto* const other = keys_.object("attention_other_setting");
        other != nullptr && is_windowed) {
      const config_keys own(*other, *other, keys_.file(), "attention_other_setting.");
      a.heads = own.any(head_keys).value_or(a.heads);
      a.kv_heads = own.any(kv_head_keys).value_or(a.kv_heads);
    }
    if (own_heads_) a.heads = (*own_heads_)[number];
    if (const auto* const entry = own_entries_[number]) {
      const config_keys own(*entry, *entry, keys_.file(), "per_layer_config.");
      a.heads = own.number("num_attention_heads").value_or(a.heads);
      a.kv_heads = own.number("num_key_value_heads").value_or(a.kv_heads);
      if (const auto dim = own.number("head_dim")) a.head_dim = a.value_dim = *dim;
      a.key_is_value = !is_windowed && keys_.flag("attention_k_eq_v", false);
    }
    a.has_sinks = keys_.flag(
        is_windowed ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias", a.has_sinks);
    a.gate = has(head_gates) ? a.heads : has(gated_attention) ? a.heads * a.value_dim : 0;
  }

  /// transformers 5.19 writes what differs in a layer under its number, such as "05".
  void find_own_entries() {
    own_entries_.resize(shape_.layers.size());
    const auto* const given = keys_.object("per_layer_config");
    if (given == nullptr) return;
    for (const auto& [key, entry] : given->items())
      if (const auto number = parse_number<std::uint64_t>(key);
          number && *number < own_entries_.size() && entry.is_object())
        own_entries_[static_cast<std::size_t>(*number)] = &entry;
  }

  /// Cross-layer attention: the first layer of each group has keys and values, which the others read.
  void read_shared_caches() {
    const auto share =
        keys_.flag("use_cla", false) ? keys_.need("cla_share_factor") : std::uint64_t{1};
    const auto last = keys_.number("num_kv_shared_layers", 0).value_or(0);
    const auto count = shape_.layers.size();
    for (std::size_t i = 0; i < count; ++i)
      shape_.layers[i].shares_kv = i % share != 0 || (last < count && i >= count - last);
  }

  [[nodiscard]] std::uint64_t head_dim(std::uint64_t heads) const {
    if (const auto given = keys_.any(head_dim_keys)) return *given;
    if (shape_.hidden % heads != 0 && lacks(of_attention))
      refuse("head_dim", "is missing",
             fmt::format("an integer, as hidden_size {} is no multiple of {} heads", shape_.hidden,
                         heads));
    return std::max<std::uint64_t>(shape_.hidden / heads, 1);
  }

  void read_latent() {
    latent_attention a;
    a.heads = need(head_keys, of_attention);
    a.q_rank = keys_.number("q_lora_rank").value_or(0);
    a.kv_rank = need("kv_lora_rank", of_attention);
    a.plain = need("qk_nope_head_dim", of_rest, 0);
    a.rope = need("qk_rope_head_dim", of_attention, 0);
    a.value = need("v_head_dim", of_rest);
    a.gate = keys_.flag("mla_use_output_gate", false) ? a.heads * a.value
             : has(head_gates)                        ? a.heads
                                                      : 0;
    shape_.latent = a;
    shape_.notes.push_back(
        fmt::format("latent attention: one vector of {} elements a token and layer is kept",
                    a.kv_rank + a.rope));
  }

  void read_compressed() {
    compressed_attention a;
    a.heads = need(head_keys, of_rest);
    a.head_dim = need(head_dim_keys, of_attention);
    a.q_rank = need("q_lora_rank", of_rest);
    a.groups = need("o_groups", of_rest);
    a.rank = need("o_lora_rank", of_rest);
    a.window = need("sliding_window", of_attention);
    a.streams = keys_.number("hc_mult", 1, 64).value_or(1);
    shape_.compressed = a;
    shape_.notes.push_back(
        fmt::format("compressed attention: one key of {} a group of tokens is cached, and those of "
                    "the last {} tokens as a sequence's state",
                    a.head_dim, a.window));
  }

  /// Keys by which sparse attention chooses tokens.
  void read_index() {
    const auto* const sparse = keys_.object("sparse_attention_config");
    const config_keys own(sparse != nullptr ? *sparse : empty_, empty_, keys_.file());
    const auto either = [&](std::string_view key, std::string_view old) {
      const auto found = keys_.number(key);
      return found ? found : own.number(old);
    };
    const auto dim = either("index_head_dim", "sparse_index_dim");
    if (!dim) return;
    shape_.index = token_index{either("index_n_heads", "sparse_num_index_heads").value_or(1), *dim};
    const auto count = shape_.layers.size();
    auto types = keys_.words("indexer_types");
    if (const auto pattern = keys_.text("index_topk_pattern"); pattern && !types) {
      types.emplace();
      for (const char letter : *pattern) types->emplace_back(letter == 'S' ? "shared" : "full");
    }
    const auto frequency = own.numbers("sparse_attention_freq");
    const auto words = keys_.words("layer_types").value_or(std::vector<std::string>());
    const bool are_told = has_any(fmt::format("{}", fmt::join(words, " ")), {"sparse", "indexed"});
    const auto period = keys_.number("index_topk_freq").value_or(1);
    const auto first = keys_.number("index_skip_topk_offset").value_or(2) - 1;
    for (std::size_t i = 0; i < count; ++i) {
      const bool shares = types ? i < types->size() && (*types)[i] == "shared"
                                : i > first && (i - first) % period != 0;
      const bool is_full = (frequency && i < frequency->size() && (*frequency)[i] == 0) ||
                           (are_told && i < words.size() && words[i] == "full_attention");
      shape_.layers[i].is_indexed = !shares && !is_full;
    }
    if (!shape_.compressed)
      shape_.notes.push_back(
          fmt::format("sparse attention: keys of {} elements a token are cached too, in the "
                      "cache's bits",
                      *dim));
  }

  /// Mixers, windows and experts by the kinds of layers.
  void read_layers() {
    using enum layer_kind;
    const auto count = shape_.layers.size();
    own_heads_ = keys_.numbers("num_attention_heads_per_layer", count);
    find_own_entries();
    const auto lacking = of_attention & lacking_;
    auto kinds = layer_kinds(keys_, count, kind_.layers,
                             lacking == 0 ? "" : "; or by hand " + options_of(lacking));
    if (shape_.compressed) read_rates(kinds);
    read_moe_layers(kinds);
    const bool is_said = std::ranges::find(kinds, sliding) != kinds.end();
    const bool is_chunked = std::ranges::find(kinds, chunked) != kinds.end();
    if (kinds.empty() && keys_.find("mamba_d_state") != nullptr)
      (void)need("attn_layer_period", of_attention);
    if (kinds.empty() && has(lightning) && lacks(of_attention))
      refuse("layer_types", "is missing", "it, attn_type_list or layer_group_size");
    if (kinds.empty())
      kinds = unsaid_kinds();
    else if (!is_said && !listed_layers(keys_))  // a period says where attention is, not its window
      std::ranges::replace(kinds, full, sliding);
    if (std::ranges::find(kinds, recurrent) != kinds.end()) read_recurrence();
    if (std::ranges::find(kinds, convolution) != kinds.end()) read_convolution();
    for (std::size_t i = 0; i < count; ++i) {
      auto& layer = shape_.layers[i];
      layer.mixer = mixer_of(kinds[i]);
      read_own_heads(layer, is_said && kinds[i] == sliding, i);
      if (layer.mixer != mixer_kind::attention) layer.is_indexed = false;
    }
    if (!shape_.compressed) read_window(kinds, is_chunked, is_said);
  }
  [[nodiscard]] mixer_kind mixer_of(layer_kind kind) const {
    switch (kind) {
      case layer_kind::recurrent: return recurrence_;
      case layer_kind::convolution: return mixer_kind::convolution;
      case layer_kind::experts:
      case layer_kind::mlp: return mixer_kind::none;
      default: return mixer_kind::attention;
    }
  }
  /// Without a list, each layer from max_window_layers on may have a window.
  [[nodiscard]] std::vector<layer_kind> unsaid_kinds() const {
    const auto first =
        has(window_from_a_layer) ? keys_.number("max_window_layers", 0).value_or(0) : 0;
    std::vector<layer_kind> kinds(shape_.layers.size(), layer_kind::sliding);
    for (std::size_t i = 0; i < std::min<std::size_t>(kinds.size(), first); ++i)
      kinds[i] = layer_kind::full;
    return kinds;
  }
  /// DeepSeek-V4: how many tokens one cached key stands for; those of the smallest rate have an index.
  void read_rates(std::vector<layer_kind>& kinds) {
    const auto ratios = keys_.numbers("compress_ratios").value_or(numbers());
    kinds.resize(shape_.layers.size(), layer_kind::pooled_far);
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      auto& layer = shape_.layers[i];
      layer.rate = i < ratios.size()                    ? ratios[i]
                   : kinds[i] == layer_kind::pooled_far ? 128
                   : kinds[i] == layer_kind::pooled     ? 4
                                                        : 0;
      layer.is_indexed = shape_.index && layer.rate == 4;
    }
  }

  /// The mixer of recurrent layers, by its keys.
  void read_recurrence() {
    const auto has_key = [&](std::string_view key) { return keys_.find(key) != nullptr; };
    if (has_key("linear_num_value_heads"))
      read_delta();
    else if (has_key("linear_attn_config") || has_key("short_conv_kernel_size"))
      read_kda();
    else if (has_key("mamba_n_heads") || has_key("mamba_num_heads"))
      read_mamba2();
    else if (has_key("mamba_d_state") || has_key("mamba_expand"))
      read_mamba();
    else if (has(lightning))
      read_lightning();
    else if (lacks(of_attention))
      refuse("layer_types", "has recurrent layers, and no keys of their mixer",
             "linear_num_value_heads, linear_attn_config, mamba_n_heads or mamba_d_state; or by "
             "hand " +
                 options_of(of_attention & lacking_));
  }
  void read_lightning() {
    recurrence_ = mixer_kind::lightning;
    for (auto& layer : shape_.layers) {
      auto& a = layer.grouped;
      a.heads = need(head_keys, of_rest);
      a.head_dim = head_dim(a.heads);
    }
    shape_.notes.emplace_back("lightning attention: a matrix a head is kept, in the model's dtype");
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
    set_delta(d);
  }
  void set_delta(const delta_mixer& d) {
    recurrence_ = mixer_kind::delta;
    shape_.delta = d;
    note_state(d.kernel - 1);
  }
  /// Kimi Delta Attention, by an object of its own; Ling has as many heads as its attention.
  void read_kda() {
    const auto* const given = keys_.object("linear_attn_config");
    const config_keys own(given != nullptr ? *given : empty_, empty_, keys_.file(),
                          "linear_attn_config.");
    const auto& from = given != nullptr ? own : keys_;
    delta_mixer d;
    d.is_kda = true;
    d.value_heads = from.need_any({"num_heads", "num_attention_heads"});
    d.key_dim = d.value_dim = from.need("head_dim");
    d.keys = d.values = extent("head_dim", d.value_heads * d.key_dim);
    d.kernel = from.need("short_conv_kernel_size");
    d.decay_rank = given != nullptr ? d.key_dim : 0;
    d.gate_rank = from.flag("use_full_rank_gate", given == nullptr) ? 0 : d.key_dim;
    set_delta(d);
  }
  void read_mamba2() {
    mamba_mixer m;
    m.heads = keys_.need_any({"mamba_n_heads", "mamba_num_heads"});
    const auto* const dim = keys_.find("mamba_d_head");
    const auto expand = keys_.any({"mamba_expand", "expand"}).value_or(2);
    m.inner =
        dim != nullptr && *dim == "auto"
            ? extent("mamba_expand", expand * shape_.hidden)
            : extent("mamba_d_head", m.heads * keys_.need_any({"mamba_d_head", "mamba_head_dim"}));
    m.state = keys_.need_any({"mamba_d_state", "ssm_state_size"});
    m.groups = keys_.any({"mamba_n_groups", "n_groups"}).value_or(1);
    (void)extent("mamba_n_groups", m.groups * m.state);
    m.kernel = keys_.need_any({"mamba_d_conv", "conv_kernel"});
    m.kernel_bias = keys_.flag("mamba_conv_bias", keys_.flag("use_conv_bias", true));
    set_mamba(m);
  }
  void read_mamba() {
    mamba_mixer m;
    m.inner = extent("mamba_expand", keys_.need("mamba_expand") * shape_.hidden);
    m.state = keys_.need("mamba_d_state");
    m.kernel = keys_.need("mamba_d_conv");
    const auto* const rank = keys_.find("mamba_dt_rank");
    m.rank = rank != nullptr && *rank == "auto" ? (shape_.hidden + 15) / 16
                                                : keys_.need("mamba_dt_rank");
    m.kernel_bias = keys_.flag("mamba_conv_bias", true);
    set_mamba(m);
  }
  void set_mamba(mamba_mixer& m) {
    recurrence_ = mixer_kind::mamba;
    m.projection_bias = keys_.flag("mamba_proj_bias", false);
    shape_.mamba = m;
    note_state(m.kernel - 1);
  }
  void read_convolution() {
    shape_.kernel = need("conv_L_cache", of_rest);
    shape_.kernel_bias = keys_.flag("conv_bias", false);
    note_state(shape_.kernel - 1);
  }
  void note_state(std::uint64_t convolution) {
    std::optional<std::string> said;
    for (const auto* key : {"mamba_ssm_cache_dtype", "mamba_ssm_dtype"})
      if (!said) said = keys_.text(key);
    const bool is_kda = recurrence_ == mixer_kind::delta && shape_.delta && shape_.delta->is_kda;
    if (said == "float32" || is_kda || (!said && has(state_in_f32))) shape_.state_dtype_bytes = 4;
    shape_.notes.push_back(
        fmt::format("recurrent state in {}{}, with a convolution state of {} (as vLLM keeps it)",
                    shape_.state_dtype_bytes == 4 ? "float32" : "the model's dtype",
                    said == "float32" ? ", as its config says" : "", convolution));
  }

  /// 0: none; Grok writes -1.
  [[nodiscard]] std::uint64_t window_size() const {
    for (const auto* key : {"sliding_window", "sliding_window_size"})
      if (const auto* const given = keys_.find(key))
        return *given == -1 ? 0 : *keys_.number(key, 0);
    return 0;
  }
  /// `is_said`: the config says which layers have a window.
  void read_window(const std::vector<layer_kind>& kinds, bool is_chunked, bool is_said) {
    const auto limited = is_chunked ? layer_kind::chunked : layer_kind::sliding;
    const std::string_view what = is_chunked ? "attention chunk" : "sliding window";
    std::uint64_t window = 0;
    if (is_chunked)
      window = keys_.number("attention_chunk_size", 0).value_or(8192);
    else if (keys_.flag("use_sliding_window", !has(window_needs_asking)))
      window = window_size();
    if (window == 0 && is_said && !is_chunked) window = need("sliding_window", of_kv);
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
      if (kinds[i] != limited || layer.mixer != mixer_kind::attention) continue;
      layer.window = window;
      ++windowed;
    }
    shape_.notes.push_back(
        fmt::format("{} {} of {} layers; an engine keeps more than the window while it computes",
                    what, window, windowed));
  }

  void note_what_is_left_out() {
    auto layers =
        keys_.any({"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"}, 0)
            .value_or(0);
    if (keys_.flag("use_mtp", false)) layers += keys_.number("num_mtp_modules", 0).value_or(0);
    if (layers > 0) shape_.notes.push_back(prediction_note(layers));
    if (shape_.is_known) return;
    shape_.notes.push_back(fmt::format(
        "'{}' is no known model_type: it is read by its keys{}{}", printable(shape_.type, 60),
        usual_.empty() ? "" : "; taken as usual: ", fmt::join(usual_, ", ")));
  }

  const config_keys& keys_;
  const model_by_hand& given_;
  figure_set lacking_;  ///< figures that the config must give
  hf_family kind_{};
  model_shape shape_{};
  mixer_kind recurrence_ = mixer_kind::attention;
  std::optional<numbers> own_heads_{};
  std::vector<const json*> own_entries_{};  ///< by layer; nullptr: none
  std::vector<std::string> usual_{};
  const json empty_ = json::object();
};

json parse(std::string_view text, const std::string& file) {
  return parse_json_object(text, file, "a Hugging Face config.json, a JSON object in UTF-8");
}

/// Objects of a decoder's own keys, as in DBRX.
constexpr std::array<const char*, 2> part_objects = {"ffn_config", "attn_config"};
/// Objects of a language model within a multimodal one.
constexpr std::array<const char*, 5> text_objects = {"text_config", "language_config", "llm_config",
                                                     "language_model", "thinker_config"};

bool counts_experts(const json& object) {
  const auto counts = [](const json& in) {
    return std::ranges::any_of(expert_keys, [&](auto key) {
      const auto at = in.find(key);
      return at != in.end() && !at->is_null();
    });
  };
  return counts(object) || std::ranges::any_of(part_objects, [&](const char* key) {
           const auto at = object.find(key);
           return at != object.end() && at->is_object() && counts(*at);
         });
}
/// The object of the decoder; nullptr: no object counts experts.
const json* find_decoder(const json& object, int depth = 0) {
  constexpr int deepest = 3;
  if (counts_experts(object)) return &object;
  for (const auto* key : text_objects)
    if (const auto at = object.find(key); at != object.end() && at->is_object() && depth < deepest)
      if (const auto* const found = find_decoder(*at, depth + 1)) return found;
  return nullptr;
}
/// ERNIE-VL counts experts of text, and of images: keeps the first ones. Returns a note, or nothing.
std::string keep_experts_of_text(json& all) {
  std::vector<std::string> others;
  for (const auto* key :
       {"moe_num_experts", "moe_intermediate_size", "moe_layer_start_index", "moe_layer_end_index"})
    if (const auto at = all.find(key); at != all.end() && at->is_array() && at->size() == 2 &&
                                       all.value("num_hidden_layers", json()) != 2) {
      others.push_back(fmt::format("{} {}", key, at->back().dump()));
      *at = json(at->front());
    }
  return others.empty()
             ? ""
             : fmt::format("experts of images are not counted ({}); --reserve may hold them",
                           fmt::join(others, ", "));
}
/// Adds the numbers that a config with differences alone lacks: those of its class. Returns a note, or nothing.
std::string add_defaults(json& all) {
  const auto type = all.value("model_type", json());
  const auto defaults =
      json::parse(class_defaults(type.is_string() ? type.get<std::string>() : std::string()));
  std::vector<std::string> added;
  auto filled = all;
  for (const auto& [key, value] : defaults.items()) {
    bool is_there = all.contains(key);
    for (const auto& names : {expert_keys, top_k_keys, layer_count_keys, width_keys, mlp_keys,
                              shared_keys, head_keys, kv_head_keys, head_dim_keys})
      if (is_one_of(key, names))
        is_there |= std::ranges::any_of(names, [&](auto name) { return all.contains(name); });
    if (is_there) continue;
    filled[key] = value;
    added.push_back(fmt::format("{} {}", key, value.dump()));
  }
  constexpr std::size_t fewest = 3;  // fewer are rather typing errors
  if (added.size() < fewest) return {};
  all = std::move(filled);
  return fmt::format("taken from the defaults of its class: {}", fmt::join(added, ", "));
}
/// Adds the keys of `from`; `replaces`: those that are there too, unless they are null.
void merge(json& into, const json& from, bool replaces) {
  for (const auto& [key, value] : from.items())
    if (!into.contains(key) || (!value.is_null() && (replaces || into[key].is_null())))
      into[key] = value;
}

/// Moves the quantisation to the key that is read. MLX declares its storage under "quantization", and may repeat it
/// under the usual key. modelopt has a separate file, whose text this is. DeepSeek names the experts' format beside it.
void add_quantisation(std::string_view text, const std::string& file, json& root) {
  json found;
  const auto separate =
      text.empty() ? json()
                   : parse(text, file + " (hf_quant_config.json)").value("quantization", json());
  if (const auto mlx = root.find("quantization"); mlx != root.end() && !mlx->is_null()) {
    if (!mlx->is_object() || !mlx->contains("bits"))
      refuse_input(file, "key 'quantization'", "is " + described(*mlx),
                   "MLX's: an object with bits and group_size");
    found = *mlx;
    found["quant_method"] = "mlx";
  } else if (separate.is_object() && root.value("quantization_config", json()).is_null()) {
    found = separate;
    found["quant_method"] = "modelopt";
  }
  if (found.is_object()) root["quantization_config"] = std::move(found);
  const auto format = root.find("quantization_config");
  if (format == root.end() || !format->is_object()) return;
  constexpr const char* cache = "kv_cache_quant_algo";
  if (separate.is_object() && separate.contains(cache) && !format->contains("kv_cache_scheme"))
    format->emplace(cache, separate[cache]);
  if (const auto experts = root.find("expert_dtype"); experts != root.end())
    (*format)["expert_dtype"] = *experts;
}

/// Counts the vision tower if it is known, and notes it otherwise.
void add_vision(const json& root, const std::string& outer, const std::string& file,
                model_shape& shape) {
  const auto vision = root.find("vision_config");
  const auto elements =
      vision != root.end() && vision->is_object()
          ? vision_elements(outer, config_keys(*vision, *vision, file, "vision_config."),
                            shape.hidden)
          : std::nullopt;
  if (!elements) {
    shape.notes.push_back(fmt::format(
        "'{}' around {}: what stands beside the language model, a vision tower or the like, is not "
        "counted; --reserve may hold it",
        printable(outer, 60), shape.type));
    return;
  }
  shape.type = outer;
  shape.beside += *elements;
  shape.notes.push_back(
      fmt::format("vision tower and projector, {}, are always on the device; the rotary "
                  "buffers in published files are not counted",
                  size_text(*elements * shape.dtype_bytes)));
}

}  // namespace

model_shape parse_hf_config(std::string_view text, std::string_view quantisation,
                            const std::string& file, const model_by_hand& given) {
  const auto root = parse(text, file);
  const auto* decoder = find_decoder(root);
  if (const auto nested = root.find("text_config");
      decoder == nullptr && nested != root.end() && nested->is_object())
    decoder = &*nested;
  auto all = root;
  const bool is_nested = decoder != nullptr && decoder != &root;
  if (is_nested) merge(all, *decoder, true);
  for (const auto* key : part_objects)
    if (const auto at = all.find(key); at != all.end() && at->is_object()) {
      const auto part = *at;
      merge(all, part, false);
    }
  add_quantisation(quantisation, file, all);
  std::vector<std::string> notes = {keep_experts_of_text(all)};
  const auto read = [&] {
    const config_keys keys(all, all, file);
    return config_reader(keys, find_family(keys.text("model_type").value_or("")), given).read();
  };
  model_shape shape;
  try {
    shape = read();
  } catch (const trace_error&) {
    notes.push_back(add_defaults(all));
    if (notes.back().empty()) throw;
    shape = read();
  }
  std::ranges::copy_if(notes, std::back_inserter(shape.notes),
                       [](const auto& note) { return !note.empty(); });
  if (is_nested)
    add_vision(root, config_keys(root, root, file).text("model_type").value_or(""), file, shape);
  return shape;
}

}  // namespace hotset::lab
