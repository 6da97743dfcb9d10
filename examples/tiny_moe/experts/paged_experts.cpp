// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/paged_experts.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "hotset/core/geometry.hpp"
#include "lab/errors.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/precision_ladder.hpp"
#include "lab/replay/registry.hpp"
#include "tiny_moe/model/engine.hpp"

namespace tiny_moe {
namespace {

std::vector<hotset::expert_layout> tensors_of(const model& weights) {
  const auto bytes = weights.expert_bytes(0, 0);
  return {{{{"gate_proj", bytes[0].size()},
            {"up_proj", bytes[1].size()},
            {"down_proj", bytes[2].size()}}}};
}

// Counts routed experts, and forwards visits to another provider.
class counting_experts final : public expert_provider {
 public:
  counting_experts(expert_provider& inner, std::vector<double>& counts)
      : inner_(inner), counts_(counts) {}
  void on_step(const step_inputs& step) override { inner_.on_step(step); }
  void on_sequence_end(std::uint32_t sequence) noexcept override {
    inner_.on_sequence_end(sequence);
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    const std::size_t first = index_of(visit.layer) * visit.experts;
    for (const std::int32_t id : visit.ids) counts_[first + static_cast<std::size_t>(id)] += 1.0;
    inner_.run(visit, compute);
  }

 private:
  expert_provider& inner_;
  std::vector<double>& counts_;
};

/// Errors: hotset::lab::usage_error for transient slots with a configuration that does not support them.
void check_transient(const paging_config& config) {
  if (config.transient == 0) return;
  if (config.library != nullptr)
    throw hotset::lab::usage_error(
        "transient slots with precisions of their own, accepted: the precision of the file");
  if (config.memory != nullptr)
    throw hotset::lab::usage_error(
        "transient slots with slots that come and go, accepted: slots that are there for good");
}

}  // namespace

hotset::geometry geometry_of(const model& weights, std::size_t max_tokens) {
  const model_config& config = weights.config();
  return {.layers = static_cast<std::int32_t>(config.layers),
          .experts = static_cast<std::int32_t>(config.experts),
          .top_k = static_cast<std::int32_t>(config.top_k),
          .max_tokens_per_visit =
              static_cast<std::int32_t>(max_tokens == 0 ? config.max_positions : max_tokens),
          .expert_bytes = {config.expert_bytes()}};
}

hotset::geometry geometry_of(const model& weights, const adapter_experts& adapters,
                             std::size_t max_tokens) {
  auto shape = geometry_of(weights, max_tokens);
  shape.experts = static_cast<std::int32_t>(adapters.virtual_experts());
  return shape;
}

hotset::pool_layout layout_of(const model& weights, hotset::cache_scope scope,
                              std::string_view budget, std::size_t max_tokens,
                              const expert_library* library, std::span<const double> shares) {
  const auto shape =
      library != nullptr ? library->shape(max_tokens) : geometry_of(weights, max_tokens);
  return layout_of(shape, scope, budget, shares);
}

hotset::pool_layout layout_of(const hotset::geometry& shape, hotset::cache_scope scope,
                              std::string_view budget, std::span<const double> shares) {
  using hotset::lab::size_request;
  const bool has_unit = budget.find_first_not_of("0123456789.%") != std::string_view::npos;
  const auto size =
      has_unit ? size_request::parse_budget(budget) : size_request::parse_slots(budget);
  auto whole_shape = shape;
  whole_shape.lower_precisions.clear();
  auto whole = hotset::lab::make_cache_size(whole_shape, scope, size).layout;
  if (shape.precisions() == 1) return whole;
  return hotset::lab::divide_by_precision(whole, shape, shares);
}

hotset::memory_expert_source source_of(const model& weights) {
  const auto shape = geometry_of(weights);
  auto source = hotset::memory_expert_source::create(shape, tensors_of(weights)).value();
  for (std::size_t i = 0; i < shape.keys(); ++i) {
    const auto key = shape.key(i);
    const auto tensors = weights.expert_bytes(index_of(key.layer), index_of(key.expert));
    hotset::require_valid(source.add(key, tensors));
  }
  return source;
}

hotset::host_slot_bank bank_of(const model& weights, const paging_config& config) {
  check_transient(config);
  using bank = hotset::host_slot_bank;
  // Size classes are precisions: all layers have equal experts.
  const auto tensors = config.library != nullptr ? config.library->layouts() : tensors_of(weights);
  return (config.memory != nullptr ? bank::create_elastic(config.layout, tensors, *config.memory)
                                   : bank::create(config.layout, tensors, config.transient))
      .value();
}

void check_adapters(const paging_config& config) {
  if (config.adapters == nullptr) return;
  using hotset::lab::usage_error;
  const auto& shape = config.layout.shape();
  if (static_cast<std::size_t>(shape.experts) != config.adapters->virtual_experts())
    throw usage_error(fmt::format("a layout of {} experts, accepted with adapters: {}",
                                  shape.experts, config.adapters->virtual_experts()));
  if (config.library != nullptr)
    throw usage_error("precisions, accepted with adapters: none but that of the file");
  if (config.miss && hotset::any_miss_policy(shape, *config.miss).facts().needs_logits)
    throw usage_error(
        "a miss policy that goes by the router's scores, accepted with adapters: "
        "one that does not");
}

std::unique_ptr<paged_provider> make_paged_experts(const model& weights,
                                                   const paging_config& config,
                                                   std::string_view eviction,
                                                   std::string_view admission,
                                                   const hotset::usage_profile& profile) {
  const auto& known = hotset::lab::known_policies();
  if (hotset::lab::asked(known.eviction_of(eviction))->traits.needs_future) {
    throw hotset::lab::usage_error(fmt::format(
        "eviction policy '{}' needs the future, accepted here: policies that an engine can run",
        eviction));
  }
  hotset::lab::check_precisions(eviction, config.layout, config.miss.has_value());
  auto chosen = hotset::lab::asked(known.make_eviction(eviction, {.profile = profile}));
  auto admits = hotset::lab::asked(known.admission.make(admission));
  using hotset::erased_pager;
  if (!config.link)
    return std::make_unique<paged_experts<erased_pager>>(weights, config, std::move(chosen),
                                                         std::move(admits));
  using link = hotset::emulated_link_backend<expert_copies>;
  return std::make_unique<paged_experts<erased_pager, link>>(weights, config, std::move(chosen),
                                                             std::move(admits));
}

const hotset::usage_profile& routing_profile::counts() const {
  std::call_once(counted_, [this] { counts_ = count(); });
  return counts_;
}

hotset::usage_profile routing_profile::count() const {
  hotset::usage_profile profile;
  profile.counts.assign(geometry_of(weights_).keys(), 0.0);
  resident_experts resident(weights_);
  counting_experts counting(resident, profile.counts);
  engine decoder(weights_, counting);
  for (const std::string& text : texts_) {
    decoder.reset();
    const std::vector<std::uint8_t> tokens(text.begin(), text.end());
    decoder.forward(tokens);
  }
  profile.source = fmt::format("{} texts", texts_.size());
  return profile;
}

}  // namespace tiny_moe
