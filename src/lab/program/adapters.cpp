// SPDX-License-Identifier: Apache-2.0
// hotset adapters: what adapters take in memory.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "hotset/adapters/adapter_layout.hpp"
#include "hotset/lab/esft_config.hpp"
#include "lab/files/program.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/reports/text_table.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {
namespace {

struct plan_options {
  std::vector<std::filesystem::path> configs;
  std::string base;
  std::string expert_bytes;
  std::vector<std::string> tensors;
  std::string page = "2MiB";
  std::string stride;
  std::string resident_bytes = "0";
  std::string kv_bytes_per_token;
  std::string budget;
  std::string first_layer;
  bool as_json = false;
};

lab::esft_base read_base(const plan_options& options) {
  const std::string_view text = options.base;
  const auto cross = std::min(text.find('x'), text.size());
  const auto behind = text.substr(std::min(cross + 1, text.size()));
  const auto experts =
      read_number<std::int32_t>(text.substr(0, cross), 1, adapter_layout::most_experts);
  const auto layers = read_number<std::int32_t>(behind, 1, adapter_layout::most_layers);
  if (!experts || !layers)
    refuse_option("--base", options.base, "experts x MoE layers, such as 64x26");
  lab::esft_base base{*layers, *experts, std::nullopt};
  if (!options.first_layer.empty())
    base.first_layer = parse_number<std::int32_t>("--first-moe-layer", options.first_layer, 0,
                                                  adapter_layout::most_layers - 1);
  return base;
}

std::uint64_t size_of(const char* option, const std::string& text, std::string_view usual) {
  return for_option(option, [&] { return lab::read_size(text, usual); });
}

/// Two thirds (gate and up) and one third (down), where they are not given.
std::vector<std::uint64_t> read_tensors(const plan_options& options) {
  const auto expert = size_of("--expert-bytes", options.expert_bytes, "MiB");
  if (options.tensors.empty() && expert < 3)
    refuse_option("--expert-bytes", options.expert_bytes, "3B or more");
  if (options.tensors.empty()) return {expert - expert / 3, expert / 3};
  std::vector<std::uint64_t> out;
  for (const auto& text : split_lists("--tensors", options.tensors))
    out.push_back(size_of("--tensors", text, "MiB"));
  auto left = expert;
  bool fits = true;
  for (const auto bytes : out) {
    fits = fits && bytes <= left;
    left -= fits ? bytes : 0;
  }
  if (!fits || left > 0)
    refuse_option("--tensors", fmt::format("{}", fmt::join(options.tensors, ",")),
                  fmt::format("sizes that sum to {}", options.expert_bytes));
  return out;
}

/// What a budget leaves to the KV cache.
struct kv_room {
  std::uint64_t budget = 0;
  std::uint64_t bytes_per_token = 0;

  /// Nothing where the weights alone do not fit.
  [[nodiscard]] std::optional<std::uint64_t> tokens(std::uint64_t weights) const {
    if (weights > budget) return std::nullopt;
    return (budget - weights) / bytes_per_token;
  }
};

std::optional<kv_room> read_kv(const plan_options& options) {
  if (options.budget.empty()) return std::nullopt;
  return kv_room{size_of("--budget", options.budget, "GiB"),
                 size_of("--kv-bytes-per-token", options.kv_bytes_per_token, "KiB")};
}

/// Of no value: E_max, by which 0 stands for it. "aligned" is made a number when E_max is known.
std::uint64_t read_stride(const std::string& text) {
  if (text.empty() || text == "aligned") return 0;
  const auto stride = read_number<std::uint64_t>(text, 1, adapter_layout::most_extent);
  if (!stride) refuse_option("--stride", text, "aligned, or a number of experts");
  return *stride;
}

/// "law" of law.json, of law/expert_cfg.json and of the folder law.
std::string name_of(const std::filesystem::path& path) {
  const auto whole = path.has_filename() ? path : path.parent_path();
  auto name = whole.stem().string();
  if (name == "expert_cfg" && whole.has_parent_path())
    name = whole.parent_path().filename().string();
  return printable(name, 60);
}

/// Appends all adapters' counts. Errors: trace_error, also where two files number their layers differently.
void read_adapters(const plan_options& options, const lab::esft_base& base,
                   std::vector<std::int32_t>& tuned) {
  std::vector<std::int32_t> numbers;
  for (const auto& given : options.configs) {
    const auto path = lab::input_path(given);
    const auto config = lab::read_esft_config(path, base);
    if (numbers.empty()) numbers = config.layer_numbers;
    if (config.layer_numbers != numbers)
      lab::refuse_input(path.string(), "key 'experts'",
                        fmt::format("has layers {}..{}", config.layer_numbers.front(),
                                    config.layer_numbers.back()),
                        fmt::format("those of {}, {}..{}", options.configs.front().string(),
                                    numbers.front(), numbers.back()));
    const auto counts = config.counts();
    tuned.insert(tuned.end(), counts.begin(), counts.end());
  }
}

adapter_layout read_layout(const plan_options& options) {
  const auto base = read_base(options);
  adapter_layout::config setup{
      .layers = base.layers,
      .experts = base.experts,
      .tensor_bytes = read_tensors(options),
      .page_bytes = size_of("--page", options.page, "MiB"),
      .resident_bytes = for_option("--resident-bytes",
                                   [&] { return lab::read_size_or_none(options.resident_bytes); }),
      .tuned = {},
      .stride = read_stride(options.stride)};
  read_adapters(options, base, setup.tuned);
  if (options.stride == "aligned")
    setup.stride = adapter_layout::create(setup).value().aligned_stride();
  return adapter_layout::create(std::move(setup)).value();
}

struct placement {
  const char* name;
  std::uint64_t bytes;
};
/// The first is the bound, the others are what one can do.
using placements = std::array<placement, 5>;

placements placements_of(const adapter_layout& layout) {
  return {{{"exact", layout.exact_bytes()},
           {"virtual", layout.virtual_bytes()},
           {"dense", layout.dense_bytes()},
           {"padding", layout.padding_bytes()},
           {"merged", layout.merged_bytes()}}};
}
/// Of equals the first.
const placement& smallest_of(const placements& all) {
  return *std::min_element(all.begin() + 1, all.end(), [](const placement& a, const placement& b) {
    return a.bytes < b.bytes;
  });
}

double mean(std::uint64_t experts, std::uint64_t layers) {
  return static_cast<double>(experts) / static_cast<double>(layers);
}

std::string json_of(const plan_options& options, const adapter_layout& layout,
                    const std::optional<kv_room>& kv) {
  using json = nlohmann::json;
  const auto all = placements_of(layout);
  const auto layers = static_cast<std::uint64_t>(layout.shape().layers);
  json adapters = json::array();
  for (std::size_t a = 0; a < layout.adapters(); ++a)
    adapters.push_back({{"name", name_of(options.configs[a])},
                        {"max", layout.most_tuned(a)},
                        {"mean", mean(layout.tuned(a), layers)},
                        {"sparsity", layout.sparsity(a)}});
  json bytes;
  json tokens = kv ? json::object() : json(nullptr);
  for (const auto& one : all) {
    bytes[one.name] = one.bytes;
    if (!kv) continue;
    const auto room = kv->tokens(one.bytes);
    tokens[one.name] = room ? json(*room) : json(nullptr);
  }
  const json out = {{"schema", "hotset.adapters/1"},
                    {"adapters", adapters},
                    {"e_max", layout.most_tuned()},
                    {"stride", layout.stride()},
                    {"sparsity", layout.sparsity()},
                    {"fragmentation", layout.fragmentation()},
                    {"tensor_bytes", layout.shape().tensor_bytes},
                    {"bytes", bytes},
                    {"reserved_bytes", layout.reserved_bytes()},
                    {"smallest", smallest_of(all).name},
                    {"kv_tokens", tokens}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

lab::text_table adapter_table(const plan_options& options, const adapter_layout& layout) {
  const auto layers = static_cast<std::uint64_t>(layout.shape().layers);
  lab::text_table table;
  table.add({"adapter", "adapter", true, 0, true, {}});
  table.add({"max", "max", false, 0, true, {}});
  table.add({"mean", "mean", false, 0, true, {}});
  table.add({"sparsity", "sparsity", false, 0, true, {}});
  const auto add = [&](std::string name, std::int32_t most, double average, double sparsity) {
    table.add_row({std::move(name), fmt::format("{}", most), fmt::format("{:.2f}", average),
                   fmt::format("{:.2f}", sparsity)});
  };
  for (std::size_t a = 0; a < layout.adapters(); ++a)
    add(name_of(options.configs[a]), layout.most_tuned(a), mean(layout.tuned(a), layers),
        layout.sparsity(a));
  add("all", layout.most_tuned(), mean(layout.tuned(), layout.adapters() * layers),
      layout.sparsity());
  return table;
}

lab::text_table placement_table(const placements& all, const std::optional<kv_room>& kv) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
  const bool large = all.front().bytes >= 1024 * mib;
  const auto unit = static_cast<double>(large ? 1024 * mib : mib);
  lab::text_table table;
  table.add({"placement", "placement", true, 0, true, {}});
  table.add({"bytes", large ? "GiB" : "MiB", false, 0, true, {}});
  table.add({"over", "over exact", false, 0, true, {}});
  table.add({"tokens", "KV tokens", false, 0, kv.has_value(), {}});
  for (const auto& one : all) {
    const auto room = kv ? kv->tokens(one.bytes) : std::nullopt;
    // One adapter's merged model is smaller than the base beside its experts.
    const bool above = one.bytes >= all.front().bytes;
    const auto apart = above ? one.bytes - all.front().bytes : all.front().bytes - one.bytes;
    table.add_row({one.name, fmt::format("{:.2f}", static_cast<double>(one.bytes) / unit),
                   fmt::format("{}{}", above ? "" : "-", lab::size_text(apart)),
                   room ? fmt::format("{}", *room) : "-"});
  }
  return table;
}

std::string text_of(const plan_options& options, const adapter_layout& layout,
                    const std::optional<kv_room>& kv) {
  const auto& shape = layout.shape();
  const lab::table_view view{.width = lab::output_width(), .columns = {}};
  std::vector<std::string> tensors;
  for (const auto bytes : shape.tensor_bytes) tensors.push_back(lab::size_text(bytes));
  const auto expert =
      std::accumulate(shape.tensor_bytes.begin(), shape.tensor_bytes.end(), std::uint64_t{0});
  const auto all = placements_of(layout);
  auto out =
      lab::folded(fmt::format("{} adapter{} of {} experts x {} layers; an expert is {} ({})\n\n",
                              layout.adapters(), layout.adapters() == 1 ? "" : "s", shape.experts,
                              shape.layers, lab::size_text(expert), fmt::join(tensors, " + ")),
                  view.width);
  out += adapter_table(options, layout).render(view);
  out += lab::folded(
      fmt::format(
          "\nE_max {}, stride {}, pages of {}; fragmentation of padding {:.4f} ({} / {})\n\n",
          layout.most_tuned(), layout.stride(), lab::size_text(shape.page_bytes),
          layout.fragmentation(), layout.padded_experts(), layout.held_experts()),
      view.width);
  return out + placement_table(all, kv).render(view) +
         fmt::format("smallest: {}\n", smallest_of(all).name);
}

int plan(const plan_options& options) {
  const auto kv = read_kv(options);
  const auto layout = read_layout(options);
  print(options.as_json ? json_of(options, layout, kv) : text_of(options, layout, kv));
  return ok;
}

void add_memory(CLI::App& app, plan_options& options) {
  const auto add = [&](const char* name, std::string& value, const char* description) {
    return app.add_option(name, value, description)->type_name("SIZE");
  };
  add("--expert-bytes", options.expert_bytes, "weights of one expert")->required();
  add_list(
      app, "--tensors", options.tensors,
      "its parts, each in a tensor of its layer (default: two thirds, gate and up, and one third, "
      "down)");
  add("--page", options.page, "page of virtual memory")->capture_default_str();
  add("--resident-bytes", options.resident_bytes,
      "all weights but the routed experts', which every placement has")
      ->capture_default_str();
  auto* const kv =
      add("--kv-bytes-per-token", options.kv_bytes_per_token, "KV cache, of all layers together");
  auto* const budget = add("--budget", options.budget,
                           "memory of weights and KV cache, to count the tokens it leaves");
  budget->needs(kv);
  kv->needs(budget);
}

command add_adapter_plan(CLI::App& group) {
  auto* app = group.add_subcommand(
      "plan", "Count what adapters take in memory, by how their experts are placed");
  auto options = std::make_shared<plan_options>();
  app->add_option("CONFIG", options->configs,
                  "ESFT configurations, one for each adapter: a file, or a folder with an "
                  "expert_cfg.json; one may be given several times")
      ->required()
      ->type_name("FILE");
  app->add_option("--base", options->base, "base model: experts of a layer x MoE layers")
      ->required()
      ->type_name("MxL");
  app->add_option(
         "--first-moe-layer", options->first_layer,
         "the model's number of the first one (default: the configurations name all of them)")
      ->type_name("N");
  add_memory(*app, *options);
  app->add_option(
         "--stride", options->stride,
         "experts from one adapter's places to the next one's in virtual memory: a number, or "
         "aligned, the smallest one of whole pages (default: E_max, the most experts that an "
         "adapter tuned in a layer)")
      ->type_name("N");
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.adapters/1)");
  app->footer(R"(Placements:
  exact    the bytes of all experts; nothing takes less
  virtual  a tensor of addresses with places for an adapter every stride
           experts; only pages that hold experts are mapped
  dense    the same, an adapter's experts right behind the one's before it
  padding  places for E_max experts of every adapter in every layer
  merged   a whole model for each adapter

Examples:
  hotset adapters plan --base 64x26 --expert-bytes 16.5MiB intent.json law.json
  hotset adapters plan --base 64x26 --expert-bytes 16.5MiB --stride aligned --resident-bytes 2.44GiB --kv-bytes-per-token 31104B --budget 52.72GiB intent.json law.json)");
  return {app, [options] { return plan(*options); }};
}

}  // namespace

command add_adapters(CLI::App& root) {
  auto* app = root.add_subcommand("adapters", "Plan the memory of adapters");
  app->require_subcommand(1);
  const std::vector<command> commands{add_adapter_plan(*app)};
  app->footer(R"(Examples:
  hotset adapters plan --base 64x26 --expert-bytes 16.5MiB intent.json law.json
  hotset help adapters plan)");
  return {app, [commands] {
            for (const auto& one : commands)
              if (one.app->parsed()) return one.run();
            return static_cast<int>(usage);
          }};
}

}  // namespace hotset::cli
