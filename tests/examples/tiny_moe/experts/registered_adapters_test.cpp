// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/registered_adapters.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter_samples.hpp"
#include "hotset/adapters/adapter_registry.hpp"
#include "hotset/core/error.hpp"
#include "sim_samples.hpp"

namespace registered_adapters_test {
namespace {

using namespace adapter_samples;
using namespace hotset::literals;
using hotset::adapter_status;
using hotset::support::refusal;
using paging_samples::same_bytes;
using testing::ElementsAre;
using testing::HasSubstr;

adapter_source three() { return source_of(pointers(three_adapters())); }
std::size_t experts_of(const adapter_weights& adapter) {
  std::size_t experts = 0;
  for (const auto& of_layer : adapter.tuned()) experts += of_layer.size();
  return experts;
}
std::uint64_t largest_adapter() {
  std::size_t most = 0;
  for (const auto& one : three_adapters()) most = std::max(most, experts_of(one));
  return most * weights().config().expert_bytes();
}

/// A pool and an engine with its experts.
struct engine_parts {
  explicit engine_parts(adapter_source source, const registered_adapters_config& config = {},
                        const kv_pool_config& blocks = {.block_tokens = 8, .blocks = 64})
      : experts(weights(), std::move(source), config),
        pool(weights().config(), blocks),
        decoder(weights(), experts, pool, {.virtual_experts = experts.virtual_experts()}) {}

  /// Rows of the words, as a new sequence.
  std::vector<token_row> rows_of(adapter_id adapter, std::string_view words) {
    const auto sequence = pool.open(words.size(), adapter);
    EXPECT_TRUE(pool.reserve(sequence, words.size()));
    std::vector<token_row> rows;
    for (const auto byte : bytes_of(words)) rows.push_back({sequence, byte});
    return rows;
  }
  /// Logits of one pass over the words with an acquired adapter.
  std::vector<float> logits(adapter_id adapter, std::string_view words) {
    const auto rows = rows_of(adapter, words);
    const auto close = [this](const token_row* row) { decoder.close(row->sequence); };
    const std::unique_ptr<const token_row, decltype(close)> closes(rows.data(), close);
    const auto got = decoder.forward(rows, request_kind::prefill);
    return {got.begin(), got.end()};
  }

  registered_adapters experts;
  kv_pool pool;
  batch_engine decoder;
};

std::vector<float> logits_alone(adapter_id adapter, std::string_view words) {
  return adapter_samples::logits_alone(one_of_three(adapter), words);
}

TEST(registered_adapters, pages_of_any_size_hold_the_same) {
  for (const std::size_t kib : {4U, 8U, 64U, 2048U}) {
    SCOPED_TRACE(kib);
    engine_parts parts(three(), {.page_bytes = kib << 10U});
    ASSERT_EQ(parts.experts.acquire(3), adapter_status::ok);
    ASSERT_EQ(parts.experts.acquire(1), adapter_status::ok);
    EXPECT_TRUE(same_bytes(parts.logits(1, text), logits_alone(1, text)));
    EXPECT_TRUE(same_bytes(parts.logits(3, text), logits_alone(3, text)));
    EXPECT_TRUE(same_bytes(parts.logits(base_model, text), logits_alone(base_model, text)));
  }
}

TEST(registered_adapters, without_adapters_it_is_the_base_model) {
  engine_parts parts(source_of({}));
  EXPECT_EQ(parts.experts.virtual_experts(), weights().config().experts);
  EXPECT_EQ(parts.experts.acquire(base_model), adapter_status::ok);
  EXPECT_EQ(parts.experts.acquire(1), adapter_status::unknown);
  EXPECT_TRUE(same_bytes(parts.logits(base_model, text), logits_alone(base_model, text)));
}

TEST(registered_adapters, a_row_of_an_adapter_that_was_not_acquired_is_refused) {
  engine_parts parts(three());
  EXPECT_THROW((void)parts.logits(1, text), provider_error);
  EXPECT_THROW((void)parts.logits(4, text), provider_error);
  EXPECT_EQ(parts.experts.acquire(4), adapter_status::unknown);
  EXPECT_EQ(parts.experts.release(4), adapter_status::unknown);
  EXPECT_EQ(parts.experts.release(1), adapter_status::not_pinned);
  ASSERT_EQ(parts.experts.acquire(1), adapter_status::ok);
  ASSERT_EQ(parts.experts.acquire(1), adapter_status::ok);
  ASSERT_EQ(parts.experts.release(1), adapter_status::ok);
  EXPECT_TRUE(same_bytes(parts.logits(1, text), logits_alone(1, text))) << "still acquired once";
  ASSERT_EQ(parts.experts.release(1), adapter_status::ok);
  EXPECT_EQ(parts.experts.release(1), adapter_status::not_pinned);
  EXPECT_THROW((void)parts.logits(1, text), provider_error) << "it may leave at any time";
}

std::vector<serving_request> random_requests(random_source& random, std::size_t count) {
  std::vector<serving_request> out(count);
  for (auto& one : out) {
    one.arrival = random.below(60);
    one.prompt = bytes_of(text.substr(random.below(3), 8 + random.below(30)));
    one.tokens = 1 + random.below(20);
    one.adapter = static_cast<adapter_id>(random.below(4));
  }
  return out;
}

TEST(registered_adapters, every_request_gets_its_answer_while_adapters_change) {
  std::uint64_t evictions = 0;
  std::uint64_t refusals = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t reads = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random(seed);
    const auto requests = random_requests(random, 12);
    // With room for one adapter on the host, returning adapters are read again.
    const auto keeps = random.one_in(2) ? 0 : largest_adapter();
    engine_parts parts(three(), {.places = 1 + random.below(2), .host_bytes = keeps},
                       {.block_tokens = 4, .blocks = 15 + random.below(6)});
    const auto report =
        serve(parts.decoder, requests,
              with_pins({.max_sessions = 1 + random.below(5), .max_tokens = 30}, parts.experts));
    expect_complete(report, requests);
    for (adapter_id a = 1; a <= 3; ++a)
      EXPECT_EQ(parts.experts.release(a), adapter_status::not_pinned) << "adapter " << a;
    ASSERT_FALSE(testing::Test::HasFailure());
    evictions += parts.experts.registry_stats().evictions;
    refusals += parts.experts.registry_stats().refusals;
    reads += parts.experts.registry_stats().reads;
    preemptions += report.stats.preemptions;
  }
  EXPECT_GT(evictions, 30U);  // otherwise the comparison proves little
  EXPECT_GT(refusals, 10U);
  EXPECT_GT(preemptions, 3U);
  EXPECT_GT(reads, 40U);
}

TEST(registered_adapters, a_reader_that_fails_at_any_part_changes_nothing) {
  auto source = three();
  std::size_t fails_at = 0;  // the n-th part read from now on
  source.read = [&fails_at, inner = source.read](const hotset::adapter_part& part,
                                                 std::span<std::byte> bytes) {
    if (fails_at != 0 && --fails_at == 0) return false;
    return inner(part, bytes);
  };
  engine_parts parts(std::move(source), {.places = 2});
  const std::string_view words = text.substr(0, 12);
  const auto of_base = logits_alone(base_model, words);
  const auto of_a = logits_alone(1, words);
  ASSERT_EQ(parts.experts.acquire(1), adapter_status::ok);
  ASSERT_EQ(parts.experts.acquire(2), adapter_status::ok);
  ASSERT_EQ(parts.experts.release(2), adapter_status::ok);
  std::size_t failures = 0;
  for (;; ++failures) {
    fails_at = failures + 1;
    const auto code = parts.experts.acquire(3);
    if (code == adapter_status::ok) break;
    ASSERT_EQ(code, adapter_status::not_read);
    ASSERT_TRUE(same_bytes(parts.logits(1, words), of_a)) << failures;
    ASSERT_TRUE(same_bytes(parts.logits(base_model, words), of_base)) << failures;
    ASSERT_THROW((void)parts.logits(3, words), provider_error);
    // The adapter that would have been evicted for it is still loaded.
    ASSERT_EQ(parts.experts.acquire(2), adapter_status::ok);
    ASSERT_EQ(parts.experts.release(2), adapter_status::ok);
    ASSERT_EQ(parts.experts.registry_stats().loads, 2U);
  }
  EXPECT_EQ(failures, 3 * experts_of(three_adapters()[2])) << "gate, up and down of each";
  EXPECT_TRUE(same_bytes(parts.logits(3, words), logits_alone(3, words)));
  EXPECT_TRUE(same_bytes(parts.logits(1, words), of_a));
}

TEST(registered_adapters, a_request_with_an_unreadable_adapter_is_refused_alone) {
  auto source = three();
  source.read = [inner = source.read](const hotset::adapter_part& part,
                                      std::span<std::byte> bytes) {
    return part.adapter != "b" && inner(part, bytes);
  };
  engine_parts parts(std::move(source));
  std::vector<serving_request> requests;
  for (adapter_id a = 0; a <= 3; ++a)
    requests.push_back({.prompt = bytes_of(text.substr(0, 20)), .tokens = 5, .adapter = a});
  auto report = serve(parts.decoder, requests, with_pins({}, parts.experts));
  EXPECT_EQ(report.requests[2].refusal, "request 2: adapter 2: the adapter could not be read");
  EXPECT_TRUE(report.requests[2].output.empty());
  report.requests.erase(report.requests.begin() + 2);
  requests.erase(requests.begin() + 2);
  expect_complete(report, requests);
}

TEST(registered_adapters, one_that_is_served_twice_has_places_and_bytes_of_its_own) {
  const auto& made = three_adapters();
  const std::vector<const adapter_weights*> twice{&made[0], &made[0], &made[2], &made[0]};
  auto source = source_of(twice);
  std::vector<std::string> names;
  for (const auto& one : source.adapters) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre("a", "a#2", "c", "a#3"));
  engine_parts parts(std::move(source));
  for (const adapter_id a : {1U, 2U, 4U}) ASSERT_EQ(parts.experts.acquire(a), adapter_status::ok);
  EXPECT_EQ(parts.experts.registry_stats().loads, 3U);
  EXPECT_EQ(parts.experts.registry_stats().reads, 3U);
  const auto wanted = logits_alone(1, text);
  for (const adapter_id a : {1U, 2U, 4U}) EXPECT_TRUE(same_bytes(parts.logits(a, text), wanted));
  // One pass of all three reads their tuned experts three times.
  const auto before = parts.experts.stats().virtual_experts;
  std::vector<token_row> rows;
  for (const adapter_id a : {1U, 2U, 4U})
    for (const auto& row : parts.rows_of(a, text)) rows.push_back(row);
  (void)parts.decoder.forward(rows, request_kind::prefill);
  EXPECT_GT(parts.experts.stats().virtual_experts - before, before / 3);
  for (const auto t : {0U, 1U, 2U}) parts.decoder.close(rows[t * text.size()].sequence);
}

/// Counts distinct ids of each visit before and after rerouting, with sets.
class counting_experts final : public expert_provider {
 public:
  explicit counting_experts(registered_adapters& inner) : inner_(inner) {}
  void on_step(const step_inputs& step) override { inner_.on_step(step); }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    base += std::set<std::int32_t>(visit.ids.begin(), visit.ids.end()).size();
    inner_.run(visit, compute);
    rerouted += std::set<std::int32_t>(visit.ids.begin(), visit.ids.end()).size();
    ++visits;
  }
  std::uint64_t base = 0;
  std::uint64_t rerouted = 0;
  std::uint64_t visits = 0;

 private:
  registered_adapters& inner_;
};

TEST(registered_adapters, counts_experts_read_by_a_step_and_by_the_base_model) {
  registered_adapters experts(weights(), three());
  counting_experts counting(experts);
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 64});
  batch_engine decoder(weights(), counting, pool, {.virtual_experts = experts.virtual_experts()});
  random_source random(3);
  const auto requests = random_requests(random, 10);
  const auto report = serve(decoder, requests, with_pins({}, experts));
  EXPECT_EQ(experts.stats().steps, report.stats.steps);
  EXPECT_EQ(experts.stats().visits, report.stats.steps * weights().config().layers);
  EXPECT_EQ(experts.stats().visits, counting.visits);
  EXPECT_EQ(experts.stats().base_experts, counting.base);
  EXPECT_EQ(experts.stats().virtual_experts, counting.rerouted);
  EXPECT_GT(counting.rerouted, counting.base);
  EXPECT_GT(experts.stats().reroute_ns, 0U);
}

TEST(registered_adapters, an_invalid_configuration_is_refused_at_construction) {
  const auto refused = [](adapter_source source, const registered_adapters_config& config = {}) {
    return refusal<hotset::invalid_config>(
        [&] { const registered_adapters made(weights(), std::move(source), config); });
  };
  EXPECT_NO_THROW(registered_adapters(weights(), three()));
  EXPECT_NO_THROW(registered_adapters(weights(), three(), {.places = 1000}))
      << "more places than adapters are not needed";
  EXPECT_THAT(refused(three(), {.page_bytes = 100}), HasSubstr("accepted: multiples of 4096"));
  EXPECT_THAT(refused(three(), {.host_bytes = 1000}), HasSubstr("adapter a: bytes = "));
  auto bad = three();
  bad.adapters[1].name = "a";
  EXPECT_EQ(refused(bad), "adapter a: known already");
  bad.adapters[1].name.clear();
  EXPECT_EQ(refused(bad), "an adapter without a name");
  bad = three();
  bad.adapters[2].tuned.pop_back();
  EXPECT_EQ(refused(bad), "adapter c: layers = 11, accepted: 12");
  bad = three();
  bad.adapters[2].tuned[4] = {5_expert, 32_expert};
  EXPECT_EQ(refused(bad), "adapter c: layer 4: expert = 32, accepted: 0..31");
  bad = three();
  bad.adapters[2].tuned[4].assign(33, 0_expert);
  EXPECT_EQ(refused(bad), "most_tuned = 33, accepted: 0..32");
}

}  // namespace
}  // namespace registered_adapters_test
