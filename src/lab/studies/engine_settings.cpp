// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/engine_settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/shell_word.hpp"
#include "lab/sizes.hpp"
#include "lab/studies/device_share.hpp"
#include "lab/studies/kv_types.hpp"
#include "lab/studies/llama_setting.hpp"
#include "lab/studies/throughput.hpp"

namespace hotset::lab {

std::string larger_device(const plan_request& request, std::uint64_t bytes) {
  return fmt::format("{} {}", request.is_part_of_host() ? "--host-ram" : "--vram",
                     at_least_text(request.least_memory(bytes)));
}

std::uint64_t layer_bytes(const memory_model& model, layer_id layer) {
  return model.experts.bytes_of(layer) * static_cast<std::uint64_t>(model.experts.experts);
}

std::uint64_t expert_bytes_from(const memory_model& model, std::uint64_t first) {
  std::uint64_t bytes = 0;
  for (auto l = static_cast<layer_id>(first); l < model.experts.layers; ++l)
    bytes += layer_bytes(model, l);
  return bytes;
}

std::uint64_t layers_left_on_host(const memory_model& model, std::uint64_t bytes) {
  std::uint64_t layers = 0;
  while (expert_bytes_from(model, layers) > bytes) ++layers;
  return layers;
}

std::uint64_t fixed_session_bytes(const plan_request& request) noexcept {
  const auto& model = request.model;
  return model.kv_bytes(request.context) - model.kv_bytes_per_token() * request.context;
}

namespace {

/// Runs of equal quotas, such as "7 in layers 0..26, 6 in 27..31"; a long list is left to the JSON report.
std::string quotas_text(const std::vector<std::uint64_t>& quotas) {
  constexpr std::size_t most_runs = 6;
  std::string out;
  std::size_t runs = 0;
  for (std::size_t first = 0; first < quotas.size(); ++runs) {
    auto end = first;
    while (end < quotas.size() && quotas[end] == quotas[first]) ++end;
    out += fmt::format("{}{} in {}", first == 0 ? "" : ", ", quotas[first],
                       end == first + 1 ? fmt::format("layer {}", first)
                                        : fmt::format("layers {}..{}", first, end - 1));
    first = end;
  }
  return runs <= most_runs ? out : "as --json says, by layer";
}

/// Quotas for an engine of one's own.
std::string layout_of(const memory_plan& plan) {
  const auto& quotas = plan.quotas.quotas;
  const bool differ = std::ranges::any_of(
      plan.devices, [&](const device_share& share) { return share.quotas != quotas; });
  if (differ) return "pool_layout::per_layer(shape, quotas), for each device as --json says";
  const bool is_even =
      std::ranges::adjacent_find(quotas, std::ranges::not_equal_to()) == quotas.end();
  return is_even
             ? fmt::format("pool_layout::per_layer(shape, {})", quotas.front())
             : fmt::format("pool_layout::per_layer(shape, quotas), quotas {}", quotas_text(quotas));
}

/// Experts of a model whose first layers stay on the host.
struct first_layers {
  std::uint64_t count = 0, bytes = 0;  ///< on the host
  std::vector<expert_place> places{};
};
first_layers first_layers_on_host(const memory_model& model, std::uint64_t room,
                                  const expert_place& on_host) {
  first_layers out;
  out.count = layers_left_on_host(model, room);
  out.bytes = model.all_expert_bytes() - expert_bytes_from(model, out.count);
  out.places.assign(static_cast<std::size_t>(model.experts.layers), expert_place{});
  std::fill_n(out.places.begin(), out.count, on_host);
  return out;
}

/// Bytes of a device beside the cache's floor.
std::uint64_t room_of(const memory_plan& plan) {
  return plan.budget_bytes - plan.min_blocks * plan.block_bytes;
}

/// A setting with the speed of its placement on each device, of all devices together.
engine_setting with_rates(const memory_plan& plan, engine_setting setting,
                          const placement& places) {
  const auto rates = rates_of(plan.device, plan.curves_of_device, places);
  setting.decode = rates.decode * plan.request.devices;
  if (rates.prompt) setting.prompt = *rates.prompt * plan.request.devices;
  return setting;
}
void add_line(memory_plan& plan, engine_setting line, const placement& places) {
  plan.settings.push_back(with_rates(plan, std::move(line), places));
}

std::vector<expert_place> in_all_layers(const memory_model& model, const expert_place& place) {
  return std::vector<expert_place>(static_cast<std::size_t>(model.experts.layers), place);
}

/// The device's experts follow the routing; all are on the host, or on disk behind it.
placement paged(const memory_plan& plan) {
  const auto& r = plan.request;
  const auto all = r.model.all_expert_bytes();
  const auto share = static_cast<double>(plan.quotas.bytes) /
                     static_cast<double>(plan.device.model.all_expert_bytes());
  return {.layers = in_all_layers(r.model, {.on_device = share, .host_computes = false}),
          .in_ram = r.fits_host(all)
                        ? 1.0
                        : static_cast<double>(r.usable_host_bytes()) / static_cast<double>(all),
          .evicts = true};
}
/// Quotas, and a host tier if memory does not hold all experts.
engine_setting own_engine(const memory_plan& plan) {
  const auto& r = plan.request;
  engine_setting out{.engine = "an engine of your own", .text = layout_of(plan)};
  if (!plan.is_all_resident()) out.host_bytes = r.model.all_expert_bytes();
  if (!r.fits_host(out.host_bytes)) {
    out.disk_bytes = out.host_bytes - r.usable_host_bytes();
    out.text += fmt::format(", host_tier of {} bytes", r.usable_host_bytes());
  }
  return with_rates(plan, std::move(out), paged(plan));
}

/// Why an engine that must keep these bytes in host memory cannot; empty: it can.
std::string too_much_on_host(const memory_plan& plan, std::uint64_t bytes) {
  const auto& r = plan.request;
  if (r.fits_host(bytes)) return "";
  const auto experts = r.model.all_expert_bytes();
  // If the device grows with the host's memory, it is enough that the device holds all experts.
  const auto least =
      r.is_unified && r.is_part_of_host()
          ? r.least_memory(r.device_bytes + experts - std::min(experts, room_of(plan)))
          : r.least_host_bytes(bytes);
  return fmt::format("it keeps {} in host memory, of which {} may be used; accepted: --host-ram {}",
                     size_text(bytes), size_text(r.usable_host_bytes()), at_least_text(least));
}

/// Why an engine for checkpoints of Hugging Face cannot serve a model; empty: it can.
std::string no_checkpoint(const plan_request& r) {
  if (r.is_gguf) return "it reads .safetensors, not a .gguf file";
  return r.model.is_causal ? "" : "it decodes causal models alone";
}

/// Tokens of a pass.
std::uint64_t vllm_batch(const plan_request& device) {
  return std::max(device.ubatch, device.concurrency);
}

/// Bytes of windows, recurrent state, and of the block that vLLM never fills. A window keeps the tokens of two passes
/// beside it, because the next pass starts before the last one has ended, and one more block of each session, because
/// it may begin inside a block.
std::uint64_t vllm_fixed_bytes(const plan_request& device) {
  const auto sessions = device.concurrency;
  auto bytes = sessions * device.model.state_bytes_per_sequence;
  for (const auto& group : device.model.kv) {
    std::uint64_t blocks = 1;
    if (group.window > 0) {
      const auto tokens = std::min(sessions * (group.window - 1) + 2 * vllm_batch(device),
                                   sessions * device.context);
      blocks += (tokens + device.block_tokens - 1) / device.block_tokens + sessions;
    }
    bytes += static_cast<std::uint64_t>(group.layers) * group.bytes_per_token *
             device.block_tokens * blocks;
  }
  return bytes;
}

/// vLLM and SGLang have one option.
std::string cache_dtype(std::string_view type) {
  return type == "auto" ? "" : fmt::format(" --kv-cache-dtype {}", type);
}

/// --kv-cache-memory-bytes is per device.
std::string vllm_flags(const memory_plan& plan, std::uint64_t kv_bytes,
                       const std::string& cache_type) {
  const auto& device = plan.device;
  auto text =
      fmt::format("vllm serve {} --max-model-len {} --max-num-seqs {} --max-num-batched-tokens {}",
                  shell_word(device.files), device.context, device.concurrency, vllm_batch(device));
  if (kv_bytes > 0)
    text += fmt::format(" --kv-cache-memory-bytes {} --block-size {}{}", kv_bytes,
                        device.block_tokens, cache_type);
  if (device.devices == 1) return text;
  // Attention is copied to every rank, and each rank has its own sessions (--max-num-seqs is per rank). Experts are
  // cut among all ranks, unless they are distributed.
  text += fmt::format(" --data-parallel-size {}", device.devices);
  if (device.split == device_split::expert) text += " --enable-expert-parallel";
  return text;
}

/// GiB of one device, rounded down: vLLM moves whole tensors until the amount is reached, so a larger figure would
/// move one more.
std::string gibibytes_down(std::uint64_t bytes) {
  const auto billionths = static_cast<std::uint64_t>(
      std::floor(static_cast<long double>(bytes) / static_cast<long double>(1_GiB) * 1e9L));
  auto text = fmt::format("{}.{:09}", billionths / 1'000'000'000, billionths % 1'000'000'000);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string add_vllm(memory_plan& plan) {
  const auto& device = plan.device;
  if (auto why = no_checkpoint(device); !why.empty()) return why;
  constexpr std::array<std::uint64_t, 7> block_sizes = {1, 8, 16, 32, 64, 128, 256};
  const bool has_kv = device.model.has_kv();
  if (has_kv && std::ranges::find(block_sizes, device.block_tokens) == block_sizes.end())
    return fmt::format("it has blocks of {} tokens, not {}", fmt::join(block_sizes, ", "),
                       device.block_tokens);
  const auto type = kv_type_of(device);
  if (has_kv && type.vllm.empty()) return no_kv_type(device);
  const auto fixed = vllm_fixed_bytes(device);
  const auto more = fixed - device.concurrency * fixed_session_bytes(device);
  if (more > room_of(plan))
    return fmt::format("its cache has {} beside the sessions' tokens; accepted: {}",
                       size_text(more),
                       larger_device(plan.request, device.device_bytes + more - room_of(plan)));
  const auto model = device_request(plan.request, 0).model;  // device 0 has the most experts
  const auto host =
      first_layers_on_host(model, room_of(plan) - more, {.on_device = 0, .host_computes = false});
  const auto bytes =
      std::min(host.bytes * plan.request.devices, plan.request.model.all_expert_bytes());
  if (auto why = too_much_on_host(plan, bytes); !why.empty()) return why;
  // The cache gets what the experts leave; one figure for all devices.
  const auto held = model.all_expert_bytes() - host.bytes;
  const auto left = plan.budget_bytes - more - held;
  const auto blocks = plan.block_bytes == 0 ? 0 : left / plan.block_bytes;
  auto text =
      vllm_flags(plan, blocks * plan.block_bytes + fixed, has_kv ? cache_dtype(type.vllm) : "");
  // Tensors go to the host layer by layer, from the first one, until they reach the figure; by name, only tensors of
  // routed experts.
  if (host.count > 0)
    text += fmt::format(" --cpu-offload-gb {} --cpu-offload-params experts",
                        gibibytes_down(host.bytes));
  add_line(plan, {.engine = "vllm", .text = std::move(text), .host_bytes = bytes},
           {.layers = host.places});
  return "";
}

/// Flags that SGLang and KTransformers share. Of the device's memory, the fraction holds weights and cache.
std::string sglang_flags(const memory_plan& plan) {
  const auto& device = plan.device;
  const auto used = static_cast<double>(device.device_bytes - device.reserve_bytes) /
                    static_cast<double>(device.device_bytes);
  auto text = fmt::format(
      "python -m sglang.launch_server --model-path {} --context-length {} "
      "--max-running-requests {} --chunked-prefill-size {} --mem-fraction-static {:.2f}",
      shell_word(device.files), device.context, device.concurrency, device.ubatch,
      std::floor(100 * used) / 100);
  if (plan.min_blocks > 0)
    text += fmt::format(" --max-total-tokens {}", plan.min_blocks * device.block_tokens);
  if (device.model.has_kv()) text += cache_dtype(kv_type_of(device).sglang);
  return text;
}
std::string no_sglang(const memory_plan& plan) {
  const auto& r = plan.request;
  if (auto why = no_checkpoint(r); !why.empty()) return why;
  if (r.devices > 1) return "its division among devices is not planned";
  if (r.model.has_kv() && kv_type_of(r).sglang.empty()) return no_kv_type(r);
  return "";
}

/// --cpu-offload-gb moves whole layers to the host, and copies each back for every pass.
std::string add_sglang(memory_plan& plan) {
  const auto& r = plan.request;
  if (auto why = no_sglang(plan); !why.empty()) return why;
  std::uint64_t copy = 0;  // room for the layer that is copied
  for (const auto l : each<layer_id>(r.model.experts.layers))
    copy = std::max(copy, layer_bytes(r.model, l));
  const bool all_fit = r.model.all_expert_bytes() <= room_of(plan);
  if (!all_fit && copy > room_of(plan)) return "no layer's experts fit the device beside the rest";
  const auto host =
      first_layers_on_host(r.model, all_fit ? room_of(plan) : room_of(plan) - copy,
                           {.on_device = 0, .host_computes = false, .copies_all = true});
  if (auto why = too_much_on_host(plan, host.bytes); !why.empty()) return why;
  auto text = sglang_flags(plan);
  if (host.count > 0) text += fmt::format(" --cpu-offload-gb {}", host.bytes / 1_GiB + 1);
  add_line(plan, {.engine = "sglang", .text = std::move(text), .host_bytes = host.bytes},
           {.layers = host.places});
  return "";
}

/// kt-kernel's name of the experts' format; empty: it has none, or the format is unknown.
std::string_view kt_method_of(const plan_request& r) {
  const auto& code = r.arithmetic.expert_code;
  // Sizes by hand, or of other files than the config's, have another format.
  if (!code || std::abs(r.arithmetic.expert_bits(r.model) - static_cast<double>(code->bits)) >= 0.5)
    return {};
  if (*code == weight_code{}) return "BF16";
  if (code->is_mxfp4()) return "MXFP4";
  if (!code->is_fp8 || code->block_rows == 0) return {};
  return code->block_columns == 0 ? "FP8_PERCHANNEL" : "FP8";
}

/// kt-kernel computes experts on the host, in the checkpoint's own format.
std::string add_ktransformers(memory_plan& plan) {
  const auto& r = plan.request;
  if (auto why = no_sglang(plan); !why.empty()) return why;
  if (r.model.has_kv() && kv_type_of(r).name == "nvfp4") return no_kv_type(r);
  const auto method = kt_method_of(r);
  if (method.empty())
    return "its line is known for experts in BF16, MXFP4, and FP8 with scales of blocks or rows";
  const auto all = static_cast<std::uint64_t>(r.model.experts.experts);
  const auto kept = std::min(all, room_of(plan) / r.model.expert_slot_bytes());
  if (kept == all) return "all experts fit the device: sglang alone does the same";
  const auto bytes = r.model.all_expert_bytes();
  if (auto why = too_much_on_host(plan, bytes); !why.empty()) return why;
  auto text = fmt::format(
      "{} --kt-method {} --kt-weight-path {} --kt-num-gpu-experts {} "
      "--kt-cpuinfer {} --kt-threadpool-count 1",
      sglang_flags(plan), method, shell_word(r.files), kept,
      r.threads > 0 ? fmt::format("{}", r.threads) : "$(nproc)");
  const expert_place place{.on_device = static_cast<double>(kept) / static_cast<double>(all)};
  add_line(plan, {.engine = "ktransformers", .text = std::move(text), .host_bytes = bytes},
           {.layers = in_all_layers(r.model, place), .overlaps = true});
  return "";
}

/// hotset pages the experts of transformers' own model.
std::string add_transformers(memory_plan& plan) {
  const auto& r = plan.request;
  if (r.is_gguf) return no_checkpoint(r);
  if (r.devices > 1) return "hotset pages it on one device";
  if (r.model.has_kv() && !kv_type_of(r).is_default())
    return "its KV cache has the type of its weights";
  if (r.arithmetic.expert_parameters > 0 && r.arithmetic.expert_bits(r.model) < 15.9)
    return "hotset pages its experts of 16 bits and more alone";
  const bool is_paged = !plan.is_all_resident();
  if (is_paged && !plan.can_page()) return "the device has no room for the experts of a token";
  const auto bytes = is_paged ? r.model.all_expert_bytes() : 0;
  if (auto why = too_much_on_host(plan, bytes); !why.empty()) return why;
  const auto page =
      is_paged ? fmt::format("h.page(m, budget={}, device='cuda'); ", plan.quotas.bytes) : "";
  auto text = fmt::format(
      "python -c \"import sys, transformers as t, hotset.transformers as h; f = sys.argv[1]; k = "
      "t.AutoTokenizer.from_pretrained(f); m = t.AutoModelForCausalLM.from_pretrained(f, "
      "dtype='auto', experts_implementation='eager'); {}m.to('cuda'); "
      "print(k.decode(m.generate(**k('Hello', return_tensors='pt').to('cuda'), "
      "max_new_tokens=64)[0]))\" {}",
      page, shell_word(r.files));
  add_line(plan, {.engine = "transformers", .text = std::move(text), .host_bytes = bytes},
           paged(plan));
  return "";
}

/// hotset pages llama.cpp's experts from disk into host memory.
std::string add_hotset(memory_plan& plan) {
  const auto& r = plan.request;
  if (r.concurrency > 1) return "its server decodes one session at a time";
  const auto type = kv_type_of(r);
  if (r.model.has_kv() && type.ggml < 0) return no_kv_type(r);
  if (auto why = too_much_on_host(plan, beside_experts(r, "hotset")); !why.empty()) return why;
  auto line = on_processor(plan, "hotset");
  line.text = fmt::format(
      "python -m hotset.llama_cpp.server --model {} --n_ctx {} --n_batch {} --n_ubatch {} "
      "--hotset-budget {}",
      shell_word(r.gguf), r.context, r.ubatch, r.ubatch,
      line.disk_bytes == 0 ? "auto"
                           : fmt::format("{}MiB", (line.host_bytes - line.disk_bytes) / 1_MiB));
  if (r.model.has_kv() && type.ggml != 1)
    line.text += fmt::format(" --type_k {0} --type_v {0}{1}", type.ggml,
                             type.is_quantised() ? " --flash_attn true" : "");
  if (r.threads > 0) line.text += fmt::format(" --n_threads {0} --n_threads_batch {0}", r.threads);
  plan.settings.push_back(std::move(line));
  return "";
}

/// hotset's server keeps whole contexts where a model has windows: llama_cpp.server has no option for less.
plan_request as_kept(plan_request r, std::string_view engine) {
  if (engine == "hotset")
    for (auto& group : r.model.kv) group.window = 0;
  return r;
}

}  // namespace

std::uint64_t beside_experts(const plan_request& request, std::string_view engine) {
  const auto r = as_kept(request, engine);
  return r.model.resident_bytes + r.concurrency * r.model.kv_bytes(r.context);
}

engine_setting on_processor(const memory_plan& plan, std::string engine) {
  auto r = as_kept(plan.request, engine);
  r.is_unified = false;  // nothing is on a device
  const auto all = r.model.all_expert_bytes();
  const auto rest = beside_experts(r, engine);
  const auto held = r.fits_host(rest + all) ? all : r.usable_host_bytes() - rest;
  engine_setting out{.engine = std::move(engine), .host_bytes = all, .disk_bytes = all - held};
  const auto rates = rates_of(r, plan.curves,
                              {.layers = in_all_layers(r.model, {.on_device = 0}),
                               .in_ram = static_cast<double>(held) / static_cast<double>(all),
                               .has_device = false});
  out.decode = rates.decode;
  out.prompt = rates.prompt;
  return out;
}

void add_settings(memory_plan& plan) {
  constexpr std::array<std::string (*)(memory_plan&), engine_names.size()> add = {
      add_llama, add_vllm, add_sglang, add_ktransformers, add_transformers, add_hotset};
  const auto& wanted = plan.request.engines;
  std::vector<std::pair<std::string, std::string>> left_out;  // engines with one reason, and it
  for (std::size_t e = 0; e < add.size(); ++e) {
    if (!wanted.empty() && std::ranges::find(wanted, engine_names[e]) == wanted.end()) continue;
    const bool needs_card = engine_names[e] != "llama.cpp" && engine_names[e] != "hotset";
    auto why = needs_card && !plan.request.has_card ? "a card is needed" : add[e](plan);
    if (why.empty()) continue;
    if (left_out.empty() || left_out.back().second != why)
      left_out.emplace_back("", std::move(why));
    auto& names = left_out.back().first;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", engine_names[e]);
  }
  std::vector<std::string> notes;
  notes.reserve(left_out.size());
  for (const auto& [names, why] : left_out)
    notes.push_back(fmt::format("{} left out: {}", names, why));
  if (plan.can_page() && plan.request.has_card) plan.own = own_engine(plan);
  if (plan.settings.empty() && !(plan.own && wanted.empty()))
    throw infeasible_error(fmt::format("{}", fmt::join(notes, "; ")));
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  for (const auto& line : plan.settings)
    if (line.disk_bytes > 0)
      plan.notes.push_back(fmt::format(
          "{}: memory holds {} of the {} of experts that it needs there; reads of the others are "
          "predicted by LRU at --disk-bandwidth",
          line.engine, size_text(line.host_bytes - line.disk_bytes), size_text(line.host_bytes)));
  if (plan.request.is_gguf) return;
  const auto bits = plan.request.arithmetic.expert_parameters == 0
                        ? 0
                        : plan.request.arithmetic.expert_bits(plan.request.model);
  plan.notes.push_back(fmt::format(
      "llama.cpp and hotset read {}, a GGUF of the planned bytes{}", printable(plan.request.gguf),
      bits >= 8 && bits < 8.4
          ? ": its format of 8 bits is Q8_0, so plan again with --weights Q8_0 or less"
          : ""));
}

}  // namespace hotset::lab
