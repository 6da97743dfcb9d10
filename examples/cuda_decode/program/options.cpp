// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/program/options.hpp"

#include <charconv>
#include <functional>
#include <limits>

#include "hotset/core/numbers/units.hpp"

namespace cuda_decode {
namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view found,
                         std::string_view accepted) {
  throw usage_error(std::string(option) + ": '" + std::string(found) +
                    "', accepted: " + std::string(accepted));
}

template <class Number>
Number number(std::string_view option, std::string_view text, Number low, Number high,
              const std::string& otherwise = "") {
  Number value{};
  const auto* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  if (text.empty() || code != std::errc{} || rest != end || !(value >= low && value <= high)) {
    const auto shown = [](Number n) {
      auto s = std::to_string(n);
      if (s.find('.') == std::string::npos) return s;
      s.erase(s.find_last_not_of('0') + 1);
      if (s.back() == '.') s.pop_back();
      return s;
    };
    refuse(option, text, shown(low) + ".." + shown(high) + otherwise);
  }
  return value;
}

template <class Each>
void for_each_item(std::string_view option, std::string_view list, std::string_view accepted,
                   Each each) {
  std::size_t first = 0;
  while (first <= list.size()) {
    const auto comma = std::min(list.find(',', first), list.size());
    const auto item = list.substr(first, comma - first);
    if (item.empty()) refuse(option, list, accepted);
    each(item);
    first = comma + 1;
  }
}

decode_mode mode_named(std::string_view option, std::string_view text) {
  for (const auto mode : {decode_mode::eager, decode_mode::layer_graphs, decode_mode::step_graph})
    if (name_of(mode) == text) return mode;
  refuse(option, text, "eager, layer-graphs, step-graph, separated by commas");
}

struct option {
  std::string_view name;
  subcommand of;
  std::function<void(program_options&, std::string_view)> take;
};

// Parses a number of at least `low` that fits the field.
template <class Field>
std::function<void(program_options&, std::string_view)> into(std::string_view name,
                                                             Field program_options::*field,
                                                             Field low, Field high) {
  return [=](program_options& o, std::string_view text) {
    o.*field = number<Field>(name, text, low, high);
  };
}
std::function<void(program_options&, std::string_view)> into(std::string program_options::*field) {
  return [=](program_options& o, std::string_view text) { o.*field = std::string(text); };
}

std::vector<option> all_options() {
  constexpr auto many = std::size_t{1} << 20U;
  return {
      {"--eviction", subcommand::compare, into(&program_options::eviction)},
      {"--eviction", subcommand::tiny, into(&program_options::eviction)},
      {"--shape", subcommand::compare, into(&program_options::shape)},
      {"--layers", subcommand::compare,
       [](program_options& o, std::string_view text) {
         o.fit_layers = text == "fit";
         o.layers = o.fit_layers ? 0 : number("--layers", text, 1, std::int32_t{4096}, " or fit");
       }},
      {"--caps", subcommand::compare,
       [](program_options& o, std::string_view text) {
         constexpr std::string_view accepted = "numbers or all, separated by commas";
         o.caps.clear();
         for_each_item("--caps", text, accepted, [&](std::string_view item) {
           o.caps.push_back(item == "all" ? 0 : number("--caps", item, 1, 65536));
         });
       }},
      {"--modes", subcommand::compare,
       [](program_options& o, std::string_view text) {
         o.modes.clear();
         for_each_item(
             "--modes", text, "eager, layer-graphs, step-graph",
             [&](std::string_view item) { o.modes.push_back(mode_named("--modes", item)); });
       }},
      {"--static-fetch", subcommand::compare,
       [](program_options& o, std::string_view text) {
         if (text != "routed" && text != "layer") refuse("--static-fetch", text, "routed, layer");
         o.fetch = text == "layer" ? offload_fetch::layer : offload_fetch::routed;
       }},
      {"--routing-known", subcommand::compare,
       [](program_options& o, std::string_view text) {
         if (text != "in-time" && text != "ahead")
           refuse("--routing-known", text, "in-time, ahead");
         o.known = text == "ahead" ? routing_known::ahead : routing_known::in_time;
       }},
      {"--steps", subcommand::compare,
       into("--steps", &program_options::steps, std::size_t{1}, many)},
      {"--warmup", subcommand::compare,
       into("--warmup", &program_options::warmup, std::size_t{1}, many)},
      {"--trace", subcommand::compare, into(&program_options::trace)},
      {"--zipf", subcommand::compare,
       [](program_options& o, std::string_view text) {
         o.statistics.zipf = number("--zipf", text, 0.0, 8.0);
       }},
      {"--stickiness", subcommand::compare,
       [](program_options& o, std::string_view text) {
         o.statistics.stickiness = number("--stickiness", text, 0.0, 1.0);
       }},
      {"--seed", subcommand::compare,
       [](program_options& o, std::string_view text) {
         o.statistics.seed =
             number("--seed", text, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
       }},
      {"--host-budget", subcommand::compare,
       [](program_options& o, std::string_view text) {
         const auto bytes = hotset::parse_bytes(text);
         const bool bare = text.find_first_not_of("0123456789.") == std::string_view::npos;
         if (!bytes || *bytes == 0 || bare) refuse("--host-budget", text, hotset::byte_size_syntax);
         o.host_budget = *bytes;
       }},
      {"--check-steps", subcommand::compare,
       into("--check-steps", &program_options::check_steps, std::size_t{0}, many)},
      {"--json", subcommand::compare, into(&program_options::json)},
      {"--model", subcommand::tiny, into(&program_options::model)},
      {"--expert-budget", subcommand::tiny, into(&program_options::expert_budget)},
      {"--prompt", subcommand::tiny, into(&program_options::prompt)},
      {"--tokens", subcommand::tiny,
       into("--tokens", &program_options::tokens, std::size_t{1}, many)},
  };
}

}  // namespace

program_options read_options(std::span<const std::string> arguments) {
  program_options out;
  std::size_t i = 0;
  if (!arguments.empty() && arguments[0] == "tiny") {
    out.what = subcommand::tiny;
    ++i;
  }
  const auto known = all_options();
  while (i < arguments.size()) {
    const auto& name = arguments[i++];
    if (name == "--help" || name == "-h") {
      out.what = subcommand::help;
      return out;
    }
    if (name == "--version") {
      out.what = subcommand::version;
      return out;
    }
    const option* found = nullptr;
    for (const auto& o : known)
      if (o.name == name && o.of == out.what) found = &o;
    if (found == nullptr && name != "--device")
      throw usage_error("unknown argument '" + name + "', accepted: those that --help lists");
    if (i == arguments.size()) throw usage_error(name + " has no value");
    const auto& value = arguments[i++];
    if (found == nullptr)
      out.device = number("--device", value, 0, 1023);
    else
      found->take(out, value);
  }
  return out;
}

std::string_view help_text() noexcept {
  return R"(cuda_decode: decode at true sizes, with experts kept on the device in several ways

  cuda_decode [options]        measure static offload, hotset and full residency; bits must be equal
    --shape NAME               qwen3-30b-a3b (default), olmoe, mixtral-8x7b, gpt-oss-120b,
                               minimax-m2, small-bf16, small-fp8, small-mxfp4
    --layers N                 use only the first N layers, if memory is short; fit: as many as
                               --host-budget holds
    --caps LIST                slots per layer, such as 16,32,64,all
    --eviction NAME            eviction policy of hotset: lru (default), similar_steps or another
                               policy of the library that needs no future, with parameters as in
                               similar_steps:rows=512
    --modes LIST               eager,layer-graphs,step-graph (default: all three)
    --static-fetch WHAT        experts that static offload fetches at each visit: routed (default)
                               or layer (all experts of the layer)
    --routing-known WHEN       in-time (default: the host waits for each layer's ids, as with a
                               router) or ahead (it does not wait)
    --steps N --warmup N       measured decoded tokens (64), and unmeasured ones before them (16)
    --trace FILE               replay a native trace; else a synthetic one:
    --zipf X --stickiness X --seed N      popularity 1 / rank^X (0.8), chance that a rank keeps its
                               expert (0.5), seed (1)
    --host-budget SIZE         page-locked host memory for the weights (64GiB)
    --check-steps N            compute the first N steps on the host, too, and compare bits (0)
    --json FILE                write the figures as JSON, again after every arm: "finished" is false
                               until the last one

  cuda_decode tiny [options]   the tiny model: experts paged and computed on the device, compared
                               byte for byte with full residency on the device. Attention, router
                               and the sum over ranks stay on the host.
    --expert-budget SIZE       cache size: 25% (default), 96 (slots) or 1500KiB
    --eviction NAME            as above
    --prompt TEXT --tokens N --model FOLDER

  --device N                   ordinal of the device (0)
  --version                    print the version and exit

Every expert is down(silu(gate x) * up x) with random weights: no attention, no router, no biases.
Exit codes: 0 ok, or skipped without a device; 1 bits differ, or a failure; 2 bad arguments;
3 does not fit into memory; 4 bad input.
)";
}

}  // namespace cuda_decode
