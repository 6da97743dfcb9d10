// SPDX-License-Identifier: Apache-2.0
// The KV pool keeps what every resizable pool promises; tests/conformance has the same suite for those of the library.

#include <gtest/gtest.h>

#include "elastic_blocks.hpp"
#include "hotset/core/memory_budget.hpp"
#include "resizable_suite.hpp"

namespace hotset::support::kv_pool_conformance_test {

namespace {
struct budget_of_blocks {
  memory_budget budget{resizable_limit * elastic_blocks::unit_bytes};
};
struct kv_entry : budget_of_blocks, elastic_blocks {
  kv_entry() : elastic_blocks(budget, resizable_units) {}
};
}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(kv_pool, resizable_conformance, testing::Types<kv_entry>);

}  // namespace hotset::support::kv_pool_conformance_test
