// SPDX-License-Identifier: Apache-2.0
#include "lab/models/model_weights.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
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

/// Units: bytes. Each function counts one part of a decoder.
class weigher {
 public:
  explicit weigher(const model_shape& shape) : s_(shape) {}

  [[nodiscard]] wide expert(const model_layer& layer) const {
    const wide biases = s_.has(trait::biased_experts) ? plain(2 * s_.expert_width + s_.hidden) : 0;
    return mlp(s_.expert_width, layer, model_module::expert_gate) + biases;
  }
  [[nodiscard]] wide resident() const {
    wide bytes = embeddings() + norm() + plain(s_.vision);
    for (const auto& layer : s_.layers) bytes += layer_bytes(layer);
    return bytes;
  }
  [[nodiscard]] wide layer_bytes(const model_layer& layer) const {
    const wide rest = layer.is_moe ? router(layer) + shared(layer)
                                   : mlp(s_.dense_width, layer, model_module::dense_gate);
    return 2 * norm() + mixer(layer) + rest;
  }

 private:
  [[nodiscard]] wide plain(wide elements) const { return elements * s_.dtype_bytes; }
  /// Bytes of one linear module of a layer.
  [[nodiscard]] wide linear(wide out, wide in, const model_layer& layer,
                            model_module module) const {
    return linear(out, in, s_.code(layer, module));
  }
  [[nodiscard]] wide linear(wide out, wide in, const weight_code& code) const {
    if (code.needs_whole_blocks && in % code.block_columns != 0)
      return linear(out, in, s_.plain_code());
    const wide across = code.block_columns == 0 ? 1 : ceil_div(in, code.block_columns);
    const wide down = code.block_rows == 0 ? 1 : ceil_div(out, code.block_rows);
    const wide columns = code.fills_blocks ? across * code.block_columns : in;
    const wide row = ceil_div(columns * code.bits, code.word_bits) * code.word_bits;
    const wide bits =
        out * row + across * down * (code.scale_bits + code.zero_bits) + in * code.column_bits;
    return ceil_div(bits, 8) + code.tensor_bytes;
  }
  /// Bytes of gate, up and down, which are consecutive in model_module.
  [[nodiscard]] wide mlp(wide width, const model_layer& layer, model_module gate) const {
    const auto at = [&](unsigned i) {
      return static_cast<model_module>(static_cast<unsigned>(gate) + i);
    };
    return linear(width, s_.hidden, layer, gate) + linear(width, s_.hidden, layer, at(1)) +
           linear(s_.hidden, width, layer, at(2));
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
      case mixer_kind::mamba: return mamba();
      case mixer_kind::delta: return delta(layer);
      case mixer_kind::lightning: return lightning(layer);
      case mixer_kind::attention: break;
    }
    return s_.latent ? latent(layer) : grouped(layer);
  }

  [[nodiscard]] wide router(const model_layer& layer) const {
    const wide each = s_.has(trait::router_in_f32) ? 4 : s_.dtype_bytes;
    const wide correction = s_.has(trait::correction_in_f32) ? 4 : each;
    const auto& stored = s_.code(layer, model_module::router);
    const wide matrix = stored == s_.plain_code() ? each * s_.experts * s_.hidden
                                                  : linear(s_.experts, s_.hidden, stored);
    return matrix + (s_.has(trait::biased_experts) ? each * s_.experts : 0) +
           (s_.has(trait::correction_bias) ? correction * s_.experts : 0);
  }
  [[nodiscard]] wide shared(const model_layer& layer) const {
    if (s_.shared_width == 0) return 0;
    return mlp(s_.shared_width, layer, model_module::shared_gate) +
           (s_.has(trait::gated_shared) ? linear(1, s_.hidden, layer, model_module::router) : 0);
  }

  [[nodiscard]] wide grouped(const model_layer& layer) const {
    using enum model_module;
    const auto& a = s_.grouped;
    const wide q = wide{a.heads} * a.head_dim;
    const wide kv = layer.shares_kv ? 0 : wide{a.kv_heads} * a.head_dim;
    const bool is_biased = s_.has(trait::attention_bias);
    wide extra = s_.has(trait::has_sinks) ? a.heads : 0;
    if (is_biased || s_.has(trait::input_bias)) extra += q + 2 * kv;
    if (is_biased && !s_.has(trait::plain_output)) extra += s_.hidden;
    if (a.norm == qk_norm::per_head) extra += wide{2} * a.head_dim;
    if (a.norm == qk_norm::whole) extra += q + kv;
    const wide keys = layer.shares_kv
                          ? 0
                          : linear(kv, s_.hidden, layer, key) + linear(kv, s_.hidden, layer, value);
    return linear(s_.has(trait::gated_attention) ? 2 * q : q, s_.hidden, layer, query) + keys +
           linear(s_.hidden, q, layer, output) + plain(extra);
  }
  [[nodiscard]] wide latent(const model_layer& layer) const {
    using enum model_module;
    const auto& a = *s_.latent;
    const wide q = wide{a.heads} * (a.plain + a.rope);
    const wide queries = a.q_rank == 0 ? linear(q, s_.hidden, layer, query)
                                       : linear(a.q_rank, s_.hidden, layer, query_low) +
                                             plain(a.q_rank) + linear(q, a.q_rank, layer, query);
    return queries + linear(wide{a.kv_rank} + a.rope, s_.hidden, layer, key_value_low) +
           plain(a.kv_rank) +
           linear(wide{a.heads} * (a.plain + a.value), a.kv_rank, layer, key_value) +
           linear(s_.hidden, wide{a.heads} * a.value, layer, output);
  }
  [[nodiscard]] wide mamba() const {
    const auto& m = *s_.mamba;
    const wide inner = m.inner;
    const wide small = wide{m.rank} + 2 * wide{m.state};  // time step, B and C
    const wide projections = 3 * inner * s_.hidden + inner * small + (m.rank + wide{1}) * inner;
    const wide recurrence = inner * m.state + inner;
    const wide kernel = inner * (m.kernel + (m.kernel_bias ? 1U : 0U));
    const wide biases = m.projection_bias ? 2 * inner + s_.hidden : 0;
    return plain(projections + recurrence + kernel + biases + small);
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
  /// Queries, keys and values as wide as the heads, a gate, a norm and the output projection.
  [[nodiscard]] wide lightning(const model_layer& layer) const {
    using enum model_module;
    const wide q = wide{s_.grouped.heads} * s_.grouped.head_dim;
    return linear(3 * q, s_.hidden, layer, query) + linear(q, s_.hidden, layer, output_gate) +
           linear(s_.hidden, q, layer, output) + plain(q);
  }

  const model_shape& s_;
};

/// Elements that a sequence keeps in a layer, independent of its length.
wide state_elements(const model_shape& shape, const model_layer& layer) noexcept {
  switch (layer.mixer) {
    case mixer_kind::attention: return 0;
    case mixer_kind::mamba:
      return wide{shape.mamba->inner} * (shape.mamba->state + shape.mamba->kernel - 1);
    case mixer_kind::delta: {
      const auto& d = *shape.delta;
      return wide{d.values} * d.key_dim + (2 * wide{d.keys} + d.values) * (d.kernel - 1);
    }
    case mixer_kind::lightning:
      return wide{shape.grouped.heads} * shape.grouped.head_dim * shape.grouped.head_dim;
  }
  return 0;
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

std::uint64_t kv_elements_of(const model_shape& shape) noexcept {
  if (shape.latent) return shape.latent->kv_rank + shape.latent->rope;
  return 2 * shape.grouped.kv_heads * shape.grouped.head_dim;
}

std::uint64_t state_bytes_of(const model_shape& shape, const model_layer& layer) noexcept {
  return narrow(state_elements(shape, layer) * shape.dtype_bytes);
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
