// SPDX-License-Identifier: Apache-2.0
// HOTSET_TEST_BATCH compiles several test files as one, and tests run in parallel: names of a file and paths that it
// writes must be its own.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace test_files_test {
namespace {

namespace fs = std::filesystem;

const fs::path tests = fs::path(HOTSET_SOURCE_DIR) / "tests";
/// Folders whose files are compiled alone.
const std::set<std::string> alone{"architecture", "documents", "interleaving"};

/// Checks that each declaration stands in a namespace named after the file. Empty: it does.
std::string fault_of(std::istream& file, const std::string& name) {
  const std::regex opens("namespace ([a-z_]+::)*" + name + " \\{");
  const std::string closes = "}  // namespace ";
  bool within = false;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (std::regex_match(line, opens)) within = true;
    // A macro that instantiates a suite's tests stands outside, next to the suite.
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

/// Test files whose names have this ending.
std::vector<fs::path> files_that_end(std::string_view ending) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(tests))
    if (entry.path().filename().string().ends_with(ending)) files.push_back(entry.path());
  return files;
}

TEST(test_files, have_namespaces_of_their_names) {
  int looked_at = 0;
  for (const auto& path : files_that_end("_test.cpp")) {
    const auto below = fs::relative(path, tests);
    if (alone.count(below.begin()->string()) > 0) continue;
    std::ifstream file(path);
    EXPECT_EQ(fault_of(file, path.stem().string()), "") << below;
    ++looked_at;
  }
  EXPECT_GT(looked_at, 300);
}

// Two processes that use the same path disturb each other.
TEST(test_files, write_only_to_temporary_folders) {
  const std::set<std::string> makes_folders{"temporary_folder.hpp", "test_files_test.cpp"};
  for (const auto& path : files_that_end("pp")) {
    if (makes_folders.count(path.filename().string()) > 0) continue;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
      for (const auto* shared : {"TempDir()", "temp_directory_path()"})
        EXPECT_EQ(line.find(shared), std::string::npos) << path << ": " << line;
  }
}

TEST(test_files, a_file_without_a_namespace_is_seen) {
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
}  // namespace test_files_test
