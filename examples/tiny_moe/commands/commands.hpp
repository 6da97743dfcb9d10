// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The program's subcommands, one function each.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/replay/preset.hpp"

namespace tiny_moe {

enum exit_code : int { ok = 0, failure = 1, usage = 2, infeasible = 3, bad_input = 4 };

/// Options of `serve-trace`.
struct serving_options {
  std::vector<std::filesystem::path> traces;
  std::string budget;
  std::vector<std::string> splits{"mv-wsa"};
  std::string eviction = "lru";
  std::uint32_t scale = 32;
  double steps_per_second = 20;
  std::size_t requests = 0;  ///< first requests of each trace; 0: all
  std::uint64_t seed = 1;
  std::size_t block_tokens = 16;
  std::size_t max_sessions = 8;
  std::size_t max_tokens = 64;
  std::string link{};       ///< empty: measured
  std::string recompute{};  ///< empty: measured
  bool emulates_link = false;
  std::size_t warmup = 0;
  std::uint64_t burst = 32;
  double decay = 0.9;
  double gate = 0.02;
  std::uint64_t max_move = 4;
  std::uint64_t dead_zone = 0;
  std::uint64_t headroom = 10;
  bool count_reuse = false;
  double coverage = 0.95;
  std::vector<std::string> user_prompts{};
  std::filesystem::path profile{};
  std::string metrics{};   ///< address; empty: none
  std::string timeline{};  ///< file; empty: none
};

/// Options of `serve-adapters`.
struct adapter_options {
  std::vector<std::filesystem::path> folders;
  std::vector<std::size_t> adapters{5, 10, 20};
  std::vector<double> alphas{1, 0.3, 0.1};
  double rate = 20;
  std::size_t requests = 100;
  std::size_t prompt_tokens = 64;
  std::size_t tokens = 32;
  std::size_t places = 0;  ///< 0: one per adapter
  std::uint64_t seed = 1;
  std::size_t repeats = 3;
};

/// Options of `score-experts`.
struct scoring_options {
  std::vector<std::filesystem::path> texts;
  std::filesystem::path out;
  std::size_t window = 256;
  std::size_t limit = 0;  ///< bytes of each text; 0: all
};

struct options {
  std::filesystem::path model = HOTSET_TINY_MOE_DIR;
  std::string prompt;
  std::filesystem::path prompt_file;
  std::size_t tokens = 0;  ///< 0 until the command line is parsed
  std::filesystem::path reference;

  std::size_t max_tokens = 0;

  // Lists, for commands that take several; `generate` uses the first entry of each.
  std::vector<std::string> budgets{};  ///< empty: full residency
  hotset::lab::policy_lists policies{};
  std::string scope = "shared";
  std::string precision{};
  std::string link{};
  std::string latency = "0";
  std::size_t transient = 0;
  std::string stream = "caller";

  std::size_t window = 256;  ///< for `evaluate`: bytes of a window, and of its prefilled part
  std::size_t prefill = 64;
  std::size_t limit = 0;  ///< bytes of each text; 0: all
  bool as_json = false;
  std::vector<std::string> columns{};  ///< columns of the table; empty: as many as fit

  std::vector<std::filesystem::path> prompts;
  std::filesystem::path out;
  std::vector<std::string> with;
  serving_options serving;
  adapter_options adapters;
  scoring_options scoring;
};

/// Each returns the exit code. Errors: hotset::lab::usage_error, hotset::lab::infeasible_error, hotset::trace_error,
/// std::runtime_error.
int generate(const options& chosen);
int check(const options& chosen);
int verify(const options& chosen);
int trace(const options& chosen);
int evaluate(const options& chosen);
int clock(const options& chosen);
int serve_trace(const options& chosen);
int serve_adapters(const options& chosen);
int score_experts(const options& chosen);

}  // namespace tiny_moe
