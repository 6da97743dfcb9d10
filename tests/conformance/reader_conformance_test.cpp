// SPDX-License-Identifier: Apache-2.0
// Readers that need no other library; tests/http runs the suite for range_reader.

#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "file_readers.hpp"
#include "hotset/transfer/file_expert_source.hpp"
#include "reader_suite.hpp"

namespace hotset::support::reader_conformance_test {

using entries = testing::Types<file_reader<posix_file>, tier_entry<file_reader<posix_file>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(reader_conformance, reader_conformance, entries);

}  // namespace hotset::support::reader_conformance_test
