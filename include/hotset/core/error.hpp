// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Errors of set-up and input: a result type that works without exceptions, two exceptions, and a log sink for
/// failures that no call returns.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/core/platform/assert.hpp"

#if defined(__cpp_exceptions)
#define HOTSET_EXCEPTIONS 1
#include <new>
#include <stdexcept>
#else
#define HOTSET_EXCEPTIONS 0
#endif

namespace hotset {

/// The reason why a set-up call failed. The message names the refused value and the accepted range.
struct error {
  std::string message;
};

namespace detail {
/// Accepts text, a number, or an id.
template <class Part>
concept message_part = std::is_convertible_v<const Part&, std::string_view> ||
    std::is_arithmetic_v<Part> || requires(const Part& part) {
  to_string(part);
};
}  // namespace detail

/// Builds an error whose message joins the parts in order: text, numbers, ids.
template <detail::message_part... Parts>
[[nodiscard]] error refusal(const Parts&... parts) {
  error out;
  const auto append = [&](const auto& part) {
    using std::to_string;
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>)
      out.message.append(std::string_view(part));
    else
      out.message += to_string(part);
  };
  (append(parts), ...);
  return out;
}

#if HOTSET_EXCEPTIONS
/// Thrown for a configuration that cannot work.
struct invalid_config : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
/// Thrown for a file or stream with unexpected content.
struct trace_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
#endif

/// Holds a value, or the reason why there is none.
template <class T>
class [[nodiscard]] result {
 public:
  result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  result(struct error reason)
      : reason_(std::move(reason)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }

  /// Pre: has_value().
  T& operator*() & noexcept {
    HOTSET_ASSERT(has_value());
    return *value_;
  }
  const T& operator*() const& noexcept {
    HOTSET_ASSERT(has_value());
    return *value_;
  }
  T&& operator*() && noexcept {
    HOTSET_ASSERT(has_value());
    return *std::move(value_);
  }
  T* operator->() noexcept {
    HOTSET_ASSERT(has_value());
    return &*value_;
  }
  const T* operator->() const noexcept {
    HOTSET_ASSERT(has_value());
    return &*value_;
  }
  /// Pre: !has_value().
  [[nodiscard]] const struct error& error() const noexcept { return reason_; }

#if HOTSET_EXCEPTIONS
  /// Errors: throws invalid_config with the reason's message.
  T& value() & {
    require_value();
    return *value_;
  }
  const T& value() const& {
    require_value();
    return *value_;
  }
  T value() && {
    require_value();
    return *std::move(value_);
  }
#endif

 private:
#if HOTSET_EXCEPTIONS
  void require_value() const {
    if (!value_) throw invalid_config(reason_.message);
  }
#endif

  std::optional<T> value_;
  struct error reason_;
};

/// Returns the error for an allocation failure. The message fits the small-string buffer, so it allocates nothing.
inline error no_host_memory() { return {"no host memory"}; }
/// Returns `make()`, or `refused` if memory runs out. Without exceptions, running out of memory ends the program.
template <class Make, class Refused>
auto unless_out_of_memory(Make make, [[maybe_unused]] Refused refused) noexcept
    -> decltype(make()) {
#if HOTSET_EXCEPTIONS
  try {
    return make();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return refused;
#else
  return make();
#endif
}

/// The reason why a configuration is refused, or empty if it is valid.
using validation = std::optional<error>;

#if HOTSET_EXCEPTIONS
/// Errors: throws invalid_config if `check` holds a reason.
inline void require_valid(const validation& check) {
  if (check) throw invalid_config(check->message);
}
#endif

/// Severity of a logged message.
enum class log_level : std::uint8_t { warning, error };

/// Receives warnings and errors that no call returns. Copyable; an empty sink drops them. The callback must not throw
/// and must not call the reporting object. A visit without failures logs nothing.
struct log_sink {
  void (*write)(void* context, log_level level, std::string_view text) noexcept = nullptr;
  void* context = nullptr;

  void operator()(log_level level, std::string_view text) const noexcept {
    if (write != nullptr) write(context, level, text);
  }
};

}  // namespace hotset
