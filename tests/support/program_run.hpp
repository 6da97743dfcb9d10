// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs a program through the shell, as users do.

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

#include <sys/wait.h>

namespace hotset::support {

struct program_outcome {
  int code = -1;     ///< -1: ended by a signal
  std::string text;  ///< standard output after the shell's redirections
};

inline program_outcome run_program(const std::string& command) {
  program_outcome result;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  return result;
}

}  // namespace hotset::support
