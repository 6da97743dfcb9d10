// SPDX-License-Identifier: Apache-2.0
// The repository's adapters, all in one pass: each row gets the bytes of its own merged model, wherever the experts
// are.
#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter_samples.hpp"
#include "tiny_moe/experts/adapter_experts.hpp"
#include "tiny_moe/experts/adapter_files.hpp"
#include "tiny_moe/experts/registered_adapters.hpp"

namespace trained_adapters_test {
namespace {

using namespace adapter_samples;
using hotset::cache_scope;
using testing::ElementsAre;

/// Ids 1, 2 and 3; 0 is the base model.
const std::vector<adapter_weights>& trained() {
  static const std::vector<adapter_weights> read = [] {
    const auto folder = std::filesystem::path(HOTSET_TINY_MOE_DIR) / "adapters";
    std::vector<adapter_weights> out;
    for (const char* name : {"code", "prose", "tool"})
      out.push_back(read_adapter(weights().config(), folder / name));
    return out;
  }();
  return read;
}
const std::vector<const adapter_weights*>& trained_pointers() {
  static const auto made = pointers(trained());
  return made;
}
const adapter_weights* trained_as(adapter_id adapter) {
  return adapter == base_model ? nullptr : trained_pointers()[adapter - 1];
}
const adapter_experts& over_base() {
  static const adapter_experts made(weights(), trained_pointers());
  return made;
}

/// A way to serve the adapters, and a check of its intended effect.
struct served_adapters {
  std::unique_ptr<expert_provider> experts;
  std::size_t virtual_experts = 0;
  std::function<void()> check;
};
served_adapters resident() {
  auto made = std::make_unique<resident_adapters>(weights(), trained_pointers());
  const auto virtual_experts = made->virtual_experts();
  return {std::move(made), virtual_experts, [] {}};
}
served_adapters registered() {
  auto made = std::make_unique<registered_adapters>(weights(), source_of(trained_pointers()));
  for (adapter_id a = 1; a <= trained().size(); ++a)
    EXPECT_EQ(made->acquire(a), hotset::adapter_status::ok) << a;
  const auto virtual_experts = made->virtual_experts();
  return {std::move(made), virtual_experts, [] {}};
}
served_adapters paged(cache_scope scope, std::string_view budget) {
  constexpr std::size_t most_rows = 32;  // of a mixed pass
  const paging_config config{
      .layout = layout_of(geometry_of(weights(), over_base(), most_rows), scope, budget),
      .adapters = &over_base()};
  auto made = make_paged_experts(weights(), config, "lru");
  const auto* const pages = made.get();
  return {std::move(made), over_base().virtual_experts(),
          [pages] { EXPECT_GT(pages->stats().evictions, 1000U) << "too many slots to show it"; }};
}

struct way_to_serve {
  const char* name;
  std::function<served_adapters()> make;
};
void PrintTo(const way_to_serve& way, std::ostream* out) { *out << way.name; }

/// Shape: [4]: the adapter that serves the rows of each id.
using directions = std::array<adapter_id, 4>;
constexpr directions each_to_its_own{0, 1, 2, 3};

/// Serves rows with another adapter than their own, and counts passes that have rows of all.
class directing final : public expert_provider {
 public:
  directing(expert_provider& inner, directions to) : inner_(inner), to_(to) {}
  void on_step(const step_inputs& step) override {
    const std::set<adapter_id> present(step.adapters.begin(), step.adapters.end());
    passes_of_all_ += present.size() == to_.size() ? 1U : 0U;
    adapters_.clear();
    for (const auto adapter : step.adapters) adapters_.push_back(to_.at(adapter));
    auto sent = step;
    sent.adapters = adapters_;
    inner_.on_step(sent);
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    auto sent = visit;
    sent.adapters = adapters_;
    inner_.run(sent, compute);
  }
  [[nodiscard]] std::size_t passes_of_all() const noexcept { return passes_of_all_; }

 private:
  expert_provider& inner_;
  directions to_;
  std::vector<adapter_id> adapters_;  // of the pass
  std::size_t passes_of_all_ = 0;
};

/// Adapters whose rows got the bytes of their own merged model.
std::vector<adapter_id> exact(const std::vector<std::vector<float>>& got) {
  std::vector<adapter_id> out;
  for (adapter_id a = 0; a < got.size(); ++a)
    if (begins_as_alone(got[a], trained_as(a))) out.push_back(a);
  return out;
}

class trained_adapters : public testing::TestWithParam<way_to_serve> {};

TEST_P(trained_adapters, rows_of_a_pass_each_get_the_bytes_of_their_own_merged_model) {
  const auto served = GetParam().make();
  directing passes(*served.experts, each_to_its_own);
  const auto got = mixed_logits(passes, served.virtual_experts);
  EXPECT_THAT(exact(got), ElementsAre(0, 1, 2, 3));
  EXPECT_GT(passes.passes_of_all(), 5U);
  served.check();
}

// Shows that a wrong adapter is detected: no two adapters give the same answer.
TEST_P(trained_adapters, rows_that_are_sent_to_another_adapter_are_seen) {
  for (adapter_id a = 0; a < each_to_its_own.size(); ++a)
    for (adapter_id b = 0; b < a; ++b) {
      SCOPED_TRACE(testing::Message() << a << " and " << b << " exchanged");
      auto exchanged = each_to_its_own;
      std::swap(exchanged[a], exchanged[b]);
      const auto served = GetParam().make();
      directing passes(*served.experts, exchanged);
      auto others = exact(mixed_logits(passes, served.virtual_experts));
      EXPECT_EQ(others.size(), 2U);
      EXPECT_EQ(std::ranges::count(others, a), 0);
      EXPECT_EQ(std::ranges::count(others, b), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(
    tiny_moe, trained_adapters,
    testing::Values(
        way_to_serve{"resident", resident}, way_to_serve{"registered", registered},
        way_to_serve{"paged_in_4_slots", [] { return paged(cache_scope::shared, "4"); }},
        way_to_serve{"paged_in_10_percent", [] { return paged(cache_scope::shared, "10%"); }},
        way_to_serve{"paged_in_5_slots_a_layer",
                     [] { return paged(cache_scope::per_layer, "5"); }}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace trained_adapters_test
