// SPDX-License-Identifier: Apache-2.0
/// The recorder of the C interface.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "calls.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/trace_recorder.hpp"

using namespace hotset;  // NOLINT(google-build-using-namespace): a source of one handle
using c::call;
using c::code_of;
using c::refuse;

/// Handle that C sees.
struct hotset_recorder : c::handle {
  hotset_recorder(geometry of, trace_recorder made) : shape(std::move(of)), held(std::move(made)) {
    // Each step states its number of tokens.
    shape.max_tokens_per_visit = std::numeric_limits<std::int32_t>::max();
  }

  geometry shape;
  trace_recorder held;
  std::size_t tokens = 0;  ///< tokens of the open step
  c::gathered_rows gathered{};
};

namespace {

hotset_status refuse_without_step() noexcept {
  return refuse(HOTSET_INVALID_ARGUMENT,
                "no step is open, accepted: hotset_recorder_begin_step first");
}
/// Reports why the recorder did not begin a step.
hotset_status refuse_step(const hotset_recorder& r, std::uint64_t step, std::size_t tokens,
                          status why) noexcept {
  if (why == status::exceeds_memory)
    return refuse(HOTSET_EXCEEDS_MEMORY,
                  "a step of %zu tokens, accepted: at most %zu, the rest of capacity = %zu; "
                  "write the trace to start again",
                  tokens, r.held.capacity() - r.held.tokens(), r.held.capacity());
  return refuse(HOTSET_INVALID_ARGUMENT,
                "step %llu of %zu tokens, accepted: a number above the last step's and at most "
                "4294967295, 1 token or more, and no step open",
                static_cast<unsigned long long>(step), tokens);
}

/// `of`: null if the rows are those of all tokens.
hotset_status record(hotset_recorder& r, const hotset_view& given, const std::uint32_t* of) {
  if (r.tokens == 0) return refuse_without_step();
  if (of == nullptr ? given.tokens != r.tokens : given.tokens > r.tokens)
    return refuse(HOTSET_INVALID_VISIT, "%zu tokens, accepted: the step's %zu", given.tokens,
                  r.tokens);
  routing_view out;
  if (const auto bad = c::read_view(given, r.shape, r.gathered, out); bad != HOTSET_OK) return bad;
  if (of == nullptr) return code_of(r.held.record(out));
  const auto recorded = r.held.record(out, std::span(of, given.tokens));
  if (recorded == status::invalid_visit)
    return refuse(HOTSET_INVALID_VISIT, "of, accepted: tokens of the step, 0..%zu, ascending",
                  r.tokens - 1);
  return code_of(recorded);
}

result<std::unique_ptr<hotset_recorder>> make(const hotset_recorder_options& o) {
  trace_recorder_config config;
  config.shape = {.layers = o.layers, .experts = o.experts, .top_k = o.top_k};
  config.capacity = o.capacity;
  config.weights = o.weights != 0;
  if (o.name != nullptr) config.name = o.name;
  if (o.model != nullptr) config.model = o.model;
  auto made = trace_recorder::create(config);
  if (!made) return made.error();
  return std::make_unique<hotset_recorder>(config.shape, *std::move(made));
}

}  // namespace

extern "C" {

hotset_status hotset_recorder_create(const hotset_recorder_options* options,
                                     hotset_recorder** out) {
  return c::create(options, out, make);
}
void hotset_recorder_destroy(hotset_recorder* recorder) { delete recorder; }

hotset_status hotset_recorder_begin_step(hotset_recorder* recorder, uint64_t step, int32_t kind,
                                         size_t tokens, const uint32_t* sequences) {
  return call(recorder).run([&](hotset_recorder& r) -> hotset_status {
    if (kind < 0 || kind > static_cast<int32_t>(request_class::verify))
      return refuse(HOTSET_INVALID_ARGUMENT, "a step of kind %d, accepted: 0..2", kind);
    const std::span of(sequences, sequences == nullptr ? 0 : tokens);
    const auto begun = r.held.begin_step(step, static_cast<request_class>(kind), tokens, of);
    if (begun != status::ok) return refuse_step(r, step, tokens, begun);
    r.tokens = tokens;
    return HOTSET_OK;
  });
}
hotset_status hotset_recorder_record(hotset_recorder* recorder, const hotset_view* view) {
  hotset_view given{};
  return call(recorder).reads(view, given, "view").run([&](hotset_recorder& r) {
    return record(r, given, nullptr);
  });
}
hotset_status hotset_recorder_record_rows(hotset_recorder* recorder, const hotset_view* view,
                                          const uint32_t* of) {
  hotset_view given{};
  return call(recorder).needs(of, "of").reads(view, given, "view").run([&](hotset_recorder& r) {
    return record(r, given, of);
  });
}
hotset_status hotset_recorder_end_step(hotset_recorder* recorder) {
  return call(recorder).run([](hotset_recorder& r) -> hotset_status {
    if (r.held.end_step() != status::ok) return refuse_without_step();
    r.tokens = 0;
    return HOTSET_OK;
  });
}
hotset_status hotset_recorder_tokens(hotset_recorder* recorder, size_t* held, uint64_t* lost) {
  return call(recorder).needs(held, "held").needs(lost, "lost").run([&](hotset_recorder& r) {
    *held = r.held.tokens();
    *lost = r.held.lost_tokens();
  });
}
hotset_status hotset_recorder_write(hotset_recorder* recorder, const char* path) {
  return call(recorder).needs(path, "path").run([&](hotset_recorder& r) -> hotset_status {
    if (const auto bad = write_native_trace(r.held.closed(), path))
      return refuse(HOTSET_CANNOT_WRITE, "%s", bad->message.c_str());
    r.held.clear();
    r.tokens = 0;
    return HOTSET_OK;
  });
}

}  // extern "C"
