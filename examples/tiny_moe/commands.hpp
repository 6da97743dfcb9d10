// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the program does, one function per subcommand.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tiny_moe {

enum exit_code : int { ok = 0, failure = 1, usage = 2, infeasible = 3, bad_input = 4 };

struct options {
  std::filesystem::path model = HOTSET_TINY_MOE_DIR;
  std::string prompt;
  std::filesystem::path prompt_file;
  std::size_t tokens = 0;  ///< 0 until the command line has been read
  std::filesystem::path reference;

  std::string budget;  ///< empty: full residency
  std::string scope = "shared";
  std::string eviction = "least_stale";
  std::string admission = "always";
  std::string stream = "caller";
  std::size_t max_tokens = 0;

  std::vector<std::filesystem::path> prompts;
  std::filesystem::path out;
  std::vector<std::string> with;
};

/// Each returns the exit code. Errors: hotset::sim::usage_error, hotset::sim::infeasible_error,
/// hotset::trace_error, std::runtime_error.
int generate(const options& chosen);
int check(const options& chosen);
int verify(const options& chosen);
int trace(const options& chosen);

}  // namespace tiny_moe
