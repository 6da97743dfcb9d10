// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/engine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <Eigen/Core>
#include <fmt/format.h>

namespace tiny_moe {
namespace {

// Tokens computed at once inside one call of the provider: bounds the scratch, changes no bit.
constexpr std::size_t chunk_tokens = 64;

void add_to(float* sum, const float* addend, std::size_t size) noexcept {
  const auto n = static_cast<Eigen::Index>(size);
  Eigen::Map<Eigen::ArrayXf>(sum, n) += Eigen::Map<const Eigen::ArrayXf>(addend, n);
}

void add_scaled(float* sum, const float* addend, float scale, std::size_t size) noexcept {
  const auto n = static_cast<Eigen::Index>(size);
  Eigen::Map<Eigen::ArrayXf>(sum, n) += Eigen::Map<const Eigen::ArrayXf>(addend, n) * scale;
}

std::size_t checked(const char* name, std::size_t asked, std::size_t limit) {
  if (asked == 0) return limit;
  if (asked > limit) {
    throw std::invalid_argument(
        fmt::format("engine_config: {} is {}; accepted: 0..{}", name, asked, limit));
  }
  return asked;
}

}  // namespace

// Lent to the provider for one visit; keeps account of what has been computed.
class engine::compute_of_visit final : public visit_compute {
 public:
  compute_of_visit(engine& owner, std::size_t layer, std::size_t tokens) noexcept
      : engine_(owner),
        layer_(layer),
        tokens_(tokens),
        experts_(owner.model_->config().experts),
        top_k_(owner.model_->config().top_k),
        hidden_(owner.model_->config().hidden_size) {}

  // Errors: provider_error if a routed rank was left out.
  void finish() const {
    for (std::size_t place = 0; place < tokens_ * top_k_; ++place) {
      if (engine_.ids_[place] != -1 && engine_.computed_[place] == 0) {
        throw provider_error(
            fmt::format("layer {}: the provider left out expert {} of token {} (rank {})", layer_,
                        engine_.ids_[place], place / top_k_, place % top_k_));
      }
    }
  }

 private:
  void compute_all(expert_lookup lookup) override {
    compute_tokens({engine_.all_tokens_.data(), tokens_}, lookup);
  }

  void compute_tokens(std::span<const std::int32_t> tokens, expert_lookup lookup) override {
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk_tokens) {
      compute_chunk(tokens.subspan(begin, std::min(chunk_tokens, tokens.size() - begin)), lookup);
    }
  }

  // All experts of at most chunk_tokens tokens: rows are grouped by expert, so that each expert's
  // weights are read once, and every token is then summed in rank order.
  void compute_chunk(std::span<const std::int32_t> tokens, expert_lookup lookup) {
    auto& first = engine_.first_row_;
    std::fill(first.begin(), first.end(), std::size_t{0});
    for (const std::int32_t token : tokens) {
      const std::size_t t = checked_token(token);
      for (std::size_t rank = 0; rank < top_k_; ++rank) {
        const std::int32_t expert = engine_.ids_[t * top_k_ + rank];
        if (expert == -1) continue;
        mark(t * top_k_ + rank);
        ++first[checked_expert(expert) + 1];
      }
    }
    std::partial_sum(first.begin(), first.end(), first.begin());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto t = static_cast<std::size_t>(tokens[i]);
      for (std::size_t rank = 0; rank < top_k_; ++rank) {
        const std::int32_t expert = engine_.ids_[t * top_k_ + rank];
        if (expert == -1) continue;
        engine_.rows_[first[static_cast<std::size_t>(expert)]++] = {
            .token = tokens[i], .place = static_cast<std::int32_t>(i * top_k_ + rank)};
      }
    }
    // first[e] now is the end of e's rows, and so the begin of e + 1's.
    std::size_t begin = 0;
    for (std::size_t e = 0; e < experts_; ++e) {
      const std::size_t end = first[e];
      if (end != begin) run(e, lookup, std::span(engine_.rows_).subspan(begin, end - begin));
      begin = end;
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto t = static_cast<std::size_t>(tokens[i]);
      for (std::size_t rank = 0; rank < top_k_; ++rank) {
        if (engine_.ids_[t * top_k_ + rank] != -1) add(t * top_k_ + rank, i * top_k_ + rank);
      }
    }
  }

  void compute_partial(std::span<const std::int32_t> experts, expert_lookup lookup) override {
    std::array<std::size_t, chunk_tokens> places{};  // token * top_k + rank of each row
    for (const std::int32_t expert : experts) {
      const std::size_t e = checked_expert(expert);
      std::size_t rows = 0;
      const auto flush = [&] {
        if (rows != 0) run(e, lookup, std::span(engine_.rows_).first(rows));
        for (std::size_t r = 0; r < rows; ++r) add(places[r], r);
        rows = 0;
      };
      for (std::size_t place = 0; place < tokens_ * top_k_; ++place) {
        if (engine_.ids_[place] != expert) continue;
        mark(place);
        places[rows] = place;
        engine_.rows_[rows] = {.token = static_cast<std::int32_t>(place / top_k_),
                               .place = static_cast<std::int32_t>(rows)};
        if (++rows == chunk_tokens) flush();
      }
      flush();
    }
  }

  void take_outputs(std::span<const std::int32_t> tokens, std::span<const float> outputs) override {
    const std::size_t of_token = top_k_ * hidden_;
    if (outputs.size() != tokens.size() * of_token) {
      throw provider_error(fmt::format("layer {}: the provider gave {} floats; accepted: {}",
                                       layer_, outputs.size(), tokens.size() * of_token));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::size_t t = checked_token(tokens[i]);
      for (std::size_t rank = 0; rank < top_k_; ++rank) {
        const std::size_t place = t * top_k_ + rank;
        if (engine_.ids_[place] == -1) continue;
        mark(place);
        add_scaled(engine_.added_.data() + t * hidden_,
                   outputs.data() + i * of_token + rank * hidden_, engine_.weights_[place],
                   hidden_);
      }
    }
  }

  void run(std::size_t expert, expert_lookup lookup, std::span<const expert_row> rows) {
    const expert_tensors tensors = lookup(static_cast<std::int32_t>(expert));
    if (tensors.gate == nullptr || tensors.up == nullptr || tensors.down == nullptr) {
      throw provider_error(fmt::format(
          "layer {}: the provider has no weights for expert {} that it asked to compute", layer_,
          expert));
    }
    const auto& config = engine_.model_->config();
    run_expert(tensors, hidden_, config.inner_size, engine_.normed_.data(), rows,
               engine_.expert_out_.data(), engine_.scratch_.data());
  }

  // Adds row `row` of the experts' output to the sum of the token that `place` (token * top_k +
  // rank) belongs to.
  void add(std::size_t place, std::size_t row) noexcept {
    add_scaled(engine_.added_.data() + place / top_k_ * hidden_,
               engine_.expert_out_.data() + row * hidden_, engine_.weights_[place], hidden_);
  }

  void mark(std::size_t place) {
    auto& computed = engine_.computed_[place];
    if (computed != 0) {
      throw provider_error(
          fmt::format("layer {}: the provider computed expert {} of token {} (rank {}) twice",
                      layer_, engine_.ids_[place], place / top_k_, place % top_k_));
    }
    computed = 1;
  }

  [[nodiscard]] std::size_t checked_token(std::int32_t token) const {
    if (token < 0 || static_cast<std::size_t>(token) >= tokens_) {
      throw provider_error(fmt::format("layer {}: the provider named token {}; accepted: 0..{}",
                                       layer_, token, tokens_ - 1));
    }
    return static_cast<std::size_t>(token);
  }

  [[nodiscard]] std::size_t checked_expert(std::int32_t expert) const {
    if (expert < 0 || static_cast<std::size_t>(expert) >= experts_) {
      throw provider_error(fmt::format("layer {}: the provider named expert {}; accepted: 0..{}",
                                       layer_, expert, experts_ - 1));
    }
    return static_cast<std::size_t>(expert);
  }

  engine& engine_;
  std::size_t layer_;
  std::size_t tokens_;
  std::size_t experts_;
  std::size_t top_k_;
  std::size_t hidden_;
};

engine::engine(const model& weights, expert_provider& experts, const engine_config& config)
    : model_(&weights),
      provider_(&experts),
      max_positions_(
          checked("max_positions", config.max_positions, weights.config().max_positions)),
      max_tokens_(checked("max_tokens", config.max_tokens, max_positions_)) {
  const model_config& shape = weights.config();
  const std::size_t width = shape.heads * shape.head_size;
  const std::size_t half = shape.head_size / 2;

  cosines_.resize(max_positions_ * half);
  sines_.resize(max_positions_ * half);
  for (std::size_t i = 0; i < half; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(shape.head_size);
    const double frequency = 1.0 / std::pow(static_cast<double>(shape.rope_theta), exponent);
    for (std::size_t p = 0; p < max_positions_; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cosines_[p * half + i] = static_cast<float>(std::cos(angle));
      sines_[p * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  keys_.resize(shape.layers * max_positions_ * width);
  values_.resize(keys_.size());
  stream_.resize(max_tokens_ * shape.hidden_size);
  normed_.resize(stream_.size());
  added_.resize(stream_.size());
  query_.resize(max_tokens_ * width);
  mixed_.resize(query_.size());
  scores_.resize(max_positions_);
  router_logits_.resize(max_tokens_ * shape.experts);
  probabilities_.resize(router_logits_.size());
  ids_.resize(max_tokens_ * shape.top_k);
  weights_.resize(ids_.size());
  computed_.resize(ids_.size());
  logits_.resize(max_tokens_ * model_config::vocabulary);
  all_tokens_.resize(max_tokens_);
  std::iota(all_tokens_.begin(), all_tokens_.end(), 0);

  const std::size_t rows = chunk_tokens * shape.top_k;
  first_row_.resize(shape.experts + 1);
  rows_.resize(rows);
  expert_out_.resize(rows * shape.hidden_size);
  scratch_.resize(expert_scratch(shape.hidden_size, shape.inner_size, rows));
}

void engine::rewind(std::size_t position) noexcept { position_ = std::min(position_, position); }

std::span<const float> engine::forward(std::span<const std::uint8_t> tokens,
                                       std::optional<request_kind> kind) {
  const std::size_t count = tokens.size();
  const std::size_t room = std::min(max_tokens_, max_positions_ - position_);
  if (count == 0 || count > room) {
    throw std::length_error(fmt::format("forward: {} tokens at position {} of {}; accepted: {}",
                                        count, position_, max_positions_,
                                        room == 0 ? "none" : fmt::format("1..{}", room)));
  }
  const request_kind what =
      kind.value_or(count == 1 && position_ > 0 ? request_kind::decode : request_kind::prefill);
  const std::size_t hidden = model_->config().hidden_size;
  for (std::size_t t = 0; t < count; ++t) {
    std::copy_n(model_->embedding().data() + tokens[t] * hidden, hidden,
                stream_.data() + t * hidden);
  }
  const std::uint64_t step = step_++;
  provider_->on_step(step, what, count);
  for (std::size_t l = 0; l < model_->config().layers; ++l) {
    attention(l, count);
    experts(l, count, step, what);
  }
  for (std::size_t t = 0; t < count; ++t) {
    rms_norm(stream_.data() + t * hidden, model_->final_norm().data(), hidden,
             model_->config().norm_epsilon, normed_.data() + t * hidden);
  }
  project(model_->unembedding().data(), hidden, model_config::vocabulary, normed_.data(), count,
          logits_.data());
  position_ += count;
  return {logits_.data(), count * model_config::vocabulary};
}

void engine::attention(std::size_t layer, std::size_t tokens) {
  const model_config& shape = model_->config();
  const layer_weights& weights = model_->layer(layer);
  const std::size_t hidden = shape.hidden_size;
  const std::size_t width = shape.heads * shape.head_size;
  const std::size_t half = shape.head_size / 2;
  float* keys = keys_.data() + layer * max_positions_ * width;
  float* values = values_.data() + layer * max_positions_ * width;

  for (std::size_t t = 0; t < tokens; ++t) {
    rms_norm(stream_.data() + t * hidden, weights.attention_norm.data(), hidden, shape.norm_epsilon,
             normed_.data() + t * hidden);
  }
  project(weights.query.data(), hidden, width, normed_.data(), tokens, query_.data());
  project(weights.key.data(), hidden, width, normed_.data(), tokens, keys + position_ * width);
  project(weights.value.data(), hidden, width, normed_.data(), tokens, values + position_ * width);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t position = position_ + t;
    for (std::size_t h = 0; h < shape.heads; ++h) {
      const float* cosines = cosines_.data() + position * half;
      const float* sines = sines_.data() + position * half;
      rotate_half(query_.data() + t * width + h * shape.head_size, cosines, sines, half);
      rotate_half(keys + position * width + h * shape.head_size, cosines, sines, half);
    }
    attend(query_.data() + t * width, keys, values, position + 1, shape.heads, shape.head_size,
           scores_.data(), mixed_.data() + t * width);
  }
  project(weights.output.data(), width, hidden, mixed_.data(), tokens, added_.data());
  add_to(stream_.data(), added_.data(), tokens * hidden);
}

void engine::experts(std::size_t layer, std::size_t tokens, std::uint64_t step, request_kind kind) {
  const model_config& shape = model_->config();
  const layer_weights& weights = model_->layer(layer);
  const std::size_t hidden = shape.hidden_size;

  for (std::size_t t = 0; t < tokens; ++t) {
    rms_norm(stream_.data() + t * hidden, weights.expert_norm.data(), hidden, shape.norm_epsilon,
             normed_.data() + t * hidden);
  }
  project(weights.router.data(), hidden, shape.experts, normed_.data(), tokens,
          router_logits_.data());
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto row = std::span(router_logits_).subspan(t * shape.experts, shape.experts);
    const auto probabilities = std::span(probabilities_).subspan(t * shape.experts, shape.experts);
    softmax(row, probabilities.data());
    select_top_k(probabilities, std::span(ids_).subspan(t * shape.top_k, shape.top_k),
                 std::span(weights_).subspan(t * shape.top_k, shape.top_k));
  }
  std::fill_n(added_.begin(), tokens * hidden, 0.0F);
  std::fill_n(computed_.begin(), tokens * shape.top_k, std::uint8_t{0});

  const visit_inputs visit{
      .layer = static_cast<std::int32_t>(layer),
      .step = step,
      .kind = kind,
      .tokens = tokens,
      .experts = shape.experts,
      .top_k = shape.top_k,
      .hidden_size = hidden,
      .ids = std::span(ids_).first(tokens * shape.top_k),
      .weights = std::span(weights_).first(tokens * shape.top_k),
      .logits = std::span(router_logits_).first(tokens * shape.experts),
      .probabilities = std::span(probabilities_).first(tokens * shape.experts),
      .hidden = std::span(normed_).first(tokens * hidden),
  };
  compute_of_visit compute(*this, layer, tokens);
  provider_->run(visit, compute);
  compute.finish();
  add_to(stream_.data(), added_.data(), tokens * hidden);
}

}  // namespace tiny_moe
