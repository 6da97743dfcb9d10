// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A small cache whose slots are a resizable pool, on a host or a device, with experts recognisable by their bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "host_experts.hpp"
#include "hotset/cache/expert_slots.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "pager_walk.hpp"
#include "resizable_suite.hpp"

namespace hotset::support {

/// Host slots and the backend that fills them.
struct elastic_host {
  using bank_type = host_slot_bank;
  using backend_type = host_backend<memory_expert_source>;

  elastic_host(const memory_expert_source& source, const pool_layout& layout,
               const std::vector<expert_layout>& layouts, memory_budget& budget)
      : bank(host_slot_bank::create_elastic(layout, layouts, budget).value()),
        backend(source, bank) {}

  bank_type bank;
  backend_type backend;
  host_stream stream;
};

/// Three layers of two size classes. An entry of the suite, except for the budget of its slots.
/// `Machine`: see elastic_host. `Times`: multiplies the tensor sizes of 100, 200 and 50 bytes.
template <class Machine, std::uint64_t Times = 1>
class elastic_experts_on {
 public:
  using cache_type = slot_cache<pager<lru>, typename Machine::backend_type>;
  using pool_type = expert_slots<cache_type, typename Machine::bank_type>;
  static constexpr std::uint64_t most_units = 12;
  static constexpr bool use_varies = false;  // slots that a token needs
  /// Bytes of a slot in every layer, in cache lines: two tensors in two layers, a small one in the third.
  static constexpr std::uint64_t in_lines(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }
  static constexpr std::uint64_t small_bytes = in_lines(50 * Times);
  static constexpr std::uint64_t unit_bytes =
      2 * (in_lines(100 * Times) + in_lines(200 * Times)) + small_bytes;

  elastic_experts_on(memory_budget& budget, std::uint64_t units)
      : machine(source_, layout_, layouts(), budget),
        cache_(pager<lru>({.layout = layout_}), machine.backend),
        visit_(cache_.make_visit()),
        pool(cache_, machine.bank, machine.stream) {
    EXPECT_EQ(pool.open(units), status::ok);
    EXPECT_EQ(pool.unit_bytes(), unit_bytes);
  }

  void fill() {
    random_source random(1);
    while (held() < pool.capacity()) serve(random);
  }
  void let_go() {}
  void serve(random_source& random) {
    for (int n = 0; n < 12; ++n) {
      std::vector<expert_id> ids(2 * (1 + random.below(4)));
      for (auto& id : ids) id = expert_id{random.id_below(shape_.experts)};
      ASSERT_EQ(cache_.serve(view(layer_id{n % shape_.layers}, ids), machine.stream, visit_,
                             [](const visit_group&) {}),
                status::ok);
    }
    ASSERT_EQ(cache_.drain(), status::ok);
  }
  /// Slots of the layer that has the fewest.
  [[nodiscard]] std::uint64_t held() const {
    std::uint64_t fewest = most_units;
    for (const auto l : each<layer_id>(shape_.layers)) {
      const auto row = cache_.row(l);
      const auto absent = static_cast<std::uint64_t>(std::count(row.begin(), row.end(), no_slot));
      fewest = std::min(fewest, row.size() - absent);
    }
    return fewest;
  }
  content_places places() {
    content_places out;
    for (std::size_t k = 0; k < shape_.keys(); ++k) {
      const auto key = shape_.key(k);
      const auto slot = cache_.row(key.layer)[static_cast<std::size_t>(key.expert)];
      if (slot == no_slot) continue;
      const auto name = "layer " + to_string(key.layer) + " expert " + to_string(key.expert);
      const auto& bank = machine.bank;
      EXPECT_TRUE(slot_holds(bank, slot, key)) << name;
      out[name] = bank.bytes(slot, 0).data();
    }
    expect_consistent(cache_.pager());
    return out;
  }

  /// An open visit of residents only.
  class open_visit {
   public:
    explicit open_visit(elastic_experts_on& owner) : owner_(owner) {
      const auto row = owner.cache_.row(0_layer);
      std::vector<expert_id> ids;
      for (expert_id e{}; ids.size() < 2; ++e)
        if (row[static_cast<std::size_t>(e)] != no_slot) ids.push_back(e);
      EXPECT_EQ(owner.cache_.resolve(view(0_layer, ids), owner.machine.stream, owner.visit_),
                status::ok);
    }
    open_visit(const open_visit&) = delete;
    open_visit& operator=(const open_visit&) = delete;
    ~open_visit() { owner_.cache_.release(owner_.visit_, owner_.machine.stream); }

   private:
    elastic_experts_on& owner_;
  };
  [[nodiscard]] open_visit hold_up() { return open_visit(*this); }

 private:
  static std::vector<expert_layout> layouts() {
    return {{{{"up", 100 * Times}, {"down", 200 * Times}}}, {{{"all", 50 * Times}}}};
  }
  static routing_view view(layer_id layer, const std::vector<expert_id>& ids) {
    return {.layer = layer, .experts = ids};
  }

  geometry shape_{.layers = 3,
                  .experts = 12,
                  .top_k = 2,
                  .max_tokens_per_visit = 4,
                  .expert_bytes = {300 * Times, 50 * Times, 300 * Times}};
  pool_layout layout_ = pool_layout::per_layer(shape_, shape_.experts).value();
  std::vector<std::vector<std::byte>> bytes_;
  memory_expert_source source_ = patterned_source(shape_, layouts(), bytes_);

 public:
  Machine machine;

 private:
  cache_type cache_;
  cache_visit visit_;

 public:
  pool_type pool;
};
using elastic_experts = elastic_experts_on<elastic_host>;

}  // namespace hotset::support
