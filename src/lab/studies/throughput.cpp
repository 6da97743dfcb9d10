// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/throughput.hpp"

#include <algorithm>
#include <utility>

namespace hotset::lab {
namespace {

/// Weights other than routed experts, and the cache.
pass_work dense_work(const plan_request& r, double tokens, bool has_device) {
  const auto& a = r.arithmetic;
  const auto bytes = static_cast<double>(r.model.resident_bytes -
                                         std::min(a.lookup_bytes, r.model.resident_bytes));
  const auto flops = 2 * tokens * static_cast<double>(a.resident_parameters);
  pass_work out;
  (has_device ? out.device_bytes : out.host_bytes) = bytes;
  (has_device ? out.device_flops : out.host_flops) = flops;
  return out;
}

/// Adds a layer's experts. used: of this pass. missed, cold: of these, not on the device, and not in host memory.
struct layer_use {
  double used = 0, missed = 0, cold = 0;
};
void add_layer(const plan_request& r, layer_id layer, const layer_use& use, double tokens,
               const placement& places, pass_work& out) {
  const auto& place = places.layers[index_of(layer)];
  const auto& experts = r.model.experts;
  const auto each = static_cast<double>(experts.bytes_of(layer));
  const auto flops =
      2 * tokens * experts.top_k * static_cast<double>(r.arithmetic.expert_parameters);
  const bool is_copied = !place.host_computes || tokens >= places.copies_from;
  const auto on_host = is_copied || use.used <= 0 ? 0 : use.missed / use.used;
  const auto moved = place.copies_all ? (1 - place.on_device) * experts.experts : use.missed;
  out.host_bytes += on_host * use.used * each;
  out.host_flops += on_host * flops;
  out.device_bytes += (1 - on_host) * use.used * each;
  out.device_flops += (1 - on_host) * flops;
  if (is_copied) out.link_bytes += moved * each;
  out.disk_bytes += use.cold * each;
}

/// Adds all layers, with the experts that use(layer, slots on the device, slots in memory) says.
template <class Use>
void add_experts(const plan_request& r, double tokens, const placement& places, pass_work& out,
                 Use use) {
  const auto all = static_cast<double>(r.model.experts.experts);
  for (const auto l : each<layer_id>(r.model.experts.layers)) {
    const auto& place = places.layers[index_of(l)];
    const auto device = place.on_device * all;
    // A pager's copies are in memory, too.
    const auto memory = places.evicts ? std::max(device, all * places.in_ram)
                                      : device + (all - device) * places.in_ram;
    add_layer(r, l, use(l, device, memory), tokens, places, out);
  }
  out.overlaps = places.overlaps;
  if (places.has_device) return;
  out.host_bytes += std::exchange(out.device_bytes, 0);
  out.host_flops += std::exchange(out.device_flops, 0);
}

}  // namespace

double seconds_of(const pass_work& work, const plan_request& request) noexcept {
  const auto& s = request.speeds;
  const auto device =
      std::max(work.device_bytes / s.device_bandwidth, work.device_flops / s.device_flops);
  const auto host = std::max(work.host_bytes / s.host_bandwidth, work.host_flops / s.host_flops);
  return (work.overlaps ? std::max(device, host) : device + host) +
         work.link_bytes * request.cost.seconds_per_byte + work.disk_bytes / s.disk_bandwidth;
}

pass_work decode_work(const plan_request& r, const expert_curves& curves, const placement& places) {
  auto out = dense_work(r, static_cast<double>(r.concurrency), places.has_device);
  (places.has_device ? out.device_bytes : out.host_bytes) +=
      static_cast<double>(r.concurrency) * static_cast<double>(r.model.kv_bytes(r.context));
  const auto all = static_cast<double>(r.model.experts.experts);
  add_experts(r, static_cast<double>(r.concurrency), places, out,
              [&](layer_id l, double device, double memory) {
                const auto& curve = curves.layers[index_of(l)];
                const auto used = curves.used[index_of(l)];
                const auto misses = [&](double slots) {
                  return std::min(used, curve.misses(static_cast<std::size_t>(slots)));
                };
                // Experts that stay where they are serve their share of the routing.
                const auto missed = places.evicts ? misses(device) : used * (1 - device / all);
                return layer_use{used, missed, memory < all ? std::min(missed, misses(memory)) : 0};
              });
  return out;
}

pass_work prompt_work(const plan_request& r, const placement& places) {
  const auto tokens = static_cast<double>(r.ubatch);
  auto out = dense_work(r, tokens, places.has_device);
  const auto all = static_cast<double>(r.model.experts.experts);
  const auto used = all * used_share(r.model.experts, tokens);
  add_experts(r, tokens, places, out, [&](layer_id, double device, double memory) {
    return layer_use{used, used * (1 - device / all), used * (1 - memory / all)};
  });
  return out;
}

token_rates rates_of(const plan_request& r, const expert_curves& curves, const placement& places) {
  token_rates out;
  out.decode = static_cast<double>(r.concurrency) / seconds_of(decode_work(r, curves, places), r);
  if (r.arithmetic.expert_parameters > 0)
    out.prompt = static_cast<double>(r.ubatch) / seconds_of(prompt_work(r, places), r);
  return out;
}

}  // namespace hotset::lab
