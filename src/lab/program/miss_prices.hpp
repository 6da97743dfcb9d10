// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The options that say what misses cost, of plan and simulate-split.

#include <string>

#include <CLI/CLI.hpp>

#include "hotset/planning/budget/cost_model.hpp"
#include "lab/program/command.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {

/// cost must outlive the parse.
inline void add_miss_prices(CLI::App& app, cost_model& cost) {
  cost = {.seconds_per_byte = 1 / 25e9, .recompute_seconds_per_token = 1e-3};
  add_text(
      app, "--link", "RATE",
      [&cost](const std::string& text) {
        cost.seconds_per_byte = 1 / static_cast<double>(lab::read_rate(text));
      },
      "how fast experts are copied")
      ->default_str("25GB/s");
  add_text(
      app, "--recompute", "TIME",
      [&cost](const std::string& text) {
        cost.recompute_seconds_per_token = static_cast<double>(lab::read_duration(text)) * 1e-9;
      },
      "prefill of one token that KV has lost")
      ->default_str("1ms");
}

}  // namespace hotset::cli
