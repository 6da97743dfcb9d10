// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/prefetch_queue.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::prefetch_queue_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Waiting requests as "step/layer/expert".
std::vector<std::string> waiting(const prefetch_queue& queue) {
  std::vector<std::string> out;
  for (const auto& r : queue.requests())
    out.push_back(std::to_string(r.for_step) + '/' + to_string(r.key.layer) + '/' +
                  to_string(r.key.expert));
  return out;
}

// p / visits: at layer 0 of step 5, of 4 layers.
TEST(prefetch_queue, the_likeliest_per_visit_is_first_at_every_visit) {
  prefetch_queue queue({.order = fill_order::likeliest}, 4);
  queue.advance(5, 0_layer);
  queue.add({{1_layer, 0_expert}, 5, .25F});  // .25
  queue.add({{2_layer, 1_expert}, 5, .60F});  // .30
  queue.add({{3_layer, 2_expert}, 5, .80F});  // .266
  queue.add({{0_layer, 3_expert}, 6, 1.0F});  // .25, a later visit
  queue.add({{1_layer, 1_expert}, 5, .25F});  // .25, a higher id
  EXPECT_THAT(waiting(queue), ElementsAre("5/2/1", "5/3/2", "5/1/0", "5/1/1", "6/0/3"));
  queue.expire(5, 1_layer);  // .60, .40, .333
  EXPECT_THAT(waiting(queue), ElementsAre("5/2/1", "5/3/2", "6/0/3"));
  queue.add({{2_layer, 1_expert}, 5, .30F});  // the newer forecast: .30
  EXPECT_THAT(waiting(queue), ElementsAre("5/3/2", "6/0/3", "5/2/1"));
  queue.add({{2_layer, 1_expert}, 6, 1.0F});  // a later visit: the nearer one stays
  EXPECT_THAT(waiting(queue), ElementsAre("5/3/2", "6/0/3", "5/2/1"));
  queue.add({{3_layer, 3_expert}, 5, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(waiting(queue), ElementsAre("5/3/2", "6/0/3", "5/2/1", "5/3/3"));
  queue.advance(6, before_layers);  // requests for step 5 are now the nearest
  EXPECT_THAT(waiting(queue), ElementsAre("6/0/3", "5/3/2", "5/2/1", "5/3/3"));
  EXPECT_EQ(queue.stats(), (prefetch_queue_stats{.added = 6, .repeated = 2, .expired = 2}));
}

TEST(prefetch_queue, the_likeliest_are_in_order_after_whatever_happened) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    prefetch_queue queue({.most_waiting = 8, .order = fill_order::likeliest}, 4);
    step_id step = 0;
    layer_id layer = before_layers;
    for (int n = 0; n < 300; ++n) {
      if (random.one_in(5)) {
        layer = layer == 3 ? before_layers : layer + 1;
        step += layer == before_layers ? 1U : 0U;
        if (layer == before_layers)
          queue.advance(step, layer);
        else
          queue.expire(step, layer);
      } else {
        queue.add({{layer_id{random.id_below(4)}, expert_id{random.id_below(3)}},
                   step + random.below(3),
                   static_cast<float>(random.below(5)) / 4});
      }
      const auto worth = [&](const prefetch_request& r) {
        const auto visits = 4 * static_cast<std::int64_t>(r.for_step) + number(r.key.layer) -
                            4 * static_cast<std::int64_t>(step) - number(layer);
        return double{r.probability} / static_cast<double>(std::max<std::int64_t>(visits, 1));
      };
      ASSERT_TRUE(std::ranges::is_sorted(queue.requests(), std::greater<>(), worth)) << n;
      const auto& s = queue.stats();
      ASSERT_EQ(s.added, s.issued + s.expired + s.displaced + queue.size());
    }
  }
}

// A predictor that discounts by distance is not discounted again.
TEST(prefetch_queue, the_greatest_is_first_at_any_distance) {
  prefetch_queue queue({.order = fill_order::greatest}, 4);
  queue.add({{1_layer, 0_expert}, 0, .25F});
  queue.add({{3_layer, 2_expert}, 0, .80F});
  queue.add({{2_layer, 1_expert}, 0, .60F});
  queue.add({{0_layer, 3_expert}, 1, .25F});  // a later visit
  queue.add({{1_layer, 1_expert}, 0, .25F});  // a higher id
  queue.add({{3_layer, 3_expert}, 0, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(waiting(queue), ElementsAre("0/3/2", "0/2/1", "0/1/0", "0/1/1", "1/0/3", "0/3/3"));
  queue.expire(0, 1_layer);
  EXPECT_THAT(waiting(queue), ElementsAre("0/3/2", "0/2/1", "1/0/3", "0/3/3"));
  queue.add({{3_layer, 2_expert}, 0, .30F});  // the newer forecast
  EXPECT_THAT(waiting(queue), ElementsAre("0/2/1", "0/3/2", "1/0/3", "0/3/3"));
}

TEST(prefetch_queue, a_full_queue_of_the_likeliest_loses_the_least_likely) {
  prefetch_queue queue({.most_waiting = 2, .order = fill_order::likeliest}, 8);
  queue.add({{1_layer, 1_expert}, 0, .2F});  // two visits ahead: .1
  queue.add({{0_layer, 2_expert}, 0, .3F});
  queue.add({{7_layer, 3_expert}, 0, .9F});  // eight ahead: .11
  EXPECT_THAT(waiting(queue), ElementsAre("0/0/2", "0/7/3"));
  EXPECT_EQ(queue.stats().displaced, 1U);
}

TEST(prefetch_queue, a_length_that_cannot_work_is_refused_by_name) {
  const auto objection = [](std::size_t most) {
    const auto bad = prefetch_queue::config{.most_waiting = most}.validate();
    return bad ? bad->message : std::string{};
  };
  EXPECT_EQ(objection(0), "most_waiting = 0, accepted: 1..1048576");
  EXPECT_EQ(objection((1U << 20U) + 1), "most_waiting = 1048577, accepted: 1..1048576");
  EXPECT_EQ(objection(1), "");
  EXPECT_EQ(objection(1U << 20U), "");
  EXPECT_EQ(objection(prefetch_queue::config{}.most_waiting), "");
  EXPECT_EQ((prefetch_queue::config{.order = static_cast<fill_order>(3)}.validate()->message),
            "queue order = 3, accepted: 0 (nearest), 1 (likeliest), 2 (greatest)");
}

TEST(prefetch_queue, does_not_allocate_after_construction) {
  prefetch_queue queue({.most_waiting = 3});
  queue.add({{0_layer, 0_expert}, 0});
  const auto* const memory = queue.requests().data();
  for (auto e = 1_expert; e < 20; ++e)
    queue.add({{0_layer, e}, static_cast<step_id>(number(e) % 3)});
  EXPECT_EQ(queue.requests().data(), memory);
}

/// The queue's rule with a list searched from the front; requests store their arrival.
class naive_queue {
 public:
  struct request {
    prefetch_request what;
    std::uint64_t came = 0;
  };
  explicit naive_queue(std::size_t most) : most_(most) {}
  void add(const prefetch_request& r) {
    const auto visit = [](const prefetch_request& q) { return std::pair(q.for_step, q.key.layer); };
    std::erase_if(list, [&](const request& q) {
      const bool replaced = q.what.key == r.key && visit(r) < visit(q.what);
      repeated += q.what.key == r.key ? 1U : 0U;
      added -= replaced ? 1U : 0U;
      return replaced;
    });
    if (std::ranges::any_of(list, [&](const request& q) { return q.what.key == r.key; })) return;
    ++added;
    list.push_back({r, ++clock_});
    std::ranges::sort(list, [&](const request& a, const request& b) {
      return visit(a.what) != visit(b.what) ? visit(a.what) < visit(b.what) : a.came < b.came;
    });
    if (list.size() <= most_) return;
    list.pop_back();
    ++displaced;
  }
  std::vector<request> list{};
  std::uint64_t added = 0, repeated = 0, displaced = 0;

 private:
  std::size_t most_;
  std::uint64_t clock_ = 0;
};

TEST(prefetch_queue, agrees_with_a_naive_queue_and_accounts_for_every_request) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const std::size_t most = 1 + random.below(12);
    prefetch_queue queue({.most_waiting = most});
    naive_queue naive(most);
    std::uint64_t issued = 0;
    std::uint64_t expired = 0;
    for (int n = 0; n < 300; ++n) {
      const expert_key key{layer_id{random.id_below(3)}, expert_id{random.id_below(6)}};
      const auto step = random.below(6);
      const auto gone_if = [&](auto is) {
        expired +=
            std::erase_if(naive.list, [&](const naive_queue::request& r) { return is(r.what); });
      };
      switch (random.below(12)) {
        case 0:
          queue.expire(step, key.layer);
          gone_if([&](const prefetch_request& r) {
            return std::pair(r.for_step, r.key.layer) <= std::pair(step, key.layer);
          });
          break;
        case 1:
          queue.forget(key);
          gone_if([&](const prefetch_request& r) { return r.key == key; });
          break;
        case 2:
          queue.forget(key.layer);
          gone_if([&](const prefetch_request& r) { return r.key.layer == key.layer; });
          break;
        case 3: {
          const auto first = random.below(queue.size() + 1);
          const auto count = random.below(queue.size() - first + 1);
          std::vector<std::uint32_t> kept;
          std::vector<naive_queue::request> left(
              naive.list.begin(), naive.list.begin() + static_cast<std::ptrdiff_t>(first));
          for (std::uint32_t i = 0; i < count; ++i) {
            if (random.one_in(2)) continue;
            kept.push_back(i);
            left.push_back(naive.list[first + i]);
          }
          left.insert(left.end(), naive.list.begin() + static_cast<std::ptrdiff_t>(first + count),
                      naive.list.end());
          naive.list = left;
          queue.take(first, count, kept);
          issued += count - kept.size();
          break;
        }
        default: {
          const prefetch_request r{key, step, static_cast<float>(n)};
          queue.add(r);
          naive.add(r);
        }
      }
      ASSERT_TRUE(std::ranges::equal(queue.requests(), naive.list,
                                     [](const prefetch_request& a, const naive_queue::request& b) {
                                       return a.key == b.what.key &&
                                              a.for_step == b.what.for_step &&
                                              a.probability == b.what.probability;
                                     }))
          << "after operation " << n;
      ASSERT_EQ(queue.stats(), (prefetch_queue_stats{naive.added, naive.repeated, issued, expired,
                                                     naive.displaced}));
      const auto& s = queue.stats();
      ASSERT_EQ(s.added, s.issued + s.expired + s.displaced + queue.size());
    }
  }
}

}  // namespace
}  // namespace hotset::prefetch_queue_test
