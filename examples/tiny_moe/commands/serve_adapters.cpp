// SPDX-License-Identifier: Apache-2.0
// tiny_moe serve-adapters: options to runs and their report.
#include <vector>

#include <fmt/format.h>

#include "hotset/core/error.hpp"
#include "lab/errors.hpp"
#include "lab/reports/rows.hpp"
#include "tiny_moe/commands/commands.hpp"
#include "tiny_moe/experts/adapter_files.hpp"
#include "tiny_moe/serving/adapter_serving.hpp"
#include "tiny_moe/studies/verification.hpp"

namespace tiny_moe {
namespace {

/// Every number of adapters combined with every alpha. Errors: hotset::lab::usage_error.
std::vector<adapter_serving_config> configs_of(const adapter_options& chosen,
                                               const model_config& shape) {
  std::vector<adapter_serving_config> out;
  for (const auto adapters : chosen.adapters)
    for (const auto alpha : chosen.alphas) {
      out.push_back({.adapters = adapters,
                     .alpha = alpha,
                     .rate = chosen.rate,
                     .requests = chosen.requests,
                     .prompt_tokens = chosen.prompt_tokens,
                     .tokens = chosen.tokens,
                     .places = chosen.places,
                     .seed = chosen.seed,
                     .repeats = chosen.repeats});
      if (const auto bad = out.back().validate(shape)) throw hotset::lab::usage_error(bad->message);
    }
  return out;
}

}  // namespace

int serve_adapters(const options& chosen) {
  const hotset::lab::table_view view{.width = hotset::lab::output_width(),
                                     .columns = chosen.columns};
  hotset::lab::check_columns(view, adapter_serving_columns());
  const model weights(chosen.model);
  const auto configs = configs_of(chosen.adapters, weights.config());
  const auto texts = read_texts(chosen.prompts, chosen.model);
  std::vector<adapter_weights> adapters;
  for (const auto& folder : chosen.adapters.folders)
    adapters.push_back(read_adapter(weights.config(), folder));
  std::vector<adapter_serving_result> runs;
  runs.reserve(configs.size());
  for (const auto& config : configs)
    runs.push_back(serve_adapters(weights, adapters, texts, config));
  const bool is_same = same_as_merged(runs);
  if (chosen.as_json) {
    fmt::print("{}\n", to_json(runs).dump(2));
  } else {
    fmt::print("{}", to_table(runs, view));
    fmt::print("first request of each adapter: {} its merged model alone\n",
               is_same ? "identical to" : "DIFFERS from");
  }
  return is_same ? ok : failure;
}

}  // namespace tiny_moe
