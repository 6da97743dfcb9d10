// SPDX-License-Identifier: Apache-2.0
// hotset synth-requests: makes requests of conversations from a seed.
#include <filesystem>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_output.hpp"
#include "lab/traces/requests.hpp"
#include "lab/traces/synthetic/synthetic_requests.hpp"

namespace hotset::cli {
namespace {

struct options {
  std::filesystem::path out;
  synthetic_requests_config config;
};

int synthesise(const options& chosen) {
  output_file out(chosen.out);
  const bool on_output = out.is_standard_output();
  const auto made = synthetic_requests(chosen.config);
  if (!made) throw lab::usage_error(made.error().message);
  out.finish(lab::format_requests(*made));
  tell(on_output, out.name(),
       fmt::format("{} requests, {} blocks, {} of them different", made->requests(),
                   made->references(), made->distinct()));
  return ok;
}

}  // namespace

command add_synth_requests(CLI::App& root) {
  auto* app = root.add_subcommand("synth-requests", "Make requests of conversations from a seed");
  auto chosen = std::make_shared<options>();
  auto& config = chosen->config;
  constexpr auto many = std::numeric_limits<std::uint32_t>::max();
  add_file(*app, "OUT", chosen->out, "request trace to write (Mooncake's JSON lines)")->required();
  add_number(*app, "--requests", config.requests, 1U, 1U << 26U, "total number of requests");
  add_number(*app, "--conversations", config.conversations, 1U, 1U << 20U,
             "conversations alive at the same time");
  add_number(*app, "--turns", config.turns, 1U, many,
             "turns per conversation; 1: no prompt is reused");
  add_number(*app, "--shared-blocks", config.shared_blocks, 0U, 1U << 20U,
             "blocks that all prompts begin with");
  add_number(*app, "--first-blocks", config.first_blocks, 1U, 1U << 20U,
             "additional blocks of a conversation's first turn");
  add_number(*app, "--turn-blocks", config.turn_blocks, 0U, 1U << 20U,
             "new blocks of each later turn");
  add_number(*app, "--output-tokens", config.output_tokens, 1U, many,
             "tokens generated per request");
  add_number(*app, "--gap-ms", config.gap_ms, "milliseconds between requests");
  add_number(*app, "--seed", config.seed, "seed: the same one gives the same requests");
  app->footer(R"(Examples:
  hotset synth-requests chats.jsonl --conversations 6 --turns 8
  hotset synth-requests single.jsonl --turns 1 --first-blocks 3 --requests 400)");
  return {app, [chosen] { return synthesise(*chosen); }};
}

}  // namespace hotset::cli
