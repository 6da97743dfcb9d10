// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/registered_adapters.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "hotset/adapters/reroute.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/status.hpp"

namespace tiny_moe {
namespace {

using steady = std::chrono::steady_clock;

constexpr std::size_t weights_of_expert = 3;  // gate, up, down

std::uint64_t ns_since(steady::time_point begin) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(steady::now() - begin).count());
}

std::size_t tensor_bytes_of(const model_config& shape) {
  return shape.hidden_size * shape.inner_size * sizeof(std::uint16_t);
}
std::size_t experts_of(const adapter_source::entry& adapter) {
  std::size_t count = 0;
  for (const auto& of_layer : adapter.tuned) count += of_layer.size();
  return count;
}
std::uint64_t bytes_of(const adapter_source& source, const model_config& shape) {
  std::uint64_t experts = 0;
  for (const auto& one : source.adapters) experts += experts_of(one);
  return experts * shape.expert_bytes();
}
/// At most as many as adapters; at least one, even without adapters.
std::size_t places_of(const adapter_source& source, const registered_adapters_config& config) {
  const auto all = std::max<std::size_t>(1, source.adapters.size());
  return config.places == 0 ? all : std::min(all, config.places);
}
std::size_t most_tuned_of(const adapter_source& source) {
  std::size_t most = 0;
  for (const auto& one : source.adapters)
    for (const auto& of_layer : one.tuned) most = std::max(most, of_layer.size());
  return most;
}

/// Pages for all places, however full.
hotset::page_pool_config pages_of(const model_config& shape, const adapter_source& source,
                                  const registered_adapters_config& config,
                                  std::size_t page_bytes) {
  const auto pages = [&](std::size_t experts) {
    return (experts * tensor_bytes_of(shape) + page_bytes - 1) / page_bytes;
  };
  const auto all = shape.experts + places_of(source, config) * most_tuned_of(source);
  const auto most = weights_of_expert * shape.layers * (pages(all) - pages(shape.experts));
  return {.page_bytes = page_bytes,
          .most_pages = static_cast<std::uint32_t>(
              std::min<std::size_t>(most, hotset::page_pool_config::page_limit))};
}

hotset::adapter_registry_config registry_of(const model_config& shape, const adapter_source& source,
                                            const registered_adapters_config& config) {
  return {.layers = static_cast<std::int32_t>(shape.layers),
          .experts = static_cast<std::int32_t>(shape.experts),
          .adapters = static_cast<std::int32_t>(places_of(source, config)),
          .most_tuned = static_cast<std::int32_t>(most_tuned_of(source)),
          .expert_bytes = std::vector<std::size_t>(weights_of_expert, tensor_bytes_of(shape)),
          .host_bytes = config.host_bytes == 0 ? bytes_of(source, shape) : config.host_bytes,
          .most_known = static_cast<std::uint32_t>(source.adapters.size())};
}

}  // namespace

adapter_source source_of(std::span<const adapter_weights* const> adapters) {
  std::map<std::string, const adapter_weights*, std::less<>> by_name;
  adapter_source out;
  for (const auto* adapter : adapters) {
    auto name = adapter->name();
    for (std::size_t n = 2; !by_name.try_emplace(name, adapter).second; ++n)
      name = fmt::format("{}#{}", adapter->name(), n);
    out.adapters.push_back({name, adapter->tuned()});
  }
  out.read = [by_name = std::move(by_name)](const hotset::adapter_part& part,
                                            std::span<std::byte> bytes) {
    const auto found = by_name.find(part.adapter);
    if (found == by_name.end()) return false;
    const auto expert =
        found->second->expert(index_of(part.layer), static_cast<std::size_t>(part.ordinal));
    const std::array<const std::uint16_t*, weights_of_expert> tensors{expert.gate, expert.up,
                                                                      expert.down};
    const auto halves = std::span(tensors[part.weight], bytes.size() / sizeof(std::uint16_t));
    std::ranges::copy(std::as_bytes(halves), bytes.begin());
    return true;
  };
  return out;
}

registered_adapters::registered_adapters(const model& weights, adapter_source source,
                                         const registered_adapters_config& config)
    : tensor_bytes_(tensor_bytes_of(weights.config())),
      memory_(memory_type::create(config.page_bytes).value()),
      pool_(hotset::page_pool<memory_type>::create(
                memory_, pages_of(weights.config(), source, config, memory_.granularity()))
                .value()),
      registry_(registry_type::create(pool_, copies_, registry_of(weights.config(), source, config),
                                      std::move(source.read))
                    .value()),
      seen_(static_cast<std::size_t>(registry_.map(hotset::layer_id{0}).virtual_experts())) {
  add(std::move(source.adapters));
  fill_base(weights);
}

void registered_adapters::add(std::vector<adapter_source::entry> adapters) {
  for (auto& one : adapters) {
    hotset::require_valid(registry_.add(one.name, std::move(one.tuned)));
    known_.push_back({.name = std::move(one.name)});
  }
}

void registered_adapters::fill_base(const model& weights) {
  for (std::size_t l = 0; l < weights.config().layers; ++l)
    for (std::size_t w = 0; w < weights_of_expert; ++w) {
      const auto all = registry_.tensor(static_cast<hotset::layer_id>(l), w).addresses();
      first_.push_back(all.data());
      for (std::size_t e = 0; e < weights.config().experts; ++e)
        std::ranges::copy(weights.expert_bytes(l, e)[w],
                          all.subspan(e * tensor_bytes_, tensor_bytes_).begin());
    }
}

hotset::adapter_status registered_adapters::acquire(adapter_id adapter) {
  if (adapter == base_model) return hotset::adapter_status::ok;
  if (adapter > known_.size()) return hotset::adapter_status::unknown;
  auto& wanted = known_[adapter - 1];
  const auto got = registry_.acquire(wanted.name);
  if (got.code != hotset::adapter_status::ok) return got.code;
  wanted.place = got.index;
  ++wanted.pins;
  return hotset::adapter_status::ok;
}

hotset::adapter_status registered_adapters::release(adapter_id adapter) noexcept {
  if (adapter == base_model) return hotset::adapter_status::ok;
  if (adapter > known_.size()) return hotset::adapter_status::unknown;
  auto& gone = known_[adapter - 1];
  const auto code = registry_.release(gone.name);
  if (code == hotset::adapter_status::ok) --gone.pins;
  return code;
}

std::int32_t registered_adapters::place_of(adapter_id adapter) const {
  if (adapter == base_model) return -1;
  if (adapter > known_.size() || known_[adapter - 1].pins == 0)
    throw provider_error(fmt::format("a row of adapter {}, which is not acquired", adapter));
  return known_[adapter - 1].place;
}

void registered_adapters::on_step(const step_inputs& step) {
  adapter_of_row_.clear();
  for (const auto adapter : step.adapters) adapter_of_row_.push_back(place_of(adapter));
  ++stats_.steps;
}

void registered_adapters::run(const visit_inputs& visit, visit_compute& compute) {
  const auto& map = registry_.map(visit.layer);
  stats_.base_experts += distinct(visit.ids);
  const auto begin = steady::now();
  const auto done = hotset::reroute(
      {.rows = map.rows().data(), .adapters = map.adapters(), .experts = map.experts()}, visit.ids,
      adapter_of_row_, visit.ids);
  stats_.reroute_ns += ns_since(begin);
  if (done.code != hotset::status::ok || done.refused != 0)
    throw provider_error(
        fmt::format("layer {}: ids or rows that are none of the pass's", visit.layer));
  stats_.virtual_experts += distinct(visit.ids);
  ++stats_.visits;
  const auto layer = index_of(visit.layer);
  compute.all([&](std::int32_t expert) { return tensors(layer, expert); });
}

/// Counts distinct ids without a pass over all experts: seen_ holds the number of the count that met an expert last.
std::uint64_t registered_adapters::distinct(std::span<const std::int32_t> ids) noexcept {
  ++counts_;
  std::uint64_t found = 0;
  for (const auto id : ids) {
    const auto e = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
    if (e >= seen_.size() || seen_[e] == counts_) continue;
    seen_[e] = counts_;
    ++found;
  }
  return found;
}

expert_tensors registered_adapters::tensors(std::size_t layer, std::int32_t expert) const noexcept {
  const auto at = [&](std::size_t weight) {
    const auto* const first = first_[layer * weights_of_expert + weight];
    return reinterpret_cast<const std::uint16_t*>(first +
                                                  static_cast<std::size_t>(expert) * tensor_bytes_);
  };
  return {.gate = at(0), .up = at(1), .down = at(2)};
}

serving_config with_pins(serving_config config, registered_adapters& experts) {
  config.on_admit = [&experts](adapter_id adapter) -> hotset::validation {
    const auto code = experts.acquire(adapter);
    if (code == hotset::adapter_status::ok) return std::nullopt;
    return hotset::error{std::string(describe(code))};
  };
  config.on_end = [&experts](adapter_id adapter) { (void)experts.release(adapter); };
  return config;
}

}  // namespace tiny_moe
