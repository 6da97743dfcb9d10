// SPDX-License-Identifier: Apache-2.0
// The tiny model with experts in device slots: paged, it gives the same bytes as with all experts resident.

#include "cuda_decode/experts/tiny_on_device.hpp"

#include <cstring>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_decode/program/program.hpp"
#include "fake_machine.hpp"
#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/model/engine.hpp"

namespace cuda_decode::tiny_on_device_test {
namespace {

const tiny_moe::model& model() {
  static const tiny_moe::model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}

struct tiny_machine : fake_machine {
  explicit tiny_machine(pace how = pace::late, std::uint64_t seed = 1)
      : fake_machine(how, seed),
        shape(shape_of(model())),
        pages(api, shape.all_bytes()),
        source(page_locked_source(model(), pages)) {}

  [[nodiscard]] tiny_run full(decode_kernels& with, std::string_view prompt, std::size_t tokens) {
    auto stream = hotset::cuda::stream::create(api, 0).value();
    const auto geometry = tiny_moe::geometry_of(model());
    static_experts experts(api, geometry, {shape.layout()}, source, pages,
                           {.resident_layers = shape.layers}, stream);
    return decode_tiny({api, with, graphs, 0}, model(), experts, prompt, tokens);
  }
  [[nodiscard]] tiny_run paged(decode_kernels& with, std::string_view budget,
                               std::string_view prompt, std::size_t tokens) {
    const auto layout = tiny_moe::layout_of(model(), hotset::cache_scope::shared, budget);
    paged_experts experts(api, layout, {shape.layout()}, source, pages, {});
    auto out = decode_tiny({api, with, graphs, 0}, model(), experts, prompt, tokens);
    stats = experts.stats();
    return out;
  }

  model_shape shape;
  hotset::cuda::pinned_memory pages;
  hotset::memory_expert_source source;
  hotset::pager_stats stats;
};

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr std::string_view prompt = "int main(";

TEST(tiny_on_device, paged_gives_the_bytes_of_full_residency) {
  tiny_machine first;
  const auto full = first.full(first.kernels, prompt, 6);
  EXPECT_EQ(full.logits.size(), (prompt.size() + 5) * tiny_moe::model_config::vocabulary);
  for (const auto how : {pace::late, pace::random})
    for (const auto* const budget : {"25%", "4"}) {
      SCOPED_TRACE(budget);
      tiny_machine machine(how, 7);
      const auto paged = machine.paged(machine.kernels, budget, prompt, 6);
      EXPECT_TRUE(same_bytes(paged.logits, full.logits));
      EXPECT_EQ(paged.text, full.text);
      EXPECT_LT(machine.stats.hits, machine.stats.accesses);
      EXPECT_EQ(machine.stats.split_visits > 0, std::string_view(budget) == "4");
      EXPECT_THAT(machine.api.violations(), testing::IsEmpty());
      EXPECT_EQ(machine.api.synchronous_copies(), 0U);
    }
}

TEST(tiny_on_device, is_near_the_hosts_own_arithmetic) {
  tiny_machine machine;
  const auto device = machine.full(machine.kernels, prompt, 1);
  tiny_moe::resident_experts resident(model());
  tiny_moe::engine engine(model(), resident);
  const auto host =
      engine.forward({reinterpret_cast<const std::uint8_t*>(prompt.data()), prompt.size()});
  ASSERT_EQ(host.size(), device.logits.size());
  for (std::size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(host[i], device.logits[i], 1e-3);
}

TEST(tiny_on_device, an_absent_expert_is_noticed) {
  tiny_machine machine;
  const std::vector<hotset::slot_id> absent(static_cast<std::size_t>(machine.shape.experts),
                                            hotset::no_slot);
  bent_kernels bent(machine.kernels, [&](expert_arguments& a) { a.row = absent.data(); });
  EXPECT_THROW((void)machine.full(bent, prompt, 1), tiny_moe::provider_error);
}

TEST(tiny_on_device, runs_as_a_program) {
  const auto run = [](const std::vector<std::string>& words) {
    fake_machine machine(pace::random, 3);
    std::ostringstream out;
    std::ostringstream err;
    const program_parts parts{machine.api, machine.kernels, machine.graphs, {}, run_tiny};
    const int code = run_program(words, parts, out, err);
    EXPECT_EQ(machine.api.leaks(), 0U);
    return std::make_pair(code, out.str() + err.str());
  };
  const auto [code, text] = run({"tiny", "--expert-budget", "25%", "--tokens", "2"});
  EXPECT_EQ(code, ok);
  EXPECT_THAT(text,
              testing::HasSubstr("paged equal to full residency on the device, byte for byte"));
  const auto [too_few, refused] = run({"tiny", "--expert-budget", "1"});
  EXPECT_EQ(too_few, infeasible);
  EXPECT_THAT(refused, testing::HasSubstr("--expert-budget: "));
  EXPECT_EQ(run({"tiny", "--expert-budget", "lots"}).first, usage);
  EXPECT_EQ(run({"tiny", "--prompt", ""}).first, usage);
  EXPECT_EQ(run({"tiny", "--tokens", "100000"}).first, usage);
  EXPECT_EQ(run({"tiny", "--model", "/nowhere"}).first, bad_input);
}

}  // namespace
}  // namespace cuda_decode::tiny_on_device_test
