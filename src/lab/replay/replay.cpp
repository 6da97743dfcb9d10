// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/replay.hpp"

#include <array>

#include <fmt/format.h>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/paging/visit/token_groups.hpp"
#include "lab/errors.hpp"
#include "lab/progress.hpp"

namespace hotset::lab {

namespace {

constexpr std::array<std::string_view, 4> mode_names{"event-atomic", "deferred", "per-access",
                                                     "expert-by-expert"};

template <class Serve>
void serve_each(const visit_sequence& visits, Serve serve) {
  progress bar(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    bar.at(i);
    if (const auto done = serve(i); done != status::ok) refuse_visit(visits, i, done);
  }
}

}  // namespace

std::string_view name_of(replay_mode mode) noexcept {
  return mode_names[static_cast<std::size_t>(mode)];
}

replay_mode parse_replay_mode(std::string_view name) {
  return choice_of<replay_mode>("replay", name, {mode_names.begin(), mode_names.end()});
}

void refuse_visit(const visit_sequence& visits, std::size_t i, status why) {
  const auto& v = visits.at(i);
  throw infeasible_error(
      fmt::format("visit {} (step {}, layer {}): {}", i, v.step, v.layer, describe(why)));
}

event_order order_events(const visit_sequence& visits, const pool_layout& layout, bool splits,
                         visit_split how) {
  const auto& shape = visits.shape();
  event_order out;
  std::vector<future_uses::event> events;
  events.reserve(visits.accesses());
  token_groups groups(shape);
  unique_ids unique(shape.expert_count(), shape.ids_per_visit());
  std::vector<expert_id> experts(shape.expert_count());
  bool split = false;
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto layer = visits.at(i).layer;
    const auto use = [&](std::uint64_t event, id_view<expert_id> used) {
      for (const auto e : used)
        if (e >= 0) events.push_back({event, {layer, e}});
    };
    out.first.push_back(next);
    const auto ids = visits[i].experts;
    const auto slots = static_cast<std::size_t>(layout.at(layout.pool_of_layer(layer)).slots);
    const auto count = unique.collect(ids, experts.data());
    std::size_t parts = 1;
    if (!splits || count <= slots || how != visit_split::by_token) {
      use(next, std::span(experts).first(count));
      if (splits && how == visit_split::by_expert && count > slots)
        parts = (count + slots - 1) / slots;
    } else {
      groups.build(ids, slots, [](expert_id) { return true; });
      const auto k = shape.ranks();
      parts = groups.groups();
      for (std::size_t g = 0; g < parts; ++g)
        for (const std::size_t token : groups.tokens(g)) use(next + g, ids.subspan(token * k, k));
    }
    split = split || parts != 1;
    next += parts;
  }
  if (!split) out.first = {};
  out.future = std::make_shared<const future_uses>(future_uses::create(shape, events).value());
  return out;
}

void replay(const visit_sequence& visits, const event_order& events, erased_pager& pager,
            decision_log* log, std::span<const std::uint64_t> pool_bytes, part_counts* parts) {
  auto plan = pager.make_plan();
  const auto& layout = pager.layout();
  serve_each(visits, [&](std::size_t i) {
    auto view = visits[i];
    view.ordinal = events.ordinal(i);
    if (parts != nullptr) {
      parts->begin(i, [&] { return pager.stats(); });
      const auto located = pager.located(view.layer);
      parts->count(view, [&](expert_id e) { return located[index_of(e)] != no_slot; });
    }
    const auto done = pager.serve(view, plan, [&](const visit_group& group) {
      if (log != nullptr) log->on_plan(group.plan());
    });
    if (done == status::ok && !pool_bytes.empty())
      pager.trim(plan.context(), pool_bytes[index_of(layout.pool_of_layer(view.layer))],
                 plan.slots());
    return done;
  });
  if (parts != nullptr) parts->finish(pager.stats());
}

void replay(const visit_sequence& visits, belady_bypass& bound, part_counts* parts) {
  serve_each(visits, [&](std::size_t i) {
    const auto view = visits[i];
    if (parts != nullptr) {
      parts->begin(i, [&] { return bound.stats(); });
      parts->count(view, [&](expert_id e) { return bound.holds({view.layer, e}); });
    }
    return bound.visit(view);
  });
  if (parts != nullptr) parts->finish(bound.stats());
}

}  // namespace hotset::lab
