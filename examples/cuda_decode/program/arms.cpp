// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/program/arms.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

namespace cuda_decode {
namespace {

std::int64_t slots_of(const arm& what, const model_shape& shape, offload_fetch fetch) noexcept {
  switch (what.kind) {
    case arm_kind::hotset: return std::int64_t{what.cap} * shape.layers;
    case arm_kind::static_offload:
      return static_slots(shape.geometry(),
                          {.resident_layers = what.resident_layers, .fetch = fetch});
    case arm_kind::full_residency: break;
  }
  return std::int64_t{shape.experts} * shape.layers;
}

std::unique_ptr<experts_on_device> make_experts(const comparison& with, const arm& what) {
  const auto& parts = with.parts;
  const auto geometry = with.shape.geometry();
  const std::vector layouts{with.shape.layout()};
  if (what.kind == arm_kind::hotset)
    return std::make_unique<paged_experts>(
        parts.api, hotset::pool_layout::per_layer(geometry, what.cap).value(), layouts, with.source,
        with.pages, paged_experts::config{.device = parts.device, .eviction = with.eviction});
  auto stream = hotset::cuda::stream::create(parts.api, parts.device).value();
  return std::make_unique<static_experts>(
      parts.api, geometry, layouts, with.source, with.pages,
      static_config{.resident_layers = what.kind == arm_kind::full_residency ? with.shape.layers
                                                                             : what.resident_layers,
                    .fetch = with.fetch,
                    .device = parts.device},
      stream);
}

expert_traffic operator-(const expert_traffic& a, const expert_traffic& b) noexcept {
  return {a.accesses - b.accesses, a.hits - b.hits, a.bytes_moved - b.bytes_moved};
}
decode_counts operator-(const decode_counts& a, const decode_counts& b) noexcept {
  return {a.steps - b.steps, a.replayed_steps - b.replayed_steps,
          a.missing_experts - b.missing_experts, a.skipped_places - b.skipped_places};
}

}  // namespace

std::string arm::name(const model_shape& shape) const {
  switch (kind) {
    case arm_kind::hotset: return "hotset cap " + std::to_string(cap);
    case arm_kind::static_offload:
      return "static, " + std::to_string(resident_layers) + " of " + std::to_string(shape.layers) +
             " layers resident";
    case arm_kind::full_residency: break;
  }
  return "full residency";
}

std::vector<std::int32_t> default_caps(const model_shape& shape) {
  const auto e = shape.experts;
  const std::vector<std::int32_t> wanted =
      e > 16 ? std::vector<std::int32_t>{16, 32, 64, e}
             : std::vector<std::int32_t>{e / 4, e / 2, 3 * e / 4, e};
  std::vector<std::int32_t> caps;
  for (const auto cap : wanted)
    if (cap >= shape.top_k && cap <= e && (caps.empty() || caps.back() < cap)) caps.push_back(cap);
  return caps;
}

std::vector<arm> arms_of(const model_shape& shape, std::span<const std::int32_t> caps,
                         std::span<const decode_mode> modes, offload_fetch fetch) {
  std::vector<arm> arms;
  const auto add = [&](arm what) {
    for (const auto mode : modes) {
      if (what.kind == arm_kind::static_offload && mode == decode_mode::step_graph) continue;
      what.mode = mode;
      arms.push_back(what);
    }
  };
  for (const auto cap : caps) {
    const auto fits =
        static_layers_within(shape.geometry(), std::int64_t{cap} * shape.layers, fetch);
    if (fits >= 0 && fits < shape.layers)
      add({.kind = arm_kind::static_offload, .cap = cap, .resident_layers = fits});
    add({.kind = arm_kind::hotset, .cap = cap});
  }
  add({.kind = arm_kind::full_residency});
  return arms;
}

std::uint64_t slot_bytes(const arm& what, const model_shape& shape, offload_fetch fetch) noexcept {
  return static_cast<std::uint64_t>(slots_of(what, shape, fetch)) * shape.expert_bytes();
}

arm_result run_arm(const comparison& with, const arm& what) {
  const auto experts = make_experts(with, what);
  decoder loop(with.parts, with.shape, *experts, what.mode, with.known);
  arm_result out;
  out.what = what;
  out.device_bytes = experts->bank().device_bytes();
  const auto step = [&](std::size_t s) {
    const auto hidden = loop.step(with.routing.ids(s), with.routing.weights(s));
    out.hash = hashed(out.hash, hidden);
    if (s + 1 == with.routing.steps()) out.hidden.assign(hidden.begin(), hidden.end());
  };
  for (std::size_t s = 0; s < with.warmup; ++s) step(s);
  const auto traffic = experts->traffic();
  const auto counts = loop.counts();
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t s = with.warmup; s < with.routing.steps(); ++s) step(s);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  out.steps = with.routing.steps() - with.warmup;
  out.seconds = seconds.count();
  out.traffic = experts->traffic() - traffic;
  out.counts = loop.counts() - counts;
  return out;
}

std::uint64_t hashed(std::uint64_t hash, std::span<const float> values) noexcept {
  for (const float value : values) {
    hash ^= std::bit_cast<std::uint32_t>(value);
    hash *= 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29U;
  }
  return hash;
}

std::vector<std::string> differences(std::span<const arm_result> results,
                                     const model_shape& shape) {
  std::vector<std::string> lines;
  const auto text = [&](const arm_result& r) {
    return r.what.name(shape) + " (" + std::string(name_of(r.what.mode)) + ")";
  };
  const auto same_bits = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  for (const auto& r : results) {
    const auto& first = results.front();
    if (r.hash == first.hash && std::ranges::equal(r.hidden, first.hidden, same_bits)) continue;
    lines.push_back(text(r) + " differs from " + text(first));
  }
  return lines;
}

}  // namespace cuda_decode
