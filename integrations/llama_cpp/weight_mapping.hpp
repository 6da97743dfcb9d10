// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells the system which pages of a model's mapped file are needed.

#include <cstddef>
#include <span>
#include <vector>

namespace hotset_llama_cpp {

/// A page fault makes the system read ahead. Experts are used in no order, so it would read those that are not needed,
/// and drop other weights for them. So faults do not read ahead, and weights are requested instead, until destruction.
/// Threads: `request` and `give_back` are safe.
class weight_mapping {
 public:
  /// `experts`: [layers][tensors] all bytes of experts. Those outside of shared mappings of files are ignored. Requests
  /// all other weights.
  explicit weight_mapping(const std::vector<std::vector<std::span<const std::byte>>>& experts);
  weight_mapping(const weight_mapping&) = delete;
  weight_mapping& operator=(const weight_mapping&) = delete;
  ~weight_mapping();

  /// Whether faults read ahead: they should while all weights are used in order.
  void set_read_ahead(bool on) const noexcept;
  /// Starts to read these bytes.
  void request(std::span<const std::byte> bytes) const noexcept;
  /// Gives whole pages back to the system: the slots hold their bytes now.
  void give_back(std::span<const std::byte> bytes) const noexcept;
  /// Requests the other weights that lie between the layer's experts and those of the next, if the system has dropped
  /// pages of this process lately.
  void request_others_after(std::size_t layer) noexcept;

 private:
  static constexpr std::size_t steps_to_request = 8;  ///< after a major fault

  std::vector<std::span<const std::byte>> files_;  ///< the mappings
  /// [layers] other weights behind the layer's experts in the file
  std::vector<std::vector<std::span<const std::byte>>> others_after_;
  long faults_ = 0;  ///< major faults seen
  std::size_t visits_left_ = 0;
};

/// The shared mapping of a file that holds the address; empty if there is none. Its pages can be given back without
/// loss.
[[nodiscard]] std::span<const std::byte> file_mapping_of(const std::byte* address);

}  // namespace hotset_llama_cpp
