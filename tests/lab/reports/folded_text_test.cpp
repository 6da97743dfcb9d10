// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/folded_text.hpp"

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace folded_text_test {
namespace {

using hotset::lab::folded;

TEST(folded_text, long_lines_go_on_below_their_value) {
  const std::string text =
      "note: one two three four five six seven eight nine ten eleven\n"
      "KV cache           one two three four five six seven eight\n"
      "  --a-line-to-paste is not touched however long it may be at all\n"
      "short\n";
  EXPECT_EQ(folded(text, 40),
            "note: one two three four five six seven\n"
            "      eight nine ten eleven\n"
            "KV cache           one two three four\n"
            "                   five six seven eight\n"
            "  --a-line-to-paste is not touched however long it may be at all\n"
            "short\n");
  EXPECT_EQ(folded(text, 0), text);
  EXPECT_EQ(folded("a" + std::string(99, 'b') + " c", 40), "a" + std::string(99, 'b') + "\n  c");
}

TEST(folded_text, folding_loses_no_word) {
  const auto words_of = [](const std::string& text) {
    std::istringstream words(text);
    return std::vector<std::string>{std::istream_iterator<std::string>(words), {}};
  };
  const std::string text =
      "note: a bb ccc dddd eeeee ffffff ggggggg hhhhhhhh iiiiiiiii jjjjjjjjjj k\n";
  for (std::size_t width = 40; width < 90; ++width) {
    const auto out = folded(text, width);
    EXPECT_EQ(words_of(out), words_of(text)) << width;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width);
  }
}

}  // namespace
}  // namespace folded_text_test
