// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A CUDA driver without a device: its memory is host memory, and it refuses the calls that a real driver refuses.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hotset/cuda/virtual_memory.hpp"

namespace hotset::support {

/// Records a violation for each call that a real driver refuses or leaves undefined. Reuses released handles, even
/// while their memory is still mapped.
class fake_cuda_driver final : public cuda::driver {
 public:
  using error_code = cuda::error_code;
  enum class call { granularity, reserve, free, create, release, map, unmap, set_access, any };

  static constexpr int devices = 2;

  explicit fake_cuda_driver(std::size_t granularity = std::size_t{2} << 20)
      : granularity_(granularity), file_(::memfd_create("fake_cuda_driver", MFD_CLOEXEC)) {
    if (file_ < 0) throw std::runtime_error("no memory file");
  }
  fake_cuda_driver(const fake_cuda_driver&) = delete;
  fake_cuda_driver& operator=(const fake_cuda_driver&) = delete;
  ~fake_cuda_driver() override {
    for (const auto& [address, range] : ranges_) (void)::munmap(pointer(address), range.bytes);
    ::close(file_);
  }

  /// The n-th such call from now on fails once; n = 1 is the next.
  void fail(call which, std::size_t nth, error_code code = error_code::memory_allocation) {
    armed_.push_back({which, nth, code});
  }
  /// Cancels the failures that have not occurred yet.
  void disarm() { armed_.clear(); }
  [[nodiscard]] bool armed() const { return !armed_.empty(); }
  [[nodiscard]] std::size_t calls(call which = call::any) const {
    return counts_[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
  /// Resources that were taken and not returned.
  [[nodiscard]] std::vector<std::string> leaks() const {
    std::vector<std::string> left;
    for (const auto& [address, range] : ranges_) {
      left.push_back("a reservation of " + std::to_string(range.bytes) + " bytes");
      for (const auto& [at, m] : range.mapped)
        left.push_back("a mapping of " + std::to_string(m.memory->bytes) + " bytes");
    }
    for (const auto& [handle, memory] : handles_)
      left.push_back("a handle of " + std::to_string(memory->bytes) + " bytes");
    return left;
  }
  /// Units: bytes that a handle or a mapping holds.
  [[nodiscard]] std::size_t physical_bytes() const { return *physical_bytes_; }
  /// Whether the device may read and write there.
  [[nodiscard]] bool has_access(const std::byte* at) const {
    for (const auto& [first, range] : ranges_)
      for (const auto& [address, m] : range.mapped)
        if (value(at) >= address && value(at) - address < m.memory->bytes) return m.access;
    return false;
  }
  /// The byte as the device sees it. Without access: null, and a violation.
  std::byte* touch(std::byte* at) {
    if (has_access(at)) return at;
    violations_.emplace_back("an access to an address without access");
    return nullptr;
  }

  [[nodiscard]] std::string_view error_name(error_code code) const noexcept override {
    return code == error_code::memory_allocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
  }
  [[nodiscard]] std::string_view error_text(error_code code) const noexcept override {
    return code == error_code::memory_allocation ? "out of memory" : "other";
  }

  error_code allocation_granularity(std::size_t& bytes, int device) noexcept override {
    if (const auto code = begin(call::granularity); code != error_code::success) return code;
    if (device < 0 || device >= devices) return error_code::invalid_device;
    bytes = granularity_;
    return error_code::success;
  }
  error_code reserve_addresses(std::uintptr_t& address, std::size_t bytes) noexcept override {
    if (const auto code = begin(call::reserve); code != error_code::success) return code;
    if (!is_size(bytes)) return refuse("a reservation of no multiple of the granularity");
    const auto taken = bytes + granularity_;
    void* const memory = ::mmap(nullptr, taken, PROT_NONE, no_memory, -1, 0);
    if (memory == MAP_FAILED) return error_code::memory_allocation;
    const auto first = reinterpret_cast<std::uintptr_t>(memory);
    const auto aligned = (first + granularity_ - 1) / granularity_ * granularity_;
    if (aligned != first) (void)::munmap(memory, aligned - first);
    if (const auto behind = first + taken - (aligned + bytes); behind != 0)
      (void)::munmap(pointer(aligned + bytes), behind);
    ranges_[aligned].bytes = bytes;
    address = aligned;
    return error_code::success;
  }
  error_code free_addresses(std::uintptr_t address, std::size_t bytes) noexcept override {
    if (const auto code = begin(call::free); code != error_code::success) return code;
    const auto range = ranges_.find(address);
    if (range == ranges_.end() || range->second.bytes != bytes)
      return refuse("freed addresses that are no reservation");
    if (!range->second.mapped.empty()) return refuse("freed addresses that are mapped");
    (void)::munmap(pointer(address), bytes);
    ranges_.erase(range);
    return error_code::success;
  }
  error_code create_memory(std::uint64_t& handle, std::size_t bytes, int device) noexcept override {
    if (const auto code = begin(call::create); code != error_code::success) return code;
    if (!is_size(bytes)) return refuse("memory of no multiple of the granularity");
    if (device < 0 || device >= devices) return error_code::invalid_device;
    if (::ftruncate(file_, static_cast<off_t>(file_end_ + bytes)) != 0)
      return error_code::memory_allocation;
    handle = 1;
    while (handles_.contains(handle)) ++handle;
    *physical_bytes_ += bytes;
    handles_[handle] = std::shared_ptr<const physical>(
        new physical{file_end_, bytes, device}, [held = physical_bytes_](const physical* memory) {
          *held -= memory->bytes;
          delete memory;
        });
    file_end_ += bytes;
    return error_code::success;
  }
  error_code release_memory(std::uint64_t handle) noexcept override {
    if (const auto code = begin(call::release); code != error_code::success) return code;
    return handles_.erase(handle) == 1 ? error_code::success : refuse("released no handle");
  }
  error_code map_memory(std::uintptr_t address, std::size_t bytes,
                        std::uint64_t handle) noexcept override {
    if (const auto code = begin(call::map); code != error_code::success) return code;
    auto* const range = find(address, bytes);
    const auto memory = handles_.find(handle);
    if (range == nullptr || address % granularity_ != 0 || !is_size(bytes))
      return refuse("mapped at addresses that are not reserved or not aligned");
    if (memory == handles_.end() || memory->second->bytes != bytes)
      return refuse("mapped no handle, or a part of its memory");
    for (const auto& [at, m] : range->mapped)
      if (at < address + bytes && address < at + m.memory->bytes)
        return refuse("mapped over a mapping");
    if (!show(address, *memory->second)) return error_code::memory_allocation;
    range->mapped[address] = {memory->second, false};
    return error_code::success;
  }
  error_code unmap_memory(std::uintptr_t address, std::size_t bytes) noexcept override {
    if (const auto code = begin(call::unmap); code != error_code::success) return code;
    auto* const m = find_mapping(address, bytes);
    if (m == nullptr) return refuse("unmapped what is no mapping");
    (void)::mmap(pointer(address), bytes, PROT_NONE, no_memory | MAP_FIXED, -1, 0);
    find(address, bytes)->mapped.erase(address);
    return error_code::success;
  }
  error_code set_access(std::uintptr_t address, std::size_t bytes, int device) noexcept override {
    if (const auto code = begin(call::set_access); code != error_code::success) return code;
    std::vector<mapping*> covered;
    for (auto at = address; at < address + bytes; at += covered.back()->memory->bytes) {
      auto* const m = find_mapping_at(at);
      if (m == nullptr || m->memory->bytes > address + bytes - at)
        return refuse("access to what is no mapping");
      if (m->memory->device != device) return refuse("access of another device");
      covered.push_back(m);
    }
    if (covered.empty()) return refuse("access to nothing");
    (void)::mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE);
    for (auto* const m : covered) m->access = true;
    return error_code::success;
  }

 private:
  static constexpr int no_memory = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

  struct failure_to_come {
    call which;
    std::size_t left;
    error_code code;
  };
  struct physical {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    int device = 0;
  };
  struct mapping {
    std::shared_ptr<const physical> memory{};
    bool access = false;
  };
  struct reservation {
    std::size_t bytes = 0;
    std::map<std::uintptr_t, mapping> mapped{};
  };

  static void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
  static std::uintptr_t value(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }
  [[nodiscard]] bool is_size(std::size_t bytes) const {
    return bytes != 0 && bytes % granularity_ == 0;
  }
  error_code begin(call which) {
    ++counts_[static_cast<std::size_t>(which)];
    ++counts_[static_cast<std::size_t>(call::any)];
    auto code = error_code::success;
    for (auto& f : armed_)
      if ((f.which == which || f.which == call::any) && --f.left == 0) code = f.code;
    std::erase_if(armed_, [](const failure_to_come& f) { return f.left == 0; });
    return code;
  }
  error_code refuse(std::string what) {
    violations_.push_back(std::move(what));
    return error_code::invalid_value;
  }
  bool show(std::uintptr_t address, const physical& memory) const {
    return ::mmap(pointer(address), memory.bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file_,
                  static_cast<off_t>(memory.offset)) != MAP_FAILED;
  }
  reservation* find(std::uintptr_t address, std::size_t bytes) {
    const auto behind = ranges_.upper_bound(address);
    if (behind == ranges_.begin()) return nullptr;
    auto& [first, range] = *std::prev(behind);
    return address + bytes <= first + range.bytes ? &range : nullptr;
  }
  mapping* find_mapping_at(std::uintptr_t address) {
    auto* const range = find(address, 0);
    if (range == nullptr) return nullptr;
    const auto m = range->mapped.find(address);
    return m != range->mapped.end() ? &m->second : nullptr;
  }
  mapping* find_mapping(std::uintptr_t address, std::size_t bytes) {
    auto* const m = find_mapping_at(address);
    return m != nullptr && m->memory->bytes == bytes ? m : nullptr;
  }

  std::size_t granularity_;
  int file_;
  std::size_t file_end_ = 0;
  std::shared_ptr<std::size_t> physical_bytes_ = std::make_shared<std::size_t>(0);
  std::map<std::uintptr_t, reservation> ranges_;
  std::map<std::uint64_t, std::shared_ptr<const physical>> handles_;
  std::vector<failure_to_come> armed_;
  std::array<std::size_t, static_cast<std::size_t>(call::any) + 1> counts_{};
  std::vector<std::string> violations_;
};

}  // namespace hotset::support
