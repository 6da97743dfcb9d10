// SPDX-License-Identifier: Apache-2.0
// Every reader of adapters on damaged and truncated input: it returns a valid object or throws trace_error only.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "damage.hpp"
#include "hotset/lab/adapter_checkpoint.hpp"
#include "hotset/lab/esft_config.hpp"
#include "trace_samples.hpp"

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
  const auto again = lab::parse_esft_config(lab::format_esft_config(config), "again", base);
  ASSERT_EQ(again.tuned, config.tuned) << "written as it was read";
}

const std::string small_config =
    R"({"experts": {"1": [3, 5], "2": [], "3": [0]}, "shared_experts": false, "non_expert_modules": false})";

TEST(fuzz_adapters, configurations) {
  fuzz(small_config, 20'000,
       [](const std::string& text) { expect_valid(lab::parse_esft_config(text, "a.json", base)); });
}

lab::adapter_format small_format(bool converts) {
  return {.base = base,
          .weights = {{{"up", 1, 2}}, {{"down", 2, 1}}},
          .dtype = "F16",
          .converts = converts};
}

/// Reads all weights: values that do not fit the dtype are reported, and nothing is written past the end.
void read_all_weights(const lab::adapter_checkpoint& checkpoint) {
  for (auto l = before_layers; l <= base.layers; ++l)
    for (auto e = no_expert; e <= base.experts; ++e)
      for (std::size_t w = 0; w < 3; ++w) {
        std::vector<std::byte> out(4);
        (void)checkpoint.read(l, w, e, out);
      }
}

/// The three adapted experts of small_config, in F32 if `wide`.
std::string weights_file(bool wide) {
  const std::string element = wide ? std::string("\0\0\xc0\x3f", 4) : std::string("\0\x3e", 2);
  std::string header;
  std::string data;
  for (const auto& [layer, expert] : {std::pair{1, 3}, std::pair{1, 5}, std::pair{3, 0}})
    for (const std::string matrix : {"up", "down"}) {
      const auto begin = std::to_string(data.size());
      data += element + element;
      header += (header.empty() ? "{\"" : ",\"") + std::string("layers.") + std::to_string(layer) +
                ".mlp.experts." + std::to_string(expert) + "." + matrix + R"(.weight":{"dtype":")" +
                (wide ? "F32" : "F16") + R"(","shape":)" + (matrix == "up" ? "[1,2]" : "[2,1]") +
                R"(,"data_offsets":[)" + begin + "," + std::to_string(data.size()) + "]}";
    }
  return trace_samples::safetensors_bytes(header + "}", data);
}

TEST(fuzz_adapters, checkpoints_weights) {
  for (const bool converts : {false, true}) {
    const trace_samples::temporary_folder folder;
    (void)folder.write("expert_cfg.json", small_config);
    fuzz(weights_file(converts), 4000, [&](const std::string& bytes) {
      (void)folder.write("model.safetensors", bytes);
      const lab::adapter_checkpoint checkpoint(folder.path(), small_format(converts));
      expect_valid(checkpoint.config());
      read_all_weights(checkpoint);
    });
  }
}

TEST(fuzz_adapters, checkpoints_configurations) {
  const trace_samples::temporary_folder folder;
  (void)folder.write("model.safetensors", weights_file(false));
  fuzz(small_config, 4000, [&](const std::string& text) {
    (void)folder.write("expert_cfg.json", text);
    const lab::adapter_checkpoint checkpoint(folder.path(), small_format(false));
    expect_valid(checkpoint.config());
    for (const auto& [layer, expert] : {std::pair{0_layer, 3_expert}, std::pair{0_layer, 5_expert},
                                        std::pair{2_layer, 0_expert}}) {
      std::vector<std::byte> out(4);
      ASSERT_TRUE(checkpoint.read(layer, 0, expert, out)) << "set-equal to what was damaged";
    }
  });
}

}  // namespace
}  // namespace adapter_readers_test
