// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/engine_settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/studies/device_share.hpp"

namespace hotset::lab {

namespace {
/// Bytes of a layer's experts.
std::uint64_t layer_bytes(const memory_model& model, layer_id layer) {
  return model.experts.bytes_of(layer) * static_cast<std::uint64_t>(model.experts.experts);
}
}  // namespace

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

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

struct cache_type {
  double bits;
  std::string_view flags;
};
template <std::size_t N>
std::optional<std::string_view> flags_of(const std::array<cache_type, N>& types, double bits) {
  const auto at = std::ranges::find(types, bits, &cache_type::bits);
  return at == types.end() ? std::nullopt : std::optional(at->flags);
}
/// Values of --kv-cache-dtype.
constexpr std::array<cache_type, 2> vllm_types = {{{16, ""}, {8, " --kv-cache-dtype fp8"}}};
/// Values of --cache-type-k and --cache-type-v.
constexpr std::array<cache_type, 7> llama_types = {{{16, ""},
                                                    {32, " -ctk f32 -ctv f32"},
                                                    {8.5, " -ctk q8_0 -ctv q8_0"},
                                                    {6, " -ctk q5_1 -ctv q5_1"},
                                                    {5.5, " -ctk q5_0 -ctv q5_0"},
                                                    {5, " -ctk q4_1 -ctv q4_1"},
                                                    {4.5, " -ctk q4_0 -ctv q4_0"}}};

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

void add_hotset(memory_plan& plan) {
  const auto& quotas = plan.quotas.quotas;
  const bool differ = std::ranges::any_of(
      plan.devices, [&](const device_share& share) { return share.quotas != quotas; });
  if (differ) {
    plan.settings.push_back(
        {"hotset", "pool_layout::per_layer(shape, quotas), for each device as --json says"});
    return;
  }
  const bool is_even =
      std::ranges::adjacent_find(quotas, std::ranges::not_equal_to()) == quotas.end();
  plan.settings.push_back(
      {"hotset", is_even ? fmt::format("pool_layout::per_layer(shape, {})", quotas.front())
                         : fmt::format("pool_layout::per_layer(shape, quotas), quotas {}",
                                       quotas_text(quotas))});
}

/// --kv-cache-memory-bytes is per device, and includes windows and recurrent state.
std::string vllm_flags(const memory_plan& plan, std::uint64_t kv_bytes, std::string_view type) {
  const auto& device = plan.device;
  auto text =
      fmt::format("--max-model-len {} --max-num-seqs {}", device.context, device.concurrency);
  const auto all = kv_bytes + device.concurrency * fixed_session_bytes(device);
  if (all > 0)
    text += fmt::format(" --kv-cache-memory-bytes {} --block-size {}{}", all, device.block_tokens,
                        type);
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

void add_vllm(memory_plan& plan) {
  const auto& device = plan.device;
  const auto leave_out = [&](const std::string& why) {
    plan.notes.push_back("vllm is left out: " + why);
  };
  const auto type = flags_of(vllm_types, device.kv_bits);
  constexpr std::array<std::uint64_t, 7> block_sizes = {1, 8, 16, 32, 64, 128, 256};
  if (device.model.has_kv() &&
      std::ranges::find(block_sizes, device.block_tokens) == block_sizes.end())
    return leave_out(fmt::format("it has blocks of {} tokens, not {}", fmt::join(block_sizes, ", "),
                                 device.block_tokens));
  if (!device.model.is_causal) return leave_out("it decodes causal models alone");
  if (!type && device.model.has_kv())
    return leave_out(fmt::format("it has no KV cache of {} bits", device.kv_bits));
  // One figure for all devices: the minimum over them.
  auto blocks = plan.kv_blocks;
  for (const auto& share : plan.devices) blocks = std::min(blocks, share.kv_blocks);
  plan.settings.push_back({"vllm", vllm_flags(plan, blocks * plan.block_bytes, type.value_or(""))});
  const auto model = device_request(plan.request, 0).model;  // device 0 has the most experts
  const auto layers =
      layers_left_on_host(model, plan.budget_bytes - plan.min_blocks * plan.block_bytes);
  if (layers == 0) return;
  // Tensors go to the host layer by layer, from the first one, until they reach the figure; by name, only tensors of
  // routed experts.
  const auto held = expert_bytes_from(model, layers);
  if (plan.block_bytes != 0) blocks = (plan.budget_bytes - held) / plan.block_bytes;
  plan.settings.push_back(
      {"vllm, without an expert pager",
       fmt::format("{} --cpu-offload-gb {} --cpu-offload-params experts",
                   vllm_flags(plan, blocks * plan.block_bytes, type.value_or("")),
                   gibibytes_down(model.all_expert_bytes() - held))});
}

/// llama.cpp rounds every session's context up to 256 tokens, and gives layers with a window extra room for a batch
/// of 512.
std::uint64_t llama_kv_bytes(const model_block& block, std::uint64_t context) {
  const auto whole = round_up(context, 256);
  const auto kept = block.window == 0 ? whole : std::min(whole, round_up(block.window + 512, 256));
  return block.kv_bytes_per_token * kept + block.state_bytes;
}
/// The model's blocks; for a model without blocks, one per MoE layer, with all remaining bytes in the last one.
std::vector<model_block> blocks_of(const memory_model& model) {
  if (!model.blocks.empty()) return model.blocks;
  std::vector<model_block> out(static_cast<std::size_t>(model.experts.layers));
  for (const auto& group : model.kv)
    out.push_back(
        {.is_moe = false,
         .kv_bytes_per_token = group.bytes_per_token * static_cast<std::uint64_t>(group.layers),
         .window = group.window});
  out.back().state_bytes = model.state_bytes_per_sequence;
  return out;
}

/// The model split between layers, and the blocks whose experts stay on the host.
struct llama_layout {
  std::size_t blocks = 0;
  std::vector<std::size_t> shares{};   ///< by device; the output counts as one more block
  std::vector<std::size_t> on_host{};  ///< blocks
  std::uint64_t room = 0;              ///< bytes for routed experts on the last device
  bool fits = true;                    ///< with all experts on the host
};

llama_layout llama_layout_of(const plan_request& r) {
  const auto blocks = blocks_of(r.model);
  llama_layout out{.blocks = blocks.size()};
  // Embeddings and output; the embeddings stay on the host, but are counted.
  auto outside = r.model.resident_bytes;
  for (const auto& block : blocks) outside -= block.resident_bytes;
  const auto all = blocks.size() + 1;
  layer_id layer{};
  std::size_t b = 0;
  for (std::size_t d = 0; d < r.devices; ++d) {
    out.shares.push_back((d + 1) * all / r.devices - d * all / r.devices);
    const auto end = std::min(b + out.shares.back(), blocks.size());
    auto used = r.reserve_bytes + (end == blocks.size() ? outside : 0);
    std::uint64_t experts = 0;
    std::vector<std::pair<std::size_t, std::uint64_t>> moe;  // block, and the bytes of its experts
    for (; b < end; ++b) {
      used += blocks[b].resident_bytes + r.concurrency * llama_kv_bytes(blocks[b], r.context);
      if (!blocks[b].is_moe) continue;
      moe.emplace_back(b, layer_bytes(r.model, layer));
      ++layer;
      experts += moe.back().second;
    }
    out.fits = out.fits && used <= r.device_bytes;
    out.room = out.fits ? r.device_bytes - used : 0;
    for (const auto& [block, bytes] : moe) {
      if (experts <= out.room) break;
      out.on_host.push_back(block);
      experts -= bytes;
    }
  }
  return out;
}

/// llama.cpp gives each device whole layers: it has neither split of experts.
std::string llama_devices(const llama_layout& layout) {
  auto text = fmt::format(" -sm layer -ts {}", fmt::join(layout.shares, ","));
  if (!layout.on_host.empty())
    text += fmt::format(R"( -ot "blk\.({})\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU")",
                        fmt::join(layout.on_host, "|"));
  return text;
}

void add_llama(memory_plan& plan) {
  const auto& r = plan.request;
  const auto leave_out = [&](const std::string& why) {
    plan.notes.push_back("llama.cpp is left out: " + why);
  };
  const auto type = flags_of(llama_types, r.kv_bits);
  if (!type && r.model.has_kv())
    return leave_out(fmt::format("it has no KV cache of {} bits", r.kv_bits));
  constexpr std::uint32_t most_devices = 16;  // limit of -ts
  if (r.devices > most_devices)
    return leave_out(fmt::format("it takes {} devices at most", most_devices));
  if (r.devices > 1 && r.model.blocks.empty())
    return leave_out("it gives devices whole layers, and their contents are not given");
  const auto layout = llama_layout_of(r);
  if (!layout.fits)
    return leave_out(
        "with its own padding of contexts, or with whole layers on each device, the "
        "rest of the model does not fit");
  // -c is the total over all sessions; -ngl counts the output as a layer.
  const auto common =
      fmt::format("-ngl {} -c {} -np {}{}", std::max<std::size_t>(99, layout.blocks + 1),
                  r.context * r.concurrency, r.concurrency, type.value_or(""));
  const auto& on_host = layout.on_host;
  if (r.devices > 1) {
    plan.settings.push_back({"llama.cpp", common + llama_devices(layout)});
    return;
  }
  // --n-cpu-moe counts all blocks from 0 on, including dense ones.
  plan.settings.push_back(
      {"llama.cpp",
       on_host.empty() ? common : fmt::format("{} --n-cpu-moe {}", common, on_host.back() + 1)});
  const auto room = layout.room / 1_MiB;
  if (!on_host.empty() && room > 0)
    plan.settings.push_back({"llama.cpp, with its expert cache",
                             fmt::format("{} --cpu-moe --moe-cache-mib {}", common, room)});
}

}  // namespace

void add_settings(memory_plan& plan) {
  add_hotset(plan);
  add_vllm(plan);
  add_llama(plan);
}

}  // namespace hotset::lab
