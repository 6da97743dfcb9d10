// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/timeline.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace hotset::lab {

namespace {

enum track : int { arithmetic = 1, demand = 2, speculative = 3, back = 4 };

constexpr std::array<std::pair<track, std::string_view>, 4> tracks{
    {{arithmetic, "compute stream"},
     {demand, "link: demand"},
     {speculative, "link: prefetch"},
     {back, "link: victims copied back"}}};

/// Formats nanoseconds as microseconds with three decimals, exactly.
std::string microseconds(ticks time) { return fmt::format("{}.{:03}", time / 1000, time % 1000); }

void span(std::ostream& out, track where, std::string_view name, ticks begin, ticks end,
          std::string_view args) {
  out << fmt::format(
      ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":{}{}}}", name,
      static_cast<int>(where), microseconds(begin), microseconds(end - begin), args);
}

}  // namespace

timeline::timeline(std::ostream& out) : out_(out) {
  out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
          "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,"
          "\"args\":{\"name\":\"hotset simulate\"}}";
  for (const auto& [id, name] : tracks)
    out_ << fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":"
        "\"{}\"}}}}",
        static_cast<int>(id), name);
}

void timeline::on_copy(ticks begin, ticks end, const fill& what, urgency when,
                       std::uint64_t bytes) noexcept {
  const auto name = fmt::format("layer {} expert {}", what.key.layer, what.key.expert);
  if (what.slot == no_slot)
    return span(out_, back, name, begin, end, fmt::format(",\"args\":{{\"bytes\":{}}}", bytes));
  span(out_, when == urgency::now ? demand : speculative, name, begin, end,
       fmt::format(",\"args\":{{\"slot\":{},\"precision\":{},\"bytes\":{},\"late\":{}}}", what.slot,
                   what.precision, bytes, what.speculative && when == urgency::now));
}

void timeline::on_wait(ticks begin, ticks end) noexcept {
  span(out_, arithmetic, "wait", begin, end, "");
}

void timeline::on_compute(ticks begin, ticks end, const visit_context& visit, std::size_t tokens) {
  span(out_, arithmetic, fmt::format("layer {}", visit.layer), begin, end,
       fmt::format(",\"args\":{{\"step\":{},\"tokens\":{}}}", visit.step, tokens));
}

void timeline::finish() { out_ << "\n]}\n"; }

}  // namespace hotset::lab
