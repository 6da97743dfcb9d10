// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts whose bytes identify them, on the host as the test chooses, with slots on the device.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include <cuda_runtime_api.h>

#include "device_support.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/slot_bank.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace hotset::gpu {

/// All experts have the same tensors. Host memory is page-locked in one piece, or pageable.
class paged_model {
 public:
  paged_model(const pool_layout& pools, std::vector<std::uint64_t> tensor_bytes_of,
              bool page_locked)
      : shape_(pools.shape()),
        layouts_(1),
        pages(cuda::system_runtime(), std::uint64_t{8} << 30),
        source(memory_expert_source::create(shape_, layouts_of(tensor_bytes_of)).value()),
        bank(cuda::slot_bank::create(cuda::system_runtime(), pools, layouts_, {}).value()) {
    std::size_t expert = 0;
    for (const auto bytes : tensor_bytes_of) expert += bytes;
    const auto total = expert * shape_.keys();
    if (page_locked) {
      host_ = pages.allocate(total).value();
    } else {
      pageable_.resize(total);
      host_ = pageable_;
    }
    auto* at = host_.data();
    for (std::size_t k = 0; k < shape_.keys(); ++k) {
      std::vector<hotset::tensor_bytes> views;
      for (std::size_t t = 0; t < tensor_bytes_of.size(); ++t) {
        const std::span<std::byte> tensor(at, tensor_bytes_of[t]);
        for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = pattern(shape_.key(k), t, i);
        views.emplace_back(tensor);
        at += tensor.size();
      }
      if (source.add(shape_.key(k), views)) throw std::runtime_error("a tensor was refused");
    }
  }

  /// Copies a slot's bytes in stream order, as a kernel would read them. Shape: [tensors][bytes].
  void read(slot_id slot, std::byte* to, cuda::stream_handle stream) const {
    for (std::size_t t = 0; t < bank.tensors(slot); ++t) {
      const auto from = bank.bytes(slot, t);
      HOTSET_REQUIRE(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyDeviceToHost, stream));
      to += from.size();
    }
  }
  [[nodiscard]] bool is_expert(const std::byte* bytes, expert_key key) const {
    for (const auto tensor : source.tensors(key, 0_precision)) {
      if (std::memcmp(bytes, tensor.data(), tensor.size()) != 0) return false;
      bytes += tensor.size();
    }
    return true;
  }
  [[nodiscard]] bool holds(slot_id slot, expert_key key, cuda::stream_handle stream) const {
    std::vector<std::byte> bytes(expert_bytes());
    read(slot, bytes.data(), stream);
    HOTSET_REQUIRE(cudaStreamSynchronize(stream));
    return is_expert(bytes.data(), key);
  }
  [[nodiscard]] std::size_t expert_bytes() const { return layouts_[0].bytes(); }

 private:
  static std::byte pattern(expert_key key, std::size_t tensor, std::size_t at) {
    const auto mixed =
        (static_cast<std::size_t>(key.layer) * 131 + static_cast<std::size_t>(key.expert)) * 7 +
        tensor * 53 + at * 3 + at / 241;
    return static_cast<std::byte>(mixed % 251);
  }
  const std::vector<expert_layout>& layouts_of(const std::vector<std::uint64_t>& sizes) {
    for (const auto bytes : sizes) layouts_[0].tensors.push_back({"tensor", bytes});
    return layouts_;
  }

  geometry shape_;
  std::vector<expert_layout> layouts_;
  std::vector<std::byte> pageable_;
  std::span<std::byte> host_;

 public:
  cuda::pinned_memory pages;
  memory_expert_source source;
  cuda::slot_bank bank;
};

}  // namespace hotset::gpu
