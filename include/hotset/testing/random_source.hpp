// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random numbers for tests from splitmix64: the same numbers for a seed on any machine.

#include <cstdint>

#include "hotset/core/numbers/splitmix64.hpp"

namespace hotset::suites {

class random_source {
 public:
  explicit random_source(std::uint64_t seed) : numbers_(seed) {}
  std::uint64_t next() noexcept { return numbers_.next(); }
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  std::int32_t id_below(std::int32_t n) noexcept {
    return static_cast<std::int32_t>(below(static_cast<std::uint64_t>(n)));
  }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

 private:
  splitmix64 numbers_;
};

}  // namespace hotset::suites
