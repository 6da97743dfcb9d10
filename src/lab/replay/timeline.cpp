// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/timeline.hpp"

#include <fmt/format.h>

namespace hotset::lab {

namespace {

enum track : int { arithmetic = 1, demand = 2, speculative = 3, back = 4 };

}  // namespace

timeline::timeline(std::ostream& out) : events_(out, "hotset simulate") {
  events_.track(arithmetic, "compute stream");
  events_.track(demand, "link: demand");
  events_.track(speculative, "link: prefetch");
  events_.track(back, "link: victims copied back");
}

void timeline::on_copy(ticks begin, ticks end, const fill& what, urgency when,
                       std::uint64_t bytes) noexcept {
  const auto name = fmt::format("layer {} expert {}", what.key.layer, what.key.expert);
  if (what.slot == no_slot)
    return events_.span(back, name, begin, end, fmt::format("\"bytes\":{}", bytes));
  events_.span(when == urgency::now ? demand : speculative, name, begin, end,
               fmt::format(R"("slot":{},"precision":{},"bytes":{},"late":{})", what.slot,
                           what.precision, bytes, what.speculative && when == urgency::now));
}

void timeline::on_wait(ticks begin, ticks end) noexcept {
  events_.span(arithmetic, "wait", begin, end);
}

void timeline::on_compute(ticks begin, ticks end, const visit_context& visit, std::size_t tokens) {
  events_.span(arithmetic, fmt::format("layer {}", visit.layer), begin, end,
               fmt::format(R"("step":{},"tokens":{})", visit.step, tokens));
}

void timeline::finish() { events_.finish(); }

}  // namespace hotset::lab
