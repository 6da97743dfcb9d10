// SPDX-License-Identifier: Apache-2.0
#include "lab/models/model_description.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/text/names.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/models/hf_config.hpp"
#include "lab/models/model_weights.hpp"
#include "lab/models/quantisation.hpp"
#include "lab/models/stored_weights.hpp"
#include "lab/models/wished_weights.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view config_name = "config.json";

/// The caller's choice, else the checkpoint's declaration, else the usual bits.
double kv_bits_of(const model_shape& shape, const model_options& options,
                  std::vector<std::string>& notes) {
  const auto bits = options.kv_bits.value_or(shape.kv_bits.value_or(model_options::usual_kv_bits));
  if (shape.has(trait::non_causal) || !shape.kv_bits) return bits;
  if (!options.kv_bits)
    notes.push_back(
        fmt::format("KV cache of {} bits an element, as the checkpoint's '{}' says; --kv-bits sets "
                    "another",
                    bits, shape.kv_bits_key));
  else if (bits != *shape.kv_bits)
    notes.push_back(
        fmt::format("KV cache of {} bits an element by hand; the checkpoint's '{}' says {}", bits,
                    shape.kv_bits_key, *shape.kv_bits));
  return bits;
}

bool lacks(const model_shape& shape, model_figure figure) noexcept {
  return (shape.missing & set_of(figure)) != 0;
}

/// Fills in everything except the weights' bytes.
model_description describe_shape(const model_shape& shape, const model_options& options) {
  model_description out;
  out.notes = shape.notes;
  auto& m = out.memory;
  m.experts.layers =
      static_cast<std::int32_t>(std::ranges::count(shape.layers, true, &model_layer::is_moe));
  m.experts.experts = static_cast<std::int32_t>(shape.experts);
  m.experts.top_k = static_cast<std::int32_t>(shape.top_k);
  out.top_k_is_known = !lacks(shape, model_figure::top_k);
  m.max_context = shape.max_context;
  m.is_causal = !shape.has(trait::non_causal);
  out.kv_bits = kv_bits_of(shape, options, out.notes);
  if (shape.missing == 0) out.arithmetic = arithmetic_of(shape);
  for (const auto& layer : shape.layers) {
    const auto& block = m.blocks.emplace_back(
        model_block{.is_moe = layer.is_moe,
                    .kv_bytes_per_token = kv_bytes_of(kv_elements_of(shape, layer), out.kv_bits),
                    .window = layer.window,
                    .state_bytes = state_bytes_of(shape, layer)});
    m.state_bytes_per_sequence =
        detail::saturating_sum(m.state_bytes_per_sequence, block.state_bytes);
  }
  m.kv = kv_of(m.blocks);
  if (!m.is_causal) {
    out.notes.push_back(
        fmt::format("no KV cache in its plain sampler, which computes every token anew; one that "
                    "caches blocks keeps {} a token",
                    size_text(m.kv_bytes_per_token())));
    m.kv.clear();
    for (auto& block : m.blocks) block.kv_bytes_per_token = 0;
  }
  return out;
}

/// Limits experts x layers, because plans allocate memory for each; published models have up to about 25,000.
validation check_size(const memory_model& memory) {
  if (auto bad = memory.validate()) return bad;
  const auto& shape = memory.experts;
  if (shape.keys() <= most_model_experts) return std::nullopt;
  return error{fmt::format("{} layers x {} experts, accepted: at most {} in all", shape.layers,
                           shape.experts, most_model_experts)};
}

/// A config, and the separate file in which some exporters declare the storage of weights and cache.
struct config_text {
  std::string file;
  std::string text;
  std::string quantisation{};  ///< text of an hf_quant_config.json; empty: there is none

  [[nodiscard]] model_shape shape(const model_by_hand& given) const {
    return parse_hf_config(text, quantisation, file, given);
  }
};

model_description describe_config(const config_text& config, const model_options& options) {
  const auto& hand = options.hand;
  auto shape = config.shape(hand);
  if (!options.weights.empty()) wish_weights(options.weights, shape);
  if (!shape.unknown_format.empty() && !(hand.expert_bytes && hand.resident_bytes))
    refuse_input(
        config.file, "key 'quantization_config'", shape.unknown_format,
        fmt::format("{}; or the .safetensors files beside it; or --weights, such as 4.5bpw; "
                    "or by hand --expert-bytes and --resident-bytes",
                    known_quantisations));
  auto out = describe_shape(shape, options);
  add_weights(shape, out.memory);
  if (lacks(shape, model_figure::expert_bytes)) out.memory.experts.expert_bytes = {0};
  if (lacks(shape, model_figure::resident_bytes)) out.memory.resident_bytes = 0;
  if (lacks(shape, model_figure::kv_bytes)) out.memory.kv.clear();
  out.source = fmt::format("{}: {}", config.file, shape.type);
  return out;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

config_text read_config(const fs::path& config) {
  const auto text_of = [](const fs::path& path) {
    const mapped_file file(path);
    return std::string(file.text());
  };
  config_text out{.file = config.string(), .text = text_of(config)};
  const auto beside = config.parent_path() / "hf_quant_config.json";
  if (config.filename() == config_name && is_there(beside)) out.quantisation = text_of(beside);
  return out;
}

/// Drops layers past the config's last one: they are for multi-token prediction.
void drop_layers_from(std::uint64_t first, stored_weights& stored,
                      std::vector<std::string>& notes) {
  const auto dropped =
      std::erase_if(stored.layers, [&](const auto& layer) { return layer.first >= first; });
  if (dropped > 0)
    notes.push_back(fmt::format("{} layer{} from {} on not counted: {} ends before", dropped,
                                dropped == 1 ? "" : "s", first, config_name));
}

/// Refuses a file without tensors named like experts; the message names what it has.
void need_experts(const stored_weights& stored) {
  const auto experts = stored.experts();
  if (experts >= 2 && experts <= most_model_experts) return;
  const auto found = fmt::format("has {} routed experts in a layer", experts);
  if (experts != 0) refuse_input(stored.model, "", found, fmt::format("2..{}", most_model_experts));
  refuse_input(stored.model, "",
               stored.largest_other.empty()
                   ? std::string("has no tensors")
                   : fmt::format("{} under names that are known: its largest tensor is '{}'", found,
                                 printable(stored.largest_other, 120)),
               fmt::format("names such as {}; or by hand {}", known_expert_names, hand_options));
}

void need_kv(const stored_weights& stored, const memory_model& memory,
             const model_options& options) {
  if (!memory.has_kv() && !options.hand.kv_bytes_per_token)
    refuse_input(stored.model, "", "has no k_proj and v_proj of self_attn: its cache is unknown",
                 fmt::format("a {} with the keys of its attention, or by hand --kv-bytes-per-token",
                             config_name));
}

/// Takes the shape from the config; if its model_type is known, its MoE layers must match the files'.
model_description describe_stored_with(const model_shape& shape, stored_weights& stored,
                                       const model_options& options) {
  auto out = describe_shape(shape, options);
  drop_layers_from(shape.layers.size(), stored, out.notes);
  auto& m = out.memory;
  m.experts.layers = 0;
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    const auto& layer = stored.layers[i];
    auto& block = m.blocks[i];
    if (layer.is_moe() != block.is_moe && shape.is_known)
      refuse_input(stored.model, fmt::format("layer {}", i),
                   layer.is_moe() ? "has experts" : "has no experts",
                   fmt::format("what {} says of it (is a file missing?)", config_name));
    block.is_moe = layer.is_moe();
    m.experts.layers += block.is_moe ? 1 : 0;
    block.resident_bytes = layer.resident_bytes;
    if (lacks(shape, model_figure::kv_bytes))
      block.kv_bytes_per_token = kv_bytes_of(layer.kv_elements(), out.kv_bits);
  }
  m.kv = kv_of(m.blocks);
  if (lacks(shape, model_figure::kv_bytes)) need_kv(stored, m, options);
  if (!out.top_k_is_known)
    out.notes.emplace_back("no top-k in its config: it is taken as 1 unless --top-k says it");
  return out;
}

/// Describes weights without a config.
model_description describe_stored_alone(const stored_weights& stored,
                                        const model_options& options) {
  model_description out;
  auto& m = out.memory;
  out.kv_bits = options.kv_bits.value_or(model_options::usual_kv_bits);
  for (const auto& [number, layer] : stored.layers) {
    if (layer.is_moe()) ++m.experts.layers;
    m.blocks.push_back({.is_moe = layer.is_moe(),
                        .resident_bytes = layer.resident_bytes,
                        .kv_bytes_per_token = kv_bytes_of(layer.kv_elements(), out.kv_bits)});
  }
  m.kv = kv_of(m.blocks);
  need_kv(stored, m, options);
  m.experts.experts = static_cast<std::int32_t>(stored.experts());
  out.top_k_is_known = false;
  m.experts.top_k = 1;
  out.notes.push_back(fmt::format(
      "no {} beside it: top-k is taken as 1 unless --top-k says it; windows, recurrent state and "
      "the KV cache's own bits are unknown, and so is the longest context",
      config_name));
  return out;
}

/// Figures that the headers give, so that a config may lack them.
model_by_hand given_by(const stored_weights& stored) {
  return {.layers = static_cast<std::int32_t>(
              std::min<std::uint64_t>(stored.layers.rbegin()->first + 1, most_model_experts)),
          .experts = static_cast<std::int32_t>(stored.experts()),
          .top_k = 1,
          .expert_bytes = 0,
          .kv_bytes_per_token = 0,
          .resident_bytes = 0};
}

/// The tensors of files without packed ones, whose extents would be unknown.
std::vector<plain_tensor> plain_tensors(const fs::path& path, const std::vector<fs::path>& files) {
  std::vector<plain_tensor> out;
  for (const auto& one : files) {
    const safetensors_file file(one, file_extent::header);
    for (const auto& name : file.names()) {
      const auto& t = file.at(name);
      if (t.dtype == "U8" || t.dtype == "I8" || t.dtype == "U32" || t.dtype == "I32")
        refuse_input(path.string(), "",
                     fmt::format("tensor '{}' is packed, and its extents are unknown: --weights "
                                 "needs them",
                                 printable(name, 120)),
                     fmt::format("a {} beside it", config_name));
      out.push_back({name, t.shape});
    }
  }
  return out;
}

/// Describes a folder, or a .safetensors file.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the model, then its folder
model_description describe_stored(const fs::path& path, const fs::path& folder,
                                  const model_options& options) {
  const auto files = find_safetensors(path);
  const auto config = folder / config_name;
  if (files.empty()) {
    if (!is_there(config))
      refuse_input(path.string(), "", "holds neither config.json nor .safetensors files",
                   "one of them, or the path of a .gguf file itself");
    return describe_config(read_config(config), options);
  }
  const bool has_config = is_there(config);
  if (const auto absent = std::ranges::find_if_not(files, is_there); absent != files.end()) {
    const auto missing = fmt::format("{} of {} .safetensors files are missing, first {}",
                                     std::ranges::count_if(files, std::not_fn(is_there)),
                                     files.size(), absent->filename().string());
    if (!has_config)
      refuse_input(path.string(), "", missing, fmt::format("all, or a {} beside", config_name));
    auto out = describe_config(read_config(config), options);
    out.notes.push_back(fmt::format("{}: all sizes are those of {}", missing, config_name));
    return out;
  }
  if (!options.weights.empty() && has_config) return describe_config(read_config(config), options);
  auto stored = read_safetensors_weights(path, files, file_extent::header);
  need_experts(stored);
  std::string wish;
  if (!options.weights.empty()) {
    if (stored.found_by_shape)
      refuse_input(path.string(), "", "the roles of its experts are unknown: --weights needs them",
                   fmt::format("a {} beside it", config_name));
    stored.check_experts(stored.experts());
    const auto before = stored.expert_bytes();
    stored = read_safetensors_weights(
        path, files, file_extent::header,
        wish_plain(options.weights, plain_tensors(path, files), stored.experts()));
    stored.check_experts(stored.experts());
    wish = wish_note(options.weights, stored.expert_bytes(), before);
  }
  auto out = has_config ? describe_stored_with(read_config(config).shape(given_by(stored)), stored,
                                               options)
                        : describe_stored_alone(stored, options);
  stored.check_experts(static_cast<std::uint64_t>(out.memory.experts.experts));
  out.memory.experts.expert_bytes = by_layer(stored.expert_bytes());
  out.memory.resident_bytes = stored.all_resident_bytes();
  if (!wish.empty()) out.notes.push_back(wish);
  if (stored.found_by_shape)
    out.notes.emplace_back(
        "experts under unknown names: stacks of as many as their router has rows are taken");
  if (stored.prediction_bytes > 0)
    out.notes.push_back(fmt::format("tensors of multi-token prediction, {}, are not counted",
                                    size_text(stored.prediction_bytes)));
  if (const auto cut = stored.cut_files; cut > 0)
    out.notes.push_back(fmt::format(
        "{} of {} .safetensors files {} cut short by {} in all: headers are enough for a plan", cut,
        files.size(), cut == 1 ? "is" : "are", size_text(stored.missing_bytes)));
  out.source =
      fmt::format("{}: {}the headers of {} .safetensors file{}", path.string(),
                  has_config ? "config.json and " : "", files.size(), files.size() == 1 ? "" : "s");
  return out;
}

/// The folder's own name, also for "." and "models/olmoe/".
std::string folder_name(const fs::path& folder) {
  std::error_code ignored;
  const auto whole = fs::weakly_canonical(folder.empty() ? "." : folder, ignored);
  return whole.filename().string();
}

model_description describe_path(const fs::path& path, const model_options& options) {
  std::error_code ignored;
  const auto named = [](model_description out, std::string name) {
    out.memory.name = std::move(name);
    return out;
  };
  if (fs::is_directory(path, ignored))
    return named(describe_stored(path, path, options), folder_name(path));
  if (path.filename().string().ends_with(".safetensors.index.json"))
    return describe_path(path.parent_path().empty() ? "." : path.parent_path(), options);
  if (path.extension() == ".gguf") return describe_gguf(path, options);
  if (path.extension() == ".safetensors")
    return named(describe_stored(path, path.parent_path(), options), path.stem().string());
  const bool piped = !fs::is_regular_file(path, ignored);  // its name does not show its format
  if (path.extension() != ".json" && !piped)
    refuse_input(path.string(), "", "is of no known kind",
                 "config.json, .gguf, .safetensors or a folder");
  return named(describe_config(read_config(path), options), path.filename() == config_name
                                                                ? folder_name(path.parent_path())
                                                                : path.stem().string());
}

}  // namespace

validation model_options::validate() const {
  if (auto bad = weights.empty() ? std::nullopt : check_wish(weights)) return bad;
  if (!kv_bits) return std::nullopt;
  const auto bits = *kv_bits;
  if (bits >= 0.5 && bits <= most_kv_bits && std::floor(2 * bits) == 2 * bits) return std::nullopt;
  return error{
      fmt::format("kv_bits = {}, accepted: multiples of 0.5 in 0.5..{}", bits, most_kv_bits)};
}

model_description describe_model(std::string_view name_or_path, const model_options& options) {
  if (const auto bad = options.validate()) throw usage_error(bad->message);
  const fs::path path(name_or_path);
  // "Qwen/Qwen3-30B-A3B" is a name, too.
  const auto name = is_there(path) ? std::string(name_or_path)
                                   : hotset::detail::plain_letters(path.filename().string());
  const auto preset = preset_config(name);
  if (preset.empty() && !is_there(path))
    throw usage_error(
        fmt::format("unknown model '{}'{}, accepted: {}, or the path of a config.json, "
                    ".gguf or .safetensors file, or of a folder of them",
                    printable(name_or_path), did_you_mean(name, model_names()),
                    fmt::join(model_names(), ", ")));
  auto out =
      preset.empty()
          ? describe_path(path, options)
          : describe_config({.file = fmt::format("preset {}", name), .text = preset}, options);
  if (!preset.empty()) out.memory.name = name;
  auto hand = options.hand;
  if (out.top_k_is_known) hand.top_k.reset();
  hand.experts.reset();  // the model has its own, or took these
  if (hand.layers == out.memory.experts.layers) hand.layers.reset();
  if (!hand.is_empty()) correct_by_hand(hand, out);
  if (const auto bad = check_size(out.memory)) refuse_input(name_or_path, "", bad->message, "");
  return out;
}

namespace {

/// Applies the figures given by hand. Errors: usage_error for a value out of range.
void take(const model_by_hand& hand, memory_model& m) {
  auto& shape = m.experts;
  shape.layers = hand.layers.value_or(shape.layers);
  shape.experts = hand.experts.value_or(shape.experts);
  shape.top_k = hand.top_k.value_or(shape.top_k);
  if (hand.expert_bytes) shape.expert_bytes = {*hand.expert_bytes};
  if (const auto kv = hand.kv_bytes_per_token) {
    m.kv.clear();  // its layers are no longer known
    if (*kv > 0) m.kv.push_back({.layers = 1, .bytes_per_token = *kv});
    for (auto& block : m.blocks) {
      block.kv_bytes_per_token = (*kv + m.blocks.size() - 1) / m.blocks.size();
      block.window = 0;
    }
  }
  if (hand.resident_bytes) {
    m.resident_bytes = *hand.resident_bytes;
    for (auto& block : m.blocks) block.resident_bytes = m.resident_bytes / m.blocks.size();
  }
  if (const auto bad = check_size(m)) throw usage_error(bad->message);
}

}  // namespace

model_description describe_by_hand(const model_by_hand& hand) {
  std::vector<std::string_view> missing;
  const auto need = [&](const auto& value, std::string_view name) {
    if (!value) missing.push_back(name);
  };
  need(hand.layers, "layers");
  need(hand.experts, "experts");
  need(hand.top_k, "top-k");
  need(hand.expert_bytes, "expert-bytes");
  need(hand.kv_bytes_per_token, "kv-bytes-per-token");
  if (!missing.empty())
    throw usage_error(fmt::format("a model by hand: {} is missing; accepted: {}",
                                  fmt::join(missing, ", "), hand_options));
  model_description out;
  out.memory.name = out.source = "by hand";
  take(hand, out.memory);
  if (!hand.resident_bytes)
    out.notes.emplace_back(
        "no resident bytes by hand: attention, embeddings and all other weights are taken as 0");
  return out;
}

void correct_by_hand(const model_by_hand& hand, model_description& description) {
  if (hand.layers || hand.experts)
    throw usage_error(
        "layers and experts by hand beside a model that was read; accepted: top-k, expert-bytes, "
        "kv-bytes-per-token, resident-bytes");
  auto& m = description.memory;
  const auto note = [&](std::string_view what, const auto& given, std::uint64_t read) {
    if (given)
      description.notes.push_back(fmt::format("{} by hand: {}; {} was read", what,
                                              size_text(*given),
                                              read == 0 ? std::string("none") : size_text(read)));
  };
  if (hand.top_k)
    description.notes.push_back(
        fmt::format("top-k by hand: {}; {} was read", *hand.top_k, m.experts.top_k));
  note("size of an expert", hand.expert_bytes, m.experts.bytes_of(layer_id{}));
  note("KV of a token", hand.kv_bytes_per_token, m.kv_bytes(1) - m.kv_bytes(0));
  note("what stays resident", hand.resident_bytes, m.resident_bytes);
  description.top_k_is_known |= hand.top_k.has_value();
  take(hand, m);
}

}  // namespace hotset::lab
