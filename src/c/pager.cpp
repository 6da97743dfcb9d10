// SPDX-License-Identifier: Apache-2.0
/// The pager of the C interface: any policies by name, one call of a virtual function each.

#include "hotset/paging/pager.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/paging/visit/explain_visit.hpp"
#include "hotset/registry/policy_registry.hpp"

namespace hotset::c {

static_assert(static_cast<hotset_status>(status::ok) == HOTSET_OK);
static_assert(static_cast<hotset_status>(status::invalid_visit) == HOTSET_INVALID_VISIT);
static_assert(static_cast<hotset_status>(status::visit_too_large) == HOTSET_VISIT_TOO_LARGE);
static_assert(static_cast<hotset_status>(status::no_victim) == HOTSET_NO_VICTIM);
static_assert(static_cast<hotset_status>(status::plan_open) == HOTSET_PLAN_OPEN);
static_assert(static_cast<hotset_status>(status::visit_unfinished) == HOTSET_VISIT_UNFINISHED);
static_assert(static_cast<hotset_status>(status::no_plan) == HOTSET_NO_PLAN);
static_assert(static_cast<hotset_status>(status::busy) == HOTSET_BUSY);
static_assert(static_cast<hotset_status>(status::exceeds_memory) == HOTSET_EXCEEDS_MEMORY);
static_assert(static_cast<hotset_status>(status::fill_failed) == HOTSET_FILL_FAILED);
static_assert(static_cast<hotset_status>(status::invalid_argument) == HOTSET_INVALID_ARGUMENT);
static_assert(static_cast<hotset_status>(status::does_not_fit) == HOTSET_DOES_NOT_FIT);
static_assert(static_cast<int>(service::hit) == HOTSET_HIT &&
              static_cast<int>(service::fill) == HOTSET_FILL &&
              static_cast<int>(service::host) == HOTSET_HOST);
static_assert(static_cast<int>(visit_split::by_token) == HOTSET_SPLIT_BY_TOKEN &&
              static_cast<int>(visit_split::by_expert) == HOTSET_SPLIT_BY_EXPERT &&
              static_cast<int>(visit_split::refuse) == HOTSET_SPLIT_REFUSE &&
              static_cast<int>(visit_split::leave_rest) == HOTSET_SPLIT_LEAVE_REST);
static_assert(static_cast<int>(prefetch_guard::none) == HOTSET_GUARD_NONE &&
              static_cast<int>(prefetch_guard::named) == HOTSET_GUARD_NAMED &&
              static_cast<int>(prefetch_guard::predicted) == HOTSET_GUARD_PREDICTED);
// A plan's fills are handed out as they are; hotset_fill may alias.
static_assert(sizeof(fill) == sizeof(hotset_fill));
static_assert(alignof(fill) == alignof(hotset_fill));
static_assert(offsetof(fill, key) == offsetof(hotset_fill, key) &&
              offsetof(fill, slot) == offsetof(hotset_fill, slot) &&
              offsetof(fill, generation) == offsetof(hotset_fill, generation) &&
              offsetof(fill, victim) == offsetof(hotset_fill, victim) &&
              offsetof(fill, precision) == offsetof(hotset_fill, precision) &&
              offsetof(fill, speculative) == offsetof(hotset_fill, speculative) &&
              offsetof(fill, after) == offsetof(hotset_fill, after));
// Ids are handed out as they are, too: the types of hotset.h that point at them may alias.
static_assert(sizeof(expert_id) == sizeof(hotset_id) && sizeof(slot_id) == sizeof(hotset_id));

namespace {

expert_key key_of(hotset_key key) noexcept {
  return {static_cast<layer_id>(key.layer), static_cast<expert_id>(key.expert)};
}
hotset_key key_of(expert_key key) noexcept { return {number(key.layer), number(key.expert)}; }

void show(const visit_plan& plan, hotset_visit& out) noexcept {
  const auto experts = plan.experts();
  const auto fills = plan.fills();
  const auto tokens = plan.tokens();
  const auto routed = plan.routed();
  out.experts = static_cast<const hotset_id*>(experts.data());
  out.slots = reinterpret_cast<const hotset_id*>(plan.slots().data());
  out.services = reinterpret_cast<const std::uint8_t*>(plan.services().data());
  out.count = experts.size();
  out.fills = reinterpret_cast<const hotset_fill*>(fills.data());
  out.fill_count = fills.size();
  out.tokens = tokens.data();
  out.token_count = tokens.size();
  out.group = static_cast<std::uint32_t>(plan.group());
  out.groups = static_cast<std::uint32_t>(plan.groups());
  out.more = plan.more() ? 1 : 0;
  out.expert_wise = plan.expert_wise() ? 1 : 0;
  out.routed = static_cast<const hotset_id*>(routed.data());
  out.routed_count = routed.size();
}

}  // namespace

/// What a handle is, whatever its policies.
class any_handle : public handle {
 public:
  any_handle() = default;
  any_handle(const any_handle&) = delete;
  any_handle& operator=(const any_handle&) = delete;
  virtual ~any_handle() = default;

  virtual hotset_status plan(const hotset_view& view, hotset_visit& out) noexcept = 0;
  virtual hotset_status plan_next(hotset_visit& out) noexcept = 0;
  virtual hotset_status commit() noexcept = 0;
  virtual hotset_status abort(const std::uint8_t* begun, std::size_t count) noexcept = 0;
  virtual hotset_status abort_all() noexcept = 0;
  virtual hotset_status abandon() noexcept = 0;
  virtual hotset_status row(std::int32_t layer, const hotset_id** row,
                            std::size_t* experts) noexcept = 0;
  virtual hotset_status row_version(std::int32_t layer, std::uint64_t* version) noexcept = 0;
  virtual hotset_status locate(hotset_key key, std::int32_t* slot) noexcept = 0;
  virtual hotset_status precision(std::int32_t slot, std::int32_t* precision) noexcept = 0;
  virtual hotset_status pin(std::int32_t slot, std::uint64_t* pin) noexcept = 0;
  virtual hotset_status unpin(std::uint64_t pin, std::uint64_t reader) noexcept = 0;
  virtual hotset_status prefetch(std::int32_t layer, std::uint64_t step,
                                 std::span<const hotset_request> requests, std::size_t most,
                                 hotset_visit& out) noexcept = 0;
  virtual hotset_status expect(std::int32_t layer, std::uint64_t step, const float* probabilities,
                               std::size_t tokens, std::int32_t depth) noexcept = 0;
  enum class end : std::uint8_t { arrived, cancelled, failed };
  virtual hotset_status ended(end how, std::int32_t slot, std::uint32_t generation) noexcept = 0;
  virtual hotset_status invalidate(hotset_key key) noexcept = 0;
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): as the C function has them
  virtual hotset_status set_quota(std::int32_t layer, std::int32_t slots) noexcept = 0;
  virtual hotset_status quota(std::int32_t layer, std::int32_t* slots) noexcept = 0;
  virtual hotset_status residents(hotset_key* keys, std::size_t room, std::size_t* count) = 0;
  virtual hotset_status plan_warm(std::span<const hotset_key> keys, hotset_visit& out,
                                  std::size_t* consumed) noexcept = 0;
  virtual void stats(hotset_stats& out) = 0;
  [[nodiscard]] virtual std::uint64_t decision_hash() noexcept = 0;
};

namespace {

/// Tells the engine's function; the pager keeps its address.
struct listener {
  void (*departed)(void* user, const hotset_departure* departure) = nullptr;
  void* user = nullptr;

  [[nodiscard]] departure_sink sink() noexcept {
    if (departed == nullptr) return {};
    return {[](void* who, const departure& of) noexcept {
              const auto& self = *static_cast<listener*>(who);
              const hotset_departure told{c::key_of(of.key), number(of.slot), number(of.precision),
                                          of.last_reader};
              self.departed(self.user, &told);
            },
            this};
  }
};

template <class Pager>
class handle_of final : public any_handle {
 public:
  handle_of(Pager pages, std::unique_ptr<listener> told)
      : told_(std::move(told)),
        pages_(std::move(pages)),
        visit_(pages_.make_plan()),
        aside_(pages_.make_plan()),
        gathered_(pages_.shape()),
        requests_(pages_.shape().keys()),
        keys_(visit_.capacity()),
        begun_(visit_.capacity(), 1),
        needs_weights_(facts_of(pages_.eviction()).needs_weights ||
                       facts_of(pages_.misses()).needs_weights),
        needs_logits_(facts_of(pages_.misses()).needs_logits) {}

  hotset_status plan(const hotset_view& view, hotset_visit& out) noexcept override {
    // The visit under way still reads the rows that were gathered for it: refuse before gathering.
    if (open_ != nullptr) return refuse(HOTSET_PLAN_OPEN);
    if (pages_.is_unfinished(visit_)) return refuse(HOTSET_VISIT_UNFINISHED);
    if (const auto bad = check_scores(view, needs_weights_, needs_logits_, "the policies go");
        bad != HOTSET_OK)
      return bad;
    routing_view routed;
    if (const auto bad = read_view(view, pages_.shape(), gathered_, routed); bad != HOTSET_OK)
      return bad;
    const auto planned = pages_.plan(routed, visit_);
    if (planned == status::invalid_visit) return explained(routed);
    return shown(planned, visit_, out);
  }
  hotset_status plan_next(hotset_visit& out) noexcept override {
    return shown(pages_.plan_next(visit_), visit_, out);
  }
  hotset_status commit() noexcept override {
    if (open_ == nullptr) return refuse(HOTSET_NO_PLAN);
    return code_of(pages_.commit(*std::exchange(open_, nullptr)));
  }
  hotset_status abort(const std::uint8_t* begun, std::size_t count) noexcept override {
    if (open_ == nullptr) return refuse(HOTSET_NO_PLAN);
    const auto fills = open_->fills().size();
    if (begun != nullptr && count != fills)
      return refuse(HOTSET_INVALID_ARGUMENT, "%zu marks of begun copies, accepted: %zu, the plan's",
                    count, fills);
    if (begun == nullptr) count = 0;
    return code_of(pages_.abort(*std::exchange(open_, nullptr), std::span(begun, count)));
  }
  hotset_status abort_all() noexcept override {
    return abort(begun_.data(), open_ == nullptr ? 0 : open_->fills().size());
  }
  hotset_status abandon() noexcept override {
    if (open_ != nullptr) return refuse(HOTSET_PLAN_OPEN);
    pages_.abandon();
    return HOTSET_OK;
  }

  hotset_status row(std::int32_t layer, const hotset_id** row,
                    std::size_t* experts) noexcept override {
    if (const auto bad = check_layer(layer); bad != HOTSET_OK) return bad;
    const auto found = pages_.row(static_cast<layer_id>(layer));
    *row = reinterpret_cast<const hotset_id*>(found.data());
    *experts = found.size();
    return HOTSET_OK;
  }
  hotset_status row_version(std::int32_t layer, std::uint64_t* version) noexcept override {
    if (const auto bad = check_layer(layer); bad != HOTSET_OK) return bad;
    *version = pages_.row_version(static_cast<layer_id>(layer));
    return HOTSET_OK;
  }
  hotset_status locate(hotset_key key, std::int32_t* slot) noexcept override {
    if (const auto bad = check_key(key); bad != HOTSET_OK) return bad;
    *slot = number(pages_.locate(c::key_of(key)));
    return HOTSET_OK;
  }
  hotset_status precision(std::int32_t slot, std::int32_t* precision) noexcept override {
    if (const auto bad = check_slot(slot); bad != HOTSET_OK) return bad;
    *precision = number(pages_.precision_of(static_cast<slot_id>(slot)));
    return HOTSET_OK;
  }
  hotset_status pin(std::int32_t slot, std::uint64_t* pin) noexcept override {
    if (const auto bad = check_slot(slot); bad != HOTSET_OK) return bad;
    if (pages_.slot(static_cast<slot_id>(slot)).state == slot_state::free)
      return refuse(HOTSET_INVALID_ARGUMENT, "slot %d holds nothing, accepted: one that does",
                    slot);
    const auto made = pages_.pin(static_cast<slot_id>(slot));
    *pin = std::uint64_t{made.generation} << 32U | static_cast<std::uint32_t>(slot);
    return HOTSET_OK;
  }
  hotset_status unpin(std::uint64_t pin, std::uint64_t reader) noexcept override {
    const auto slot = static_cast<std::int32_t>(pin & 0xffffffffU);
    if (const auto bad = check_slot(slot); bad != HOTSET_OK) return bad;
    const auto generation = static_cast<std::uint32_t>(pin >> 32U);
    const auto& entry = pages_.slot(static_cast<slot_id>(slot));
    if (entry.generation == generation && entry.pins == 0)
      return refuse(HOTSET_INVALID_ARGUMENT, "slot %d is not pinned, accepted: a pin, once", slot);
    pages_.unpin({static_cast<slot_id>(slot), generation}, reader);
    return HOTSET_OK;
  }

  hotset_status prefetch(std::int32_t layer, std::uint64_t step,
                         std::span<const hotset_request> requests, std::size_t most,
                         hotset_visit& out) noexcept override {
    if (layer != number(before_layers))
      if (const auto bad = check_layer(layer); bad != HOTSET_OK) return bad;
    if (requests.size() > requests_.size())
      return refuse(HOTSET_INVALID_ARGUMENT, "%zu requests, accepted: %zu, the model's experts",
                    requests.size(), requests_.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (const auto bad = check_key(requests[i].key); bad != HOTSET_OK) return bad;
      requests_[i] = {c::key_of(requests[i].key), requests[i].for_step, requests[i].probability};
    }
    visit_context context;
    context.layer = static_cast<layer_id>(layer);
    context.step = step;
    if (layer >= 0) context.pool = pages_.layout().pool_of_layer(context.layer);
    const auto asked = std::span<const prefetch_request>(requests_).first(requests.size());
    return shown(pages_.plan_prefetch(context, asked, aside_, most), aside_, out);
  }
  hotset_status expect(std::int32_t layer, std::uint64_t step, const float* probabilities,
                       std::size_t tokens, std::int32_t depth) noexcept override {
    if (layer != number(before_layers))
      if (const auto bad = check_layer(layer); bad != HOTSET_OK) return bad;
    const auto& shape = pages_.shape();
    if (tokens > shape.tokens_per_visit())
      return refuse(HOTSET_INVALID_ARGUMENT, "%zu tokens, accepted: at most %d, max_tokens", tokens,
                    shape.max_tokens_per_visit);
    if (depth < 1 || depth > shape.layers)
      return refuse(HOTSET_INVALID_ARGUMENT, "depth = %d, accepted: 1..%d, layers", depth,
                    shape.layers);
    const std::span given(probabilities,
                          tokens * static_cast<std::size_t>(depth) * shape.expert_count());
    for (std::size_t i = 0; i < given.size(); ++i)
      if (!(given[i] >= 0.0F && given[i] <= 1.0F))
        return refuse(HOTSET_INVALID_ARGUMENT, "probability %zu is %g, accepted: 0..1", i,
                      double{given[i]});
    visit_context context;
    context.layer = static_cast<layer_id>(layer);
    context.step = step;
    pages_.expect(context, {.probabilities = given, .depth = depth});
    return HOTSET_OK;
  }
  hotset_status ended(end how, std::int32_t slot, std::uint32_t generation) noexcept override {
    if (const auto bad = check_slot(slot); bad != HOTSET_OK) return bad;
    const auto of = static_cast<slot_id>(slot);
    if (how == end::arrived) pages_.arrived(of, generation);
    if (how == end::cancelled) pages_.cancelled(of, generation);
    if (how == end::failed) pages_.failed(of, generation);
    return HOTSET_OK;
  }

  hotset_status invalidate(hotset_key key) noexcept override {
    if (key.expert == number(no_expert)) {
      if (const auto bad = check_layer(key.layer); bad != HOTSET_OK) return bad;
      return code_of(pages_.invalidate(static_cast<layer_id>(key.layer)));
    }
    if (const auto bad = check_key(key); bad != HOTSET_OK) return bad;
    return code_of(pages_.invalidate(c::key_of(key)));
  }
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): as the C function has them
  hotset_status set_quota(std::int32_t layer, std::int32_t slots) noexcept override {
    if (const auto bad = check_layer(layer); bad != HOTSET_OK) return bad;
    const auto of = static_cast<layer_id>(layer);
    const auto done = pages_.set_quota(of, slots);
    if (done == status::invalid_argument)
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "a quota of %d slots, accepted: %d or more, and at most "
                    "the pool's experts",
                    slots, pages_.least_quota(of));
    return code_of(done);
  }
  hotset_status quota(std::int32_t layer, std::int32_t* slots) noexcept override {
    if (const auto bad = check_layer(layer); bad != HOTSET_OK) return bad;
    *slots = pages_.quota(static_cast<layer_id>(layer));
    return HOTSET_OK;
  }
  hotset_status residents(hotset_key* keys, std::size_t room, std::size_t* count) override {
    const auto found = pages_.residents();
    *count = found.size();
    std::transform(found.begin(),
                   found.begin() + static_cast<std::ptrdiff_t>(std::min(room, found.size())), keys,
                   [](expert_key key) { return c::key_of(key); });
    return HOTSET_OK;
  }
  hotset_status plan_warm(std::span<const hotset_key> keys, hotset_visit& out,
                          std::size_t* consumed) noexcept override {
    // The keys beyond those of one plan are read by the calls that reach them.
    const auto first = keys.first(std::min(keys.size(), keys_.size()));
    for (const auto key : first)
      if (const auto bad = check_key(key); bad != HOTSET_OK) return bad;
    if (open_ != nullptr) return refuse(HOTSET_PLAN_OPEN);
    std::ranges::transform(first, keys_.begin(), [](hotset_key key) { return c::key_of(key); });
    const auto [code, dealt_with] =
        pages_.plan_warm(std::span<const expert_key>(keys_).first(first.size()), aside_);
    if (code == status::ok) *consumed = dealt_with;
    return shown(code, aside_, out);
  }
  void stats(hotset_stats& out) override {
    const auto s = pages_.stats();
    out = {.struct_size = out.struct_size,
           .visits = s.visits,
           .steps = s.steps,
           .accesses = s.accesses,
           .hits = s.hits,
           .misses = s.misses,
           .compulsory_misses = s.compulsory_misses,
           .collision_misses = s.collision_misses,
           .fills = s.fills,
           .bypasses = s.bypasses,
           .evictions = s.evictions,
           .split_visits = s.split_visits,
           .groups = s.groups,
           .failed_fills = s.failed_fills,
           .ignored_ids = s.ignored_ids,
           .bytes_filled = s.bytes_filled,
           .speculative_fills = s.speculative_fills,
           .prefetch_hits = s.prefetch_hits,
           .wasted_prefetches = s.wasted_prefetches};
  }
  [[nodiscard]] std::uint64_t decision_hash() noexcept override { return pages_.decision_hash(); }

 private:
  [[gnu::cold]] hotset_status explained(const routing_view& view) const noexcept {
    return guarded([&] {
      return refuse(HOTSET_INVALID_VISIT, "%s", explain_visit(view, pages_.shape()).c_str());
    });
  }
  hotset_status shown(status planned, visit_plan& plan, hotset_visit& out) noexcept {
    if (planned != status::ok) return code_of(planned);
    open_ = &plan;
    show(plan, out);
    return HOTSET_OK;
  }
  hotset_status check_layer(std::int32_t layer) const noexcept {
    if (is_within(static_cast<layer_id>(layer), pages_.shape().layers)) return HOTSET_OK;
    return refuse(HOTSET_INVALID_ARGUMENT, "layer %d, accepted: 0..%d", layer,
                  pages_.shape().layers - 1);
  }
  hotset_status check_key(hotset_key key) const noexcept {
    if (pages_.shape().contains(c::key_of(key))) return HOTSET_OK;
    return refuse(HOTSET_INVALID_ARGUMENT,
                  "layer %d, expert %d, accepted: layers 0..%d, experts 0..%d", key.layer,
                  key.expert, pages_.shape().layers - 1, pages_.shape().experts - 1);
  }
  hotset_status check_slot(std::int32_t slot) const noexcept {
    if (is_within(static_cast<slot_id>(slot), pages_.layout().slots())) return HOTSET_OK;
    return refuse(HOTSET_INVALID_ARGUMENT, "slot %d, accepted: 0..%zu", slot,
                  pages_.layout().slots() - 1);
  }

  std::unique_ptr<listener> told_;
  Pager pages_;
  visit_plan visit_;
  visit_plan aside_;  ///< what is not of a visit
  visit_plan* open_ = nullptr;
  gathered_rows gathered_;
  std::vector<prefetch_request> requests_;
  std::vector<expert_key> keys_;     ///< of a warm start: as many as one plan takes
  std::vector<std::uint8_t> begun_;  ///< all 1
  bool needs_weights_;
  bool needs_logits_;
};

/// Why the counts of arrays cannot be, or nothing. No array is read.
validation check_counts(const hotset_pager_options& o) {
  if (o.expert_bytes == nullptr && o.expert_bytes_count != 0)
    return error{"expert_bytes_count = " + std::to_string(o.expert_bytes_count) +
                 " without expert_bytes, accepted: both or neither"};
  if (o.expert_bytes != nullptr && o.expert_bytes_count != 1 &&
      o.expert_bytes_count != static_cast<std::size_t>(o.layers))
    return error{"expert_bytes has " + std::to_string(o.expert_bytes_count) +
                 " entries, accepted: 1 or one per layer (" + std::to_string(o.layers) + ")"};
  if ((o.lower_bytes == nullptr) != (o.lower_precisions == 0))
    return error{std::to_string(o.lower_precisions) + " lower precisions " +
                 (o.lower_bytes == nullptr ? "without" : "with") +
                 " lower_bytes, accepted: both or neither"};
  if (o.lower_precisions >= geometry::max_precisions)
    return error{std::to_string(o.lower_precisions) + " lower precisions, accepted: at most " +
                 std::to_string(geometry::max_precisions - 1)};
  return std::nullopt;
}
/// The model with its bytes.
result<geometry> read_shape(const hotset_pager_options& o) {
  auto shape = shape_of(o);
  if (auto bad = shape.validate()) return *std::move(bad);
  if (auto bad = check_counts(o)) return *std::move(bad);
  if (o.expert_bytes != nullptr)
    shape.expert_bytes.assign(o.expert_bytes, o.expert_bytes + o.expert_bytes_count);
  for (std::size_t p = 0; p < o.lower_precisions; ++p) {
    const auto* const first = o.lower_bytes + p * o.expert_bytes_count;
    shape.lower_precisions.emplace_back(first, first + o.expert_bytes_count);
  }
  return shape;
}
/// Of several precisions.
result<pool_layout> layout_of(const hotset_pager_options& o, const geometry& shape,
                              bool is_shared) {
  if (o.slots_of_precision == nullptr || o.slots != 0 || o.budget_bytes != 0)
    return error{std::to_string(shape.precisions()) +
                 " precisions, accepted: slots_of_precision, and neither slots nor budget_bytes"};
  const std::span slots(o.slots_of_precision, shape.precisions());
  return is_shared ? pool_layout::shared_by_precision(shape, slots)
                   : pool_layout::per_layer_by_precision(shape, slots);
}
result<pool_layout> layout_of(const hotset_pager_options& o) {
  const auto read = read_shape(o);
  if (!read) return read.error();
  const auto& shape = *read;
  if (o.scope != HOTSET_SCOPE_PER_LAYER && o.scope != HOTSET_SCOPE_SHARED)
    return error{"scope = " + std::to_string(o.scope) + ", accepted: 0, 1"};
  const bool is_shared = o.scope == HOTSET_SCOPE_SHARED;
  if (shape.precisions() > 1) return layout_of(o, shape, is_shared);
  if (o.slots_of_precision != nullptr)
    return error{"slots_of_precision of one precision, accepted: slots or budget_bytes"};
  if ((o.slots == 0) == (o.budget_bytes == 0))
    return error{"slots = " + std::to_string(o.slots) + " and budget_bytes = " +
                 std::to_string(o.budget_bytes) + ", accepted: one of them"};
  if (o.budget_bytes != 0)
    return pool_layout::within(shape, is_shared ? cache_scope::shared : cache_scope::per_layer,
                               o.budget_bytes);
  return is_shared ? pool_layout::shared(shape, o.slots) : pool_layout::per_layer(shape, o.slots);
}
result<pager_request> request_of(const hotset_pager_options& o) {
  auto layout = layout_of(o);
  if (!layout) return layout.error();
  if (o.split < 0 || o.split > HOTSET_SPLIT_LEAVE_REST)
    return error{"split = " + std::to_string(o.split) + ", accepted: 0..3"};
  if (o.guard < 0 || o.guard > HOTSET_GUARD_PREDICTED)
    return error{"guard = " + std::to_string(o.guard) + ", accepted: 0..2"};
  pager_request out{.layout = *std::move(layout),
                    .split = static_cast<visit_split>(o.split),
                    .guard = static_cast<prefetch_guard>(o.guard)};
  if (o.eviction != nullptr) out.eviction = o.eviction;
  if (o.admission != nullptr) out.admission = o.admission;
  if (o.miss != nullptr && std::string_view(o.miss) != "fetch") {
    auto miss = policies().miss.make(o.miss);
    if (!miss) return miss.error();
    out.miss = *std::move(miss);
  }
  return out;
}

result<std::unique_ptr<any_handle>> make(const hotset_pager_options& o) {
  auto wanted = request_of(o);
  if (!wanted) return wanted.error();
  auto told = std::make_unique<listener>(listener{o.departed, o.user});
  wanted->departures = told->sink();
  if (auto bad = policies().check_precisions(wanted->eviction, wanted->layout.precisions()))
    return *std::move(bad);
  return with_erased_pager(policies(), *wanted, {}, [&]<class Pager>(Pager pages) {
    return std::unique_ptr<any_handle>(
        std::make_unique<handle_of<Pager>>(std::move(pages), std::move(told)));
  });
}

}  // namespace
}  // namespace hotset::c

/// The handle that C sees.
struct hotset_pager {
  std::unique_ptr<hotset::c::any_handle> held;
};

namespace {

using hotset::c::accepts;
using hotset::c::guarded;
using hotset::c::needs;
using hotset::c::refuse;
using hotset::c::take;

/// Calls use(handle) with the pager to itself.
template <class Use>
hotset_status with(hotset_pager* pager, Use use) noexcept {
  return hotset::c::with(pager == nullptr ? nullptr : pager->held.get(), use);
}

hotset_status serve(hotset::c::any_handle& pager, const hotset_view& view,
                    const hotset_callbacks& calls) noexcept {
  hotset_visit visit{};
  visit.struct_size = sizeof visit;
  auto now = pager.plan(view, visit);
  while (now == HOTSET_OK) {
    if (calls.copy != nullptr && visit.fill_count != 0 &&
        calls.copy(calls.user, visit.fills, visit.fill_count) != 0) {
      (void)pager.abort_all();
      (void)pager.abandon();
      return refuse(HOTSET_FILL_FAILED, "a copy of layer %d failed", view.layer);
    }
    now = pager.commit();
    if (now != HOTSET_OK) break;
    if (calls.use != nullptr && calls.use(calls.user, &visit) != 0) {
      (void)pager.abandon();
      return refuse(HOTSET_STOPPED);
    }
    if (visit.more == 0) break;
    now = pager.plan_next(visit);
    if (now != HOTSET_OK) (void)pager.abandon();
  }
  return now;
}

}  // namespace

extern "C" {

hotset_status hotset_pager_create(const hotset_pager_options* options, hotset_pager** out) {
  if (const auto bad = needs(out, "out"); bad != HOTSET_OK) return bad;
  *out = nullptr;
  hotset_pager_options given{};
  if (const auto bad = take(options, given, "options"); bad != HOTSET_OK) return bad;
  return guarded([&] {
    auto made = hotset::c::make(given);
    if (!made) return refuse(HOTSET_INVALID_CONFIG, "%s", made.error().message.c_str());
    *out = new hotset_pager{*std::move(made)};
    return hotset_status{HOTSET_OK};
  });
}
void hotset_pager_destroy(hotset_pager* pager) { delete pager; }

hotset_status hotset_plan(hotset_pager* pager, const hotset_view* view, hotset_visit* out) {
  return with(pager, [&](auto& p) {
    hotset_view given{};
    if (const auto bad = take(view, given, "view"); bad != HOTSET_OK) return bad;
    if (const auto bad = accepts(out, "visit"); bad != HOTSET_OK) return bad;
    return p.plan(given, *out);
  });
}
hotset_status hotset_plan_next(hotset_pager* pager, hotset_visit* out) {
  return with(pager, [&](auto& p) {
    if (const auto bad = accepts(out, "visit"); bad != HOTSET_OK) return bad;
    return p.plan_next(*out);
  });
}
hotset_status hotset_commit(hotset_pager* pager) {
  return with(pager, [](auto& p) { return p.commit(); });
}
hotset_status hotset_abort(hotset_pager* pager, const uint8_t* begun, size_t count) {
  return with(pager, [&](auto& p) { return p.abort(begun, count); });
}
hotset_status hotset_abandon(hotset_pager* pager) {
  return with(pager, [](auto& p) { return p.abandon(); });
}
hotset_status hotset_serve(hotset_pager* pager, const hotset_view* view,
                           const hotset_callbacks* callbacks) {
  return with(pager, [&](auto& p) {
    hotset_view given{};
    hotset_callbacks calls{};
    if (const auto bad = take(view, given, "view"); bad != HOTSET_OK) return bad;
    if (const auto bad = take(callbacks, calls, "callbacks"); bad != HOTSET_OK) return bad;
    return serve(p, given, calls);
  });
}

hotset_status hotset_row(hotset_pager* pager, int32_t layer, const hotset_id** row,
                         size_t* experts) {
  return with(pager, [&](auto& p) {
    if (const auto bad = needs(row, "row"); bad != HOTSET_OK) return bad;
    if (const auto bad = needs(experts, "experts"); bad != HOTSET_OK) return bad;
    return p.row(layer, row, experts);
  });
}
hotset_status hotset_row_version(hotset_pager* pager, int32_t layer, uint64_t* version) {
  return with(pager, [&](auto& p) {
    if (const auto bad = needs(version, "version"); bad != HOTSET_OK) return bad;
    return p.row_version(layer, version);
  });
}
hotset_status hotset_locate(hotset_pager* pager, hotset_key key, int32_t* slot) {
  return with(pager, [&](auto& p) {
    if (const auto bad = needs(slot, "slot"); bad != HOTSET_OK) return bad;
    return p.locate(key, slot);
  });
}
hotset_status hotset_precision(hotset_pager* pager, int32_t slot, int32_t* precision) {
  return with(pager, [&](auto& p) {
    if (const auto bad = needs(precision, "precision"); bad != HOTSET_OK) return bad;
    return p.precision(slot, precision);
  });
}
hotset_status hotset_pin(hotset_pager* pager, int32_t slot, uint64_t* pin) {
  return with(pager, [&](auto& p) {
    if (const auto bad = needs(pin, "pin"); bad != HOTSET_OK) return bad;
    return p.pin(slot, pin);
  });
}
hotset_status hotset_unpin(hotset_pager* pager, uint64_t pin, uint64_t reader) {
  return with(pager, [&](auto& p) { return p.unpin(pin, reader); });
}

hotset_status hotset_prefetch(hotset_pager* pager, int32_t layer, uint64_t step,
                              const hotset_request* requests, size_t count, size_t most,
                              hotset_visit* out) {
  return with(pager, [&](auto& p) {
    if (const auto bad = count == 0 ? HOTSET_OK : needs(requests, "requests"); bad != HOTSET_OK)
      return bad;
    if (const auto bad = accepts(out, "visit"); bad != HOTSET_OK) return bad;
    return p.prefetch(layer, step, {requests, count}, most, *out);
  });
}
hotset_status hotset_expect(hotset_pager* pager, int32_t layer, uint64_t step,
                            const float* probabilities, size_t tokens, int32_t depth) {
  return with(pager, [&](auto& p) {
    if (const auto bad = tokens == 0 ? HOTSET_OK : needs(probabilities, "probabilities");
        bad != HOTSET_OK)
      return bad;
    return p.expect(layer, step, probabilities, tokens, depth);
  });
}
hotset_status hotset_arrived(hotset_pager* pager, int32_t slot, uint32_t generation) {
  return with(pager, [&](auto& p) {
    return p.ended(hotset::c::any_handle::end::arrived, slot, generation);
  });
}
hotset_status hotset_cancelled(hotset_pager* pager, int32_t slot, uint32_t generation) {
  return with(pager, [&](auto& p) {
    return p.ended(hotset::c::any_handle::end::cancelled, slot, generation);
  });
}
hotset_status hotset_failed(hotset_pager* pager, int32_t slot, uint32_t generation) {
  return with(pager, [&](auto& p) {
    return p.ended(hotset::c::any_handle::end::failed, slot, generation);
  });
}

hotset_status hotset_invalidate(hotset_pager* pager, hotset_key key) {
  return with(pager, [&](auto& p) { return p.invalidate(key); });
}
hotset_status hotset_set_quota(hotset_pager* pager, int32_t layer, int32_t slots) {
  return with(pager, [&](auto& p) { return p.set_quota(layer, slots); });
}
hotset_status hotset_quota(hotset_pager* pager, int32_t layer, int32_t* slots) {
  return with(pager, [&](auto& p) {
    if (const auto bad = needs(slots, "slots"); bad != HOTSET_OK) return bad;
    return p.quota(layer, slots);
  });
}
hotset_status hotset_residents(hotset_pager* pager, hotset_key* keys, size_t room, size_t* count) {
  return with(pager, [&](auto& p) {
    if (const auto bad = room == 0 ? HOTSET_OK : needs(keys, "keys"); bad != HOTSET_OK) return bad;
    if (const auto bad = needs(count, "count"); bad != HOTSET_OK) return bad;
    return guarded([&] { return p.residents(keys, room, count); });
  });
}
hotset_status hotset_plan_warm(hotset_pager* pager, const hotset_key* keys, size_t count,
                               hotset_visit* out, size_t* consumed) {
  return with(pager, [&](auto& p) {
    if (const auto bad = count == 0 ? HOTSET_OK : needs(keys, "keys"); bad != HOTSET_OK) return bad;
    if (const auto bad = accepts(out, "visit"); bad != HOTSET_OK) return bad;
    if (const auto bad = needs(consumed, "consumed"); bad != HOTSET_OK) return bad;
    return p.plan_warm({keys, count}, *out, consumed);
  });
}

hotset_status hotset_get_stats(hotset_pager* pager, hotset_stats* out) {
  return with(pager, [&](auto& p) {
    if (const auto bad = accepts(out, "stats"); bad != HOTSET_OK) return bad;
    return guarded([&] {
      p.stats(*out);
      return hotset_status{HOTSET_OK};
    });
  });
}
hotset_status hotset_decision_hash(hotset_pager* pager, uint64_t* hash) {
  return with(pager, [&](auto& p) {
    if (const auto bad = needs(hash, "hash"); bad != HOTSET_OK) return bad;
    *hash = p.decision_hash();
    return hotset_status{HOTSET_OK};
  });
}

}  // extern "C"
