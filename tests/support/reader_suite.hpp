// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The suite of expert readers.
///
/// | member of an entry | meaning |
/// |---|---|
/// | `reader` | reads the experts of `reader_file`; 4 reads at one time |
/// | `fail_reads()` | later reads of the origin fail |
/// | `mend()` | later reads of the origin succeed |

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/transfer/expert_source.hpp"
#include "reader_file.hpp"

namespace hotset::support {

template <class Entry>
struct reader_conformance : testing::Test, Entry {
  bool reads(expert_key key) {
    guarded_parts parts;
    parts.add_all();
    if (!detail::read_parts(this->reader, key, {}, parts.parts())) return false;
    EXPECT_TRUE(parts.hold(key));
    return true;
  }
};
TYPED_TEST_SUITE_P(reader_conformance);

TYPED_TEST_P(reader_conformance, knows_the_sizes_of_experts_that_were_added) {
  const auto sizes = this->reader.sizes({layer_id{1}, expert_id{2}}, {});
  EXPECT_TRUE(std::ranges::equal(sizes, reader_file::sizes));
  EXPECT_TRUE(this->reader.sizes(reader_file::absent, {}).empty());
}
TYPED_TEST_P(reader_conformance, any_parts_are_those_parts) {
  EXPECT_EQ(failed_reads(this->reader, 3, 300), 0);
}
TYPED_TEST_P(reader_conformance, reads_are_safe_beside_each_other) {
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 6; ++t)
    threads.emplace_back([this, t] { EXPECT_EQ(failed_reads(this->reader, 10 + t, 60), 0); });
  for (auto& thread : threads) thread.join();
}
TYPED_TEST_P(reader_conformance, a_failed_read_is_reported_and_the_next_one_is_another) {
  const expert_key key{layer_id{1}, expert_id{5}};
  this->fail_reads();
  EXPECT_FALSE(this->reads(key));
  EXPECT_FALSE(this->reads({layer_id{0}, expert_id{5}}));
  this->mend();
  EXPECT_TRUE(this->reads(key));
}

REGISTER_TYPED_TEST_SUITE_P(reader_conformance, knows_the_sizes_of_experts_that_were_added,
                            any_parts_are_those_parts, reads_are_safe_beside_each_other,
                            a_failed_read_is_reported_and_the_next_one_is_another);

}  // namespace hotset::support
