// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The expert maps of past tokens: for each, its router probabilities over all layers, and the token id it began with.
///
/// Rule: a full store gives up its oldest map (`fifo`), or the one most like the new map (`redundancy`): largest
///       (d/L) semantic + ((L - d)/L) trajectory score, ties to the lower place, an old map at most once per batch; what is
///       left of a batch when every old map was replaced is dropped. Load keeps the newest maps that there is room for; merge
///       adds the other's, oldest first, each in the place of the oldest, whatever `replace` says.
/// Source: fMoE, expert map store and deduplication.
/// Deviations: fifo is the default. `redundancy` compares maps as they are stored: by sums that are slightly high with int8.
/// Exact: yes (never changes what is computed).
/// Cost: a map O(L E); redundancy O(C L E) more, and O(C width) for other token ids' embeddings. Memory, see config::storage.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/file_bytes.hpp"
#include "hotset/core/status.hpp"
#include "hotset/predict/kernels/map_kernels.hpp"
#include "hotset/predict/maps/map_rows.hpp"
#include "hotset/predict/maps/token_index.hpp"
#include "hotset/predict/refusals.hpp"
#include "hotset/predict/saved_file.hpp"

namespace hotset {

/// Which map leaves a full store.
enum class map_replacement : std::uint8_t { fifo, redundancy };

/// Places are numbered 0..size - 1. A map lies in blocks of 16 maps, layer by layer, so that what a matcher reads of one
/// layer is one array. Threads: const use is safe. Nothing allocates after construction but save, load and merge.
class expert_map_store {
 public:
  struct config {
    std::uint32_t capacity = 1000;  ///< maps
    /// Bytes of a probability: fp32 4, fp16 2, int8 5 of which matching reads 1: each map's layer has a step of its own,
    /// codes are rounded up, and the probabilities themselves stay beside them.
    map_storage storage = map_storage::fp32;
    map_replacement replace = map_replacement::fifo;
    std::int32_t distance = 3;     ///< d of the redundancy rule, at most L counts
    std::int32_t mean_layers = 0;  ///< first layers of which a mean per token id is kept
    /// [vocabulary, embedding_width], the engine's input rows, or empty; the caller keeps them alive.
    std::span<const float> embeddings{};
    std::int32_t embedding_width = 0;

    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::within("expert_map capacity", capacity, 1, most_maps),
           detail::one_of("expert_map storage", storage, {"fp32", "fp16", "int8"}),
           detail::one_of("expert_map replace", replace, {"fifo", "redundancy"}),
           detail::refuse_unless(distance >= 0, "expert_map distance", distance, "0 or more"),
           detail::refuse_unless(mean_layers >= 0, "expert_map mean_layers", mean_layers,
                                 "0 or more"),
           token_index::validate(embeddings, embedding_width)});
    }
  };
  static constexpr std::uint32_t none = map_kernels::best_of::none;
  static constexpr std::uint32_t most_maps = 1U << 24U;
  static constexpr std::int32_t most_experts = 1 << 16;  ///< of a layer
  static constexpr std::uint64_t most_bytes = detail::most_predictor_bytes;
  static constexpr std::int32_t no_token = -1;  ///< of a map whose token is not known

  /// Errors: what the shape's and the configuration's validate() say, more experts or bytes than there may be, embeddings
  /// that are not finite, no host memory.
  static result<expert_map_store> create(const geometry& shape, const config& options) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (auto bad = options.validate()) return *std::move(bad);
    if (shape.experts > most_experts)
      return error{"expert maps of " + std::to_string(shape.experts) + " experts, accepted: 1.." +
                   std::to_string(most_experts)};
    if (auto bad = detail::within("expert_map mean_layers", options.mean_layers, 0, shape.layers,
                                  "layers"))
      return *std::move(bad);
    if (const auto bytes = bytes_for(shape, options); bytes > most_bytes)
      return error{std::to_string(options.capacity) + " expert maps of " +
                   detail::shape_text(shape.layers, shape.experts) + " need " +
                   std::to_string(bytes) + " bytes, accepted: at most " +
                   std::to_string(most_bytes)};
    return unless_out_of_memory(
        [&]() -> result<expert_map_store> {
          auto index =
              token_index::create(options.embeddings, options.embedding_width, options.capacity);
          if (!index) return index.error();
          return expert_map_store(shape, options, *std::move(index));
        },
        result<expert_map_store>(no_host_memory()));
  }

  [[nodiscard]] std::size_t layers() const noexcept { return layers_; }
  [[nodiscard]] std::size_t experts() const noexcept { return experts_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Maps that are stored.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] map_storage storage() const noexcept { return storage_; }

  /// Grows with every map that is put in or taken out.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
  /// What changes() was when the place last changed: sums of an earlier time are another map's. Pre: place < capacity().
  [[nodiscard]] std::uint64_t generation(std::size_t place) const noexcept {
    return generations_[place];
  }
  /// The token id that a map began with; no_token if it is not known. Pre: place < size().
  [[nodiscard]] std::int32_t token(std::size_t place) const noexcept { return tokens_[place]; }

  /// Stores finished maps, in order. Rows are divided by their sums.
  /// Shape: `maps` is [n, L, E], `tokens` [n]; a negative token id stands for one that is not known.
  /// Errors: invalid_argument for other lengths, and for a row that is not 1 in sum within probability_row::tolerance
  /// or has a value below 0; then the store is unchanged.
  status insert(std::span<const float> maps, std::span<const std::int32_t> tokens) noexcept {
    if (maps.size() % map_size() != 0 || maps.size() / map_size() != tokens.size())
      return status::invalid_argument;
    for (std::size_t at = 0; at < maps.size(); at += experts_)
      if (!(probability_row::sum_of(maps.subspan(at, experts_)) > 0))
        return status::invalid_argument;
    const auto before = changes_;
    const auto old = size_;
    std::size_t done = 0;
    for (; done < tokens.size() && (size_ < capacity_ || replace_ == map_replacement::fifo); ++done)
      put(next_place(), normalised(maps.subspan(done * map_size(), map_size())), tokens[done]);
    replace_redundant(maps.subspan(done * map_size()), tokens.subspan(done), before, old);
    return status::ok;
  }

  /// One layer of a map as it is stored, of int8 the probabilities themselves. Shape: `out` is [E]. Pre: place < size().
  void read_row(std::size_t place, std::size_t layer, std::span<float> out) const noexcept {
    HOTSET_ASSERT(place < size_ && layer < layers_ && out.size() == experts_);
    if (storage_ == map_storage::int8) {
      std::ranges::copy(exact_row(place, layer), out.begin());
      return;
    }
    for (std::size_t e = 0; e < experts_; ++e) out[e] = value(place, layer, e);
  }
  /// Of int8: the probabilities beside the codes. Shape: [E].
  [[nodiscard]] std::span<const float> exact_row(std::size_t place,
                                                 std::size_t layer) const noexcept {
    return std::span(exact_).subspan(place * map_size() + layer * experts_, experts_);
  }

  /// The oldest map of the token id and 1; failing that, the oldest of the token id whose embedding is nearest, and their
  /// cosine, ties to the lower place; none if nothing is known. Complexity: O(1), else O(token ids x width).
  [[nodiscard]] map_kernels::best_of semantic_match(std::int32_t token) const noexcept {
    return index_.match(token);
  }
  /// The mean over all maps of the token id that the map at `place` began with, to 2^-32.
  /// Pre: place < size(), layer < mean_layers. Shape: `out` is [E].
  void read_mean(std::size_t place, std::size_t layer, std::span<float> out) const noexcept {
    HOTSET_ASSERT(layer < mean_layers_);
    const auto group = index_.group_of(static_cast<std::uint32_t>(place));
    if (group == none) return read_row(place, layer, out);
    const auto* const sums = &mean_sums_[(group * mean_layers_ + layer) * experts_];
    const auto count = static_cast<double>(index_.count_of(group)) * fixed_point;
    for (std::size_t e = 0; e < experts_; ++e)
      out[e] = static_cast<float>(static_cast<double>(sums[e]) / count);
  }

  // For matchers.

  /// Blocks of 16 places that hold maps.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_for(size_); }
  /// Places, with those that fill the last block.
  [[nodiscard]] std::size_t padded() const noexcept { return padded_; }
  /// Blocks of one layer, from `first` on. Pre: they lie within the capacity.
  [[nodiscard]] map_kernels::slice slice(std::size_t layer, std::size_t first,
                                         std::size_t blocks) const noexcept {
    map_kernels::slice out{maps_.data() + layer * layer_bytes_ + first * block_bytes_, nullptr,
                           blocks, experts_};
    if (storage_ == map_storage::int8)
      out.steps = steps_.data() + layer * padded_ + first * map_kernels::lanes;
    return out;
  }
  /// Bytes of one block in one layer.
  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
  /// 1 / the norm of each map's layers 0..layer, of int8 that of its probabilities. Shape: [padded()].
  [[nodiscard]] std::span<const float> inverse_norms(std::size_t layer) const noexcept {
    return std::span(inverse_norms_).subspan(layer * padded_, padded_);
  }

  /// All maps, the oldest first, in an order of bytes that every machine reads alike, whatever the storage.
  [[nodiscard]] std::vector<std::byte> save() const {
    detail::saved_writer out(kind, numbers_of(size_));
    out.add_all(std::array{layers_, experts_, size_});
    const auto order = by_age();
    for (const auto place : order) out.add(tokens_[place]);
    std::vector<float> row(experts_);
    for (const auto place : order)
      for (std::size_t l = 0; l < layers_; ++l) {
        read_row(place, l, row);
        out.add_all(row);
      }
    return std::move(out).take();
  }
  /// Replaces all maps by saved ones; of more than fit, the newest stay.
  /// Errors: bytes that are no store, of another L or E, of another length, or a row that insert would refuse; then the
  /// store is unchanged.
  validation load(std::span<const std::byte> bytes) {
    const detail::saved_reader saved(bytes);
    if (auto bad = check(saved)) return bad;
    clear();
    const std::size_t count = saved[2];
    const auto first = count - std::min(count, capacity_);
    for (std::size_t i = first; i < count; ++i) {
      for (std::size_t at = 0; at < map_size(); ++at)
        row_[at] = saved.real(3 + count + i * map_size() + at);
      put(next_place(), row_, static_cast<std::int32_t>(saved[3 + i]));
    }
    return std::nullopt;
  }
  /// Adds another store's maps, oldest first; of itself nothing. Errors: another L or E; nothing has changed then.
  validation merge(const expert_map_store& other) {
    if (other.layers_ != layers_ || other.experts_ != experts_)
      return another_shape(other.layers_, other.experts_);
    if (&other == this) return std::nullopt;
    const auto theirs = other.by_age();
    auto mine = by_age();
    std::size_t replaced = 0;
    for (const auto place : theirs) {
      for (std::size_t l = 0; l < layers_; ++l)
        other.read_row(place, l, std::span(row_).subspan(l * experts_, experts_));
      if (size_ < capacity_)
        mine.push_back(next_place());
      else
        mine.push_back(mine[replaced++]);
      put(mine.back(), row_, other.tokens_[place]);
    }
    next_ = (next_ + replaced) % capacity_;
    return std::nullopt;
  }

 private:
  static constexpr detail::file_kind kind = {'h', 's', 'e', 'm', 'a', 'p', 's', '1'};
  /// Of mean sums: what is added can be taken away again, to the bit.
  static constexpr double fixed_point = 0x1p32;
  /// New maps that are compared with the stored ones in one pass.
  static constexpr std::size_t together = 8;

  expert_map_store(const geometry& shape, const config& options, token_index index)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        capacity_(options.capacity),
        padded_(blocks_for(capacity_) * map_kernels::lanes),
        storage_(options.storage),
        replace_(options.replace),
        semantic_weight_(std::min(1.0, static_cast<double>(options.distance) / shape.layers)),
        mean_layers_(static_cast<std::size_t>(options.mean_layers)),
        block_bytes_(static_cast<std::size_t>(block_bytes_for(experts_, storage_))),
        layer_bytes_(line_up(blocks_for(capacity_) * block_bytes_)),
        maps_(layers_ * layer_bytes_),
        steps_(storage_ == map_storage::int8 ? layers_ * padded_ : 0),
        exact_(storage_ == map_storage::int8 ? capacity_ * map_size() : 0),
        inverse_norms_(layers_ * padded_, 1.0F),
        tokens_(capacity_, no_token),
        generations_(capacity_, 0),
        mean_sums_(capacity_ * mean_layers_ * experts_, 0),
        row_(map_size()),
        index_(std::move(index)) {
    if (replace_ == map_replacement::fifo) return;
    rows_ = map_rows(together, experts_, storage_ == map_storage::int8);
    scores_.resize(together * padded_);
  }

  static std::uint64_t line_up(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
  static std::size_t blocks_for(std::size_t maps) noexcept {
    return (maps + map_kernels::lanes - 1) / map_kernels::lanes;
  }
  static std::uint64_t block_bytes_for(std::uint64_t experts, map_storage storage) noexcept {
    if (storage == map_storage::int8) return (experts + 3) / 4 * 64;
    return experts * map_kernels::lanes * (storage == map_storage::fp32 ? 4 : 2);
  }
  /// Without the engine's embedding table. Pre: both are valid, mean_layers <= layers. No product wraps: keys are at most 2^28, maps 2^24.
  static std::uint64_t bytes_for(const geometry& shape, const config& options) noexcept {
    const std::uint64_t capacity = options.capacity;
    const std::uint64_t layers = shape.layer_count(), experts = shape.expert_count();
    const bool coded = options.storage == map_storage::int8;
    const auto blocks = blocks_for(options.capacity);
    const auto places = blocks * map_kernels::lanes;
    const auto of_layer = line_up(blocks * block_bytes_for(experts, options.storage)) +
                          places * (coded ? 8 : 4) + (coded ? 4 * capacity * experts : 0);
    const auto means = 8 * capacity * static_cast<std::uint64_t>(options.mean_layers) * experts;
    const auto of_batch = 4 * places + map_rows::bytes_for(experts, coded);
    const auto width = static_cast<std::size_t>(std::max(options.embedding_width, 1));
    return layers * (of_layer + 4 * experts) + means + 12 * capacity +
           (options.replace == map_replacement::redundancy ? together * of_batch : 0) +
           token_index::bytes_for(capacity, options.embeddings.size() / width);
  }
  [[nodiscard]] error another_shape(std::uint64_t layers, std::uint64_t experts) const {
    return error{"expert maps of " + detail::shape_text(layers, experts) +
                 ", accepted: " + detail::shape_text(layers_, experts_)};
  }
  /// Of a saved store. A store of this shape was made, so L x E is below 2^32.
  [[nodiscard]] std::uint64_t numbers_of(std::uint64_t maps) const noexcept {
    return 3 + maps * (1 + map_size());
  }
  [[nodiscard]] std::size_t map_size() const noexcept { return layers_ * experts_; }

  /// Where a value of fp32 or fp16 lies, in elements from the layer's begin.
  [[nodiscard]] std::size_t element(std::size_t place, std::size_t e) const noexcept {
    return (place / map_kernels::lanes * experts_ + e) * map_kernels::lanes +
           place % map_kernels::lanes;
  }
  [[nodiscard]] float value(std::size_t place, std::size_t layer, std::size_t e) const noexcept {
    const auto* const of_layer = maps_.data() + layer * layer_bytes_;
    if (storage_ == map_storage::fp32)
      return reinterpret_cast<const float*>(of_layer)[element(place, e)];
    return map_kernels::from_half(
        reinterpret_cast<const std::uint16_t*>(of_layer)[element(place, e)]);
  }
  /// Writes one layer of a map. Returns the sum of the squares of what the map now holds there.
  double write_row(std::size_t place, std::size_t layer, std::span<const float> row) noexcept {
    auto* const of_layer = maps_.data() + layer * layer_bytes_;
    double squares = 0;
    const auto add = [&squares](float p) {
      squares += static_cast<double>(p) * static_cast<double>(p);
    };
    if (storage_ == map_storage::int8) {
      std::ranges::copy(
          row, exact_.begin() + static_cast<std::ptrdiff_t>(place * map_size() + layer * experts_));
      std::ranges::for_each(row, add);
      write_codes(place, layer, row);
      return squares;
    }
    for (std::size_t e = 0; e < experts_; ++e) {
      const auto at = element(place, e);
      if (storage_ == map_storage::fp32)
        reinterpret_cast<float*>(of_layer)[at] = row[e];
      else
        reinterpret_cast<std::uint16_t*>(of_layer)[at] =
            map_kernels::to_half(std::min(row[e], 1.0F));
      add(value(place, layer, e));
    }
    return squares;
  }
  void write_codes(std::size_t place, std::size_t layer, std::span<const float> row) noexcept {
    using namespace map_kernels;
    auto* const block = reinterpret_cast<std::uint8_t*>(maps_.data() + layer * layer_bytes_ +
                                                        place / lanes * block_bytes_);
    const auto lane = place % lanes;
    steps_[layer * padded_ + place] =
        code_up(row.data(), experts_, most_map_code, [&](std::size_t e, int code) {
          block[(e / codes_in_word * lanes + lane) * codes_in_word + e % codes_in_word] =
              static_cast<std::uint8_t>(code);
        });
  }

  std::span<const float> normalised(std::span<const float> map) noexcept {
    for (std::size_t at = 0; at < map.size(); at += experts_)
      probability_row::normalise(map.subspan(at, experts_), std::span(row_).subspan(at, experts_));
    return row_;
  }
  std::uint32_t next_place() noexcept {
    const auto place = next_;
    next_ = (next_ + 1) % capacity_;
    size_ = std::max(size_, place + 1);
    return static_cast<std::uint32_t>(place);
  }
  void put(std::uint32_t place, std::span<const float> map, std::int32_t token) noexcept {
    forget(place);
    tokens_[place] = std::max(token, no_token);
    double squares = 0;
    for (std::size_t l = 0; l < layers_; ++l) {
      squares += write_row(place, l, map.subspan(l * experts_, experts_));
      inverse_norms_[l * padded_ + place] = static_cast<float>(1.0 / std::sqrt(squares));
    }
    if (token < 0) return;
    index_.add(place, token);
    for_each_mean(place, [](std::uint64_t& sum, std::uint64_t p) { sum += p; });
  }
  /// The place is nobody's from now on.
  void forget(std::uint32_t place) noexcept {
    generations_[place] = ++changes_;
    for_each_mean(place, [](std::uint64_t& sum, std::uint64_t p) { sum -= p; });
    index_.remove(place);
  }
  template <class Apply>
  void for_each_mean(std::uint32_t place, Apply apply) noexcept {
    const auto group = index_.group_of(place);
    if (group == none) return;
    for (std::size_t l = 0; l < mean_layers_; ++l)
      for (std::size_t e = 0; e < experts_; ++e) {
        const auto p = storage_ == map_storage::int8 ? exact_row(place, l)[e] : value(place, l, e);
        apply(mean_sums_[(group * mean_layers_ + l) * experts_ + e],
              static_cast<std::uint64_t>(static_cast<double>(p) * fixed_point));
      }
  }
  void clear() noexcept {
    for (std::uint32_t place = 0; place < size_; ++place) forget(place);
    size_ = 0;
    next_ = 0;
  }
  /// Places, the oldest first.
  [[nodiscard]] std::vector<std::uint32_t> by_age() const {
    std::vector<std::uint32_t> order(size_);
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](auto a, auto b) { return generations_[a] < generations_[b]; });
    return order;
  }

  /// Puts new maps in the places of `old` ones, which have not changed since `before`.
  void replace_redundant(std::span<const float> maps, std::span<const std::int32_t> tokens,
                         std::uint64_t before, std::size_t old) noexcept {
    for (std::size_t first = 0; first < tokens.size() && old > 0; first += together) {
      const auto count = std::min(together, tokens.size() - first);
      compare(maps.subspan(first * map_size(), count * map_size()), count);
      for (std::size_t i = 0; i < count && old > 0; ++i, --old) {
        const auto map = normalised(maps.subspan((first + i) * map_size(), map_size()));
        put(most_redundant(i, map, tokens[first + i], before), map, tokens[first + i]);
      }
    }
  }
  /// Sums of products of new maps with all stored ones, into scores_.
  void compare(std::span<const float> maps, std::size_t count) noexcept {
    std::ranges::fill(scores_, 0.0F);
    for (std::size_t l = 0; l < layers_; ++l) {
      for (std::size_t i = 0; i < count; ++i) {
        probability_row::normalise(maps.subspan(i * map_size() + l * experts_, experts_),
                                   rows_.row(i));
        rows_.code(i);
      }
      map_kernels::add_dots(level_, storage_, slice(l, 0, blocks()), rows_.first(count),
                            scores_.data(), padded_);
    }
  }
  /// Pre: some place has not changed since `before`.
  [[nodiscard]] std::uint32_t most_redundant(std::size_t i, std::span<const float> map,
                                             std::int32_t token,
                                             std::uint64_t before) const noexcept {
    double squares = 0;
    for (const auto p : map) squares += static_cast<double>(p) * static_cast<double>(p);
    const auto norms = inverse_norms(layers_ - 1);
    std::uint32_t found = none;
    double most = -std::numeric_limits<double>::infinity();
    for (std::uint32_t place = 0; place < size_; ++place) {
      if (generations_[place] > before) continue;
      const double trajectory = static_cast<double>(scores_[i * padded_ + place]) *
                                static_cast<double>(norms[place]) / std::sqrt(squares);
      const double semantic = static_cast<double>(index_.cosine(token, tokens_[place]));
      const double redundancy = semantic_weight_ * semantic + (1.0 - semantic_weight_) * trajectory;
      if (redundancy <= most) continue;
      most = redundancy;
      found = place;
    }
    return found;
  }

  /// Whether the bytes can be loaded.
  [[nodiscard]] validation check(const detail::saved_reader& saved) const {
    if (!saved.is(kind, 3)) return error{"no expert map store, accepted: a saved one"};
    const std::uint64_t count = saved[2];
    if (saved[0] != layers_ || saved[1] != experts_) return another_shape(saved[0], saved[1]);
    if (count > most_maps)
      return error{std::to_string(count) + " expert maps, accepted: at most " +
                   std::to_string(most_maps)};
    if (auto bad = saved.check_count(numbers_of(count), std::to_string(count) + " expert maps of " +
                                                            detail::shape_text(layers_, experts_)))
      return bad;
    std::vector<float> row(experts_);
    for (std::size_t r = 0; r < count * layers_; ++r) {
      for (std::size_t e = 0; e < experts_; ++e) row[e] = saved.real(3 + count + r * experts_ + e);
      if (!(probability_row::sum_of(row) > 0))
        return error{"expert map " + std::to_string(r / layers_) +
                     " has no probabilities in layer " + std::to_string(r % layers_) +
                     ", accepted: none below 0, 1 in sum"};
    }
    return std::nullopt;
  }

  std::size_t layers_;
  std::size_t experts_;
  std::size_t capacity_;
  std::size_t padded_;
  map_storage storage_;
  map_replacement replace_;
  double semantic_weight_;
  std::size_t mean_layers_;
  std::size_t block_bytes_;
  std::size_t layer_bytes_;
  vector_level level_ = best_vector_level();
  std::size_t size_ = 0;
  std::size_t next_ = 0;  ///< the place of the next map; when full and fifo, the oldest one's
  std::uint64_t changes_ = 0;
  aligned_vector<std::byte> maps_;       ///< [layers] of slices
  aligned_vector<float> steps_;          ///< of int8: [layers, padded]
  std::vector<float> exact_;             ///< of int8: [capacity, layers, experts]
  aligned_vector<float> inverse_norms_;  ///< [layers, padded] of the layers up to this one
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint64_t> generations_;
  std::vector<std::uint64_t> mean_sums_;  ///< [groups, mean layers, experts], fixed point
  std::vector<float> row_;                ///< one map
  token_index index_;
  map_rows rows_;                 ///< of redundancy: one layer of new maps
  aligned_vector<float> scores_;  ///< of redundancy: [together, padded]
};

}  // namespace hotset
