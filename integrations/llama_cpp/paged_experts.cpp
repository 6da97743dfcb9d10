// SPDX-License-Identifier: Apache-2.0
#include "paged_experts.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

namespace hotset_llama_cpp {

using namespace hotset;

namespace {

/// Each layer is its own size class, because its slots replace its weights.
geometry shape_of(const lab::expert_files& files) {
  auto shape = files.shape;
  shape.layer_size_class.clear();
  for (const auto l : each<layer_id>(shape.layers))
    shape.layer_size_class.push_back(static_cast<size_class_id>(index_of(l)));
  return shape;
}

slot_id first_slot_of(const pool_layout& layout, layer_id layer) {
  return layout.at(layout.pool_of_layer(layer)).first_slot;
}

}  // namespace

validation paged_experts::check(const lab::expert_files& files, const paging_options& o) {
  if (auto bad = o.view.validate()) return bad;
  if (auto eviction = policies().make_eviction(o.eviction); !eviction) return eviction.error();
  if (auto ahead = make_look_ahead(shape_of(files), o.prefetch); !ahead) return ahead.error();
  return std::nullopt;
}

result<std::unique_ptr<paged_experts>> paged_experts::create(const lab::expert_files& files,
                                                             const slot_memory& memory,
                                                             expert_bytes bytes,
                                                             const paging_options& o) {
  const auto shape = shape_of(files);
  const auto& plan = memory.plan;
  parts made;
  made.bytes = std::make_unique<expert_bytes>(std::move(bytes));
  if (!o.view.is_empty()) {
    auto view = live_view::create(o.view, shape, o.eviction);
    if (!view) return view.error();
    made.view = *std::move(view);
  }
  auto own = make_slots(files, shape, memory, 0, plan.slots, made, o.readers);
  if (!own) return own.error();
  made.own = *std::move(own);
  if (plan.spares != 0) {
    auto of_spares = shape;
    of_spares.top_k = 1;  // there may be fewer than a token routes
    auto spare = make_slots(files, of_spares, memory, plan.slots, plan.spares, made, o.readers);
    if (!spare) return spare.error();
    made.spare = *std::move(spare);
  }
  auto eviction = policies().make_eviction(o.eviction);
  if (!eviction) return eviction.error();
  auto pages = erased_pager::create(
      {.layout = made.own->layout, .eviction = *std::move(eviction), .split = visit_split::refuse});
  if (!pages) return pages.error();
  auto cache = cache_type::create(*std::move(pages), *made.own->backend);
  if (!cache) return cache.error();
  made.cache = *std::move(cache);
  auto ahead = make_look_ahead(shape, o.prefetch);
  if (!ahead) return ahead.error();
  made.ahead = *std::move(ahead);
  return std::unique_ptr<paged_experts>(
      new paged_experts(plan, shape.expert_count(), std::move(made)));
}

paged_experts::paged_experts(const slot_plan& plan, std::size_t experts, parts made)
    : plan_(plan),
      made_(std::move(made)),
      visit_(made_.cache->make_visit()),
      uses_(experts),
      spare_of_(experts, -1) {}

result<std::unique_ptr<paged_experts::filled_slots>> paged_experts::make_slots(
    const lab::expert_files& files, const geometry& shape, const slot_memory& memory,
    std::int32_t first, std::int32_t count, const parts& with, std::size_t readers) {
  auto layout = pool_layout::per_layer(shape, count);
  if (!layout) return layout.error();
  std::vector<expert_layout> layouts;
  std::vector<slot_array> arrays;
  for (const auto l : each<layer_id>(shape.layers)) {
    layouts.push_back(layout_of(files, l));
    const auto& tensors = layouts.back().tensors;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const auto stride = static_cast<std::size_t>(tensors[t].bytes);
      auto* const begin = memory.first[index_of(l)][t] + static_cast<std::size_t>(first) * stride;
      arrays.push_back({{begin, static_cast<std::size_t>(count) * stride}, stride});
    }
  }
  auto bank = host_slot_bank::create_over(*layout, layouts, arrays);
  if (!bank) return bank.error();
  auto out = std::make_unique<filled_slots>(filled_slots{*std::move(layout), *std::move(bank)});
  auto backend = backend_type::create(*with.bytes, out->bank,
                                      {.threads = readers, .observer = with.view.get()});
  if (!backend) return backend.error();
  out->backend = *std::move(backend);
  return out;
}

result<std::optional<paged_experts::look_ahead>> paged_experts::make_look_ahead(
    const geometry& shape, const std::string& name) {
  if (name == "none") return std::optional<look_ahead>();
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

status paged_experts::visit(const routing_view& view) {
  rest();
  count_uses(view);
  using enum expert_bytes::copies;
  const auto when = distinct_ <= plan_.slots     ? at_once
                    : has_spares_for(view.layer) ? before_use
                                                 : after_use;
  is_placed_ = when != after_use;
  auto kept = view;
  if (when != at_once) keep_most_used(kept);
  made_.bytes->begin_visit(view.layer, when);
  const auto copies = when == before_use ? copy_to_spares(view.layer) : no_ticket;
  auto code = made_.cache->resolve(kept, stream_, visit_);
  if (is_placed_) made_.bytes->request_others_after(view.layer);
  if (code == status::ok && made_.ahead) prefetch(kept);
  if (copies != no_ticket && made_.spare->backend->fence(stream_, copies) != status::ok)
    code = status::fill_failed;
  made_.bytes->start_copies();
  begin_computation(view);
  return code;
}

void paged_experts::begin_computation(const routing_view& view) {
  if (!made_.view) return;
  const auto top_k = static_cast<std::size_t>(made_.own->layout.shape().top_k);
  computes_.emplace();
  computes_->layer = view.layer;
  computes_->step = view.step;
  computes_->tokens = view.experts.size() / top_k;
  computes_->begin = observed_clock::now();
}
void paged_experts::end_computation() {
  if (!computes_) return;
  computes_->end = observed_clock::now();
  made_.view->on_compute(*computes_);
  computes_.reset();
}

bool paged_experts::has_arrived(std::size_t tensor) {
  if (!made_.view) return made_.bytes->has_arrived(tensor);
  const auto begin = observed_clock::now();
  const bool arrived = made_.bytes->has_arrived(tensor);
  made_.view->on_wait({no_ticket, begin, observed_clock::now(), nullptr});
  return arrived;
}

void paged_experts::publish() {
  if (made_.view) made_.view->metrics().publish(*made_.cache, nullptr, stats());
}

void paged_experts::rest() {
  end_computation();
  const auto spoiled = made_.bytes->end_visit();
  made_.cache->release(visit_, stream_);
  if (spoiled) (void)made_.cache->invalidate(*spoiled);
}

void paged_experts::count_uses(const routing_view& view) {
  std::ranges::fill(uses_, 0);
  std::ranges::fill(spare_of_, -1);
  distinct_ = 0;
  for (const auto e : view.experts)
    if (e != no_expert && uses_[index_of(e)]++ == 0) ++distinct_;
}

/// Spare slots need the absent experts only. The mapping reads all experts of the layer, but ahead of the computation,
/// which takes longer than the reads if there are many tokens.
bool paged_experts::has_spares_for(layer_id layer) const {
  constexpr std::int32_t uses_in_a_read = 16;  // computed while an expert is read
  const auto row = made_.cache->row(layer);
  std::int32_t absent = 0;
  for (std::size_t e = 0; e < uses_.size(); ++e) absent += uses_[e] != 0 && row[e] == no_slot;
  const auto reads = absent + std::reduce(uses_.begin(), uses_.end()) / uses_in_a_read;
  return distinct_ <= plan_.slots + plan_.spares && reads <= std::ssize(uses_);
}

/// Leaves in the view the experts that take the slots. A resident counts twice: an expert that replaces it must be
/// read, and so must the resident itself, because the visit uses both.
void paged_experts::keep_most_used(routing_view& view) {
  std::vector<std::size_t> order(uses_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto row = made_.cache->row(view.layer);
  const auto weight = [&](std::size_t e) { return uses_[e] * (row[e] == no_slot ? 1 : 2); };
  std::ranges::stable_sort(order, std::greater(), weight);
  for (auto i = static_cast<std::size_t>(plan_.slots); i < static_cast<std::size_t>(distinct_); ++i)
    spare_of_[order[i]] = static_cast<std::int32_t>(i) - plan_.slots;
  kept_.clear();
  for (const auto e : view.experts)
    kept_.push_back(e == no_expert || spare_of_[index_of(e)] >= 0 ? -1 : number(e));
  view.experts = kept_;
}

ticket paged_experts::copy_to_spares(layer_id layer) {
  const auto first = first_slot_of(made_.spare->layout, layer);
  std::vector<fill> fills;
  for (const auto e : each<expert_id>(uses_.size()))
    if (const auto spare = spare_of_[index_of(e)]; spare >= 0)
      fills.push_back({.key = {layer, e}, .slot = first + spare});
  spared_ += fills.size();
  return made_.spare->backend->submit(fills, stream_, urgency::now).id;
}

void paged_experts::prefetch(const routing_view& view) {
  auto& ahead = *made_.ahead;
  ahead.policy.observe(view);
  const auto expected = ahead.predictor.expect(view);
  if (!is_placed_) return;  // the next layer is computed from the mapping, too
  const auto count = ahead.policy.propose(view, expected, ahead.requests);
  // A failed prefetch is requested again when the expert is routed, and reported then.
  (void)made_.cache->prefetch(visit_.plan().context(), std::span(ahead.requests).first(count),
                              stream_);
}

std::int32_t paged_experts::slot_of(layer_id layer, std::int32_t expert) const {
  const auto e = static_cast<std::size_t>(expert);
  if (spare_of_[e] >= 0) return plan_.slots + spare_of_[e];
  return number(made_.cache->row(layer)[e]) -
         static_cast<std::int32_t>(first_slot_of(made_.own->layout, layer));
}

pager_stats paged_experts::stats() const {
  auto out = made_.cache->stats();
  out.accesses += spared_;
  out.misses += spared_;
  if (made_.spare) out.bytes_filled += made_.spare->backend->bytes_moved();
  return out;
}

}  // namespace hotset_llama_cpp
