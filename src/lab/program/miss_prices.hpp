// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Options for the price of misses, shared by plan and simulate-split.

#include <string_view>

#include <CLI/CLI.hpp>

#include "hotset/planning/budget/cost_model.hpp"
#include "lab/program/command.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {

/// cost must outlive the parse.
inline void add_miss_prices(CLI::App& app, cost_model& cost) {
  cost = {.seconds_per_byte = 1 / 25e9, .recompute_seconds_per_token = 1e-3};
  const auto per_byte = [](std::string_view text) {
    return 1 / static_cast<double>(lab::read_rate(text));
  };
  const auto seconds = [](std::string_view text) {
    return static_cast<double>(lab::read_duration(text)) * 1e-9;
  };
  add_parsed(app, "--link", "RATE", cost.seconds_per_byte, per_byte,
             "speed of copying experts, such as 25GB/s")
      ->default_str("25GB/s");
  add_parsed(app, "--recompute", "TIME", cost.recompute_seconds_per_token, seconds,
             "time to recompute one token evicted from the KV cache, such as 1ms")
      ->default_str("1ms");
}

}  // namespace hotset::cli
