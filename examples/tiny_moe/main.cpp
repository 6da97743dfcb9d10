// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "hotset/core/error.hpp"
#include "hotset/sim/io/input_error.hpp"
#include "hotset/sim/io/mapped_file.hpp"
#include "tiny_moe/engine.hpp"
#include "tiny_moe/reference_check.hpp"

namespace {

enum exit_code : int { ok = 0, failure = 1, usage = 2, bad_input = 4 };

struct options {
  std::filesystem::path model = HOTSET_TINY_MOE_DIR;
  std::string prompt;
  std::filesystem::path prompt_file;
  std::size_t tokens = 64;
  std::filesystem::path reference;
};

std::string read_prompt(const std::filesystem::path& path) {
  const hotset::sim::mapped_file file(path);
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int generate(const options& chosen) {
  const tiny_moe::model weights(chosen.model);
  const std::string prompt =
      chosen.prompt_file.empty() ? chosen.prompt : read_prompt(chosen.prompt_file);
  const std::size_t room = weights.config().max_positions;
  if (prompt.empty() || prompt.size() > room || chosen.tokens > room - prompt.size() + 1) {
    hotset::sim::refuse_input(
        "prompt", "",
        fmt::format("has {} bytes, and {} tokens are to follow", prompt.size(), chosen.tokens),
        fmt::format("1..{} bytes, and {} in all", room, room + 1));
  }
  tiny_moe::resident_experts experts(weights);
  tiny_moe::engine decoder(weights, experts);

  const std::vector<std::uint8_t> tokens(prompt.begin(), prompt.end());
  const auto prefill_start = std::chrono::steady_clock::now();
  auto logits = decoder.forward(tokens).last(tiny_moe::model_config::vocabulary);
  const double prefill = seconds_since(prefill_start);

  std::string text = prompt;
  const auto decode_start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < chosen.tokens; ++i) {
    const auto token = static_cast<std::uint8_t>(tiny_moe::largest(logits));
    text += static_cast<char>(token);
    if (i + 1 < chosen.tokens) logits = decoder.forward({&token, 1});
  }
  const double decode = seconds_since(decode_start);

  text += '\n';
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw std::runtime_error("standard output: cannot be written");
  }
  fmt::print(stderr, "prefill {} tokens, {:.0f} tokens/s\n", tokens.size(),
             static_cast<double>(tokens.size()) / prefill);
  if (chosen.tokens > 1) {
    // The first token comes out of the prefill.
    fmt::print(stderr, "decode {} tokens, {:.0f} tokens/s\n", chosen.tokens - 1,
               static_cast<double>(chosen.tokens - 1) / decode);
  }
  return ok;
}

int check(const options& chosen) {
  const tiny_moe::model weights(chosen.model);
  tiny_moe::resident_experts experts(weights);
  const tiny_moe::reference_tolerance tolerance;
  const auto report = tiny_moe::check_reference(
      weights, experts,
      chosen.reference.empty() ? chosen.model / "reference.safetensors" : chosen.reference,
      tolerance);
  bool all = true;
  fmt::print("{:<12} {:>6} {:>10} {:>10} {:>10} {:>12} {:>10}\n", "prompt", "tokens", "logits",
             "weights", "router", "ids", "greedy");
  for (const auto& prompt : report) {
    const bool agrees = prompt.agrees(tolerance);
    all = all && agrees;
    fmt::print("{:<12} {:>6} {:>10.1e} {:>10.1e} {:>10.1e} {:>12} {:>10}{}\n", prompt.name,
               prompt.tokens, prompt.logits, prompt.weights, prompt.probabilities,
               fmt::format("{}/{}", prompt.ids - prompt.ids_differing, prompt.ids),
               fmt::format("{}/{}", prompt.greedy - prompt.greedy_differing, prompt.greedy),
               agrees ? "" : "  DIFFERS");
  }
  fmt::print("largest difference accepted: logits {:.0e}, weights {:.0e}, router {:.0e}\n",
             tolerance.logits, tolerance.weights, tolerance.probabilities);
  fmt::print("{}\n", all ? "agrees with the reference" : "differs from the reference");
  return all ? ok : failure;
}

int run(int argc, char** argv) {
  options chosen;
  CLI::App app{"A small Mixture-of-Experts decoder"};
  app.require_subcommand(1);
  const auto add_model = [&](CLI::App& command) {
    command.add_option("--model", chosen.model, "folder of config.json and model.safetensors")
        ->envname("HOTSET_TINY_MOE_DIR")
        ->capture_default_str();
  };
  CLI::App* generate_command = app.add_subcommand("generate", "continue a prompt greedily");
  add_model(*generate_command);
  auto* prompt = generate_command->add_option_group("input");
  prompt->add_option("--prompt", chosen.prompt, "text to continue");
  prompt->add_option("--prompt-file", chosen.prompt_file, "file that holds the text to continue");
  prompt->require_option(1);
  generate_command->add_option("--tokens", chosen.tokens, "tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  CLI::App* check_command = app.add_subcommand("check", "compare with the reference");
  add_model(*check_command);
  check_command->add_option("--reference", chosen.reference,
                            "file to compare with (default: reference.safetensors of the model)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ok : usage;
  }
  return *generate_command ? generate(chosen) : check(chosen);
}

}  // namespace

int main(int argc, char** argv) {
  const auto report = [](const std::exception& error) {
    fmt::print(stderr, "tiny_moe: {}\n", error.what());
  };
  try {
    return run(argc, argv);
  } catch (const hotset::trace_error& error) {
    report(error);
    return bad_input;
  } catch (const std::exception& error) {
    report(error);
    return failure;
  }
}
