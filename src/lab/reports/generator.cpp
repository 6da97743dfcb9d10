// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/generator.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "hotset/version.hpp"
#include "lab/files/shell_word.hpp"

namespace hotset::lab {
namespace {

// Global, because every report of the process names this one command line.
std::string running_command;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

void set_command(int argc, const char* const* argv) {
  running_command.clear();
  for (int i = 0; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (i == 0)
      running_command = shell_word(word.substr(word.find_last_of('/') + 1));
    else if (word == "--resume")
      ++i;
    else if (!word.starts_with("--resume="))
      running_command += ' ' + shell_word(word);
  }
}

row generator_of(const std::optional<std::uint64_t>& trace_hash) {
  return {{"version", HOTSET_VERSION_TEXT},
          {"command", running_command.empty() ? row(nullptr) : row(running_command)},
          {"trace_hash", trace_hash ? row(fmt::format("{:016x}", *trace_hash)) : row(nullptr)}};
}

}  // namespace hotset::lab
