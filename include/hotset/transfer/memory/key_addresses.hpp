// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An address of its own for every expert (Linux): an engine's kernel takes the expert's number as it is, and only experts that
/// are held have memory behind them.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset {

namespace detail {

#if defined(__linux__)

inline std::size_t system_page_bytes() noexcept {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}
/// Addresses without memory, or null with errno.
inline std::byte* reserve_pages(std::size_t bytes, bool guarded) noexcept {
  void* const out = ::mmap(nullptr, bytes, guarded ? PROT_NONE : PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return out == MAP_FAILED ? nullptr : static_cast<std::byte*>(out);
}
inline void release_pages(std::byte* begin, std::size_t bytes) noexcept { ::munmap(begin, bytes); }
inline memory_status open_pages(std::byte* begin, std::size_t bytes) noexcept {
  if (::mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0) return memory_status::ok;
  return errno == ENOMEM ? memory_status::out_of_memory : memory_status::failed;
}
inline void discard_pages(std::byte* begin, std::size_t bytes, bool guarded) noexcept {
  (void)::madvise(begin, bytes, MADV_DONTNEED);
  if (guarded) (void)::mprotect(begin, bytes, PROT_NONE);
}

#else

// On other systems no address is to be had, and nothing else is ever called.
inline std::size_t system_page_bytes() noexcept { return 4096; }
inline std::byte* reserve_pages(std::size_t, bool) noexcept {
  errno = ENOSYS;
  return nullptr;
}
inline void release_pages(std::byte*, std::size_t) noexcept {}
inline memory_status open_pages(std::byte*, std::size_t) noexcept { return memory_status::failed; }
inline void discard_pages(std::byte*, std::size_t, bool) noexcept {}

#endif

}  // namespace detail

/// Memory behind the address of an expert that is not held.
enum class absent_pages : std::uint8_t {
  guarded,  ///< nothing: a kernel that reads there stops with a segmentation fault; two system calls a change
  zeros,  ///< zeros: such a kernel computes a wrong answer; one system call where memory is given back
};

/// For each tensor of each layer one range of [experts] x tensor bytes, without gaps, at a page's begin: what an engine sets as its
/// weight. Neighbours share a page where a tensor's bytes are no multiple of it: it is given back when none of them is held.
/// A pager's slots are then permits: as many experts as it has slots are held, wherever they lie. Tell `drop` of its departures, and
/// let a backend over these addresses make the copies.
/// Threads: safe, but for the bytes. Memory: 4 bytes for each page, and a byte for each expert.
class key_addresses {
 public:
  /// `layouts`: by size class, at one precision. Errors: a shape that does not validate, or has several precisions; a size class without a
  /// layout; no addresses to be had.
  static result<key_addresses> create(const geometry& shape,
                                      const std::vector<expert_layout>& layouts,
                                      absent_pages absent = absent_pages::guarded) noexcept {
    return unless_out_of_memory(
        [&]() -> result<key_addresses> {
          if (auto bad = shape.validate()) return *std::move(bad);
          if (shape.precisions() != 1)
            return refusal("addresses by key of ", shape.precisions(), " precisions, accepted: 1");
          key_addresses out(shape, absent);
          const auto classes = shape.size_classes();
          for (const auto l : each<layer_id>(shape.layers)) {
            const auto c = index_of(classes[index_of(l)]);
            if (c >= layouts.size()) return refusal("no layout for size class ", c);
            if (auto bad = layouts[c].validate()) return *std::move(bad);
            out.first_tensor_.push_back(out.tensors_.size());
            for (const auto& t : layouts[c].tensors)
              if (auto bad = out.add_tensor(t.bytes)) return *std::move(bad);
          }
          out.first_tensor_.push_back(out.tensors_.size());
          out.users_.resize(out.pages_, 0);
          return out;
        },
        no_host_memory());
  }
  key_addresses(key_addresses&&) noexcept = default;
  key_addresses& operator=(key_addresses&&) = delete;
  /// Gives all memory and addresses back. Pre: no reads or writes there are under way.
  ~key_addresses() = default;

  /// Why a cache of `layout` cannot live here; nothing if it can.
  [[nodiscard]] validation check(const pool_layout& layout) const {
    const auto& other = layout.shape();
    if (other.layers == shape_.layers && other.experts == shape_.experts &&
        layout.precisions() == 1)
      return std::nullopt;
    return refusal("a cache of ", other.layers, " layers of ", other.experts, " experts at ",
                   layout.precisions(), " precisions, accepted: ", shape_.layers, " of ",
                   shape_.experts, " at 1");
  }

  /// All experts' places of one tensor of a layer. Stable for the object's life. Pre: both in range.
  [[nodiscard]] std::span<std::byte> addresses(layer_id layer, std::size_t tensor) const noexcept {
    const auto& t = tensor_of(layer, tensor);
    return {t.memory.get(), static_cast<std::size_t>(shape_.experts) * t.bytes};
  }
  [[nodiscard]] std::size_t tensors(expert_key key) const noexcept {
    const auto l = index_of(key.layer);
    return first_tensor_[l + 1] - first_tensor_[l];
  }
  /// Pre: in range. Only of a held expert may the bytes be touched.
  [[nodiscard]] std::span<std::byte> bytes(expert_key key, std::size_t tensor) const noexcept {
    const auto& t = tensor_of(key.layer, tensor);
    return {t.memory.get() + index_of(key.expert) * t.bytes, t.bytes};
  }

  /// Makes an expert's bytes writable, their content unknown; nothing more for one that is held.
  /// Errors: invalid_argument (no such expert); out_of_memory, failed (the platform's word): then it is not held.
  memory_status hold(expert_key key) noexcept {
    if (!shape_.contains(key)) return memory_status::invalid_argument;
    const std::lock_guard lock(*mutex_);
    auto& held = held_[shape_.index(key)];
    if (held != 0) return memory_status::ok;
    auto code = memory_status::ok;
    each_unused(key, [&](std::byte* begin, std::size_t bytes) {
      if (guards_ && code == memory_status::ok) code = detail::open_pages(begin, bytes);
    });
    if (code != memory_status::ok) {
      give_unused(key);
      return code;
    }
    each_page(key, [this](std::uint32_t& users) { held_pages_ += users++ == 0 ? 1U : 0U; });
    held = 1;
    return memory_status::ok;
  }
  /// Gives an expert's memory back; nothing for one that is not held. Pre: no reads or writes there are under way.
  void drop(expert_key key) noexcept {
    if (!shape_.contains(key)) return;
    const std::lock_guard lock(*mutex_);
    if (std::exchange(held_[shape_.index(key)], std::uint8_t{0}) == 0) return;
    each_page(key, [this](std::uint32_t& users) { held_pages_ -= --users == 0 ? 1U : 0U; });
    give_unused(key);
  }
  [[nodiscard]] bool is_held(expert_key key) const noexcept {
    if (!shape_.contains(key)) return false;
    const std::lock_guard lock(*mutex_);
    return held_[shape_.index(key)] != 0;
  }
  /// Units: bytes of pages that a held expert touches.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept {
    const std::lock_guard lock(*mutex_);
    return held_pages_ * page_;
  }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_; }

 private:
  struct unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* p) const noexcept { detail::release_pages(p, bytes); }
  };
  using range = std::unique_ptr<std::byte[], unmap>;
  struct weight_range {
    range memory;
    std::size_t bytes = 0;       ///< of one expert
    std::size_t first_page = 0;  ///< in users_
  };
  key_addresses(const geometry& shape, absent_pages absent)
      : shape_(shape),
        guards_(absent == absent_pages::guarded),
        page_(detail::system_page_bytes()),
        held_(shape.keys(), 0),
        mutex_(std::make_unique<std::mutex>()) {}

  validation add_tensor(std::uint64_t bytes) {
    const auto experts = static_cast<std::uint64_t>(shape_.experts);
    constexpr std::uint64_t most = std::uint64_t{1} << 46U;
    if (bytes > most / experts)
      return refusal("a tensor of ", bytes, " bytes for each of ", experts,
                     " experts, accepted: ", most, " bytes in all");
    const auto pages = (static_cast<std::size_t>(bytes * experts) + page_ - 1) / page_;
    auto* const begin = detail::reserve_pages(pages * page_, guards_);
    if (begin == nullptr)
      return refusal("cannot reserve ", pages * page_,
                     " bytes of addresses: ", std::generic_category().message(errno));
    range memory(begin, unmap{pages * page_});
    tensors_.push_back({std::move(memory), static_cast<std::size_t>(bytes), pages_});
    pages_ += pages;
    return std::nullopt;
  }

  [[nodiscard]] const weight_range& tensor_of(layer_id layer, std::size_t which) const noexcept {
    return tensors_[first_tensor_[index_of(layer)] + which];
  }
  /// Calls use(tensor, from, to) with the pages of each tensor that the expert touches.
  template <class Use>
  void each_tensor(expert_key key, Use use) noexcept {
    for (std::size_t which = 0; which < tensors(key); ++which) {
      const auto& t = tensor_of(key.layer, which);
      const auto begin = index_of(key.expert) * t.bytes;
      use(t, begin / page_, (begin + t.bytes + page_ - 1) / page_);
    }
  }
  /// Calls use(users) for each page that the expert touches.
  template <class Use>
  void each_page(expert_key key, Use use) noexcept {
    each_tensor(key, [&](const weight_range& t, std::size_t from, std::size_t to) {
      for (auto p = from; p < to; ++p) use(users_[t.first_page + p]);
    });
  }
  /// Calls act(begin, bytes) for each run of the expert's pages that has no user.
  template <class Act>
  void each_unused(expert_key key, Act act) noexcept {
    each_tensor(key, [&](const weight_range& t, std::size_t from, std::size_t to) {
      for (std::size_t end = from; from < to; from = end + 1) {
        for (end = from; end < to && users_[t.first_page + end] == 0;) ++end;
        if (end > from) act(t.memory.get() + from * page_, (end - from) * page_);
      }
    });
  }
  void give_unused(expert_key key) noexcept {
    each_unused(key, [this](std::byte* begin, std::size_t bytes) {
      detail::discard_pages(begin, bytes, guards_);
    });
  }

  geometry shape_;
  bool guards_;
  std::size_t page_;
  std::vector<weight_range> tensors_;      ///< of each layer, in layout order
  std::vector<std::size_t> first_tensor_;  ///< [layers + 1]
  std::vector<std::uint32_t> users_;       ///< [pages] held experts that touch it
  std::vector<std::uint8_t> held_;         ///< [keys]
  std::size_t pages_ = 0;
  std::uint64_t held_pages_ = 0;
  std::unique_ptr<std::mutex> mutex_;
};

}  // namespace hotset
