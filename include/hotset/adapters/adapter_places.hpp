// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where an adapter's experts go in the virtual weight tensors of all layers, strided or dense.
///
/// Rule: strided: experts + adapter * stride in every layer. Dense: in each layer the first run of free places that is long
///   enough; a layer of which nothing is tuned takes none.
/// Source: ExpertWeave, section 4.1; the dense placement is ours.
/// Cost: O(layers), dense O(layers * places).

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/adapters/dense_places.hpp"
#include "hotset/adapters/expert_redirect.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace hotset {

/// A copy can be tried out on: assigning one of the same shape allocates nothing. Threads: compatible.
class adapter_places {
 public:
  /// Errors: those of the configuration; no host memory.
  static result<adapter_places> create(std::int32_t layers,
                                       const expert_redirect::config& setup) noexcept {
    return unless_out_of_memory(
        [&]() -> result<adapter_places> {
          if (auto bad = setup.validate()) return *std::move(bad);
          adapter_places out(setup);
          if (setup.placement == adapter_placement::strided) return out;
          for (std::int32_t l = 0; l < layers; ++l) {
            auto places = dense_places::create(
                {expert_id{setup.experts}, static_cast<std::int32_t>(setup.all_places())});
            if (!places) return places.error();
            out.dense_.push_back(*std::move(places));
          }
          return out;
        },
        result<adapter_places>(no_host_memory()));
  }

  /// Fills `first` with an adapter's first place in each layer, all or none; experts, where nothing is tuned.
  /// Shape: tuned and first [layers]. Pre: 0 <= adapter < adapters, it has no places.
  bool take(std::int32_t adapter, std::span<const std::vector<expert_id>> tuned,
            std::span<expert_id> first) noexcept {
    for (std::size_t l = 0; l < tuned.size(); ++l) {
      first[l] = place_in(l, adapter, tuned[l]);
      if (first[l] != no_expert) continue;
      give(tuned.first(l), first.first(l));
      return false;
    }
    return true;
  }
  /// Shape: [layers], or the first ones of them. Pre: what `take` filled, of an adapter that has its places still.
  void give(std::span<const std::vector<expert_id>> tuned, id_view<expert_id> first) noexcept {
    if (dense_.empty()) return;
    for (std::size_t l = 0; l < tuned.size(); ++l)
      if (!tuned[l].empty()) (void)dense_[l].give(first[l], count_of(tuned[l]));
  }

 private:
  explicit adapter_places(const expert_redirect::config& setup) : setup_(setup) {}

  static std::int32_t count_of(const std::vector<expert_id>& tuned) noexcept {
    return static_cast<std::int32_t>(tuned.size());
  }
  expert_id place_in(std::size_t layer, std::int32_t adapter,
                     const std::vector<expert_id>& tuned) noexcept {
    if (tuned.empty()) return expert_id{setup_.experts};
    if (!dense_.empty()) return dense_[layer].take(count_of(tuned));
    const auto stride = setup_.stride != 0 ? setup_.stride : setup_.most_tuned;
    return expert_id{setup_.experts} + adapter * stride;
  }

  expert_redirect::config setup_;
  std::vector<dense_places> dense_{};  ///< [layers]; strided: empty
};

}  // namespace hotset
