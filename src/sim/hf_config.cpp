// SPDX-License-Identifier: Apache-2.0
#include "sim/hf_config.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hotset/sim/io/input_error.hpp"
#include "sim/config_keys.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::json;

/// What a model_type fixes and no key says, and the keys that it cannot do without.
struct family {
  std::string_view type;
  std::string_view expert_width = "intermediate_size";
  std::string_view
      shared_width{};  ///< a key that must be there; empty: shared experts are optional
  qk_norm norm = qk_norm::none;
  std::string_view norm_key{};  ///< false there turns the norm off
  bool is_latent = false;
  bool is_mamba = false;
  bool input_bias = false;      ///< of queries, keys and values, whatever attention_bias says
  bool attention_bias = false;  ///< where the key is missing
  bool norm_bias = false;
  bool correction_bias = false;
  bool router_in_f32 = false;
  bool biased_experts = false;  ///< and a biased router
  bool has_sinks = false;
  bool windows_alternate = false;    ///< where layer_types is missing: even layers have one
  bool window_needs_asking = false;  ///< use_sliding_window; from layer max_window_layers on
  bool is_causal = true;
};

constexpr std::string_view moe_width = "moe_intermediate_size";

constexpr std::array families = {
    family{.type = "olmoe", .norm = qk_norm::whole},
    family{.type = "mixtral"},
    family{.type = "qwen2_moe",
           .expert_width = moe_width,
           .shared_width = "shared_expert_intermediate_size",
           .input_bias = true,
           .window_needs_asking = true},
    family{.type = "qwen3_moe",
           .expert_width = moe_width,
           .norm = qk_norm::per_head,
           .window_needs_asking = true},
    family{.type = "phimoe", .norm_bias = true},
    family{.type = "deepseek_v2",
           .expert_width = moe_width,
           .shared_width = "n_shared_experts",
           .is_latent = true},
    family{.type = "deepseek_v3",
           .expert_width = moe_width,
           .shared_width = "n_shared_experts",
           .is_latent = true,
           .correction_bias = true},
    family{.type = "jamba", .is_mamba = true},
    family{.type = "minimax_m2",
           .norm = qk_norm::whole,
           .norm_key = "use_qk_norm",
           .correction_bias = true,
           .router_in_f32 = true},
    family{.type = "gpt_oss",
           .attention_bias = true,
           .biased_experts = true,
           .has_sinks = true,
           .windows_alternate = true},
    family{.type = "llada",
           .expert_width = "expert_intermediate_size",
           .norm = qk_norm::per_head,
           .norm_key = "qk_layernorm",
           .is_causal = false},
    family{.type = "lladamoe",
           .expert_width = "expert_intermediate_size",
           .norm = qk_norm::per_head,
           .norm_key = "qk_layernorm",
           .is_causal = false},
    family{.type = "tiny_moe", .expert_width = moe_width},  // examples/data/tiny-moe
};

/// A vision tower around the language model of another family, which stands under text_config.
constexpr std::string_view kimi_vl = "kimi_vl";
constexpr std::string_view kimi_vl_text = "deepseek_v3";

constexpr std::array<std::string_view, 3> expert_keys = {"num_experts", "num_local_experts",
                                                         "n_routed_experts"};
constexpr std::array<std::string_view, 2> top_k_keys = {"num_experts_per_tok", "experts_per_token"};
constexpr std::array<std::string_view, 2> dense_width_keys = {"dense_intermediate_size",
                                                              "intermediate_size"};

const family* find_family(std::string_view type) noexcept {
  const auto* const at = std::find_if(families.begin(), families.end(),
                                      [&](const family& f) { return f.type == type; });
  return at == families.end() ? nullptr : at;
}

class config_reader {
 public:
  config_reader(const config_keys& keys, const family& kind) : keys_(keys), kind_(kind) {}

  model_shape read() {
    shape_.type = kind_.type;
    shape_.hidden = keys_.need("hidden_size");
    shape_.vocabulary = keys_.need("vocab_size");
    shape_.layers.resize(keys_.need("num_hidden_layers", 1, most_layers));
    shape_.max_context = keys_.number("max_position_embeddings").value_or(0);
    shape_.tied_embeddings = keys_.flag("tie_word_embeddings", false);
    shape_.head_bias = keys_.flag("lm_head_bias", false);
    shape_.norm_bias = kind_.norm_bias;
    shape_.is_causal = kind_.is_causal;
    read_dtype();
    read_format();
    read_experts();
    read_moe_layers();
    kind_.is_latent ? read_latent() : read_grouped();
    if (kind_.is_mamba) read_mamba();
    read_windows();
    note_what_is_left_out();
    return std::move(shape_);
  }

 private:
  static constexpr std::uint64_t most_layers = 65536;
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
    const auto* const given = keys_.object("quantization_config");
    if (given == nullptr) return;
    const config_keys format(*given, *given, keys_.file());
    shape_.format_name = format.text("quant_method").value_or("");
    if (shape_.format_name == "mxfp4") {
      shape_.format = weight_format::mxfp4;
      shape_.notes.emplace_back(
          "MXFP4: 4.25 bits a weight of the experts, and no other is quantised");
    } else if (shape_.format_name == "fp8" && format.find("weight_block_size") != nullptr) {
      read_blocks(format);
    } else {
      shape_.format = weight_format::unknown;
    }
  }

  void read_blocks(const config_keys& format) {
    const auto block = *format.numbers("weight_block_size");
    if (block.size() != 2 || block[0] == 0 || block[1] == 0)
      refuse("weight_block_size", fmt::format("is [{}]", fmt::join(block, ", ")),
             "[rows, columns] of 1 or more");
    shape_.format = weight_format::fp8;
    shape_.block_rows = block[0];
    shape_.block_columns = block[1];
    shape_.notes.push_back(
        fmt::format("FP8: the linear layers with an F32 scale per block of {} x {}; embeddings, "
                    "head, norms and routers are not quantised",
                    block[0], block[1]));
    const auto plain = format.words("modules_to_not_convert").value_or(std::vector<std::string>());
    const auto names = [&](std::string_view part) {
      return std::any_of(plain.begin(), plain.end(), [&](const std::string& module) {
        return module.find(part) != std::string::npos;
      });
    };
    shape_.attention_is_plain = names("self_attn");
    shape_.shared_is_plain = names("shared_expert");
    if (shape_.attention_is_plain)
      shape_.notes.emplace_back("FP8 leaves the attention out (modules_to_not_convert)");
    if (shape_.shared_is_plain)
      shape_.notes.emplace_back("FP8 leaves the shared experts out (modules_to_not_convert)");
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
    shape_.experts = *keys_.number(*used, 0, most_experts);
    if (shape_.experts < 2)
      refuse(*used, fmt::format("is {}: a dense model has no experts to page", shape_.experts),
             "2 or more");
    shape_.top_k = keys_.need_any(top_k_keys);
    shape_.expert_width = keys_.need(kind_.expert_width);
    shape_.expert_bias = kind_.biased_experts;
    shape_.router_bias = kind_.biased_experts;
    shape_.router_in_f32 = kind_.router_in_f32;
    shape_.correction_bias = kind_.correction_bias;
    read_shared();
  }

  void read_shared() {
    if (!kind_.shared_width.empty()) (void)keys_.need(kind_.shared_width, 0);
    if (const auto count = keys_.number("n_shared_experts", 0))
      shape_.shared_width = extent("n_shared_experts", *count * shape_.expert_width);
    for (const auto* key : {"shared_expert_intermediate_size", "shared_intermediate_size"})
      if (const auto width = keys_.number(key, 0)) shape_.shared_width = *width;
    shape_.shared_gate = shape_.type == "qwen2_moe";
  }

  void read_moe_layers() {
    const auto dense = kind_.is_latent ? keys_.need("first_k_dense_replace", 0)
                                       : keys_.number("first_k_dense_replace", 0).value_or(0);
    const auto sparse_step = keys_.number("decoder_sparse_step").value_or(1);
    const auto without = layer_set("mlp_only_layers");
    const auto period = kind_.is_mamba ? keys_.need("expert_layer_period")
                                       : keys_.number("expert_layer_period").value_or(1);
    const auto offset = kind_.is_mamba ? keys_.need("expert_layer_offset", 0)
                                       : keys_.number("expert_layer_offset", 0).value_or(0);
    const auto listed = moe_layer_list();
    const auto every = listed ? 1 : keys_.number("moe_layer_freq").value_or(1);
    bool any = false;
    bool all = true;
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      const bool left_out = without[i];
      auto& layer = shape_.layers[i];
      layer.is_moe = i >= dense && (i + 1) % sparse_step == 0 && !left_out &&
                     i % period == offset && (listed ? (*listed)[i] != 0 : i % every == 0);
      any = any || layer.is_moe;
      all = all && layer.is_moe;
    }
    if (!any)
      refuse_input(keys_.file(), "",
                   fmt::format("none of its {} layers has experts", shape_.layers.size()),
                   "1 or more");
    if (!all) shape_.dense_width = keys_.need_any(dense_width_keys);
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
    a.output_bias = keys_.flag("attention_bias", kind_.attention_bias);
    a.input_bias = a.output_bias || kind_.input_bias;
    a.sinks = kind_.has_sinks;
    const bool on = kind_.norm_key.empty() || keys_.flag(kind_.norm_key, true);
    a.norm = on ? kind_.norm : qk_norm::none;
    if (const auto types = keys_.numbers("attn_type_list", shape_.layers.size()))
      for (std::size_t i = 0; i < types->size(); ++i)
        if ((*types)[i] != 1)
          refuse("attn_type_list", fmt::format("entry {} is {}", i, (*types)[i]),
                 "1, which is softmax attention");
  }

  [[nodiscard]] std::uint64_t head_dim(std::uint64_t heads) const {
    if (const auto given = keys_.number("head_dim")) return *given;
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
      shape_.layers[i].is_mamba = i % period != offset;
    shape_.notes.push_back(fmt::format(
        "recurrent state in the model's dtype, with a convolution state of {} (as vLLM keeps it)",
        m.kernel - 1));
  }

  [[nodiscard]] std::uint64_t time_step_rank() const {
    const auto* const given = keys_.find("mamba_dt_rank");
    if (given != nullptr && *given == "auto") return (shape_.hidden + 15) / 16;
    return keys_.need("mamba_dt_rank");
  }

  void read_windows() {
    const auto kinds = layer_kinds();
    const bool asked = !kind_.window_needs_asking || keys_.flag("use_sliding_window", false);
    if (asked) shape_.window = keys_.number("sliding_window", 0).value_or(0);
    const bool needed = kinds ? std::find(kinds->begin(), kinds->end(), true) != kinds->end()
                              : kind_.windows_alternate;
    if (needed && shape_.window == 0) shape_.window = keys_.need("sliding_window");
    if (shape_.window == 0) return;
    if (shape_.max_context > 0 && shape_.window >= shape_.max_context) {
      shape_.notes.push_back(fmt::format("sliding window {} never binds: the longest context is {}",
                                         shape_.window, shape_.max_context));
      shape_.window = 0;
      return;
    }
    const auto first = kind_.window_needs_asking && !kinds ? keys_.need("max_window_layers", 0) : 0;
    const auto has_window = [&](std::size_t i) {
      if (kinds) return bool{(*kinds)[i]};
      return kind_.windows_alternate ? i % 2 == 0 : i >= first;
    };
    std::size_t windowed = 0;
    for (std::size_t i = 0; i < shape_.layers.size(); ++i) {
      auto& layer = shape_.layers[i];
      layer.is_windowed = !layer.is_mamba && has_window(i);
      if (layer.is_windowed) ++windowed;
    }
    shape_.notes.push_back(fmt::format(
        "sliding window {} of {} layers; an engine keeps more than the window while it computes",
        shape_.window, windowed));
  }

  /// Whether each layer has a window, where layer_types says it.
  [[nodiscard]] std::optional<std::vector<bool>> layer_kinds() const {
    const auto types = keys_.words("layer_types", shape_.layers.size());
    if (!types) return std::nullopt;
    std::vector<bool> windowed;
    for (const auto& type : *types) {
      if (type != "full_attention" && type != "sliding_attention")
        refuse("layer_types", fmt::format("entry {} is '{}'", windowed.size(), type),
               "full_attention or sliding_attention");
      windowed.push_back(type == "sliding_attention");
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

/// MoonViT and the projector behind it: every linear layer and norm has a bias. Units: elements.
std::uint64_t kimi_vision(const json& root, const json& vision, const std::string& file,
                          std::uint64_t text_width) {
  constexpr std::uint64_t most = 65536;
  const config_keys keys(vision, root, file);
  const auto own = [&](const char* key) {
    if (!vision.contains(key))
      keys.refuse(fmt::format("vision_config.{}", key), "is missing", "it");
    return keys.need(key, 1, most);
  };
  const auto h = own("hidden_size");
  const auto width = own("intermediate_size");
  const auto patch = own("patch_size");
  const auto positions = own("init_pos_emb_height") * own("init_pos_emb_width");
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

json parse(std::string_view text, const std::string& file) {
  constexpr std::size_t most = std::size_t{16} << 20U;
  if (text.size() > most)
    refuse_input(file, "", fmt::format("has {} bytes", text.size()),
                 fmt::format("a config.json of up to {}", most));
  json root;
  try {
    root = json::parse(text);
  } catch (const json::parse_error& bad) {
    refuse_input(file, fmt::format("byte {}", bad.byte), "is not JSON here",
                 "a JSON object in UTF-8");
  } catch (const json::out_of_range& bad) {  // 1e999
    refuse_input(file, "", "holds a number that no double can: " + printable(bad.what(), 120),
                 "numbers of less than 1.8e308");
  }
  if (!root.is_object()) refuse_input(file, "", "is no JSON object", "a Hugging Face config.json");
  return root;
}

/// The family of an object's model_type.
const family& family_of(const config_keys& keys) {
  const auto type = keys.text("model_type");
  if (!type) keys.refuse("model_type", "is missing", hf_model_types());
  const auto* const found = find_family(*type);
  if (found != nullptr) return *found;
  const bool dense = std::none_of(expert_keys.begin(), expert_keys.end(),
                                  [&](const auto& key) { return keys.find(key) != nullptr; });
  keys.refuse(
      "model_type",
      fmt::format(
          "is '{}'{}", printable(*type, 60),
          dense ? ", and no number of experts is given: dense models have none to page" : ""),
      hf_model_types());
}

model_shape read_kimi(const json& root, const std::string& file) {
  const config_keys outer(root, root, file);
  const auto* const text = outer.object("text_config");
  if (text == nullptr) outer.refuse("text_config", "is missing", "an object");
  const config_keys keys(*text, root, file);
  if (text->value("model_type", json()) != kimi_vl_text)
    keys.refuse("text_config.model_type", "is not " + std::string(kimi_vl_text),
                std::string(kimi_vl_text));
  auto shape = config_reader(keys, *find_family(kimi_vl_text)).read();
  shape.type = kimi_vl;
  const auto* const vision = outer.object("vision_config");
  if (vision == nullptr) outer.refuse("vision_config", "is missing", "an object");
  shape.vision = kimi_vision(root, *vision, file, shape.hidden);
  shape.notes.push_back(
      fmt::format("vision tower and projector, {} bytes, are always on the device; the rotary "
                  "buffers in published files are not counted",
                  shape.vision * shape.dtype_bytes));
  return shape;
}

}  // namespace

std::string hf_model_types() {
  std::vector<std::string_view> types;
  types.reserve(families.size() + 1);
  for (const auto& f : families) types.push_back(f.type);
  types.push_back(kimi_vl);
  return fmt::format("{}", fmt::join(types, ", "));
}

model_shape parse_hf_config(std::string_view text, const std::string& file) {
  const auto root = parse(text, file);
  const config_keys keys(root, root, file);
  if (keys.text("model_type") == kimi_vl) return read_kimi(root, file);
  return config_reader(keys, family_of(keys)).read();
}

}  // namespace hotset::inline v0::sim
