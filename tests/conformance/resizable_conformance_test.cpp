// SPDX-License-Identifier: Apache-2.0
// Resizable pools of the library; tests/examples/tiny_moe has the same suite for the KV pool of the example.

#include <gtest/gtest.h>

#include "elastic_experts.hpp"
#include "hotset/core/memory_budget.hpp"
#include "resizable_suite.hpp"

namespace hotset::support {

namespace {
struct budget_of_experts {
  memory_budget budget{resizable_limit * elastic_experts::unit_bytes};
};
struct expert_entry : budget_of_experts, elastic_experts {
  expert_entry() : elastic_experts(budget, resizable_units) {}
};
}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(resizable_conformance, resizable_conformance,
                               testing::Types<expert_entry>);

}  // namespace hotset::support
