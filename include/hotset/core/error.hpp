// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Errors of set-up and input: a result type that works without exceptions, the two exceptions, and a sink for what no
/// call returns.

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

/// Why a set-up call refused: names the offending value and the accepted range.
struct error {
  std::string message;
};

namespace detail {
/// Text, a number, or an id.
template <class Part>
concept message_part = std::is_convertible_v<const Part&, std::string_view> ||
    std::is_arithmetic_v<Part> || requires(const Part& part) {
  to_string(part);
};
}  // namespace detail

/// An error whose message is the parts in order: text, numbers, ids.
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
/// A configuration that cannot work.
struct invalid_config : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
/// A file or stream that is not what it should be.
struct trace_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
#endif

/// A value, or the reason why there is none.
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

/// Why a set-up call got no memory: short enough to need none itself.
inline error no_host_memory() { return {"no host memory"}; }
/// Returns `make()`, or `refused` if the machine has no memory for it. Without exceptions that ends the program.
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

/// The reason why a configuration is refused, or nothing.
using validation = std::optional<error>;

#if HOTSET_EXCEPTIONS
/// Errors: throws invalid_config when `check` holds a reason.
inline void require_valid(const validation& check) {
  if (check) throw invalid_config(check->message);
}
#endif

/// How bad it is.
enum class log_level : std::uint8_t { warning, error };

/// Receives warnings and errors that no call returns. Copyable; an empty one drops them. The callback must not throw,
/// nor call back into the object that reports. A visit in which all goes well reports nothing.
struct log_sink {
  void (*write)(void* context, log_level level, std::string_view text) noexcept = nullptr;
  void* context = nullptr;

  void operator()(log_level level, std::string_view text) const noexcept {
    if (write != nullptr) write(context, level, text);
  }
};

}  // namespace hotset
