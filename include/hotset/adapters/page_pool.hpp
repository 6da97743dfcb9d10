// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Physical pages of one device that virtual weight tensors share, with reference counts.
///
/// Rule: a page is free or has at least one user. The most recently freed page is taken first. If no page is free,
///   the pool creates one, up to a bound. The bound is most_pages until the pool is resized; then it is the new size.
/// Source: ExpertWeave, section 4.2 (the physical memory pool).
/// Cost: O(1) per page; after construction only pages are allocated.

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

/// Index of a page in its pool. Another page may get the index after this page is destroyed.
using page_id = std::uint32_t;
/// No page.
inline constexpr page_id no_page = std::numeric_limits<page_id>::max();

/// Sizes of a pool.
struct page_pool_config {
  std::size_t page_bytes = std::size_t{2} << 20;  ///< a multiple of the memory's granularity
  std::uint32_t most_pages = 0;                   ///< most pages that may exist

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

/// A resizable_pool that is always drained: pages in use never move. Threads: compatible.
/// Pages that are still mapped when the pool ends keep their bytes until they are unmapped.
template <virtual_memory Memory>
class page_pool {
 public:
  using config = page_pool_config;

  /// `memory` and `budget` must outlive the pool. `budget` counts every page that exists; null: no budget.
  /// Errors: those of the configuration; a page size that is not a multiple of the granularity; no host memory.
  static result<page_pool> create(Memory& memory, const config& setup,
                                  memory_budget* budget = nullptr) noexcept {
    if (auto bad = setup.validate()) return *std::move(bad);
    if (setup.page_bytes % memory.granularity() != 0)
      return refusal("page_bytes = ", setup.page_bytes, ", accepted: multiples of ",
                     memory.granularity());
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

  /// Fills `pages` with pages that have one user each and unknown content; all or none.
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
  /// Adds a user. Errors: invalid_argument (the page has no user).
  memory_status share(page_id page) noexcept {
    if (uses(page) == 0) return memory_status::invalid_argument;
    ++uses_[page];
    return memory_status::ok;
  }
  /// Removes a user. A page without users is free. Pre: the last user has unmapped the page everywhere.
  /// Errors: invalid_argument (the page has no user).
  memory_status give(page_id page) noexcept {
    if (uses(page) == 0) return memory_status::invalid_argument;
    if (--uses_[page] == 0) free_.push_back(page);
    return memory_status::ok;
  }
  /// Users of a page; 0 if the page is free or does not exist.
  [[nodiscard]] std::uint32_t uses(page_id page) const noexcept {
    return page < uses_.size() ? uses_[page] : 0;
  }
  /// Pre: the page has a user.
  [[nodiscard]] const memory_block& block(page_id page) const noexcept {
    HOTSET_ASSERT(uses(page) != 0);
    return blocks_[page];
  }

  /// Free pages.
  [[nodiscard]] std::size_t free() const noexcept { return free_.size(); }
  /// Most pages that may exist.
  [[nodiscard]] std::uint64_t bound() const noexcept { return bound_; }
  /// Pages that could exist now, given the bound and the rest of the budget.
  [[nodiscard]] std::uint64_t attainable() const noexcept {
    if (budget_ == nullptr) return bound_;
    const auto left = budget_->limit() - std::min(budget_->limit(), budget_->in_use());
    return std::min(bound_, capacity() + left / page_bytes_);
  }
  /// Destroys free pages until `keep` of them are left; all or none. The bound stays.
  /// If the memory refuses a page and the undo fails too, fewer pages are left.
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
  /// Limits the pool to `units` pages until it grows.
  /// Errors: invalid_argument (fewer than are in use, more than exist), busy (the memory refuses to destroy a page).
  status shrink(std::uint64_t units) noexcept {
    if (units < in_use() || units > capacity()) return status::invalid_argument;
    if (drop_pages(capacity() - units) != memory_status::ok) return status::busy;
    bound_ = units;
    return status::ok;
  }
  /// Sets the bound to `units` pages and creates the missing ones.
  /// Errors: invalid_argument (fewer than exist), exceeds_memory (more than most_pages, or more than the memory has).
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

  /// Pre: an index is vacant, and the budget has counted the page.
  memory_status add_page() noexcept {
    const auto page = vacant_.back();
    const auto code = memory_->create_block(page_bytes_, blocks_[page]);
    if (code != memory_status::ok) return code;
    vacant_.pop_back();
    free_.push_back(page);
    return memory_status::ok;
  }
  /// Destroys the most recently freed page. Pre: a page is free.
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
  /// All or none. If the memory refuses to destroy a page in the undo, the page stays free. Pre: enough indices are
  /// vacant.
  memory_status add_pages(std::uint64_t count) noexcept {
    // A budget over its limit refuses even 0 bytes, but existing pages need none.
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
  /// All or none. The undo creates new pages: a free page has no content to restore.
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
  std::vector<memory_block> blocks_;  ///< [most_pages]; empty if there is no page
  std::vector<std::uint32_t> uses_;   ///< [most_pages]
  std::vector<page_id> free_;         ///< the last one is taken first
  std::vector<page_id> vacant_;       ///< indices without a page
};

}  // namespace hotset
