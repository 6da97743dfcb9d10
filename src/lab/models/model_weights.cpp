// SPDX-License-Identifier: Apache-2.0
#include "lab/models/model_weights.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace hotset::lab {
namespace {

/// Wide enough for every product of extents, which are below 2^25.
__extension__ using wide = unsigned __int128;

std::uint64_t narrow(wide bytes) noexcept {
  constexpr wide most = std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(std::min(bytes, most));
}

wide ceil_div(wide a, wide b) noexcept { return (a + b - 1) / b; }

wide matrix(wide out, wide in, const weight_code& code, const weight_code& plain) {
  if (code.needs_whole_blocks && in % code.block_columns != 0)
    return matrix(out, in, code.if_cut != nullptr ? *code.if_cut : plain, plain);
  const wide across = code.block_columns == 0 ? 1 : ceil_div(in, code.block_columns);
  const wide down = code.block_rows == 0 ? 1 : ceil_div(out, code.block_rows);
  const wide columns = code.fills_blocks ? across * code.block_columns : in;
  const wide row = ceil_div(columns * code.bits, code.word_bits) * code.word_bits;
  const wide bits =
      out * row + across * down * (code.scale_bits + code.zero_bits) + in * code.column_bits;
  return ceil_div(bits, 8) + code.tensor_bytes;
}

/// Units: bytes. Each function counts one part of a decoder.
class weigher {
 public:
  /// `f32`: bytes of an element in F32.
  explicit weigher(const model_shape& shape, std::uint64_t f32 = 4) : s_(shape), f32_(f32) {}

  [[nodiscard]] wide expert(const model_layer& layer) const {
    const auto width = s_.expert_input > 0 ? s_.expert_input : s_.hidden;
    const wide biases = s_.has(trait::biased_experts) ? plain(2 * s_.expert_width + width) : 0;
    return mlp(s_.expert_width, width, layer, model_module::expert_gate) + biases;
  }
  [[nodiscard]] wide resident() const {
    wide bytes = embeddings() + norm() + plain(s_.beside);
    if (s_.compressed) bytes += f32_ * streams(s_.compressed->streams);
    for (const auto& layer : s_.layers) bytes += layer_bytes(layer);
    return bytes;
  }
  /// Embeddings that no product reads whole.
  [[nodiscard]] wide lookups() const {
    return s_.has(trait::tied_embeddings)
               ? 0
               : linear(s_.vocabulary, s_.hidden, s_.code(model_module::embeddings));
  }
  [[nodiscard]] wide layer_bytes(const model_layer& layer) const {
    const auto times = s_.has(trait::double_layers) ? 2U : 1U;
    const bool has_mixer = layer.mixer != mixer_kind::none;
    const auto norms = has_mixer && layer.has_mlp ? s_.norms : (s_.norms + 1) / 2;
    wide bytes = (norms + (layer.is_moe ? s_.expert_norms : 0)) * norm() + times * mixer(layer);
    if (layer.is_moe) bytes += router(layer) + shared(layer);
    const bool is_beside = layer.is_moe && s_.has(trait::dense_beside);
    if (is_beside || (layer.has_mlp && !layer.is_moe))
      bytes += times * mlp(s_.dense_width, s_.hidden, layer, model_module::dense_gate);
    return bytes;
  }

 private:
  [[nodiscard]] wide plain(wide elements) const { return elements * s_.dtype_bytes; }
  /// Bytes of one linear module of a layer.
  [[nodiscard]] wide linear(wide out, wide in, const model_layer& layer,
                            model_module module) const {
    return linear(out, in, s_.code(layer, module));
  }
  [[nodiscard]] wide linear(wide out, wide in, const weight_code& code) const {
    return matrix(out, in, code, s_.plain_code());
  }
  /// Bytes of gate, up and down, which are consecutive in model_module.
  [[nodiscard]] wide mlp(wide width, wide in, const model_layer& layer, model_module gate) const {
    const auto at = [&](unsigned i) {
      return static_cast<model_module>(static_cast<unsigned>(gate) + i);
    };
    return (s_.has(trait::ungated_mlps) ? 0 : linear(width, in, layer, gate)) +
           linear(width, in, layer, at(1)) + linear(in, width, layer, at(2));
  }
  [[nodiscard]] wide norm() const {
    return plain(wide{s_.hidden} * (s_.has(trait::norm_bias) ? 2 : 1));
  }

  [[nodiscard]] wide embeddings() const {
    const auto matrix = [&](model_module module) {
      return linear(s_.vocabulary, s_.hidden, s_.code(module));
    };
    return matrix(model_module::embeddings) +
           (s_.has(trait::tied_embeddings) ? 0 : matrix(model_module::head)) +
           plain(s_.has(trait::head_bias) ? s_.vocabulary : 0);
  }
  [[nodiscard]] wide mixer(const model_layer& layer) const {
    switch (layer.mixer) {
      case mixer_kind::none: return 0;
      case mixer_kind::mamba: return s_.mamba->heads > 0 ? mamba2(layer) : mamba(layer);
      case mixer_kind::delta: return s_.delta->is_kda ? kda(layer) : delta(layer);
      case mixer_kind::lightning: return lightning(layer);
      case mixer_kind::convolution: return convolution(layer);
      case mixer_kind::attention: break;
    }
    if (s_.compressed) return compressed(layer);
    return (s_.latent ? latent(layer) : grouped(layer)) + (layer.is_indexed ? index(layer) : 0);
  }

  [[nodiscard]] wide router(const model_layer& layer) const {
    const wide each = s_.has(trait::router_in_f32) ? f32_ : s_.dtype_bytes;
    const wide correction = s_.has(trait::correction_in_f32) ? f32_ : each;
    const auto& stored = s_.code(layer, model_module::router);
    const wide rows = wide{s_.experts} + s_.unrouted;
    const wide matrix =
        stored == s_.plain_code() ? each * rows * s_.hidden : linear(rows, s_.hidden, stored);
    const wide input = 2 * plain(wide{s_.expert_input} * s_.hidden);  // to the experts, and back
    return matrix + input + (s_.has(trait::biased_experts) ? each * rows : 0) +
           (s_.has(trait::correction_bias) ? correction * rows : 0);
  }
  [[nodiscard]] wide shared(const model_layer& layer) const {
    if (s_.shared_width == 0) return 0;
    return mlp(s_.shared_width, s_.hidden, layer, model_module::shared_gate) +
           (s_.has(trait::gated_shared) ? linear(1, s_.hidden, layer, model_module::router) : 0);
  }

  [[nodiscard]] wide grouped(const model_layer& layer) const {
    using enum model_module;
    const auto& a = layer.grouped;
    const wide q = wide{a.heads} * a.head_dim;
    const wide k = layer.shares_kv ? 0 : wide{a.kv_heads} * a.head_dim;
    const wide v = layer.shares_kv || a.key_is_value ? 0 : wide{a.kv_heads} * a.value_dim;
    const bool is_biased = s_.has(trait::attention_bias);
    wide extra = a.has_sinks ? a.heads : 0;
    if (is_biased || s_.has(trait::input_bias)) extra += q + k + v;
    if (is_biased && !s_.has(trait::plain_output)) extra += s_.hidden;
    if (a.norm == qk_norm::per_head) extra += wide{2} * a.head_dim;
    if (a.norm == qk_norm::whole) extra += q + k;
    return queries(q + a.gate, a.q_rank, layer) + rows(k, layer, key) + rows(v, layer, value) +
           linear(s_.hidden, wide{a.heads} * a.value_dim, layer, output) + plain(extra);
  }
  /// A projection of hidden that may be missing.
  [[nodiscard]] wide rows(wide out, const model_layer& layer, model_module module) const {
    return out == 0 ? 0 : linear(out, s_.hidden, layer, module);
  }
  /// Queries, if `rank` is not 0 by way of a low rank with a norm.
  [[nodiscard]] wide queries(wide out, wide rank, const model_layer& layer) const {
    using enum model_module;
    if (rank == 0) return linear(out, s_.hidden, layer, query);
    return linear(rank, s_.hidden, layer, query_low) + plain(rank) +
           linear(out, rank, layer, query);
  }
  [[nodiscard]] wide latent(const model_layer& layer) const {
    using enum model_module;
    const auto& a = *s_.latent;
    const wide q = wide{a.heads} * (a.plain + a.rope);
    const wide biases =
        s_.has(trait::attention_bias) ? wide{a.q_rank} + a.kv_rank + a.rope + s_.hidden : 0;
    return queries(q, a.q_rank, layer) + plain(biases) +
           linear(wide{a.kv_rank} + a.rope, s_.hidden, layer, key_value_low) + plain(a.kv_rank) +
           linear(wide{a.heads} * (a.plain + a.value), a.kv_rank, layer, key_value) +
           rows(a.gate, layer, output_gate) +
           linear(s_.hidden, wide{a.heads} * a.value, layer, output);
  }
  /// Queries, one key and its norm; with latent attention a weight of each head.
  [[nodiscard]] wide index(const model_layer& layer) const {
    using enum model_module;
    const auto& i = *s_.index;
    const bool is_latent = s_.latent.has_value();
    return linear(wide{i.heads} * i.dim, is_latent ? s_.latent->q_rank : s_.hidden, layer, query) +
           linear(i.dim, s_.hidden, layer, is_latent ? key_value_low : key) +
           plain(2 * wide{i.dim} + (is_latent ? wide{i.heads} * s_.hidden : 0));
  }
  /// Hyper-connections: mixes of the residual streams, in F32. Units: elements.
  [[nodiscard]] wide streams(wide mixes) const {
    return mixes * s_.compressed->streams * s_.hidden + mixes + 1;
  }
  [[nodiscard]] wide compressed(const model_layer& layer) const {
    using enum model_module;
    const auto& a = *s_.compressed;
    const wide q = wide{a.heads} * a.head_dim, low = wide{a.groups} * a.rank;
    const wide mixes = wide{a.streams} * (a.streams + 2);
    wide bytes = linear(a.q_rank, s_.hidden, layer, query_low) + linear(q, a.q_rank, layer, query) +
                 linear(a.head_dim, s_.hidden, layer, key_value_low) +
                 linear(low, a.groups == 0 ? 0 : q / a.groups, layer, output) +
                 linear(s_.hidden, low, layer, output) +
                 plain(wide{a.heads} + a.q_rank + a.head_dim) + f32_ * 2 * (streams(mixes) + 2);
    if (layer.rate == 0) return bytes;
    const auto pooled = [&](wide dim) {  // overlapping pools have two keys
      const wide keys = (layer.is_indexed ? 2 : 1) * dim;
      return plain(2 * keys * s_.hidden + layer.rate * keys + dim);
    };
    bytes += pooled(a.head_dim);
    if (!layer.is_indexed) return bytes;
    const auto& i = *s_.index;
    return bytes + pooled(i.dim) + linear(wide{i.heads} * i.dim, a.q_rank, layer, query) +
           plain(wide{i.heads} * s_.hidden);
  }
  [[nodiscard]] wide mamba(const model_layer& layer) const {
    using enum model_module;
    const auto& m = *s_.mamba;
    const wide inner = m.inner;
    const wide small = wide{m.rank} + 2 * wide{m.state};  // time step, B and C
    const wide recurrence = inner * m.state + 2 * inner;
    const wide kernel = inner * (m.kernel + (m.kernel_bias ? 1U : 0U));
    const wide biases = m.projection_bias ? 2 * inner + s_.hidden : 0;
    return linear(2 * inner, s_.hidden, layer, linear_in) + linear(small, inner, layer, linear_in) +
           linear(inner, m.rank, layer, linear_gates) +
           linear(s_.hidden, inner, layer, linear_out) +
           plain(recurrence + kernel + biases + small);
  }
  [[nodiscard]] wide mamba2(const model_layer& layer) const {
    using enum model_module;
    const auto& m = *s_.mamba;
    const wide convolved = m.convolved();
    const wide biases = (m.kernel_bias ? convolved : 0) +
                        (m.projection_bias ? convolved + m.inner + m.heads + s_.hidden : 0);
    return linear(convolved + m.inner + m.heads, s_.hidden, layer, linear_in) +
           linear(s_.hidden, m.inner, layer, linear_out) +
           plain(convolved * m.kernel + biases + m.inner + 3 * wide{m.heads});
  }
  [[nodiscard]] wide delta(const model_layer& layer) const {
    using enum model_module;
    const auto& d = *s_.delta;
    const wide convolved = 2 * wide{d.keys} + d.values;
    // Time step, decay and the two gates of a value head; the norm of a head's values.
    const wide small = 2 * wide{d.value_heads} + d.value_dim;
    return linear(convolved + d.values, s_.hidden, layer, linear_in) +
           linear(2 * wide{d.value_heads}, s_.hidden, layer, linear_gates) +
           plain(convolved * d.kernel + small) + linear(s_.hidden, d.values, layer, linear_out);
  }
  [[nodiscard]] wide kda(const model_layer& layer) const {
    using enum model_module;
    const auto& d = *s_.delta;
    const wide convolved = 2 * wide{d.keys} + d.values;
    const auto gate = [&](wide out, wide rank) {
      return rank == 0 ? linear(out, s_.hidden, layer, linear_gates)
                       : linear(rank, s_.hidden, layer, linear_gates) +
                             linear(out, rank, layer, linear_gates);
    };
    return linear(convolved, s_.hidden, layer, linear_in) + gate(d.keys, d.decay_rank) +
           gate(d.values, d.gate_rank) + gate(d.value_heads, 0) +
           linear(s_.hidden, d.values, layer, linear_out) +
           plain(convolved * d.kernel + d.keys + d.value_heads + d.value_dim);
  }
  /// Queries, keys and values as wide as the heads, a gate, a norm and the output projection.
  [[nodiscard]] wide lightning(const model_layer& layer) const {
    using enum model_module;
    const auto& a = layer.grouped;
    const wide q = wide{a.heads} * a.head_dim;
    return linear(3 * q, s_.hidden, layer, query) + linear(q, s_.hidden, layer, output_gate) +
           linear(s_.hidden, q, layer, output) +
           plain(q + (a.norm == qk_norm::per_head ? 2 * a.head_dim : 0));
  }
  [[nodiscard]] wide convolution(const model_layer& layer) const {
    using enum model_module;
    const wide h = s_.hidden;
    return linear(3 * h, h, layer, linear_in) + linear(h, h, layer, linear_out) +
           plain(h * s_.kernel + (s_.kernel_bias ? 5 * h : 0));
  }

  const model_shape& s_;
  wide f32_;
};

/// Elements that a sequence keeps in a layer, independent of its length.
struct state_elements {
  wide matrices = 0;  ///< or states of a state space
  wide inputs = 0;    ///< of convolutions, or in the window of compressed attention
};
state_elements state_of(const model_shape& shape, const model_layer& layer) noexcept {
  const auto& a = layer.grouped;
  switch (layer.mixer) {
    case mixer_kind::none: return {};
    case mixer_kind::attention:
      if (!shape.compressed) return {};
      return {.inputs = wide{shape.compressed->window} * shape.compressed->head_dim};
    case mixer_kind::mamba: {
      const auto& m = *shape.mamba;
      return {wide{m.inner} * m.state, wide{m.convolved()} * (m.kernel - 1)};
    }
    case mixer_kind::delta: {
      const auto& d = *shape.delta;
      return {wide{d.values} * d.key_dim, (2 * wide{d.keys} + d.values) * (d.kernel - 1)};
    }
    case mixer_kind::lightning: return {wide{a.heads} * a.head_dim * a.head_dim};
    case mixer_kind::convolution: return {.inputs = wide{shape.hidden} * (shape.kernel - 1)};
  }
  return {};
}

/// The one format of all experts; nullopt: they have several, or an unknown one.
std::optional<weight_code> expert_code_of(const model_shape& shape) {
  using enum model_module;
  if (!shape.unknown_format.empty()) return std::nullopt;
  std::optional<weight_code> found;
  for (const auto& layer : shape.layers)
    for (const auto module : {expert_up, expert_gate, expert_down}) {
      if (!layer.is_moe || (module == expert_gate && shape.has(trait::ungated_mlps))) continue;
      if (found && *found != shape.code(layer, module)) return std::nullopt;
      found = shape.code(layer, module);
    }
  return found;
}

/// Cached elements of a token, if one of `rate` tokens is cached.
std::uint64_t at_rate(std::uint64_t elements, std::uint64_t rate) noexcept {
  return rate == 0 ? 0 : (elements + rate - 1) / rate;
}

}  // namespace

void add_weights(const model_shape& shape, memory_model& memory) {
  const weigher bytes(shape);
  std::vector<std::uint64_t> experts;
  for (std::size_t l = 0; l < shape.layers.size(); ++l) {
    const auto& layer = shape.layers[l];
    if (layer.is_moe) experts.push_back(narrow(bytes.expert(layer)));
    memory.blocks[l].resident_bytes = narrow(bytes.layer_bytes(layer));
  }
  memory.experts.expert_bytes = by_layer(std::move(experts));
  memory.resident_bytes = narrow(bytes.resident());
}

model_arithmetic arithmetic_of(const model_shape& shape) {
  auto single = shape;  // one byte for each parameter
  single.dtype_bytes = 1;
  single.codes.fill(single.plain_code());
  for (auto& layer : single.layers) layer.otherwise.clear();
  const weigher elements(single, 1);
  const auto moe = std::ranges::find(single.layers, true, &model_layer::is_moe);
  return {.hidden = shape.hidden,
          .vocabulary = shape.vocabulary,
          .lookup_bytes = narrow(weigher(shape).lookups()),
          .resident_parameters = narrow(elements.resident() - elements.lookups()),
          .expert_parameters = moe == single.layers.end() ? 0 : narrow(elements.expert(*moe)),
          .expert_code = expert_code_of(shape)};
}

std::uint64_t matrix_bytes(std::uint64_t out, std::uint64_t in, const weight_code& code,
                           const weight_code& plain) noexcept {
  return narrow(matrix(out, in, code, plain));
}

std::uint64_t kv_elements_of(const model_shape& shape, const model_layer& layer) noexcept {
  if (layer.mixer != mixer_kind::attention || layer.shares_kv) return 0;
  const auto keys = layer.is_indexed ? shape.index->dim : 0;
  if (shape.compressed) return at_rate(shape.compressed->head_dim + keys, layer.rate);
  const auto times = shape.has(trait::double_layers) ? 2U : 1U;
  const auto& a = layer.grouped;
  return times * (shape.latent ? shape.latent->kv_rank + shape.latent->rope
                               : a.kv_heads * (a.head_dim + a.value_dim)) +
         keys;
}

std::uint64_t state_bytes_of(const model_shape& shape, const model_layer& layer) noexcept {
  const auto state = state_of(shape, layer);
  const auto each = shape.state_dtype_bytes > 0 ? shape.state_dtype_bytes : shape.dtype_bytes;
  return narrow(state.matrices * each + state.inputs * shape.dtype_bytes);
}

std::vector<kv_layers> kv_of(std::span<const model_block> blocks) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::int32_t> layers;
  for (const auto& block : blocks)
    if (block.kv_bytes_per_token > 0) ++layers[{block.window, block.kv_bytes_per_token}];
  std::vector<kv_layers> out;
  out.reserve(layers.size());
  for (const auto& [cache, count] : layers) out.push_back({count, cache.second, cache.first});
  return out;
}

std::vector<std::uint64_t> by_layer(std::vector<std::uint64_t> bytes) {
  if (std::ranges::adjacent_find(bytes, std::not_equal_to<>()) == bytes.end()) bytes.resize(1);
  return bytes;
}

std::string prediction_note(std::uint64_t layers) {
  return fmt::format(
      "multi-token prediction ({} layer{}) is not counted: ordinary serving does not load it",
      layers, layers == 1 ? "" : "s");
}

}  // namespace hotset::lab
