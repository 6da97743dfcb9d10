// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs the real hotset program on files of a folder of its own.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

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

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

/// A folder that goes away with the test, and the program run in it.
class command_line : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "hotset-cli-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path path(std::string_view name) const { return folder_ / name; }

  /// Runs a shell command in the folder; hotset stands for the program.
  [[nodiscard]] outcome shell(const std::string& command) const {
    const std::string script =
        "cd '" + folder_.string() + "' && hotset() { '" HOTSET_CLI "' \"$@\"; }\n" + command + "\n";
    write_text(path(".script"), script);
    const std::string line = "bash '" + path(".script").string() + "' >'" + path(".out").string() +
                             "' 2>'" + path(".err").string() + "' </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(path(".out")),
            read_text(path(".err"))};
  }
  [[nodiscard]] outcome run(const std::string& arguments) const {
    return shell("hotset " + arguments);
  }

  /// Expects an exit code, nothing on standard output and one line that holds all parts on the other.
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

  /// Names of what is in the folder, without the files of run() itself.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const auto name = entry.path().filename().string();
      if (!name.starts_with('.')) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  /// A small trace: 2 layers of 8 experts, top-2, a prompt of 4 tokens and 20 decoded ones.
  void make_trace(const std::string& name, const std::string& more = "") const {
    const auto made =
        run("synth " + name +
            " --layers 2 --experts 8 --top-k 2 --tokens 20 --prefill 4 --seed 3 " + more);
    ASSERT_EQ(made.code, 0) << made.err;
  }

  [[nodiscard]] nlohmann::json json_of(const std::string& arguments) const {
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }

 private:
  std::filesystem::path folder_;
};

/// A safetensors file of given header text and data.
inline std::string safetensors(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out.append(header).append(data);
}

}  // namespace hotset_test
