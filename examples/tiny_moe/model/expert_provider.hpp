// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Interface between the decoder and its experts' storage: one virtual call per visit.

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "hotset/core/ids.hpp"
#include "kernels.hpp"

namespace tiny_moe {

/// A provider broke its contract: an expert without weights, a token skipped or computed twice. A programming error.
class provider_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Purpose of a forward pass.
enum class request_kind : std::uint8_t { decode = 0, prefill = 1, verify = 2 };

/// A forward pass with one row per token. The spans are valid only during `expert_provider::on_step`.
struct step_inputs {
  std::uint64_t step = 0;
  request_kind kind = request_kind::decode;
  std::span<const std::int32_t> token_ids{};  ///< [tokens]
  /// [tokens], kv_pool::number of each token's sequence.
  std::span<const std::uint32_t> sequences{};
  std::span<const std::uint32_t> adapters{};  ///< [tokens], kv_pool::adapter of each token
};

/// Routing of one layer in one step. The spans are valid only during `expert_provider::run`.
struct visit_inputs {
  hotset::layer_id layer{};
  std::uint64_t step = 0;
  request_kind kind = request_kind::decode;
  std::size_t tokens = 0;
  std::size_t experts = 0;
  std::size_t top_k = 0;
  std::size_t hidden_size = 0;
  /// [tokens * top_k], rank order; a provider may edit them before computing, -1 drops a rank.
  std::span<std::int32_t> ids;
  std::span<float> weights;                    ///< [tokens * top_k]; may be edited, too
  std::span<const float> logits;               ///< [tokens * experts]
  std::span<const float> probabilities;        ///< [tokens * experts]
  std::span<const float> hidden;               ///< [tokens * hidden_size]
  std::span<const std::int32_t> token_ids{};   ///< [tokens], those of the step
  std::span<const std::uint32_t> sequences{};  ///< [tokens], those of the step
  std::span<const std::uint32_t> adapters{};   ///< [tokens], those of the step
};

/// A reference to a callable `expert_tensors(std::int32_t expert)`; called once per distinct expert of a call.
class expert_lookup {
 public:
  template <class Function>
    requires(!std::is_same_v<std::remove_cvref_t<Function>, expert_lookup> &&
             std::is_invocable_r_v<expert_tensors, const Function&, std::int32_t>)
  expert_lookup(const Function& function)
  noexcept
      : context_(std::addressof(function)),
        call_([](const void* context, std::int32_t expert) -> expert_tensors {
          return (*static_cast<const Function*>(context))(expert);
        }) {}

  [[nodiscard]] expert_tensors operator()(std::int32_t expert) const {
    return call_(context_, expert);
  }

 private:
  const void* context_;
  expert_tensors (*call_)(const void*, std::int32_t);
};

/// Computing interface that the decoder lends a provider during a visit. Every (token, rank) with an id must be
/// computed exactly once.
class visit_compute {
 public:
  /// Computes all experts of these tokens (places in the visit, each < tokens). Each token is summed in rank order,
  /// so any grouping of tokens gives the same bits. Errors: provider_error if an expert has no weights, a token is
  /// out of range, or a rank was computed before.
  void operator()(std::span<const std::int32_t> tokens, expert_lookup lookup) {
    compute_tokens(tokens, lookup);
  }
  /// Computes all tokens of the visit.
  void all(expert_lookup lookup) { compute_all(lookup); }
  /// Adds the contributions of these experts to every token that routed them, experts in the given order. Not
  /// byte-identical to computing by tokens: the order of summation follows the calls. Errors: those of operator().
  void partial(std::span<const std::int32_t> experts, expert_lookup lookup) {
    compute_partial(experts, lookup);
  }
  /// Takes the outputs of all experts of these tokens from elsewhere, such as a device. Each token is summed in rank
  /// order, as by operator(). Shape: [tokens, top_k, hidden_size]; rows of ranks with id -1 are not read. Errors:
  /// those of operator(), and provider_error for another size.
  void take(std::span<const std::int32_t> tokens, std::span<const float> outputs) {
    take_outputs(tokens, outputs);
  }

 protected:
  visit_compute() = default;
  visit_compute(const visit_compute&) = default;
  visit_compute& operator=(const visit_compute&) = default;
  ~visit_compute() = default;

 private:
  virtual void compute_tokens(std::span<const std::int32_t> tokens, expert_lookup lookup) = 0;
  virtual void compute_all(expert_lookup lookup) = 0;
  virtual void compute_partial(std::span<const std::int32_t> experts, expert_lookup lookup) = 0;
  virtual void take_outputs(std::span<const std::int32_t> tokens,
                            std::span<const float> outputs) = 0;
};

/// Serves the experts of each visit: makes their weights reachable, then calls `compute` as often as needed.
class expert_provider {
 public:
  virtual ~expert_provider() = default;
  /// Called when a forward pass begins; all of its visits have these tokens.
  virtual void on_step(const step_inputs& step);
  /// Called for one layer of the pass. On return, every routed (token, rank) with an id other than -1 must have been
  /// computed.
  virtual void run(const visit_inputs& visit, visit_compute& compute) = 0;
  /// Called when a sequence has had its last token.
  virtual void on_sequence_end(std::uint32_t sequence) noexcept;

 protected:
  expert_provider() = default;
  expert_provider(const expert_provider&) = default;
  expert_provider& operator=(const expert_provider&) = default;
};

class model;

/// Full residency: reads every expert from the mapped model file.
class resident_experts final : public expert_provider {
 public:
  /// Pre: `weights` outlives the provider.
  explicit resident_experts(const model& weights) noexcept : model_(&weights) {}
  void run(const visit_inputs& visit, visit_compute& compute) override;

 private:
  const model* model_;
};

}  // namespace tiny_moe
