// SPDX-License-Identifier: Apache-2.0
#include "lab/models/quantisation.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/models/config_keys.hpp"
#include "lab/models/module_patterns.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;
using enum model_module;

constexpr std::uint64_t most_group = 65536;

constexpr module_set expert_set = set_of(expert_gate, expert_up, expert_down);
constexpr module_set head_set = set_of(head);
/// Linear layers of the decoder, which every method quantises unless it leaves them out.
constexpr module_set linear_layers =
    expert_set | set_of(shared_gate, shared_up, shared_down, dense_gate, dense_up, dense_down,
                        query, key, value, output, output_gate, query_low, key_value_low, key_value,
                        linear_in, linear_gates, linear_out);
/// A scale and an input scale a weight.
constexpr weight_code fp8_code{.bits = 8, .scale_bits = 32, .tensor_bytes = 4};
constexpr module_set all_modules = linear_layers | set_of(router, embeddings, head);

struct part_name {
  module_set modules;
  std::string_view name;
};
constexpr std::array part_names = {
    part_name{expert_set, "experts"},
    part_name{set_of(shared_gate, shared_up, shared_down), "shared experts"},
    part_name{set_of(dense_gate, dense_up, dense_down), "dense MLPs"},
    part_name{set_of(query, key, value, output, output_gate, query_low, key_value_low, key_value),
              "attention"},
    part_name{set_of(linear_in, linear_gates, linear_out), "linear attention"},
    part_name{set_of(router), "routers"},
};
/// Of a module within its part, in the order of model_module.
constexpr std::array<std::string_view, model_modules> module_names = {
    "gate", "up", "down",  "gate", "up",     "down",       "gate",       "up",
    "down", "q",  "k",     "v",    "output", "gate",       "q low rank", "kv low rank",
    "kv",   "in", "gates", "out",  "router", "embeddings", "head"};

/// Keys of a quantization_config that are read, or that change no size. Spaces on both sides of each.
constexpr std::string_view known_keys =
    " act_bits act_data_type act_dynamic act_group_size act_sym activation_scale_ub "
    "activation_scheme amp autoround_version backend batch_size bits block_name_to_quantize "
    "cache_block_outputs checkpoint_format config_groups damp_auto_increment damp_percent "
    "data_type dataset dequantize desc_act disable_exllama do_fuse dynamic "
    "enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input exclude_modules "
    "exllama_config export_format extra_config fmt format fuse_max_seq_len "
    "global_compression_ratio gradient_accumulate_steps group_size ignore ignored_layers "
    "is_marlin_format iters kv_cache_quant_algo kv_cache_scheme lm_head low_cpu_mem_usage "
    "low_gpu_mem_usage lr lr_scheduler max_input_length meta minmax_lr mode "
    "model_file_base_name model_name_or_path model_seqlen module_name_preceding_first_block "
    "modules_in_block_to_quantize modules_to_fuse modules_to_not_convert nsamples pack_dtype "
    "packing_format pad_token_id producer q_group_size quant_algo quant_method "
    "quantization_status run_compressed sampler scale_dtype scale_fmt seqlen sparsity_config "
    "static_groups supported_act_bits sym tokenizer train_bs true_sequential use_cuda_fp16 "
    "use_exllama version w_bit weight_block_size zero_point ";
/// Keys of an override, likewise.
constexpr std::string_view known_rules =
    " bits group_size sym desc_act data_type act_bits act_data_type act_dynamic "
    "act_group_size act_sym damp_percent damp_auto_increment mse scale_dtype ";

bool is_in(std::string_view words, const std::string& key) {
  return key.find(' ') == key.npos && words.find(" " + key + " ") != words.npos;
}

/// "4 bits", "8.5 bits an element with its scales" and the like are computed, so that the note is what is counted.
std::string text_of(const weight_code& code) {
  auto text = fmt::format("{} bits", code.bits);
  if (code.scale_bits > 0)
    text += fmt::format(", a scale of {} bits {}", code.scale_bits,
                        code.block_rows == 0      ? "a weight"
                        : code.block_columns == 0 ? "a row"
                        : code.block_rows == 1    ? fmt::format("a group of {}", code.block_columns)
                                                  : fmt::format("per block of {} x {}",
                                                                code.block_rows, code.block_columns));
  if (code.zero_bits > 0) text += fmt::format(" and a zero point of {}", code.zero_bits);
  return text;
}

/// Gives a code to modules of a list, none of which has another.
void put(std::vector<stored_otherwise>& among, module_set modules, const weight_code& code) {
  const auto at = std::ranges::find(among, code, &stored_otherwise::code);
  if (at == among.end())
    among.push_back({modules, code});
  else
    at->modules |= modules;
}

/// The codes that patterns give to modules: one pattern may name all layers, one of them, or one expert.
class module_claims {
 public:
  /// Returns false if another pattern gave another code to a module.
  bool add(const named_modules& named, const weight_code& code) {
    auto& here = by_layer_[named.layer];
    if (!named.expert) return give(here.codes, named.modules, code);
    const auto at = std::ranges::find_if(here.of_experts, [&](const claim& c) {
      return c.modules == named.modules && c.code == code;
    });
    auto& some = at != here.of_experts.end()
                     ? *at
                     : here.of_experts.emplace_back(claim{named.modules, code, {}});
    some.experts.insert(*named.expert);
    return true;
  }
  /// Gives to all experts what each of them was given. Returns false if some were not, or if two codes meet.
  bool settle(std::uint64_t experts) {
    const auto& everywhere = by_layer_[std::nullopt].codes;  // the first of all
    for (auto& [layer, here] : by_layer_) {
      for (const auto& [modules, code, some] : here.of_experts) {
        if (has(everywhere, modules, code) || has(here.codes, modules, code)) continue;
        const bool all = some.size() == experts && *some.rbegin() < experts;
        if (!all || !give(here.codes, modules, code)) return false;
      }
      for (const auto& [modules, code] : here.codes)
        if (meets(everywhere, modules, code)) return false;
    }
    return true;
  }
  /// What was given of a layer, else of all; nullptr: nothing was. Pre: settled.
  [[nodiscard]] const weight_code* of(std::optional<std::uint64_t> layer,
                                      model_module module) const {
    for (const auto& place : {layer, std::optional<std::uint64_t>()})
      if (const auto at = by_layer_.find(place); at != by_layer_.end())
        if (const auto* const code = find_code(at->second.codes, module)) return code;
    return nullptr;
  }

 private:
  struct claim {
    module_set modules = 0;
    weight_code code{};
    std::set<std::uint64_t> experts{};
  };
  struct layer_claims {
    std::vector<stored_otherwise> codes{};
    std::vector<claim> of_experts{};
  };

  /// Whether a module of the set has another code.
  static bool meets(const std::vector<stored_otherwise>& all, module_set modules,
                    const weight_code& code) {
    return std::ranges::any_of(all, [&](const stored_otherwise& one) {
      return one.code != code && (one.modules & modules) != 0;
    });
  }
  static bool has(const std::vector<stored_otherwise>& all, module_set modules,
                  const weight_code& code) {
    return std::ranges::any_of(all, [&](const stored_otherwise& one) {
      return one.code == code && (modules & ~one.modules) == 0;
    });
  }
  static bool give(std::vector<stored_otherwise>& all, module_set modules,
                   const weight_code& code) {
    if (meets(all, modules, code)) return false;
    put(all, modules, code);
    return true;
  }

  std::map<std::optional<std::uint64_t>, layer_claims> by_layer_;  // nothing: of all layers
};

class quantisation_reader {
 public:
  quantisation_reader(const config_keys& format, const json& object, model_shape& shape)
      : keys_(format), object_(object), shape_(shape), plain_(shape.plain_code()) {}

  void read() {
    read_kv();
    const auto given = keys_.text("quant_method").value_or("");
    const auto* const found = std::ranges::find_if(methods, [&](const method& m) {
      return m.is_prefix ? given.starts_with(m.name) : given == m.name;
    });
    if (found == methods.end())
      return unknown(given.empty() ? "has no quant_method"
                                   : "'quant_method' is '" + printable(given, 60) + "'");
    (this->*found->read)();
    if (name_ != mlx_name) {  // whose rules stand beside its own keys
      leave_out();
      override_modules();
    }
    settle();
    note_unknown_keys();
  }

 private:
  static constexpr std::string_view mlx_name = "MLX";
  struct method {
    std::string_view name;
    void (quantisation_reader::*read)();
    bool is_prefix = false;  ///< modelopt has names with a version behind
  };
  static const std::array<method, 9> methods;

  /// The first reason counts.
  void unknown(const std::string& why) {
    if (shape_.unknown_format.empty()) shape_.unknown_format = why;
  }

  void store(const weight_code& code, module_set modules) {
    for (std::size_t m = 0; m < model_modules; ++m)
      if ((modules & (module_set{1} << m)) != 0) shape_.codes[m] = code;
  }
  /// `how`: in words, where they are not those of the code.
  void use(std::string_view name, const weight_code& code, module_set modules,
           const std::string& how = {}) {
    name_ = name;
    store(code, modules);
    shape_.notes.push_back(fmt::format(
        "{}: the linear layers {}; embeddings, {}norms and routers are not quantised", name,
        how.empty() ? "at " + text_of(code) : how, (modules & head_set) != 0 ? "" : "head, "));
  }

  /// What engines take for an "auto" cache.
  void read_kv() {
    if (const auto algorithm = keys_.text("kv_cache_quant_algo"); algorithm && *algorithm != "None")
      declare_kv("kv_cache_quant_algo", *algorithm,
                 *algorithm == "FP8" || *algorithm == "INT8" ? 8.0
                 : *algorithm == "NVFP4"                     ? 4.5
                                                             : 0.0);
    const auto* const scheme = keys_.object("kv_cache_scheme");
    if (scheme == nullptr || scheme->empty()) return;
    const auto bits = config_keys(*scheme, *scheme, keys_.file()).need("num_bits", 1, 16);
    declare_kv("kv_cache_scheme", fmt::format("{} bits", bits), static_cast<double>(bits));
  }
  void declare_kv(std::string_view key, std::string_view text, double bits) {
    shape_.kv_bits_key = key;
    if (bits > 0)
      shape_.kv_bits = bits;
    else
      shape_.notes.push_back(
          fmt::format("'{}' is '{}', which is not known: --kv-bits says how large an element of "
                      "the KV cache is",
                      key, printable(text, 60)));
  }

  void read_mxfp4() {
    name_ = "MXFP4";
    store({.bits = 4, .block_rows = 1, .block_columns = 32, .scale_bits = 8, .fills_blocks = true},
          expert_set);
    shape_.notes.emplace_back(
        "MXFP4: 4.25 bits a weight of the experts, and no other is quantised");
  }

  void read_fp8() {
    shape_.set(trait::correction_in_f32, true);
    const auto block = keys_.numbers("weight_block_size");
    if (!block) return use("FP8", fp8_code, linear_layers);
    if (block->size() != 2 || (*block)[0] == 0 || (*block)[1] == 0)
      keys_.refuse("weight_block_size", fmt::format("is [{}]", fmt::join(*block, ", ")),
                   "[rows, columns] of 1 or more");
    use("FP8",
        {.bits = 8, .block_rows = (*block)[0], .block_columns = (*block)[1], .scale_bits = 32},
        linear_layers,
        fmt::format("with an F32 scale per block of {} x {}", (*block)[0], (*block)[1]));
  }
  void read_fbgemm() { use("FP8", {.bits = 8, .block_rows = 1, .scale_bits = 32}, linear_layers); }

  [[nodiscard]] static std::uint64_t bits_in(const config_keys& keys, std::uint64_t most) {
    for (const auto* key : {"bits", "w_bit"})
      if (const auto given = keys.number(key, 1, most)) return *given;
    return keys.need("bits", 1, most);
  }
  /// 0 where a row has one scale: -1, or the key is missing.
  [[nodiscard]] static std::uint64_t group_in(const config_keys& keys) {
    for (const auto* key : {"group_size", "q_group_size"}) {
      const auto* const given = keys.find(key);
      if (given == nullptr) continue;
      if (given->is_number_integer() && !given->is_number_unsigned() && *given == -1) return 0;
      return *keys.number(key, 1, most_group);
    }
    return 0;
  }

  void read_awq() {
    const auto width = bits_in(keys_, 16);
    const bool zeros = keys_.flag("zero_point", true);
    use("AWQ",
        {.bits = width,
         .word_bits = 32,
         .block_rows = 1,
         .block_columns = group_in(keys_),
         .scale_bits = 16,
         .zero_bits = zeros ? width : 0},
        linear_layers);
  }
  void read_gptq() {
    is_gptq_ = true;
    read_packed("GPTQ");
  }
  void read_auto_round() { read_packed("AutoRound"); }
  void read_packed(std::string_view name) {
    const bool has_head = keys_.flag("lm_head", false);
    if (const auto type = keys_.text("data_type"); type && *type != "int")
      return unknown("'data_type' is '" + printable(*type, 60) + "'");
    use(name, packed_code(keys_), has_head ? linear_layers | head_set : linear_layers);
  }
  /// GPTQ's files have zero points and an index of each input's group, symmetric or not.
  [[nodiscard]] weight_code packed_code(const config_keys& keys) const {
    const auto width = bits_in(keys, 32);
    if (width >= 16) return plain_;
    return {.bits = width,
            .word_bits = 32,
            .block_rows = 1,
            .block_columns = group_in(keys),
            .scale_bits = 16,
            .zero_bits = width,
            .column_bits = is_gptq_ ? std::uint64_t{32} : 0};
  }

  void read_modelopt() {
    const auto algorithm = keys_.text("quant_algo").value_or("");
    if (algorithm.find("NVFP4") != std::string::npos)
      return use("NVFP4",
                 {.bits = 4,
                  .block_rows = 1,
                  .block_columns = keys_.number("group_size", 1, most_group).value_or(16),
                  .scale_bits = 8,
                  .tensor_bytes = 8},
                 linear_layers);
    if (algorithm == "FP8") return use("FP8", fp8_code, linear_layers);
    unknown(algorithm.empty() ? "has no 'quant_algo'"
                              : "'quant_algo' is '" + printable(algorithm, 60) + "'");
  }

  /// MLX quantises every matrix, and its config names the modules that have other bits, or none.
  void read_mlx() {
    if (shape_.mamba) return unknown("MLX: how the weights of Mamba are stored is not known");
    name_ = mlx_name;
    const auto code = mlx_code(keys_);
    store(code, all_modules);
    shape_.notes.push_back(
        fmt::format("MLX: linear layers, routers, embeddings and head at {}", text_of(code)));
    for (const auto& [key, rule] : object_.items())
      if (rule.is_object())
        override_with("quantization", key, mlx_code(config_keys(rule, object_, keys_.file())));
      else if (rule.is_boolean() && !rule.get<bool>())
        override_with("quantization", key, plain_);
  }
  [[nodiscard]] static weight_code mlx_code(const config_keys& keys) {
    const auto mode = keys.text("mode").value_or("affine");
    const auto width = keys.need("bits", 1, 8);
    const auto group = keys.need("group_size", 1, most_group);
    const bool is_affine = mode == "affine";
    if (!is_affine && mode != "mxfp4" && mode != "mxfp8" && mode != "nvfp4")
      keys.refuse("mode", "is '" + printable(mode, 60) + "'", "affine, mxfp4, mxfp8 or nvfp4");
    return {.bits = width,
            .word_bits = 32,
            .block_rows = 1,
            .block_columns = group,
            .scale_bits = is_affine ? std::uint64_t{16} : 8,
            .zero_bits = is_affine ? std::uint64_t{16} : 0,
            .needs_whole_blocks = true};
  }

  /// compressed-tensors: groups of modules, each with a scheme; what no group names is plain.
  void read_groups() {
    name_ = "compressed-tensors";
    if (const auto* const sparse = keys_.object("sparsity_config");
        sparse != nullptr &&
        config_keys(*sparse, *sparse, keys_.file()).text("format").value_or("dense") != "dense")
      return unknown("'sparsity_config' is of sparse weights");
    const auto* const groups = keys_.object("config_groups");
    if (groups == nullptr || groups->empty()) return unknown("has no 'config_groups'");
    bool has_base = false;
    for (const auto& [name, group] : groups->items()) {
      if (!group.is_object())
        keys_.refuse("config_groups", "'" + printable(name, 60) + "' is no object", "objects");
      const config_keys keys(group, group, keys_.file());
      const auto* const weights = keys.object("weights");
      if (weights == nullptr) continue;
      const auto code = scheme(config_keys(*weights, *weights, keys_.file()));
      for (const auto& target :
           keys.words("targets").value_or(std::vector<std::string>{"Linear"})) {
        if (target != "Linear") {
          override_with("config_groups", target, code);
        } else if (std::exchange(has_base, true)) {
          unknown("'config_groups' has two groups of all linear layers");
        } else {
          use(name_, code, linear_layers | head_set);
        }
      }
    }
  }
  [[nodiscard]] weight_code scheme(const config_keys& weights) const {
    const auto width = weights.need("num_bits", 1, 16);
    const auto strategy = weights.text("strategy").value_or("tensor");
    const bool is_int = weights.text("type").value_or("int") == "int";
    weight_code code{.bits = width, .scale_bits = plain_.bits};
    if (is_int && width < 8) code.word_bits = 32;
    if (is_int && !weights.flag("symmetric", true)) code.zero_bits = width;
    if (const auto* const order = weights.find("actorder"); order != nullptr && *order == "group")
      code.column_bits = 32;
    if (strategy == "tensor") {
      code.scale_bits = 32;
    } else if (strategy == "channel") {
      code.block_rows = 1;
    } else if (strategy == "group" || strategy == "tensor_group") {
      code.block_rows = 1;
      code.block_columns = weights.need("group_size", 1, most_group);
      // Groups of floats of four bits have scales of eight; NVFP4 also one of the weight and one of its inputs.
      if (!is_int && width == 4) code.scale_bits = 8;
      if (strategy == "tensor_group") code.tensor_bytes = 8;
    } else if (strategy == "block") {
      const auto block = weights.numbers("block_structure", 2);
      if (!block || (*block)[0] == 0 || (*block)[1] == 0)
        weights.refuse("block_structure", "is missing or has a 0", "[rows, columns] of 1 or more");
      code.block_rows = (*block)[0];
      code.block_columns = (*block)[1];
    } else {
      weights.refuse("strategy", "is '" + printable(strategy, 60) + "'",
                     "tensor, channel, group, tensor_group or block");
    }
    return code;
  }

  /// The lists of what is not quantised, under every name that they go by.
  void leave_out() {
    for (const auto* key :
         {"modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"})
      for (const auto& pattern : keys_.words(key).value_or(std::vector<std::string>())) {
        const auto found = modules_named(pattern);
        if (!found && misunderstood_++ == 0) first_misunderstood_ = pattern;
        if (found) claim_all(*found, plain_, plain_claims_);
      }
    leave_all_but_listed();
    if (misunderstood_ > 0)
      shape_.notes.push_back(
          fmt::format("{} of the patterns that {} leaves out are not understood, and taken as "
                      "none: '{}'{}",
                      misunderstood_, name_, printable(first_misunderstood_, 60),
                      misunderstood_ > 1 ? " is the first" : ""));
  }
  /// GPTQ may name what it quantises, as lists of names within a layer.
  void leave_all_but_listed() {
    const auto* const lists = keys_.find("modules_in_block_to_quantize");
    if (lists == nullptr || !lists->is_array() || lists->empty()) return;
    module_set listed = 0;
    for (const auto& list : *lists)
      if (list.is_array())
        for (const auto& word : list)
          if (word.is_string())
            for (const auto& named : modules_named(word.get_ref<const std::string&>())
                                         .value_or(std::vector<named_modules>()))
              listed |= named.modules;
    plain_claims_.add({.modules = linear_layers & ~listed}, plain_);
  }

  /// GPTQ's dynamic and AutoRound's extra_config: other bits for the modules of a pattern, or none.
  void override_modules() {
    for (const auto* key : {"dynamic", "extra_config"}) {
      const auto* const rules = keys_.object(key);
      if (rules == nullptr) continue;
      for (const auto& [pattern, rule] : rules->items()) {
        if (pattern.starts_with("-:")) {
          override_with(key, pattern, plain_);
        } else if (!rule.is_object()) {
          keys_.refuse(key, "'" + printable(pattern, 60) + "' is no object", "objects");
        } else {
          override_by(key, pattern, rule);
        }
      }
    }
  }
  void override_by(std::string_view key, const std::string& pattern, const json& rule) {
    for (const auto& [name, value] : rule.items())
      if (!is_in(known_rules, name))
        unknown(fmt::format("'{}' has '{}' for '{}', which is not read", key, printable(name, 60),
                            printable(pattern, 60)));
    const config_keys keys(rule, object_, keys_.file());
    const auto code = packed_code(keys);
    if (const auto type = keys.text("data_type"); code != plain_ && type && *type != "int")
      unknown(fmt::format("'{}' has the data_type '{}' for '{}'", key, printable(*type, 60),
                          printable(pattern, 60)));
    override_with(key, pattern, code);
  }
  void override_with(std::string_view key, const std::string& pattern, const weight_code& code) {
    const auto refuse = [&](std::string_view why) {
      unknown(fmt::format("'{}' names '{}', {}", key, printable(pattern, 60), why));
    };
    const auto found = modules_named(pattern);
    if (!found) return refuse("which is not understood");
    if (!claim_all(*found, code, other_claims_)) refuse("whose bits another pattern also sets");
  }
  /// Layers past the last one are those of multi-token prediction, which are not counted.
  bool claim_all(const std::vector<named_modules>& found, const weight_code& code,
                 module_claims& claims) const {
    bool agrees = true;
    for (const auto& named : found)
      if (!named.layer || *named.layer < shape_.layers.size())
        agrees = claims.add(named, code) && agrees;
    return agrees;
  }

  /// Hands the codes to the layers. What is left out is plain, whatever else names it.
  void settle() {
    if (!plain_claims_.settle(shape_.experts) || !other_claims_.settle(shape_.experts))
      return unknown(
          "patterns give bits to some experts of a layer and not to others, or to one module "
          "twice");
    const auto claimed = [&](std::optional<std::uint64_t> layer, model_module module) {
      const auto* const left_out = plain_claims_.of(layer, module);
      return left_out != nullptr ? left_out : other_claims_.of(layer, module);
    };
    for (const auto module : {head, embeddings})
      if (const auto* const code = claimed({}, module)) store(*code, set_of(module));
    for (std::size_t l = 0; l < shape_.layers.size(); ++l)
      for (std::size_t m = 0; m < model_modules; ++m) {
        const auto module = static_cast<model_module>(m);
        if (const auto* const code = claimed(l, module);
            code != nullptr && *code != shape_.code(module))
          put(shape_.layers[l].otherwise, set_of(module), *code);
      }
    tell();
  }

  /// What differs from the rest, by part, where the model has it.
  void tell() {
    for (const auto& [part, words] : part_names) {
      std::map<std::pair<module_set, std::string>, std::size_t> layers;
      std::size_t all = 0;
      for (const auto& layer : shape_.layers) {
        const auto present = modules_of(layer) & part;
        if (present != 0) ++all;
        for (const auto& [modules, code] : layer.otherwise)
          if ((modules & present) != 0)
            ++layers[{(modules & present) == present ? module_set{0} : modules & present,
                      code == plain_ ? std::string() : text_of(code)}];
      }
      for (const auto& [what, count] : layers) {
        const auto some = what.first == 0 ? std::string() : " (" + names_of(what.first) + ")";
        const auto where = count == all ? "" : fmt::format(" in {} of {} layers", count, all);
        shape_.notes.push_back(
            what.second.empty()
                ? fmt::format("{} leaves the {}{} out{}", name_, words, some, where)
                : fmt::format("{}: {}{} at {}{}", name_, words, some, what.second, where));
      }
    }
  }
  [[nodiscard]] static std::string names_of(module_set modules) {
    std::vector<std::string_view> names;
    for (std::size_t m = 0; m < model_modules; ++m)
      if ((modules & (module_set{1} << m)) != 0) names.push_back(module_names[m]);
    return fmt::format("{}", fmt::join(names, ", "));
  }
  /// Modules that a layer has.
  [[nodiscard]] module_set modules_of(const model_layer& layer) const {
    module_set out =
        layer.is_moe ? expert_set | set_of(router) : set_of(dense_gate, dense_up, dense_down);
    if (layer.is_moe && shape_.shared_width > 0) out |= set_of(shared_gate, shared_up, shared_down);
    switch (layer.mixer) {
      case mixer_kind::mamba: return out;
      case mixer_kind::delta: return out | set_of(linear_in, linear_gates, linear_out);
      case mixer_kind::lightning: return out | set_of(query, key, value, output, output_gate);
      case mixer_kind::attention: break;
    }
    out |= set_of(query, output);
    if (shape_.latent)
      return out | set_of(key_value_low, key_value) |
             (shape_.latent->q_rank > 0 ? set_of(query_low) : 0);
    return layer.shares_kv ? out : out | set_of(key, value);
  }

  [[nodiscard]] bool is_mlx_rule(const json& value) const {
    return name_ == mlx_name && (value.is_object() || value.is_boolean());
  }
  void note_unknown_keys() {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items())
      if (!is_in(known_keys, name) && !is_mlx_rule(value))
        names.push_back("'" + printable(name, 60) + "'");
    if (names.empty()) return;
    const auto more = names.size() > 8 ? names.size() - 8 : 0;
    names.resize(names.size() - more);
    shape_.notes.push_back(fmt::format("not read of the quantization_config: {}{}",
                                       fmt::join(names, ", "),
                                       more > 0 ? fmt::format(" and {} more", more) : ""));
  }

  const config_keys& keys_;
  const json& object_;
  model_shape& shape_;
  weight_code plain_;
  std::string name_;
  bool is_gptq_ = false;
  module_claims plain_claims_;
  module_claims other_claims_;
  std::uint64_t misunderstood_ = 0;
  std::string first_misunderstood_;
};

constexpr std::array<quantisation_reader::method, 9> quantisation_reader::methods{{
    {"mxfp4", &quantisation_reader::read_mxfp4},
    {"fp8", &quantisation_reader::read_fp8},
    {"fbgemm_fp8", &quantisation_reader::read_fbgemm},
    {"awq", &quantisation_reader::read_awq},
    {"gptq", &quantisation_reader::read_gptq},
    {"auto-round", &quantisation_reader::read_auto_round},
    {"compressed-tensors", &quantisation_reader::read_groups},
    {"mlx", &quantisation_reader::read_mlx},
    {"modelopt", &quantisation_reader::read_modelopt, true},
}};

}  // namespace

void read_quantisation(const json& format, const std::string& file, model_shape& shape) {
  quantisation_reader(config_keys(format, format, file), format, shape).read();
}

}  // namespace hotset::lab
