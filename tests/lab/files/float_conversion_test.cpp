// SPDX-License-Identifier: Apache-2.0
#include "lab/files/float_conversion.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::lab::float_conversion_test {
namespace {

/// A floating-point format by its definition. The reference: values are doubles, which hold all three exactly.
struct float_rules {
  float_type type;
  int bits;    ///< of an element
  int digits;  ///< of a significand, the hidden one included
  int most;    ///< exponent, which is the bias, too

  [[nodiscard]] std::uint32_t special() const {  // infinity
    return ((1U << static_cast<unsigned>(bits - digits)) - 1U) << static_cast<unsigned>(digits - 1);
  }
  [[nodiscard]] std::uint32_t sign() const { return 1U << static_cast<unsigned>(bits - 1); }

  [[nodiscard]] double value(std::uint32_t stored) const {
    const auto magnitude = stored & ~sign();
    const auto field = static_cast<int>(magnitude >> static_cast<unsigned>(digits - 1));
    const auto fraction =
        static_cast<double>(magnitude & ((1U << static_cast<unsigned>(digits - 1)) - 1U));
    auto out = field == 0 ? std::ldexp(fraction, 1 - most - (digits - 1))
                          : std::ldexp(std::ldexp(1.0, digits - 1) + fraction,
                                       field - most - (digits - 1));
    if (magnitude == special()) out = std::numeric_limits<double>::infinity();
    if (magnitude > special()) out = std::numeric_limits<double>::quiet_NaN();
    return std::copysign(out, (stored & sign()) != 0 ? -1.0 : 1.0);
  }
  /// Stored bits of a number other than NaN. Returns nothing if a finite number would become infinite.
  [[nodiscard]] std::optional<std::uint32_t> stored(double value) const {
    const auto negative = std::signbit(value) ? sign() : 0U;
    const auto size = std::fabs(value);
    if (std::isinf(size)) return negative | special();
    if (size == 0) return negative;
    const auto quantum = [&](double v) {
      return std::ldexp(1.0, std::max(std::ilogb(v), 1 - most) - (digits - 1));
    };
    const auto rounded = std::nearbyint(size / quantum(size)) * quantum(size);  // ties to even
    if (rounded >= std::ldexp(1.0, most + 1)) return std::nullopt;
    if (rounded == 0) return negative;
    const auto steps = static_cast<std::uint32_t>(rounded / quantum(rounded));
    const auto hidden = 1U << static_cast<unsigned>(digits - 1);
    if (steps < hidden) return negative | steps;
    const auto field = static_cast<std::uint32_t>(std::ilogb(rounded) + most);
    return negative | (field << static_cast<unsigned>(digits - 1)) | (steps - hidden);
  }
};
const float_rules halves{float_type::f16, 16, 11, 15};
const float_rules brains{float_type::bf16, 16, 8, 127};
const float_rules singles{float_type::f32, 32, 24, 127};

/// Converts each element alone, at odd addresses, and compares with the definition. Returns how many do not fit.
std::size_t lost_of(const std::vector<std::uint32_t>& elements, const float_rules& from,
                    const float_rules& to) {
  std::size_t lost = 0;
  for (const auto element : elements) {
    std::array<std::byte, 5> stored{};
    std::array<std::byte, 5> made{};
    std::memcpy(stored.data() + 1, &element, 4);
    const bool fits =
        convert_floats(from.type, std::span(stored).subspan(1, element_bytes(from.type)), to.type,
                       std::span(made).subspan(1, element_bytes(to.type)));
    std::uint32_t got = 0;
    std::memcpy(&got, made.data() + 1, 4);
    const auto value = from.value(element);
    const auto wanted = std::isnan(value) ? std::nullopt : to.stored(value);
    const auto told =
        fmt::format("{:#x} of {} bits in {} is {:#x}", element, from.bits, to.bits, got);
    if (from.type == to.type) {
      EXPECT_EQ(got, element) << told;
    } else if (std::isnan(value)) {
      EXPECT_TRUE(fits && std::isnan(to.value(got))) << told;
      EXPECT_EQ(std::signbit(to.value(got)), std::signbit(value)) << told;
    } else {
      EXPECT_EQ(fits, wanted.has_value()) << told;
      EXPECT_EQ(got, wanted.value_or(got)) << told;
      lost += wanted ? 0U : 1U;
    }
    if (testing::Test::HasFailure()) break;
  }
  return lost;
}

std::vector<std::uint32_t> all_of_16_bits() {
  std::vector<std::uint32_t> out(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) out[i] = i;
  return out;
}

TEST(conversions, every_half_in_every_dtype) {
  for (const auto* const to : {&halves, &brains, &singles})
    EXPECT_EQ(lost_of(all_of_16_bits(), halves, *to), 0U);
}

TEST(conversions, every_bf16_in_every_dtype) {
  for (const auto* const to : {&brains, &singles})
    EXPECT_EQ(lost_of(all_of_16_bits(), brains, *to), 0U);
  EXPECT_EQ(lost_of(all_of_16_bits(), brains, halves), 2U * 112 * 128) << "2^16 and more";
}

TEST(conversions, random_floats_and_those_beside_every_border_in_every_dtype) {
  support::random_source random(20'240'701);
  std::vector<std::uint32_t> elements;
  for (int i = 0; i < 20'000; ++i) elements.push_back(static_cast<std::uint32_t>(random.next()));
  for (int i = 0; i < 100'000; ++i)  // 2^-28 to 2^17, where halves begin and end
    elements.push_back(static_cast<std::uint32_t>(random.next() & 0x807fffffU) |
                       ((127U - 28U + static_cast<std::uint32_t>(random.below(46))) << 23U));
  const std::vector<std::uint32_t> borders{
      0x00000000U, 0x00000001U, 0x00007fffU, 0x00008000U, 0x007fffffU, 0x00800000U, 0x33000000U,
      0x33800000U, 0x387fc000U, 0x38800000U, 0x3f800000U, 0x3f801000U, 0x3f803000U, 0x3f808000U,
      0x3f818000U, 0x477fe000U, 0x477ff000U, 0x7f7f7fffU, 0x7f7f8000U, 0x7f7fffffU, 0x7f800000U,
      0x7f800001U, 0x7f80ffffU, 0x7fc00000U, 0x7fffffffU};
  for (const auto border : borders)
    for (const auto sign : {0U, 0x80000000U})
      for (const std::uint32_t step : {0U, 1U, ~0U}) elements.push_back((border + step) ^ sign);
  for (const auto* const to : {&halves, &brains, &singles})
    EXPECT_EQ(lost_of(elements, singles, *to) > 0, to != &singles);
}

TEST(conversions, one_value_that_does_not_fit_is_said) {
  const std::vector<float> values{1, 65520, 2};
  std::vector<std::uint16_t> made(3);
  EXPECT_FALSE(convert_floats(float_type::f32, std::as_bytes(std::span(values)), float_type::f16,
                              std::as_writable_bytes(std::span(made))));
  EXPECT_EQ(made[0], 0x3c00U);
  EXPECT_EQ(made[2], 0x4000U);
}

}  // namespace
}  // namespace hotset::lab::float_conversion_test
