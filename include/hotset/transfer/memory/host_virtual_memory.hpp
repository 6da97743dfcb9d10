// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Virtual memory of the host (Linux): inaccessible address ranges, and pages of one memory file mapped into them.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "hotset/core/error.hpp"
#include "hotset/transfer/memory/mapping_ledger.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset {

#if defined(__linux__)

/// Reading an unmapped address is a segmentation fault. A new block contains zeros. Pre: the object outlives its
/// ranges. The kernel limits the mappings of a process (vm.max_map_count, 65530 by default); scattered pages need two
/// each.
class host_virtual_memory {
 public:
  /// `granularity`: bytes, a multiple of the page size; 0: the page size. Errors: another granularity; no memory file
  /// is available.
  static result<host_virtual_memory> create(std::size_t granularity = 0) noexcept {
    const auto page = page_bytes();
    if (granularity % page != 0)
      return refusal("granularity = ", granularity, " bytes, accepted: multiples of ", page);
    const int file = ::memfd_create("hotset", MFD_CLOEXEC);
    if (file < 0) return refusal("memfd_create: error ", errno);
    return host_virtual_memory(file, granularity == 0 ? page : granularity);
  }

  host_virtual_memory(host_virtual_memory&& other) noexcept
      : file_(std::exchange(other.file_, -1)),
        file_end_(other.file_end_),
        spare_(std::exchange(other.spare_, {})),
        ledger_(std::move(other.ledger_)) {}
  host_virtual_memory& operator=(host_virtual_memory&&) = delete;
  ~host_virtual_memory() {
    if (file_ < 0) return;
    give_spare();
    ::close(file_);
  }

  [[nodiscard]] std::size_t granularity() const noexcept { return ledger_.granularity(); }
  /// Units: bytes. See mapping_ledger.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept { return ledger_.reserved_bytes(); }
  [[nodiscard]] std::uint64_t physical_bytes() const noexcept { return ledger_.physical_bytes(); }

  memory_status reserve(std::size_t bytes, std::span<std::byte>& range) noexcept {
    return ledger_.reserve(bytes, range, [&](std::span<std::byte>& taken) {
      auto* const first = take_addresses(nullptr, bytes, 0);
      if (first == nullptr) return why();
      taken = {first, bytes};
      return memory_status::ok;
    });
  }
  memory_status release(std::span<std::byte> range) noexcept {
    return ledger_.release(range, [&] {
      return ::munmap(range.data(), range.size()) == 0 ? memory_status::ok : why();
    });
  }
  memory_status create_block(std::size_t bytes, memory_block& block) noexcept {
    return ledger_.create_block(bytes, block, [&](std::uint64_t& place) {
      // Refuses more than the machine has, because the kernel would kill processes to provide it.
      if (bytes > machine_bytes() - ledger_.physical_bytes()) return memory_status::out_of_memory;
      // Allocates the pages now: a page missing at its first write would be a bus error.
      if (!change_file(0, file_end_, bytes)) return why();
      place = std::exchange(file_end_, file_end_ + bytes);
      return memory_status::ok;
    });
  }
  memory_status destroy_block(memory_block block) noexcept {
    return ledger_.destroy_block(block, [&](std::uint64_t place, bool is_gone) {
      if (is_gone) discard(place, block.bytes);
      return memory_status::ok;
    });
  }
  memory_status map(std::span<std::byte> range, std::size_t offset, memory_block block) noexcept {
    return ledger_.map(range, offset, block, [&](std::uint64_t place) {
      // Populates multi-page blocks, because a fault for each page costs more than the copy. If the kernel does not
      // populate, pages fault in one by one.
      const int at_once = block.bytes > page_bytes() ? MAP_POPULATE : 0;
      const auto* const mapped =
          ::mmap(range.data() + offset, block.bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | at_once, file_, static_cast<off_t>(place));
      if (mapped == MAP_FAILED) return why();
      // A forked process would share the pages: its copies would overwrite the experts of this one.
      (void)::madvise(range.data() + offset, block.bytes, MADV_DONTFORK);
      return memory_status::ok;
    });
  }
  memory_status unmap(std::span<std::byte> range, std::size_t offset, std::size_t bytes) noexcept {
    return ledger_.unmap(range, offset, bytes, [&](std::uint64_t place, bool is_gone) {
      if (!empty_place(range.data() + offset, bytes)) return why();
      if (is_gone) discard(place, bytes);
      return memory_status::ok;
    });
  }

 private:
  static constexpr std::size_t spare_pages = 6;

  host_virtual_memory(int file, std::size_t granularity) noexcept
      : file_(file), ledger_(granularity) {
    take_spare();
  }

  static std::size_t page_bytes() noexcept {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }
  static std::uint64_t machine_bytes() noexcept {
    return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes();
  }
  /// Converts errno to a memory_status.
  static memory_status why() noexcept {
    return errno == ENOMEM || errno == ENOSPC || errno == EFBIG ? memory_status::out_of_memory
                                                                : memory_status::failed;
  }
  static std::byte* take_addresses(std::byte* at, std::size_t bytes, int flags) noexcept {
    void* const first =
        ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    return first == MAP_FAILED ? nullptr : static_cast<std::byte*>(first);
  }
  /// A process at its mapping limit cannot map anything, not even to undo a mapping. Frees the spare mappings first.
  bool empty_place(std::byte* at, std::size_t bytes) noexcept {
    if (take_addresses(at, bytes, MAP_FIXED) != nullptr) return true;
    if (errno != ENOMEM || spare_.empty()) return false;
    give_spare();
    const bool done = take_addresses(at, bytes, MAP_FIXED) != nullptr;
    const auto reason = errno;
    take_spare();
    errno = reason;
    return done;
  }
  /// Reserves spare mappings: pages with alternating access are separate mappings.
  void take_spare() noexcept {
    const auto page = page_bytes();
    auto* const first = take_addresses(nullptr, spare_pages * page, 0);
    if (first == nullptr) return;
    spare_ = {first, spare_pages * page};
    for (std::size_t i = 1; i < spare_pages; i += 2)
      if (::mprotect(first + i * page, page, PROT_READ) != 0) return give_spare();
  }
  void give_spare() noexcept {
    if (!spare_.empty()) (void)::munmap(spare_.data(), spare_.size());
    spare_ = {};
  }
  bool change_file(int mode, std::uint64_t offset, std::size_t bytes) const noexcept {
    int code = 0;
    do {
      code = ::fallocate(file_, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    } while (code != 0 && errno == EINTR);
    return code == 0;
  }
  /// Punches a hole and ignores the result: the kernel has no reason to refuse it in this file.
  void discard(std::uint64_t offset, std::size_t bytes) const noexcept {
    (void)change_file(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
  }

  int file_;
  std::uint64_t file_end_ = 0;  ///< each block gets a new place in the file; places are not reused
  std::span<std::byte> spare_{};  ///< mappings reserved for `unmap`
  mapping_ledger ledger_;
};

#else

/// Not supported on this system: `create` fails. Banks of a fixed size do not need it.
class host_virtual_memory {
 public:
  /// Errors: always.
  static result<host_virtual_memory> create(std::size_t = 0) noexcept {
    return error{"host virtual memory is not supported on this system, accepted: Linux"};
  }

  [[nodiscard]] std::size_t granularity() const noexcept { return 1; }
  memory_status reserve(std::size_t, std::span<std::byte>&) noexcept { return none; }
  memory_status release(std::span<std::byte>) noexcept { return none; }
  memory_status create_block(std::size_t, memory_block&) noexcept { return none; }
  memory_status destroy_block(memory_block) noexcept { return none; }
  memory_status map(std::span<std::byte>, std::size_t, memory_block) noexcept { return none; }
  memory_status unmap(std::span<std::byte>, std::size_t, std::size_t) noexcept { return none; }

 private:
  static constexpr memory_status none = memory_status::failed;
};

#endif

static_assert(virtual_memory<host_virtual_memory>);

}  // namespace hotset
