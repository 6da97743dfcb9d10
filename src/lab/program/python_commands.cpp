// SPDX-License-Identifier: Apache-2.0
// hotset plot, report, top: commands of the Python package, which this program starts.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "lab/program/command.hpp"
#include "lab/program/console.hpp"

namespace hotset::cli {
namespace {

// Checks for the command itself, too: an older package would start this program again.
constexpr const char* start = R"(import sys
try:
    from hotset.studies._commands import COMMANDS, run
    if sys.argv[1] not in COMMANDS:
        raise ImportError("it has no such command")
except ImportError as bad:
    sys.stderr.write(f"hotset: {sys.argv[1]}: needs the Python package hotset ({bad}); "
                     "get it: make wheel, then pip install dist/hotset-*.whl\n")
    sys.exit(1)
sys.exit(run(sys.argv[1:]))
)";

/// The package runs this program for its numbers, unless the environment names another one.
void name_this_program() {
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) ::setenv("HOTSET_PROGRAM", self.c_str(), 0);
}

int run_python(const std::string& name, const std::vector<std::string>& words) {
  std::vector<std::string> line{"python3", "-c", start, name};
  line.insert(line.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  arguments.reserve(line.size() + 1);
  for (auto& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  name_this_program();
  ::execvp("python3", arguments.data());
  report_error(
      fmt::format("{}: needs Python, and python3 cannot be started: {}; accepted: Python 3.9 or "
                  "later on the path, with the package hotset",
                  name, std::strerror(errno)));
  return failure;
}

command add_python(CLI::App& root, const char* name, const char* about) {
  auto* app = root.add_subcommand(name, about);
  app->prefix_command();
  app->footer(fmt::format(
      "The Python package carries this command and its options: python3 -m hotset {} --help",
      name));
  return {app, [app, name] { return run_python(name, app->remaining()); }};
}

}  // namespace

command add_plot(CLI::App& root) {
  return add_python(root, "plot", "Draw a result or a trace as SVG, PNG or HTML");
}
command add_report(CLI::App& root) {
  return add_python(root, "report",
                    "Write a page about traces: which policy, how many slots, where misses are");
}
command add_top(CLI::App& root) {
  return add_python(root, "top", "Show a running engine's metrics in the terminal");
}

}  // namespace hotset::cli
