// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One weight of one layer for the base model and all adapters: one array of experts, with memory only behind experts
/// that exist.
///
/// Rule: the base model's experts are one block from the first byte on. A placement has memory behind every page that
///   its experts touch. A page that is already mapped (the base model's last page, a neighbour's page) is shared;
///   other pages come from the pool. A page is unmapped when its last placement is removed.
///   Pages = |[0, ceil(M b / P)) and the union over placements of [floor(first b / P), ceil((first + count) b / P))|.
/// Source: ExpertWeave, section 4.2.
/// Deviations: the base model takes no pages from the pool, because it is never unloaded.
/// Cost: O(pages of the placement), plus the memory's mapping calls: one if it has map_range.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/adapters/page_pool.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset {

/// Sizes of the tensor.
struct virtual_weight_tensor_config {
  std::int32_t base_experts = 0;     ///< M
  std::int32_t adapter_experts = 0;  ///< places after the base model's experts, such as A * stride
  std::size_t expert_bytes = 0;      ///< b

  static constexpr std::int64_t expert_limit = std::int64_t{1} << 28;
  static constexpr std::uint64_t byte_limit = std::uint64_t{1} << 56;

  [[nodiscard]] std::int64_t experts() const noexcept {
    return std::int64_t{base_experts} + adapter_experts;
  }
  [[nodiscard]] validation validate() const {
    if (base_experts < 1) return refuse_value("base_experts", base_experts, "1 or more");
    if (adapter_experts < 0) return refuse_value("adapter_experts", adapter_experts, "0 or more");
    if (experts() > expert_limit)
      return refuse_value("base_experts + adapter_experts", experts(),
                          "at most " + std::to_string(expert_limit));
    const auto most = byte_limit / static_cast<std::uint64_t>(experts());
    if (expert_bytes < 1 || expert_bytes > most)
      return refuse_value("expert_bytes", expert_bytes, "1.." + std::to_string(most));
    return std::nullopt;
  }
};

/// A gap between placements may or may not have memory, so accessing it need not fault. Threads: compatible.
template <virtual_memory Memory>
class virtual_weight_tensor {
 public:
  using config = virtual_weight_tensor_config;
  /// Pages of the tensor in [from, to).
  struct page_span {
    std::size_t from = 0;
    std::size_t to = 0;
  };

  /// `pool` and its memory must not move and must outlive the tensor. The base model's experts have unknown content.
  /// Errors: those of the configuration; more pages than page_pool_config::page_limit; no addresses or memory.
  static result<virtual_weight_tensor> create(page_pool<Memory>& pool,
                                              const config& setup) noexcept {
    if (auto bad = setup.validate()) return *std::move(bad);
    const auto page = pool.page_bytes();
    const auto pages = pages_for(static_cast<std::size_t>(setup.experts()), setup, page);
    if (pages > page_pool_config::page_limit)
      return refusal("pages = ", pages, " of ", page, " bytes, accepted: at most ",
                     page_pool_config::page_limit);
    return unless_out_of_memory(
        [&]() -> result<virtual_weight_tensor> {
          auto range = virtual_range<Memory>::reserve(pool.memory(), pages * page);
          if (!range) return range.error();
          virtual_weight_tensor out(pool, setup, *std::move(range), pages);
          const auto base = out.base_pages_ * page;
          if (const auto code = out.range_.populate(0, base, 1); code != memory_status::ok)
            return refusal("no memory for the base model's experts, ", base,
                           " bytes: ", describe(code));
          return out;
        },
        no_host_memory());
  }
  virtual_weight_tensor(virtual_weight_tensor&&) noexcept = default;
  virtual_weight_tensor& operator=(virtual_weight_tensor&&) = delete;
  /// Frees all memory. Pre: nothing reads or writes it any more.
  ~virtual_weight_tensor() {
    for (std::size_t i = 0; i < placement_.size(); ++i)
      if (placement_[i] == static_cast<expert_id>(i)) (void)remove(expert(i), count_at(i));
    for (const auto& page : pages_)
      // The range's destructor retries the unmap.
      if (page.id != no_page) (void)pool_->give(page.id);
  }

  /// Makes `count` experts from `first` on readable and writable, with unknown content; all or none. A count of 0
  /// places nothing.
  /// Errors: invalid_argument (outside the adapters' places), in_use (a place is taken), out_of_memory (the pool's
  /// bound), those of the memory. On an error every placement is unchanged.
  memory_status place(expert_id first, std::int32_t count) noexcept {
    if (!is_of_adapters(first, count)) return memory_status::invalid_argument;
    const auto places =
        std::span(placement_).subspan(index(first), static_cast<std::size_t>(count));
    if (std::ranges::any_of(places, [](expert_id p) { return p != no_expert; }))
      return memory_status::in_use;
    const auto pages = pages_of(first, count);
    auto code = reclaim(pages);
    if (code != memory_status::ok) return code;
    const auto missing = missing_of(pages);
    code = supply(missing);
    if (code != memory_status::ok) return code;
    if (pages.from < missing.from) (void)pool_->share(page_at(pages.from).id);
    if (missing.to < pages.to) (void)pool_->share(page_at(missing.to).id);
    std::ranges::fill(places, static_cast<expert_id>(index(first)));
    return memory_status::ok;
  }
  /// Undoes a `place`. Pre: nothing reads or writes there any more. A page that the memory refuses to unmap becomes
  /// an idle page.
  /// Errors: invalid_argument (not exactly one placement); then nothing has changed.
  memory_status remove(expert_id first, std::int32_t count) noexcept {
    if (!is_of_adapters(first, count)) return memory_status::invalid_argument;
    if (count == 0) return memory_status::ok;
    const auto i = index(first);
    if (placement_[i] != static_cast<expert_id>(i) || count_at(i) != count)
      return memory_status::invalid_argument;
    std::fill_n(placement_.begin() + static_cast<std::ptrdiff_t>(i), count, no_expert);
    const auto pages = pages_of(first, count);
    for (auto p = pages.to; p-- > pages.from;)
      if (pool_->uses(page_at(p).id) > 1)
        (void)pool_->give(page_at(p).id);
      else
        (void)drop(p);
    return memory_status::ok;
  }
  /// Pages without experts that the memory refused to unmap.
  [[nodiscard]] std::size_t idle_pages() const noexcept { return idle_; }
  /// Unmaps the idle pages. `place` also does so for idle pages in its way. Returns the memory's first error, or ok.
  memory_status reclaim() noexcept {
    return idle_ == 0 ? memory_status::ok : reclaim({base_pages_, base_pages_ + pages_.size()});
  }

  /// All addresses of the tensor, backed or not; stable for the tensor's life.
  [[nodiscard]] std::span<std::byte> addresses() const noexcept { return range_.addresses(); }
  /// Pre: the expert is backed.
  [[nodiscard]] std::span<std::byte> bytes(expert_id virtual_expert) const noexcept {
    HOTSET_ASSERT(is_backed(virtual_expert));
    return addresses().subspan(index_of(virtual_expert) * setup_.expert_bytes, setup_.expert_bytes);
  }
  /// Returns whether an expert has memory of its own: it belongs to the base model, or it was placed.
  [[nodiscard]] bool is_backed(expert_id virtual_expert) const noexcept {
    if (virtual_expert < 0 || virtual_expert >= setup_.experts()) return false;
    return virtual_expert < setup_.base_experts || placement_[index(virtual_expert)] != no_expert;
  }
  /// Pages that a placement touches, without the base model's pages. Pre: the experts lie in the adapters' places.
  [[nodiscard]] page_span pages_of(expert_id first, std::int32_t count) const noexcept {
    if (count == 0) return {base_pages_, base_pages_};
    const auto from = index_of(first) * setup_.expert_bytes / page_bytes();
    const auto to =
        pages_for(index_of(first) + static_cast<std::size_t>(count), setup_, page_bytes());
    return {std::max(from, base_pages_), std::max(to, base_pages_)};
  }
  /// Units: bytes of mapped pages, idle ones included.
  [[nodiscard]] std::size_t physical_bytes() const noexcept { return range_.mapped_bytes(); }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return pool_->page_bytes(); }
  [[nodiscard]] const config& shape() const noexcept { return setup_; }

 private:
  struct page_place {
    page_id id = no_page;  ///< the pool counts one use for each placement on it; one if it is idle
    bool is_idle = false;
  };

  virtual_weight_tensor(page_pool<Memory>& pool, const config& setup, virtual_range<Memory> range,
                        std::size_t pages)
      : pool_(&pool),
        setup_(setup),
        base_pages_(
            pages_for(static_cast<std::size_t>(setup.base_experts), setup, pool.page_bytes())),
        range_(std::move(range)),
        pages_(pages - base_pages_),
        placement_(static_cast<std::size_t>(setup.adapter_experts), no_expert),
        taken_(pages_.size()),
        blocks_(pages_.size()) {}
  /// Pages that the first `experts` experts touch.
  static std::size_t pages_for(std::size_t experts, const config& setup,
                               std::size_t page_bytes) noexcept {
    return (experts * setup.expert_bytes + page_bytes - 1) / page_bytes;
  }
  /// Position of an adapter's expert among all adapter places.
  [[nodiscard]] std::size_t index(expert_id virtual_expert) const noexcept {
    return index_of(virtual_expert) - static_cast<std::size_t>(setup_.base_experts);
  }
  [[nodiscard]] expert_id expert(std::size_t place) const noexcept {
    return expert_id{setup_.base_experts} + static_cast<std::int32_t>(place);
  }
  [[nodiscard]] bool is_of_adapters(expert_id first, std::int32_t count) const noexcept {
    return first >= setup_.base_experts && count >= 0 &&
           std::int64_t{number(first)} + count <= setup_.experts();
  }
  /// Experts of the placement that begins at `first`.
  [[nodiscard]] std::int32_t count_at(std::size_t first) const noexcept {
    const auto begin = placement_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end =
        std::find_if(begin, placement_.end(), [own = *begin](expert_id p) { return p != own; });
    return static_cast<std::int32_t>(end - begin);
  }
  [[nodiscard]] page_place& page_at(std::size_t p) noexcept { return pages_[p - base_pages_]; }
  [[nodiscard]] std::size_t offset_of(std::size_t p) const noexcept { return p * page_bytes(); }

  /// Leaves out the first and the last page if a neighbour has mapped them. No neighbour touches the pages between.
  [[nodiscard]] page_span missing_of(page_span pages) noexcept {
    if (pages.from < pages.to && page_at(pages.from).id != no_page) ++pages.from;
    if (pages.from < pages.to && page_at(pages.to - 1).id != no_page) --pages.to;
    return pages;
  }
  /// Maps new pages, all or none.
  memory_status supply(page_span pages) noexcept {
    const auto count = pages.to - pages.from;
    if (count == 0) return memory_status::ok;
    const auto taken = std::span(taken_).first(count);
    const auto free_before = pool_->free();
    auto code = pool_->take(taken);
    if (code != memory_status::ok) return code;
    for (std::size_t i = 0; i < count; ++i) {
      blocks_[i] = pool_->block(taken[i]);
      page_at(pages.from + i).id = taken[i];
    }
    code = range_.map(offset_of(pages.from), std::span(blocks_).first(count));
    if (code == memory_status::ok) return code;
    for (auto p = pages.to; p-- > pages.from;) (void)drop(p);
    (void)pool_->trim(free_before);  // also destroys pages created by this call
    return code;
  }
  /// Frees a page that has one use. If the unmap fails, the page stays idle; it may have lost access and must be
  /// unmapped before it is mapped again.
  memory_status drop(std::size_t p) noexcept {
    auto& page = page_at(p);
    idle_ -= page.is_idle ? 1U : 0U;
    const auto code = range_.unmap(offset_of(p), page_bytes());
    page.is_idle = code != memory_status::ok;
    idle_ += page.is_idle ? 1U : 0U;
    if (page.is_idle) return code;
    (void)pool_->give(page.id);
    page.id = no_page;
    return memory_status::ok;
  }
  memory_status reclaim(page_span pages) noexcept {
    auto first_refusal = memory_status::ok;
    for (auto p = pages.from; idle_ != 0 && p < pages.to; ++p) {
      if (!page_at(p).is_idle) continue;
      const auto code = drop(p);
      if (first_refusal == memory_status::ok) first_refusal = code;
    }
    return first_refusal;
  }

  page_pool<Memory>* pool_;
  config setup_;
  std::size_t base_pages_;
  virtual_range<Memory> range_;
  std::vector<page_place> pages_;  ///< [pages behind the base model's]
  /// [adapter_experts]: first place of the placement that covers it, or no_expert.
  std::vector<expert_id> placement_;
  std::size_t idle_ = 0;
  std::vector<page_id> taken_;        ///< scratch of `supply`
  std::vector<memory_block> blocks_;  ///< scratch of `supply`
};

}  // namespace hotset
