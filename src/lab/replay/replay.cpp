// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/replay.hpp"

#include <algorithm>
#include <array>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/paging/visit/token_groups.hpp"
#include "lab/errors.hpp"
#include "lab/progress.hpp"
#include "lab/replay/infeasible_visit.hpp"

namespace hotset::lab {

namespace {

constexpr std::array<std::string_view, 4> mode_names{"event-atomic", "deferred", "per-access",
                                                     "expert-by-expert"};

/// Walks the events of a trace: every visit, or every token group of one that does not fit its pool.
class event_walk {
 public:
  event_walk(const visit_sequence& visits, const pool_layout& layout, bool splits,
             visit_split how = visit_split::by_token)
      : visits_(visits),
        layout_(layout),
        splits_(splits),
        how_(how),
        groups_(visits.shape()),
        unique_(visits.shape().expert_count(), visits.shape().ids_per_visit()),
        experts_(visits.shape().expert_count()) {}

  /// Calls use(event, experts) for each event of visit i, numbered from `event` on; returns how many there were.
  template <class Use>
  std::uint32_t each(std::size_t i, std::uint64_t event, Use use) {
    const auto ids = visits_[i].experts;
    const auto layer = visits_.at(i).layer;
    const auto slots = static_cast<std::size_t>(layout_.at(layout_.pool_of_layer(layer)).slots);
    const auto count = unique_.collect(ids, experts_.data());
    if (!splits_ || count <= slots) {
      use(event, std::span(experts_).first(count));
      return 1;
    }
    if (how_ != visit_split::by_token) {
      use(event, std::span(experts_).first(count));
      return how_ == visit_split::by_expert
                 ? static_cast<std::uint32_t>((count + slots - 1) / slots)
                 : 1;
    }
    groups_.build(ids, slots, [](expert_id) { return true; });
    const auto k = visits_.shape().ranks();
    for (std::size_t g = 0; g < groups_.groups(); ++g)
      for (const std::size_t token : groups_.tokens(g)) use(event + g, ids.subspan(token * k, k));
    return static_cast<std::uint32_t>(groups_.groups());
  }

 private:
  const visit_sequence& visits_;
  const pool_layout& layout_;
  bool splits_;
  visit_split how_;
  token_groups groups_;
  unique_ids unique_;
  std::vector<expert_id> experts_;
};

/// Nothing comes between the visits.
void replay_as_numbered(const visit_sequence& visits, any_pager& pager, progress& told) {
  // Short ones tell how far they are, too.
  const auto many = std::clamp<std::size_t>(visits.size() / 512, 1, 1024);
  for (std::size_t first = 0; first < visits.size(); first += many) {
    told.at(first);
    const auto done = pager.visits(visits, first, std::min(first + many, visits.size()));
    if (done.code != status::ok) refuse_visit(visits, done.end, done.code);
  }
}

}  // namespace

std::string_view name_of(replay_mode mode) noexcept {
  return mode_names[static_cast<std::size_t>(mode)];
}

replay_mode parse_replay_mode(std::string_view name) {
  const auto found = std::ranges::find(mode_names, name);
  if (found == mode_names.end())
    refuse_name("replay", name, {mode_names.begin(), mode_names.end()});
  return static_cast<replay_mode>(found - mode_names.begin());
}

event_order order_events(const visit_sequence& visits, const pool_layout& layout, bool splits,
                         visit_split how) {
  event_order out;
  event_walk walk(visits, layout, splits, how);
  std::vector<future_uses::event> events;
  events.reserve(visits.accesses());
  bool split = false;
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto layer = visits.at(i).layer;
    out.first.push_back(next);
    const auto count = walk.each(i, next, [&](std::uint64_t event, id_view<expert_id> experts) {
      for (const auto e : experts)
        if (e >= 0) events.push_back({event, {layer, e}});
    });
    split = split || count != 1;
    next += count;
  }
  if (!split) out.first = {};
  out.future =
      std::make_shared<const future_uses>(future_uses::create(visits.shape(), events).value());
  return out;
}

void replay(const visit_sequence& visits, const event_order& events, any_pager& pager,
            const pool_layout& layout, std::span<const std::uint64_t> pool_bytes) {
  progress told(visits.size());
  if (events.first.empty() && pool_bytes.empty()) return replay_as_numbered(visits, pager, told);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    told.at(i);
    auto view = visits[i];
    view.ordinal = events.ordinal(i);
    const auto done =
        pool_bytes.empty()
            ? pager.visit(view)
            : pager.visit_within(view, pool_bytes[index_of(layout.pool_of_layer(view.layer))]);
    if (done != status::ok) refuse_visit(visits, i, done);
  }
}

}  // namespace hotset::lab
