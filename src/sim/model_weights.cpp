// SPDX-License-Identifier: Apache-2.0
#include "sim/model_weights.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace hotset::inline v0::sim {
namespace {

/// Extents are below 2^25: no product of a model's extents passes this.
__extension__ using wide = unsigned __int128;

std::uint64_t narrow(wide bytes) noexcept {
  constexpr wide most = std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(std::min(bytes, most));
}

wide ceil_div(wide a, wide b) noexcept { return (a + b - 1) / b; }

/// Units: bytes. Each function is one part of a decoder.
class weigher {
 public:
  explicit weigher(const model_shape& shape) : s_(shape) {}

  [[nodiscard]] wide expert() const {
    const wide biases = s_.expert_bias ? plain(2 * s_.expert_width + s_.hidden) : 0;
    return mlp(s_.expert_width, s_.format) + biases;
  }
  [[nodiscard]] wide resident() const {
    wide bytes = embeddings() + norm() + plain(s_.vision);
    for (const auto& layer : s_.layers) bytes += layer_bytes(layer);
    return bytes;
  }
  [[nodiscard]] wide layer_bytes(const model_layer& layer) const {
    const wide mixer = layer.is_mamba ? mamba() : s_.latent ? latent() : grouped();
    const wide rest = layer.is_moe ? router() + shared() : mlp(s_.dense_width, outside(false));
    return 2 * norm() + mixer + rest;
  }

 private:
  [[nodiscard]] wide plain(wide elements) const { return elements * s_.dtype_bytes; }
  [[nodiscard]] wide linear(wide out, wide in, weight_format format) const {
    if (format == weight_format::fp8)
      return out * in + 4 * ceil_div(out, s_.block_rows) * ceil_div(in, s_.block_columns);
    if (format == weight_format::mxfp4) return out * ceil_div(in, 32) * 17;
    return plain(out * in);
  }
  /// What a part other than the experts is stored in.
  [[nodiscard]] weight_format outside(bool left_plain) const {
    return s_.format == weight_format::fp8 && !left_plain ? weight_format::fp8
                                                          : weight_format::plain;
  }
  /// Gate, up and down.
  [[nodiscard]] wide mlp(wide width, weight_format format) const {
    return 2 * linear(width, s_.hidden, format) + linear(s_.hidden, width, format);
  }
  [[nodiscard]] wide norm() const { return plain(wide{s_.hidden} * (s_.norm_bias ? 2 : 1)); }

  [[nodiscard]] wide embeddings() const {
    const wide head = s_.tied_embeddings ? 0 : plain(wide{s_.vocabulary} * s_.hidden);
    return plain(wide{s_.vocabulary} * s_.hidden) + head + plain(s_.head_bias ? s_.vocabulary : 0);
  }
  [[nodiscard]] wide router() const {
    const wide each = s_.router_in_f32 ? 4 : s_.dtype_bytes;
    // Beside FP8 weights the correction stays F32.
    const wide correction = s_.format == weight_format::fp8 ? 4 : each;
    return each * s_.experts * (wide{s_.hidden} + (s_.router_bias ? 1 : 0)) +
           (s_.correction_bias ? correction * s_.experts : 0);
  }
  [[nodiscard]] wide shared() const {
    if (s_.shared_width == 0) return 0;
    return mlp(s_.shared_width, outside(s_.shared_is_plain)) +
           plain(s_.shared_gate ? s_.hidden : 0);
  }

  [[nodiscard]] wide grouped() const {
    const auto& a = s_.grouped;
    const auto format = outside(s_.attention_is_plain);
    const wide q = wide{a.heads} * a.head_dim;
    const wide kv = wide{a.kv_heads} * a.head_dim;
    wide extra =
        (a.input_bias ? q + 2 * kv : 0) + (a.output_bias ? s_.hidden : 0) + (a.sinks ? a.heads : 0);
    if (a.norm == qk_norm::per_head) extra += wide{2} * a.head_dim;
    if (a.norm == qk_norm::whole) extra += q + kv;
    return linear(q, s_.hidden, format) + 2 * linear(kv, s_.hidden, format) +
           linear(s_.hidden, q, format) + plain(extra);
  }
  [[nodiscard]] wide latent() const {
    const auto& a = *s_.latent;
    const auto format = outside(s_.attention_is_plain);
    const wide q = wide{a.heads} * (a.plain + a.rope);
    const wide queries = a.q_rank == 0 ? linear(q, s_.hidden, format)
                                       : linear(a.q_rank, s_.hidden, format) + plain(a.q_rank) +
                                             linear(q, a.q_rank, format);
    return queries + linear(wide{a.kv_rank} + a.rope, s_.hidden, format) + plain(a.kv_rank) +
           linear(wide{a.heads} * (a.plain + a.value), a.kv_rank, format) +
           linear(s_.hidden, wide{a.heads} * a.value, format);
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

  const model_shape& s_;
};

}  // namespace

model_weights weights_of(const model_shape& shape) {
  const weigher bytes(shape);
  model_weights out{narrow(bytes.expert()), narrow(bytes.resident())};
  for (const auto& layer : shape.layers) out.blocks.push_back(narrow(bytes.layer_bytes(layer)));
  return out;
}

std::uint64_t kv_elements_of(const model_shape& shape) noexcept {
  if (shape.latent) return shape.latent->kv_rank + shape.latent->rope;
  return 2 * shape.grouped.kv_heads * shape.grouped.head_dim;
}

std::uint64_t state_bytes_of(const model_shape& shape) noexcept {
  if (!shape.mamba) return 0;
  const auto& m = *shape.mamba;
  const auto layers = std::count_if(shape.layers.begin(), shape.layers.end(),
                                    [](const model_layer& layer) { return layer.is_mamba; });
  return narrow(static_cast<wide>(layers) * m.inner * (m.state + m.kernel - 1) * shape.dtype_bytes);
}

void kv_tally::add(std::uint64_t elements, std::uint64_t window) {
  if (elements == 0) return;
  const auto bytes = bytes_of(elements);
  for (auto& group : groups_) {
    if (group.bytes_per_token != bytes || group.window != window) continue;
    ++group.layers;
    return;
  }
  groups_.push_back({.layers = 1, .bytes_per_token = bytes, .window = window});
}

std::vector<kv_layers> kv_tally::layers() const {
  auto sorted = groups_;
  std::sort(sorted.begin(), sorted.end(), [](const kv_layers& a, const kv_layers& b) {
    return std::tie(a.window, a.bytes_per_token) < std::tie(b.window, b.bytes_per_token);
  });
  return sorted;
}

}  // namespace hotset::inline v0::sim
