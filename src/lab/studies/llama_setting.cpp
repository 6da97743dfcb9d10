// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/llama_setting.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/files/shell_word.hpp"
#include "lab/studies/engine_settings.hpp"
#include "lab/studies/kv_types.hpp"
#include "lab/studies/throughput.hpp"

namespace hotset::lab {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

/// llama.cpp rounds every session's context up to 256 tokens, and gives layers with a window room for a micro batch
/// beside it.
std::uint64_t llama_kv_bytes(const model_block& block, const plan_request& r) {
  const auto whole = round_up(r.context, 256);
  const auto kept =
      block.window == 0 ? whole : std::min(whole, round_up(block.window + r.ubatch, 256));
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
  std::vector<expert_place> places{};  ///< by layer of experts
  std::uint64_t host_bytes = 0;        ///< experts on the host
  std::uint64_t room = 0;              ///< bytes for routed experts on the last device
  std::uint64_t least = 0;             ///< bytes of a device, with all experts on the host
  bool copies = true;                  ///< a prompt's batch has room for the host's experts
};

llama_layout llama_layout_of(const plan_request& r) {
  const auto blocks = blocks_of(r.model);
  llama_layout out{.blocks = blocks.size()};
  // Embeddings and output; the embeddings stay on the host, but are counted.
  auto outside = r.model.resident_bytes;
  for (const auto& block : blocks) outside -= block.resident_bytes;
  const auto all = blocks.size() + 1;
  out.places.assign(static_cast<std::size_t>(r.model.experts.layers), expert_place{});
  layer_id layer{};
  std::size_t b = 0;
  for (std::size_t d = 0; d < r.devices; ++d) {
    out.shares.push_back((d + 1) * all / r.devices - d * all / r.devices);
    const auto end = std::min(b + out.shares.back(), blocks.size());
    auto used = r.reserve_bytes + (end == blocks.size() ? outside : 0);
    std::uint64_t experts = 0;
    std::uint64_t largest = 0;  // experts of a layer
    // Blocks, and their numbers among those with experts.
    std::vector<std::pair<std::size_t, layer_id>> moe;
    for (; b < end; ++b) {
      used += blocks[b].resident_bytes + r.concurrency * llama_kv_bytes(blocks[b], r);
      if (!blocks[b].is_moe) continue;
      moe.emplace_back(b, layer);
      largest = std::max(largest, layer_bytes(r.model, layer));
      experts += layer_bytes(r.model, layer++);
    }
    out.least = std::max(out.least, used);
    out.room = r.device_bytes - std::min(r.device_bytes, used);
    if (experts > out.room) {  // gate, up and down are copied one after the other
      const auto copy = (largest + 2) / 3;
      out.copies = out.copies && copy <= out.room;
      if (copy <= out.room) out.room -= copy;
    }
    for (const auto& [block, number] : moe) {
      if (experts <= out.room) break;
      out.on_host.push_back(block);
      out.places[index_of(number)].on_device = 0;
      out.host_bytes += layer_bytes(r.model, number);
      experts -= layer_bytes(r.model, number);
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

/// From so many tokens on, llama.cpp copies experts of the host to the device, and computes them there.
constexpr double copied_from_tokens = 32;

/// f16 is the default.
std::string cache_flags(const plan_request& r) {
  const auto type = kv_type_of(r);
  if (!r.model.has_kv() || type.ggml == 1) return "";
  return fmt::format(" -ctk {0} -ctv {0}", type.name);
}

/// Command without the experts' places. -c is the total over all sessions; -ngl counts the output as a layer.
std::string llama_common(const plan_request& r, std::size_t blocks) {
  auto text = fmt::format("llama-server -m {} -c {} -np {} -b {} -ub {} -fa on -ngl {}{}",
                          shell_word(r.gguf), r.context * r.concurrency, r.concurrency,
                          std::max<std::uint64_t>(2048, r.ubatch), r.ubatch,
                          r.has_card ? std::max<std::size_t>(99, blocks + 1) : 0, cache_flags(r));
  if (r.threads > 0) text += fmt::format(" -t {}", r.threads);
  return text;
}

/// An LRU cache of the device, over all layers, in front of all experts on the host.
std::optional<engine_setting> with_cache(const memory_plan& plan, const llama_layout& layout,
                                         const std::string& common) {
  const auto& r = plan.request;
  const auto all = r.model.all_expert_bytes();
  const auto least =
      static_cast<std::uint64_t>(r.model.experts.top_k) * r.model.expert_slot_bytes();
  if (r.devices > 1 || layout.on_host.empty() || !layout.copies || layout.room < least ||
      !r.fits_host(all))
    return std::nullopt;
  const auto share = static_cast<double>(layout.room) / static_cast<double>(all);
  const auto rates =
      rates_of(r, plan.curves,
               {.layers = std::vector<expert_place>(layout.places.size(),
                                                    {.on_device = share, .host_computes = false}),
                .evicts = true});
  return engine_setting{
      .engine = "llama.cpp",
      .text = fmt::format("{} --cpu-moe --moe-cache-mib {}", common, layout.room / 1_MiB),
      .decode = rates.decode,
      .prompt = rates.prompt,
      .host_bytes = all};
}

}  // namespace

std::string add_llama(memory_plan& plan) {
  const auto& r = plan.request;
  if (r.model.has_kv() && kv_type_of(r).ggml < 0) return no_kv_type(r);
  constexpr std::uint32_t most_devices = 16;  // limit of -ts
  if (r.devices > most_devices) return fmt::format("it takes {} devices at most", most_devices);
  if (r.devices > 1 && r.model.blocks.empty())
    return "it gives devices whole layers, and their contents are not given";
  const auto layout = llama_layout_of(r);
  if (!r.has_card) {
    auto line = on_processor(plan, "llama.cpp");
    line.text = llama_common(r, layout.blocks);
    plan.settings.push_back(std::move(line));
    return "";
  }
  if (layout.least > r.device_bytes)
    return fmt::format("it pads contexts, and gives devices whole layers; accepted: {}",
                       larger_device(r, layout.least));
  const auto common = llama_common(r, layout.blocks);
  placement places{.layers = layout.places};
  if (layout.copies) places.copies_from = copied_from_tokens;
  engine_setting line{.engine = "llama.cpp", .text = common, .host_bytes = layout.host_bytes};
  // --n-cpu-moe counts all blocks from 0 on, including dense ones.
  if (r.devices > 1)
    line.text += llama_devices(layout);
  else if (!layout.on_host.empty())
    line.text += fmt::format(" --n-cpu-moe {}", layout.on_host.back() + 1);
  if (!layout.copies) line.text += " --no-op-offload";
  if (!r.fits_host(line.host_bytes)) {  // the default maps the file
    line.disk_bytes = line.host_bytes - r.usable_host_bytes();
    places.in_ram =
        static_cast<double>(r.usable_host_bytes()) / static_cast<double>(line.host_bytes);
  } else if (line.host_bytes > 0 && r.host_bytes > 0) {
    line.text += " --load-mode none";
  }
  const auto rates = rates_of(r, plan.curves, places);
  line.decode = rates.decode;
  line.prompt = rates.prompt;
  const auto cached = with_cache(plan, layout, common);
  plan.settings.push_back(cached && cached->decode > line.decode ? *cached : line);
  return "";
}

}  // namespace hotset::lab
