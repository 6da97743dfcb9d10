// SPDX-License-Identifier: Apache-2.0
#pragma once
/// splitmix64: the same numbers for a seed on any machine.

#include <cstdint>

#include "hotset/version.hpp"

namespace hotset::suites {

class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    auto z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  std::int32_t id_below(std::int32_t n) noexcept {
    return static_cast<std::int32_t>(below(static_cast<std::uint64_t>(n)));
  }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace hotset::suites
