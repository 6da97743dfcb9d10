// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/error.hpp"
#include "hotset/core/text/names.hpp"
#include "hotset/version.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/files/program.hpp"
#include "lab/reports/generator.hpp"
#include "lab/reports/sweep_report.hpp"
#include "lab/sizes.hpp"
#include "tiny_moe/commands/commands.hpp"
#include "tiny_moe/serving/adapter_serving.hpp"
#include "tiny_moe/serving/trace_serving.hpp"

namespace {

using namespace tiny_moe;

/// The subcommand that was named last, or the program.
const CLI::App& named(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.back();
}

/// Names of options, including those of groups, and of subcommands.
std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> known;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) known.push_back("--" + name);
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_name().empty()) {
      known.push_back(command->get_name());
      continue;
    }
    const auto group = names_of(*command);
    known.insert(known.end(), group.begin(), group.end());
  }
  return known;
}

/// Message for a mistyped option or subcommand, with the most similar name.
std::string trouble_of(const CLI::App& app, const CLI::Error& error) {
  const auto known = names_of(app);
  for (const auto& word : app.remaining()) {
    const auto meant = hotset::did_you_mean(word.substr(0, word.find('=')), known);
    if (!meant.empty() || word.starts_with("--"))
      return fmt::format("'{}' is unknown{}", word, meant);
  }
  return error.what();
}

std::string one_line(const CLI::App* app, const CLI::Error& error) {
  const auto words = hotset::printable(trouble_of(named(*app), error), 4096);
  return fmt::format("tiny_moe: {} (see --help)\n", words);
}

void add_columns(CLI::App& command, options& chosen, const std::vector<std::string>& known) {
  command
      .add_option(
          "--columns", chosen.columns,
          fmt::format("columns of the table, in this order (default: as many as fit): all, {}",
                      fmt::join(known, ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes("--json");
}

void add_model(CLI::App& command, options& chosen) {
  command
      .add_option(
          "--model", chosen.model,
          "folder with config.json and model.safetensors (environment: HOTSET_TINY_MOE_DIR)")
      ->capture_default_str();
}

void add_prompts(CLI::App& command, options& chosen) {
  command.add_option("--prompts", chosen.prompts,
                     "text files (default: prompts/*.txt of the model)");
  command.add_option("--tokens", chosen.tokens, "tokens to generate for each prompt")
      ->default_str("32")
      ->check(CLI::Range(1, 1 << 20));
}

void add_max_tokens(CLI::App& command, options& chosen) {
  command
      .add_option("--max-tokens", chosen.max_tokens,
                  "maximum tokens of a pass; longer prompts run in chunks (default: whole prompts)")
      ->check(CLI::Range(1, 1 << 20));
}

/// Adds options for the cache: sizes, policies, precisions and the link.
void add_paging(CLI::App& command, options& chosen) {
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* what) {
    command.add_option(name, values, what)->delimiter(',')->allow_extra_args(false);
  };
  list("--expert-budget", chosen.budgets,
       "cache size for experts: 25%, 96 (slots; per layer in per-layer scope) or 1500KiB (default: "
       "all experts are resident)");
  command
      .add_option("--scope", chosen.scope, "slot pools: shared (one for all layers) or per-layer")
      ->capture_default_str();
  list("--preset", chosen.policies.presets,
       "named sets of policies, such as specmd-1 or specmd-1+least_stale");
  list("--eviction", chosen.policies.evictions,
       "eviction policies, such as protect_hot:uses=4+lru");
  list("--admission", chosen.policies.admissions,
       "admission policies, such as budgeted:fills_per_visit=2");
  list("--prefetch", chosen.policies.prefetches,
       "prefetch policies, such as next_layer_top_k:overfetch=1.5:depth=2 or "
       "cumulative_probability:distance=3");
  list("--prefetch-guard", chosen.policies.guards,
       "residents that a prefetch may evict: none (any that the eviction policy picks), named "
       "(except those already requested), predicted (also except those more likely to be used "
       "sooner)");
  list("--miss", chosen.policies.misses, "miss policies, such as drop:keep=2");
  list("--routing", chosen.policies.routings,
       "routing policies, such as cache_aware:lambda=0.3, or with --pre-eviction budget_top_k");
  list("--pre-eviction", chosen.policies.pre_evictions,
       "policies that free slots before the next layer is routed: none, or "
       "active_evict:r_max=2:release=end");
  list("--predictor", chosen.policies.predictors,
       "predictor for prefetchers by score, pre-eviction, and the evictions importance and "
       "expert_map_priority: next-router (default), current-gate; learning online: co-activation "
       "(co-activation:reach=4:decay=0.8), activation-matrix, expert-map, last-routed; trained: "
       "learned-gate:weights=FILE (written by python3 -m hotset train-gate); combined: "
       "mixed+next-router+co-activation");
  list("--prefetch-order", chosen.policies.prefetch_orders,
       "order of waiting copies: nearest, likeliest, greatest");
  command.add_option(
      "--gate-weights", chosen.policies.gate_weights,
      "weights file for the preset promoe (written by python3 -m hotset train-gate)");
  command.add_option("--precision", chosen.precision,
                     "precisions of the experts in bits, such as 16:8:4 or 8:4@75:25 (shares of "
                     "the slots' bytes in percent)");
  command
      .add_option("--transient", chosen.transient,
                  "extra slots: experts that are refused a cache slot are copied through them, not "
                  "computed by the host")
      ->check(CLI::Range(0, 1024));
  command.add_option("--link", chosen.link, "emulate a link of this speed, such as 100MB/s");
  command
      .add_option("--latency", chosen.latency, "latency of each copy over the link, such as 10us")
      ->capture_default_str();
}

CLI::App* add_generate(CLI::App& app, options& chosen) {
  CLI::App* command = app.add_subcommand("generate", "continue a prompt greedily");
  add_model(*command, chosen);
  auto* prompt = command->add_option_group("input");
  prompt->add_option("--prompt", chosen.prompt, "text to continue");
  prompt->add_option("--prompt-file", chosen.prompt_file, "file with the text to continue");
  prompt->require_option(1);
  command->add_option("--tokens", chosen.tokens, "tokens to generate")
      ->default_str("64")
      ->check(CLI::Range(1, 1 << 20));
  add_paging(*command, chosen);
  command->add_option("--stream", chosen.stream, "thread that computes experts: caller or worker")
      ->capture_default_str()
      ->check(CLI::IsMember({"caller", "worker"}));
  add_max_tokens(*command, chosen);
  return command;
}

CLI::App* add_evaluate(CLI::App& app, options& chosen) {
  CLI::App* command = app.add_subcommand(
      "evaluate", "measure the cost of caches, policies and precisions in bits per byte of text");
  add_model(*command, chosen);
  command->add_option("--text", chosen.prompts, "text files (default: the model's prompts)");
  command->add_option("--limit", chosen.limit, "bytes of each text to use (default: all)")
      ->check(CLI::Range(2, 1 << 30));
  add_paging(*command, chosen);
  command->get_option("--expert-budget")->required();
  command->add_option("--window", chosen.window, "bytes of a sequence")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--prefill", chosen.prefill,
                   "bytes of a sequence in the first pass; the rest is decoded one by one (0: all "
                   "in one pass)")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  add_max_tokens(*command, chosen);
  command->add_flag("--json", chosen.as_json,
                    "print JSON (schema hotset.simulate/2) with the quality");
  add_columns(*command, chosen, hotset::lab::report_columns());
  return command;
}

CLI::App* add_clock(CLI::App& app, options& chosen) {
  CLI::App* command = app.add_subcommand(
      "clock", "compare the simulated clock with real copies over an emulated link");
  add_model(*command, chosen);
  add_prompts(*command, chosen);
  add_paging(*command, chosen);
  command->get_option("--expert-budget")->required();
  command->get_option("--link")->required();
  add_max_tokens(*command, chosen);
  return command;
}

void add_control(CLI::App& command, serving_options& serving) {
  const auto number = [&](const char* name, auto& value, auto least, auto most, const char* what) {
    command.add_option(name, value, what)->capture_default_str()->check(CLI::Range(least, most));
  };
  constexpr std::uint64_t many = 1U << 20U;
  number("--burst", serving.burst, std::uint64_t{1}, many,
         "passes per burst; the split may move when a burst ends");
  number("--decay", serving.decay, 0.0, 0.999,
         "mv-wsa: factor on earlier bursts' counts when a burst ends");
  number("--gate", serving.gate, 0.0, 0.999,
         "mv-wsa: minimum share of the time that a move must save");
  number("--max-move", serving.max_move, std::uint64_t{1}, many,
         "mv-wsa: maximum slots moved per burst");
  number("--dead-zone", serving.dead_zone, std::uint64_t{0}, many,
         "targets at most this many slots away are ignored");
  number("--headroom", serving.headroom, std::uint64_t{0}, std::uint64_t{1000},
         "dual-resize: KV blocks kept above the peak, in percent");
  command.add_flag("--count-reuse", serving.count_reuse,
                   "dual-resize: add blocks that were read again to the peak");
  number("--coverage", serving.coverage, 0.01, 1.0,
         "right-size: share of a user's expert uses that the slots serve");
  command.add_option("--profile", serving.profile,
                     "requests to serve first, without charge: controllers begin at the best split "
                     "for them (default: KV at its floor)");
}

CLI::App* add_serve_trace(CLI::App& app, options& chosen) {
  CLI::App* command = app.add_subcommand(
      "serve-trace", "serve recorded requests with experts and KV cache in one budget");
  serving_options& serving = chosen.serving;
  add_model(*command, chosen);
  command
      ->add_option(
          "TRACE", serving.traces,
          "request traces, as hotset plan --kv-trace reads them; several are served in sequence")
      ->required();
  command
      ->add_option("--budget", serving.budget,
                   "memory for experts and KV cache together, such as 6MiB")
      ->required();
  command
      ->add_option(
          "--split", serving.splits,
          "controllers and fixed splits: mv-wsa, dual-resize, right-size (each TRACE is a user), a "
          "number of experts per layer (12), sweep (every fixed split) or sweep:4 (every fourth)")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--prompts", chosen.prompts,
                      "texts that prompts are cut from (default: prompts/*.txt of the model)");
  command
      ->add_option("--user-prompts", serving.user_prompts,
                   "for each TRACE, the prefix of its texts' names, such as code,tool: each user "
                   "then has a topic")
      ->delimiter(',');
  const auto number = [&](const char* name, auto& value, auto least, auto most, const char* what) {
    command->add_option(name, value, what)->capture_default_str()->check(CLI::Range(least, most));
  };
  constexpr std::size_t many = 1U << 20U;
  number("--scale", serving.scale, 1U, 1U << 20U, "tokens of the trace for each token served");
  number("--steps-per-second", serving.steps_per_second, 1e-6, 1e6,
         "passes in each second of the trace");
  number("--requests", serving.requests, std::size_t{0}, std::size_t{1} << 32U,
         "first requests of each trace to serve (0: all)");
  number("--seed", serving.seed, std::uint64_t{0}, std::uint64_t{1} << 62U, "seed of the texts");
  number("--block-tokens", serving.block_tokens, std::size_t{1}, many, "tokens of a KV block");
  number("--max-sessions", serving.max_sessions, std::size_t{1}, many, "sessions at the same time");
  number("--max-tokens", serving.max_tokens, std::size_t{1}, many,
         "maximum prompt tokens of a pass");
  command->add_option("--eviction", serving.eviction, "eviction policy, such as lfru")
      ->capture_default_str();
  command->add_option("--link", serving.link,
                      "link speed that prices a miss, such as 100MB/s (default: measured)");
  command->add_flag("--emulate-link", serving.emulates_link, "make copies take the time of --link")
      ->needs("--link");
  command->add_option("--recompute", serving.recompute,
                      "price of recomputing a token, such as 1ms (default: measured)");
  number("--warmup", serving.warmup, std::size_t{0}, std::size_t{1} << 32U,
         "requests that must end before misses are charged");
  add_control(*command, serving);
  command->add_option("--metrics", serving.metrics,
                      "address that shows the run's metrics to Prometheus, such as 127.0.0.1:9100 "
                      "(port 0: any free port); needs one --split");
  command->add_option("--timeline", serving.timeline,
                      "write the run's timeline for Perfetto, as Chrome trace events; needs one "
                      "--split");
  command->add_flag("--json", chosen.as_json, "print JSON (schema hotset.serve/1)");
  add_columns(*command, chosen, serving_columns());
  return command;
}

CLI::App* add_serve_adapters(CLI::App& app, options& chosen) {
  CLI::App* command = app.add_subcommand(
      "serve-adapters",
      "serve requests for many adapters over one model, and compare with the model alone");
  adapter_options& adapters = chosen.adapters;
  add_model(*command, chosen);
  command
      ->add_option("ADAPTER", adapters.folders,
                   "folders of trained adapters; if fewer than --adapters, they are repeated as "
                   "further adapters")
      ->required();
  const auto number = [&](const char* name, auto& value, auto least, auto most, const char* what) {
    return command->add_option(name, value, what)
        ->capture_default_str()
        ->check(CLI::Range(least, most));
  };
  constexpr std::size_t many = adapter_serving_config::most_adapters;
  number("--adapters", adapters.adapters, std::size_t{1}, many, "number of adapters to serve")
      ->delimiter(',')
      ->allow_extra_args(false);
  number("--alpha", adapters.alphas, 0.001, 1.0,
         "skew of the requests: adapter i of N gets ((i+1)/N)^alpha - (i/N)^alpha of them")
      ->delimiter(',')
      ->allow_extra_args(false);
  number("--rate", adapters.rate, 0.001, 1e6, "requests per second, over all adapters");
  number("--requests", adapters.requests, std::size_t{1}, adapter_serving_config::most_requests,
         "number of requests to serve");
  number("--prompt-tokens", adapters.prompt_tokens, std::size_t{1}, std::size_t{1} << 20U,
         "prompt tokens per request");
  number("--tokens", adapters.tokens, std::size_t{1}, std::size_t{1} << 20U,
         "tokens to generate per request");
  number("--places", adapters.places, std::size_t{0}, many,
         "adapters on the device at the same time (0: all)");
  number("--seed", adapters.seed, std::uint64_t{0}, std::uint64_t{1} << 62U,
         "seed of arrivals and prompts");
  number("--repeats", adapters.repeats, std::size_t{1}, adapter_serving_config::most_repeats,
         "pairs of runs, base first; figures are medians");
  command->add_option(
      "--prompts", chosen.prompts,
      "texts that prompts are cut from; an adapter uses those named after it, if any "
      "(default: prompts/*.txt of the model)");
  command->add_flag("--json", chosen.as_json, "print JSON (schema hotset.serve_adapters/1)");
  add_columns(*command, chosen, adapter_serving_columns());
  return command;
}

CLI::App* add_score_experts(CLI::App& app, options& chosen) {
  CLI::App* command =
      app.add_subcommand("score-experts", "measure the use of each expert on a task's texts");
  scoring_options& scoring = chosen.scoring;
  add_model(*command, chosen);
  command->add_option("--text", scoring.texts, "text files")->required();
  command->add_option("--window", scoring.window, "bytes of a sequence")->capture_default_str();
  command->add_option("--limit", scoring.limit, "bytes of each text to use (default: all)")
      ->check(CLI::Range(1, 1 << 30));
  command->add_option("OUT", scoring.out, "ESFT's summary.json to write; - is standard output")
      ->required();
  return command;
}

int run(int argc, char** argv) {
  options chosen;
  if (const char* folder = std::getenv("HOTSET_TINY_MOE_DIR")) chosen.model = folder;
  CLI::App app{"A small Mixture-of-Experts decoder"};
  app.set_version_flag("--version", "tiny_moe (hotset) " HOTSET_VERSION_TEXT);
  app.failure_message(one_line);
  app.require_subcommand(1);
  const CLI::App* generate_command = add_generate(app, chosen);
  const CLI::App* evaluate_command = add_evaluate(app, chosen);
  const CLI::App* clock_command = add_clock(app, chosen);
  const CLI::App* serve_command = add_serve_trace(app, chosen);
  const CLI::App* adapters_command = add_serve_adapters(app, chosen);
  const CLI::App* score_command = add_score_experts(app, chosen);

  CLI::App* check_command =
      app.add_subcommand("check", "compare the model's results with the reference");
  add_model(*check_command, chosen);
  check_command->add_option("--reference", chosen.reference,
                            "file to compare with (default: reference.safetensors of the model)");

  CLI::App* verify_command = app.add_subcommand(
      "verify", "compare every policy and many cache sizes with full residency, byte for byte");
  add_model(*verify_command, chosen);
  add_prompts(*verify_command, chosen);

  CLI::App* trace_command = app.add_subcommand("trace", "record the routing");
  add_model(*trace_command, chosen);
  trace_command->add_option("out", chosen.out, "file to write")->required();
  add_prompts(*trace_command, chosen);
  add_max_tokens(*trace_command, chosen);
  trace_command
      ->add_option(
          "--with", chosen.with,
          "arrays to record besides ids and weights: logits, probabilities, hidden, predictions")
      ->delimiter(',')
      ->check(CLI::IsMember({"logits", "probabilities", "hidden", "predictions"}));
  if (argc == 1) {  // without arguments: help
    fmt::print("{}", app.help());
    return ok;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ok : usage;
  }
  if (chosen.tokens == 0) chosen.tokens = *generate_command ? 64 : 32;
  if (*generate_command) return generate(chosen);
  if (*evaluate_command) return evaluate(chosen);
  if (*clock_command) return clock(chosen);
  if (*serve_command) return serve_trace(chosen);
  if (*adapters_command) return serve_adapters(chosen);
  if (*score_command) return score_experts(chosen);
  if (*check_command) return check(chosen);
  return *verify_command ? verify(chosen) : trace(chosen);
}

}  // namespace

int main(int argc, char** argv) {
  const auto report = [](const std::exception& error, exit_code code) {
    fmt::print(stderr, "tiny_moe: {}\n", hotset::lab::with_sizes(error.what()));
    return code;
  };
  hotset::lab::end_cleanly_at_signals();
  hotset::lab::set_command(argc, argv);
  const hotset::lab::kept_streams keep;
  try {
    const int code = run(argc, argv);
    hotset::lab::flush_standard_output();
    return code;
  } catch (const hotset::lab::closed_pipe&) {
    return ok;
  } catch (const std::filesystem::filesystem_error& error) {
    return report(error, failure);
  } catch (const std::system_error& error) {  // fmt could not write standard output
    if (error.code() == std::errc::broken_pipe) return ok;
    return report(
        std::runtime_error("standard output: cannot be written: " + error.code().message()),
        failure);
  } catch (const hotset::lab::usage_error& error) {
    return report(error, usage);
  } catch (const hotset::lab::infeasible_error& error) {
    return report(error, infeasible);
  } catch (const hotset::trace_error& error) {
    return report(error, bad_input);
  } catch (const std::exception& error) {
    return report(error, failure);
  }
}
