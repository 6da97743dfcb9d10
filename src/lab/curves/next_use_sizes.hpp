// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One replay for all sizes of a policy that orders by next_use_values: what experts are worth is worked out once, not once a size.
///
/// Rule: where a pool has several layers, next_use_order asks for the values of every visit, whoever is resident. So they are the
///       same in all sizes. A block of visits is valued, then each size's pager carries it out by what it is told.
/// Cost: next_use_values once a visit; a size costs a pager and valued_residents. Memory: 4 bytes an expert for each visit of a block.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/eviction/next_use_order.hpp"
#include "hotset/paging/any_pager.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/predict/history/next_use_values.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/progress.hpp"
#include "lab/replay/infeasible_visit.hpp"

namespace hotset::lab {

/// What the experts of some visits that follow one another are worth, each after its visit.
class visit_values {
 public:
  explicit visit_values(std::size_t experts) : experts_(experts) {}

  void begin(std::size_t first, std::size_t visits) {
    first_ = first;
    has_values_.assign(visits, 0);
    values_.resize(visits * experts_);
  }
  void set(std::size_t visit, std::span<const float> values) noexcept {
    has_values_[visit - first_] = 1;
    std::copy_n(values.data(), experts_, values_.data() + (visit - first_) * experts_);
  }
  [[nodiscard]] bool has(std::size_t visit) const noexcept {
    return has_values_[visit - first_] != 0;
  }
  /// Shape: [experts].
  [[nodiscard]] std::span<const float> of(std::size_t visit) const noexcept {
    return std::span(values_).subspan((visit - first_) * experts_, experts_);
  }

 private:
  std::size_t experts_;
  std::size_t first_ = 0;
  std::vector<std::uint8_t> has_values_;  // [visits]
  aligned_vector<float> values_;          // [visits, experts]
};

/// In the place of next_use_values: a view's ordinal says which visit it is.
class told_values {
 public:
  explicit told_values(const visit_values& told) : told_(&told) {}

  void stage(const routing_view& view) noexcept {
    visit_ = view.ordinal;
    staged_ = told_->has(visit_) ? view.layer : before_layers;
    step_ = view.step;
  }
  void keep() noexcept { staged_ = before_layers; }
  [[nodiscard]] bool is_staged(layer_id layer, step_id step) const noexcept {
    return staged_ == layer && step_ == step && staged_ >= 0;
  }
  [[nodiscard]] bool are_known() const noexcept { return true; }
  [[nodiscard]] std::span<const float> values() const noexcept { return told_->of(visit_); }

 private:
  const visit_values* told_;
  std::size_t visit_ = 0;
  layer_id staged_ = before_layers;
  step_id step_ = 0;
};

/// The policy of one size.
class told_order : public valued_order<told_values> {
 public:
  struct config {
    double discount = 1;
    const visit_values* told = nullptr;

    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "told_order";

  told_order(const pool_layout& layout, const config& options)
      : valued_order(layout, told_values(*options.told), options.discount) {}
};
static_assert(is_eviction_policy<told_order>());

class next_use_sizes {
 public:
  /// Whether the values do not depend on the size.
  [[nodiscard]] static bool suits(const pool_layout& layout) noexcept {
    return always_valued(layout);
  }

  /// Pre: `options` are valid for the shape of the visits; each layout suits.
  next_use_sizes(const geometry& shape, std::span<const pool_layout* const> layouts,
                 const next_use_values::config& options)
      : values_(shape, options), told_(shape.expert_count()) {
    for (const auto* layout : layouts)
      sizes_.push_back(std::make_unique<pager_model<pager<told_order>>>(
          pager<told_order>({.layout = *layout, .eviction = {options.discount, &told_}})));
  }

  /// Errors: infeasible_error.
  void run(const visit_sequence& visits) {
    progress told(visits.size() * sizes_.size());
    for (std::size_t first = 0; first < visits.size(); first += block) {
      const auto end = std::min(first + block, visits.size());
      work_out(visits, first, end);
      for (std::size_t s = 0; s < sizes_.size(); ++s) {
        const auto done = sizes_[s]->visits(visits, first, end);
        if (done.code != status::ok) refuse_visit(visits, done.end, done.code);
        told.at(first * sizes_.size() + (end - first) * (s + 1));
      }
    }
  }
  [[nodiscard]] pager_stats stats(std::size_t size) const { return sizes_[size]->stats(); }
  [[nodiscard]] std::uint64_t decision_hash(std::size_t size) const {
    return sizes_[size]->decision_hash();
  }

 private:
  /// Visits whose values are in the core's cache until the last size has used them.
  static constexpr std::size_t block = 256;

  void work_out(const visit_sequence& visits, std::size_t first, std::size_t end) {
    told_.begin(first, end - first);
    for (auto i = first; i < end; ++i) {
      const auto view = visits[i];
      values_.stage(view);
      if (!values_.is_staged(view.layer, view.step)) continue;
      told_.set(i, values_.values());
      values_.keep();
    }
  }
  next_use_values values_;
  visit_values told_;
  std::vector<std::unique_ptr<any_pager>> sizes_;
};

}  // namespace hotset::lab
