// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values in blocks of tokens: sequences share equal prefixes, and a shrinking pool returns its memory to
/// the system.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/status.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// A sequence of a pool, from `open` to `close`; afterwards the number is reused.
using sequence_id = std::uint32_t;
/// Identifies a full block's contents for the pool's life, cached or not: equal tokens after equal tokens under the
/// same adapter have the same number. Numbers are dense, in order of appearance.
using content_id = std::uint64_t;

/// Weights that keys and values were computed with: an adapter's differ from the base model's for equal tokens. A
/// number is never given to another adapter.
using adapter_id = std::uint32_t;
inline constexpr adapter_id base_model = 0;

inline constexpr content_id no_content = std::numeric_limits<content_id>::max();

/// A full block was reused from the cache, or had to be computed.
struct block_reference {
  content_id content = no_content;
  bool is_hit = false;
  friend bool operator==(const block_reference&, const block_reference&) = default;
};

/// FNV-1a over the identity of a full block. Only a hint: tokens are always compared.
[[nodiscard]] std::uint64_t hash_of_block(content_id previous,
                                          std::span<const std::uint8_t> tokens) noexcept;

struct kv_pool_config {
  std::size_t block_tokens = 16;
  std::uint64_t blocks = 0;
  /// Identifies full blocks by their contents and keeps them cached. Keys and values of equal contents are equal
  /// bytes if the experts are exact.
  bool reuse = true;
  std::uint64_t (*hash)(content_id, std::span<const std::uint8_t>) noexcept = hash_of_block;
  /// Called for every full block in order, when it is reused or when its last token was computed. Must not throw nor
  /// call the pool.
  std::function<void(const block_reference&)> on_reference{};
  /// Budget for the pool's memory; it outlives the pool. None: only the system's limit.
  hotset::memory_budget* budget = nullptr;

  [[nodiscard]] hotset::validation validate(const model_config& shape) const;
};

/// Counts of blocks.
struct kv_pool_stats {
  std::uint64_t hits = 0;       ///< reused blocks
  std::uint64_t misses = 0;     ///< blocks computed until full
  std::uint64_t evictions = 0;  ///< cached blocks evicted
  std::uint64_t moves = 0;      ///< blocks copied to a lower place by `shrink`
};

/// One allocation that grows and shrinks (Linux): its pages are really freed, and new pages are present.
class resident_pages {
 public:
  resident_pages() = default;
  resident_pages(const resident_pages&) = delete;
  resident_pages& operator=(const resident_pages&) = delete;
  ~resident_pages() { (void)resize(0); }

  /// Keeps the contents up to the smaller size; new bytes are 0. The memory may move.
  /// Returns false if the system refuses; then nothing has changed.
  [[nodiscard]] bool resize(std::uint64_t bytes) noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;  ///< whole pages
};

/// Owns blocks and block tables; a sequence is a handle. A block holds the keys and values of all layers for
/// `block_tokens` tokens and is referenced by any number of sequences. Unreferenced blocks stay cached until their
/// memory is needed, least recently used first.
/// Models hotset::resizable_pool: a unit is a block, and blocks of sequences are in use.
/// Shape of a block: [layers, keys and values, block_tokens, heads * head_size], float.
/// Memory: the blocks; and for each distinct full block ever seen its tokens and about 80 bytes.
/// Threads: one at a time.
class kv_pool {
 public:
  /// A forward pass over the pool: while it exists, pointers to blocks stay valid.
  class pass {
   public:
    explicit pass(kv_pool& pool) noexcept : pool_(pool) { ++pool_.passes_; }
    pass(const pass&) = delete;
    pass& operator=(const pass&) = delete;
    ~pass() { --pool_.passes_; }

   private:
    kv_pool& pool_;
  };

  /// Errors: hotset::invalid_config; std::bad_alloc if the budget or the system refuses the memory.
  kv_pool(const model_config& shape, const kv_pool_config& config);
  kv_pool(const kv_pool&) = delete;
  kv_pool& operator=(const kv_pool&) = delete;
  ~kv_pool();

  /// Begins an empty sequence with tables for `tokens` tokens, which grow. Sequences of different adapters share no
  /// block.
  [[nodiscard]] sequence_id open(std::size_t tokens = 0, adapter_id adapter = base_model);
  /// Ends the sequence. Its last blocks become the oldest of those it leaves in the cache, because a prefix is worth
  /// more than its continuation.
  void close(sequence_id sequence) noexcept;
  /// Number of the sequence among all ever opened, from 0; unlike its id it is never reused.
  [[nodiscard]] std::uint32_t number(sequence_id sequence) const noexcept {
    return at(sequence).number;
  }
  [[nodiscard]] adapter_id adapter(sequence_id sequence) const noexcept {
    return at(sequence).adapter;
  }
  /// Tokens with keys and values.
  [[nodiscard]] std::size_t length(sequence_id sequence) const noexcept;

  /// Appends the cached part of `tokens`, which come next: whole blocks, up to the first one that is not cached.
  /// Returns the number of tokens; 0 if the sequence does not end with a block. Pre: nothing is reserved.
  std::size_t reuse(sequence_id sequence, std::span<const std::uint8_t> tokens);
  /// Number of blocks that `reuse` would give a new sequence and that are already in use: they need no memory.
  [[nodiscard]] std::size_t shared(std::span<const std::uint8_t> tokens,
                                   adapter_id adapter = base_model) const;
  /// Blocks that are not in use.
  [[nodiscard]] std::size_t available() const noexcept { return blocks_.size() - in_use_; }
  /// Blocks that `reserve` would take.
  [[nodiscard]] std::size_t needed(sequence_id sequence, std::size_t tokens) const noexcept;
  /// Makes room for the next tokens; a block cut by `truncate` is copied if others use it.
  /// Returns false if needed() > available(); then nothing has changed.
  [[nodiscard]] bool reserve(sequence_id sequence, std::size_t tokens);
  /// Records that the keys and values of these tokens have been written. A block that becomes full is identified; if
  /// an equal one is cached, that one is shared and this one freed. Pre: there is room.
  void append(sequence_id sequence, std::span<const std::uint8_t> tokens);
  /// Removes the tokens from `tokens` on, and reserved room. Pre: tokens <= length.
  void truncate(sequence_id sequence, std::size_t tokens) noexcept;

  /// A block of the sequence's table; it moves when the pool is resized. Only places after the sequence's length may
  /// be written. Pre: the sequence has or has reserved this many blocks.
  [[nodiscard]] float* block(sequence_id sequence, std::size_t place) noexcept;
  /// Floats from the start of a block to the first row of a layer.
  [[nodiscard]] std::size_t keys_of(std::size_t layer) const noexcept {
    return 2 * layer * block_tokens() * width_;
  }
  [[nodiscard]] std::size_t values_of(std::size_t layer) const noexcept {
    return keys_of(layer) + block_tokens() * width_;
  }
  [[nodiscard]] std::size_t block_tokens() const noexcept { return config_.block_tokens; }
  /// Number of blocks, including a partial one, for `tokens` tokens.
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const noexcept {
    return tokens / block_tokens() + (tokens % block_tokens() != 0 ? 1U : 0U);
  }

  /// Bytes of a block of `tokens` tokens.
  [[nodiscard]] static std::uint64_t block_bytes(const model_config& shape,
                                                 std::size_t block_tokens) noexcept {
    return 2 * shape.layers * block_tokens * shape.heads * shape.head_size * sizeof(float);
  }
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept {
    return keys_of(layers_) * sizeof(float);
  }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return blocks_.size(); }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return in_use_; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }
  void reset_peak() noexcept { peak_ = in_use_; }
  [[nodiscard]] bool drained() const noexcept { return passes_ == 0; }
  /// Complexity: O(blocks), and a copy of each remaining block that is above the new size.
  hotset::status shrink(std::uint64_t units) noexcept;
  /// Errors: also invalid_argument for less than the capacity.
  hotset::status grow(std::uint64_t units) noexcept;

  /// Blocks that no sequence uses and that may be reused.
  [[nodiscard]] std::size_t cached() const noexcept { return available() - free_.size(); }
  /// Number of distinct full blocks ever seen; all ids passed to `on_reference` are below it.
  [[nodiscard]] std::size_t contents() const noexcept { return contents_.size(); }
  [[nodiscard]] const kv_pool_stats& stats() const noexcept { return stats_; }

 private:
  using block_index = std::uint32_t;
  static constexpr block_index no_block = std::numeric_limits<block_index>::max();

  struct block_state {
    std::uint32_t references = 0;
    block_index moved_to = no_block;  // while the pool shrinks
    content_id content = no_content;  // content of a full block
  };
  struct sequence_state {
    std::vector<block_index> table;
    std::vector<std::uint8_t> tokens;
    std::uint32_t number = 0;
    adapter_id adapter = base_model;
  };
  struct known_content {
    content_id previous = no_content;
    std::vector<std::uint8_t> tokens;
    block_index block = no_block;  // its place while cached
  };

  [[nodiscard]] sequence_state& at(sequence_id sequence) noexcept;
  [[nodiscard]] const sequence_state& at(sequence_id sequence) const noexcept;
  [[nodiscard]] float* floats(block_index block) const noexcept;
  /// Content id before the first block.
  [[nodiscard]] static content_id root_of(adapter_id adapter) noexcept {
    return no_content - adapter;
  }
  [[nodiscard]] content_id content_before(const sequence_state& s) const noexcept;
  [[nodiscard]] content_id find(content_id previous, std::span<const std::uint8_t> tokens) const;
  [[nodiscard]] content_id find_or_add(content_id previous, std::span<const std::uint8_t> tokens);
  void identify_last_block(sequence_state& s);
  void own_last_block(sequence_state& s) noexcept;
  void tell(content_id content, bool is_hit);

  block_index take() noexcept;
  void acquire(block_index block) noexcept;
  void release(block_index block) noexcept;
  void forget_content(block_index block) noexcept;
  void evict_one() noexcept;
  void move_below(block_index units) noexcept;
  void add_places(std::size_t units);

  kv_pool_config config_;
  std::size_t layers_;
  std::size_t width_;
  resident_pages memory_;
  std::vector<block_state> blocks_;
  std::vector<block_index> free_;      // no references, no content
  hotset::recency_list cached_{0, 1};  // no references, with content; oldest release first
  std::vector<sequence_state> sequences_;
  std::vector<sequence_id> closed_;
  std::uint32_t opened_ = 0;
  std::vector<known_content> contents_;
  std::unordered_multimap<std::uint64_t, content_id> by_hash_;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
  std::size_t passes_ = 0;
  kv_pool_stats stats_;
};

static_assert(hotset::resizable_pool<kv_pool>);

}  // namespace tiny_moe
