// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Stores expert maps of past tokens: router probabilities over all layers, and the token id at the start.
///
/// Rule: a full store evicts its oldest map (`fifo`), or the map most similar to the new one (`redundancy`): largest
///       (d/L) semantic + ((L - d)/L) trajectory score, ties to the lower place, each old map at most once per batch.
///       If every old map was replaced, the rest of the batch is dropped.
/// Source: fMoE, expert map store and deduplication.
/// Deviations: fifo is the default.
/// Exact: yes (never changes what is computed).
/// Cost: a map O(L E); redundancy O(C L E) more, and O(C width) for other token ids' embeddings. Memory: C L E
///       probabilities, see config::storage.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/status.hpp"
#include "hotset/predict/kernels/map_kernels.hpp"
#include "hotset/predict/maps/probability_row.hpp"
#include "hotset/predict/maps/token_embeddings.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Rule for the map that a full store evicts.
enum class map_replacement : std::uint8_t { fifo, redundancy };

/// Places are numbered 0..size - 1. Maps lie in blocks of 32 maps, layer by layer, so that a matcher reads one layer
/// as one array. Threads: const use is safe. Nothing allocates after construction.
class expert_map_store {
 public:
  struct config {
    std::uint32_t capacity = 1000;  ///< maps
    /// Bytes of a probability: fp32 4, fp16 2, int8 1 (255 levels up to the row's highest probability).
    map_storage storage = map_storage::fp32;
    map_replacement replace = map_replacement::fifo;
    std::int32_t distance = 3;  ///< d of the redundancy rule; values above L count as L
    /// [vocabulary, embedding_width], the engine's input embeddings, or empty. The caller keeps them alive.
    std::span<const float> embeddings{};
    std::int32_t embedding_width = 0;

    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::within("expert_map capacity", capacity, 1, most_maps),
           detail::one_of("expert_map storage", storage, {"fp32", "fp16", "int8"}),
           detail::one_of("expert_map replace", replace, {"fifo", "redundancy"}),
           detail::refuse_unless(distance >= 0, "expert_map distance", distance, "0 or more"),
           token_embeddings::validate(embeddings, embedding_width)});
    }
  };
  static constexpr std::uint32_t none = map_kernels::best_of::none;
  static constexpr std::uint32_t most_maps = 1U << 24U;
  static constexpr std::int32_t most_experts = 1 << 16;  ///< experts of a layer
  /// Token id of a map whose token is unknown.
  static constexpr std::int32_t no_token = -1;

  /// Errors: those of the shape's and the configuration's validate(), more than most_experts or most_predictor_bytes,
  /// embeddings that are not finite, no host memory.
  static result<expert_map_store> create(const geometry& shape, const config& options) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (auto bad = options.validate()) return *std::move(bad);
    if (shape.experts > most_experts)
      return refusal("expert maps of ", shape.experts, " experts, accepted: 1..", most_experts);
    if (const auto bytes = bytes_for(shape, options); bytes > detail::most_predictor_bytes)
      return refusal(options.capacity, " expert maps of ",
                     detail::shape_text(shape.layers, shape.experts), " need ", bytes,
                     " bytes, accepted: at most ", detail::most_predictor_bytes);
    return unless_out_of_memory(
        [&]() -> result<expert_map_store> {
          auto embeddings = token_embeddings::create(options.embeddings, options.embedding_width);
          if (!embeddings) return embeddings.error();
          return expert_map_store(shape, options, *std::move(embeddings));
        },
        result<expert_map_store>(no_host_memory()));
  }

  [[nodiscard]] std::size_t layers() const noexcept { return layers_; }
  [[nodiscard]] std::size_t experts() const noexcept { return experts_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Number of stored maps.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] map_storage storage() const noexcept { return storage_; }

  /// Increases with every stored map.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
  /// Value of changes() when the place last changed: older sums belong to another map. Pre: place < capacity().
  [[nodiscard]] std::uint64_t generation(std::size_t place) const noexcept {
    return generations_[place];
  }
  /// Token id at the start of the map; no_token if unknown. Pre: place < size().
  [[nodiscard]] std::int32_t token(std::size_t place) const noexcept { return tokens_[place]; }

  /// Stores finished maps, in order. Rows are divided by their sums.
  /// Shape: `maps` is [n, L, E], `tokens` [n]; a negative token id means unknown.
  /// Errors: invalid_argument for other lengths, and for a row with a value below 0 or whose sum differs from 1 by
  /// more than probability_row::tolerance; then the store is unchanged.
  status insert(std::span<const float> maps, std::span<const std::int32_t> tokens) noexcept {
    if (maps.size() % map_size() != 0 || maps.size() / map_size() != tokens.size())
      return status::invalid_argument;
    for (std::size_t at = 0; at < maps.size(); at += experts_)
      if (!(probability_row::sum_of(maps.subspan(at, experts_)) > 0))
        return status::invalid_argument;
    const auto before = changes_;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      normalise(maps.subspan(i * map_size(), map_size()));
      const bool is_next = size_ < capacity_ || replace_ == map_replacement::fifo;
      const auto place = is_next ? next_place() : most_redundant(tokens[i], before);
      if (place == none) break;
      put(place, tokens[i]);
    }
    return status::ok;
  }

  /// Reads one layer of a stored map. Shape: `out` is [E]. Pre: place < size().
  void read_row(std::size_t place, std::size_t layer, std::span<float> out) const noexcept {
    HOTSET_ASSERT(place < size_ && layer < layers_ && out.size() == experts_);
    for (std::size_t e = 0; e < experts_; ++e) out[e] = value(place, layer, e);
  }

  /// Returns the oldest map of the token id, with score 1. Without such a map: the oldest map of the token id with
  /// the nearest embedding, and their cosine, ties to the lower place. None if no id has a map.
  /// Complexity: O(maps), and O(token ids x width) for an id without a map.
  [[nodiscard]] map_kernels::best_of semantic_match(std::int32_t token) noexcept {
    map_kernels::best_of best;
    if (token < 0) return best;
    if (const auto own = oldest_of(token); own != none) return {1.0F, own};
    if (!embeddings_.knows(token)) return best;
    ++queries_;
    for (std::size_t i = 0; i < size_; ++i) {
      const auto other = tokens_[i];
      if (!embeddings_.knows(other)) continue;
      if (std::exchange(compared_in_[static_cast<std::size_t>(other)], queries_) == queries_)
        continue;
      const auto score = embeddings_.cosine(token, other);
      if (score < best.score) continue;
      const auto place = oldest_of(other);
      if (score > best.score || place < best.place) best = {score, place};
    }
    return best;
  }

  // For matchers.

  /// Blocks of 32 places that contain maps.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_for(size_); }
  /// Capacity, rounded up to whole blocks.
  [[nodiscard]] std::size_t padded() const noexcept { return padded_; }
  /// Blocks of one layer, starting at `first`. Pre: they lie within the capacity.
  [[nodiscard]] map_kernels::slice slice(std::size_t layer, std::size_t first,
                                         std::size_t blocks) const noexcept {
    map_kernels::slice out{maps_.data() + layer * layer_bytes_ + first * block_bytes_, nullptr,
                           blocks, experts_};
    if (storage_ == map_storage::int8)
      out.steps = steps_.data() + layer * padded_ + first * map_kernels::lanes;
    return out;
  }
  /// Bytes of one block of one layer.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
  /// 1 / norm of each map's layers 0..layer. Shape: [padded()].
  [[nodiscard]] std::span<const float> inverse_norms(std::size_t layer) const noexcept {
    return std::span(inverse_norms_).subspan(layer * padded_, padded_);
  }

 private:
  expert_map_store(const geometry& shape, const config& options, token_embeddings embeddings)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        capacity_(options.capacity),
        padded_(blocks_for(capacity_) * map_kernels::lanes),
        storage_(options.storage),
        replace_(options.replace),
        semantic_weight_(std::min(1.0, static_cast<double>(options.distance) / shape.layers)),
        block_bytes_(map_kernels::lanes * experts_ * bytes_of(storage_)),
        layer_bytes_(line_up(blocks_for(capacity_) * block_bytes_)),
        maps_(layers_ * layer_bytes_),
        steps_(storage_ == map_storage::int8 ? layers_ * padded_ : 0),
        inverse_norms_(layers_ * padded_, 1.0F),
        tokens_(capacity_, no_token),
        generations_(capacity_, 0),
        row_(map_size()),
        embeddings_(std::move(embeddings)),
        compared_in_(embeddings_.size(), 0),
        scores_(replace_ == map_replacement::redundancy ? padded_ : 0) {}

  static std::uint64_t line_up(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
  static std::size_t blocks_for(std::size_t maps) noexcept {
    return (maps + map_kernels::lanes - 1) / map_kernels::lanes;
  }
  /// Bytes of one probability.
  static std::size_t bytes_of(map_storage storage) noexcept {
    return storage == map_storage::fp32 ? 4 : storage == map_storage::fp16 ? 2 : 1;
  }
  /// Memory in bytes, without the engine's embeddings. Pre: both are valid. No product wraps: keys are at most 2^28,
  /// maps 2^24.
  static std::uint64_t bytes_for(const geometry& shape, const config& options) noexcept {
    const std::uint64_t layers = shape.layer_count(), experts = shape.expert_count();
    const std::uint64_t places = blocks_for(options.capacity) * map_kernels::lanes;
    const auto of_layer = line_up(places * experts * bytes_of(options.storage)) +
                          places * (options.storage == map_storage::int8 ? 8 : 4) + 4 * experts;
    const auto width = static_cast<std::size_t>(std::max(options.embedding_width, 1));
    return layers * of_layer + 12 * std::uint64_t{options.capacity} + 8 * experts +
           (options.replace == map_replacement::redundancy ? 4 * places : 0) +
           12 * (options.embeddings.size() / width);
  }
  [[nodiscard]] std::size_t map_size() const noexcept { return layers_ * experts_; }

  /// Index of a value, in elements from the layer's start.
  [[nodiscard]] std::size_t element(std::size_t place, std::size_t e) const noexcept {
    return (place / map_kernels::lanes * experts_ + e) * map_kernels::lanes +
           place % map_kernels::lanes;
  }
  [[nodiscard]] float value(std::size_t place, std::size_t layer, std::size_t e) const noexcept {
    const auto* const of_layer = maps_.data() + layer * layer_bytes_;
    const auto at = element(place, e);
    if (storage_ == map_storage::fp32) return reinterpret_cast<const float*>(of_layer)[at];
    if (storage_ == map_storage::fp16)
      return map_kernels::from_half(reinterpret_cast<const std::uint16_t*>(of_layer)[at]);
    return static_cast<float>(std::to_integer<int>(of_layer[at])) * steps_[layer * padded_ + place];
  }
  void write_row(std::size_t place, std::size_t layer, std::span<const float> row) noexcept {
    auto* const of_layer = maps_.data() + layer * layer_bytes_;
    if (storage_ == map_storage::int8) return write_codes(place, layer, row);
    for (std::size_t e = 0; e < experts_; ++e)
      if (storage_ == map_storage::fp32)
        reinterpret_cast<float*>(of_layer)[element(place, e)] = row[e];
      else
        reinterpret_cast<std::uint16_t*>(of_layer)[element(place, e)] =
            map_kernels::to_half(std::min(row[e], 1.0F));
  }
  /// Codes are divided by their sum when read: a coded row sums to 1, too.
  void write_codes(std::size_t place, std::size_t layer, std::span<const float> row) noexcept {
    auto* const of_layer = maps_.data() + layer * layer_bytes_;
    const float unit = *std::ranges::max_element(row) / 255.0F;
    std::uint32_t sum = 0;
    for (std::size_t e = 0; e < experts_; ++e) {
      const auto code = static_cast<std::uint8_t>(std::min(row[e] / unit + 0.5F, 255.0F));
      of_layer[element(place, e)] = std::byte{code};
      sum += code;
    }
    steps_[layer * padded_ + place] = 1.0F / static_cast<float>(sum);
  }

  /// Writes a map to row_, with each layer's row divided by its sum.
  void normalise(std::span<const float> map) noexcept {
    for (std::size_t at = 0; at < map.size(); at += experts_)
      probability_row::normalise(map.subspan(at, experts_), std::span(row_).subspan(at, experts_));
  }
  std::uint32_t next_place() noexcept {
    const auto place = next_;
    next_ = (next_ + 1) % capacity_;
    size_ = std::max(size_, place + 1);
    return static_cast<std::uint32_t>(place);
  }
  /// Stores the map in row_ at `place`.
  void put(std::uint32_t place, std::int32_t token) noexcept {
    generations_[place] = ++changes_;
    tokens_[place] = std::max(token, no_token);
    double squares = 0;
    for (std::size_t l = 0; l < layers_; ++l) {
      write_row(place, l, std::span(row_).subspan(l * experts_, experts_));
      for (std::size_t e = 0; e < experts_; ++e) {
        const double p{value(place, l, e)};
        squares += p * p;
      }
      inverse_norms_[l * padded_ + place] = static_cast<float>(1.0 / std::sqrt(squares));
    }
  }
  [[nodiscard]] std::uint32_t oldest_of(std::int32_t token) const noexcept {
    std::uint32_t found = none;
    for (std::uint32_t place = 0; place < size_; ++place)
      if (tokens_[place] == token && (found == none || generations_[place] < generations_[found]))
        found = place;
    return found;
  }

  /// Returns the place with the map most similar to the one in row_, among places unchanged since `before`; none if
  /// all changed.
  [[nodiscard]] std::uint32_t most_redundant(std::int32_t token, std::uint64_t before) noexcept {
    std::ranges::fill(scores_, 0.0F);
    for (std::size_t l = 0; l < layers_; ++l)
      map_kernels::add_dots(level_, storage_, slice(l, 0, blocks()),
                            std::span(row_).subspan(l * experts_, experts_), scores_.data());
    double squares = 0;
    for (const auto p : row_) squares += double{p} * double{p};
    const auto norms = inverse_norms(layers_ - 1);
    std::uint32_t found = none;
    double most = -std::numeric_limits<double>::infinity();
    for (std::uint32_t place = 0; place < size_; ++place) {
      if (generations_[place] > before) continue;
      const double trajectory = double{scores_[place]} * double{norms[place]} / std::sqrt(squares);
      const double semantic{embeddings_.cosine(token, tokens_[place])};
      const double redundancy = semantic_weight_ * semantic + (1.0 - semantic_weight_) * trajectory;
      if (redundancy <= most) continue;
      most = redundancy;
      found = place;
    }
    return found;
  }

  std::size_t layers_;
  std::size_t experts_;
  std::size_t capacity_;
  std::size_t padded_;
  map_storage storage_;
  map_replacement replace_;
  double semantic_weight_;
  std::size_t block_bytes_;
  std::size_t layer_bytes_;
  vector_level level_ = best_vector_level();
  std::size_t size_ = 0;
  std::size_t next_ = 0;  ///< place of the next map; if full and fifo, place of the oldest map
  std::uint64_t changes_ = 0;
  aligned_vector<std::byte> maps_;       ///< [layers] of slices
  aligned_vector<float> steps_;          ///< for int8: [layers, padded]
  aligned_vector<float> inverse_norms_;  ///< [layers, padded]: norms over layers 0..layer
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint64_t> generations_;
  std::vector<float> row_;  ///< one map
  token_embeddings embeddings_;
  std::uint64_t queries_ = 0;
  std::vector<std::uint64_t> compared_in_;  ///< [vocabulary]: last query that compared the token
  aligned_vector<float> scores_;            ///< for redundancy: [padded]
};

}  // namespace hotset
