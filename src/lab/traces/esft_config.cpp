// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/esft_config.hpp"

#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/sizes.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;
/// Experts of each layer in a file, by the model's number.
using named_layers = std::map<std::int32_t, std::vector<expert_id>>;

constexpr std::string_view accepted_file = "an ESFT configuration, a JSON object";

class esft_config_reader {
 public:
  esft_config_reader(const json& root, const std::string& file, const esft_base& base)
      : root_(root), file_(file), base_(base) {}

  esft_config read() const {
    if (root_.contains("peft_type")) refuse_peft();
    for (const auto* const key : {"shared_experts", "non_expert_modules"}) {
      const auto at = root_.find(key);
      if (at != root_.end() && *at != false)
        refuse(
            fmt::format("key '{}'", key), "is " + described(*at),
            *at == true ? "false: adapters that tuned routed experts and nothing else" : "false");
    }
    auto named = layers();
    add_layers_between(named);
    esft_config out;
    for (auto& [number, experts] : named) {
      out.layer_numbers.push_back(number);
      out.tuned.push_back(std::move(experts));
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(std::string_view place, std::string_view found,
                           std::string_view accepted) const {
    refuse_input(file_, place, found, accepted);
  }

  [[noreturn]] void refuse_peft() const {
    std::string facts;
    for (const auto* const key : {"peft_type", "r", "target_modules", "target_parameters"})
      if (const auto at = root_.find(key); at != root_.end() && !at->is_null())
        facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", key, at->dump());
    refuse(
        "", fmt::format("is a PEFT adapter ({}), which adds to weights", printable(facts, 300)),
        fmt::format("an ESFT configuration (expert_cfg.json), whose adapters replace experts; for "
                    "PEFT's, add {} to --resident-bytes",
                    peft_size()));
  }

  /// Bytes that a PEFT adapter keeps beside the base model, by the header of its weights.
  [[nodiscard]] std::string peft_size() const {
    const auto weights = std::filesystem::path(file_).replace_filename("adapter_model.safetensors");
    std::error_code code;
    if (!std::filesystem::exists(weights, code)) return "the size of adapter_model.safetensors";
    const safetensors_file held(weights, file_extent::header);
    std::uint64_t all = 0;
    std::uint64_t of_experts = 0;
    std::set<std::string> layers;
    for (const auto& name : held.names()) {
      const auto bytes = held.at(name).described_bytes;
      const auto at = name.find(".experts.");
      all += bytes;
      if (at == name.npos) continue;
      of_experts += bytes;
      layers.insert(name.substr(0, at));
    }
    return fmt::format("{} (of which {} for the experts of {} layers)", size_text(all),
                       size_text(of_experts), layers.size());
  }

  named_layers layers() const {
    const auto at = root_.find("experts");
    if (at == root_.end() || !at->is_object())
      refuse("key 'experts'", at == root_.end() ? "is missing" : "is " + described(*at),
             "an object of layer: [expert, ...]");
    named_layers out;
    for (const auto& [key, experts] : at->items()) {
      const auto number = numeric_key(key, most_layers - 1);
      if (!number)
        refuse(fmt::format("layer '{}'", printable(key, 60)), "is no layer's number",
               fmt::format("0..{}", most_layers - 1));
      out.emplace(*number, experts_of(*number, experts));
    }
    return out;
  }

  std::vector<expert_id> experts_of(std::int32_t layer, const json& list) const {
    const auto place = fmt::format("layer {}", layer);
    if (!list.is_array()) refuse(place, "is " + described(list), "an array of experts");
    std::vector<expert_id> out;
    std::set<expert_id> seen;
    for (const auto& value : list) {
      const bool known = value.is_number_unsigned() &&
                         value.get<std::uint64_t>() < static_cast<std::uint64_t>(base_.experts);
      if (!known)
        refuse(place, fmt::format("expert {} is {}", out.size(), described(value)),
               fmt::format("0..{}", base_.experts - 1));
      out.push_back(value.get<expert_id>());
      if (!seen.insert(out.back()).second)
        refuse(place, fmt::format("expert {} is there twice", out.back()), "each expert once");
    }
    return out;
  }

  /// If the first layer is given, layers that are not named keep the base model's experts.
  void add_layers_between(named_layers& named) const {
    const auto wanted = static_cast<std::size_t>(base_.layers);
    if (const auto first = base_.first_layer) {
      const auto last = *first + base_.layers - 1;
      for (const auto& [number, experts] : named)
        if (number < *first || number > last)
          refuse(fmt::format("layer {}", number), "is no MoE layer",
                 fmt::format("{}..{}", *first, last));
      for (auto number = *first; number <= last; ++number) named.try_emplace(number);
    }
    if (named.size() != wanted)
      refuse("key 'experts'", fmt::format("has {} layers", named.size()),
             named.size() > wanted
                 ? fmt::format("those with experts, {}", wanted)
                 : fmt::format("{}, or fewer where the first MoE layer is given", wanted));
  }

  const json& root_;
  const std::string& file_;
  const esft_base& base_;
};

}  // namespace

std::vector<std::int32_t> esft_config::counts() const {
  std::vector<std::int32_t> out;
  out.reserve(tuned.size());
  for (const auto& experts : tuned) out.push_back(static_cast<std::int32_t>(experts.size()));
  return out;
}

esft_config parse_esft_config(std::string_view text, const std::string& file,
                              const esft_base& base) {
  const auto root = parse_json_object(text, file, accepted_file);
  return esft_config_reader(root, file, base).read();
}

esft_config read_esft_config(const std::filesystem::path& path, const esft_base& base) {
  std::error_code code;
  auto file = path;
  if (std::filesystem::is_directory(path, code)) {
    file = path / "adapter_config.json";  // PEFT's, which is refused by name
    const auto own = path / "expert_cfg.json";
    if (std::filesystem::exists(own, code) || !std::filesystem::exists(file, code)) file = own;
  }
  return parse_esft_config(read_single_input(file), file.string(), base);
}

std::string format_esft_config(const esft_config& config) {
  std::string layers;
  for (std::size_t l = 0; l < config.tuned.size(); ++l)
    layers += fmt::format("{}\"{}\": [{}]", l == 0 ? "" : ", ", config.layer_numbers[l],
                          fmt::join(config.tuned[l], ", "));
  return fmt::format(
      "{{\"experts\": {{{}}}, \"shared_experts\": false, \"non_expert_modules\": false}}\n",
      layers);
}

}  // namespace hotset::lab
