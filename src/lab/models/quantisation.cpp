// SPDX-License-Identifier: Apache-2.0
#include "lab/models/quantisation.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
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

constexpr module_set head_set = set_of(head);
constexpr module_set all_modules = layer_modules | set_of(router, embeddings, head);
/// A scale and an input scale for each weight.
constexpr weight_code fp8_code{.bits = 8, .scale_bits = 32, .tensor_bytes = 4, .is_fp8 = true};

constexpr weight_code awq_code{
    .bits = 4, .block_rows = 1, .block_columns = 128, .scale_bits = 16, .column_bits = 16};

constexpr weight_code mxfp4_code{
    .bits = 4, .block_rows = 1, .block_columns = 32, .scale_bits = 8, .fills_blocks = true};

/// Formats of modelopt's algorithms, by a part of their names. AWQ scales each input.
constexpr std::pair<std::string_view, weight_code> algorithms[] = {
    {"NVFP4",
     {.bits = 4, .block_rows = 1, .block_columns = 16, .scale_bits = 8, .tensor_bytes = 8}},
    {"MXFP4", {.bits = 4, .block_rows = 1, .block_columns = 32, .scale_bits = 8}},
    {"MXFP8", {.bits = 8, .block_rows = 1, .block_columns = 32, .scale_bits = 8}},
    {"W4A16_AWQ", awq_code},
    {"W4A8_AWQ", awq_code},
    {"FP8_PB",
     {.bits = 8, .block_rows = 128, .block_columns = 128, .scale_bits = 32, .is_fp8 = true}},
    {"FP8_PER_CHANNEL", {.bits = 8, .block_rows = 1, .scale_bits = 32, .is_fp8 = true}}};

struct part_name {
  module_set modules;
  std::string_view name;
};
constexpr auto part_names =
    std::to_array<part_name>({{expert_modules, "experts"},
                              {shared_modules, "shared experts"},
                              {dense_modules, "dense MLPs"},
                              {attention_modules, "attention"},
                              {linear_attention_modules, "linear attention"},
                              {set_of(router), "routers"}});
/// Names of modules within their parts, in the order of model_module.
constexpr std::array<std::string_view, model_modules> module_names = {
    "gate", "up", "down",  "gate", "up",     "down",       "gate",       "up",
    "down", "q",  "k",     "v",    "output", "gate",       "q low rank", "kv low rank",
    "kv",   "in", "gates", "out",  "router", "embeddings", "head"};

/// Lists and objects of a quantization_config that are read, or that change no size. Each has a space on both sides.
constexpr std::string_view known_keys =
    " block_name_to_quantize config_groups dataset dynamic exclude_modules exllama_config "
    "extra_config ignore ignored_layers kv_cache_scheme meta modules_in_block_to_quantize "
    "modules_to_fuse modules_to_not_convert producer quantized_layers sparsity_config "
    "supported_act_bits "
    "weight_block_size ";
/// Keys of an override, each with a space on both sides.
constexpr std::string_view known_rules =
    " bits group_size sym desc_act data_type act_bits act_data_type act_dynamic "
    "act_group_size act_sym damp_percent damp_auto_increment mse scale_dtype ";

bool is_in(std::string_view words, const std::string& key) {
  return key.find(' ') == key.npos && words.find(" " + key + " ") != words.npos;
}

/// Formats a code as "4 bits, a scale of 16 bits a group of 128", from the values that are counted.
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

/// Assigns a code to modules of a list. Pre: none of them has another code.
void put(std::vector<stored_otherwise>& among, module_set modules, const weight_code& code) {
  const auto at = std::ranges::find(among, code, &stored_otherwise::code);
  if (at == among.end())
    among.push_back({modules, code});
  else
    at->modules |= modules;
}

/// Codes that patterns assign to modules: a pattern may name all layers, one layer, or one expert.
class module_claims {
 public:
  /// Returns false if another pattern assigned another code to a module.
  bool add(const named_modules& named, const weight_code& code) {
    for (std::size_t m = 0; m < model_modules; ++m) {
      if ((named.modules & (module_set{1} << m)) == 0) continue;
      auto& given = claims_.try_emplace(place_of(named.layer, static_cast<model_module>(m)), code)
                        .first->second;
      if (given.code != code) return false;
      if (named.expert)
        given.experts.insert(*named.expert);
      else
        given.is_whole = true;
    }
    return true;
  }
  /// Checks that the codes cover all experts. Returns false if some experts have none, or if two codes conflict.
  [[nodiscard]] bool settle(std::uint64_t experts) {
    for (auto& [at, given] : claims_) {  // entries for all layers come first
      const auto everywhere = claims_.find(place_of(std::nullopt, std::get<model_module>(at)));
      if (everywhere != claims_.end() && everywhere->second.code != given.code) return false;
      const bool is_everywhere = everywhere != claims_.end() && everywhere->second.is_whole;
      const auto& some = given.experts;
      given.is_whole |= is_everywhere || (some.size() == experts && *some.rbegin() < experts);
      if (!given.is_whole) return false;
    }
    return true;
  }
  /// Code of a module in a layer, else in all layers; nullptr: none. Pre: settled.
  [[nodiscard]] const weight_code* of(std::optional<std::uint64_t> layer,
                                      model_module module) const {
    for (const auto& wanted : {place_of(layer, module), place_of(std::nullopt, module)})
      if (const auto at = claims_.find(wanted); at != claims_.end()) return &at->second.code;
    return nullptr;
  }

 private:
  struct claim {
    explicit claim(const weight_code& one) : code(one) {}
    weight_code code;
    std::set<std::uint64_t> experts{};  ///< experts that patterns name individually
    bool is_whole = false;              ///< a pattern names all experts
  };
  /// Whether the entry is for one layer, the layer, the module.
  using place = std::tuple<bool, std::uint64_t, model_module>;
  static place place_of(std::optional<std::uint64_t> layer, model_module module) {
    return {layer.has_value(), layer.value_or(0), module};
  }
  std::map<place, claim> claims_;
};

class quantisation_reader {
 public:
  quantisation_reader(const config_keys& format, const json& object, model_shape& shape)
      : keys_(format), object_(object), shape_(shape), plain_(shape.plain_code()) {}

  void read() {
    read_kv();
    const auto method = keys_.text("quant_method").value_or("");
    if (method == "mlx") {
      read_mlx();  // its rules are beside its own keys
    } else {
      if (method == "mxfp4")
        read_mxfp4();
      else if (method == "fp8")
        read_fp8();
      else if (method == "fbgemm_fp8")
        use("FP8", {.bits = 8, .block_rows = 1, .scale_bits = 32, .is_fp8 = true}, layer_modules);
      else if (method.starts_with("awq") || method.starts_with("gptq"))
        read_packed(method.starts_with("awq") ? "AWQ" : "GPTQ");  // a kernel's name may follow
      else if (method.ends_with("auto-round"))
        read_packed("AutoRound");
      else if (method == "compressed-tensors")
        read_groups();
      else if (method.starts_with("modelopt"))  // a version may follow
        read_modelopt();
      else
        return unknown(method.empty() ? "has no quant_method"
                                      : "'quant_method' is '" + printable(method, 60) + "'");
      leave_out();
      override_modules();
      read_quantised_layers();
    }
    settle();
    note_unknown_keys();
  }

 private:
  /// The first reason is kept.
  void unknown(const std::string& why) {
    if (shape_.unknown_format.empty()) shape_.unknown_format = why;
  }

  void use(std::string_view name, const weight_code& code, module_set modules) {
    name_ = name;
    shape_.store(modules, code);
    shape_.notes.push_back(fmt::format(
        "{}: the linear layers at {}; embeddings, {}norms and routers are not quantised", name,
        text_of(code), (modules & head_set) != 0 ? "" : "head, "));
  }

  /// Reads the bits that engines use for an "auto" cache.
  void read_kv() {
    if (const auto algorithm = keys_.text("kv_cache_quant_algo"); algorithm && *algorithm != "None")
      declare_kv("kv_cache_quant_algo", *algorithm,
                 algorithm->starts_with("FP8") || *algorithm == "INT8" ? 8.0
                 : *algorithm == "NVFP4"                               ? 4.5
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
    shape_.store(expert_modules, mxfp4_code);
    shape_.notes.emplace_back(
        "MXFP4: 4.25 bits a weight of the experts, and no other is quantised");
  }

  void read_fp8() {
    shape_.set(trait::correction_in_f32, true);
    auto code = fp8_code;
    if (const auto block = keys_.numbers("weight_block_size")) {
      if (block->size() != 2 || (*block)[0] == 0 || (*block)[1] == 0)
        keys_.refuse("weight_block_size", fmt::format("is [{}]", fmt::join(*block, ", ")),
                     "[rows, columns] of 1 or more");
      code = {.bits = 8,
              .block_rows = (*block)[0],
              .block_columns = (*block)[1],
              .scale_bits = 32,
              .is_fp8 = true};
    }
    use("FP8", code, layer_modules);
    // DeepSeek-V4 has experts in MXFP4 beside FP8.
    if (keys_.text("expert_dtype") != "fp4") return;
    shape_.store(expert_modules, mxfp4_code);
    shape_.notes.emplace_back("MXFP4: 4.25 bits a weight of the experts, as 'expert_dtype' says");
  }

  /// Returns 0 if a row has one scale: the key is -1 or missing.
  [[nodiscard]] static std::uint64_t group_in(const config_keys& keys) {
    for (const auto* key : {"group_size", "q_group_size"})
      if (const auto* const given = keys.find(key))
        return *given == -1 ? 0 : *keys.number(key, 1, most_group);
    return 0;
  }

  /// `name`: AWQ, GPTQ or AutoRound.
  void read_packed(std::string_view name) {
    name_ = name;
    if (const auto type = keys_.text("data_type"); type && !is_data_type(*type))
      return unknown("'data_type' is '" + printable(*type, 60) + "'");
    const bool has_head = name != "AWQ" && keys_.flag("lm_head", false);
    use(name, packed_code(keys_), has_head ? layer_modules | head_set : layer_modules);
  }
  static bool is_data_type(std::string_view name) noexcept {
    return name == "int" || name == "mx_fp" || name == "nv_fp";
  }
  /// GPTQ files always have zero points and the group index of each input, even if symmetric.
  [[nodiscard]] weight_code packed_code(const config_keys& keys) const {
    const auto given = keys.number("bits", 1, 32);
    const auto width = given ? *given : keys.number("w_bit", 1, 32).value_or(0);
    if (width == 0) (void)keys.need("bits", 1, 32);
    if (width >= 16) return plain_;
    if (const auto type = keys.text("data_type").value_or("int"); type != "int")
      return {.bits = width,
              .block_rows = 1,
              .block_columns = group_in(keys),
              .scale_bits = 8,
              .tensor_bytes = type == "nv_fp" ? std::uint64_t{8} : 0};
    return {.bits = width,
            .word_bits = 32,
            .block_rows = 1,
            .block_columns = group_in(keys),
            .scale_bits = 16,
            .zero_bits = name_ == "AWQ" && !keys.flag("zero_point", true) ? 0 : width,
            .column_bits = name_ == "GPTQ" ? std::uint64_t{32} : 0};
  }

  /// MIXED_PRECISION quantises the modules that it lists, and no other.
  void read_modelopt() {
    const auto algorithm = keys_.text("quant_algo").value_or("");
    if (algorithm == "MIXED_PRECISION" && keys_.object("quantized_layers") != nullptr) {
      name_ = "modelopt";
      return;
    }
    const auto code = modelopt_code(keys_, algorithm);
    if (code)
      use(algorithm.find("NVFP4") != std::string::npos ? "NVFP4" : algorithm, *code, layer_modules);
    else
      unknown(algorithm.empty() ? "has no 'quant_algo'"
                                : "'quant_algo' is '" + printable(algorithm, 60) + "'");
  }
  [[nodiscard]] static std::optional<weight_code> modelopt_code(const config_keys& keys,
                                                                std::string_view algorithm) {
    for (const auto& [part, code] : algorithms)
      if (algorithm.find(part) != algorithm.npos) {
        auto out = code;
        if (out.block_rows == 1 && out.block_columns > 0)
          out.block_columns = keys.number("group_size", 1, most_group).value_or(out.block_columns);
        return out;
      }
    return algorithm == "FP8" ? std::optional(fp8_code) : std::nullopt;
  }
  /// modelopt's formats by module, possibly beside another method's.
  void read_quantised_layers() {
    const auto* const layers = keys_.object("quantized_layers");
    if (layers == nullptr) return;
    for (const auto& [pattern, rule] : layers->items()) {
      if (!rule.is_object())
        keys_.refuse("quantized_layers", "'" + printable(pattern, 60) + "' is no object",
                     "objects");
      const config_keys keys(rule, rule, keys_.file());
      const auto algorithm = keys.text("quant_algo").value_or("");
      if (const auto code = modelopt_code(keys, algorithm))
        override_with("quantized_layers", pattern, *code);
      else
        unknown(fmt::format("'quantized_layers' gives '{}' the format '{}'", printable(pattern, 60),
                            printable(algorithm, 60)));
    }
  }

  /// MLX quantises every matrix; its config names the modules with other bits, or none.
  void read_mlx() {
    if (shape_.mamba && shape_.mamba->heads == 0)
      return unknown("MLX: how the weights of Mamba are stored is not known");
    name_ = "MLX";
    const auto code = mlx_code(keys_);
    shape_.store(all_modules, code);
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

  /// compressed-tensors: groups of modules, each with a scheme; modules outside all groups are not quantised.
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
          use(name_, code, layer_modules | head_set);
        }
      }
    }
  }
  [[nodiscard]] weight_code scheme(const config_keys& weights) const {
    const auto width = weights.need("num_bits", 1, 16);
    const auto strategy = weights.text("strategy").value_or("tensor");
    const bool is_int = weights.text("type").value_or("int") == "int";
    weight_code code{.bits = width, .scale_bits = plain_.bits, .is_fp8 = !is_int && width == 8};
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
      // Groups of 4-bit floats have 8-bit scales; NVFP4 adds one scale for the weight and one for its inputs.
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

  [[nodiscard]] std::optional<std::vector<named_modules>> named_by(
      const std::string& pattern) const {
    return modules_named(pattern,
                         shape_.has(trait::dense_beside) && !shape_.has(trait::double_layers));
  }
  /// Reads the lists of unquantised modules, under all their names.
  void leave_out() {
    std::vector<std::string> misunderstood;
    for (const auto* key :
         {"modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"})
      for (const auto& pattern : keys_.words(key).value_or(std::vector<std::string>())) {
        const auto found = named_by(pattern);
        if (found)
          claim_all(*found, plain_, plain_claims_);
        else
          misunderstood.push_back(pattern);
      }
    leave_all_but_listed();
    if (!misunderstood.empty())
      shape_.notes.push_back(
          fmt::format("{} of the patterns that {} leaves out are not understood, and taken as "
                      "none: '{}'{}",
                      misunderstood.size(), name_, printable(misunderstood.front(), 60),
                      misunderstood.size() > 1 ? " is the first" : ""));
  }
  /// GPTQ may list what it quantises, by names within a layer.
  void leave_all_but_listed() {
    const auto* const lists = keys_.find("modules_in_block_to_quantize");
    if (lists == nullptr || !lists->is_array() || lists->empty()) return;
    module_set listed = 0;
    for (const auto& word : lists->flatten())
      if (word.is_string())
        for (const auto& named :
             named_by(word.get_ref<const std::string&>()).value_or(std::vector<named_modules>()))
          listed |= named.modules;
    plain_claims_.add({.modules = layer_modules & ~listed}, plain_);
  }

  /// Reads GPTQ's dynamic and AutoRound's extra_config: other bits, or none, for the modules of a pattern.
  void override_modules() {
    for (const auto* key : {"dynamic", "extra_config"}) {
      const auto* const rules = keys_.object(key);
      if (rules == nullptr) continue;
      for (const auto& [pattern, rule] : rules->items()) {
        if (pattern.starts_with("-:"))
          override_with(key, pattern, plain_);
        else if (rule.is_object())
          override_by(key, pattern, rule);
        else
          keys_.refuse(key, "'" + printable(pattern, 60) + "' is no object", "objects");
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
    if (const auto type = keys.text("data_type"); code != plain_ && type && !is_data_type(*type))
      unknown(fmt::format("'{}' has the data_type '{}' for '{}'", key, printable(*type, 60),
                          printable(pattern, 60)));
    override_with(key, pattern, code);
  }
  void override_with(std::string_view key, const std::string& pattern, const weight_code& code) {
    const auto refuse = [&](std::string_view why) {
      unknown(fmt::format("'{}' names '{}', {}", key, printable(pattern, 60), why));
    };
    const auto found = named_by(pattern);
    if (!found) return refuse("which is not understood");
    if (!claim_all(*found, code, other_claims_)) refuse("whose bits another pattern also sets");
  }
  /// Layers past the last one are for multi-token prediction and are not counted.
  bool claim_all(const std::vector<named_modules>& found, const weight_code& code,
                 module_claims& claims) const {
    bool agrees = true;
    for (const auto& named : found)
      if (!named.layer || *named.layer < shape_.layers.size())
        agrees = claims.add(named, code) && agrees;
    return agrees;
  }

  /// Assigns the codes to the layers. Excluded modules stay unquantised, even if another pattern names them.
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
      if (const auto* const code = claimed({}, module)) shape_.store(set_of(module), *code);
    for (std::size_t l = 0; l < shape_.layers.size(); ++l)
      for (std::size_t m = 0; m < model_modules; ++m) {
        const auto module = static_cast<model_module>(m);
        if (const auto* const code = claimed(l, module);
            code != nullptr && *code != shape_.code(module))
          put(shape_.layers[l].otherwise, set_of(module), *code);
      }
    tell();
  }

  /// Notes the codes that differ from the rest, by part.
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
    module_set out = 0;
    if (layer.is_moe) out |= expert_modules | set_of(router);
    if (layer.is_moe && shape_.shared_width > 0) out |= shared_modules;
    if (layer.has_mlp && (!layer.is_moe || shape_.has(trait::dense_beside))) out |= dense_modules;
    switch (layer.mixer) {
      case mixer_kind::none: return out;
      case mixer_kind::mamba:
        return shape_.mamba->heads > 0 ? out | set_of(linear_in, linear_out) : out;
      case mixer_kind::delta: return out | linear_attention_modules;
      case mixer_kind::convolution: return out | set_of(linear_in, linear_out);
      case mixer_kind::lightning: return out | set_of(query, key, value, output, output_gate);
      case mixer_kind::attention: break;
    }
    out |= set_of(query, output);
    if (shape_.latent)
      return out | set_of(key_value_low, key_value) |
             (shape_.latent->q_rank > 0 ? set_of(query_low) : 0);
    if (shape_.compressed) return out | set_of(query_low, key_value_low);
    return layer.shares_kv ? out : out | set_of(key, value);
  }

  /// MLX's rules are beside its keys.
  void note_unknown_keys() {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items())
      if (value.is_structured() && !value.empty() && !is_in(known_keys, name) &&
          !(name_ == "MLX" && value.is_object()))
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
  module_claims plain_claims_;
  module_claims other_claims_;
};

}  // namespace

void read_quantisation(const json& format, const std::string& file, model_shape& shape) {
  quantisation_reader(config_keys(format, format, file), format, shape).read();
}

}  // namespace hotset::lab
