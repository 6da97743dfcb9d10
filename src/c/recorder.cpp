// SPDX-License-Identifier: Apache-2.0
/// The recorder of the C interface.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/trace_recorder.hpp"

/// The handle that C sees.
struct hotset_recorder : hotset::c::handle {
  hotset_recorder(hotset::geometry of, hotset::trace_recorder made)
      : shape(std::move(of)), held(std::move(made)) {}

  hotset::geometry shape;
  hotset::trace_recorder held;
  std::size_t tokens = 0;  ///< of the open step
  hotset::c::gathered_rows gathered{};
};

namespace {

using hotset::c::check_strides;
using hotset::c::code_of;
using hotset::c::dense;
using hotset::c::guarded;
using hotset::c::refuse;
using hotset::c::take;
using hotset::c::with;

hotset_status refuse_without_step() noexcept {
  return refuse(HOTSET_INVALID_ARGUMENT,
                "no step is open, accepted: hotset_recorder_begin_step first");
}
/// Says why the recorder did not begin a step.
hotset_status refuse_step(const hotset_recorder& r, std::uint64_t step, std::size_t tokens,
                          hotset::status why) noexcept {
  if (why == hotset::status::exceeds_memory)
    return refuse(HOTSET_EXCEEDS_MEMORY,
                  "a step of %zu tokens, accepted: at most %zu, what is left of capacity = %zu; "
                  "write the trace to begin anew",
                  tokens, r.held.capacity() - r.held.tokens(), r.held.capacity());
  return refuse(HOTSET_INVALID_ARGUMENT,
                "step %llu of %zu tokens, accepted: a number above the last step's and at most "
                "4294967295, 1 token or more, and no step open",
                static_cast<unsigned long long>(step), tokens);
}

/// `of`: null where the rows are those of all tokens.
hotset_status record(hotset_recorder& r, const hotset_view* view,
                     const std::uint32_t* of) noexcept {
  hotset_view given{};
  if (const auto bad = take(view, given, "view"); bad != HOTSET_OK) return bad;
  if (r.tokens == 0) return refuse_without_step();
  const auto k = r.shape.ranks();
  const bool fits = of == nullptr ? given.tokens == r.tokens : given.tokens <= r.tokens;
  if (given.experts == nullptr || given.layer < 0 || given.layer >= r.shape.layers || !fits)
    return refuse(HOTSET_INVALID_VISIT,
                  "layer %d of %zu tokens, accepted: layers 0..%d with experts of the step's %zu",
                  given.layer, given.tokens, r.shape.layers - 1, r.tokens);
  if (const auto bad = check_strides(given, k); bad != HOTSET_OK) return bad;
  return guarded([&] {
    hotset::routing_view out;
    out.layer = static_cast<hotset::layer_id>(given.layer);
    out.experts = dense(given.experts, given.tokens, k, given.experts_stride, r.gathered.ids);
    if (given.weights != nullptr)
      out.weights = dense(given.weights, given.tokens, k, given.weights_stride, r.gathered.weights);
    if (of == nullptr) return code_of(r.held.record(out));
    const auto recorded = r.held.record(out, std::span(of, given.tokens));
    if (recorded == hotset::status::invalid_visit)
      return refuse(HOTSET_INVALID_VISIT, "of, accepted: tokens of the step, 0..%zu, ascending",
                    r.tokens - 1);
    return code_of(recorded);
  });
}

}  // namespace

extern "C" {

hotset_status hotset_recorder_create(const hotset_recorder_options* options,
                                     hotset_recorder** out) {
  if (out == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "out is null");
  *out = nullptr;
  hotset_recorder_options given{};
  if (const auto bad = take(options, given, "options"); bad != HOTSET_OK) return bad;
  return guarded([&] {
    hotset::trace_recorder_config config;
    config.shape = {.layers = given.layers, .experts = given.experts, .top_k = given.top_k};
    config.capacity = given.capacity;
    config.weights = given.weights != 0;
    if (given.name != nullptr) config.name = given.name;
    if (given.model != nullptr) config.model = given.model;
    auto made = hotset::trace_recorder::create(config);
    if (!made) return refuse(HOTSET_INVALID_CONFIG, "%s", made.error().message.c_str());
    *out = new hotset_recorder(config.shape, *std::move(made));
    return hotset_status{HOTSET_OK};
  });
}
void hotset_recorder_destroy(hotset_recorder* recorder) { delete recorder; }

hotset_status hotset_recorder_begin_step(hotset_recorder* recorder, uint64_t step, int32_t kind,
                                         size_t tokens, const uint32_t* sequences) {
  return with(recorder, [&](hotset_recorder& r) {
    if (kind < 0 || kind > static_cast<int32_t>(hotset::request_class::verify))
      return refuse(HOTSET_INVALID_ARGUMENT, "a step of kind %d, accepted: 0..2", kind);
    const std::span<const std::uint32_t> of(sequences, sequences == nullptr ? 0 : tokens);
    const auto begun =
        r.held.begin_step(step, static_cast<hotset::request_class>(kind), tokens, of);
    if (begun != hotset::status::ok) return refuse_step(r, step, tokens, begun);
    r.tokens = tokens;
    return hotset_status{HOTSET_OK};
  });
}
hotset_status hotset_recorder_record(hotset_recorder* recorder, const hotset_view* view) {
  return with(recorder, [&](hotset_recorder& r) { return record(r, view, nullptr); });
}
hotset_status hotset_recorder_record_rows(hotset_recorder* recorder, const hotset_view* view,
                                          const uint32_t* of) {
  return with(recorder, [&](hotset_recorder& r) {
    if (of == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "of is null");
    return record(r, view, of);
  });
}
hotset_status hotset_recorder_end_step(hotset_recorder* recorder) {
  return with(recorder, [](hotset_recorder& r) {
    if (r.held.end_step() != hotset::status::ok) return refuse_without_step();
    r.tokens = 0;
    return hotset_status{HOTSET_OK};
  });
}
hotset_status hotset_recorder_tokens(hotset_recorder* recorder, size_t* held, uint64_t* lost) {
  return with(recorder, [&](hotset_recorder& r) {
    if (held == nullptr || lost == nullptr)
      return refuse(HOTSET_INVALID_ARGUMENT, "held or lost is null");
    *held = r.held.tokens();
    *lost = r.held.lost_tokens();
    return hotset_status{HOTSET_OK};
  });
}
hotset_status hotset_recorder_write(hotset_recorder* recorder, const char* path) {
  return with(recorder, [&](hotset_recorder& r) {
    if (path == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "path is null");
    return guarded([&] {
      if (const auto bad = hotset::write_native_trace(r.held.closed(), path))
        return refuse(HOTSET_CANNOT_WRITE, "%s", bad->message.c_str());
      r.held.clear();
      r.tokens = 0;
      return hotset_status{HOTSET_OK};
    });
  });
}

}  // extern "C"
