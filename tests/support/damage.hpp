// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Damage to the bytes of a file, for the tests of every reader.

#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "hotset/core/error.hpp"
#include "hotset/core/numbers/splitmix64.hpp"

namespace hotset {

/// One to four small faults: flipped bits; changed, removed, doubled or inserted bytes; large numbers.
inline std::string damaged(std::string bytes, splitmix64& random) {
  const auto injuries = 1 + random.below(4);
  for (std::uint64_t i = 0; i < injuries; ++i) {
    const auto at = static_cast<std::size_t>(random.below(bytes.size() + 1));
    const auto length = static_cast<std::size_t>(random.below(24));
    const auto any = static_cast<char>(random.next() & 0xffU);
    constexpr std::string_view likely = "0123456789,.-+eE\t\n\"[]{}:nai# ";
    switch (random.below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = any;
        break;
      case 2: bytes.resize(at); break;
      case 3: bytes.insert(at, 1, any); break;
      case 4: bytes.insert(at, 1, likely[random.below(likely.size())]); break;
      case 5: bytes.insert(at, bytes.substr(at, length)); break;
      case 6: bytes.erase(at, length); break;
      default: bytes.insert(at, "99999999999"); break;
    }
  }
  return bytes;
}

/// Calls check(damaged sample, random) repeatedly. It returns whether the reader accepted the bytes, and may throw
/// trace_error of one line. Returns the number of accepted samples, which is not all.
template <class Check>
std::uint64_t fuzz_reader(const std::string& sample, std::uint64_t rounds, Check check) {
  constexpr std::uint64_t first_seed = 20240601;
  std::cout << "seeds " << first_seed << ".." << first_seed + rounds - 1 << '\n';
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + rounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    splitmix64 random(seed);
    try {
      accepted += check(damaged(sample, random), random) ? 1U : 0U;
    } catch (const trace_error& refusal) {
      EXPECT_EQ(std::string_view(refusal.what()).find('\n'), std::string_view::npos)
          << refusal.what();
    } catch (const std::exception& other) {
      ADD_FAILURE() << other.what();
    }
    if (testing::Test::HasFailure()) return accepted;
  }
  std::cout << accepted << " of " << rounds << " accepted\n";
  EXPECT_LT(accepted, rounds) << "damage must be noticed now and then";
  return accepted;
}

}  // namespace hotset
