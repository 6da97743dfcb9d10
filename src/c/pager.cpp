// SPDX-License-Identifier: Apache-2.0
/// The pager of the C interface: an erased pager behind a handle.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "called_eviction.hpp"
#include "calls.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/paging/explain.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/registry/pre_eviction.hpp"

namespace hotset::c {

constexpr bool same(auto ours, int theirs) noexcept { return static_cast<int>(ours) == theirs; }
static_assert(same(status::ok, HOTSET_OK) && same(status::invalid_visit, HOTSET_INVALID_VISIT) &&
              same(status::visit_too_large, HOTSET_VISIT_TOO_LARGE) &&
              same(status::no_victim, HOTSET_NO_VICTIM) &&
              same(status::plan_open, HOTSET_PLAN_OPEN) &&
              same(status::visit_unfinished, HOTSET_VISIT_UNFINISHED) &&
              same(status::no_plan, HOTSET_NO_PLAN) && same(status::busy, HOTSET_BUSY) &&
              same(status::exceeds_memory, HOTSET_EXCEEDS_MEMORY) &&
              same(status::fill_failed, HOTSET_FILL_FAILED) &&
              same(status::invalid_argument, HOTSET_INVALID_ARGUMENT) &&
              same(status::does_not_fit, HOTSET_DOES_NOT_FIT));
static_assert(same(service::hit, HOTSET_HIT) && same(service::fill, HOTSET_FILL) &&
              same(service::host, HOTSET_HOST));
static_assert(same(visit_split::by_token, HOTSET_SPLIT_BY_TOKEN) &&
              same(visit_split::by_expert, HOTSET_SPLIT_BY_EXPERT) &&
              same(visit_split::refuse, HOTSET_SPLIT_REFUSE) &&
              same(visit_split::leave_rest, HOTSET_SPLIT_LEAVE_REST));
static_assert(same(prefetch_guard::none, HOTSET_GUARD_NONE) &&
              same(prefetch_guard::named, HOTSET_GUARD_NAMED) &&
              same(prefetch_guard::predicted, HOTSET_GUARD_PREDICTED));
// A plan's fills are handed out without a copy; hotset_fill may alias.
static_assert(sizeof(fill) == sizeof(hotset_fill));
static_assert(alignof(fill) == alignof(hotset_fill));
static_assert(offsetof(fill, key) == offsetof(hotset_fill, key) &&
              offsetof(fill, slot) == offsetof(hotset_fill, slot) &&
              offsetof(fill, generation) == offsetof(hotset_fill, generation) &&
              offsetof(fill, victim) == offsetof(hotset_fill, victim) &&
              offsetof(fill, precision) == offsetof(hotset_fill, precision) &&
              offsetof(fill, speculative) == offsetof(hotset_fill, speculative) &&
              offsetof(fill, after) == offsetof(hotset_fill, after));
// Ids are handed out without a copy too: the types of hotset.h that point at them may alias.
static_assert(sizeof(expert_id) == sizeof(hotset_id) && sizeof(slot_id) == sizeof(hotset_id));

namespace {

expert_key key_of(hotset_key key) noexcept {
  return {static_cast<layer_id>(key.layer), static_cast<expert_id>(key.expert)};
}
hotset_key key_of(expert_key key) noexcept { return {number(key.layer), number(key.expert)}; }

/// Policies that act before the pager: they choose experts, and free slots for them.
struct front {
  any_routing_policy::config routing;
  std::optional<active_evict::config> pre_eviction;
};

/// Calls the engine's function.
struct listener {
  void (*removed)(void* user, const hotset_removal* removal) = nullptr;
  void* user = nullptr;

  [[nodiscard]] removal_listener sink() noexcept {
    if (removed == nullptr) return {};
    return {[](void* who, const removal& of) noexcept {
              const auto& self = *static_cast<listener*>(who);
              const hotset_removal reported{.key = key_of(of.key),
                                            .slot = number(of.slot),
                                            .precision = number(of.precision),
                                            .last_reader = of.last_reader};
              self.removed(self.user, &reported);
            },
            this};
  }
};

/// Functions of the program and their failures. The pager keeps its address.
struct outside {
  c::listener listener;
  policy_failure failure{};
};

}  // namespace
}  // namespace hotset::c

using namespace hotset;  // NOLINT(google-build-using-namespace): a source of one handle
using c::call;
using c::code_of;
using c::refuse;

/// Handle that C sees.
struct hotset_pager : c::handle {
  hotset_pager(erased_pager made, std::unique_ptr<c::outside> called, const c::front& before)
      : outside(std::move(called)),
        pages(std::move(made)),
        routing(pages.shape(), before.routing),
        visit(pages.make_plan()),
        aside(pages.make_plan()),
        gathered(pages.shape()),
        gathered_to_route(pages.shape()),
        requests(pages.shape().keys()),
        keys(visit.capacity()),
        selected(pages.shape().ids_per_visit()),
        begun(visit.capacity(), 1) {
    if (before.pre_eviction) pre_evictor.emplace(pages.shape(), *before.pre_eviction);
  }

  /// Refuses a visit before the last one has ended, which still reads the rows that were gathered for it.
  [[nodiscard]] hotset_status check_ended() const noexcept {
    if (open != nullptr) return c::refuse(HOTSET_PLAN_OPEN);
    return pages.is_unfinished(visit) ? c::refuse(HOTSET_VISIT_UNFINISHED) : HOTSET_OK;
  }

  [[nodiscard]] hotset_status check_layer(std::int32_t layer) const noexcept {
    if (is_within(static_cast<layer_id>(layer), pages.shape().layers)) return HOTSET_OK;
    return refuse(HOTSET_INVALID_ARGUMENT, "layer %d, accepted: 0..%d", layer,
                  pages.shape().layers - 1);
  }
  /// Accepts the layer of a running visit, or the layer number of a step that begins.
  [[nodiscard]] hotset_status check_running(std::int32_t layer) const noexcept {
    return layer == number(before_layers) ? HOTSET_OK : check_layer(layer);
  }
  [[nodiscard]] hotset_status check_key(hotset_key key) const noexcept {
    if (pages.shape().contains(c::key_of(key))) return HOTSET_OK;
    return refuse(HOTSET_INVALID_ARGUMENT,
                  "layer %d, expert %d, accepted: layers 0..%d, experts 0..%d", key.layer,
                  key.expert, pages.shape().layers - 1, pages.shape().experts - 1);
  }
  [[nodiscard]] hotset_status check_slot(std::int32_t slot) const noexcept {
    if (is_within(static_cast<slot_id>(slot), pages.layout().slots())) return HOTSET_OK;
    return refuse(HOTSET_INVALID_ARGUMENT, "slot %d, accepted: 0..%zu", slot,
                  pages.layout().slots() - 1);
  }

  /// Refuses to end a copy that the open plan reads. A copy whose slot the plan has reserved may end.
  [[nodiscard]] hotset_status check_unread(std::int32_t slot,
                                           std::uint32_t generation) const noexcept {
    const auto s = static_cast<slot_id>(slot);
    const auto& entry = pages.slot(s);
    const bool is_read = open != nullptr && entry.generation == generation &&
                         pages.locate(entry.key) == s &&
                         std::ranges::find(open->slots(), s) != open->slots().end();
    if (!is_read) return HOTSET_OK;
    return refuse(HOTSET_PLAN_OPEN, "the open plan reads slot %d, accepted: hotset_abort first",
                  slot);
  }

  /// Turns the code of a call in which a callback of the policy failed into POLICY_FAILED.
  [[nodiscard]] hotset_status ended(hotset_status code) const noexcept {
    auto& failure = outside->failure;
    if (!failure.happened()) return code;
    refuse(HOTSET_POLICY_FAILED, "%s", failure.text());
    failure.forget();
    return HOTSET_POLICY_FAILED;
  }

  std::unique_ptr<c::outside> outside;
  erased_pager pages;
  any_routing_policy routing;
  std::optional<active_evict> pre_evictor{};
  std::int32_t freed_for = number(before_layers);  ///< layer whose coming visit has freed slots
  visit_plan visit;
  visit_plan aside;  ///< plan that belongs to no visit
  visit_plan* open = nullptr;
  c::gathered_rows gathered;           ///< rows of the visit
  c::gathered_rows gathered_to_route;  ///< the visit before still shows its own rows
  std::vector<prefetch_request> requests;
  std::vector<expert_key> keys;     ///< scratch of a warm start: keys of one plan
  std::vector<expert_id> selected;  ///< by the routing policy
  std::vector<std::uint8_t> begun;  ///< all 1
};

namespace {

/// Returns why the arrays' counts do not match, or nothing. Reads no array.
validation check_counts(const hotset_pager_options& o) {
  if (o.expert_bytes == nullptr && o.expert_bytes_count != 0)
    return refusal("expert_bytes_count = ", o.expert_bytes_count,
                   " without expert_bytes, accepted: both or neither");
  if (o.expert_bytes != nullptr && o.expert_bytes_count != 1 &&
      o.expert_bytes_count != static_cast<std::size_t>(o.layers))
    return refusal("expert_bytes has ", o.expert_bytes_count,
                   " entries, accepted: 1 or one per layer (", o.layers, ")");
  if ((o.lower_bytes == nullptr) != (o.lower_precisions == 0))
    return refusal(o.lower_precisions, " lower precisions ",
                   o.lower_bytes == nullptr ? "without" : "with",
                   " lower_bytes, accepted: both or neither");
  if (o.lower_precisions >= geometry::max_precisions)
    return refusal(o.lower_precisions, " lower precisions, accepted: at most ",
                   geometry::max_precisions - 1);
  return std::nullopt;
}
/// Reads the model with its bytes.
result<geometry> read_shape(const hotset_pager_options& o) {
  auto shape = c::shape_of(o);
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
result<pool_layout> layout_of(const hotset_pager_options& o) {
  const auto shape = read_shape(o);
  if (!shape) return shape.error();
  const auto scope = c::scope_of(o.scope);
  if (!scope) return scope.error();
  const bool is_shared = *scope == cache_scope::shared;
  if (shape->precisions() > 1) {
    if (o.slots_of_precision == nullptr || o.slots != 0 || o.budget_bytes != 0)
      return refusal(shape->precisions(), " precisions, accepted: slots_of_precision, and neither ",
                     "slots nor budget_bytes");
    const std::span slots(o.slots_of_precision, shape->precisions());
    return is_shared ? pool_layout::shared_by_precision(*shape, slots)
                     : pool_layout::per_layer_by_precision(*shape, slots);
  }
  if (o.slots_of_precision != nullptr)
    return error{"slots_of_precision of one precision, accepted: slots or budget_bytes"};
  if ((o.slots == 0) == (o.budget_bytes == 0))
    return refusal("slots = ", o.slots, " and budget_bytes = ", o.budget_bytes,
                   ", accepted: one of them");
  if (o.budget_bytes != 0) return pool_layout::within(*shape, *scope, o.budget_bytes);
  return is_shared ? pool_layout::shared(*shape, o.slots) : pool_layout::per_layer(*shape, o.slots);
}
result<pager_request> request_of(const hotset_pager_options& o) {
  auto layout = layout_of(o);
  if (!layout) return layout.error();
  if (o.split < 0 || o.split > HOTSET_SPLIT_LEAVE_REST)
    return refusal("split = ", o.split, ", accepted: 0..3");
  if (o.guard < 0 || o.guard > HOTSET_GUARD_PREDICTED)
    return refusal("guard = ", o.guard, ", accepted: 0..2");
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
result<c::front> front_of(const hotset_pager_options& o) {
  const std::string_view name = o.routing == nullptr ? "router_order" : o.routing;
  auto routing = policies().routing.make(name);
  if (!routing) return routing.error();
  auto frees = make_pre_eviction(o.pre_eviction == nullptr ? "none" : o.pre_eviction);
  if (!frees) return frees.error();
  if (*frees && (*frees)->release != release_point::gate)
    return error{
        "active_evict: release=end, accepted: release=gate; hotset_expect frees slots when it is "
        "called"};
  if (auto bad = check_routing(name, routing->traits, frees->has_value(), "pre_eviction"))
    return *std::move(bad);
  return c::front{*std::move(routing), *frees};
}
/// Reads the policy that the options name, or the program's own.
validation choose_eviction(const hotset_pager_options& o, c::policy_failure& failure,
                           pager_request& wanted) {
  if (o.policy == nullptr)
    return policies().check_precisions(wanted.eviction, wanted.layout.precisions());
  if (o.eviction != nullptr)
    return refusal("eviction = ", o.eviction, " and a policy of your own, accepted: one of them");
  auto own = c::read_policy(o.policy, failure);
  if (!own) return own.error();
  wanted.own_eviction = any_eviction_policy::holding<c::called_eviction>(*std::move(own));
  return std::nullopt;
}
result<std::unique_ptr<hotset_pager>> make(const hotset_pager_options& o) {
  auto wanted = request_of(o);
  if (!wanted) return wanted.error();
  const auto front = front_of(o);
  if (!front) return front.error();
  auto outside = std::make_unique<c::outside>(c::outside{{o.removed, o.user}});
  wanted->removals = outside->listener.sink();
  if (auto bad = choose_eviction(o, outside->failure, *wanted)) return *std::move(bad);
  auto pages = policies().make_erased_pager(*wanted);
  if (!pages) return pages.error();
  return std::make_unique<hotset_pager>(*std::move(pages), std::move(outside), *front);
}

/// Shows a plan, which is open from now on.
hotset_status shown(hotset_pager& p, status planned, visit_plan& plan, hotset_visit& out) noexcept {
  if (planned != status::ok) return code_of(planned);
  if (p.outside->failure.happened()) {
    (void)p.pages.abort(plan);
    return HOTSET_POLICY_FAILED;
  }
  p.open = &plan;
  out = {.struct_size = out.struct_size,
         .experts = static_cast<const hotset_id*>(plan.experts().data()),
         .slots = reinterpret_cast<const hotset_id*>(plan.slots().data()),
         .services = reinterpret_cast<const std::uint8_t*>(plan.services().data()),
         .count = plan.experts().size(),
         .fills = reinterpret_cast<const hotset_fill*>(plan.fills().data()),
         .fill_count = plan.fills().size(),
         .tokens = plan.tokens().data(),
         .token_count = plan.tokens().size(),
         .group = static_cast<std::uint32_t>(plan.group()),
         .groups = static_cast<std::uint32_t>(plan.groups()),
         .more = plan.more() ? 1 : 0,
         .expert_wise = plan.expert_wise() ? 1 : 0,
         .routed = static_cast<const hotset_id*>(plan.routed().data()),
         .routed_count = plan.routed().size(),
         .late = reinterpret_cast<const hotset_id*>(plan.late_slots().data()),
         .late_count = plan.late_slots().size()};
  return HOTSET_OK;
}
hotset_status route(hotset_pager& p, const hotset_view& view, std::int32_t* experts) {
  if (const auto bad = p.check_ended(); bad != HOTSET_OK) return bad;
  if (const auto bad =
          c::check_scores(view, false, p.routing.facts().needs_logits, "the routing policy needs");
      bad != HOTSET_OK)
    return bad;
  routing_view routed;
  if (const auto bad = c::read_view(view, p.pages.shape(), p.gathered_to_route, routed);
      bad != HOTSET_OK)
    return bad;
  residency_view residents{p.pages.located(routed.layer)};
  if (view.layer == p.freed_for)
    residents.free_slots =
        static_cast<std::int32_t>(p.pages.free_slots(p.pages.layout().pool_of_layer(routed.layer)));
  const auto selected = std::span(p.selected).first(routed.experts.size());
  const auto done = p.routing.route(routed, residents, selected, {});
  if (done == status::ok) std::ranges::transform(selected, experts, number<expert_id>);
  return code_of(done);
}
hotset_status plan(hotset_pager& p, const hotset_view& view, hotset_visit& out) {
  if (const auto bad = p.check_ended(); bad != HOTSET_OK) return bad;
  const auto& misses = p.pages.misses().facts();
  const bool weighs = p.pages.eviction().facts().needs_weights || misses.needs_weights;
  if (const auto bad = c::check_scores(view, weighs, misses.needs_logits, "the policies need");
      bad != HOTSET_OK)
    return bad;
  routing_view routed;
  if (const auto bad = c::read_view(view, p.pages.shape(), p.gathered, routed); bad != HOTSET_OK)
    return bad;
  const auto planned = p.pages.plan(routed, p.visit);
  if (planned == status::invalid_visit)
    return refuse(HOTSET_INVALID_VISIT, "%s", explain_visit(routed, p.pages.shape()).c_str());
  if (planned == status::ok && view.layer == p.freed_for) p.freed_for = number(before_layers);
  return shown(p, planned, p.visit, out);
}
hotset_status plan_next(hotset_pager& p, hotset_visit& out) noexcept {
  return shown(p, p.pages.plan_next(p.visit), p.visit, out);
}
hotset_status commit(hotset_pager& p) noexcept {
  if (p.open == nullptr) return refuse(HOTSET_NO_PLAN);
  return code_of(p.pages.commit(*std::exchange(p.open, nullptr)));
}
hotset_status abandon(hotset_pager& p) noexcept {
  if (p.open != nullptr) return refuse(HOTSET_PLAN_OPEN);
  p.pages.abandon();
  return HOTSET_OK;
}
hotset_status serve(hotset_pager& p, const hotset_view& view, const hotset_callbacks& calls) {
  hotset_visit visit{};
  visit.struct_size = sizeof visit;
  auto now = plan(p, view, visit);
  while (now == HOTSET_OK) {
    if (calls.copy != nullptr && visit.fill_count != 0 &&
        calls.copy(calls.user, visit.fills, visit.fill_count) != 0) {
      (void)p.pages.abort(*std::exchange(p.open, nullptr),
                          std::span(p.begun).first(visit.fill_count));
      p.pages.abandon();
      return refuse(HOTSET_FILL_FAILED, "a copy of layer %d failed", view.layer);
    }
    now = commit(p);
    if (now != HOTSET_OK || p.outside->failure.happened()) {
      p.pages.abandon();
      break;
    }
    if (calls.use != nullptr && calls.use(calls.user, &visit) != 0) {
      p.pages.abandon();
      return refuse(HOTSET_STOPPED);
    }
    if (visit.more == 0) break;
    now = plan_next(p, visit);
    if (now != HOTSET_OK) p.pages.abandon();
  }
  return now;
}

visit_context context_of(const hotset_pager& p, std::int32_t layer, std::uint64_t step) noexcept {
  const auto of = static_cast<layer_id>(layer);
  return {.layer = of,
          .pool = layer < 0 ? pool_id{} : p.pages.layout().pool_of_layer(of),
          .step = step};
}
/// Frees slots for the layer after `layer`.
void pre_evict(hotset_pager& p, std::int32_t layer, std::uint64_t step, const forecast& expected) {
  const auto next = context_of(p, layer + 1, step);
  const auto wanted = p.pre_evictor->decide(expected, {p.pages.located(next.layer)});
  (void)p.pages.pre_evict(next, wanted.free, wanted.spared, [](slot_id, expert_key) {});
  p.freed_for = layer + 1;
}

}  // namespace

extern "C" {

hotset_status hotset_pager_create(const hotset_pager_options* options, hotset_pager** out) {
  const auto made = c::create(options, out, make);
  if (made != HOTSET_OK) return made;
  const auto code = (*out)->ended(HOTSET_OK);
  if (code != HOTSET_OK) delete std::exchange(*out, nullptr);
  return code;
}
void hotset_pager_destroy(hotset_pager* pager) { delete pager; }

hotset_status hotset_route(hotset_pager* pager, const hotset_view* view, int32_t* experts) {
  hotset_view given{};
  return call(pager)
      .reads(view, given, "view")
      .check([&] { return given.tokens == 0 ? HOTSET_OK : c::needs(experts, "experts"); })
      .run([&](hotset_pager& p) { return route(p, given, experts); });
}
hotset_status hotset_plan(hotset_pager* pager, const hotset_view* view, hotset_visit* out) {
  hotset_view given{};
  return call(pager).reads(view, given, "view").writes(out, "visit").run([&](hotset_pager& p) {
    return plan(p, given, *out);
  });
}
hotset_status hotset_plan_next(hotset_pager* pager, hotset_visit* out) {
  return call(pager).writes(out, "visit").run([&](hotset_pager& p) { return plan_next(p, *out); });
}
hotset_status hotset_commit(hotset_pager* pager) { return call(pager).run(commit); }
hotset_status hotset_abort(hotset_pager* pager, const uint8_t* begun, size_t count) {
  return call(pager).run([&](hotset_pager& p) {
    if (p.open == nullptr) return refuse(HOTSET_NO_PLAN);
    const auto fills = p.open->fills().size();
    if (begun != nullptr && count != fills)
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "begun has %zu entries, accepted: %zu, the plan's fills", count, fills);
    const std::span marks(begun, begun == nullptr ? 0 : count);
    return code_of(p.pages.abort(*std::exchange(p.open, nullptr), marks));
  });
}
hotset_status hotset_abandon(hotset_pager* pager) { return call(pager).run(abandon); }
hotset_status hotset_serve(hotset_pager* pager, const hotset_view* view,
                           const hotset_callbacks* callbacks) {
  hotset_view given{};
  hotset_callbacks calls{};
  return call(pager)
      .reads(view, given, "view")
      .reads(callbacks, calls, "callbacks")
      .run([&](hotset_pager& p) { return serve(p, given, calls); });
}

hotset_status hotset_row(hotset_pager* pager, int32_t layer, const hotset_id** row,
                         size_t* experts) {
  return call(pager)
      .needs(row, "row")
      .needs(experts, "experts")
      .layer(layer)
      .run([&](hotset_pager& p) {
        const auto found = p.pages.row(static_cast<layer_id>(layer));
        *row = reinterpret_cast<const hotset_id*>(found.data());
        *experts = found.size();
      });
}
hotset_status hotset_row_version(hotset_pager* pager, int32_t layer, uint64_t* version) {
  return call(pager).needs(version, "version").layer(layer).run([&](hotset_pager& p) {
    *version = p.pages.row_version(static_cast<layer_id>(layer));
  });
}
hotset_status hotset_locate(hotset_pager* pager, hotset_key key, int32_t* slot) {
  return call(pager).needs(slot, "slot").key(key).run([&](hotset_pager& p) {
    *slot = number(p.pages.locate(c::key_of(key)));
  });
}
hotset_status hotset_precision(hotset_pager* pager, int32_t slot, int32_t* precision) {
  return call(pager).needs(precision, "precision").slot(slot).run([&](hotset_pager& p) {
    *precision = number(p.pages.precision_of(static_cast<slot_id>(slot)));
  });
}
hotset_status hotset_pin(hotset_pager* pager, int32_t slot, uint64_t* pin) {
  return call(pager).needs(pin, "pin").slot(slot).run([&](hotset_pager& p) -> hotset_status {
    const auto& entry = p.pages.slot(static_cast<slot_id>(slot));
    if (entry.state == slot_state::free)
      return refuse(HOTSET_INVALID_ARGUMENT, "slot %d is free, accepted: one that holds an expert",
                    slot);
    if (p.pages.locate(entry.key) != static_cast<slot_id>(slot))
      return refuse(HOTSET_PLAN_OPEN,
                    "the open plan has reserved slot %d, accepted: a pin after hotset_commit",
                    slot);
    const auto made = p.pages.pin(static_cast<slot_id>(slot));
    *pin = std::uint64_t{made.generation} << 32U | static_cast<std::uint32_t>(slot);
    return HOTSET_OK;
  });
}
hotset_status hotset_unpin(hotset_pager* pager, uint64_t pin, uint64_t reader) {
  const auto slot = static_cast<std::int32_t>(pin & 0xffffffffU);
  return call(pager).slot(slot).run([&](hotset_pager& p) -> hotset_status {
    const slot_pin made{static_cast<slot_id>(slot), static_cast<std::uint32_t>(pin >> 32U)};
    const auto& entry = p.pages.slot(made.slot);
    if (entry.generation == made.generation && entry.pins == 0)
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "slot %d is not pinned, accepted: a pin that has not ended", slot);
    p.pages.unpin(made, reader);
    return HOTSET_OK;
  });
}

hotset_status hotset_prefetch(hotset_pager* pager, int32_t layer, uint64_t step,
                              const hotset_request* requests, size_t count, size_t most,
                              hotset_visit* out, size_t* consumed) {
  return call(pager)
      .needs(requests, count, "requests")
      .writes(out, "visit")
      .needs(consumed, "consumed")
      .check([&] { return pager->check_running(layer); })
      .run([&](hotset_pager& p) {
        if (count > p.requests.size())
          return refuse(HOTSET_INVALID_ARGUMENT, "%zu requests, accepted: %zu, the model's experts",
                        count, p.requests.size());
        // Later calls read the requests beyond those of one plan.
        const auto first = std::span(p.requests).first(std::min(count, p.aside.capacity()));
        for (std::size_t i = 0; i < first.size(); ++i) {
          const auto& r = requests[i];
          if (const auto bad = p.check_key(r.key); bad != HOTSET_OK) return bad;
          first[i] = {c::key_of(r.key), r.for_step, r.probability};
        }
        const auto planned =
            p.pages.plan_prefetch(context_of(p, layer, step), first, p.aside, most);
        if (planned == status::ok) *consumed = first.size();
        return shown(p, planned, p.aside, *out);
      });
}
hotset_status hotset_expect(hotset_pager* pager, int32_t layer, uint64_t step,
                            const float* probabilities, size_t tokens, int32_t depth) {
  return call(pager)
      .needs(probabilities, tokens, "probabilities")
      .check([&] { return pager->check_running(layer); })
      .run([&](hotset_pager& p) -> hotset_status {
        const auto& shape = p.pages.shape();
        if (tokens > shape.tokens_per_visit())
          return refuse(HOTSET_INVALID_ARGUMENT, "%zu tokens, accepted: at most %d, max_tokens",
                        tokens, shape.max_tokens_per_visit);
        if (depth < 1 || depth > shape.layers)
          return refuse(HOTSET_INVALID_ARGUMENT, "depth = %d, accepted: 1..%d, layers", depth,
                        shape.layers);
        const std::span given(probabilities,
                              tokens * static_cast<std::size_t>(depth) * shape.expert_count());
        for (std::size_t i = 0; i < given.size(); ++i)
          if (!(given[i] >= 0.0F && given[i] <= 1.0F))
            return refuse(HOTSET_INVALID_ARGUMENT, "probability %zu is %g, accepted: 0..1", i,
                          double{given[i]});
        if (p.pre_evictor && p.open != nullptr) return refuse(HOTSET_PLAN_OPEN);
        const forecast expected{.probabilities = given, .depth = depth};
        p.pages.expect(context_of(p, layer, step), expected);
        if (p.pre_evictor && tokens != 0 && layer + 1 != shape.layers)
          pre_evict(p, layer, step, expected);
        return HOTSET_OK;
      });
}
hotset_status hotset_arrived(hotset_pager* pager, int32_t slot, uint32_t generation) {
  return call(pager).slot(slot).run(
      [&](hotset_pager& p) { p.pages.arrived(static_cast<slot_id>(slot), generation); });
}
hotset_status hotset_cancelled(hotset_pager* pager, int32_t slot, uint32_t generation) {
  return call(pager)
      .slot(slot)
      .check([&] { return pager->check_unread(slot, generation); })
      .run([&](hotset_pager& p) {
        p.pages.cancelled(static_cast<slot_id>(slot), generation);
        // A committed visit may have taken it for a copy that arrives.
        p.pages.failed(static_cast<slot_id>(slot), generation);
      });
}
hotset_status hotset_failed(hotset_pager* pager, int32_t slot, uint32_t generation) {
  return call(pager)
      .slot(slot)
      .check([&] { return pager->check_unread(slot, generation); })
      .run([&](hotset_pager& p) { p.pages.failed(static_cast<slot_id>(slot), generation); });
}

hotset_status hotset_invalidate(hotset_pager* pager, hotset_key key) {
  if (key.expert == number(no_expert))
    return call(pager).layer(key.layer).run(
        [&](hotset_pager& p) { return p.pages.invalidate(static_cast<layer_id>(key.layer)); });
  return call(pager).key(key).run(
      [&](hotset_pager& p) { return p.pages.invalidate(c::key_of(key)); });
}
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters)
hotset_status hotset_set_quota(hotset_pager* pager, int32_t layer, int32_t slots) {
  return call(pager).layer(layer).run([&](hotset_pager& p) {
    const auto of = static_cast<layer_id>(layer);
    const auto done = p.pages.set_quota(of, slots);
    if (done == status::invalid_argument)
      return refuse(HOTSET_INVALID_ARGUMENT,
                    "a quota of %d slots, accepted: %d or more, and at most "
                    "the pool's experts",
                    slots, p.pages.least_quota(of));
    return code_of(done);
  });
}
hotset_status hotset_quota(hotset_pager* pager, int32_t layer, int32_t* slots) {
  return call(pager).needs(slots, "slots").layer(layer).run([&](hotset_pager& p) {
    *slots = p.pages.quota(static_cast<layer_id>(layer));
  });
}
hotset_status hotset_residents(hotset_pager* pager, hotset_key* keys, size_t room, size_t* count) {
  return call(pager).needs(keys, room, "keys").needs(count, "count").run([&](hotset_pager& p) {
    const auto found = p.pages.residents();
    if (p.outside->failure.happened()) return;
    *count = found.size();
    for (std::size_t i = 0; i < std::min(room, found.size()); ++i) keys[i] = c::key_of(found[i]);
  });
}
hotset_status hotset_plan_warm(hotset_pager* pager, const hotset_key* keys, size_t count,
                               hotset_visit* out, size_t* consumed) {
  return call(pager)
      .needs(keys, count, "keys")
      .writes(out, "visit")
      .needs(consumed, "consumed")
      .run([&](hotset_pager& p) {
        // Later calls read the keys beyond those of one plan.
        const auto first = std::span(p.keys).first(std::min(count, p.keys.size()));
        for (std::size_t i = 0; i < first.size(); ++i)
          if (const auto bad = p.check_key(keys[i]); bad != HOTSET_OK) return bad;
        if (p.open != nullptr) return refuse(HOTSET_PLAN_OPEN);
        for (std::size_t i = 0; i < first.size(); ++i) first[i] = c::key_of(keys[i]);
        const auto [code, dealt_with] = p.pages.plan_warm(first, p.aside);
        if (code == status::ok) *consumed = dealt_with;
        return shown(p, code, p.aside, *out);
      });
}

hotset_status hotset_get_stats(hotset_pager* pager, hotset_stats* out) {
  return call(pager).writes(out, "stats").run([&](hotset_pager& p) {
    const auto s = p.pages.stats();
    *out = {.struct_size = out->struct_size,
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
  });
}
hotset_status hotset_decision_hash(hotset_pager* pager, uint64_t* hash) {
  return call(pager).needs(hash, "hash").run([&](hotset_pager& p) {
    *hash = p.pages.decision_hash();
  });
}

}  // extern "C"
