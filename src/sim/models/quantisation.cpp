// SPDX-License-Identifier: Apache-2.0
#include "sim/models/quantisation.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/sim/io/input_error.hpp"
#include "sim/formats/text_scan.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::json;

constexpr std::uint64_t most_group = 65536;
constexpr std::uint8_t all_parts = (1U << model_parts) - 1;

struct part_name {
  model_part part;
  std::string_view name;
};
constexpr std::array part_names = {
    part_name{model_part::experts, "experts"},
    part_name{model_part::shared, "shared experts"},
    part_name{model_part::dense, "dense MLPs"},
    part_name{model_part::attention, "attention"},
    part_name{model_part::linear_attention, "linear attention"},
    part_name{model_part::head, "head"},
};

/// What a pattern of module names means: parts of one layer, or of all.
struct named_modules {
  std::uint8_t parts = 0;
  std::optional<std::uint64_t> layer{};
  bool is_understood = true;
};

/// "model.layers.3.self_attn*" names layer 3.
std::optional<std::uint64_t> layer_of(std::string_view text) {
  constexpr std::string_view before = "layers.";
  const auto at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const auto rest = text.substr(at + before.size());
  const auto end = std::min(rest.find_first_not_of("0123456789"), rest.size());
  return parse_number<std::uint64_t>(rest.substr(0, end));
}

/// Patterns are names, globs or regular expressions, by the method; of all of them the words alone are looked at, which
/// is enough for what published checkpoints write, and cannot take long.
named_modules modules_of(std::string_view pattern) {
  std::string text(pattern);
  std::erase(text, '\\');
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  const auto ends = [&](std::string_view word) {
    return text.ends_with(word) || text.ends_with(std::string(word) + "$") ||
           text.ends_with(std::string(word) + ".weight");
  };
  const auto any_below = [&](std::string_view word) {
    return text.ends_with(word) || text.ends_with(std::string(word) + "*") ||
           text.ends_with(std::string(word) + ".*");
  };
  named_modules out;
  out.layer = layer_of(text);
  if (has("(?")) {
    out.is_understood = has("(?:");
    if (!out.is_understood) return out;
  }
  if (has("vision") || has("visual") || has("multi_modal") || has("embed") ||
      has("correction_bias"))
    return out;
  if (has("lm_head"))
    out.parts = bit_of(model_part::head);
  else if (ends("gate") || has("router") || has("norm"))
    out.parts = 0;
  else if (has("shared_expert") || has("shared_mlp"))
    out.parts = bit_of(model_part::shared);
  else if (has("experts"))
    out.parts = bit_of(model_part::experts);
  else if (has("linear_attn"))
    out.parts = bit_of(model_part::linear_attention);
  else if (has("attn") || has("attention"))
    out.parts = bit_of(model_part::attention);
  else if (any_below("mlp") || any_below("feed_forward"))
    out.parts =
        bit_of(model_part::dense) | bit_of(model_part::experts) | bit_of(model_part::shared);
  else if (has("mlp") || has("feed_forward"))
    out.parts = bit_of(model_part::dense);
  else if (out.layer && any_below(fmt::format("layers.{}", *out.layer)))
    out.parts = all_parts & ~bit_of(model_part::head);
  return out;
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

class quantisation_reader {
 public:
  quantisation_reader(const config_keys& format, model_shape& shape)
      : keys_(format), shape_(shape), dtype_bits_(8 * shape.dtype_bytes) {}

  void read() {
    const auto method = keys_.text("quant_method").value_or("");
    if (method == "mxfp4") return read_mxfp4();
    if (method == "fp8") return read_fp8();
    if (method == "fbgemm_fp8")
      return use("FP8", {.bits = 8, .block_rows = 1, .scale_bits = 32}, all_but_head);
    if (method == "awq") return read_awq();
    if (method == "gptq" || method == "auto-round") return read_gptq(method);
    if (method == "compressed-tensors") return read_groups();
    if (method.starts_with("modelopt")) return read_modelopt();
    shape_.unknown_format = method.empty() ? "has no quant_method"
                                           : "'quant_method' is '" + printable(method, 60) + "'";
  }

 private:
  static constexpr std::uint8_t all_but_head = all_parts & ~bit_of(model_part::head);

  void store(const weight_code& code, std::uint8_t parts) {
    for (std::size_t p = 0; p < model_parts; ++p)
      if ((parts & (1U << p)) != 0) shape_.codes[p] = code;
  }
  void use(std::string_view name, const weight_code& code, std::uint8_t parts) {
    store(code, parts);
    shape_.notes.push_back(fmt::format(
        "{}: the linear layers at {}; embeddings, {}norms and routers are not quantised", name,
        text_of(code), (parts & bit_of(model_part::head)) != 0 ? "" : "head, "));
    leave_out(name);
  }

  void read_mxfp4() {
    store({.bits = 4, .block_rows = 1, .block_columns = 32, .scale_bits = 8, .fills_blocks = true},
          bit_of(model_part::experts));
    shape_.notes.emplace_back(
        "MXFP4: 4.25 bits a weight of the experts, and no other is quantised");
  }

  void read_fp8() {
    shape_.correction_in_f32 = true;
    const auto block = keys_.numbers("weight_block_size");
    if (!block) return use("FP8", {.bits = 8, .scale_bits = 32, .tensor_bytes = 4}, all_but_head);
    if (block->size() != 2 || (*block)[0] == 0 || (*block)[1] == 0)
      keys_.refuse("weight_block_size", fmt::format("is [{}]", fmt::join(*block, ", ")),
                   "[rows, columns] of 1 or more");
    const weight_code code{
        .bits = 8, .block_rows = (*block)[0], .block_columns = (*block)[1], .scale_bits = 32};
    store(code, all_but_head);
    shape_.notes.push_back(
        fmt::format("FP8: the linear layers with an F32 scale per block of {} x {}; embeddings, "
                    "head, norms and routers are not quantised",
                    code.block_rows, code.block_columns));
    leave_out("FP8");
  }

  [[nodiscard]] std::uint64_t bits() const {
    for (const auto* key : {"bits", "w_bit"})
      if (const auto given = keys_.number(key, 1, 16)) return *given;
    return keys_.need("bits", 1, 16);
  }
  /// 0 where a row has one scale: -1, or the key is missing.
  [[nodiscard]] std::uint64_t group() const {
    for (const auto* key : {"group_size", "q_group_size"}) {
      const auto* const given = keys_.find(key);
      if (given == nullptr) continue;
      if (given->is_number_integer() && !given->is_number_unsigned() && *given == -1) return 0;
      return *keys_.number(key, 1, most_group);
    }
    return 0;
  }

  void read_awq() {
    const auto width = bits();
    const bool zeros = keys_.flag("zero_point", true);
    use("AWQ",
        {.bits = width,
         .word_bits = 32,
         .block_rows = 1,
         .block_columns = group(),
         .scale_bits = 16,
         .zero_bits = zeros ? width : 0},
        all_but_head);
  }
  void read_gptq(const std::string& method) {
    const auto width = bits();
    const bool head = keys_.find("lm_head") != nullptr && keys_.flag("lm_head", false);
    // GPTQ's files have zero points and an index of each input's group, symmetric or not.
    use(method == "gptq" ? "GPTQ" : "AutoRound",
        {.bits = width,
         .word_bits = 32,
         .block_rows = 1,
         .block_columns = group(),
         .scale_bits = 16,
         .zero_bits = width,
         .column_bits = method == "gptq" ? std::uint64_t{32} : 0},
        head ? all_parts : all_but_head);
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
                 all_but_head);
    if (algorithm == "FP8")
      return use("FP8", {.bits = 8, .scale_bits = 32, .tensor_bytes = 4}, all_but_head);
    shape_.unknown_format = algorithm.empty()
                                ? "has no 'quant_algo'"
                                : "'quant_algo' is '" + printable(algorithm, 60) + "'";
  }

  /// compressed-tensors: groups of modules, each with a scheme; what no group names is plain.
  void read_groups() {
    const auto* const groups = keys_.object("config_groups");
    if (groups == nullptr || groups->empty()) {
      shape_.unknown_format = "has no 'config_groups'";
      return;
    }
    std::uint8_t taken = 0;
    for (const auto& [name, group] : groups->items()) {
      if (!group.is_object())
        keys_.refuse("config_groups", "'" + printable(name, 60) + "' is no object", "objects");
      const config_keys keys(group, group, keys_.file());
      const auto* const weights = keys.object("weights");
      if (weights == nullptr) continue;
      const auto code = scheme(config_keys(*weights, *weights, keys_.file()));
      const auto parts = static_cast<std::uint8_t>(targets(keys) & ~taken);
      if (parts == 0) continue;
      taken = taken | parts;
      store(code, parts);
      shape_.notes.push_back(
          fmt::format("compressed-tensors: {} at {}; embeddings, norms and "
                      "routers are not quantised",
                      names_of(parts), text_of(code)));
    }
    leave_out("compressed-tensors");
  }
  /// Parts that a group's targets name: a class of modules means all linear layers.
  [[nodiscard]] std::uint8_t targets(const config_keys& group) const {
    const auto words = group.words("targets").value_or(std::vector<std::string>{"Linear"});
    std::uint8_t parts = 0;
    for (const auto& word : words)
      parts = parts | (word == "Linear" ? all_parts : modules_of(word).parts);
    return parts;
  }
  [[nodiscard]] weight_code scheme(const config_keys& weights) const {
    const auto width = weights.need("num_bits", 1, 16);
    const auto strategy = weights.text("strategy").value_or("tensor");
    const bool is_int = weights.text("type").value_or("int") == "int";
    weight_code code{.bits = width, .scale_bits = dtype_bits_};
    if (is_int && width < 8) code.word_bits = 32;
    if (is_int && !weights.flag("symmetric", true)) code.zero_bits = width;
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

  [[nodiscard]] static std::string names_of(std::uint8_t parts) {
    std::vector<std::string_view> names;
    for (const auto& [part, name] : part_names)
      if ((parts & bit_of(part)) != 0) names.push_back(name);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  /// The lists of what is not quantised, under every name that they go by.
  void leave_out(std::string_view name) {
    for (const auto* key :
         {"modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"})
      for (const auto& pattern : keys_.words(key).value_or(std::vector<std::string>()))
        leave(modules_of(pattern));
    if (const auto* const dynamic = keys_.object("dynamic"))
      for (const auto& [pattern, rule] : dynamic->items())
        if (pattern.starts_with("-:")) leave(modules_of(pattern));
    leave_all_but_listed();
    tell(name);
  }
  void leave(const named_modules& found) {
    if (!found.is_understood) ++misunderstood_;
    if ((found.parts & bit_of(model_part::head)) != 0)
      shape_.codes[static_cast<std::size_t>(model_part::head)] = {.bits = dtype_bits_};
    if (found.layer) {
      if (*found.layer < shape_.layers.size())
        shape_.layers[static_cast<std::size_t>(*found.layer)].plain_parts |= found.parts;
      return;
    }
    everywhere_ |= found.parts;
  }
  /// GPTQ may name what it quantises, as lists of names within a layer.
  void leave_all_but_listed() {
    const auto* const lists = keys_.find("modules_in_block_to_quantize");
    if (lists == nullptr || !lists->is_array() || lists->empty()) return;
    std::uint8_t listed = 0;
    for (const auto& list : *lists)
      if (list.is_array())
        for (const auto& word : list)
          if (word.is_string()) listed |= modules_of(word.get_ref<const std::string&>()).parts;
    everywhere_ |= static_cast<std::uint8_t>(all_but_head & ~listed);
  }

  /// What is left out, where the model has it.
  void tell(std::string_view name) {
    for (auto& layer : shape_.layers) layer.plain_parts |= everywhere_;
    if (misunderstood_ > 0)
      shape_.notes.push_back(
          fmt::format("{} of the patterns that {} leaves out are not understood, and taken as none",
                      misunderstood_, name));
    for (const auto& [part, words] : part_names) {
      if (part == model_part::head) continue;
      std::size_t plain = 0;
      std::size_t all = 0;
      for (const auto& layer : shape_.layers) {
        if (!has(layer, part)) continue;
        ++all;
        if ((layer.plain_parts & bit_of(part)) != 0) ++plain;
      }
      if (plain == 0) continue;
      shape_.notes.push_back(
          fmt::format("{} leaves the {} out{}", name, words,
                      plain == all ? "" : fmt::format(" in {} of {} layers", plain, all)));
    }
  }
  [[nodiscard]] bool has(const model_layer& layer, model_part part) const {
    switch (part) {
      case model_part::experts: return layer.is_moe;
      case model_part::shared: return layer.is_moe && shape_.shared_width > 0;
      case model_part::dense: return !layer.is_moe;
      case model_part::attention:
        return layer.mixer == mixer_kind::attention || layer.mixer == mixer_kind::lightning;
      case model_part::linear_attention: return layer.mixer == mixer_kind::delta;
      case model_part::head: return false;
    }
    return false;
  }

  const config_keys& keys_;
  model_shape& shape_;
  std::uint64_t dtype_bits_;
  std::uint8_t everywhere_ = 0;
  std::uint64_t misunderstood_ = 0;
};

}  // namespace

void read_quantisation(const config_keys& format, model_shape& shape) {
  quantisation_reader(format, shape).read();
}

}  // namespace hotset::inline v0::sim
