// SPDX-License-Identifier: Apache-2.0
#include "lab/sizes.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/units.hpp"

namespace sizes_test {
namespace {

using namespace hotset::literals;  // NOLINT(google-build-using-namespace)
using hotset::lab::least_size_text;
using hotset::lab::parse_duration;
using hotset::lab::parse_rate;
using hotset::lab::read_rate;
using hotset::lab::read_size;
using hotset::lab::read_size_or_none;
using hotset::lab::size_text;
using hotset::lab::usage_error;
using testing::HasSubstr;
using testing::StartsWith;

/// The refusal's message; empty if there is none.
template <class Read>
std::string refusal(Read&& read) {
  try {
    (void)read();
  } catch (const usage_error& error) {
    return error.what();
  }
  return {};
}
std::string of_size(const std::string& text, const std::string& usual = "GiB") {
  return refusal([&] { return read_size(text, usual); });
}
std::string of_rate(const std::string& text) {
  return refusal([&] { return read_rate(text); });
}

TEST(sizes, units_are_read_as_they_are_written) {
  EXPECT_EQ(read_size("24GiB"), 24_GiB);
  EXPECT_EQ(read_size("24GB"), 24'000'000'000U);
  EXPECT_EQ(read_size("24B"), 24U);
  EXPECT_EQ(read_size_or_none("0"), 0U);
  EXPECT_EQ(read_rate("25GB/s"), 25'000'000'000U);
}

TEST(sizes, a_number_without_a_unit_is_refused_with_the_unit_that_is_usual_there) {
  EXPECT_THAT(of_size("24"),
              StartsWith("'24' has no unit (did you mean 24GiB?); accepted: a number with B, kB"));
  EXPECT_THAT(of_size("1.5", "MiB"), HasSubstr("did you mean 1.5MiB?"));
  EXPECT_THAT(of_size("25769803776"), HasSubstr("did you mean 25769803776B?"));
  EXPECT_THAT(refusal([] { return read_size_or_none("4096"); }), HasSubstr("has no unit"));
  EXPECT_THAT(of_rate("25"), StartsWith("'25' has no unit (did you mean 25GB/s?); accepted: "));
  EXPECT_THAT(of_rate("25/s"), HasSubstr("did you mean 25GB/s?"));
}

TEST(sizes, misspelt_units_are_recognised) {
  EXPECT_THAT(of_size("24gb"), HasSubstr("did you mean 24GB?"));
  EXPECT_THAT(of_size("24 GiB"), HasSubstr("did you mean 24GiB?"));
  EXPECT_THAT(of_size("24G"), HasSubstr("did you mean 24GiB or 24GB?"));
  EXPECT_THAT(of_size("24k"), HasSubstr("did you mean 24KiB or 24kB?"));
  EXPECT_THAT(of_size("24Gi"), HasSubstr("did you mean 24GiB?"));
  EXPECT_THAT(of_rate("25GB"), HasSubstr("did you mean 25GB/s?"));
  EXPECT_THAT(of_rate("25GBps"), HasSubstr("did you mean 25GB/s?"));
  EXPECT_THAT(of_rate("25 gib/s"), HasSubstr("did you mean 25GiB/s?"));
}

TEST(sizes, an_invalid_size_gets_no_suggestion) {
  for (const auto* text :
       {"", "x", "GiB", "-1GiB", "1..2GiB", "24XB", "9999999999TiB", "0GiB", "0"}) {
    EXPECT_THAT(of_size(text), HasSubstr("accepted: a number with B")) << text;
    EXPECT_THAT(of_size(text), testing::Not(HasSubstr("did you mean"))) << text;
  }
  for (const auto* text : {"", "fast", "0GB/s", "-1GB/s"})
    EXPECT_THAT(of_rate(text), testing::Not(HasSubstr("did you mean"))) << text;
}

TEST(sizes, every_guess_reads_as_a_size) {
  for (const std::string number : {"1", "24", "0.5", "1e5", "123456", "99999999999"})
    for (const std::string unit : {"", " ", "b", "kb", "MIB", "g", "Ti", "q"})
      for (const bool rate : {false, true}) {
        const auto said = rate ? of_rate(number + unit) : of_size(number + unit);
        const auto at = said.find("mean ");
        if (at == std::string::npos) continue;
        const auto guess = said.substr(at + 5, said.find_first_of(" ?", at + 5) - at - 5);
        EXPECT_EQ(rate ? of_rate(guess) : of_size(guess), "") << guess;
      }
}

TEST(sizes, are_written_as_people_write_them) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(24_GiB), "24 GiB");
  EXPECT_EQ(size_text(24_GiB + 1), "24.0 GiB");
  EXPECT_EQ(size_text(1536_MiB), "1.5 GiB");
  EXPECT_EQ(size_text(std::uint64_t{1} << 60U), "1 EiB");
}

TEST(sizes, the_least_size_is_enough_when_it_is_pasted) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto bytes = std::max<std::uint64_t>(1, random() >> (2 + random() % 62));
    EXPECT_GE(read_size(least_size_text(bytes)), bytes) << least_size_text(bytes);
  }
  EXPECT_EQ(least_size_text(8'585'113'600), "8.0GiB");
  EXPECT_EQ(least_size_text(8_GiB), "8GiB");
  EXPECT_EQ(least_size_text(8_GiB + 1), "8.1GiB");
}

TEST(sizes, the_needed_size_is_printed_exactly_and_can_be_pasted) {
  using hotset::lab::at_least_text;
  EXPECT_EQ(at_least_text(8'585'113'600), "8.0GiB (8585113600B) or more");
  EXPECT_EQ(at_least_text(54_GiB), "54GiB or more");
  EXPECT_EQ(at_least_text(400), "400B or more");
}

TEST(sizes, bytes_in_a_message_are_also_printed_in_readable_units) {
  using hotset::lab::with_sizes;
  EXPECT_EQ(with_sizes("a budget of 6442450944 bytes, accepted: 1073741825 bytes or more"),
            "a budget of 6442450944 bytes (6 GiB), accepted: 1073741825 bytes (1.0 GiB) or more");
  for (const auto* text : {"", "400 bytes", "bytes", " bytes", "99999999999999999999999 bytes",
                           "the bytes of an expert", "12345 bits"})
    EXPECT_EQ(with_sizes(text), text);
}

TEST(sizes, a_refusal_names_the_option_once) {
  const auto told =
      refusal([] { return hotset::lab::for_option("--vram", [] { return read_size("24"); }); });
  EXPECT_THAT(told, StartsWith("--vram: '24' has no unit"));
  EXPECT_EQ(refusal([&] {
              return hotset::lab::for_option("--vram", [&]() -> int { throw usage_error(told); });
            }),
            told);
}

TEST(sizes, rates_are_bytes_a_second_and_never_zero) {
  EXPECT_EQ(parse_rate("25GB/s"), 25'000'000'000U);
  EXPECT_EQ(parse_rate("1.5MiB/s"), 1'572'864U);
  for (const auto* text :
       {"", "25GB", "0GB/s", "0/s", "/s", "-1GB/s", "25Gb/s", "25GB/ms", "inf/s"})
    EXPECT_EQ(parse_rate(text), std::nullopt) << text;
}

TEST(sizes, durations_have_a_unit) {
  EXPECT_EQ(parse_duration("10us"), 10'000U);
  EXPECT_EQ(parse_duration("1.5ms"), 1'500'000U);
  EXPECT_EQ(parse_duration("2s"), 2'000'000'000U);
  EXPECT_EQ(parse_duration("7ns"), 7U);
  EXPECT_EQ(parse_duration("0"), 0U);
  EXPECT_EQ(parse_duration("0us"), 0U);
  for (const auto* text : {"", "10", "us", "-1us", "1e3us", "10 us", "1001s", "10m"})
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
}

}  // namespace
}  // namespace sizes_test
