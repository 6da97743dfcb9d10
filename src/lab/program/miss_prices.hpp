// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The options that say what misses cost, of plan and simulate-split.

#include <string>

#include <CLI/CLI.hpp>

#include "hotset/planning/budget/cost_model.hpp"
#include "lab/program/command.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {

struct miss_prices {
  std::string link = "25GB/s";
  std::string recompute = "1ms";
};

/// prices must outlive the parse.
inline void add_miss_prices(CLI::App& app, miss_prices& prices) {
  app.add_option("--link", prices.link, "how fast experts are copied")
      ->type_name("RATE")
      ->capture_default_str();
  app.add_option("--recompute", prices.recompute, "prefill of one token that KV has lost")
      ->type_name("TIME")
      ->capture_default_str();
}

/// Errors: usage_error.
[[nodiscard]] inline cost_model checked(const miss_prices& prices) {
  const auto rate = for_option("--link", [&] { return lab::read_rate(prices.link); });
  const auto recompute =
      for_option("--recompute", [&] { return lab::read_duration(prices.recompute); });
  return {.seconds_per_byte = 1 / static_cast<double>(rate),
          .recompute_seconds_per_token = static_cast<double>(recompute) * 1e-9};
}

}  // namespace hotset::cli
