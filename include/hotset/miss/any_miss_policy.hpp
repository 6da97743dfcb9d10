// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds any miss policy chosen or written at run time, and is one itself.
///
/// Rule: the held policy's.
/// Source: the shape of std::pmr and cuda::mr: the eraser models the concept that it erases.
/// Deviations: none.
/// Exact: as the held policy: `exact()`.
/// Cost: the held policy's and one virtual call each; a template instance has none.

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hotset/concepts/miss_policy.hpp"

namespace hotset::inline v0 {

/// Move-only. Pre, for every call but destruction and assignment: it holds a policy.
class any_miss_policy {
 public:
  /// How to build the policy that will be held.
  struct config {
    std::function<any_miss_policy(const geometry&)> factory{};
    std::function<validation(const geometry&)> inner_shape_validation{};  ///< none: any model
    validation inner_validation{};  ///< why the held policy's own configuration is refused
    [[nodiscard]] validation validate() const {
      if (inner_validation) return inner_validation;
      if (!factory) return error{"any_miss_policy factory = none, accepted: a factory"};
      return std::nullopt;
    }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return inner_shape_validation ? inner_shape_validation(shape) : std::nullopt;
    }
  };
  // What holds of some held policy; the held one's own are exact(), fetches_all_now() and wants_logits().
  static constexpr std::string_view name = "any";
  static constexpr bool is_exact = false;
  static constexpr bool fetches_all = false;
  static constexpr bool needs_logits = true;

  /// A config that builds M with these options.
  template <miss_policy M>
  [[nodiscard]] static config holding(typename M::config options = {}) {
    config out;
    out.inner_validation = options.validate();
    out.inner_shape_validation = [options](const geometry& shape) {
      return options.validate(shape);
    };
    out.factory = [options = std::move(options)](const geometry& shape) {
      return any_miss_policy(M(shape, options));
    };
    return out;
  }

  template <class M>
    requires(!std::same_as<std::remove_cvref_t<M>, any_miss_policy> &&
             miss_policy<std::remove_cvref_t<M>>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint spares moves
  explicit any_miss_policy(M&& policy)
      : held_(std::make_unique<model<std::remove_cvref_t<M>>>(std::forward<M>(policy))) {}
  any_miss_policy(const geometry& shape, const config& options)
      : any_miss_policy(options.factory(shape)) {}

  void decide(std::span<const miss> misses, const routing_view& view,
              const residency_view& residents, std::span<expert_id> ids,
              std::span<miss_decision> out) noexcept {
    held_->decide(misses, view, residents, ids, out);
  }
  void observe(std::span<const float> weights) noexcept { held_->observe(weights); }
  [[nodiscard]] precision_id prefetch_precision() noexcept { return held_->prefetch_precision(); }

  [[nodiscard]] bool has_value() const noexcept { return held_ != nullptr; }
  /// The held policy's name.
  [[nodiscard]] std::string_view held_name() const noexcept { return held_->held_name(); }
  [[nodiscard]] bool exact() const noexcept { return held_->exact(); }
  [[nodiscard]] bool fetches_all_now() const noexcept { return held_->fetches_all_now(); }
  [[nodiscard]] bool wants_logits() const noexcept { return held_->wants_logits(); }

 private:
  struct interface {
    interface() = default;
    interface(const interface&) = delete;
    interface& operator=(const interface&) = delete;
    virtual ~interface() = default;
    virtual void decide(std::span<const miss> misses, const routing_view& view,
                        const residency_view& residents, std::span<expert_id> ids,
                        std::span<miss_decision> out) noexcept = 0;
    virtual void observe(std::span<const float> weights) noexcept = 0;
    [[nodiscard]] virtual precision_id prefetch_precision() noexcept = 0;
    [[nodiscard]] virtual std::string_view held_name() const noexcept = 0;
    [[nodiscard]] virtual bool exact() const noexcept = 0;
    [[nodiscard]] virtual bool fetches_all_now() const noexcept = 0;
    [[nodiscard]] virtual bool wants_logits() const noexcept = 0;
  };

  template <class M>
  struct model final : interface {
    explicit model(M&& m) : policy(std::move(m)) {}
    explicit model(const M& m) : policy(m) {}
    void decide(std::span<const miss> misses, const routing_view& view,
                const residency_view& residents, std::span<expert_id> ids,
                std::span<miss_decision> out) noexcept override {
      policy.decide(misses, view, residents, ids, out);
    }
    void observe(std::span<const float> weights) noexcept override { policy.observe(weights); }
    [[nodiscard]] precision_id prefetch_precision() noexcept override {
      return policy.prefetch_precision();
    }
    [[nodiscard]] std::string_view held_name() const noexcept override { return M::name; }
    [[nodiscard]] bool exact() const noexcept override { return M::is_exact; }
    [[nodiscard]] bool fetches_all_now() const noexcept override { return M::fetches_all; }
    [[nodiscard]] bool wants_logits() const noexcept override { return M::needs_logits; }
    M policy;
  };

  std::unique_ptr<interface> held_;
};

static_assert(miss_policy<any_miss_policy>);

}  // namespace hotset::inline v0
