// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/live_split.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"

namespace tiny_moe {

live_split::live_split(const model_config& shape, std::size_t max_tokens, expert_pool& experts,
                       kv_pool& blocks, std::function<void()> drain, const config& options)
    : options_(options), experts_(experts), blocks_(blocks), drain_(std::move(drain)) {
  const auto contents = std::max<std::uint64_t>(1, options.most_contents);
  if (const auto* by_peak = std::get_if<hotset::dual_resize>(&options_.controller))
    if (by_peak->counts_reuse()) block_marks_.resize(contents);
  if (std::holds_alternative<hotset::right_sizing>(options_.controller)) {
    const hotset::geometry counted{.layers = static_cast<std::int32_t>(shape.layers),
                                   .experts = static_cast<std::int32_t>(shape.experts),
                                   .top_k = static_cast<std::int32_t>(shape.top_k),
                                   .max_tokens_per_visit = static_cast<std::int32_t>(max_tokens)};
    for (std::uint32_t u = 0; u < options.users; ++u)
      tables_.push_back(hotset::co_activation::create(counted, {}).value());
    served_.resize(options.users);
  }
  if (!std::holds_alternative<hotset::marginal_value>(options_.controller)) return;
  for (std::size_t l = 0; l < shape.layers; ++l)
    expert_distances_.emplace_back(shape.experts, shape.experts, max_tokens * shape.top_k);
  block_distances_ = hotset::recency_bitmap(contents);
}

void live_split::on_rows(std::span<const std::uint32_t> users) {
  if (tables_.empty()) return;
  row_users_.assign(users.begin(), users.end());
  for (const auto user : users) served_[user] = 1;
}

void live_split::on_visit(const visit_inputs& visit) {
  if (!tables_.empty()) learn(visit);
  auto* controller = std::get_if<hotset::marginal_value>(&options_.controller);
  if (controller == nullptr) return;
  expert_distances_[visit.layer].visit(
      visit.ids, 0, [&](std::size_t, std::uint32_t distance) { controller->on_expert(distance); });
}

void live_split::on_reference(const block_reference& block) {
  const auto key = static_cast<std::size_t>(block.content);
  if (!block_marks_.empty()) count_reuse(key);
  auto* controller = std::get_if<hotset::marginal_value>(&options_.controller);
  if (controller == nullptr) return;
  controller->on_block(block_distances_.distance(key));
  block_distances_.touch(key);
}

/// Adds each user's rows to that user's table: a table's steps are consecutive, so rows stay comparable between
/// layers.
void live_split::learn(const visit_inputs& visit) {
  const hotset::id_view<hotset::expert_id> ids(visit.ids);
  for (std::uint32_t user = 0; user < tables_.size(); ++user) {
    ids_.clear();
    for (std::size_t row = 0; row < row_users_.size(); ++row)
      if (row_users_[row] == user) {
        const auto of_row = ids.subspan(row * visit.top_k, visit.top_k);
        ids_.insert(ids_.end(), of_row.begin(), of_row.end());
      }
    if (ids_.empty()) continue;
    hotset::routing_view view;
    view.layer = visit.layer;
    view.step = visit.step;
    view.experts = ids_;
    (void)tables_[user].observe(view);  // cannot fail: rows are whole
  }
}

/// Sum of the tables of the users served in the burst.
std::vector<double> live_split::uses_of_burst() const {
  std::vector<double> sum;
  for (std::size_t user = 0; user < tables_.size(); ++user) {
    if (served_[user] == 0) continue;
    const auto uses = tables_[user].uses();
    sum.resize(uses.size());
    std::transform(sum.begin(), sum.end(), uses.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

/// Counts a block even if it was evicted meanwhile: with more room it would have stayed.
void live_split::count_reuse(std::size_t content) {
  constexpr std::uint64_t seen = 1;
  const auto burst = passes_ / options_.burst + 1 + seen;
  auto& mark = block_marks_[content];
  if (mark == 0) {
    mark = seen;
  } else if (mark != burst) {
    mark = burst;
    ++reused_blocks_;
  }
}

void live_split::between(const drained_point& now) {
  if (++passes_ % options_.burst != 0) return;
  const auto to = allowed(wanted(), now.least_blocks);
  if (to != sizes()) move(to);
  stats_.history.push_back({now.step, sizes()});
  blocks_.reset_peak();
}

hotset::pool_sizes live_split::wanted() {
  const auto here = sizes();
  if (auto* by_value = std::get_if<hotset::marginal_value>(&options_.controller)) {
    const auto to = by_value->end_burst(here.cap);
    return {to.cap, to.blocks};
  }
  if (const auto* by_peak = std::get_if<hotset::dual_resize>(&options_.controller))
    return by_peak->next(here, blocks_.peak(), std::exchange(reused_blocks_, 0));
  if (const auto* by_user = std::get_if<hotset::right_sizing>(&options_.controller)) {
    const auto uses = uses_of_burst();
    std::fill(served_.begin(), served_.end(), std::uint8_t{0});
    return by_user->next(here, uses);
  }
  return here;
}

hotset::pool_sizes live_split::allowed(const hotset::pool_sizes& to,
                                       std::uint64_t least_blocks) const noexcept {
  const auto& limits = options_.limits;
  const auto here = sizes();
  const auto floor = std::max<std::uint64_t>(blocks_.in_use(), least_blocks);
  if (to.blocks >= floor || to.blocks >= here.blocks) return to;
  // Fewer blocks than are needed now: use the largest cap that leaves them, if that is a move at all.
  const auto most =
      (limits.budget_bytes - std::min(limits.budget_bytes, floor * limits.block_bytes)) /
      limits.slot_bytes;
  if (most <= here.cap) return here;
  return {most, limits.blocks_beside(most)};
}

void live_split::move(const hotset::pool_sizes& to) {
  drain_();
  const auto before = sizes();
  const auto moved = hotset::resize_both(experts_, to.cap, blocks_, to.blocks);
  if (moved != hotset::status::ok) ++stats_.refused;
  if (sizes() != before) ++stats_.moves;
}

}  // namespace tiny_moe
