// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts the routing of later layers from the hidden state, with small networks trained on recorded routing.
///
/// Rule: each layer l and distance d = 1..depth has its own network: softmax(B relu(A x + a) + b), x the hidden state
///       that enters layer l's router, gives the scores of layer l+d; with width 0 softmax(B x + b).
/// Source: ProMoE (stride prefetching with a neuron predictor), as the fMoE talk describes it. Training:
///       `python3 -m hotset train-gate`.
/// Deviations: one network for each distance; ProMoE predicts at one stride. The preset `promoe` requests only that
///       stride (`next_layer_top_k:depth=3:from=3`). Requests at every distance up to 3 would exceed the system's:
///       the last request for a layer would then come from the network of distance 1.
/// Exact: yes (never changes what is computed).
/// Cost: O(tokens depth (d_model width + width experts)); with width 0 O(tokens depth d_model experts).
///       Memory: 4 bytes x max_tokens_per_visit x (depth x experts + width), and the weights, which may be shared.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/router_scores.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/refusals.hpp"
#include "hotset/predict/saved_file.hpp"

namespace hotset {

/// Rows of layers past the last are zeros. A forecast is valid until the next call. The last bits of products, sums
/// and exponentials depend on the build: they may differ between machines. Threads: compatible.
class learned_gate {
 public:
  /// Sizes of the networks.
  struct dimensions {
    std::int32_t layers = 0;
    std::int32_t experts = 0;
    std::int32_t d_model = 0;
    std::int32_t depth = 0;  ///< distances 1..depth
    std::int32_t width = 0;  ///< hidden units of a network; 0: none, the network is linear

    friend bool operator==(const dimensions&, const dimensions&) = default;
    [[nodiscard]] validation validate() const;
    /// Number of networks, over all layers and distances. Pre, here and below: validate() returns no error.
    [[nodiscard]] std::uint64_t networks() const noexcept { return before(layers - 1); }
    /// Number of values of one network.
    [[nodiscard]] std::uint64_t values() const noexcept {
      const auto [e, d, w] = std::array{wide(experts), wide(d_model), wide(width)};
      return w == 0 ? e * (d + 1) : w * (d + 1) + e * (w + 1);
    }
    /// Number of networks of the layers before `layer`: each has one for every distance that stays within the model.
    [[nodiscard]] std::uint64_t before(std::int32_t layer) const noexcept {
      const auto cut = wide(std::max(0, layer - (layers - depth)));
      return wide(layer) * wide(depth) - cut * (cut + 1) / 2;
    }

   private:
    static std::uint64_t wide(std::int32_t n) noexcept { return static_cast<std::uint64_t>(n); }
  };

  /// The parts of one network, row-major.
  template <class T>
  struct network {
    std::span<T> hidden{};       ///< [width, d_model]; empty if width is 0
    std::span<T> hidden_bias{};  ///< [width]
    std::span<T> scores{};       ///< [experts, width], or [experts, d_model] if width is 0
    std::span<T> scores_bias{};  ///< [experts]
  };

  /// The networks of a model. Threads: const use is safe.
  class weights {
   public:
    /// Maximum bytes of the networks.
    static constexpr std::uint64_t most_bytes = detail::most_predictor_bytes;

    /// Creates zeroed weights. Errors: those of the dimensions; no memory.
    static result<weights> create(const dimensions& size) {
      if (auto bad = size.validate()) return *std::move(bad);
      return detail::or_no_memory([&] { return weights(size); });
    }
    [[nodiscard]] const dimensions& size() const noexcept { return size_; }

    /// Pre: 0 <= layer, 1 <= distance <= depth, layer + distance < layers.
    [[nodiscard]] network<float> of(layer_id layer, std::int32_t distance) noexcept {
      return cut(std::span(values_).subspan(first_of(layer, distance), count()));
    }
    [[nodiscard]] network<const float> of(layer_id layer, std::int32_t distance) const noexcept {
      return cut(std::span(values_).subspan(first_of(layer, distance), count()));
    }
    /// Splits one network's values into its parts. Pre: their number is dimensions::values().
    template <class T>
    [[nodiscard]] network<T> cut(std::span<T> values) const noexcept {
      const auto experts = static_cast<std::size_t>(size_.experts);
      const auto d_model = static_cast<std::size_t>(size_.d_model);
      const auto width = static_cast<std::size_t>(size_.width);
      const auto inputs = width == 0 ? d_model : width;
      network<T> out;
      out.hidden = values.first(width * d_model);
      out.hidden_bias = values.subspan(out.hidden.size(), width);
      out.scores = values.subspan(out.hidden.size() + width, experts * inputs);
      out.scores_bias = values.last(experts);
      return out;
    }

    /// Reads the sizes of saved weights. Errors: bytes that are no weights, another version, or a wrong length.
    static result<dimensions> size_of(std::span<const std::byte> bytes) {
      const detail::saved_reader saved(bytes);
      if (!saved.is(kind, header_numbers))
        return error{
            "no learned_gate weights, accepted: those that python3 -m hotset train-gate writes"};
      if (saved[0] != version)
        return refusal("learned_gate weights of version ", saved[0], ", accepted: ", version);
      const auto number = [&](std::size_t i) {
        return static_cast<std::int32_t>(std::min(saved[i], 0x7fffffffU));
      };
      const dimensions size{number(1), number(2), number(3), number(4), number(5)};
      if (auto bad = size.validate()) return *std::move(bad);
      if (auto bad = saved.check_count(header_numbers + size.networks() * size.values(),
                                       "these learned_gate weights"))
        return *std::move(bad);
      return size;
    }
    /// Errors: those of size_of; a value that is not finite; no memory.
    static result<weights> load(std::span<const std::byte> bytes) {
      const auto size = size_of(bytes);
      if (!size) return size.error();
      auto out = create(*size);
      if (!out) return out;
      const detail::saved_reader saved(bytes);
      for (std::size_t i = 0; i < out->values_.size(); ++i) {
        const auto value = saved.real(header_numbers + i);
        if (!std::isfinite(value))
          return refusal("learned_gate weight ", i, " is not finite, accepted: finite numbers");
        out->values_[i] = value;
      }
      return out;
    }
    /// Errors: those of load, after the file's name; a file that cannot be read.
    static result<weights> read_file(const std::string& path) {
      constexpr auto header = sizeof kind + 4 * header_numbers;
      return detail::load_file(path, header + most_bytes, "a file of learned_gate weights", load);
    }

   private:
    static constexpr detail::file_kind kind = {'h', 's', 'l', 'e', 'a', 'r', 'n', 'g'};
    static constexpr std::uint32_t version = 1;
    static constexpr std::size_t header_numbers = 6;

    /// Pre: size.validate() returns no error.
    explicit weights(const dimensions& size)
        : size_(size), values_(static_cast<std::size_t>(size.networks() * size.values())) {}

    [[nodiscard]] std::size_t first_of(layer_id layer, std::int32_t distance) const noexcept {
      HOTSET_ASSERT(layer >= 0 && distance >= 1 && distance <= size_.depth &&
                    layer + distance < size_.layers);
      const auto place = size_.before(number(layer)) + static_cast<std::uint64_t>(distance) - 1;
      return static_cast<std::size_t>(place * size_.values());
    }
    [[nodiscard]] std::size_t count() const noexcept {
      return static_cast<std::size_t>(size_.values());
    }
    dimensions size_;
    std::vector<float> values_;  ///< networks by layer, then by distance
  };

  struct config {
    std::int32_t depth = 1;    ///< layers ahead, at most the depth of the weights
    std::int32_t d_model = 0;  ///< width of the engine's hidden state; 0: unspecified
    std::shared_ptr<const weights> trained{};  ///< may be shared by several predictors
    std::string trouble{};                     ///< reason if the named file gave no weights

    /// Parameters by name, for example `learned-gate:weights=FILE`. The file is read here, once.
    template <class From>
    static config read(From& from) {
      config out;
      if (const auto file = from.text("weights", ""); !file.empty())
        out.trained = detail::shared_or_trouble(weights::read_file(file), out.trouble);
      return out;
    }
    [[nodiscard]] validation validate() const {
      if (!trouble.empty()) return error{trouble};
      if (!trained)
        return error{
            "learned_gate weights = none, accepted: weights=FILE, a file that python3 -m hotset "
            "train-gate wrote"};
      const auto& size = trained->size();
      if (auto bad =
              detail::within("learned_gate depth", depth, 1, size.depth, "depth of the weights"))
        return bad;
      if (d_model != 0 && d_model != size.d_model)
        return refusal("learned_gate weights for hidden states of ", size.d_model,
                       ", accepted: of ", d_model);
      return std::nullopt;
    }
    /// Checks validate() and that the weights match this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      const auto& size = trained->size();
      if (size.layers != shape.layers || size.experts != shape.experts)
        return error{"learned_gate weights for " + detail::shape_text(size.layers, size.experts) +
                     ", accepted: " + detail::shape_text(shape.layers, shape.experts)};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "learned-gate";
  static constexpr predictor_traits traits{.needs_hidden = true};

  /// Errors: those of the shape and of the configuration for it; visits that need more than weights::most_bytes.
  static result<learned_gate> create(const geometry& shape, const config& options) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (auto bad = options.validate(shape)) return *std::move(bad);
    const auto width = static_cast<std::uint64_t>(options.trained->size().width);
    const auto bytes = detail::forecast_rows::bytes_for(shape, options.depth) +
                       4 * width * shape.tokens_per_visit();
    if (auto bad = detail::refuse_bytes("learned_gate", shape, bytes)) return *std::move(bad);
    return detail::or_no_memory([&] { return learned_gate(shape, options); });
  }

  /// Shape: [tokens, depth, experts].
  /// Returns: an empty forecast in the last layer, if the view does not have one hidden state for each token, and for
  /// more tokens than max_tokens_per_visit.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> /*recorded*/,
                                std::int32_t /*ahead*/) noexcept {
    const auto tokens = tokens_in(view);
    if (tokens == 0 || view.layer < 0 || view.layer + 1 >= layers_) return {};
    for (std::int32_t d = 1; d <= depth_ && view.layer + d < layers_; ++d)
      apply(trained_->of(view.layer, d), view.hidden, tokens, d);
    for (std::size_t t = 0; t < tokens; ++t)
      rows_.write(t, view.layer,
                  [](layer_id, std::size_t, std::span<float> row) { softmax(row, row); });
    return rows_.of(tokens);
  }

 private:
  learned_gate(const geometry& shape, const config& options)
      : trained_(options.trained),
        layers_(shape.layers),
        depth_(options.depth),
        experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        most_tokens_(shape.tokens_per_visit()),
        rows_(shape, options.depth),
        units_(most_tokens_ * static_cast<std::size_t>(trained_->size().width)) {}

  /// Number of tokens; 0 if hidden states are missing or do not match the visit's tokens.
  [[nodiscard]] std::size_t tokens_in(const routing_view& view) const noexcept {
    const auto width = static_cast<std::size_t>(trained_->size().d_model);
    const auto tokens = view.hidden.size() / width;
    const bool whole = tokens * width == view.hidden.size() && tokens <= most_tokens_;
    return whole && view.experts.size() == tokens * top_k_ ? tokens : 0;
  }
  void apply(const network<const float>& net, std::span<const float> hidden, std::size_t tokens,
             std::int32_t distance) noexcept {
    const auto d_model = static_cast<std::size_t>(trained_->size().d_model);
    const auto width = net.hidden_bias.size();
    // One row of a matrix for all tokens, so that memory delivers it once.
    for (std::size_t u = 0; u < width; ++u)
      for (std::size_t t = 0; t < tokens; ++t)
        units_[t * width + u] =
            std::max(0.0F, net.hidden_bias[u] + detail::dot(&net.hidden[u * d_model],
                                                            &hidden[t * d_model], d_model));
    const auto inputs = width == 0 ? d_model : width;
    const float* const from = width == 0 ? hidden.data() : units_.data();
    const auto ahead = static_cast<std::size_t>(distance) - 1;
    for (std::size_t e = 0; e < experts_; ++e)
      for (std::size_t t = 0; t < tokens; ++t)
        rows_.row(t, ahead)[e] =
            net.scores_bias[e] + detail::dot(&net.scores[e * inputs], from + t * inputs, inputs);
  }

  std::shared_ptr<const weights> trained_;
  std::int32_t layers_;
  std::int32_t depth_;
  std::size_t experts_;
  std::size_t top_k_;
  std::size_t most_tokens_;
  detail::forecast_rows rows_;
  std::vector<float> units_;  ///< [tokens, width]
};

inline validation learned_gate::dimensions::validate() const {
  constexpr std::int32_t many = 1 << 20;
  if (auto bad = detail::first_of({detail::within("learned_gate layers", layers, 2, 65536),
                                   detail::within("learned_gate experts", experts, 1, 65536),
                                   detail::within("learned_gate d_model", d_model, 1, many),
                                   detail::within("learned_gate depth", depth, 1, layers - 1),
                                   detail::within("learned_gate width", width, 0, many)}))
    return bad;
  // No product wraps: at most 2^32 networks with fewer than 2^42 values each.
  if (values() <= weights::most_bytes / 4 / networks()) return std::nullopt;
  return refusal("learned_gate weights of ", networks(), " networks x ", values(),
                 " numbers, accepted: at most ", weights::most_bytes, " bytes");
}

static_assert(predictor<learned_gate>);

}  // namespace hotset
