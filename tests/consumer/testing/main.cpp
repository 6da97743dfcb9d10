// SPDX-License-Identifier: Apache-2.0
// A user's own policy joins the suite from outside the source tree.
#include "hotset/eviction/fifo.hpp"
#include "hotset/testing/eviction_suite.hpp"

namespace {
/// An engine's own policy: no library header knows its name.
class first_come {
 public:
  using config = hotset::no_options;
  static constexpr std::string_view name = "first_come";
  static constexpr hotset::eviction_traits traits{};
  first_come(const hotset::pool_layout& layout, const config&) : inner_(layout) {}
  void on_visit(const hotset::visit_event& event) noexcept { inner_.on_visit(event); }
  void on_prefetch(const hotset::prefetch_event& event) noexcept { inner_.on_prefetch(event); }
  void on_evict(hotset::slot_id slot, hotset::expert_key key) noexcept {
    inner_.on_evict(slot, key);
  }
  void on_move(hotset::slot_id from, hotset::slot_id to) noexcept { inner_.on_move(from, to); }
  std::size_t select_victims(const hotset::visit_context& context,
                             const hotset::slot_mask& eligible,
                             std::span<hotset::slot_id> out) noexcept {
    return inner_.select_victims(context, eligible, out);
  }

 private:
  hotset::fifo inner_;
};

struct entry : hotset::suites::plain<first_come> {
  static hotset::reference::ranking rule() { return hotset::reference::by_arrival(); }
};
}  // namespace

HOTSET_EVICTION_CONFORMANCE(mine, entry);
