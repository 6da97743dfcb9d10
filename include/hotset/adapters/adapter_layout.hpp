// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Computes the memory that a model and its adapters' tuned experts take, for each kind of placement.
///
/// Rule: a layer has one tensor for each part of an expert. It holds the base model's M experts; adapter i's e_i
///   experts begin at Delta_i.
///   exact: the bytes of all experts; no placement takes less. padding: L (M + A E_max) experts, not rounded to
///   pages.
///   virtual: Delta_i = M + i * stride; dense: Delta_i = M + the sum of earlier e, in each layer. Both take the pages
///   [0, ceil(M b / P)) and, if e_i > 0, [floor(Delta_i b / P), ceil((Delta_i + e_i) b / P)). A shared page counts
///   once.
///   merged: a whole model for each adapter.
/// Source: ExpertWeave, sections 3.1, 4.2 and 5.4.
/// Deviations: the paper has neither the page formula nor dense placement.
/// Cost: O(layers * adapters * tensors) for virtual and dense, O(layers * adapters) for the others.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/numbers/saturating.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// Threads: compatible.
class adapter_layout {
 public:
  static constexpr std::int32_t most_layers = 1 << 16;
  static constexpr std::int32_t most_experts = 1 << 20;
  static constexpr std::size_t most_adapters = std::size_t{1} << 20U;
  static constexpr std::size_t most_tensors = 64;
  /// Limit on the bytes of one expert part, on the bytes of a page, and on the stride in experts.
  static constexpr std::uint64_t most_extent = std::uint64_t{1} << 40U;
  /// Limit on the bytes of any placement, reserved addresses included.
  static constexpr std::uint64_t most_bytes = std::numeric_limits<std::int64_t>::max();

  struct config {
    std::int32_t layers = 0;   ///< layers that have experts, L
    std::int32_t experts = 0;  ///< experts in each layer of the base model, M
    /// Bytes of one expert, for each tensor of its layer.
    std::vector<std::uint64_t> tensor_bytes{};
    std::uint64_t page_bytes = std::uint64_t{2} << 20U;  ///< P
    std::uint64_t resident_bytes = 0;   ///< bytes of all other weights; part of every placement
    std::vector<std::int32_t> tuned{};  ///< Shape: [A, L]; experts tuned in a layer, e
    /// Distance between two adapters' first places, in experts; 0: E_max.
    std::uint64_t stride = 0;

    [[nodiscard]] validation validate() const {
      if (layers < 1 || layers > most_layers) return refuse("layers", layers, 1, most_layers);
      if (experts < 1 || experts > most_experts) return refuse("experts", experts, 1, most_experts);
      if (tensor_bytes.empty() || tensor_bytes.size() > most_tensors)
        return refuse("tensors", tensor_bytes.size(), 1, most_tensors);
      for (const auto bytes : tensor_bytes)
        if (bytes < 1 || bytes > most_extent) return refuse("tensor_bytes", bytes, 1, most_extent);
      if (page_bytes < 1 || page_bytes > most_extent)
        return refuse("page_bytes", page_bytes, 1, most_extent);
      if (auto bad = validate_tuned()) return bad;
      const auto most = static_cast<std::uint64_t>(most_tuned());
      if (stride != 0 && (stride < most || stride > most_extent))
        return refuse("stride", stride, most, most_extent);
      return validate_bytes();
    }

   private:
    friend class adapter_layout;

    template <class T, class Least, class Most>
    static error refuse(const char* name, T value, Least least, Most most) {
      return *refuse_value(name, value, std::to_string(least) + ".." + std::to_string(most));
    }
    [[nodiscard]] validation validate_tuned() const {
      const auto width = static_cast<std::size_t>(layers);
      if (tuned.size() % width != 0)
        return refusal("tuned counts = ", tuned.size(), ", accepted: ", layers,
                       " for each adapter");
      if (adapters() > most_adapters) return refuse("adapters", adapters(), 0, most_adapters);
      for (const auto e : tuned)
        if (e < 0 || e > experts) return refuse("tuned experts of a layer", e, 0, experts);
      return std::nullopt;
    }
    /// Checks the largest values: every size that is computed later is at most one of them.
    [[nodiscard]] validation validate_bytes() const {
      using detail::saturating_product;
      using detail::saturating_sum;
      const auto places =
          saturating_sum(to_unsigned(experts), saturating_product(adapters(), places_of_adapter()));
      std::uint64_t addressed = resident_bytes;
      std::uint64_t model = resident_bytes;
      for (const auto bytes : tensor_bytes) {
        const auto with_page = saturating_sum(saturating_product(places, bytes), page_bytes);
        addressed = saturating_sum(addressed, saturating_product(to_unsigned(layers), with_page));
        model = saturating_sum(
            model, saturating_product(to_unsigned(layers) * to_unsigned(experts), bytes));
      }
      if (addressed > most_bytes) return refuse("bytes of all places", addressed, 0, most_bytes);
      const auto merged = saturating_product(adapters(), model);
      if (merged > most_bytes) return refuse("bytes of merged models", merged, 0, most_bytes);
      return std::nullopt;
    }
    [[nodiscard]] std::size_t adapters() const noexcept {
      return tuned.size() / static_cast<std::size_t>(layers);
    }
    [[nodiscard]] std::int32_t most_tuned() const noexcept {
      return tuned.empty() ? 0 : *std::max_element(tuned.begin(), tuned.end());
    }
    [[nodiscard]] std::uint64_t places_of_adapter() const noexcept {
      return stride != 0 ? stride : to_unsigned(most_tuned());
    }
  };

  /// Errors: those of validate().
  static result<adapter_layout> create(config setup) {
    if (auto bad = setup.validate()) return *std::move(bad);
    return adapter_layout(std::move(setup));
  }

  [[nodiscard]] const config& shape() const noexcept { return setup_; }
  [[nodiscard]] std::size_t adapters() const noexcept { return setup_.adapters(); }
  /// Largest number of experts that any adapter tuned in one layer, E_max.
  [[nodiscard]] std::int32_t most_tuned() const noexcept { return setup_.most_tuned(); }
  /// Largest number of experts that this adapter tuned in one layer. Pre: adapter < adapters().
  [[nodiscard]] std::int32_t most_tuned(std::size_t adapter) const noexcept {
    const auto row = counts(adapter);
    return *std::max_element(row.begin(), row.end());
  }
  /// Tuned experts in all layers, for all adapters or for one. Pre: adapter < adapters().
  [[nodiscard]] std::uint64_t tuned() const noexcept { return sum_of(setup_.tuned); }
  [[nodiscard]] std::uint64_t tuned(std::size_t adapter) const noexcept {
    return sum_of(counts(adapter));
  }

  /// Mean share of the adapter's largest layer that its layers leave empty, S. Pre: adapter < adapters().
  [[nodiscard]] double sparsity(std::size_t adapter) const noexcept {
    return empty_share(tuned(adapter), layers() * to_unsigned(most_tuned(adapter)));
  }
  /// Mean share of E_max that the layers of all adapters leave empty.
  [[nodiscard]] double sparsity() const noexcept {
    return empty_share(tuned(), adapters() * layers() * to_unsigned(most_tuned()));
  }
  /// Experts that padding reserves room for.
  [[nodiscard]] std::uint64_t padded_experts() const noexcept {
    return layers() * (experts() + adapters() * to_unsigned(most_tuned()));
  }
  /// Experts that exist: the base model's and the tuned ones.
  [[nodiscard]] std::uint64_t held_experts() const noexcept {
    return layers() * experts() + tuned();
  }
  /// Ratio of padded to existing experts, F; 1: padding costs nothing.
  [[nodiscard]] double fragmentation() const noexcept {
    return static_cast<double>(padded_experts()) / static_cast<double>(held_experts());
  }

  [[nodiscard]] std::uint64_t stride() const noexcept { return setup_.places_of_adapter(); }
  /// Smallest stride of at least E_max experts that is a whole number of pages in every tensor.
  [[nodiscard]] std::uint64_t aligned_stride() const noexcept {
    std::uint64_t step = 1;  // divides page_bytes
    for (const auto bytes : setup_.tensor_bytes)
      step = std::lcm(step, setup_.page_bytes / std::gcd(setup_.page_bytes, bytes));
    return (to_unsigned(most_tuned()) + step - 1) / step * step;
  }

  /// Units of the functions below: bytes, all other weights included.
  [[nodiscard]] std::uint64_t exact_bytes() const noexcept { return plain_bytes(held_experts()); }
  [[nodiscard]] std::uint64_t padding_bytes() const noexcept {
    return plain_bytes(padded_experts());
  }
  [[nodiscard]] std::uint64_t merged_bytes() const noexcept {
    return adapters() * plain_bytes(layers() * experts());
  }
  [[nodiscard]] std::uint64_t virtual_bytes() const noexcept {
    return mapped_bytes([step = stride()](std::size_t adapter, std::uint64_t) {
      return static_cast<std::uint64_t>(adapter) * step;
    });
  }
  [[nodiscard]] std::uint64_t dense_bytes() const noexcept {
    return mapped_bytes([](std::size_t, std::uint64_t earlier) { return earlier; });
  }
  /// Address space that the virtual tensors reserve; not memory.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto one : setup_.tensor_bytes)
      bytes += layers() * pages((experts() + adapters() * stride()) * one) * setup_.page_bytes;
    return bytes;
  }

 private:
  explicit adapter_layout(config setup) noexcept : setup_(std::move(setup)) {}

  template <class T>
  static constexpr std::uint64_t to_unsigned(T n) noexcept {
    return static_cast<std::uint64_t>(n);
  }
  static std::uint64_t sum_of(std::span<const std::int32_t> counts) noexcept {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0},
                           [](std::uint64_t n, std::int32_t e) { return n + to_unsigned(e); });
  }
  static double empty_share(std::uint64_t used, std::uint64_t places) noexcept {
    return places == 0 ? 0 : static_cast<double>(places - used) / static_cast<double>(places);
  }

  [[nodiscard]] std::uint64_t layers() const noexcept { return to_unsigned(setup_.layers); }
  [[nodiscard]] std::uint64_t experts() const noexcept { return to_unsigned(setup_.experts); }
  [[nodiscard]] std::span<const std::int32_t> counts(std::size_t adapter) const noexcept {
    return std::span(setup_.tuned).subspan(adapter * layers(), layers());
  }
  [[nodiscard]] std::uint64_t pages(std::uint64_t bytes) const noexcept {
    return (bytes + setup_.page_bytes - 1) / setup_.page_bytes;
  }
  [[nodiscard]] std::uint64_t plain_bytes(std::uint64_t of_experts) const noexcept {
    std::uint64_t bytes = setup_.resident_bytes;
    for (const auto one : setup_.tensor_bytes) bytes += of_experts * one;
    return bytes;
  }

  /// place(adapter, tuned experts of earlier adapters in the layer): start of the adapter's run after the base model.
  template <class Place>
  [[nodiscard]] std::uint64_t mapped_bytes(Place place) const noexcept {
    std::uint64_t mapped = 0;
    for (std::size_t layer = 0; layer < layers(); ++layer)
      for (const auto bytes : setup_.tensor_bytes) mapped += mapped_pages(layer, bytes, place);
    return mapped * setup_.page_bytes + setup_.resident_bytes;
  }
  template <class Place>
  [[nodiscard]] std::uint64_t mapped_pages(std::size_t layer, std::uint64_t bytes,
                                           Place place) const noexcept {
    auto end = pages(experts() * bytes);  // runs ascend: every page after it is new
    auto mapped = end;
    std::uint64_t earlier = 0;
    for (std::size_t a = 0; a < adapters(); ++a) {
      const auto e = to_unsigned(setup_.tuned[a * layers() + layer]);
      if (e == 0) continue;
      const auto first = experts() + place(a, earlier);
      const auto begin = std::max(first * bytes / setup_.page_bytes, end);
      end = pages((first + e) * bytes);
      mapped += end - begin;
      earlier += e;
    }
    return mapped;
  }

  config setup_;
};

}  // namespace hotset
