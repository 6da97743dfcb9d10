// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/program.hpp"

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "hotset/core/error.hpp"
#include "hotset/version.hpp"
#include "lab/errors.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/help.hpp"
#include "lab/reports/generator.hpp"

namespace {

using namespace hotset::cli;  // NOLINT(google-build-using-namespace)

constexpr const char* description =
    "Replays recorded expert routing of Mixture-of-Experts models through the caching policies of "
    "hotset.";

constexpr const char* footer = R"(Examples:
  hotset synth demo.trace --layers 16 --experts 64 --top-k 6 --tokens 2000 --zipf 1.1
  hotset info demo.trace
  hotset simulate demo.trace --eviction lru,lfu,belady --slots 12.5%,25%,50%
  hotset plan --model gpt-oss-120b --gpu rtx4090 --host-ram 64GiB
  hotset place demo.trace --ranks 8 --running 256 --out place.json
  hotset help simulate
  hotset simulate routes.csv --scope shared --budget 1500MiB,3GiB --json --out run.json
  hotset bench traces/ --out results.csv
  hotset curve demo.trace --scope shared,per-layer
  hotset history demo.trace --out demo.history
  hotset adapters plan --base 64x26 --expert-bytes 16.5MiB intent.json law.json
  hotset import routes.csv routes.trace --as prefill:512
  source <(hotset completion bash)

Studies that train or tabulate are commands of the Python package: python3 -m hotset coactivation, convert, diff, select-experts, train-gate, working-set.
A file called - is standard input or standard output; ./- is a file of that name.
Exit codes: 0 success, 1 failure, 2 wrong usage, 3 too few slots for the trace, 4 bad input.)";

std::vector<command> add_commands(CLI::App& root) {
  return {add_info(root),    add_simulate(root),       add_bench(root),          add_curve(root),
          add_plan(root),    add_place(root),          add_simulate_split(root), add_counts(root),
          add_history(root), add_adapters(root),       add_import(root),         add_export(root),
          add_synth(root),   add_synth_requests(root), add_plot(root),           add_report(root),
          add_top(root),     add_complete(root),       add_completion(root),     add_help(root)};
}

int parse_failed(const CLI::App& root, const CLI::ParseError& error) {
  if (error.get_name() == "CallForHelp" || error.get_name() == "CallForAllHelp") {
    print(help_of(named(root)));
    return ok;
  }
  if (error.get_name() == "CallForVersion") {
    print(std::string(error.what()) + '\n');
    return ok;
  }
  report_error(parse_trouble(root, error));
  return usage;
}

int run(int argc, char** argv) {
  CLI::App root{description, "hotset"};
  root.set_version_flag("--version", "hotset " HOTSET_VERSION_TEXT);
  root.require_subcommand(1);
  root.footer(footer);
  const auto commands = add_commands(root);
  const hotset::lab::kept_streams keep;  // standard input may be read more than once
  if (argc == 1) {                       // without arguments: help
    print(help_of(root));
    return ok;
  }
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return parse_failed(root, error);
  }
  for (const auto& command : commands)
    if (command.app->parsed()) return command.run();
  return usage;
}

/// Runs the program; every exception becomes one line and an exit code.
int guarded(int argc, char** argv) {
  const auto ended = [](const std::exception& error, int code) {
    report_error(error.what());
    return code;
  };
  try {
    return run(argc, argv);
  } catch (const hotset::lab::closed_pipe&) {
    return ok;
  } catch (const hotset::lab::usage_error& error) {
    return ended(error, usage);
  } catch (const hotset::invalid_config& error) {
    return ended(error, usage);
  } catch (const hotset::lab::infeasible_error& error) {
    return ended(error, infeasible);
  } catch (const hotset::trace_error& error) {
    return ended(error, bad_input);
  } catch (const std::bad_alloc&) {
    return ended(std::runtime_error("out of memory"), failure);
  } catch (const std::exception& error) {
    return ended(error, failure);
  }
}

}  // namespace

int hotset::run_program(int argc, char** argv) noexcept {
  try {
    lab::end_cleanly_at_signals();
    lab::set_command(argc, argv);
    return guarded(argc, argv);
  } catch (...) {
    return failure;
  }
}
