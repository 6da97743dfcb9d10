// SPDX-License-Identifier: Apache-2.0
#include "paged_experts.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/transfer/file_expert_source.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#if HOTSET_LLAMA_HAS_URING
#include "hotset/uring/uring_file.hpp"
#endif

namespace hotset_llama_cpp {

namespace {

using namespace hotset;

/// Each layer is its own size class, because its slots replace its weights.
geometry shape_of(const lab::expert_files& files, std::int32_t max_tokens) {
  auto shape = files.shape;
  shape.max_tokens_per_visit = max_tokens;
  shape.layer_size_class.clear();
  for (const auto l : each<layer_id>(shape.layers))
    shape.layer_size_class.push_back(static_cast<size_class_id>(index_of(l)));
  return shape;
}

/// Prefetches for the layers ahead.
struct look_ahead {
  any_predictor predictor;
  any_prefetch_policy policy;
  std::vector<prefetch_request> requests;
};
result<std::optional<look_ahead>> make_look_ahead(const geometry& shape, const char* name) {
  if (name == nullptr || std::string_view(name) == "none") return std::optional<look_ahead>();
  auto asked = policies().prefetch.make(name);
  if (!asked) return asked.error();
  auto expected = policies().make_predictor("similar-steps");
  if (!expected) return expected.error();
  any_prefetch_policy policy(shape, *asked);
  expected->depth = std::max(1, policy.depth());
  auto predictor = any_predictor::create(shape, *expected);
  if (!predictor) return predictor.error();
  std::vector<prefetch_request> requests(policy.most_requests());
  return std::optional<look_ahead>(
      look_ahead{*std::move(predictor), std::move(policy), std::move(requests)});
}

auto eviction_of(const hotset_llama_options& o) {
  return policies().make_eviction(o.eviction == nullptr ? "similar_steps" : o.eviction);
}

template <class Source>
class experts_from final : public paged_experts {
  using backend_type = host_backend<Source>;
  using cache_type = slot_cache<erased_pager, backend_type>;

 public:
  experts_from(Source source, host_slot_bank bank, erased_pager pages,
               std::optional<look_ahead> ahead, std::size_t threads)
      : source_(std::move(source)),
        bank_(std::move(bank)),
        backend_(source_, bank_, {.threads = threads}),
        cache_(std::move(pages), backend_),
        visit_(cache_.make_visit()),
        ahead_(std::move(ahead)) {}
  ~experts_from() override { rest(); }

  status visit(const routing_view& view) override {
    rest();
    const auto code = cache_.resolve(view, stream_, visit_);
    if (code == status::ok && ahead_) prefetch(view);
    return code;
  }
  [[nodiscard]] std::int32_t slot_of(layer_id layer, std::int32_t expert) const override {
    const auto& layout = cache_.pager().layout();
    return number(cache_.row(layer)[static_cast<std::size_t>(expert)]) -
           static_cast<std::int32_t>(layout.at(layout.pool_of_layer(layer)).first_slot);
  }
  void rest() override { cache_.release(visit_, stream_); }
  [[nodiscard]] std::string problem() const override {
    if constexpr (requires { source_.problem(); })
      return source_.problem();
    else
      return {};
  }
  [[nodiscard]] pager_stats stats() const override { return cache_.stats(); }

 private:
  void prefetch(const routing_view& view) {
    ahead_->policy.observe(view);
    const auto expected = ahead_->predictor.expect(view);
    const auto count = ahead_->policy.propose(view, expected, ahead_->requests);
    // A failed prefetch is requested again when the expert is routed, and reported then.
    (void)cache_.prefetch(visit_.plan().context(), std::span(ahead_->requests).first(count),
                          stream_);
  }

  Source source_;
  host_slot_bank bank_;
  backend_type backend_;
  host_stream stream_;
  cache_type cache_;
  cache_visit visit_;
  std::optional<look_ahead> ahead_;
};

result<memory_expert_source> mapped_source(const geometry& shape,
                                           const std::vector<expert_layout>& layouts,
                                           const layer_weights& weights) {
  auto out = memory_expert_source::create(shape, layouts);
  if (!out) return out.error();
  for (const auto l : each<layer_id>(shape.layers))
    for (const auto e : each<expert_id>(shape.experts)) {
      std::vector<tensor_bytes> tensors;
      for (const auto& w : weights[index_of(l)])
        tensors.emplace_back(static_cast<const std::byte*>(w.tensor->data) + index_of(e) * w.bytes,
                             w.bytes);
      if (auto bad = out->add({l, e}, tensors)) return *std::move(bad);
    }
  return out;
}

}  // namespace

result<std::int32_t> slots_asked_for(const lab::expert_files& files,
                                     const hotset_llama_options& o) {
  const auto& shape = files.shape;
  std::uint64_t of_each = 0;  // one expert of every layer
  for (const auto l : each<layer_id>(shape.layers)) of_each += shape.bytes_of(l);
  if ((o.budget_bytes == 0) == (o.slots == 0))
    return error{"a budget of " + std::to_string(o.budget_bytes) + " bytes and " +
                 std::to_string(o.slots) + " slots, accepted: one of them"};
  const auto out = o.slots != 0 ? o.slots
                                : static_cast<std::int32_t>(std::min<std::uint64_t>(
                                      o.budget_bytes / std::max<std::uint64_t>(1, of_each),
                                      static_cast<std::uint64_t>(shape.experts)));
  if (out < shape.top_k || out > shape.experts)
    return error{std::to_string(out) +
                 " slots of each layer, accepted: " + std::to_string(shape.top_k) + ".." +
                 std::to_string(shape.experts) + ", which is " +
                 std::to_string(of_each * static_cast<std::uint64_t>(shape.top_k)) + ".." +
                 std::to_string(of_each * static_cast<std::uint64_t>(shape.experts)) + " bytes"};
  return out;
}

result<slot_memory> take_slots(const lab::expert_files& files, std::int32_t slots) {
  const auto& shape = files.shape;
  slot_memory out;
  out.slots = slots;
  return unless_out_of_memory(
      [&]() -> result<slot_memory> {
        for (const auto l : each<layer_id>(shape.layers)) {
          auto& arrays = out.arrays.emplace_back();
          for (const auto& t : layout_of(files, l).tensors) {
            constexpr std::size_t alignment = 64;
            const auto bytes =
                static_cast<std::size_t>(t.bytes) * static_cast<std::size_t>(out.slots);
            // Matrix kernels may read a few bytes past the last expert, as in the model's own memory.
            constexpr std::size_t beyond = 1024;
            out.held.push_back(
                std::make_unique_for_overwrite<std::byte[]>(bytes + alignment + beyond));
            auto* const begin = out.held.back().get();
            const auto off = reinterpret_cast<std::uintptr_t>(begin) % alignment;
            arrays.emplace_back(begin + (off == 0 ? 0 : alignment - off), bytes);
            out.bytes += bytes;
          }
        }
        return std::move(out);
      },
      no_host_memory());
}

validation check_policies(const lab::expert_files& files, const hotset_llama_options& o) {
  if (auto eviction = eviction_of(o); !eviction) return eviction.error();
  if (auto ahead = make_look_ahead(shape_of(files, o.max_tokens), o.prefetch); !ahead)
    return ahead.error();
  return std::nullopt;
}

result<std::unique_ptr<paged_experts>> make_paged_experts(const lab::expert_files& files,
                                                          const slot_memory& memory,
                                                          const layer_weights& weights,
                                                          const hotset_llama_options& o) {
  const auto shape = shape_of(files, o.max_tokens);
  const auto layout = pool_layout::per_layer(shape, memory.slots);
  if (!layout) return layout.error();
  std::vector<expert_layout> layouts;
  std::vector<slot_array> arrays;
  for (const auto l : each<layer_id>(shape.layers)) {
    layouts.push_back(layout_of(files, l));
    for (std::size_t t = 0; t < layouts.back().tensors.size(); ++t)
      arrays.push_back({memory.arrays[index_of(l)][t],
                        static_cast<std::size_t>(layouts.back().tensors[t].bytes)});
  }
  auto bank = host_slot_bank::create_over(*layout, layouts, arrays);
  if (!bank) return bank.error();
  auto eviction = eviction_of(o);
  if (!eviction) return eviction.error();
  auto pages = erased_pager::create(
      {.layout = *layout, .eviction = *std::move(eviction), .split = visit_split::refuse});
  if (!pages) return pages.error();
  auto ahead = make_look_ahead(shape, o.prefetch);
  if (!ahead) return ahead.error();
  const auto threads = static_cast<std::size_t>(std::max(1, o.threads));
  const auto made = [&]<class Source>(Source source) -> std::unique_ptr<paged_experts> {
    return std::make_unique<experts_from<Source>>(std::move(source), *std::move(bank),
                                                  *std::move(pages), *std::move(ahead), threads);
  };
  if (o.source == HOTSET_LLAMA_MAPPED) {
    auto source = mapped_source(shape, layouts, weights);
    if (!source) return source.error();
    return made(*std::move(source));
  }
  const auto from_files =
      [&]<class Source>(result<Source> source) -> result<std::unique_ptr<paged_experts>> {
    if (!source) return source.error();
    for (const auto l : each<layer_id>(shape.layers))
      for (const auto e : each<expert_id>(shape.experts))
        if (auto bad = source->add({l, e}, {}, files.at({l, e}))) return *std::move(bad);
    return made(*std::move(source));
  };
  if (o.source == HOTSET_LLAMA_READ || o.source == HOTSET_LLAMA_DIRECT)
    return from_files(file_expert_source::open(
        shape, files.paths,
        o.source == HOTSET_LLAMA_DIRECT ? file_reads::direct : file_reads::cached, threads));
#if HOTSET_LLAMA_HAS_URING
  if (o.source == HOTSET_LLAMA_URING)
    return from_files(uring_expert_source::open(shape, files.paths, file_reads::direct, threads));
#endif
  return error{"source " + std::to_string(o.source) +
               ", accepted: 0..2, and 3 where it was built with liburing"};
}

}  // namespace hotset_llama_cpp
