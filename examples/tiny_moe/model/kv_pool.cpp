// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/kv_pool.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <type_traits>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hotset/core/platform/assert.hpp"

namespace tiny_moe {
namespace {

// Limit: blocks are slots of a hotset::recency_list.
constexpr std::uint64_t most_blocks =
    std::numeric_limits<std::underlying_type_t<hotset::slot_id>>::max();

}  // namespace

std::uint64_t hash_of_block(content_id previous, std::span<const std::uint8_t> tokens) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325U;
  const auto mix = [&hash](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001B3U; };
  for (int shift = 0; shift < 64; shift += 8) mix((previous >> shift) & 0xFFU);
  for (const std::uint8_t token : tokens) mix(token);
  return hash;
}

hotset::validation kv_pool_config::validate(const model_config& shape) const {
  if (block_tokens < 1 || block_tokens > shape.max_positions) {
    return hotset::error{fmt::format("kv_pool block_tokens = {}, accepted: 1..{}", block_tokens,
                                     shape.max_positions)};
  }
  if (blocks > most_blocks) {
    return hotset::error{fmt::format("kv_pool blocks = {}, accepted: 0..{}", blocks, most_blocks)};
  }
  return std::nullopt;
}

bool resident_pages::resize(std::uint64_t bytes) noexcept {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<std::size_t>::max() - page) return false;
  const auto wanted = static_cast<std::size_t>((bytes + page - 1) / page * page);
  if (wanted == bytes_) return true;
  void* moved = nullptr;
  if (wanted == 0) {
    (void)::munmap(data_, bytes_);
  } else if (bytes_ == 0) {
    moved = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else {
    moved = ::mremap(data_, bytes_, wanted, MREMAP_MAYMOVE);
  }
  if (moved == MAP_FAILED) return false;
  data_ = static_cast<std::byte*>(moved);
  // Touches the pages now, so that page faults do not delay later writes.
  if (wanted > bytes_) std::memset(data_ + bytes_, 0, wanted - bytes_);
  bytes_ = wanted;
  return true;
}

kv_pool::kv_pool(const model_config& shape, const kv_pool_config& config)
    : config_(config), layers_(shape.layers), width_(shape.heads * shape.head_size) {
  hotset::require_valid(config.validate(shape));
  if (grow(config.blocks) != hotset::status::ok) throw std::bad_alloc();
}

kv_pool::~kv_pool() {
  if (config_.budget != nullptr) config_.budget->give_back(capacity() * unit_bytes());
}

sequence_id kv_pool::open(std::size_t tokens, adapter_id adapter) {
  if (closed_.empty()) {
    closed_.reserve(sequences_.size() + 1);  // so that `close` allocates nothing
    sequences_.emplace_back();
    closed_.push_back(static_cast<sequence_id>(sequences_.size() - 1));
  }
  sequence_state& s = sequences_[closed_.back()];
  s.table.reserve(blocks_for(tokens));
  s.tokens.reserve(tokens);
  s.number = opened_++;
  s.adapter = adapter;
  const sequence_id sequence = closed_.back();
  closed_.pop_back();
  return sequence;
}

void kv_pool::close(sequence_id sequence) noexcept {
  truncate(sequence, 0);
  closed_.push_back(sequence);
}

std::size_t kv_pool::length(sequence_id sequence) const noexcept {
  return at(sequence).tokens.size();
}

std::size_t kv_pool::reuse(sequence_id sequence, std::span<const std::uint8_t> tokens) {
  sequence_state& s = at(sequence);
  HOTSET_ASSERT(s.table.size() == blocks_for(s.tokens.size()));
  const std::size_t size = block_tokens();
  if (!config_.reuse || s.tokens.size() % size != 0) return 0;
  std::size_t reused = 0;
  for (; tokens.size() - reused >= size; reused += size) {
    const auto part = tokens.subspan(reused, size);
    const content_id content = find(content_before(s), part);
    if (content == no_content || contents_[content].block == no_block) break;
    s.tokens.insert(s.tokens.end(), part.begin(), part.end());
    s.table.push_back(contents_[content].block);
    acquire(s.table.back());
    ++stats_.hits;
    tell(content, true);
  }
  return reused;
}

std::size_t kv_pool::shared(std::span<const std::uint8_t> tokens, adapter_id adapter) const {
  std::size_t in_use = 0;
  content_id content = root_of(adapter);
  for (std::size_t t = 0; t + block_tokens() <= tokens.size(); t += block_tokens()) {
    content = find(content, tokens.subspan(t, block_tokens()));
    if (content == no_content || contents_[content].block == no_block) break;
    if (blocks_[contents_[content].block].references > 0) ++in_use;
  }
  return in_use;
}

std::size_t kv_pool::needed(sequence_id sequence, std::size_t tokens) const noexcept {
  const sequence_state& s = at(sequence);
  if (tokens == 0) return 0;
  const std::size_t blocks = blocks_for(s.tokens.size() + tokens);
  const std::size_t more = blocks - std::min(blocks, s.table.size());
  const bool ends_inside = s.tokens.size() % block_tokens() != 0;
  const bool is_shared =
      ends_inside && blocks_[s.table[s.tokens.size() / block_tokens()]].references > 1;
  return more + (is_shared ? 1U : 0U);
}

bool kv_pool::reserve(sequence_id sequence, std::size_t tokens) {
  if (needed(sequence, tokens) > available()) return false;
  if (tokens == 0) return true;
  sequence_state& s = at(sequence);
  const std::size_t blocks = blocks_for(s.tokens.size() + tokens);
  s.table.reserve(blocks);
  own_last_block(s);
  while (s.table.size() < blocks) s.table.push_back(take());
  return true;
}

void kv_pool::append(sequence_id sequence, std::span<const std::uint8_t> tokens) {
  sequence_state& s = at(sequence);
  HOTSET_ASSERT(blocks_for(s.tokens.size() + tokens.size()) <= s.table.size());
  for (const std::uint8_t token : tokens) {
    s.tokens.push_back(token);
    if (config_.reuse && s.tokens.size() % block_tokens() == 0) identify_last_block(s);
  }
}

void kv_pool::truncate(sequence_id sequence, std::size_t tokens) noexcept {
  sequence_state& s = at(sequence);
  HOTSET_ASSERT(tokens <= s.tokens.size());
  for (const std::size_t blocks = blocks_for(tokens); s.table.size() > blocks;) {
    release(s.table.back());
    s.table.pop_back();
  }
  s.tokens.resize(tokens);
}

float* kv_pool::block(sequence_id sequence, std::size_t place) noexcept {
  const sequence_state& s = at(sequence);
  HOTSET_ASSERT(place < s.table.size());
  return floats(s.table[place]);
}

hotset::status kv_pool::shrink(std::uint64_t units) noexcept {
  if (!drained()) return hotset::status::busy;
  if (units > capacity() || units < in_use_) return hotset::status::invalid_argument;
  while (in_use_ + cached() > units) evict_one();
  const std::uint64_t before = capacity();
  move_below(static_cast<block_index>(units));
  blocks_.resize(units);
  (void)memory_.resize(units * unit_bytes());  // freeing memory is never refused
  if (config_.budget != nullptr) config_.budget->give_back((before - units) * unit_bytes());
  return hotset::status::ok;
}

hotset::status kv_pool::grow(std::uint64_t units) noexcept {
  if (!drained()) return hotset::status::busy;
  const std::uint64_t before = capacity();
  if (units < before) return hotset::status::invalid_argument;
  constexpr auto most_bytes = std::numeric_limits<std::uint64_t>::max();
  if (units > std::min(most_blocks, most_bytes / unit_bytes())) {
    return hotset::status::exceeds_memory;
  }
  const std::uint64_t more = (units - before) * unit_bytes();
  if (config_.budget != nullptr && !config_.budget->take(more)) {
    return hotset::status::exceeds_memory;
  }
  if (memory_.resize(units * unit_bytes())) {
    try {
      add_places(units);
      return hotset::status::ok;
    } catch (...) {
      (void)memory_.resize(before * unit_bytes());
    }
  }
  if (config_.budget != nullptr) config_.budget->give_back(more);
  return hotset::status::exceeds_memory;
}

kv_pool::sequence_state& kv_pool::at(sequence_id sequence) noexcept {
  HOTSET_ASSERT(sequence < sequences_.size());
  return sequences_[sequence];
}

const kv_pool::sequence_state& kv_pool::at(sequence_id sequence) const noexcept {
  HOTSET_ASSERT(sequence < sequences_.size());
  return sequences_[sequence];
}

float* kv_pool::floats(block_index block) const noexcept {
  return static_cast<float*>(static_cast<void*>(memory_.data() + block * unit_bytes()));
}

// Content of the last full block. Pre: the sequence ends with it.
content_id kv_pool::content_before(const sequence_state& s) const noexcept {
  const std::size_t full = s.tokens.size() / block_tokens();
  return full == 0 ? root_of(s.adapter) : blocks_[s.table[full - 1]].content;
}

content_id kv_pool::find(content_id previous, std::span<const std::uint8_t> tokens) const {
  const auto [first, last] = by_hash_.equal_range(config_.hash(previous, tokens));
  const auto same = std::find_if(first, last, [&](const auto& entry) {
    const known_content& known = contents_[entry.second];
    return known.previous == previous && std::ranges::equal(known.tokens, tokens);
  });
  return same == last ? no_content : same->second;
}

content_id kv_pool::find_or_add(content_id previous, std::span<const std::uint8_t> tokens) {
  if (const content_id known = find(previous, tokens); known != no_content) return known;
  const content_id content = contents_.size();
  contents_.push_back({.previous = previous, .tokens = {tokens.begin(), tokens.end()}});
  by_hash_.emplace(config_.hash(previous, tokens), content);
  return content;
}

// Pre: the sequence ends with a full block without a content.
void kv_pool::identify_last_block(sequence_state& s) {
  const std::size_t place = s.tokens.size() / block_tokens() - 1;
  const content_id previous = place == 0 ? root_of(s.adapter) : blocks_[s.table[place - 1]].content;
  const content_id content =
      find_or_add(previous, std::span(s.tokens).subspan(place * block_tokens()));
  ++stats_.misses;
  tell(content, false);
  block_index& known = contents_[content].block;
  if (known == no_block) {
    known = s.table[place];
    blocks_[known].content = content;
  } else {
    release(s.table[place]);
    s.table[place] = known;
    acquire(known);
  }
}

// Makes a block that `truncate` has cut private before it is written: no other sequence and no content may refer to
// it.
void kv_pool::own_last_block(sequence_state& s) noexcept {
  if (s.tokens.size() % block_tokens() == 0) return;
  block_index& last = s.table[s.tokens.size() / block_tokens()];
  if (blocks_[last].references == 1) return forget_content(last);
  const block_index copy = take();
  std::memcpy(floats(copy), floats(last), unit_bytes());
  release(last);
  last = copy;
}

void kv_pool::tell(content_id content, bool is_hit) {
  if (config_.on_reference) config_.on_reference({.content = content, .is_hit = is_hit});
}

kv_pool::block_index kv_pool::take() noexcept {
  if (free_.empty()) evict_one();
  const block_index block = free_.back();
  free_.pop_back();
  blocks_[block].references = 1;
  peak_ = std::max(peak_, ++in_use_);
  return block;
}

// Pre: the block has a content.
void kv_pool::acquire(block_index block) noexcept {
  if (blocks_[block].references++ > 0) return;
  cached_.erase(static_cast<hotset::slot_id>(block));
  peak_ = std::max(peak_, ++in_use_);
}

void kv_pool::release(block_index block) noexcept {
  if (--blocks_[block].references > 0) return;
  --in_use_;
  if (blocks_[block].content == no_content) {
    free_.push_back(block);
  } else {
    cached_.push_back(0, static_cast<hotset::slot_id>(block));
  }
}

void kv_pool::forget_content(block_index block) noexcept {
  if (blocks_[block].content == no_content) return;
  contents_[blocks_[block].content].block = no_block;
  blocks_[block].content = no_content;
}

// Pre: cached() > 0.
void kv_pool::evict_one() noexcept {
  const hotset::slot_id oldest = cached_.front(0);
  cached_.erase(oldest);
  const auto block = static_cast<block_index>(oldest);
  forget_content(block);
  free_.push_back(block);
  ++stats_.evictions;
}

// Moves blocks below `units`. Pre: at most `units` blocks are in use or cached. The tables, the contents and the
// order of cached blocks follow the bytes.
void kv_pool::move_below(block_index units) noexcept {
  const std::size_t all_cached = cached();
  std::erase_if(free_, [units](block_index block) { return block >= units; });
  std::sort(free_.begin(), free_.end(), std::greater<>());
  for (block_index from = units; from < blocks_.size(); ++from) {
    block_state& state = blocks_[from];
    if (state.references == 0 && state.content == no_content) continue;
    const block_index to = free_.back();
    free_.pop_back();
    std::memcpy(floats(to), floats(from), unit_bytes());
    blocks_[to] = state;
    if (state.content != no_content) contents_[state.content].block = to;
    state.moved_to = to;
    ++stats_.moves;
  }
  const auto moved = [&](block_index block) {
    return block < units ? block : blocks_[block].moved_to;
  };
  for (sequence_state& s : sequences_) {
    for (block_index& block : s.table) block = moved(block);
  }
  for (std::size_t left = all_cached; left > 0; --left) {  // one round keeps the order
    const hotset::slot_id oldest = cached_.front(0);
    cached_.erase(oldest);
    cached_.push_back(0, static_cast<hotset::slot_id>(moved(static_cast<block_index>(oldest))));
  }
}

// Errors: std::bad_alloc; then nothing has changed.
void kv_pool::add_places(std::size_t units) {
  hotset::recency_list order(units, 1);
  blocks_.reserve(units);
  free_.reserve(units);
  for (auto s = cached_.front(0); s != hotset::no_slot; s = cached_.after(s)) order.push_back(0, s);
  cached_ = std::move(order);
  for (std::size_t block = units; block > blocks_.size(); --block) {
    free_.push_back(static_cast<block_index>(block - 1));
  }
  blocks_.resize(units);
}

}  // namespace tiny_moe
