// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Damage to the bytes of a file, for the tests of every reader.

#include <cstdint>
#include <string>
#include <string_view>

#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset {

/// One to four small injuries: flipped bits, changed, cut, doubled or inserted bytes, big numbers.
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

}  // namespace hotset
