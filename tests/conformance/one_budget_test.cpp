// SPDX-License-Identifier: Apache-2.0
// Two caches share one memory budget and trade it while they serve: the same code on host and device.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "elastic_device.hpp"
#include "elastic_experts.hpp"
#include "fake_cuda_driver.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"
#include "random_source.hpp"

namespace hotset::support::one_budget_test {
// Includes elastic_experts without the suite that it is an entry of.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(resizable_conformance);

namespace {

constexpr std::uint64_t units = 14;  // of both together: at most twice 12
/// Large enough for several pages of each tensor.
template <class Machine>
using experts_of_pages = elastic_experts_on<Machine, 8>;
constexpr std::uint64_t unit_bytes = experts_of_pages<elastic_host>::unit_bytes;

template <class Machine>
class one_budget : public testing::Test {
 protected:
  using experts = experts_of_pages<Machine>;

  void serve() {
    first.serve(random);
    second.serve(random);
  }
  void expect_right() {
    EXPECT_EQ(budget.in_use(), (first.pool.capacity() + second.pool.capacity()) * unit_bytes);
    (void)first.places();
    (void)second.places();
  }

  memory_budget budget{units * unit_bytes};
  random_source random{11};
  experts first{budget, 7};
  experts second{budget, 7};
};

struct machine_names {
  template <class Machine>
  static std::string GetName(int i) {
    return std::array{"host", "device_late", "device_soon", "device_random"}.at(
        static_cast<std::size_t>(i));
  }
};
using pace = fake_cuda_runtime::pace;
using machines = testing::Types<elastic_host, elastic_device<pace::late>,
                                elastic_device<pace::soon>, elastic_device<pace::random>>;
TYPED_TEST_SUITE(one_budget, machines, machine_names);

TYPED_TEST(one_budget, moves_between_two_caches_that_serve) {
  for (int round = 0; round < 100; ++round) {
    this->serve();
    const auto share = 2 + this->random.below(11);  // 2..12; the other cache has the rest
    ASSERT_EQ(resize_both(this->first.pool, share, this->second.pool, units - share), status::ok);
    EXPECT_EQ(this->first.pool.capacity(), share);
    this->expect_right();
    EXPECT_LE(this->budget.peak(), this->budget.limit());
  }
}

TYPED_TEST(one_budget, is_never_overdrawn) {
  this->serve();
  EXPECT_EQ(resize_both(this->first.pool, 8, this->second.pool, 7), status::exceeds_memory);
  EXPECT_EQ(this->first.pool.capacity(), 7U);
  EXPECT_EQ(this->second.pool.capacity(), 7U);
  this->expect_right();
}

/// Each driver call of a trade is refused once: both caches stay intact and keep serving.
template <fake_cuda_driver::call Call>
void refuse_each() {
  using experts = experts_of_pages<elastic_device<pace::random>>;
  bool came = true;
  for (std::size_t nth = 1; came; ++nth) {
    SCOPED_TRACE(nth);
    memory_budget budget(units * unit_bytes);
    random_source random(nth);
    experts first(budget, 7);
    experts second(budget, 7);
    const auto serve = [&] {
      first.serve(random);
      second.serve(random);
    };
    serve();
    second.machine.driver().fail(Call, nth);
    const auto before = second.machine.driver().physical_bytes();
    const auto done = resize_both(first.pool, 2, second.pool, 12);
    came = !second.machine.driver().armed();
    if (Call != fake_cuda_driver::call::unmap) {
      EXPECT_EQ(done, came ? status::exceeds_memory : status::ok);
      EXPECT_EQ(second.pool.capacity(), came ? 7U : 12U);
      EXPECT_EQ(first.pool.capacity(), came ? 7U : 2U);
      if (came) {
        EXPECT_EQ(second.machine.driver().physical_bytes(), before);
      }
    }
    second.machine.driver().disarm();
    serve();
    (void)first.places();
    (void)second.places();
    EXPECT_EQ(budget.in_use(), (first.pool.capacity() + second.pool.capacity()) * unit_bytes);
  }
}
TEST(one_budget_of_a_device, survives_every_refusal_of_the_driver) {
  using enum fake_cuda_driver::call;
  refuse_each<create>();
  refuse_each<map>();
  refuse_each<set_access>();
}

/// Without its bytes a resident would read another expert's bytes, so none stays resident.
TEST(one_budget_of_a_device, a_failed_copy_leaves_no_resident) {
  using experts = experts_of_pages<elastic_device<pace::late>>;
  memory_budget budget(units * unit_bytes);
  random_source random(3);
  experts one(budget, 12);
  one.fill();
  one.machine.api().fail("cudaMemcpyAsync on the device", 1);
  EXPECT_EQ(one.pool.shrink(4), status::fill_failed);
  EXPECT_EQ(one.pool.capacity(), 12U);
  EXPECT_EQ(one.held(), 0U);
  EXPECT_EQ(budget.in_use(), 12 * unit_bytes);
  one.serve(random);
  (void)one.places();
  EXPECT_EQ(one.pool.shrink(4), status::ok);
  one.serve(random);
  (void)one.places();
}

}  // namespace
}  // namespace hotset::support::one_budget_test
