// SPDX-License-Identifier: Apache-2.0
#include "lab/models/wished_weights.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/text/names.hpp"
#include "lab/files/gguf.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/models/model_shape.hpp"
#include "lab/models/model_weights.hpp"
#include "lab/models/module_patterns.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

using enum model_module;

/// Layers, or tensors of one role, that get another type.
enum class place : std::uint8_t {
  all,
  more_bits,  ///< the first and last eighth, and every third between
  eighth,
  sixteenth,
  first_2,
  first_4,
  middle,  ///< all but the first and last eighth
};

bool is_in(place where, std::uint64_t i, std::uint64_t n) noexcept {
  switch (where) {
    case place::all: break;
    case place::more_bits: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case place::eighth: return i < n / 8;
    case place::sixteenth: return i < n / 16;
    case place::first_2: return i < 2;
    case place::first_4: return i < 4;
    case place::middle: return i >= n / 8 && i < 7 * n / 8;
  }
  return true;
}

/// The type of one role. An empty type is the mixture's base.
struct part {
  std::string_view type{};
  place where = place::all;
  std::string_view elsewhere{};
};

/// A format. Source of llama.cpp's mixtures: llama_tensor_get_type_impl in its src/llama-quant.cpp.
struct wish {
  std::string_view name;
  std::string_view base{};    ///< ggml's type of linear layers; empty: `code`
  part value{};               ///< values of attention, with 4 or more queries a value head
  std::string_view narrow{};  ///< values with fewer
  part output{}, down{};
  std::string_view output_of_8{};  ///< with 8 experts
  std::string_view head = "Q6_K", embeddings{};
  part key{}, query{}, gate_up{};
  std::string_view value_of_8 = "Q8_0", key_of_8 = "Q8_0";
  std::optional<part> down_of_8{};
  std::string_view experts{};
  bool counts_tensors = false;  ///< `down` counts tensors, with those of shared experts
  weight_code code{};
  module_set modules = layer_modules;  ///< of `code`
};
constexpr wish coded(std::string_view name, const weight_code& code) {
  return {.name = name, .code = code};
}
/// Two bits and less.
constexpr wish two_bits(std::string_view name, std::string_view base, std::string_view first,
                        std::string_view output, std::string_view embeddings) {
  return {name,   base,   {"Q4_K"},   "Q4_K", {output}, {first, place::eighth},
          "Q5_K", "Q5_K", embeddings, {},     {},       {},
          "Q4_K", "Q4_K", {},         {},     true};
}

constexpr part more_q6{"Q6_K", place::more_bits};
/// Members in order of `wish`.
constexpr auto wishes = std::to_array<wish>({
    coded("bf16", {.bits = 16}),
    {"Q8_0", "Q8_0", {}, {}, {}, {}, {}, "Q8_0"},
    coded("int8", {.bits = 8, .block_rows = 1, .scale_bits = 16}),
    coded("fp8",
          {.bits = 8, .block_rows = 128, .block_columns = 128, .scale_bits = 32, .is_fp8 = true}),
    {"Q6_K", "Q6_K"},
    {"Q5_1", "Q5_1"},
    {"Q5_K_M", "Q5_K", more_q6, {}, {}, more_q6},
    {"Q5_K_S", "Q5_K"},
    {"Q5_0", "Q5_0"},
    {"Q4_1", "Q4_1"},
    {"Q4_K_M", "Q4_K", more_q6, {}, {}, more_q6, "Q5_K"},
    {"Q4_K_S", "Q4_K", {"Q5_K", place::first_4}, {}, {}, {"Q5_K", place::eighth}, "Q5_K"},
    coded("nvfp4",
          {.bits = 4, .block_rows = 1, .block_columns = 16, .scale_bits = 8, .tensor_bytes = 8}),
    {"Q4_0", "Q4_0"},
    {"IQ4_NL", "IQ4_NL", {"Q5_K"}, "IQ4_NL", {}, {}, "Q5_K"},
    {"IQ4_XS", "IQ4_XS", {"Q5_K"}, "IQ4_XS", {}, {}, "Q5_K"},
    {.name = "MXFP4", .base = "Q8_0", .head = "Q8_0", .experts = "MXFP4"},
    coded("int4-awq", {.bits = 4,
                       .word_bits = 32,
                       .block_rows = 1,
                       .block_columns = 128,
                       .scale_bits = 16,
                       .zero_bits = 4}),
    {"Q3_K_L", "Q3_K", {"Q5_K"}, {}, {"Q5_K"}, {"Q5_K"}},
    {.name = "Q3_K_M",
     .base = "Q3_K",
     .value = {"Q5_K", place::first_2, "Q4_K"},
     .output = {"Q4_K"},
     .down = {"Q5_K", place::sixteenth, "Q4_K"},
     .output_of_8 = "Q5_K"},
    {.name = "IQ3_M",
     .base = "IQ3_S",
     .value = {"Q4_K"},
     .output = {"Q4_K"},
     .down = {"Q4_K", place::eighth},
     .output_of_8 = "Q5_K",
     .down_of_8 = part{"Q4_K", place::more_bits}},
    {"IQ3_S", "IQ3_S", {"Q4_K"}, "IQ3_S", {}, {}, "Q5_K"},
    {"Q3_K_S", "Q3_K", {}, {}, {}, {}, "Q5_K"},
    {.name = "IQ3_XS",
     .base = "IQ3_S",
     .value = {"Q4_K"},
     .narrow = "IQ3_S",
     .output_of_8 = "Q5_K",
     .key = {"IQ3_XXS"},
     .query = {"IQ3_XXS"},
     .gate_up = {"IQ3_XXS", place::middle}},
    {.name = "IQ3_XXS",
     .base = "IQ3_XXS",
     .value = {"Q4_K"},
     .narrow = "IQ3_XXS",
     .output = {"IQ3_S"},
     .output_of_8 = "Q5_K",
     .head = "Q5_K",
     .embeddings = "IQ3_S",
     .key = {"IQ2_S"},
     .query = {"IQ2_S"}},
    {"Q2_K", "Q2_K", {"Q4_K"}, "Q3_K", {"Q3_K"}, {"Q3_K"}, "Q5_K"},
    {"Q2_K_S", "Q2_K", {"Q4_K"}, "Q2_K", {}, {"Q4_K", place::eighth}},
    two_bits("IQ2_M", "IQ2_S", "IQ3_S", "IQ3_S", "IQ3_S"),
    two_bits("IQ2_S", "IQ2_XS", "IQ3_S", "IQ3_S", "IQ3_S"),
    two_bits("IQ2_XS", "IQ2_XS", "Q2_K", "", "Q2_K"),
    two_bits("IQ2_XXS", "IQ2_XXS", "Q2_K", "", "Q2_K"),
    two_bits("IQ1_M", "IQ1_M", "Q2_K", "IQ2_XXS", "Q2_K"),
    two_bits("IQ1_S", "IQ1_S", "Q2_K", "IQ2_XXS", "Q2_K"),
});

constexpr auto wish_names = [] {
  std::array<std::string_view, wishes.size()> out;
  std::ranges::transform(wishes, out.begin(), &wish::name);
  return out;
}();

/// Types of ggml as codes. Rows that end inside a block of 256 get a type with blocks of 32, as in llama.cpp.
const weight_code& code_of(std::string_view type) {
  constexpr std::pair<std::string_view, std::string_view> smaller[] = {
      {"IQ1_S", "IQ4_NL"}, {"IQ1_M", "IQ4_NL"}, {"IQ2_XXS", "IQ4_NL"}, {"IQ2_XS", "IQ4_NL"},
      {"IQ2_S", "IQ4_NL"}, {"IQ3_S", "IQ4_NL"}, {"IQ3_XXS", "IQ4_NL"}, {"IQ4_XS", "IQ4_NL"},
      {"Q2_K", "Q4_0"},    {"Q3_K", "Q4_0"},    {"Q4_K", "Q5_0"},      {"Q5_K", "Q5_1"},
      {"Q6_K", "Q8_0"}};
  static const auto codes = [&] {
    std::map<std::string_view, weight_code> out;
    for (const auto& [id, name, block, bytes] : gguf_types())
      out[name] = {.bits = 8 * bytes / block,
                   .block_rows = 1,
                   .block_columns = block,
                   .scale_bits = 8 * bytes % block,
                   .needs_whole_blocks = true};
    for (const auto& [from, to] : smaller) out.at(from).if_cut = &out.at(to);
    return out;
  }();
  return codes.at(type);
}

/// Other names of formats, each with a space on both sides.
constexpr std::pair<std::string_view, std::string_view> other_names[] = {
    {" f16 fp16 float16 bfloat16 ", "bf16"},
    {" q8 ", "Q8_0"},
    {" w8a8 w8a16 8bit gptqint8 ", "int8"},
    {" fp8e4m3 e4m3 fp8block ", "fp8"},
    {" q5k ", "Q5_K_M"},
    {" q4k ", "Q4_K_M"},
    {" q3k ", "Q3_K_M"},
    {" mxfp4moe ", "MXFP4"},
    {" int4 w4a16 4bit awq awqint4 gptq gptqint4 ", "int4-awq"}};

/// Letters and digits alone: "Q4_K_M", "q4-k-m" and "Q4KM" are one name.
std::string bare_name(std::string_view name) {
  auto out = detail::plain_letters(name);
  std::erase(out, '-');
  return out;
}

/// "4.5bpw", or "4.5".
std::optional<double> bits_in(std::string_view name) {
  constexpr std::string_view unit = "bpw";
  if (detail::plain_letters(name).ends_with(unit)) name.remove_suffix(unit.size());
  const auto bits = parse_number<double>(name);
  return bits && *bits >= 1 && *bits <= 16 ? bits : std::nullopt;
}

/// Finds a name of the table, or any number of bits, rounded up to 1/64.
std::optional<wish> find_wish(std::string_view name) {
  auto bare = bare_name(name);
  for (const auto& [others, known] : other_names)
    if (others.find(" " + bare + " ") != others.npos) bare = bare_name(known);
  for (const auto& one : wishes)
    if (bare_name(one.name) == bare) return one;
  const auto bits = bits_in(name);
  if (!bits) return std::nullopt;
  const auto parts = static_cast<std::uint64_t>(std::ceil(*bits * 64));
  return wish{
      .name = name,
      .code = {.bits = parts / 64, .block_rows = 1, .block_columns = 64, .scale_bits = parts % 64},
      .modules = layer_modules | set_of(head)};
}

/// Roles of weights in llama.cpp's mixtures.
enum class role : std::uint8_t {
  other,
  value,
  key,
  query,
  output,
  gate_up,
  down,
  head,
  embeddings
};

/// Properties of a model that a mixture depends on.
struct facts {
  std::uint64_t layers = 0;
  std::uint64_t values = 0;  ///< tensors like attn_v and attn_qkv
  std::uint64_t experts = 0;
  std::uint64_t hidden = 0;
  bool is_narrow = false;  ///< fewer than 4 queries a value head
  bool is_tied = false;    ///< the embeddings are the head
};

/// Chooses types as the quantiser does, which counts tensors: ask for each once, in the order of layers.
class type_chooser {
 public:
  type_chooser(const wish& w, const facts& f) : w_(w), f_(f) {
    if (f.experts == 8) {
      w_.value = {w_.value_of_8};
      w_.key = {w_.key_of_8};
      w_.output = {w_.output_of_8};
      w_.down = w_.down_of_8.value_or(w_.down);
    } else if (f.is_narrow && !w_.narrow.empty()) {
      w_.value = {w_.narrow};
    }
    if (f.hidden % 256 != 0) w_.head = "Q8_0";
    if (f.is_tied) w_.embeddings = w_.head;
  }

  [[nodiscard]] const weight_code& next(role r, std::uint64_t layer = 0) {
    const auto type = type_of(r, layer);
    return code_of(type.empty() ? w_.base : type);
  }

 private:
  [[nodiscard]] std::string_view type_of(role r, std::uint64_t layer) {
    switch (r) {
      case role::other: break;
      case role::value: return type_of(w_.value, values_++, f_.values);
      case role::key: return w_.key.type;
      case role::query: return w_.query.type;
      case role::output: return w_.output.type;
      case role::gate_up: return type_of(w_.gate_up, layer, f_.layers);
      case role::down: return type_of(w_.down, w_.counts_tensors ? downs_++ : layer, f_.layers);
      case role::head: return w_.head;
      case role::embeddings: return w_.embeddings;
    }
    return {};
  }
  [[nodiscard]] static std::string_view type_of(const part& p, std::uint64_t i, std::uint64_t n) {
    return is_in(p.where, i, n) ? p.type : p.elsewhere;
  }

  wish w_;
  facts f_;
  std::uint64_t values_ = 0, downs_ = 0;  ///< tensors so far
};

/// Whether the layer has a tensor like attn_v or attn_qkv.
bool has_values(const model_shape& shape, const model_layer& layer) noexcept {
  if (layer.mixer == mixer_kind::delta) return true;
  return layer.mixer == mixer_kind::attention && !shape.latent && !shape.compressed &&
         !layer.shares_kv;
}

facts facts_of(const model_shape& shape) {
  return {.layers = shape.layers.size(),
          .values = static_cast<std::uint64_t>(std::ranges::count_if(
              shape.layers, [&](const auto& layer) { return has_values(shape, layer); })),
          .experts = shape.experts,
          .hidden = shape.hidden,
          .is_narrow = std::ranges::any_of(
              shape.layers,
              [](const auto& layer) { return layer.grouped.heads < 4 * layer.grouped.kv_heads; }),
          .is_tied = shape.has(trait::tied_embeddings)};
}

/// Applies one of llama.cpp's mixtures.
void mix(const wish& w, model_shape& shape) {
  type_chooser choose(w, facts_of(shape));
  shape.store(layer_modules, choose.next(role::other));
  shape.store(set_of(head), choose.next(role::head));
  shape.store(set_of(embeddings), choose.next(role::embeddings));
  // Experts, and the tensors of latent attention that have three dimensions, too.
  const module_set apart = w.experts.empty() ? 0 : expert_modules | set_of(key_value);
  if (apart != 0) shape.store(apart, code_of(w.experts));
  for (std::uint64_t l = 0; l < shape.layers.size(); ++l) {
    auto& layer = shape.layers[l];
    const auto put = [&](module_set modules, role r) {
      layer.otherwise.push_back({modules & ~apart, choose.next(r, l)});
    };
    if (has_values(shape, layer)) put(set_of(value, linear_in), role::value);
    put(set_of(key), role::key);
    put(set_of(query), role::query);
    put(set_of(output), role::output);
    put(set_of(expert_gate, expert_up, shared_gate, shared_up, dense_gate, dense_up),
        role::gate_up);
    put(set_of(expert_down, dense_down), role::down);
    if (layer.is_moe && shape.shared_width > 0) put(set_of(shared_down), role::down);
  }
}

role role_of(std::string_view name) {
  if (name == "output.weight") return role::head;
  if (name.ends_with("token_embd.weight")) return role::embeddings;
  if (has_any(name, {"attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"})) return role::value;
  if (has_any(name, {"attn_k.weight"})) return role::key;
  if (has_any(name, {"attn_q.weight"})) return role::query;
  if (has_any(name, {"attn_output.weight"})) return role::output;
  if (has_any(name, {"ffn_up", "ffn_gate"})) return role::gate_up;
  return has_any(name, {"ffn_down"}) ? role::down : role::other;
}

role role_of(module_set modules) {
  const auto has = [&](auto... some) { return (modules & set_of(some...)) != 0; };
  if (has(model_module::head)) return role::head;
  if (has(model_module::embeddings)) return role::embeddings;
  if (has(model_module::value, key_value, linear_in)) return role::value;
  if (has(model_module::key)) return role::key;
  if (has(model_module::query)) return role::query;
  if (has(model_module::output)) return role::output;
  if (has(expert_gate, expert_up, shared_gate, shared_up, dense_gate, dense_up))
    return role::gate_up;
  return has(expert_down, shared_down, dense_down) ? role::down : role::other;
}

/// Whether llama.cpp quantises a tensor. Source: tensor_allows_quantization in its src/llama-quant.cpp.
bool is_quantised(const gguf_file::tensor& t) {
  return t.dimensions.size() >= 2 && t.name.ends_with("weight") &&
         !has_any(t.name,
                  {"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup",
                   "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight",
                   "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_"});
}

/// All tensors in the quantiser's order: by layer, then by name.
std::vector<std::pair<std::int64_t, const gguf_file::tensor*>> in_order(
    std::span<const gguf_file> parts) {
  std::vector<std::pair<std::int64_t, const gguf_file::tensor*>> all;
  for (const auto& part : parts)
    for (const auto& t : part.tensors()) {
      constexpr std::string_view blocks = "blk.";
      const auto name = std::string_view(t.name);
      const auto number = name.starts_with(blocks) ? name.substr(blocks.size()) : name;
      const auto layer = parse_number<std::int64_t>(number.substr(0, number.find('.')));
      all.emplace_back(layer.value_or(-1), &t);
    }
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->name) < std::tie(b.first, b.second->name);
  });
  return all;
}

/// Bytes of an expert by layer, or of all layers.
std::vector<std::uint64_t> expert_bytes(const model_shape& shape) {
  memory_model memory;
  memory.blocks.resize(shape.layers.size());
  add_weights(shape, memory);
  return memory.experts.expert_bytes;
}

}  // namespace

std::span<const std::string_view> wished_weight_names() noexcept { return wish_names; }

validation check_wish(std::string_view name) {
  if (find_wish(name)) return std::nullopt;
  if (detail::plain_letters(name).starts_with("ud-")) name.remove_prefix(3);  // no name is nearer
  return unknown_name("weights", name,
                      std::vector<std::string>(wish_names.begin(), wish_names.end()),
                      ", or for another file its bits a weight, in 1..16, such as 4.5bpw");
}

std::string wish_name(std::string_view name) {
  const auto known = find_wish(name)->name;
  return known != name || !bits_in(name) ? std::string(known)
                                         : fmt::format("{}bpw", *bits_in(name));
}

bool is_llama_mixture(std::string_view name) {
  const auto found = find_wish(name);
  return found && !found->base.empty();
}

void wish_weights(std::string_view name, model_shape& shape) {
  auto w = *find_wish(name);
  const bool is_known = std::exchange(shape.unknown_format, {}).empty();
  const auto before = is_known ? expert_bytes(shape) : std::vector<std::uint64_t>();
  const bool is_mixture = !w.base.empty();
  // The quantiser does not convert MXFP4 again.
  const bool stays = is_mixture && shape.code(expert_gate).is_mxfp4();
  if (stays) w.experts = "MXFP4";
  shape.dtype_bytes = 2;
  shape.codes.fill(shape.plain_code());
  for (auto& layer : shape.layers) layer.otherwise.clear();
  shape.notes.erase(shape.notes.begin() + shape.format_notes.first,
                    shape.notes.begin() + shape.format_notes.second);
  if (is_mixture) {
    shape.set(trait::router_in_f32, true);
    shape.kv_bits.reset();
    mix(w, shape);
  } else {
    shape.store(w.modules, w.code);
  }
  shape.notes.push_back(wish_note(w.name, expert_bytes(shape), before));
  if (stays) shape.notes.emplace_back("experts stay in MXFP4, as in published files of this model");
}

tensor_bytes wish_tensors(std::string_view name, std::span<const gguf_file> parts,
                          std::uint64_t layers, std::uint64_t experts, std::uint64_t queries) {
  tensor_bytes out;
  if (name.empty()) return out;
  const auto w = *find_wish(name);
  const auto all = in_order(parts);
  facts f{.layers = layers, .experts = experts, .is_narrow = queries < 4, .is_tied = true};
  for (const auto& [layer, t] : all) {
    const auto r = role_of(t->name);
    f.values += r == role::value ? 1U : 0U;
    if (r == role::embeddings) f.hidden = t->dimensions.front();
    if (r == role::head) f.is_tied = false;
  }
  type_chooser choose(w, f);
  constexpr weight_code plain{.bits = 16};
  for (const auto& [layer, t] : all) {
    const bool is_stack = t->dimensions.size() == 3;
    const auto r = role_of(t->name);
    if (!is_quantised(*t)) continue;
    const bool is_linear = r != role::embeddings && r != role::head;
    const auto& code =
        w.base.empty()
            ? (is_linear || (w.modules & set_of(head)) != 0 ? w.code : plain)
            : choose.next(r, static_cast<std::uint64_t>(std::max<std::int64_t>(layer, 0)));
    const bool stays = !w.base.empty() && is_stack && t->type == "MXFP4";
    const bool is_apart = is_stack && !w.experts.empty();
    const auto bytes = matrix_bytes(t->dimensions[1], t->dimensions[0],
                                    is_apart ? code_of(w.experts) : code, plain);
    if (!stays) out[t->name] = is_stack ? t->dimensions[2] * bytes : bytes;
  }
  return out;
}

tensor_bytes wish_plain(std::string_view name, std::span<const plain_tensor> tensors,
                        std::uint64_t experts) {
  // Tensors of one module are one choice, as in a stack; layers are in order.
  std::map<std::pair<std::uint64_t, module_set>, std::vector<const plain_tensor*>> groups;
  facts f{.experts = experts, .is_tied = true};
  std::uint64_t queries = 0, keys = 0;
  for (const auto& t : tensors) {
    const auto named = modules_named(t.name);
    if (!named || named->size() != 1 || t.shape.size() < 2) continue;
    const auto& [modules, layer, expert] = named->front();
    if ((modules & ~set_of(router)) == 0) continue;
    auto& group = groups[{layer.value_or(0), modules}];
    group.push_back(&t);
    f.layers = std::max(f.layers, layer.value_or(0) + 1);
    if (group.size() == 1 && role_of(modules) == role::value) ++f.values;
    if (modules == set_of(embeddings)) f.hidden = t.shape.back();
    if (modules == set_of(head)) f.is_tied = false;
    if (modules == set_of(query)) queries = t.shape.front();
    if (modules == set_of(key)) keys = t.shape.front();
  }
  f.is_narrow = queries < 4 * keys;
  const auto w = *find_wish(name);
  type_chooser choose(w, f);
  constexpr weight_code plain{.bits = 16};
  tensor_bytes out;
  for (const auto& [place, group] : groups) {
    const auto& [layer, modules] = place;
    const bool is_apart = (modules & expert_modules) != 0 && !w.experts.empty();
    const auto& code = w.base.empty() ? (modules & w.modules) != 0 ? w.code : plain
                       : is_apart     ? code_of(w.experts)
                                      : choose.next(role_of(modules), layer);
    for (const auto* t : group) {
      auto bytes = matrix_bytes(t->shape.end()[-2], t->shape.back(), code, plain);
      for (std::size_t i = 0; i + 2 < t->shape.size(); ++i) bytes *= t->shape[i];
      out[t->name] = bytes;
    }
  }
  return out;
}

std::string wish_note(std::string_view name, std::span<const std::uint64_t> bytes,
                      std::span<const std::uint64_t> before) {
  const auto mean = [](std::span<const std::uint64_t> all) {
    return size_text(std::accumulate(all.begin(), all.end(), std::uint64_t{0}) / all.size());
  };
  return fmt::format("weights as {}: {} an expert on average; as released {}", name, mean(bytes),
                     before.empty() ? "unknown" : mean(before));
}

}  // namespace hotset::lab
