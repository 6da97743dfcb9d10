// SPDX-License-Identifier: Apache-2.0
// hotset plan: divides a device's memory between a model's experts and its KV cache.
#include "lab/studies/plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/numbers/units.hpp"
#include "hotset/core/text/names.hpp"
#include "lab/files/gguf_parts.hpp"
#include "lab/models/model_description.hpp"
#include "lab/models/wished_weights.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/miss_prices.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/folded_text.hpp"
#include "lab/reports/plan_report.hpp"
#include "lab/studies/engine_settings.hpp"
#include "lab/studies/kv_types.hpp"
#include "lab/traces/requests.hpp"

namespace hotset::cli {
namespace {

struct plan_options {
  std::string model;
  /// Figures by hand, except the number of experts and top-k, which are among the trace's options.
  lab::model_by_hand hand;
  std::optional<double> kv_bits;
  std::string weights;
  lab::plan_request request{.context = 4096};
  std::optional<std::uint64_t> reserve_bytes, ubatch;
  std::optional<lab::graphics_card> card;
  /// Speeds by option, with their places among those of the machine.
  std::vector<std::pair<double lab::machine_speeds::*, double>> speeds;
  bool measures = false, has_link = false;
  std::filesystem::path trace;
  std::filesystem::path kv_trace;
  bool as_json = false;
  std::filesystem::path out;
  trace_options reading;
};

/// Converts a number to an optional: 0 means that it was not given.
std::optional<std::int32_t> given(std::int32_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}

/// Reads the model and corrects it by hand, or describes it only by hand.
lab::model_description model_of(const plan_options& options, const std::string& weights) {
  auto hand = options.hand;
  hand.experts = given(options.reading.experts);
  hand.top_k = given(options.reading.top_k);
  if (!options.model.empty()) {
    // If the model has its own top-k and experts, those options concern only the trace; a range of layers always does.
    if (!options.reading.layers.empty()) hand.layers.reset();
    return for_option("--model", [&] {
      return lab::describe_model(input_path(options.model).string(),
                                 {options.kv_bits, weights, hand});
    });
  }
  if (!weights.empty())
    throw lab::usage_error("--weights: a model by hand has its own sizes; accepted: with --model");
  if (std::ranges::any_of(options.reading.layers, &lab::layer_range::is_open))
    throw lab::usage_error("--layers: a model by hand has a last layer, such as 3..45; or --model");
  if (hand.is_empty())
    throw lab::usage_error(
        "--model is required, or by hand --layers --experts --top-k --expert-bytes "
        "--kv-bytes-per-token");
  auto described = lab::describe_by_hand(hand);
  if (options.kv_bits) described.kv_bits = *options.kv_bits;
  return described;
}

lab::device_split split_of(const std::string& text) {
  for (const auto split : {lab::device_split::expert, lab::device_split::tensor})
    if (text == name_of(split)) return split;
  refuse_option("--parallel", text, "expert, tensor");
}

/// Returns nothing for "auto".
std::optional<double> kv_bits_of(const std::string& text) {
  constexpr auto most = lab::model_options::most_kv_bits;
  const auto bits = read_number(text, 0.5, most);
  if (text != "auto" && (!bits || std::floor(2 * *bits) != 2 * *bits))
    refuse_option("--kv-bits", text, fmt::format("auto, or multiples of 0.5 in 0.5..{}", most));
  return bits;
}

/// A type of the cache, by the names of llama.cpp and vLLM.
const lab::kv_type& kv_type_of(const std::string& text) {
  std::vector<std::string> known;
  for (const auto& type : lab::kv_types) {
    if (type.is_default()) continue;
    if (detail::plain_letters(text) == detail::plain_letters(type.name)) return type;
    known.emplace_back(type.name);
  }
  throw lab::usage_error(unknown_name("--kv-type:", text, known).message);
}

std::string weights_of(const std::string& text) {
  if (const auto bad = lab::check_wish(text)) throw lab::usage_error(bad->message);
  return lab::wish_name(text);
}

/// "none" is a card without memory.
std::vector<std::string> card_names() {
  std::vector<std::string> out = {"none"};
  for (const auto& card : lab::graphics_cards()) out.emplace_back(card.name);
  return out;
}
lab::graphics_card card_of(const std::string& text) {
  if (text == "none") return {};
  if (const auto* const card = lab::find_card(text)) return *card;
  const auto x = std::min(text.find_first_not_of("0123456789"), text.size() - 1);
  if (const auto* const card = lab::find_card(text.substr(x + 1)); card && x > 0 && text[x] == 'x')
    refuse_option("--gpu", text,
                  fmt::format("--gpu {} --devices {}", card->name, text.substr(0, x)));
  lab::refuse_name("--gpu:", text, card_names(),
                   "; any other by --vram or --unified, and --device-bandwidth");
}
std::string engine_of(const std::string& text) {
  if (std::ranges::find(lab::engine_names, text) != lab::engine_names.end()) return text;
  refuse_option("--engine", text, fmt::format("{}", fmt::join(lab::engine_names, ", ")));
}

/// Sets the batch of prompts, and the reserve for it: 512 tokens if all weights fit beside, else 2048 if these leave
/// room, because larger batches copy the host's experts less often.
void choose_batch(const plan_options& options, lab::plan_request& request) {
  const auto& m = request.model;
  const auto others = m.resident_bytes +
                      detail::saturating_product(request.concurrency, m.kv_bytes(request.context));
  const auto all = m.all_expert_bytes() / request.devices;
  const auto set = [&](std::uint64_t ubatch, std::uint64_t beside) {
    request.ubatch = ubatch;
    const auto activations = lab::activation_bytes(request);
    request.reserve_bytes = options.reserve_bytes.value_or(activations == 0 ? 1_GiB : activations);
    return detail::saturating_sum(request.reserve_bytes + beside, others) <= request.device_bytes;
  };
  if (options.ubatch)
    (void)set(*options.ubatch, 0);
  else if (!set(512, all) && !set(2048, 0))
    (void)set(512, 0);
}

/// Describes the model, with weights in another format if `weights` is not empty, and names its files.
std::vector<std::string> take_model(const plan_options& options, const std::string& weights,
                                    lab::plan_request& request) {
  auto described = model_of(options, weights);
  request.model = std::move(described.memory);
  request.kv_bits = described.kv_bits;
  request.arithmetic = described.arithmetic;
  if (!options.model.empty() && options.model != "-") {
    const std::filesystem::path path(options.model);
    const bool is_file = path.extension() == ".json" || path.extension() == ".safetensors";
    const bool is_gguf = path.extension() == ".gguf";
    const auto format = weights.empty() ? "" : '-' + weights;
    request.files = (is_file ? path.parent_path() / "." : path).string() + format;
    request.gguf = is_gguf && weights.empty() ? lab::first_gguf_part(path).string()
                                              : request.model.name + format + ".gguf";
    request.is_gguf = is_gguf || lab::is_llama_mixture(weights);
  }
  choose_batch(options, request);
  const auto note_own = [&](std::string_view option, std::int32_t asked, std::int32_t own) {
    if (options.trace.empty() && asked != 0 && asked != own)
      described.notes.push_back(fmt::format("{} has no effect: the model has {}", option, own));
  };
  note_own("--experts", options.reading.experts, request.model.experts.experts);
  note_own("--top-k", options.reading.top_k, request.model.experts.top_k);
  return std::move(described.notes);
}

/// Speeds of a card or of this machine, then those by option, and the memory that they leave open.
void take_machine(const plan_options& options, lab::plan_request& request,
                  std::vector<std::string>& notes) {
  auto& s = request.speeds;
  const auto& card = options.card;
  request.has_card = !card || card->mebibytes > 0;
  if ((request.is_unified || !request.has_card) && request.host_bytes == 0)
    throw lab::usage_error(
        "--host-ram is required with --unified and with --gpu none, such as 64GiB");
  const bool sets_device = request.device_bytes > 0 || options.has_link || request.is_unified ||
                           request.devices > 1 ||
                           std::ranges::any_of(options.speeds, [](const auto& speed) {
                             return speed.first == &lab::machine_speeds::device_bandwidth ||
                                    speed.first == &lab::machine_speeds::device_flops;
                           });
  if (!request.has_card && sets_device)
    throw lab::usage_error(
        "--gpu none: accepted without --vram, --unified, --devices, --link and speeds of a device");
  if (request.is_unified && request.devices > 1)
    throw lab::usage_error("--unified: the host's memory has one device; accepted: no --devices");
  if (request.is_unified && request.device_bytes > request.host_bytes)
    throw lab::usage_error("--unified: --vram is a part of --host-ram; accepted: at most that");
  if (card && request.has_card) {
    if (request.device_bytes == 0) request.device_bytes = card->mebibytes * 1_MiB;
    s.device_bandwidth = 1e9 * card->gigabytes_per_second;
    s.device_flops = 1e12 * card->teraflops;
    if (!options.has_link) request.cost.seconds_per_byte = 1e-9 / card->link_gigabytes_per_second;
  }
  if (options.measures) {
    const auto measured = lab::measure_speeds(options.model);
    s.host_bandwidth = measured.host_bandwidth;
    s.disk_bandwidth = measured.disk_bandwidth.value_or(s.disk_bandwidth);
    notes.push_back(fmt::format(
        "measured here: {:.1f} GB/s of memory{}; the processor's operations, the link and the "
        "device are not: --host-flops, --link, --gpu",
        s.host_bandwidth / 1e9,
        measured.disk_bandwidth
            ? fmt::format(", {:.2f} GB/s of disk", s.disk_bandwidth / 1e9)
            : "; the disk is not: --model is no file of 64 MiB or more that allows direct reads"));
  }
  for (const auto& [member, value] : options.speeds) s.*member = value;
  if (!request.has_card) {
    request.device_bytes = request.usable_host_bytes();
    s.device_bandwidth = s.host_bandwidth;
    s.device_flops = s.host_flops;
    request.cost.seconds_per_byte = 1 / s.disk_bandwidth;  // a miss reads the disk
  } else if (request.is_unified && request.device_bytes == 0) {
    request.device_bytes = lab::unified_part(request.host_bytes);
  }
}

/// Host memory with which the recommended engine reads nothing from disk.
std::string least_host_ram(const plan_options& options, const lab::memory_plan& plan) {
  auto r = plan.request;
  const auto& best = *plan.recommended();
  const bool is_on_processor = !r.has_card || best.engine == "hotset";
  auto text = lab::least_size_text(r.least_host_bytes(
      best.host_bytes + (is_on_processor ? lab::beside_experts(r, best.engine) : 0)));
  if (!r.is_unified || options.request.device_bytes > 0) return text;
  // The device grows, too, by whole layers.
  r.host_bytes = lab::read_size(text);
  r.device_bytes = lab::unified_part(r.host_bytes);
  choose_batch(options, r);
  const auto larger = lab::make_plan(r);
  return larger.recommended()->disk_bytes == 0 ? text : least_host_ram(options, larger);
}
/// The plan with weights in another format; nothing: it is too large as well, or the model's files allow no other.
std::optional<lab::memory_plan> plan_as(const plan_options& options, std::string_view weights,
                                        lab::plan_request request) {
  request.routing = nullptr;
  request.requests = nullptr;
  try {
    (void)take_model(options, std::string(weights), request);
    auto found = lab::make_plan(request);
    const auto* const best = found.recommended();
    const bool reads_gguf = best && (best->engine == "llama.cpp" || best->engine == "hotset");
    if (best && (!reads_gguf || lab::is_llama_mixture(weights))) return found;
  } catch (const std::exception&) {  // the caller has an error of its own
  }
  return std::nullopt;
}
/// Options with which the model fits, such as "--weights Q4_K_M": the format with most bits in which nothing is read
/// from disk, else the smallest one, and the memory that it needs; empty: none is known.
std::string smaller_weights(const plan_options& options, const lab::plan_request& request) {
  if (options.model.empty()) return "";
  std::string last;
  for (const auto name : lab::wished_weight_names()) {
    const auto found = plan_as(options, name, request);
    if (!found) continue;
    const auto* const best = found->recommended();
    if (best->disk_bytes == 0) return fmt::format("--weights {}", name);
    last = fmt::format("--weights {} --host-ram {}", name, least_host_ram(options, *found));
  }
  return last;
}

/// Says what would have to change if experts are read from disk. Errors: infeasible_error, which says it, too.
lab::memory_plan make_plan(const plan_options& options, const lab::plan_request& request) {
  try {
    auto found = lab::make_plan(request);
    const auto* const best = found.recommended();
    if (best == nullptr || best->disk_bytes == 0) return found;
    const auto smaller = smaller_weights(options, request);
    found.advice =
        fmt::format("--host-ram {}{}: nothing is read from disk while it decodes",
                    least_host_ram(options, found), smaller.empty() ? "" : ", or " + smaller);
    return found;
  } catch (const lab::infeasible_error& why) {
    auto smaller = smaller_weights(options, request);
    for (auto r = request; smaller.empty() && !options.model.empty() && r.context >= 1024;) {
      r.context /= 2;
      if (const auto with = smaller_weights(options, r); !with.empty())
        smaller = fmt::format("{} --context {}", with, r.context);
    }
    if (smaller.empty()) throw;
    throw lab::infeasible_error(fmt::format("{}, or {}", why.what(), smaller));
  }
}

int plan(const plan_options& options) {
  auto request = options.request;
  output_file out(options.out);
  std::vector<std::string> measured;
  take_machine(options, request, measured);
  if (request.device_bytes == 0)
    throw lab::usage_error(
        "--vram is required, such as 24GiB, or --gpu with a card's name or none, or --unified");
  const auto described = take_model(options, options.weights, request);
  std::optional<opened_trace> routing;
  lab::reading_notes dense;
  if (!options.trace.empty()) {
    routing = open_input(options.trace, options.reading);
    if (routing->trace.layers > request.model.experts.layers)
      lab::leave_out_dense_layers(routing->trace, &dense);
    request.routing = &routing->trace;
  }
  std::optional<kv_trace> requests;
  lab::reading_notes about_requests;
  if (!options.kv_trace.empty()) {
    requests = lab::open_block_requests(input_path(options.kv_trace), &about_requests);
    request.requests = &*requests;
  }
  auto found = make_plan(options, request);
  found.notes.insert(found.notes.begin(), described.begin(), described.end());
  for (const auto& note : dense) found.notes.push_back("trace: " + note);
  std::ranges::move(about_requests, std::back_inserter(found.notes));
  found.notes.insert(found.notes.end(), measured.begin(), measured.end());
  out.finish(options.as_json ? lab::to_json_text(found)
                             : lab::folded(lab::to_text(found), lab::output_width()));
  return ok;
}

void add_device(CLI::App& app, plan_options& options) {
  auto& request = options.request;
  add_size(app, "--vram", request.device_bytes, "GiB",
           "memory of each device, such as 24GiB; required without --gpu and --unified");
  add_parsed(app, "--gpu", "NAME", options.card, card_of,
             fmt::format("card, for a device's memory and speeds and the link: {}",
                         fmt::join(card_names(), ", ")));
  add_size(app, "--host-ram", request.host_bytes, "GiB",
           "host memory, of which nine tenths may hold experts, such as 64GiB (default: enough)");
  app.add_flag("--unified", request.is_unified,
               "the device's memory is a part of --host-ram (Apple, DGX Spark, Strix Halo): "
               "--vram, else three quarters");
  add_size(app, "--reserve", options.reserve_bytes, "GiB",
           "device memory kept free (default: 0.5 GiB and the activations of --ubatch; 1 GiB if "
           "the model's extents are unknown)",
           true);
  add_number(app, "--devices", request.devices, 1, 4096,
             "number of devices that share the model, each with --vram");
  add_parsed(app, "--parallel", "NAME", request.split, split_of,
             "division of the experts among devices: expert (each device has some experts of a "
             "layer), tensor (each has a part of every expert)")
      ->default_str("expert");
}

/// Adds an option for a speed of the machine; the last of several counts.
void add_speed(CLI::App& app, plan_options& options, const std::string& name,
               double lab::machine_speeds::*member, const std::string& description) {
  const auto usual = lab::machine_speeds{}.*member;
  const bool is_flops = name.ends_with("flops");
  const auto read = [&options, name, member, is_flops](const std::string& text) {
    const auto value = for_option(name, [&] {
      return is_flops ? 1e12 * parse_number<double>(name, text, 1e-3, 1e6)
                      : static_cast<double>(lab::read_rate(text));
    });
    options.speeds.emplace_back(member, value);
  };
  app.add_option_function<std::string>(name, read, description)
      ->type_name(is_flops ? "N" : "RATE")
      ->default_str(is_flops ? fmt::format("{}", usual / 1e12)
                             : fmt::format("{}GB/s", usual / 1e9));
}
void add_speeds(CLI::App& app, plan_options& options) {
  using speeds = lab::machine_speeds;
  add_speed(app, options, "--device-bandwidth", &speeds::device_bandwidth,
            "reads of a device's memory");
  add_speed(app, options, "--device-flops", &speeds::device_flops,
            "10^12 operations of a device per second");
  add_speed(app, options, "--host-bandwidth", &speeds::host_bandwidth, "reads of host memory");
  add_speed(app, options, "--host-flops", &speeds::host_flops,
            "10^12 operations of the processor per second");
  add_speed(app, options, "--disk-bandwidth", &speeds::disk_bandwidth,
            "reads of the disk with the model");
  app.add_flag("--measure", options.measures,
               "measure host memory and disk on this machine, in about a second");
}

void add_engines(CLI::App& app, plan_options& options) {
  add_list(app, "--engine", options.request.engines, engine_of,
           fmt::format("engines to command (default: all that can serve the model): {}",
                       fmt::join(lab::engine_names, ", ")));
  add_number(app, "--ubatch", options.ubatch, 1, 65536,
             "tokens of a prompt computed at once (default: 512 if all weights fit the device, "
             "else 2048 if they leave room)");
  add_number(app, "--threads", options.request.threads, 0, 4096,
             "threads of the processor; 0: the engine's own number");
}

void add_hand(CLI::App& app, plan_options& options) {
  auto& hand = options.hand;
  const char* const group =
      "Model by hand (with --experts and --top-k), or corrections to its file";
  const auto layers = [&options](std::string_view text) {
    if (text.find_first_of(".,") == text.npos)
      return parse_number<std::int32_t>("--layers", text, 1, 65536);
    options.reading.layers = lab::parse_layer_ranges(text);
    std::int32_t count = 0;
    for (const auto& range : options.reading.layers) count += range.last - range.first + 1;
    return count;
  };
  add_parsed(app, "--layers", "N", hand.layers, layers,
             "number of MoE layers, or their numbers in the trace, such as 1..45 or 0,2,4")
      ->group(group);
  add_size(app, "--expert-bytes", hand.expert_bytes, "MiB",
           "size of one expert of one layer, such as 2.5MiB", true)
      ->group(group);
  add_size(app, "--kv-bytes-per-token", hand.kv_bytes_per_token, "KiB",
           "KV cache of one token over all layers, such as 96KiB", true)
      ->group(group);
  add_size(app, "--resident-bytes", hand.resident_bytes, "GiB",
           "all weights except the routed experts'", true)
      ->group(group);
}

void add_serving(CLI::App& app, plan_options& options) {
  auto& request = options.request;
  add_number(app, "--context", request.context, 1, std::uint64_t{1} << 32U,
             "maximum tokens of a session");
  add_number(app, "--concurrency", request.concurrency, 1, 4096, "sessions at the same time");
  add_number(app, "--block-tokens", request.block_tokens, 1, 65536, "tokens of a KV block");
  add_parsed(app, "--kv-bits", "N", options.kv_bits, kv_bits_of,
             "bits of an element of the KV cache: 16, 8, 8.5 (q8_0), 4.5 (q4_0); auto: the "
             "checkpoint's declaration, else 16")
      ->default_str("auto");
  const auto named = [&options](const std::string& text) {
    const auto& type = kv_type_of(text);
    options.kv_bits = type.bits;
    return std::string(type.name);
  };
  add_parsed(app, "--kv-type", "NAME", request.kv_type, named,
             "type of the KV cache: f32, f16, bf16, q8_0, fp8, fp8_e4m3, fp8_e5m2, int8, q5_1, "
             "q5_0, q4_1, q4_0, iq4_nl, nvfp4")
      ->excludes("--kv-bits");
  add_parsed(app, "--weights", "NAME", options.weights, weights_of,
             fmt::format("format of the weights, in place of the model's own: {}; or bits such as "
                         "4.5bpw",
                         fmt::join(lab::wished_weight_names(), ", ")));
  add_miss_prices(app, request.cost);
}

}  // namespace

command add_plan(CLI::App& root) {
  auto* app = root.add_subcommand(
      "plan", "Say whether a model fits, with which command of each engine, and how fast");
  auto options = std::make_shared<plan_options>();
  app->add_option("--model", options->model,
                  "a config.json, a .gguf file (or a part of one), a .safetensors file, a folder "
                  "of them, or a name of docs/models.md: gpt-oss-20b, qwen3-30b-a3b, ...")
      ->type_name("MODEL");
  add_hand(*app, *options);
  add_device(*app, *options);
  add_serving(*app, *options);
  add_speeds(*app, *options);
  add_engines(*app, *options);
  add_file(
      *app, "--trace", options->trace,
      "routing trace of this model, in any known format (default: uniform routing is assumed)");
  auto* const requests = add_file(
      *app, "--kv-trace", options->kv_trace,
      "requests: JSON lines (Mooncake, Bailian) with the blocks of their prompts, or a CSV "
      "(Azure, BurstGPT)");
  app->get_option("--recompute")->needs(requests);
  app->add_flag("--json", options->as_json, "print JSON (schema hotset.plan/1)");
  add_out(*app, options->out);
  add_trace_options(*app, options->reading);
  for (const char* name : {"--top-k", "--experts"})
    app->get_option(name)->description("value of a model by hand, or of a trace without it");
  app->footer(R"(Examples:
  hotset plan --model gpt-oss-120b --gpu rtx4090 --host-ram 64GiB --context 32768
  hotset plan --model glm-4.5-air --weights Q4_K_M --vram 16GiB --host-ram 64GiB --engine llama.cpp
  hotset plan --model qwen3-30b-a3b --weights Q4_K_M --gpu none --host-ram 32GiB
  hotset plan --model minimax-m2 --weights Q4_K_M --gpu l40s --devices 4 --parallel expert
  hotset plan --model ./config.json --vram 12GiB --trace routes.trace --kv-trace requests.jsonl --link 12GB/s --json
  hotset plan --layers 48 --experts 128 --top-k 8 --expert-bytes 2.5MiB --kv-bytes-per-token 96KiB --vram 12GiB)");
  return {app, [app, options] {
            options->has_link = app->count("--link") > 0;
            for (const char* name :
                 {"--format", "--as", "--first", "--tokens", "--sequences", "--field"})
              if (options->trace.empty() && app->count(name) > 0)
                throw lab::usage_error(fmt::format("{}: accepted with --trace", name));
            return plan(*options);
          }};
}

}  // namespace hotset::cli
