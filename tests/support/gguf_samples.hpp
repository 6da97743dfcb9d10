// SPDX-License-Identifier: Apache-2.0
#pragma once
/// GGUF files made byte by byte, and small models in them.

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gguf_samples {

using extents = std::vector<std::uint64_t>;

inline constexpr std::uint32_t f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8, q4_k = 12, q6_k = 14,
                               mxfp4 = 39;

template <class T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}
inline std::string text(std::string_view value) {
  return raw<std::uint64_t>(value.size()).append(value);
}

/// Elements of the first dimension in a block, and bytes of a block.
inline std::pair<std::uint64_t, std::uint64_t> block_of(std::uint32_t type) {
  static const std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> blocks = {
      {f32, {1, 4}},      {f16, {1, 2}},      {q4_0, {32, 18}}, {q8_0, {32, 34}},
      {q4_k, {256, 144}}, {q6_k, {256, 210}}, {mxfp4, {32, 17}}};
  return blocks.at(type);
}
inline std::uint64_t bytes_of(const extents& dimensions, std::uint32_t type) {
  const auto [block, bytes] = block_of(type);
  return std::accumulate(dimensions.begin(), dimensions.end(), std::uint64_t{1},
                         std::multiplies<>()) /
         block * bytes;
}

/// Collects entries and tensors; bytes() lays them out as a writer does. Data is zero.
class file {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  ///< used by the layout; a key in the file states it

  file& entry(std::string_view key, std::uint32_t type, std::string_view value) {
    entries_ += text(key) + raw(type) + std::string(value);
    ++entry_count_;
    return *this;
  }
  file& number(std::string_view key, std::uint32_t value) { return entry(key, 4, raw(value)); }
  file& word(std::string_view key, std::string_view value) { return entry(key, 8, text(value)); }
  file& flag(std::string_view key, bool value) { return entry(key, 7, raw<std::uint8_t>(value)); }
  file& numbers(std::string_view key, const std::vector<std::int32_t>& values) {
    std::string all = raw<std::uint32_t>(5) + raw<std::uint64_t>(values.size());
    for (const auto value : values) all += raw(value);
    return entry(key, 9, all);
  }
  file& flags(std::string_view key, const std::vector<bool>& values) {
    std::string all = raw<std::uint32_t>(7) + raw<std::uint64_t>(values.size());
    for (const bool value : values) all += raw<std::uint8_t>(value);
    return entry(key, 9, all);
  }
  file& words(std::string_view key, const std::vector<std::string>& values) {
    std::string all = raw<std::uint32_t>(8) + raw<std::uint64_t>(values.size());
    for (const auto& value : values) all += text(value);
    return entry(key, 9, all);
  }
  /// Places the tensor at the next free offset.
  file& tensor(std::string_view name, const extents& dimensions, std::uint32_t type) {
    return tensor_at(name, dimensions, type, aligned(data_), bytes_of(dimensions, type));
  }
  /// Writes any values, valid or not.
  file& tensor_at(std::string_view name, const extents& dimensions, std::uint32_t type,
                  std::uint64_t offset, std::uint64_t bytes) {
    tensors_ += text(name) + raw(static_cast<std::uint32_t>(dimensions.size()));
    for (const auto extent : dimensions) tensors_ += raw(extent);
    tensors_ += raw(type) + raw(offset);
    data_ = offset + bytes;
    ++tensor_count_;
    return *this;
  }

  [[nodiscard]] std::string header() const { return header(tensor_count_, entry_count_); }
  /// Writes the given counts.
  [[nodiscard]] std::string header(std::uint64_t tensors, std::uint64_t entries) const {
    return "GGUF" + raw(version) + raw(tensors) + raw(entries) + entries_ + tensors_;
  }
  [[nodiscard]] std::string bytes() const {
    auto out = header();
    out.resize(static_cast<std::size_t>(aligned(out.size()) + data_), '\0');
    return out;
  }
  [[nodiscard]] std::uint64_t data_bytes() const { return data_; }

 private:
  [[nodiscard]] std::uint64_t aligned(std::uint64_t at) const {
    return (at + alignment - 1) / alignment * alignment;
  }

  std::string entries_, tensors_;
  std::uint64_t entry_count_ = 0, tensor_count_ = 0, data_ = 0;
};

/// Keys of every model: two blocks, width 64, four heads, four experts, top-2.
inline file model(std::string_view architecture, std::uint32_t blocks = 2) {
  file out;
  const auto key = [&](std::string_view name) {
    return std::string(architecture) + "." + std::string(name);
  };
  out.word("general.architecture", architecture)
      .words("tokenizer.ggml.tokens", {"a", "", "longer"})
      .number(key("block_count"), blocks)
      .number(key("context_length"), 4096)
      .number(key("embedding_length"), 64)
      .number(key("attention.head_count"), 4)
      .number(key("expert_count"), 4)
      .number(key("expert_used_count"), 2);
  return out;
}
/// Gate, up and down of four experts of width 32.
inline file& add_experts(file& out, int block, std::uint32_t type = f16) {
  const auto name = "blk." + std::to_string(block) + ".ffn_";
  return out.tensor(name + "gate_exps.weight", {64, 32, 4}, type)
      .tensor(name + "up_exps.weight", {64, 32, 4}, type)
      .tensor(name + "down_exps.weight", {32, 64, 4}, type);
}
inline constexpr std::uint64_t expert_elements = 3 * 64 * 32;

/// A complete small model without an output head.
inline file small_model() {
  auto out = model("qwen3moe");
  out.number("qwen3moe.attention.head_count_kv", 2)
      .number("qwen3moe.attention.key_length", 32)
      .number("qwen3moe.attention.value_length", 16);
  out.tensor("token_embd.weight", {64, 100}, f16);
  for (int block = 0; block < 2; ++block) {
    out.tensor("blk." + std::to_string(block) + ".attn_norm.weight", {64}, f32);
    add_experts(out, block);
  }
  return out;
}

}  // namespace gguf_samples
