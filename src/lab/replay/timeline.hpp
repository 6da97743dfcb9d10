// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes a simulated engine's activity as a timeline: one track per stream.

#include <cstddef>
#include <ostream>

#include "hotset/core/visit_event.hpp"
#include "hotset/trace/timeline_writer.hpp"
#include "lab/replay/clock_backend.hpp"

namespace hotset::lab {

/// Tracks: arithmetic (visits, and waits for copies), demand copies, prefetches, victims copied back.
class timeline final : public link_observer {
 public:
  explicit timeline(std::ostream& out);
  void on_copy(ticks begin, ticks end, const fill& what, urgency when,
               std::uint64_t bytes) noexcept override;
  void on_wait(ticks begin, ticks end) noexcept override;
  /// Arithmetic of one group of a visit.
  void on_compute(ticks begin, ticks end, const visit_context& visit, std::size_t tokens);
  /// Ends the document; call nothing afterwards.
  void finish();

 private:
  timeline_writer events_;
};

}  // namespace hotset::lab
