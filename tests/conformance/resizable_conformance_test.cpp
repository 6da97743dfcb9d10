// SPDX-License-Identifier: Apache-2.0
// Resizable pools of the library. tests/examples/tiny_moe runs the suite for the example's KV pool.

#include <gtest/gtest.h>

#include "elastic_device.hpp"
#include "elastic_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/core/memory_budget.hpp"
#include "resizable_suite.hpp"

namespace hotset::support::resizable_conformance_test {

namespace {
/// Large enough for several pages of each tensor.
template <class Machine>
using experts_of_pages = elastic_experts_on<Machine, 8>;
struct budget_of_experts {
  memory_budget budget{resizable_limit * experts_of_pages<elastic_host>::unit_bytes};
};
template <class Machine>
struct expert_entry : budget_of_experts, experts_of_pages<Machine> {
  expert_entry() : experts_of_pages<Machine>(budget, resizable_units) {}
};
using pace = fake_cuda_runtime::pace;
using entries = testing::Types<expert_entry<elastic_host>, expert_entry<elastic_device<pace::late>>,
                               expert_entry<elastic_device<pace::soon>>,
                               expert_entry<elastic_device<pace::random>>>;
}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(resizable_conformance, resizable_conformance, entries);

}  // namespace hotset::support::resizable_conformance_test
