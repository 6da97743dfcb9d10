// SPDX-License-Identifier: Apache-2.0
// Tests are compiled several files at a time (HOTSET_TEST_BATCH): what a file calls its own has to be its own.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace test_namespaces_test {
namespace {

namespace fs = std::filesystem;

const fs::path tests = fs::path(HOTSET_SOURCE_DIR) / "tests";
/// Compiled each alone.
const std::set<std::string> alone{"architecture", "documents", "interleaving"};

/// Everything that is declared stands in a namespace that is named after the file; empty: it does.
std::string fault_of(std::istream& file, const std::string& name) {
  const std::regex opens("namespace ([a-z_]+::)*" + name + " \\{");
  const std::string closes = "}  // namespace ";
  bool within = false;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (std::regex_match(line, opens)) within = true;
    // A macro that makes tests of a suite's names stands outside, where the suite does.
    const auto belongs = within || line.empty() || line[0] == '#' || line[0] == '/' ||
                         line[0] == '}' || line[0] == ' ' || line.rfind("HOTSET_", 0) == 0 ||
                         line.rfind("GTEST_ALLOW_", 0) == 0;
    if (!belongs && line.rfind("namespace hotset::support {", 0) != 0)
      return "line " + std::to_string(number) + " stands outside of namespace " + name + ": " +
             line;
    if (line.rfind(closes, 0) == 0 && line.size() > name.size() &&
        line.compare(line.size() - name.size(), name.size(), name) == 0)
      within = false;
  }
  return {};
}

TEST(test_namespaces, are_named_after_their_files) {
  int looked_at = 0;
  for (const auto& entry : fs::recursive_directory_iterator(tests)) {
    const auto name = entry.path().filename().string();
    constexpr std::string_view ending = "_test.cpp";
    if (name.size() <= ending.size() ||
        name.compare(name.size() - ending.size(), ending.size(), ending) != 0)
      continue;
    const auto below = fs::relative(entry.path(), tests);
    if (alone.count(below.begin()->string()) > 0) continue;
    std::ifstream file(entry.path());
    EXPECT_EQ(fault_of(file, entry.path().stem().string()), "") << below;
    ++looked_at;
  }
  EXPECT_GT(looked_at, 300);
}

TEST(test_namespaces, a_file_without_one_is_seen) {
  std::istringstream none("#include <a>\n\nnamespace {\n\nint shared;\n\n}  // namespace\n");
  EXPECT_EQ(fault_of(none, "a_test"), "line 3 stands outside of namespace a_test: namespace {");
  std::istringstream before(
      "using namespace hotset;\nnamespace a_test {\n}  // namespace a_test\n");
  EXPECT_NE(fault_of(before, "a_test"), "");
  std::istringstream behind("namespace a_test {\n}  // namespace a_test\nint shared;\n");
  EXPECT_NE(fault_of(behind, "a_test"), "");
  std::istringstream its_own(
      "namespace hotset::a_test {\nint own;\n}  // namespace hotset::a_test\n");
  EXPECT_EQ(fault_of(its_own, "a_test"), "");
}

}  // namespace
}  // namespace test_namespaces_test
