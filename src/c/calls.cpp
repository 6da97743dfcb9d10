// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <span>
#include <vector>

#include <pthread.h>

#include "hotset/version.hpp"

namespace hotset::c {

namespace {

std::array<char, 512>& words() noexcept {
  thread_local std::array<char, 512> text{};
  return text;
}

std::atomic<std::uint32_t>& fork_count() noexcept {
  static std::atomic<std::uint32_t> count{0};
  static const int watched =
      pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  (void)watched;
  return count;
}
// Looked up once, because every call needs it.
const std::atomic<std::uint32_t>& forked = fork_count();

/// Returns rows of `width` numbers: the engine's own, or gathered if they lie apart; then `room` grows to hold them.
template <class T>
std::span<const T> dense(const T* rows, std::size_t count, std::size_t width, std::size_t stride,
                         std::vector<T>& room) {
  if (stride == 0 || stride == width) return {rows, count * width};
  if (room.size() < count * width) room.resize(count * width);
  for (std::size_t r = 0; r < count; ++r)
    std::copy_n(rows + r * stride, width, room.data() + r * width);
  return std::span<const T>(room).first(count * width);
}

}  // namespace

hotset_status refuse(hotset_status code, const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(words().data(), words().size(), format, arguments);
  va_end(arguments);
  return code;
}
hotset_status refuse(hotset_status code) noexcept {
  return refuse(code, "%s", hotset_describe(code));
}
const char* last_words() noexcept { return words().data(); }
hotset_status check_scores(const hotset_view& view, bool needs_weights, bool needs_logits,
                           const char* whose) noexcept {
  if (view.tokens == 0) return HOTSET_OK;
  if (needs_weights && view.weights == nullptr)
    return refuse(HOTSET_INVALID_VISIT,
                  "a visit without weights, accepted: with the gate weights, which %s", whose);
  if (needs_logits && view.logits == nullptr)
    return refuse(HOTSET_INVALID_VISIT,
                  "a visit without logits, accepted: with the router's logits, which %s", whose);
  return HOTSET_OK;
}
hotset_status read_view(const hotset_view& view, const geometry& shape, gathered_rows& room,
                        routing_view& out) {
  if (!is_within(static_cast<layer_id>(view.layer), shape.layers))
    return refuse(HOTSET_INVALID_VISIT, "a visit of layer %d, accepted: 0..%d", view.layer,
                  shape.layers - 1);
  if (view.kind < 0 || view.kind > static_cast<std::int32_t>(request_class::verify))
    return refuse(HOTSET_INVALID_VISIT, "a visit of kind %d, accepted: 0..2", view.kind);
  if (view.tokens > shape.tokens_per_visit())
    return refuse(HOTSET_VISIT_TOO_LARGE, "a visit of %zu tokens, accepted: at most %d, max_tokens",
                  view.tokens, shape.max_tokens_per_visit);
  if (view.experts == nullptr && view.tokens != 0)
    return refuse(HOTSET_INVALID_VISIT, "a visit of %zu tokens without experts", view.tokens);
  const auto k = shape.ranks();
  for (const auto stride : {view.experts_stride, view.weights_stride})
    if (stride != 0 && stride < k)
      return refuse(HOTSET_INVALID_VISIT, "a stride of %zu, accepted: 0 or top_k = %zu and more",
                    stride, k);
  out.layer = static_cast<layer_id>(view.layer);
  out.step = view.step;
  out.kind = static_cast<request_class>(view.kind);
  out.experts = dense(view.experts, view.tokens, k, view.experts_stride, room.ids);
  if (view.weights != nullptr)
    out.weights = dense(view.weights, view.tokens, k, view.weights_stride, room.weights);
  if (view.sequences != nullptr) out.sequences = {view.sequences, view.tokens};
  if (view.logits != nullptr) out.logits = {view.logits, view.tokens * shape.expert_count()};
  if (view.chosen != nullptr) out.router_choice = std::span(view.chosen, view.tokens * k);
  return HOTSET_OK;
}
std::uint32_t forks() noexcept { return forked.load(std::memory_order_relaxed); }

}  // namespace hotset::c

extern "C" {

uint32_t hotset_abi_version(void) { return HOTSET_ABI_VERSION; }

const char* hotset_version(void) { return HOTSET_VERSION_TEXT; }

const char* hotset_describe(hotset_status status) {
  switch (status) {
    case HOTSET_INVALID_CONFIG: return "invalid options";
    case HOTSET_NO_MEMORY: return "no host memory";
    case HOTSET_WRONG_THREAD: return "another call with the handle is running";
    case HOTSET_FORKED: return "the handle was made before the process was forked";
    case HOTSET_CANNOT_WRITE: return "the file cannot be written";
    case HOTSET_STOPPED: return "a callback ended the visit";
    case HOTSET_POLICY_FAILED: return "a callback of the eviction policy failed";
    default: break;
  }
  // describe() returns literals, which are null-terminated.
  if (status < 0 || status > HOTSET_DOES_NOT_FIT) return "unknown status";
  return hotset::describe(static_cast<hotset::status>(status)).data();
}

const char* hotset_last_error(void) { return hotset::c::last_words(); }

}  // extern "C"
