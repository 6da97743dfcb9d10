// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/engine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <Eigen/Core>
#include <fmt/format.h>

namespace tiny_moe {
namespace {

// Tokens computed at once within one call of the provider: bounds the scratch, changes no bit.
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

std::string accepted_tokens(std::size_t room) {
  return room == 0 ? "none" : fmt::format("1..{}", room);
}

// Limits of an engine with one sequence.
engine_config limits_of(const model_config& shape, const engine_config& config) {
  const std::size_t most = checked("max_positions", config.max_positions, shape.max_positions);
  return {.max_positions = most,
          .max_tokens = checked("max_tokens", config.max_tokens, most),
          .virtual_experts = config.virtual_experts};
}

}  // namespace

// Holds the pool during a pass. Its destructor frees room that was reserved for tokens that did not come.
class batch_engine::rows_of_pass {
 public:
  rows_of_pass(batch_engine& owner, std::span<const token_row> rows)
      : engine_(owner), pass_(*owner.pool_) {
    engine_.members_.clear();
    try {
      engine_.take_places(rows);
    } catch (...) {
      give_back();
      throw;
    }
  }
  rows_of_pass(const rows_of_pass&) = delete;
  rows_of_pass& operator=(const rows_of_pass&) = delete;
  ~rows_of_pass() { give_back(); }

 private:
  void give_back() noexcept {
    kv_pool& pool = *engine_.pool_;
    for (const member& m : engine_.members_) pool.truncate(m.sequence, pool.length(m.sequence));
  }

  batch_engine& engine_;
  kv_pool::pass pass_;
};

// Lent to the provider for one visit; records what was computed.
class batch_engine::compute_of_visit final : public visit_compute {
 public:
  compute_of_visit(batch_engine& owner, std::size_t layer, std::size_t tokens) noexcept
      : engine_(owner),
        layer_(layer),
        tokens_(tokens),
        experts_(owner.virtual_experts_),
        top_k_(owner.model_->config().top_k),
        hidden_(owner.model_->config().hidden_size) {}

  // Errors: provider_error if a routed rank was not computed.
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

  // Computes all experts of at most chunk_tokens tokens. Rows are grouped by expert, so that each expert's weights
  // are read once; then every token is summed in rank order.
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
    // first[e] now is the end of e's rows, and so the beginning of those of e + 1.
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

  // Adds row `row` of the experts' output to the sum of the token of `place` (token * top_k + rank).
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

  batch_engine& engine_;
  std::size_t layer_;
  std::size_t tokens_;
  std::size_t experts_;
  std::size_t top_k_;
  std::size_t hidden_;
};

batch_engine::batch_engine(const model& weights, expert_provider& experts, kv_pool& pool,
                           const engine_config& config)
    : model_(&weights),
      provider_(&experts),
      pool_(&pool),
      max_positions_(
          checked("max_positions", config.max_positions, weights.config().max_positions)),
      max_tokens_(config.max_tokens == 0 ? max_positions_ : config.max_tokens),
      virtual_experts_(config.virtual_experts == 0 ? weights.config().experts
                                                   : config.virtual_experts) {
  const model_config& shape = weights.config();
  if (virtual_experts_ < shape.experts) {
    throw std::invalid_argument(
        fmt::format("engine_config: virtual_experts is {}; accepted: {} or more", virtual_experts_,
                    shape.experts));
  }
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
  token_ids_.reserve(max_tokens_);
  sequences_.reserve(max_tokens_);
  adapters_.reserve(max_tokens_);
  members_.reserve(max_tokens_);
  places_.reserve(max_tokens_);
  blocks_.reserve(pool.capacity());
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
  first_row_.resize(virtual_experts_ + 1);
  rows_.resize(rows);
  expert_out_.resize(rows * shape.hidden_size);
  scratch_.resize(expert_scratch(shape.hidden_size, shape.inner_size, rows));
}

std::span<const float> batch_engine::forward(std::span<const token_row> rows, request_kind kind) {
  const std::size_t count = rows.size();
  if (count == 0 || count > max_tokens_) {
    throw std::length_error(fmt::format("forward: {} rows; accepted: 1..{}", count, max_tokens_));
  }
  const rows_of_pass held(*this, rows);
  const std::size_t hidden = model_->config().hidden_size;
  for (std::size_t t = 0; t < count; ++t) {
    std::copy_n(model_->embedding().data() + rows[t].token * hidden, hidden,
                stream_.data() + t * hidden);
  }
  const std::uint64_t step = step_++;
  name_rows(rows);
  provider_->on_step({.step = step,
                      .kind = kind,
                      .token_ids = token_ids_,
                      .sequences = sequences_,
                      .adapters = adapters_});
  for (std::size_t l = 0; l < model_->config().layers; ++l) {
    attention(l, count);
    experts(l, count, step, kind);
  }
  for (std::size_t t = 0; t < count; ++t) {
    rms_norm(stream_.data() + t * hidden, model_->final_norm().data(), hidden,
             model_->config().norm_epsilon, normed_.data() + t * hidden);
  }
  project(model_->unembedding().data(), hidden, model_config::vocabulary, normed_.data(), count,
          logits_.data());
  for (const token_row& row : rows) pool_->append(row.sequence, {&row.token, 1});
  return {logits_.data(), count * model_config::vocabulary};
}

void batch_engine::close(sequence_id sequence) noexcept {
  provider_->on_sequence_end(pool_->number(sequence));
  pool_->close(sequence);
}

void batch_engine::name_rows(std::span<const token_row> rows) {
  token_ids_.clear();
  sequences_.clear();
  adapters_.clear();
  for (const token_row& row : rows) {
    token_ids_.push_back(row.token);
    sequences_.push_back(pool_->number(row.sequence));
    adapters_.push_back(pool_->adapter(row.sequence));
  }
}

// Tests the last member first: rows of a sequence are mostly adjacent.
std::size_t batch_engine::member_of(sequence_id sequence) {
  for (std::size_t m = members_.size(); m-- > 0;) {
    if (members_[m].sequence == sequence) return m;
  }
  members_.push_back({.sequence = sequence, .tokens = pool_->length(sequence)});
  return members_.size() - 1;
}

// Reserves blocks for all rows. Errors: std::length_error; blocks reserved before stay reserved.
void batch_engine::take_places(std::span<const token_row> rows) {
  places_.clear();
  blocks_.clear();
  for (const token_row& row : rows) {
    const std::size_t m = member_of(row.sequence);
    places_.push_back({.member = m, .position = members_[m].tokens++});
  }
  for (member& m : members_) {
    const std::size_t more = m.tokens - pool_->length(m.sequence);
    if (m.tokens > max_positions_) {
      throw std::length_error(fmt::format("forward: {} tokens at position {} of {}; accepted: {}",
                                          more, m.tokens - more, max_positions_,
                                          accepted_tokens(max_positions_ - (m.tokens - more))));
    }
    if (!pool_->reserve(m.sequence, more)) {
      throw std::length_error(fmt::format("forward: {} tokens need {} KV blocks; accepted: {}",
                                          more, pool_->needed(m.sequence, more),
                                          pool_->available()));
    }
  }
  // Only now: reserving may have copied a block that was truncated.
  for (member& m : members_) {
    m.first_block = blocks_.size();
    for (std::size_t b = 0; b < pool_->blocks_for(m.tokens); ++b) {
      blocks_.push_back(pool_->block(m.sequence, b));
    }
  }
}

// A row of keys or values; first_row: offset of the layer's rows within a block.
float* batch_engine::row_of(const row_place& place, std::size_t first_row) const noexcept {
  const std::size_t width = model_->config().heads * model_->config().head_size;
  const std::size_t size = pool_->block_tokens();
  return blocks_[members_[place.member].first_block + place.position / size] + first_row +
         place.position % size * width;
}

void batch_engine::attention(std::size_t layer, std::size_t tokens) {
  const model_config& shape = model_->config();
  const layer_weights& weights = model_->layer(layer);
  const std::size_t hidden = shape.hidden_size;
  const std::size_t width = shape.heads * shape.head_size;
  const std::size_t half = shape.head_size / 2;

  for (std::size_t t = 0; t < tokens; ++t) {
    rms_norm(stream_.data() + t * hidden, weights.attention_norm.data(), hidden, shape.norm_epsilon,
             normed_.data() + t * hidden);
  }
  project(weights.query.data(), hidden, width, normed_.data(), tokens, query_.data());
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* in = normed_.data() + t * hidden;
    project(weights.key.data(), hidden, width, in, 1, row_of(places_[t], pool_->keys_of(layer)));
    project(weights.value.data(), hidden, width, in, 1,
            row_of(places_[t], pool_->values_of(layer)));
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    const row_place& place = places_[t];
    const float* cosines = cosines_.data() + place.position * half;
    const float* sines = sines_.data() + place.position * half;
    float* key = row_of(place, pool_->keys_of(layer));
    for (std::size_t h = 0; h < shape.heads; ++h) {
      rotate_half(query_.data() + t * width + h * shape.head_size, cosines, sines, half);
      rotate_half(key + h * shape.head_size, cosines, sines, half);
    }
    const kv_rows cache{.blocks = std::span(blocks_).subspan(members_[place.member].first_block),
                        .block_tokens = pool_->block_tokens(),
                        .keys = pool_->keys_of(layer),
                        .values = pool_->values_of(layer)};
    attend(query_.data() + t * width, cache, place.position + 1, shape.heads, shape.head_size,
           scores_.data(), mixed_.data() + t * width);
  }
  project(weights.output.data(), width, hidden, mixed_.data(), tokens, added_.data());
  add_to(stream_.data(), added_.data(), tokens * hidden);
}

void batch_engine::experts(std::size_t layer, std::size_t tokens, std::uint64_t step,
                           request_kind kind) {
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
      .layer = static_cast<hotset::layer_id>(layer),
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
      .token_ids = token_ids_,
      .sequences = sequences_,
      .adapters = adapters_,
  };
  compute_of_visit compute(*this, layer, tokens);
  provider_->run(visit, compute);
  compute.finish();
  add_to(stream_.data(), added_.data(), tokens * hidden);
}

engine::engine(const model& weights, expert_provider& experts, const engine_config& config)
    : pool_(weights.config(), {.block_tokens = limits_of(weights.config(), config).max_positions,
                               .blocks = 1,
                               .reuse = false}),
      batch_(weights, experts, pool_, limits_of(weights.config(), config)),
      sequence_(pool_.open(batch_.max_positions())) {
  rows_.reserve(batch_.max_tokens());
}

void engine::reset() noexcept {
  if (position() == 0) return;
  batch_.close(sequence_);
  sequence_ = pool_.open(batch_.max_positions());  // tables are allocated
}

void engine::rewind(std::size_t position) noexcept {
  pool_.truncate(sequence_, std::min(position, this->position()));
}

std::span<const float> engine::forward(std::span<const std::uint8_t> tokens,
                                       std::optional<request_kind> kind) {
  const std::size_t count = tokens.size();
  const std::size_t room = std::min(max_tokens(), max_positions() - position());
  if (count == 0 || count > room) {
    throw std::length_error(fmt::format("forward: {} tokens at position {} of {}; accepted: {}",
                                        count, position(), max_positions(), accepted_tokens(room)));
  }
  rows_.clear();
  for (const std::uint8_t token : tokens) rows_.push_back({sequence_, token});
  const bool is_decode = count == 1 && position() > 0;
  return batch_.forward(rows_,
                        kind.value_or(is_decode ? request_kind::decode : request_kind::prefill));
}

}  // namespace tiny_moe
