// SPDX-License-Identifier: Apache-2.0
// Console blocks of docs/command-line.md, docs/tutorial.md and examples.md show the output of the program. The commands
// of a document run in order, in one folder.
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "run_program.hpp"

namespace documented_examples_test {
namespace {
using hotset_test::command_line;

struct example {
  std::string command;
  std::string printed;
};

/// A command of more than one line ends with a backslash, or with the END of a here-document.
void complete(std::string& command, std::istream& lines) {
  std::string line;
  if (command.ends_with("<<'END'"))
    while (line != "END" && std::getline(lines, line)) command += '\n' + line;
  while (command.ends_with('\\') && std::getline(lines, line)) command += '\n' + line;
}

std::vector<example> examples_of(const std::string& document) {
  std::istringstream lines(document);
  std::vector<example> out;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = line == "```console";
    } else if (inside && line.starts_with("$ ")) {
      out.push_back({line.substr(2), ""});
      complete(out.back().command, lines);
    } else if (inside && !out.empty()) {
      out.back().printed += line + '\n';
    }
  }
  return out;
}

class documented_examples : public command_line {
 protected:
  void expect_shown(const std::vector<example>& all) const {
    int code = 0;
    for (const auto& shown : all) {
      SCOPED_TRACE(shown.command);
      const auto result =
          shell("unset COLUMNS; exec 2>&1; (exit " + std::to_string(code) + ")\n" + shown.command);
      EXPECT_EQ(result.out, shown.printed);
      code = result.code;
    }
  }
};

TEST_F(documented_examples, print_the_documented_output) {
  const auto all = examples_of(hotset_test::read_text(HOTSET_SOURCE_DIR "/docs/command-line.md"));
  ASSERT_GT(all.size(), 10U);
  expect_shown(all);
}

TEST_F(documented_examples, of_this_folder_print_the_documented_output) {
  const auto all =
      examples_of(hotset_test::read_text(HOTSET_SOURCE_DIR "/tests/lab/program/examples.md"));
  ASSERT_GT(all.size(), 20U);
  expect_shown(all);
}

TEST_F(documented_examples, of_the_tutorial_lead_to_a_program_with_the_same_hit_rate) {
  if (shell("command -v python3 && command -v g++").code != 0)
    GTEST_SKIP() << "needs python3 and g++";
  const auto page = hotset_test::read_text(HOTSET_SOURCE_DIR "/docs/tutorial.md");
  const std::string opening = "```cpp\n";
  const auto begin = page.find(opening) + opening.size();
  write("mine.cpp", page.substr(begin, page.find("```", begin) - begin));
  std::filesystem::create_directory_symlink(HOTSET_SOURCE_DIR "/include", path("include"));
  const auto all = examples_of(page);
  ASSERT_EQ(all.size(), 7U);
  expect_shown(all);
}

}  // namespace
}  // namespace documented_examples_test
