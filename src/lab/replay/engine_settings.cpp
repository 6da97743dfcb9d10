// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/engine_settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/replay/device_share.hpp"

namespace hotset::lab {

std::uint64_t expert_bytes_from(const memory_model& model, std::uint64_t first) {
  std::uint64_t bytes = 0;
  for (auto l = static_cast<layer_id>(first); l < model.experts.layers; ++l)
    bytes += model.experts.bytes_of(l) * static_cast<std::uint64_t>(model.experts.experts);
  return bytes;
}

std::uint64_t layers_left_on_host(const memory_model& model, std::uint64_t bytes) {
  auto on_device = model.all_expert_bytes();
  std::uint64_t layers = 0;
  for (layer_id l{}; l < model.experts.layers && on_device > bytes; ++l, ++layers)
    on_device -= model.experts.bytes_of(l) * static_cast<std::uint64_t>(model.experts.experts);
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
/// Of --kv-cache-dtype.
constexpr std::array<cache_type, 2> vllm_types = {{{16, ""}, {8, " --kv-cache-dtype fp8"}}};
/// Of --cache-type-k and --cache-type-v.
constexpr std::array<cache_type, 7> llama_types = {{{16, ""},
                                                    {32, " -ctk f32 -ctv f32"},
                                                    {8.5, " -ctk q8_0 -ctv q8_0"},
                                                    {6, " -ctk q5_1 -ctv q5_1"},
                                                    {5.5, " -ctk q5_0 -ctv q5_0"},
                                                    {5, " -ctk q4_1 -ctv q4_1"},
                                                    {4.5, " -ctk q4_0 -ctv q4_0"}}};

/// Runs of equal quotas, such as "7 in layers 0..26, 6 in 27..31"; too many to read are left to the report's JSON.
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

/// --kv-cache-memory-bytes is of one device, and of windows and recurrent state, too.
std::string vllm_flags(const memory_plan& plan, std::uint64_t kv_bytes, std::string_view type) {
  const auto& device = plan.device;
  auto text =
      fmt::format("--max-model-len {} --max-num-seqs {}", device.context, device.concurrency);
  const auto all = kv_bytes + device.concurrency * fixed_session_bytes(device);
  if (all > 0)
    text += fmt::format(" --kv-cache-memory-bytes {} --block-size {}{}", all, device.block_tokens,
                        type);
  if (device.devices == 1) return text;
  // Attention is copied to every rank, which has sessions of its own (--max-num-seqs is of one rank); the experts are
  // cut among all ranks, unless they are dealt out.
  text += fmt::format(" --data-parallel-size {}", device.devices);
  if (device.split == device_split::expert) text += " --enable-expert-parallel";
  return text;
}

/// GiB of one device, none of which may be lost: vLLM moves whole tensors until it has as many, and one more where the
/// figure is too large.
std::string gibibytes_down(std::uint64_t bytes) {
  const auto billionths = static_cast<std::uint64_t>(
      std::floor(static_cast<long double>(bytes) / static_cast<long double>(1_GiB) * 1e9L));
  auto text = fmt::format("{}.{:09}", billionths / 1'000'000'000, billionths % 1'000'000'000);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

void add_vllm(memory_plan& plan) {
  const auto type = flags_of(vllm_types, plan.device.kv_bits);
  constexpr std::array<std::uint64_t, 7> block_sizes = {1, 8, 16, 32, 64, 128, 256};
  if (plan.device.model.has_kv() &&
      std::ranges::find(block_sizes, plan.device.block_tokens) == block_sizes.end()) {
    plan.notes.push_back(fmt::format("vllm is left out: it has blocks of {} tokens, not {}",
                                     fmt::join(block_sizes, ", "), plan.device.block_tokens));
    return;
  }
  if (!plan.device.model.is_causal) {
    plan.notes.emplace_back("vllm is left out: it decodes causal models alone");
    return;
  }
  if (!type && plan.device.model.has_kv()) {
    plan.notes.push_back(
        fmt::format("vllm is left out: it has no KV cache of {} bits", plan.device.kv_bits));
    return;
  }
  // One figure for all devices: what each of them has.
  auto blocks = plan.kv_blocks;
  for (const auto& share : plan.devices) blocks = std::min(blocks, share.kv_blocks);
  plan.settings.push_back({"vllm", vllm_flags(plan, blocks * plan.block_bytes, type.value_or(""))});
  const auto model = device_request(plan.request, 0).model;  // none has more experts
  const auto layers =
      layers_left_on_host(model, plan.budget_bytes - plan.min_blocks * plan.block_bytes);
  if (layers == 0) return;
  // Tensors of layer after layer go to the host, from the first one on, until they make up the figure; by name the
  // routed experts' alone.
  const auto held = expert_bytes_from(model, layers);
  if (plan.block_bytes != 0) blocks = (plan.budget_bytes - held) / plan.block_bytes;
  plan.settings.push_back(
      {"vllm, without an expert pager",
       fmt::format("{} --cpu-offload-gb {} --cpu-offload-params experts",
                   vllm_flags(plan, blocks * plan.block_bytes, type.value_or("")),
                   gibibytes_down(model.all_expert_bytes() - held))});
}

/// llama.cpp gives every session a context rounded up to 256 tokens, and layers with a window room for a batch of 512
/// beside it.
std::uint64_t llama_kv_bytes(const model_block& block, std::uint64_t context) {
  const auto whole = round_up(context, 256);
  const auto kept = block.window == 0 ? whole : std::min(whole, round_up(block.window + 512, 256));
  return block.kv_bytes_per_token * kept + block.state_bytes;
}
/// The model's blocks; of a model that names none, as many as it has MoE layers, with all of its bytes in the last one.
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

/// A device's part of the model, cut between layers.
struct layer_range {
  std::size_t first = 0, end = 0;      ///< blocks
  std::uint64_t room = 0;              ///< for routed experts
  std::vector<std::size_t> on_host{};  ///< blocks
  bool fits = true;                    ///< with all experts on the host
};

/// Shares of blocks and the output, which counts as one more, as even as can be.
std::vector<std::size_t> even_shares(std::size_t blocks, std::size_t devices) {
  std::vector<std::size_t> out;
  const auto all = blocks + 1;
  for (std::size_t d = 0; d < devices; ++d)
    out.push_back((d + 1) * all / devices - d * all / devices);
  return out;
}

class llama_layout {
 public:
  explicit llama_layout(const plan_request& request)
      : request_(request), blocks_(blocks_of(request.model)) {
    std::uint64_t inside = 0;
    for (const auto& block : blocks_) inside += block.resident_bytes;
    outside_ = request.model.resident_bytes - inside;
    shares_ = even_shares(blocks_.size(), request.devices);
    std::size_t first = 0;
    layer_id layer{};
    for (const auto share : shares_) {
      const auto end = std::min(first + share, blocks_.size());
      ranges_.push_back(range(first, end, layer));
      first = end;
    }
  }

  [[nodiscard]] bool fits() const {
    return std::ranges::all_of(ranges_, [](const layer_range& r) { return r.fits; });
  }
  [[nodiscard]] const std::vector<layer_range>& ranges() const noexcept { return ranges_; }
  [[nodiscard]] const std::vector<std::size_t>& shares() const noexcept { return shares_; }
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_.size(); }
  [[nodiscard]] std::vector<std::size_t> on_host() const {
    std::vector<std::size_t> out;
    for (const auto& r : ranges_) out.insert(out.end(), r.on_host.begin(), r.on_host.end());
    return out;
  }

 private:
  /// layer: the first MoE layer of the range; behind it afterwards.
  layer_range range(std::size_t first, std::size_t end, layer_id& layer) {
    layer_range out{first, end};
    auto used = request_.reserve_bytes + (end == blocks_.size() ? outside_ : 0);
    std::uint64_t experts = 0;
    std::vector<std::pair<std::size_t, std::uint64_t>> moe;  // block, and the bytes of its experts
    for (auto b = first; b < end; ++b) {
      used += blocks_[b].resident_bytes +
              request_.concurrency * llama_kv_bytes(blocks_[b], request_.context);
      if (!blocks_[b].is_moe) continue;
      const auto bytes = request_.model.experts.bytes_of(layer) *
                         static_cast<std::uint64_t>(request_.model.experts.experts);
      ++layer;
      moe.emplace_back(b, bytes);
      experts += bytes;
    }
    out.fits = used <= request_.device_bytes;
    out.room = out.fits ? request_.device_bytes - used : 0;
    for (const auto& [block, bytes] : moe) {
      if (experts <= out.room) break;
      out.on_host.push_back(block);
      experts -= bytes;
    }
    return out;
  }

  const plan_request& request_;
  std::vector<model_block> blocks_;
  /// Embeddings and output; the former stay on the host, but are counted.
  std::uint64_t outside_ = 0;
  std::vector<std::size_t> shares_;
  std::vector<layer_range> ranges_;
};

/// Devices have whole layers here: neither split is llama.cpp's for experts.
std::string llama_devices(const llama_layout& layout) {
  auto text = fmt::format(" -sm layer -ts {}", fmt::join(layout.shares(), ","));
  const auto on_host = layout.on_host();
  if (!on_host.empty())
    text += fmt::format(R"( -ot "blk\.({})\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU")",
                        fmt::join(on_host, "|"));
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
  constexpr std::uint32_t most_devices = 16;  // of -ts
  if (r.devices > most_devices)
    return leave_out(fmt::format("it takes {} devices at most", most_devices));
  if (r.devices > 1 && r.model.blocks.empty())
    return leave_out("it gives devices whole layers, and nobody said what is in each");
  const llama_layout layout(r);
  if (!layout.fits())
    return leave_out(
        "with its own padding of contexts, or with whole layers on each device, the "
        "rest of the model does not fit");
  // -c is of all sessions together; -ngl counts the output as a layer.
  const auto common =
      fmt::format("-ngl {} -c {} -np {}{}", std::max<std::size_t>(99, layout.blocks() + 1),
                  r.context * r.concurrency, r.concurrency, type.value_or(""));
  const auto on_host = layout.on_host();
  if (r.devices > 1) {
    plan.settings.push_back({"llama.cpp", common + llama_devices(layout)});
    return;
  }
  // --n-cpu-moe counts all blocks from 0 on, dense ones included.
  plan.settings.push_back(
      {"llama.cpp",
       on_host.empty() ? common : fmt::format("{} --n-cpu-moe {}", common, on_host.back() + 1)});
  const auto room = layout.ranges().front().room / 1_MiB;
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
