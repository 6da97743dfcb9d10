// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells the system which pages of a model's mapped file are needed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hotset_llama_cpp {

/// A shared mapping of a file. Its pages can be given back without loss.
struct file_mapping {
  std::span<const std::byte> bytes{};  ///< empty: none
  std::uint64_t offset = 0;            ///< of the first byte in the file
  std::string path{};
};
/// The mapping that holds the address.
[[nodiscard]] file_mapping file_mapping_of(const std::byte* address);

/// A page fault makes the system read ahead. Prompts use all weights in order and need that. Single tokens use experts
/// in no order: the system would read those that are not needed, and drop other weights for them. So faults then do not
/// read ahead, and other weights are requested instead. Threads: `request` and `give_back` are safe.
class weight_mapping {
 public:
  /// `experts`: [layers][tensors] all bytes of experts. Those outside of shared mappings of files are ignored.
  /// `pages_fit`: memory has room for all pages beside the slots. Otherwise drops them, so that the system reads in
  /// large pieces into free memory.
  weight_mapping(const std::vector<std::vector<std::span<const std::byte>>>& experts,
                 bool pages_fit);
  weight_mapping(const weight_mapping&) = delete;
  weight_mapping& operator=(const weight_mapping&) = delete;
  ~weight_mapping();

  /// Whether faults read ahead, as they do at first.
  void set_read_ahead(bool on) noexcept;
  /// Starts to read these bytes.
  void request(std::span<const std::byte> bytes) const noexcept;
  /// Gives whole pages back to the system, whose file cache drops them if memory has no room: the slots hold their
  /// bytes now, or the layer was computed.
  void give_back(std::span<const std::byte> bytes) const noexcept;
  /// Requests the other weights that lie between the layer's experts and those of the next, if faults have just ceased
  /// to read ahead or the system has dropped pages of this process lately.
  void request_others_after(std::size_t layer) noexcept;

 private:
  static constexpr std::size_t steps_to_request = 8;  ///< after a major fault or a prompt

  struct mapped_file {
    std::span<const std::byte> bytes;
    std::uint64_t offset = 0;
    int descriptor = -1;  ///< -1: the file cache keeps its pages
  };
  std::vector<mapped_file> files_;
  /// Weights before the first experts of each file; empty once they were requested.
  std::vector<std::span<const std::byte>> first_;
  /// [layers] other weights behind the layer's experts in the file
  std::vector<std::vector<std::span<const std::byte>>> others_after_;
  bool reads_ahead_ = true;
  long faults_ = 0;  ///< major faults seen
  std::size_t visits_left_ = 0;
};

}  // namespace hotset_llama_cpp
