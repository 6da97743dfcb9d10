// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The last events of a random run: cheap to record, written out on a failure.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace hotset::support {

/// Notes are literals with a '%' for every number. Keeps the first fault only: later ones may follow from it.
class event_trail {
 public:
  /// Starts an operation of the test; later notes belong to it.
  template <class... Numbers>
  void begin(const char* what, Numbers... numbers) noexcept {
    ++operations_;
    add(what, true, numbers...);
  }
  template <class... Numbers>
  void note(const char* what, Numbers... numbers) noexcept {
    add(what, false, numbers...);
  }
  void fault(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  [[nodiscard]] bool failed() const noexcept { return !fault_.empty(); }
  [[nodiscard]] const std::string& what() const noexcept { return fault_; }
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_; }

  /// The last `operations` operations with their events, oldest first.
  [[nodiscard]] std::string last(std::size_t operations) const {
    std::size_t first = next_;
    const auto oldest = next_ - std::min<std::size_t>(next_, events_.size());
    for (std::size_t seen = 0; first > oldest && seen < operations;)
      seen += at(--first).begins ? 1U : 0U;
    std::string out;
    for (; first < next_; ++first) out += sentence(at(first));
    return out;
  }

 private:
  static constexpr std::size_t most_numbers = 5;
  struct event {
    const char* what = "";
    bool begins = false;
    std::array<std::int64_t, most_numbers> numbers{};
  };
  template <class... Numbers>
  void add(const char* what, bool begins, Numbers... numbers) noexcept {
    static_assert(sizeof...(Numbers) <= most_numbers);
    events_[next_++ % events_.size()] = {what, begins, {static_cast<std::int64_t>(numbers)...}};
  }
  [[nodiscard]] const event& at(std::size_t n) const noexcept {
    return events_[n % events_.size()];
  }
  static std::string sentence(const event& e) {
    std::string out = e.begins ? "  " : "      ";
    std::size_t used = 0;
    for (const char c : std::string_view(e.what)) {
      if (c == '%')
        out += std::to_string(e.numbers.at(used++));
      else
        out += c;
    }
    return out + "\n";
  }

  std::array<event, 2048> events_{};
  std::size_t next_ = 0;
  std::uint64_t operations_ = 0;
  std::string fault_;
};

}  // namespace hotset::support
