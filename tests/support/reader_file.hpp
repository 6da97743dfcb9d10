// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file of experts for tests of readers, buffers that notice writes beyond them, and random reads.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/transfer/expert_extents.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "random_source.hpp"

namespace hotset::support {

/// A file of experts of three tensors, and their places. In odd layers the tensors of an expert lie apart.
struct reader_file {
  static constexpr std::array<std::uint64_t, 3> sizes{96, 33, 257};
  static constexpr std::uint64_t expert_bytes = 96 + 33 + 257;
  /// Is in the file, but is not added to a reader.
  static constexpr expert_key absent{layer_id{1}, expert_id{3}};
  static geometry shape() {
    return {.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {expert_bytes}};
  }
  static std::vector<expert_layout> layouts() {
    return {{{{"gate", sizes[0]}, {"up", sizes[1]}, {"down", sizes[2]}}}};
  }

  reader_file() : where(shape().keys()) {
    for (const auto layer : each<layer_id>(2)) {
      const bool apart = number(layer) % 2 == 1;
      for (std::size_t n = 0; n < 3 * 8; ++n) {
        const auto expert = static_cast<expert_id>(apart ? n % 8 : n / 3);
        write({layer, expert}, apart ? n / 8 : n % 3);
      }
    }
  }
  /// Adds all experts but `absent`.
  template <class Reader>
  void add_to(Reader& reader) const {
    for (std::size_t k = 0; k < where.size(); ++k) {
      const auto key = shape().key(k);
      EXPECT_TRUE(key == absent || !reader.add(key, {}, where[k]));
    }
  }
  [[nodiscard]] const std::array<file_extent, 3>& at(expert_key key) const {
    return where[shape().index(key)];
  }

  std::string bytes;
  std::vector<std::array<file_extent, 3>> where;  ///< [keys]

 private:
  void write(expert_key key, std::size_t tensor) {
    where[shape().index(key)][tensor] = {0, bytes.size(), sizes[tensor]};
    for (std::size_t i = 0; i < sizes[tensor]; ++i)
      bytes += static_cast<char>(pattern(key, tensor, i));
  }
};

/// Buffers for parts, each between bytes that must not change.
class guarded_parts {
 public:
  void add(std::size_t tensor, std::uint64_t at, std::size_t bytes) {
    auto& buffer = buffers_.emplace_back(bytes + 2 * guard, guard_byte);
    parts_.push_back({tensor, at, std::span(buffer).subspan(guard, bytes)});
  }
  void add_all() {
    for (std::size_t t = 0; t < 3; ++t) add(t, 0, reader_file::sizes[t]);
  }
  [[nodiscard]] std::span<const tensor_part> parts() const { return parts_; }
  [[nodiscard]] bool hold(expert_key key) const {
    for (const auto& [tensor, at, to] : parts_)
      for (std::size_t i = 0; i < to.size(); ++i)
        if (to[i] != pattern(key, tensor, at + i)) return false;
    return true;
  }
  [[nodiscard]] bool are_untouched() const {
    for (const auto& part : parts_)
      for (const auto byte : part.to)
        if (byte != guard_byte) return false;
    return true;
  }
  ~guarded_parts() {
    for (const auto& buffer : buffers_)
      for (std::size_t i = 0; i < guard; ++i) {
        EXPECT_EQ(buffer[i], guard_byte) << "written before the buffer";
        EXPECT_EQ(buffer[buffer.size() - 1 - i], guard_byte) << "written beyond the buffer";
      }
  }
  guarded_parts() = default;
  guarded_parts(const guarded_parts&) = delete;
  guarded_parts& operator=(const guarded_parts&) = delete;

 private:
  static constexpr std::size_t guard = 32;
  static constexpr std::byte guard_byte{0xff};  // no byte of a pattern
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<tensor_part> parts_;
};

/// Reads random parts of random experts, alone and together. Returns the number of failed reads.
template <class Reader>
int failed_reads(const Reader& reader, std::uint64_t seed, int count) {
  random_source random(seed);
  int failed = 0;
  for (int n = 0; n < count; ++n) {
    auto key = reader_file::shape().key(random.below(16));
    if (key == reader_file::absent) key.layer = layer_id{0};
    guarded_parts parts;
    for (std::size_t t = 0; t < 3; ++t) {
      const auto at = random.one_in(2) ? 0 : random.below(reader_file::sizes[t]);
      if (!random.one_in(3)) parts.add(t, at, 1 + random.below(reader_file::sizes[t] - at));
    }
    if (parts.parts().empty()) continue;
    if (!detail::read_parts(reader, key, {}, parts.parts()))
      ++failed;
    else
      EXPECT_TRUE(parts.hold(key));
  }
  return failed;
}

}  // namespace hotset::support
