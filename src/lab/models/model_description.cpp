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
#include "lab/models/expert_names.hpp"
#include "lab/models/gguf_model.hpp"
#include "lab/models/hf_config.hpp"
#include "lab/models/model_presets.hpp"
#include "lab/models/model_weights.hpp"
#include "lab/models/quantisation.hpp"
#include "lab/models/stored_weights.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view config_name = "config.json";

/// The caller's choice, else what the checkpoint declares, else the usual bits.
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

/// Everything but the weights' bytes.
model_description describe_shape(const model_shape& shape, const model_options& options) {
  model_description out;
  out.notes = shape.notes;
  auto& m = out.memory;
  m.experts.layers =
      static_cast<std::int32_t>(std::ranges::count(shape.layers, true, &model_layer::is_moe));
  m.experts.experts = static_cast<std::int32_t>(shape.experts);
  m.experts.top_k = static_cast<std::int32_t>(shape.top_k);
  m.max_context = shape.max_context;
  m.is_causal = !shape.has(trait::non_causal);
  out.kv_bits = kv_bits_of(shape, options, out.notes);
  for (const auto& layer : shape.layers) {
    const bool keeps_kv = layer.mixer == mixer_kind::attention && !layer.shares_kv;
    const auto& block = m.blocks.emplace_back(model_block{
        .is_moe = layer.is_moe,
        .kv_bytes_per_token = keeps_kv ? kv_bytes_of(kv_elements_of(shape), out.kv_bits) : 0,
        .window = layer.is_windowed ? shape.window : 0,
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

/// What plans allocate goes with the experts of all layers; published models have up to some 25,000.
constexpr std::uint64_t most_experts_in_all = std::uint64_t{1} << 20U;

validation check_size(const memory_model& memory) {
  if (auto bad = memory.validate()) return bad;
  const auto& shape = memory.experts;
  const auto all =
      static_cast<std::uint64_t>(shape.layers) * static_cast<std::uint64_t>(shape.experts);
  if (all <= most_experts_in_all) return std::nullopt;
  return error{fmt::format("{} layers x {} experts, accepted: at most {} in all", shape.layers,
                           shape.experts, most_experts_in_all)};
}

void check(const memory_model& memory, const std::string& file) {
  if (const auto bad = check_size(memory)) refuse_input(file, "", bad->message, "");
}

/// `quantisation`: the text of an hf_quant_config.json beside it, or nothing. Errors: trace_error.
model_description describe_config(std::string_view text, std::string_view quantisation,
                                  const std::string& file, const model_options& options) {
  const auto shape = parse_hf_config(text, quantisation, file);
  if (!shape.unknown_format.empty())
    refuse_input(file, "key 'quantization_config'", shape.unknown_format,
                 fmt::format("{}; or the .safetensors files beside it; or by hand {}",
                             known_quantisations, hand_options));
  auto out = describe_shape(shape, options);
  add_weights(shape, out.memory);
  check(out.memory, file);
  out.source = fmt::format("{}: {}", file, shape.type);
  return out;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// A config, and what some exporters say in a file of its own beside it: how weights and cache are stored.
class config_files {
 public:
  explicit config_files(const fs::path& config) : path_(config), config_(config) {
    const auto beside = config.parent_path() / "hf_quant_config.json";
    if (config.filename() == config_name && is_there(beside)) quantisation_.emplace(beside);
  }
  [[nodiscard]] std::string file() const { return path_.string(); }
  [[nodiscard]] std::string_view text() const noexcept { return config_.text(); }
  [[nodiscard]] std::string_view quantisation() const noexcept {
    return quantisation_ ? quantisation_->text() : std::string_view();
  }

 private:
  fs::path path_;
  mapped_file config_;
  std::optional<mapped_file> quantisation_;
};

model_description describe_config_file(const fs::path& config, const model_options& options) {
  const config_files files(config);
  return describe_config(files.text(), files.quantisation(), files.file(), options);
}

/// Layers past the last one that the config counts are those of multi-token prediction.
void drop_layers_from(std::uint64_t first, stored_weights& stored,
                      std::vector<std::string>& notes) {
  std::uint64_t dropped = 0;
  for (auto at = stored.layers.lower_bound(first); at != stored.layers.end();
       at = stored.layers.erase(at))
    ++dropped;
  if (dropped > 0)
    notes.push_back(fmt::format("{} layer{} from {} on not counted: {} ends before", dropped,
                                dropped == 1 ? "" : "s", first, config_name));
}

/// Names what is there, if no tensor has a known name of experts.
void need_experts(const stored_weights& stored, const std::string& file) {
  if (stored.experts() != 0) return;
  refuse_input(file, "",
               stored.largest_other.empty()
                   ? std::string("has no tensors")
                   : fmt::format("has 0 routed experts in a layer under names that are known: its "
                                 "largest tensor is '{}'",
                                 printable(stored.largest_other, 120)),
               fmt::format("names such as {}; or by hand {}", known_expert_names, hand_options));
}

/// The MoE layers of the files must be those of the config.
void check_layers(const model_shape& shape, const stored_weights& stored, const std::string& file) {
  need_experts(stored, file);
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    const auto at = stored.layers.find(i);
    const bool has_experts = at != stored.layers.end() && at->second.is_moe();
    if (has_experts != shape.layers[i].is_moe)
      refuse_input(file, fmt::format("layer {}", i), has_experts ? "has experts" : "has no experts",
                   fmt::format("what {} says of it (is a file missing?)", config_name));
  }
}

void take_bytes(const stored_weights& stored, std::uint64_t experts, const std::string& file,
                memory_model& memory) {
  memory.experts.expert_bytes = by_layer(stored.expert_bytes(experts, file));
  memory.resident_bytes = stored.all_resident_bytes();
  check(memory, file);
}

model_description describe_stored_with(const config_files& config, stored_weights stored,
                                       const std::string& file, const model_options& options) {
  const auto shape = parse_hf_config(config.text(), config.quantisation(), config.file());
  auto out = describe_shape(shape, options);
  drop_layers_from(shape.layers.size(), stored, out.notes);
  check_layers(shape, stored, file);
  for (const auto& [number, layer] : stored.layers)
    out.memory.blocks[number].resident_bytes = layer.resident_bytes;
  take_bytes(stored, shape.experts, file, out.memory);
  return out;
}

/// What is known of a model whose shape no config says.
std::string headers_alone_note(const std::optional<unknown_family>& config) {
  constexpr std::string_view rest =
      "windows, recurrent state and the KV cache's own bits are unknown";
  if (!config)
    return fmt::format(
        "no {} beside it: top-k is taken as 1 unless --top-k says it; {}, and so is "
        "the longest context",
        config_name, rest);
  return fmt::format("'{}' is no known model_type: all sizes are those of the headers{}; {}",
                     printable(config->type, 60),
                     config->top_k ? "" : "; top-k is taken as 1 unless --top-k says it", rest);
}

/// `config`: what a config of an unknown family says.
model_description describe_stored_alone(stored_weights stored, const std::string& file,
                                        const model_options& options,
                                        const std::optional<unknown_family>& config) {
  model_description out;
  auto& shape = out.memory.experts;
  if (config && config->layers > 0) drop_layers_from(config->layers, stored, out.notes);
  need_experts(stored, file);
  const auto experts = stored.experts();
  if (experts < 2 || experts > (std::uint64_t{1} << 20U))
    refuse_input(file, "", fmt::format("has {} routed experts in a layer", experts), "2..1048576");
  out.kv_bits = options.kv_bits.value_or(model_options::usual_kv_bits);
  for (const auto& [number, layer] : stored.layers) {
    if (layer.is_moe()) ++shape.layers;
    out.memory.blocks.push_back(
        {.is_moe = layer.is_moe(),
         .resident_bytes = layer.resident_bytes,
         .kv_bytes_per_token = kv_bytes_of(layer.kv_elements, out.kv_bits)});
  }
  out.memory.kv = kv_of(out.memory.blocks);
  if (!out.memory.has_kv())
    refuse_input(file, "", "has no k_proj and v_proj of self_attn: its cache is unknown",
                 config ? fmt::format("by hand {}", hand_options)
                        : fmt::format("a {} beside it, or by hand {}", config_name, hand_options));
  shape.experts = static_cast<std::int32_t>(experts);
  out.top_k_is_known = config && config->top_k;
  shape.top_k = static_cast<std::int32_t>(out.top_k_is_known ? *config->top_k : 1);
  if (config) out.memory.max_context = config->max_context;
  out.notes.push_back(headers_alone_note(config));
  take_bytes(stored, experts, file, out.memory);
  return out;
}

/// A folder, or a .safetensors file.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): what is described, then where it lies
model_description describe_stored(const fs::path& path, const fs::path& folder,
                                  const model_options& options) {
  const auto files = find_safetensors(path);
  const auto config = folder / config_name;
  const auto file = path.string();
  if (files.empty()) {
    if (!is_there(config))
      refuse_input(file, "", "holds neither config.json nor .safetensors files", "one of them");
    return describe_config_file(config, options);
  }
  auto stored = read_safetensors_weights(files);
  const auto cut_files = stored.cut_files;
  const auto missing = stored.missing_bytes;
  std::optional<config_files> beside;
  if (is_there(config)) beside.emplace(config);
  const auto unknown = beside ? read_unknown_family(beside->text(), beside->file()) : std::nullopt;
  auto out = beside && !unknown ? describe_stored_with(*beside, std::move(stored), file, options)
                                : describe_stored_alone(std::move(stored), file, options, unknown);
  if (cut_files > 0)
    out.notes.push_back(fmt::format(
        "{} of {} .safetensors files {} cut short by {} in all: headers are enough for a plan",
        cut_files, files.size(), cut_files == 1 ? "is" : "are", size_text(missing)));
  out.source =
      fmt::format("{}: {}the headers of {} .safetensors file{}", file,
                  beside ? "config.json and " : "", files.size(), files.size() == 1 ? "" : "s");
  return out;
}

/// The folder's own name, also of "." and of "models/olmoe/".
std::string name_of(const fs::path& folder) {
  std::error_code ignored;
  const auto whole = fs::weakly_canonical(folder.empty() ? "." : folder, ignored);
  return whole.filename().string();
}

model_description describe_path(const fs::path& path, const model_options& options) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    auto out = describe_stored(path, path, options);
    out.memory.name = name_of(path);
    return out;
  }
  if (path.extension() == ".gguf") {
    auto out = describe_gguf(path, options);
    check(out.memory, path.string());
    return out;
  }
  if (path.extension() == ".safetensors") {
    auto out = describe_stored(path, path.parent_path(), options);
    out.memory.name = path.stem().string();
    return out;
  }
  const bool piped = !fs::is_regular_file(path, ignored);  // it has no name that says what it is
  if (path.extension() != ".json" && !piped)
    refuse_input(path.string(), "", "is of no known kind",
                 "config.json, .gguf, .safetensors or a folder");
  auto out = describe_config_file(path, options);
  out.memory.name =
      path.filename() == config_name ? name_of(path.parent_path()) : path.stem().string();
  return out;
}

}  // namespace

validation model_options::validate() const {
  if (!kv_bits) return std::nullopt;
  const auto bits = *kv_bits;
  if (bits >= 0.5 && bits <= most_kv_bits && std::floor(2 * bits) == 2 * bits) return std::nullopt;
  return error{
      fmt::format("kv_bits = {}, accepted: multiples of 0.5 in 0.5..{}", bits, most_kv_bits)};
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& preset : model_presets()) names.emplace_back(preset.name);
  return names;
}

model_description describe_model(std::string_view name_or_path, const model_options& options) {
  if (const auto bad = options.validate()) throw usage_error(bad->message);
  for (const auto& preset : model_presets()) {
    if (preset.name != name_or_path) continue;
    const auto file = fmt::format("preset {}", preset.name);
    auto out = describe_config(preset.config, {}, file, options);
    out.memory.name = preset.name;
    return out;
  }
  const fs::path path(name_or_path);
  if (!is_there(path))
    throw usage_error(
        fmt::format("unknown model '{}'{}, accepted: {}, or the path of a config.json, "
                    ".gguf or .safetensors file, or of a folder of them",
                    printable(name_or_path), did_you_mean(name_or_path, model_names()),
                    fmt::join(model_names(), ", ")));
  return describe_path(path, options);
}

namespace {

/// A cache whose layers are not told apart.
std::vector<kv_layers> one_cache(std::uint64_t bytes_per_token) {
  if (bytes_per_token == 0) return {};
  return {{.layers = 1, .bytes_per_token = bytes_per_token, .window = 0}};
}

void check_hand(const memory_model& memory) {
  if (const auto bad = check_size(memory)) throw usage_error(bad->message);
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
  auto& m = out.memory;
  m.name = "by hand";
  m.experts.layers = *hand.layers;
  m.experts.experts = *hand.experts;
  m.experts.top_k = *hand.top_k;
  m.experts.expert_bytes = {*hand.expert_bytes};
  m.kv = one_cache(*hand.kv_bytes_per_token);
  m.resident_bytes = hand.resident_bytes.value_or(0);
  check_hand(m);
  out.source = m.name;
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
  const auto note = [&](std::string_view what, std::uint64_t told, std::uint64_t read) {
    description.notes.push_back(
        fmt::format("{} by hand: {}; {} was read", what, size_text(told), size_text(read)));
  };
  if (hand.top_k) {
    description.notes.push_back(
        fmt::format("top-k by hand: {}; {} was read", *hand.top_k, m.experts.top_k));
    description.top_k_is_known = true;
    m.experts.top_k = *hand.top_k;
  }
  if (hand.expert_bytes) {
    note("size of an expert", *hand.expert_bytes, m.experts.bytes_of(layer_id{}));
    m.experts.expert_bytes = {*hand.expert_bytes};
  }
  if (hand.kv_bytes_per_token) {
    note("KV of a token", *hand.kv_bytes_per_token, m.kv_bytes(1) - m.kv_bytes(0));
    m.kv = one_cache(*hand.kv_bytes_per_token);
    for (auto& block : m.blocks) {  // which of them keep how much nobody said
      block.kv_bytes_per_token = (*hand.kv_bytes_per_token + m.blocks.size() - 1) / m.blocks.size();
      block.window = 0;
    }
  }
  if (hand.resident_bytes) {
    note("what stays resident", *hand.resident_bytes, m.resident_bytes);
    m.resident_bytes = *hand.resident_bytes;
    for (auto& block : m.blocks) block.resident_bytes = m.resident_bytes / m.blocks.size();
  }
  check_hand(m);
}

}  // namespace hotset::lab
