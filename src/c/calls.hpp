// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What all functions of the C interface do at their edges: words for errors, structs of other versions, and one thread at a time.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "hotset.h"
#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"

namespace hotset::c {

/// Leaves words for hotset_last_error and returns the code. What does not fit into the thread's 512 bytes is cut off.
[[gnu::format(printf, 2, 3), gnu::cold]] hotset_status refuse(hotset_status code,
                                                              const char* format, ...) noexcept;
/// In the words of the status.
[[gnu::cold]] hotset_status refuse(hotset_status code) noexcept;
[[nodiscard]] const char* last_words() noexcept;

/// The codes of the two are the same numbers.
[[nodiscard]] inline hotset_status code_of(status s) noexcept {
  return s == status::ok ? HOTSET_OK : refuse(static_cast<hotset_status>(s));
}

/// How often this process was forked from one that used the library.
[[nodiscard]] std::uint32_t forks() noexcept;

/// What every handle begins with.
class handle {
 public:
  handle() noexcept : forks_(c::forks()) {}

 private:
  friend class entry;
  static_assert(std::atomic<std::thread::id>::is_always_lock_free);
  std::atomic<std::thread::id> inside_{};  ///< the thread whose call holds the handle
  std::uint32_t forks_;
};

/// A call with a handle, from its begin to its end. A call that finds another one inside is refused.
class entry {
 public:
  explicit entry(handle* of) noexcept {
    if (of == nullptr) {
      code_ = refuse(HOTSET_INVALID_ARGUMENT, "the handle is null");
    } else if (of->forks_ != forks()) {
      code_ =
          refuse(HOTSET_FORKED,
                 "the handle was made before this process was forked, accepted: one made since");
    } else {
      enter(*of);
    }
  }
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;
  ~entry() {
    if (inside_ != nullptr) inside_->inside_.store(std::thread::id(), std::memory_order_release);
  }
  [[nodiscard]] bool refused() const noexcept { return inside_ == nullptr; }
  [[nodiscard]] hotset_status code() const noexcept { return code_; }

 private:
  void enter(handle& of) noexcept {
    const auto self = std::this_thread::get_id();
    std::thread::id holder;
    if (of.inside_.compare_exchange_strong(holder, self, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
      inside_ = &of;
      return;
    }
    code_ = refuse(HOTSET_WRONG_THREAD, "%s",
                   holder == self
                       ? "a callback calls with the handle that its own call holds, accepted: "
                         "another handle, or a call after that one"
                       : "another thread is in a call with the handle, accepted: one at a time");
  }

  handle* inside_ = nullptr;
  hotset_status code_ = HOTSET_OK;
};

/// Whether a view's rows lie at least top_k numbers apart.
[[nodiscard]] inline hotset_status check_strides(const hotset_view& view,
                                                 std::size_t top_k) noexcept {
  for (const auto stride : {view.experts_stride, view.weights_stride})
    if (stride != 0 && stride < top_k)
      return refuse(HOTSET_INVALID_VISIT, "a stride of %zu, accepted: 0 or top_k = %zu and more",
                    stride, top_k);
  return HOTSET_OK;
}
/// Rows of `width` numbers as the engine has them, or gathered where they lie apart; then `room` grows to hold them.
template <class T>
[[nodiscard]] std::span<const T> dense(const T* rows, std::size_t count, std::size_t width,
                                       std::size_t stride, std::vector<T>& room) {
  if (stride == 0 || stride == width) return {rows, count * width};
  if (room.size() < count * width) room.resize(count * width);
  for (std::size_t r = 0; r < count; ++r)
    std::copy_n(rows + r * stride, width, room.data() + r * width);
  return std::span<const T>(room).first(count * width);
}
/// Room for the rows of a view that lie apart.
struct gathered_rows {
  gathered_rows() = default;
  /// For the largest visit: gathering allocates nothing.
  explicit gathered_rows(const geometry& shape)
      : ids(shape.ids_per_visit()), weights(shape.ids_per_visit()) {}

  std::vector<std::int32_t> ids{};
  std::vector<float> weights{};
};

/// Bytes of a struct in the first version that had it: members that were added since are zeros where a program was compiled
/// before.
template <class T>
inline constexpr std::size_t first_bytes = sizeof(T);
template <>
inline constexpr std::size_t first_bytes<hotset_pager_options> = offsetof(hotset_pager_options,
                                                                          lower_bytes);
template <>
inline constexpr std::size_t first_bytes<hotset_view> = offsetof(hotset_view, logits);

/// The model that options describe, with bytes still to be read.
template <class Options>
[[nodiscard]] geometry shape_of(const Options& o) {
  return {.layers = o.layers,
          .experts = o.experts,
          .top_k = o.top_k,
          .max_tokens_per_visit = o.max_tokens == 0 ? 1 : o.max_tokens};
}

/// Checks a view and reads it into `out`. Pre: `room` was made for `shape`; it is written only if the view is accepted.
[[nodiscard]] hotset_status read_view(const hotset_view& view, const geometry& shape,
                                      gathered_rows& room, routing_view& out) noexcept;
/// Refuses a view without the gate weights or the router's logits that `whose` go by.
[[nodiscard]] hotset_status check_scores(const hotset_view& view, bool needs_weights,
                                         bool needs_logits, const char* whose) noexcept;

/// More than a struct of any version: a larger size is no size, and what lies there is not read.
inline constexpr std::size_t most_bytes = 4096;

/// Copies a struct that the caller was compiled with. What it has beyond this version's must be zeros, for nobody would heed it.
template <class T>
[[nodiscard]] hotset_status take(const T* given, T& out, const char* what) noexcept {
  if (given == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "%s is null", what);
  if (given->struct_size < first_bytes<T> || given->struct_size > most_bytes)
    return refuse(HOTSET_INVALID_ARGUMENT, "%s.struct_size = %zu, accepted: %zu..%zu", what,
                  given->struct_size, first_bytes<T>, most_bytes);
  out = {};
  std::memcpy(&out, given, std::min(given->struct_size, sizeof(T)));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (auto at = sizeof(T); at < given->struct_size; ++at)
    if (bytes[at] != 0)
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "%s has a member that hotset %s does not know, accepted: zero there", what,
                    hotset_version());
  return HOTSET_OK;
}
/// Whether a struct to be written is there and large enough.
template <class T>
[[nodiscard]] hotset_status accepts(const T* out, const char* what) noexcept {
  if (out == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "%s is null", what);
  if (out->struct_size < sizeof(T))
    return refuse(HOTSET_INVALID_ARGUMENT, "%s.struct_size = %zu, accepted: %zu or more", what,
                  out->struct_size, sizeof(T));
  return HOTSET_OK;
}

/// Whether a pointer is there.
[[nodiscard]] inline hotset_status needs(const void* pointer, const char* what) noexcept {
  return pointer == nullptr ? refuse(HOTSET_INVALID_ARGUMENT, "%s is null", what) : HOTSET_OK;
}

/// Runs what may throw. `run` returns a code, a status, or nothing.
template <class Run>
hotset_status guarded(Run run) noexcept {
  using answer = std::invoke_result_t<Run>;
  try {
    if constexpr (std::is_void_v<answer>)
      run();
    else if constexpr (std::is_same_v<answer, status>)
      return code_of(run());
    else
      return run();
    return HOTSET_OK;
  } catch (const std::bad_alloc&) {
    return refuse(HOTSET_NO_MEMORY);
  } catch (const std::exception& e) {
    return refuse(HOTSET_INVALID_CONFIG, "%s", e.what());
  }
}

/// A call with a handle: takes it, checks arguments in their order up to the first that is refused, and then runs.
template <class Handle>
class call {
 public:
  explicit call(Handle* of) noexcept : inside_(of), of_(of), code_(inside_.code()) {}

  call& needs(const void* pointer, const char* what) noexcept {
    return check([&] { return c::needs(pointer, what); });
  }
  /// An array, which may be null if it is empty.
  call& needs(const void* first, std::size_t count, const char* what) noexcept {
    return count == 0 ? *this : needs(first, what);
  }
  /// A struct of the caller's version, into `out`.
  template <class T>
  call& reads(const T* given, T& out, const char* what) noexcept {
    return check([&] { return take(given, out, what); });
  }
  /// A struct that is to be written.
  template <class T>
  call& writes(const T* out, const char* what) noexcept {
    return check([&] { return accepts(out, what); });
  }
  /// Asks the handle.
  template <class... Args>
  call& check(hotset_status (Handle::*asked)(Args...) const noexcept, Args... args) noexcept {
    return check([&] { return (of_->*asked)(args...); });
  }
  template <class Use>
  hotset_status run(Use use) noexcept {
    return code_ == HOTSET_OK ? guarded([&] { return use(*of_); }) : code_;
  }

 private:
  template <class Check>
  call& check(Check refused) noexcept {
    if (code_ == HOTSET_OK) code_ = refused();
    return *this;
  }

  entry inside_;
  Handle* of_;
  hotset_status code_;
};

/// Makes a handle: make(options) returns a result of an owning pointer.
template <class Options, class Handle, class Make>
hotset_status create(const Options* options, Handle** out, Make make) noexcept {
  if (const auto bad = needs(out, "out"); bad != HOTSET_OK) return bad;
  *out = nullptr;
  Options given{};
  if (const auto bad = take(options, given, "options"); bad != HOTSET_OK) return bad;
  return guarded([&]() -> hotset_status {
    auto made = make(given);
    if (!made) return refuse(HOTSET_INVALID_CONFIG, "%s", made.error().message.c_str());
    *out = (*made).release();
    return HOTSET_OK;
  });
}

/// Whether a scope is one of the enumeration's.
[[nodiscard]] inline result<cache_scope> scope_of(std::int32_t scope) {
  if (scope != HOTSET_SCOPE_PER_LAYER && scope != HOTSET_SCOPE_SHARED)
    return error{"scope = " + std::to_string(scope) + ", accepted: 0, 1"};
  return scope == HOTSET_SCOPE_SHARED ? cache_scope::shared : cache_scope::per_layer;
}

}  // namespace hotset::c
