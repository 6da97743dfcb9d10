// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs the real hotset program on files in a folder of its own.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "temporary_folder.hpp"

namespace hotset_test {

struct outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A folder that is removed after the test, and the program run in it.
class command_line : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path path(std::string_view name) const {
    return folder_.path() / name;
  }
  void write(const std::string& name, std::string_view text) const {
    (void)folder_.write(name, text);
  }
  [[nodiscard]] std::string read(std::string_view name) const { return read_text(path(name)); }

  /// Runs a shell command in the folder; `hotset` is the program.
  [[nodiscard]] outcome shell(const std::string& command) const {
    const std::string script = "cd '" + folder_.path().string() +
                               "' && hotset() { '" HOTSET_CLI "' \"$@\"; }\n" + command + "\n";
    write(".script", script);
    const std::string line = "bash '" + path(".script").string() + "' >'" + path(".out").string() +
                             "' 2>'" + path(".err").string() + "' </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(".out"), read(".err")};
  }
  [[nodiscard]] outcome run(const std::string& arguments) const {
    return shell("hotset " + arguments);
  }

  /// Output of a shell command, or of hotset, that must succeed.
  std::string out_of_shell(const std::string& command) const {
    const auto result = shell(command);
    EXPECT_EQ(result.code, 0) << command << '\n' << result.err;
    return result.out;
  }
  std::string out_of(const std::string& arguments) const {
    return out_of_shell("hotset " + arguments);
  }
  [[nodiscard]] nlohmann::json json_of(const std::string& arguments) const {
    return nlohmann::json::parse(out_of(arguments), nullptr, false);
  }

  /// Expects an exit code, an empty standard output, and one line on standard error that contains all parts.
  void refused(const std::string& arguments, int code,
               const std::vector<std::string_view>& parts) const {
    SCOPED_TRACE("hotset " + arguments);
    const auto result = run(arguments);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("hotset: ")) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const auto part : parts) EXPECT_THAT(result.err, testing::HasSubstr(std::string(part)));
  }

  /// Names of the folder's files, without the files of run() itself.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      const auto name = entry.path().filename().string();
      if (!name.starts_with('.')) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  /// A small trace: 2 layers of 8 experts, top-2, a prompt of 4 tokens and 20 decoded ones.
  void make_trace(const std::string& name, const std::string& more = "") const {
    (void)out_of("synth " + name +
                 " --layers 2 --experts 8 --top-k 2 --tokens 20 --prefill 4 --seed 3 " + more);
  }

 private:
  hotset::support::temporary_folder folder_;
};

/// command_line with t.trace, a small trace, in the folder.
class traced_command_line : public command_line {
 protected:
  traced_command_line() { make_trace("t.trace"); }
};

}  // namespace hotset_test
