// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Entry checks of all functions of the C interface: error texts, structs of other versions, and one thread at a
/// time.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
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

/// Stores a text for hotset_last_error and returns the code. Text beyond the thread's 512 bytes is cut off.
[[gnu::format(printf, 2, 3), gnu::cold]] hotset_status refuse(hotset_status code,
                                                              const char* format, ...) noexcept;
/// Stores the description of the status.
[[gnu::cold]] hotset_status refuse(hotset_status code) noexcept;
[[nodiscard]] const char* last_words() noexcept;

/// Both enumerations have the same numbers.
[[nodiscard]] inline hotset_status code_of(status s) noexcept {
  return s == status::ok ? HOTSET_OK : refuse(static_cast<hotset_status>(s));
}

/// Number of times that this process was forked from one that used the library.
[[nodiscard]] std::uint32_t forks() noexcept;

/// Base of every handle.
class handle {
 public:
  handle() noexcept : forks_(c::forks()) {}

 private:
  template <class>
  friend class call;
  static_assert(std::atomic<std::thread::id>::is_always_lock_free);
  std::atomic<std::thread::id> inside_{};  ///< thread whose call holds the handle
  std::uint32_t forks_;
};

/// Buffers for rows of a view that lie apart.
struct gathered_rows {
  gathered_rows() = default;
  /// Large enough for the largest visit: gathering allocates nothing.
  explicit gathered_rows(const geometry& shape)
      : ids(shape.ids_per_visit()), weights(shape.ids_per_visit()) {}

  std::vector<std::int32_t> ids{};
  std::vector<float> weights{};
};

/// Returns the model that options describe, without its bytes.
template <class Options>
[[nodiscard]] geometry shape_of(const Options& o) {
  return {.layers = o.layers,
          .experts = o.experts,
          .top_k = o.top_k,
          .max_tokens_per_visit = o.max_tokens == 0 ? 1 : o.max_tokens};
}

/// Checks a view and reads it into `out`. Writes `room` only if the view is accepted. Allocates only if `room` was
/// not made for `shape`.
[[nodiscard]] hotset_status read_view(const hotset_view& view, const geometry& shape,
                                      gathered_rows& room, routing_view& out);
/// Refuses a view without the gate weights or the router's logits that the policies or the predictor need. `whose`:
/// the subject and verb of the error, such as "the policies need".
[[nodiscard]] hotset_status check_scores(const hotset_view& view, bool needs_weights,
                                         bool needs_logits, const char* whose) noexcept;

/// Larger than a struct of any version. A larger size is invalid, and the struct is not read.
inline constexpr std::size_t most_bytes = 4096;

/// Copies a struct of this version or a later one. Members that this version does not know must be zero.
template <class T>
[[nodiscard]] hotset_status take(const T* given, T& out, const char* what) noexcept {
  if (given == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "%s is null", what);
  if (given->struct_size < sizeof(T) || given->struct_size > most_bytes)
    return refuse(HOTSET_INVALID_ARGUMENT, "%s.struct_size = %zu, accepted: %zu..%zu", what,
                  given->struct_size, sizeof(T), most_bytes);
  out = *given;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (auto at = sizeof(T); at < given->struct_size; ++at)
    if (bytes[at] != 0)
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "%s has a member that hotset %s does not know, accepted: zero there", what,
                    hotset_version());
  return HOTSET_OK;
}
/// Checks that a struct to be written exists and is large enough.
template <class T>
[[nodiscard]] hotset_status accepts(const T* out, const char* what) noexcept {
  if (out == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "%s is null", what);
  if (out->struct_size < sizeof(T))
    return refuse(HOTSET_INVALID_ARGUMENT, "%s.struct_size = %zu, accepted: %zu or more", what,
                  out->struct_size, sizeof(T));
  return HOTSET_OK;
}

/// Checks that a pointer is not null.
[[nodiscard]] inline hotset_status needs(const void* pointer, const char* what) noexcept {
  return pointer == nullptr ? refuse(HOTSET_INVALID_ARGUMENT, "%s is null", what) : HOTSET_OK;
}

/// Runs code that may throw. `run` returns a code, a status, or nothing.
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

/// A call with a handle, from entry to exit. Takes the handle, checks arguments in order until one is refused, then
/// runs. Refuses a call while another one is inside.
template <class Handle>
class call {
 public:
  explicit call(Handle* of) noexcept : of_(of), code_(enter(of)), is_inside_(code_ == HOTSET_OK) {}
  call(const call&) = delete;
  call& operator=(const call&) = delete;
  ~call() {
    if (is_inside_) of_->inside_.store(std::thread::id(), std::memory_order_release);
  }

  call& needs(const void* pointer, const char* what) noexcept {
    return check([&] { return c::needs(pointer, what); });
  }
  /// Checks an array, which may be null if it is empty.
  call& needs(const void* first, std::size_t count, const char* what) noexcept {
    return count == 0 ? *this : needs(first, what);
  }
  /// Reads a struct of the caller's version into `out`.
  template <class T>
  call& reads(const T* given, T& out, const char* what) noexcept {
    return check([&] { return take(given, out, what); });
  }
  /// Checks a struct that will be written.
  template <class T>
  call& writes(const T* out, const char* what) noexcept {
    return check([&] { return accepts(out, what); });
  }
  call& layer(std::int32_t layer) noexcept {
    return check([&] { return of_->check_layer(layer); });
  }
  call& slot(std::int32_t slot) noexcept {
    return check([&] { return of_->check_slot(slot); });
  }
  call& key(hotset_key key) noexcept {
    return check([&] { return of_->check_key(key); });
  }
  template <class Check>
  call& check(Check refused) noexcept {
    if (code_ == HOTSET_OK) code_ = refused();
    return *this;
  }
  template <class Use>
  hotset_status run(Use use) noexcept {
    if (code_ != HOTSET_OK) return code_;
    const auto code = guarded([&] { return use(*of_); });
    if constexpr (requires { of_->ended(code); }) return of_->ended(code);
    return code;
  }

 private:
  static hotset_status enter(handle* of) noexcept {
    if (of == nullptr) return refuse(HOTSET_INVALID_ARGUMENT, "the handle is null");
    if (of->forks_ != forks())
      return refuse(
          HOTSET_FORKED,
          "the handle was made before this process was forked, accepted: one made after it");
    const auto self = std::this_thread::get_id();
    std::thread::id holder;
    if (of->inside_.compare_exchange_strong(holder, self, std::memory_order_acquire,
                                            std::memory_order_relaxed))
      return HOTSET_OK;
    return refuse(HOTSET_WRONG_THREAD, "%s",
                  holder == self
                      ? "a callback calls with the handle that its own call holds, accepted: "
                        "another handle, or a call after that one"
                      : "another thread is in a call with the handle, accepted: one at a time");
  }

  Handle* of_;
  hotset_status code_;
  bool is_inside_;
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

/// Returns the scope of a number, or refuses a number that is none.
[[nodiscard]] inline result<cache_scope> scope_of(std::int32_t scope) {
  if (scope != HOTSET_SCOPE_PER_LAYER && scope != HOTSET_SCOPE_SHARED)
    return refusal("scope = ", scope, ", accepted: 0, 1");
  return scope == HOTSET_SCOPE_SHARED ? cache_scope::shared : cache_scope::per_layer;
}

}  // namespace hotset::c
