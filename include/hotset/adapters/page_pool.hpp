// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The physical pages of one device that virtual weight tensors share: taken, shared and given back by reference count.
///
/// Rule: a page is free, or it has one user or more; the page that was given back last is taken first. Without a free page
///   one is created, up to a bound: most_pages until the pool is resized, then what it was resized to.
/// Source: ExpertWeave, section 4.2 (the physical memory pool).
/// Cost: O(1) per page; nothing is allocated after construction but the pages.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset {

/// Index of a page in its pool; another page may have it later.
using page_id = std::uint32_t;
/// No page.
inline constexpr page_id no_page = std::numeric_limits<page_id>::max();

/// Sizes of a pool.
struct page_pool_config {
  std::size_t page_bytes = std::size_t{2} << 20;  ///< a multiple of the memory's granularity
  std::uint32_t most_pages = 0;                   ///< that there may ever be

  static constexpr std::uint32_t page_limit = std::uint32_t{1} << 24;
  static constexpr std::uint64_t byte_limit = std::uint64_t{1} << 36;

  [[nodiscard]] validation validate() const {
    if (page_bytes < 1 || page_bytes > byte_limit)
      return refuse_value("page_bytes", page_bytes, "1.." + std::to_string(byte_limit));
    if (most_pages > page_limit)
      return refuse_value("most_pages", most_pages, "at most " + std::to_string(page_limit));
    return std::nullopt;
  }
};

/// A resizable_pool that is always drained: pages in use stay what and where they are. Threads: compatible.
/// What is still mapped when the pool ends keeps its bytes until it is unmapped.
template <virtual_memory Memory>
class page_pool {
 public:
  using config = page_pool_config;

  /// `memory` outlives the pool, and so does `budget`, which counts every page that exists; null: nobody counts.
  /// Errors: those of the configuration, an uneven page, no host memory.
  static result<page_pool> create(Memory& memory, const config& setup,
                                  memory_budget* budget = nullptr) noexcept {
    if (auto bad = setup.validate()) return *std::move(bad);
    if (setup.page_bytes % memory.granularity() != 0)
      return error{"page_bytes = " + std::to_string(setup.page_bytes) +
                   ", accepted: multiples of " + std::to_string(memory.granularity())};
    return unless_out_of_memory(
        [&]() -> result<page_pool> { return page_pool(memory, setup, budget); }, no_host_memory());
  }
  page_pool(page_pool&&) noexcept = default;
  page_pool& operator=(page_pool&&) = delete;
  ~page_pool() {
    for (const auto& block : blocks_) {
      if (block == memory_block{}) continue;
      (void)memory_->destroy_block(block);
      give_back_bytes(1);
    }
  }

  [[nodiscard]] Memory& memory() const noexcept { return *memory_; }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }

  /// Fills `pages` with pages of one user each and of unknown content; all or none.
  /// Errors: out_of_memory (the bound or the budget), those of create_block; then nothing has changed.
  memory_status take(std::span<page_id> pages) noexcept {
    const auto missing = pages.size() - std::min(pages.size(), free_.size());
    if (missing > bound_ - capacity()) return memory_status::out_of_memory;
    if (const auto code = add_pages(missing); code != memory_status::ok) return code;
    for (auto& page : pages) {
      page = free_.back();
      free_.pop_back();
      uses_[page] = 1;
    }
    peak_ = std::max(peak_, in_use());
    return memory_status::ok;
  }
  /// One more user. Errors: invalid_argument (a page that nobody uses).
  memory_status share(page_id page) noexcept {
    if (uses(page) == 0) return memory_status::invalid_argument;
    ++uses_[page];
    return memory_status::ok;
  }
  /// One user less; without any the page is free. Pre: the last user has it mapped nowhere.
  /// Errors: invalid_argument (a page that nobody uses).
  memory_status give(page_id page) noexcept {
    if (uses(page) == 0) return memory_status::invalid_argument;
    if (--uses_[page] == 0) free_.push_back(page);
    return memory_status::ok;
  }
  /// Users of a page; 0 of one that is free, or is none.
  [[nodiscard]] std::uint32_t uses(page_id page) const noexcept {
    return page < uses_.size() ? uses_[page] : 0;
  }
  /// Pre: somebody uses the page.
  [[nodiscard]] const memory_block& block(page_id page) const noexcept {
    HOTSET_ASSERT(uses(page) != 0);
    return blocks_[page];
  }

  /// Free pages.
  [[nodiscard]] std::size_t free() const noexcept { return free_.size(); }
  /// Pages that there may be.
  [[nodiscard]] std::uint64_t bound() const noexcept { return bound_; }
  /// Pages that there could be now: as many as the bound and what is left of the budget allow.
  [[nodiscard]] std::uint64_t attainable() const noexcept {
    if (budget_ == nullptr) return bound_;
    const auto left = budget_->limit() - std::min(budget_->limit(), budget_->in_use());
    return std::min(bound_, capacity() + left / page_bytes_);
  }
  /// Destroys free pages until `keep` of them are left, all that must go or none; the bound stays.
  /// Should the memory refuse a page and then the undoing too, fewer are left.
  memory_status trim(std::size_t keep) noexcept {
    return drop_pages(free_.size() - std::min(free_.size(), keep));
  }

  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return page_bytes_; }
  /// Pages that exist.
  [[nodiscard]] std::uint64_t capacity() const noexcept { return blocks_.size() - vacant_.size(); }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return capacity() - free_.size(); }
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }
  void reset_peak() noexcept { peak_ = in_use(); }
  [[nodiscard]] bool drained() const noexcept { return true; }
  /// From then on there are no more than `units` pages, until the pool grows.
  /// Errors: invalid_argument (less than are in use, more than there are), busy (the memory refuses to take a page).
  status shrink(std::uint64_t units) noexcept {
    if (units < in_use() || units > capacity()) return status::invalid_argument;
    if (drop_pages(capacity() - units) != memory_status::ok) return status::busy;
    bound_ = units;
    return status::ok;
  }
  /// From then on there may be `units` pages, and there are.
  /// Errors: invalid_argument (less than there are), exceeds_memory (more than most_pages, or than there is memory for).
  status grow(std::uint64_t units) noexcept {
    if (units < capacity()) return status::invalid_argument;
    if (units > blocks_.size() || add_pages(units - capacity()) != memory_status::ok)
      return status::exceeds_memory;
    bound_ = units;
    return status::ok;
  }

 private:
  page_pool(Memory& memory, const config& setup, memory_budget* budget)
      : memory_(&memory),
        budget_(budget),
        page_bytes_(setup.page_bytes),
        bound_(setup.most_pages),
        blocks_(setup.most_pages),
        uses_(setup.most_pages) {
    free_.reserve(setup.most_pages);
    vacant_.reserve(setup.most_pages);
    for (page_id page = setup.most_pages; page-- > 0;) vacant_.push_back(page);
  }

  /// Pre: there is a vacant place, and the budget has counted the page.
  memory_status add_page() noexcept {
    const auto page = vacant_.back();
    const auto code = memory_->create_block(page_bytes_, blocks_[page]);
    if (code != memory_status::ok) return code;
    vacant_.pop_back();
    free_.push_back(page);
    return memory_status::ok;
  }
  /// Destroys the page that became free last. Pre: there is one.
  memory_status drop_page() noexcept {
    const auto page = free_.back();
    const auto code = memory_->destroy_block(blocks_[page]);
    if (code != memory_status::ok) return code;
    blocks_[page] = {};
    give_back_bytes(1);
    free_.pop_back();
    vacant_.push_back(page);
    return memory_status::ok;
  }
  /// All or none; a page that the memory does not take back is a free one. Pre: there are vacant places.
  memory_status add_pages(std::uint64_t count) noexcept {
    // A budget beyond its limit refuses 0 bytes, too; pages that exist need none of it.
    if (count != 0 && budget_ != nullptr && !budget_->take(count * page_bytes_))
      return memory_status::out_of_memory;
    for (std::uint64_t done = 0; done < count; ++done)
      if (const auto code = add_page(); code != memory_status::ok) {
        give_back_bytes(count - done);
        while (done-- > 0 && drop_page() == memory_status::ok) {
        }
        return code;
      }
    return memory_status::ok;
  }
  /// All or none: what is in a free page is nobody's, so that another one is as good.
  memory_status drop_pages(std::uint64_t count) noexcept {
    for (std::uint64_t done = 0; done < count; ++done)
      if (const auto code = drop_page(); code != memory_status::ok) {
        while (done-- > 0 && add_pages(1) == memory_status::ok) {
        }
        return code;
      }
    return memory_status::ok;
  }
  void give_back_bytes(std::uint64_t pages) noexcept {
    if (budget_ != nullptr) budget_->give_back(pages * page_bytes_);
  }

  Memory* memory_;
  memory_budget* budget_;
  std::size_t page_bytes_;
  std::uint64_t bound_;
  std::uint64_t peak_ = 0;
  std::vector<memory_block> blocks_;  ///< [most_pages]; none where no page is
  std::vector<std::uint32_t> uses_;   ///< [most_pages]
  std::vector<page_id> free_;         ///< the last one is taken first
  std::vector<page_id> vacant_;       ///< where no page is
};

}  // namespace hotset
