// SPDX-License-Identifier: Apache-2.0
// Configurations of adapters, damaged and truncated: they are read as valid ones, or throw trace_error only.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "damage.hpp"
#include "hotset/lab/esft_config.hpp"

namespace adapter_readers_test {
namespace {
using namespace hotset;

constexpr lab::esft_base base{.layers = 3, .experts = 8, .first_layer = 1};

/// The sample, the sample truncated at every byte, and damaged samples. `read` checks that accepted input is valid.
void fuzz(const std::string& sample, std::uint64_t rounds,
          const std::function<void(const std::string&)>& read) {
  read(sample);
  for (std::size_t n = 0; n < sample.size(); ++n)
    ASSERT_THROW(read(sample.substr(0, n)), trace_error) << "cut to " << n << " bytes";
  EXPECT_GT(fuzz_reader(sample, rounds,
                        [&](const std::string& bytes, splitmix64&) {
                          read(bytes);
                          return true;
                        }),
            0U)
      << "some damage leaves what can be read";
}

void expect_valid(const lab::esft_config& config) {
  ASSERT_EQ(config.layer_numbers, (std::vector<std::int32_t>{1, 2, 3}));
  ASSERT_EQ(config.tuned.size(), 3U);
  for (const auto& experts : config.tuned)
    for (const auto e : experts) ASSERT_TRUE(e >= 0 && e < base.experts);
}

const std::string small_config =
    R"({"experts": {"1": [3, 5], "2": [], "3": [0]}, "shared_experts": false, "non_expert_modules": false})";

TEST(fuzz_adapters, configurations) {
  fuzz(small_config, 20'000,
       [](const std::string& text) { expect_valid(lab::parse_esft_config(text, "a.json", base)); });
}

}  // namespace
}  // namespace adapter_readers_test
