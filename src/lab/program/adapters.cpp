// SPDX-License-Identifier: Apache-2.0
// hotset adapters: memory that adapters need.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "hotset/adapters/adapter_layout.hpp"
#include "hotset/core/numbers/units.hpp"
#include "hotset/lab/esft_config.hpp"
#include "lab/files/program.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/reports/rows.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {
namespace {

using lab::row;

struct load_options {
  std::vector<std::filesystem::path> configs;
  lab::esft_base base{};
  std::uint64_t expert_bytes = 0;
  std::vector<std::string> tensors;
  std::uint64_t page_bytes = std::uint64_t{2} << 20U;
  /// 0: E_max; none: the smallest stride in whole pages.
  std::optional<std::uint64_t> stride = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t kv_bytes_per_token = 0;
  std::uint64_t budget = 0;  ///< 0: not requested
  bool as_json = false;
};

lab::esft_base read_base(std::string_view text) {
  const auto cross = std::min(text.find('x'), text.size());
  const auto behind = text.substr(std::min(cross + 1, text.size()));
  const auto experts =
      read_number<std::int32_t>(text.substr(0, cross), 1, adapter_layout::most_experts);
  const auto layers = read_number<std::int32_t>(behind, 1, adapter_layout::most_layers);
  if (!experts || !layers) refuse_option("--base", text, "experts x MoE layers, such as 64x26");
  return {*layers, *experts, std::nullopt};
}

std::optional<std::uint64_t> read_stride(std::string_view text) {
  const auto stride = read_number<std::uint64_t>(text, 1, adapter_layout::most_extent);
  if (text != "aligned" && !stride)
    refuse_option("--stride", text, "aligned, or a number of experts");
  return stride;
}

/// Default sizes: two thirds (gate and up) and one third (down).
std::vector<std::uint64_t> read_tensors(const load_options& options) {
  const auto expert = options.expert_bytes;
  const auto asked = lab::least_size_text(expert);
  if (options.tensors.empty() && expert < 3) refuse_option("--expert-bytes", asked, "3B or more");
  if (options.tensors.empty()) return {expert - expert / 3, expert / 3};
  std::vector<std::uint64_t> out;
  auto left = expert;
  bool fits = true;
  for (const auto& text : split_lists("--tensors", options.tensors)) {
    out.push_back(for_option("--tensors", [&] { return lab::read_size(text, "MiB"); }));
    fits = fits && out.back() <= left;
    left -= fits ? out.back() : 0;
  }
  if (!fits || left > 0)
    refuse_option("--tensors", fmt::format("{}", fmt::join(options.tensors, ",")),
                  fmt::format("sizes that sum to {}", asked));
  return out;
}

/// Returns "law" for law.json, for law/expert_cfg.json and for the folder law.
std::string name_of(const std::filesystem::path& path) {
  const auto whole = path.has_filename() ? path : path.parent_path();
  auto name = whole.stem().string();
  if (name == "expert_cfg" && whole.has_parent_path())
    name = whole.parent_path().filename().string();
  return printable(name, 60);
}

/// Appends the counts of all adapters. Errors: trace_error, also if two files number their layers differently.
void read_adapters(const load_options& options, std::vector<std::int32_t>& tuned) {
  std::vector<std::int32_t> layers;
  for (const auto& given : options.configs) {
    const auto path = lab::input_path(given);
    const auto config = lab::read_esft_config(path, options.base);
    if (layers.empty()) layers = config.layer_numbers;
    if (config.layer_numbers != layers)
      lab::refuse_input(path.string(), "key 'experts'",
                        fmt::format("has layers {}..{}", config.layer_numbers.front(),
                                    config.layer_numbers.back()),
                        fmt::format("those of {}, {}..{}", options.configs.front().string(),
                                    layers.front(), layers.back()));
    const auto counts = config.counts();
    tuned.insert(tuned.end(), counts.begin(), counts.end());
  }
}

adapter_layout read_layout(const load_options& options) {
  adapter_layout::config setup{.layers = options.base.layers,
                               .experts = options.base.experts,
                               .tensor_bytes = read_tensors(options),
                               .page_bytes = options.page_bytes,
                               .resident_bytes = options.resident_bytes,
                               .tuned = {},
                               .stride = options.stride.value_or(0)};
  read_adapters(options, setup.tuned);
  if (!options.stride) setup.stride = adapter_layout::create(setup).value().aligned_stride();
  return adapter_layout::create(std::move(setup)).value();
}

double mean(std::uint64_t experts, std::uint64_t layers) {
  return static_cast<double>(experts) / static_cast<double>(layers);
}

std::vector<row> adapter_rows(const load_options& options, const adapter_layout& layout) {
  const auto layers = static_cast<std::uint64_t>(layout.shape().layers);
  std::vector<row> rows;
  for (std::size_t a = 0; a < layout.adapters(); ++a)
    rows.push_back({{"name", name_of(options.configs[a])},
                    {"max", layout.most_tuned(a)},
                    {"mean", mean(layout.tuned(a), layers)},
                    {"sparsity", layout.sparsity(a)}});
  return rows;
}

/// The first row is a bound, the others are possible placements. Tokens: KV cache that the budget leaves; null: the
/// weights do not fit.
std::vector<row> placement_rows(const load_options& options, const adapter_layout& layout) {
  std::vector<row> rows;
  const auto exact = layout.exact_bytes();
  for (const auto& [name, bytes] : {std::pair("exact", exact),
                                    {"virtual", layout.virtual_bytes()},
                                    {"dense", layout.dense_bytes()},
                                    {"padding", layout.padding_bytes()},
                                    {"merged", layout.merged_bytes()}}) {
    // One adapter's merged model is smaller than the base with separate experts.
    const auto over = bytes >= exact ? lab::size_text(bytes - exact)
                                     : fmt::format("-{}", lab::size_text(exact - bytes));
    rows.push_back({{"placement", name}, {"bytes", bytes}, {"over", over}, {"tokens", nullptr}});
    if (options.budget >= bytes)
      rows.back()["tokens"] = (options.budget - bytes) / options.kv_bytes_per_token;
  }
  return rows;
}

/// The first of the smallest.
std::string smallest_of(const std::vector<row>& placements) {
  const auto bytes = [](const row& one) { return one["bytes"].get<std::uint64_t>(); };
  const auto best = std::ranges::min_element(placements.begin() + 1, placements.end(), {}, bytes);
  return (*best)["placement"].get<std::string>();
}

std::string json_of(const load_options& options, const adapter_layout& layout) {
  nlohmann::json bytes;
  nlohmann::json tokens;
  const auto placements = placement_rows(options, layout);
  for (const auto& one : placements) {
    const auto name = one["placement"].get<std::string>();
    bytes[name] = one["bytes"];
    if (options.budget != 0) tokens[name] = one["tokens"];
  }
  const nlohmann::json out = {{"schema", "hotset.adapters/1"},
                              {"adapters", adapter_rows(options, layout)},
                              {"e_max", layout.most_tuned()},
                              {"stride", layout.stride()},
                              {"sparsity", layout.sparsity()},
                              {"fragmentation", layout.fragmentation()},
                              {"tensor_bytes", layout.shape().tensor_bytes},
                              {"bytes", bytes},
                              {"reserved_bytes", layout.reserved_bytes()},
                              {"smallest", smallest_of(placements)},
                              {"kv_tokens", tokens}};
  return lab::one_line(out) + '\n';
}

std::string text_of(const load_options& options, const adapter_layout& layout) {
  constexpr lab::cell share{.digits = 2};
  constexpr lab::column adapters[] = {{"adapter", "name", "adapter", {lab::cell::word}},
                                      {"max", "max", "max"},
                                      {"mean", "mean", "mean", share},
                                      {"sparsity", "sparsity", "sparsity", share}};
  const auto placements = placement_rows(options, layout);
  const bool large = placements.front()["bytes"].get<std::uint64_t>() >= 1_GiB;
  const lab::column places[] = {{"placement", "placement", "placement", {lab::cell::word}},
                                {"bytes", "size", large ? "GiB" : "MiB", share},
                                {"over", "over", "over exact"},
                                {"tokens", "tokens", "KV tokens", {}, 0, "asked"}};
  const lab::table_view view{.width = lab::output_width(), .columns = {}};
  const auto& shape = layout.shape();
  std::vector<std::string> tensors;
  for (const auto bytes : shape.tensor_bytes) tensors.push_back(lab::size_text(bytes));
  auto rows = adapter_rows(options, layout);
  rows.push_back(
      {{"name", "all"},
       {"max", layout.most_tuned()},
       {"mean", mean(layout.tuned(), layout.adapters() * static_cast<std::uint64_t>(shape.layers))},
       {"sparsity", layout.sparsity()}});
  auto sized = placements;
  for (auto& one : sized) {
    one["size"] = one["bytes"].get<double>() / static_cast<double>(large ? 1_GiB : 1_MiB);
    one["asked"] = options.budget;
  }
  return lab::folded(fmt::format("{} adapter{} of {} experts x {} layers; an expert is {} ({})\n\n",
                                 layout.adapters(), layout.adapters() == 1 ? "" : "s",
                                 shape.experts, shape.layers, lab::size_text(options.expert_bytes),
                                 fmt::join(tensors, " + ")),
                     view.width) +
         lab::to_table(adapters, rows, view) +
         lab::folded(
             fmt::format("\nE_max {}, stride {}, pages of {}; fragmentation of padding "
                         "{:.4f} ({} / {})\n\n",
                         layout.most_tuned(), layout.stride(), lab::size_text(shape.page_bytes),
                         layout.fragmentation(), layout.padded_experts(), layout.held_experts()),
             view.width) +
         lab::to_table(places, sized, view) +
         fmt::format("smallest: {}\n", smallest_of(placements));
}

int plan(const load_options& options) {
  const auto layout = read_layout(options);
  print(options.as_json ? json_of(options, layout) : text_of(options, layout));
  return ok;
}

void add_memory(CLI::App& app, load_options& options) {
  add_size(app, "--expert-bytes", options.expert_bytes, "MiB",
           "bytes of one expert's weights, such as 16.5MiB")
      ->required();
  add_list(app, "--tensors", options.tensors,
           "sizes of an expert's parts, each stored in its own tensor per layer, such as "
           "11MiB,5.5MiB (default: two thirds for gate and up, one third for down)");
  add_size(app, "--page", options.page_bytes, "MiB", "size of a page of virtual memory")
      ->default_str("2MiB");
  add_size(app, "--resident-bytes", options.resident_bytes, "GiB",
           "bytes of all other weights, added to every placement", true)
      ->default_str("0");
  auto* const kv = add_size(app, "--kv-bytes-per-token", options.kv_bytes_per_token, "KiB",
                            "KV cache of one token over all layers");
  auto* const budget =
      add_size(app, "--budget", options.budget, "GiB",
               "memory for weights and KV cache; the output then shows how many tokens fit");
  budget->needs(kv);
  kv->needs(budget);
}

/// Returns the function to run if the subcommand was named.
std::function<int()> add_adapter_plan(CLI::App& group) {
  auto* app = group.add_subcommand(
      "plan", "Compare the memory of adapters under several placements of their experts");
  auto options = std::make_shared<load_options>();
  add_file(*app, "CONFIG", options->configs,
           "ESFT configurations, one per adapter: a file, or a folder with an expert_cfg.json; "
           "repeats are accepted")
      ->required();
  add_parsed(*app, "--base", "MxL", options->base, read_base,
             "shape of the base model: experts per layer x MoE layers, such as 64x26")
      ->required();
  add_number(
      *app, "--first-moe-layer", options->base.first_layer, 0, adapter_layout::most_layers - 1,
      "number of the model's first MoE layer (default: the configurations list every MoE layer)");
  add_memory(*app, *options);
  add_parsed(*app, "--stride", "N", options->stride, read_stride,
             "experts between the starts of consecutive adapters in virtual memory: a number, or "
             "aligned (the smallest that fills whole pages); default: E_max, the most experts that "
             "an adapter tuned in a layer");
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.adapters/1)");
  app->footer(R"(Placements:
  exact    the bytes of all experts: a lower bound
  virtual  a tensor of addresses in which an adapter begins every stride
           experts; only pages with experts are mapped
  dense    like virtual, but adapters follow each other without gaps
  padding  room for E_max experts of every adapter in every layer
  merged   a complete model for each adapter

Examples:
  hotset adapters plan --base 64x26 --expert-bytes 16.5MiB intent.json law.json
  hotset adapters plan --base 64x26 --expert-bytes 16.5MiB --stride aligned --resident-bytes 2.44GiB --kv-bytes-per-token 31104B --budget 52.72GiB intent.json law.json)");
  return [options] { return plan(*options); };
}

}  // namespace

command add_adapters(CLI::App& root) {
  auto* app = root.add_subcommand("adapters", "Plan the memory of adapters");
  app->require_subcommand(1);
  app->footer(R"(Examples:
  hotset adapters plan --base 64x26 --expert-bytes 16.5MiB intent.json law.json
  hotset help adapters plan)");
  return {app, add_adapter_plan(*app)};
}

}  // namespace hotset::cli
