// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/fine_tuning.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include <Eigen/Core>
#include <fmt/format.h>

#include "hotset/core/error.hpp"
#include "hotset/trace/half_array.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/model/expert_provider.hpp"

namespace tiny_moe {
namespace {

template <class Scalar>
using matrix_of = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using array_of = Eigen::Array<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using column_of = Eigen::Array<Scalar, Eigen::Dynamic, 1>;

Eigen::Index index(std::size_t n) noexcept { return static_cast<Eigen::Index>(n); }

template <class Scalar>
matrix_of<Scalar> widened(std::span<const float> in, std::size_t rows, std::size_t columns) {
  using floats = matrix_of<float>;
  return Eigen::Map<const floats>(in.data(), index(rows), index(columns)).template cast<Scalar>();
}
template <class Scalar>
std::vector<Scalar> widened(const std::uint16_t* halves, std::size_t count) {
  std::vector<float> floats(count);
  half_to_float({halves, count}, floats.data());
  return {floats.begin(), floats.end()};
}
template <class Scalar>
Eigen::Map<const matrix_of<Scalar>> seen(const std::vector<Scalar>& values, std::size_t rows,
                                         std::size_t columns) {
  return {values.data(), index(rows), index(columns)};
}
template <class Scalar>
Eigen::Map<matrix_of<Scalar>> changed(std::vector<Scalar>& values, std::size_t rows,
                                      std::size_t columns) {
  return {values.data(), index(rows), index(columns)};
}

/// A layer's dense weights. Projections are [inputs, outputs].
template <class Scalar>
struct dense_layer {
  matrix_of<Scalar> attention_norm, query, key, value, output, expert_norm, router;
};

/// What one expert computed for the (token, rank) places that chose it.
template <class Scalar>
struct expert_pass {
  std::vector<std::size_t> places;
  matrix_of<Scalar> in, gate, up, out;  ///< a row for each place
};

/// What a layer's gradient needs of its forward pass. A row for each token.
template <class Scalar>
struct layer_pass {
  matrix_of<Scalar> in, attention_in, query, key, value, mixed;
  std::vector<matrix_of<Scalar>> attention;  ///< [heads] of [tokens, tokens]
  matrix_of<Scalar> middle, expert_in, probabilities;
  std::vector<std::int32_t> ids;  ///< [tokens, top_k]
  std::vector<Scalar> shares;     ///< [tokens, top_k]
  std::vector<Scalar> chosen;     ///< [tokens], the probability of all that were chosen
  std::vector<expert_pass<Scalar>> experts;
};

template <class Scalar>
column_of<Scalar> norm_scales(const matrix_of<Scalar>& in, Scalar epsilon) {
  return (in.array().square().rowwise().mean() + epsilon).rsqrt();
}
template <class Scalar>
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): in the order of the formula
matrix_of<Scalar> normed(const matrix_of<Scalar>& in, const matrix_of<Scalar>& weight,
                         Scalar epsilon) {
  array_of<Scalar> out = in.array().colwise() * norm_scales(in, epsilon);
  out.rowwise() *= weight.row(0).array();
  return out.matrix();
}
/// Adds the gradient of the norm's input, for the gradient of its output.
template <class Scalar>
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): in the order of the formula
void norm_backward(const matrix_of<Scalar>& in, const matrix_of<Scalar>& weight, Scalar epsilon,
                   const matrix_of<Scalar>& of_out, matrix_of<Scalar>& of_in) {
  const column_of<Scalar> scale = norm_scales(in, epsilon);
  array_of<Scalar> weighed = of_out.array();
  weighed.rowwise() *= weight.row(0).array();
  const column_of<Scalar> along =
      (weighed * in.array()).rowwise().sum() * scale.cube() / static_cast<Scalar>(in.cols());
  of_in.array() += weighed.colwise() * scale - in.array().colwise() * along;
}
template <class Scalar>
array_of<Scalar> logistic(const matrix_of<Scalar>& x) {
  return (Scalar(1) + (-x.array()).exp()).inverse();
}
template <class Scalar>
void softmax_rows(matrix_of<Scalar>& rows) {
  for (Eigen::Index r = 0; r < rows.rows(); ++r) {
    auto row = rows.row(r).array();
    row = (row - row.maxCoeff()).exp();
    row /= row.sum();
  }
}

}  // namespace

template <class Scalar>
class fine_tuner<Scalar>::decoder {
 public:
  using matrix = matrix_of<Scalar>;

  decoder(const model& weights, tuned_experts tuned)
      : shape_(weights.config()),
        epsilon_(static_cast<Scalar>(shape_.norm_epsilon)),
        tuned_(std::move(tuned)),
        embedding_(
            widened<Scalar>(weights.embedding(), model_config::vocabulary, shape_.hidden_size)),
        final_norm_(widened<Scalar>(weights.final_norm(), 1, shape_.hidden_size)),
        passes_(shape_.layers) {
    check();
    for (std::size_t l = 0; l < shape_.layers; ++l) {
      take_layer(weights.layer(l));
      for (std::size_t e = 0; e < shape_.experts; ++e) take_expert(weights.expert(l, e));
      for (const auto e : tuned_[l]) {
        lowest_ = std::min(lowest_, l);
        auto& slot = slot_of_[l * shape_.experts + index_of(e)];
        slot = gradients_.size();
        gradients_.push_back(zeros());
        velocities_.push_back(zeros());
      }
    }
  }

  [[nodiscard]] const tuned_experts& tuned() const noexcept { return tuned_; }
  expert_matrices<Scalar>& expert(std::size_t layer, hotset::expert_id e) {
    return experts_[layer * shape_.experts + index_of(e)];
  }
  [[nodiscard]] const expert_matrices<Scalar>& gradient(std::size_t layer,
                                                        hotset::expert_id e) const {
    return gradients_[slot_of_[layer * shape_.experts + index_of(e)]];
  }

  double loss(std::span<const std::uint8_t> text) {
    forward(text);
    return mean_bits(text);
  }
  double differentiate(std::span<const std::uint8_t> text) {
    const auto bits = loss(text);
    for (auto& of : gradients_) of = zeros();
    backward(text);
    return bits;
  }
  double step(const rates& how) {
    double squares = 0;
    for_each_matrix([&](auto& gradient, auto&, auto&) {
      for (const auto g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
    });
    const double norm = std::sqrt(squares);
    const auto scale = static_cast<Scalar>(norm > how.most ? how.most / norm : 1.0);
    const auto momentum = static_cast<Scalar>(how.momentum);
    const auto rate = static_cast<Scalar>(how.step);
    for_each_matrix([&](auto& gradient, auto& velocity, auto& weight) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        velocity[i] = momentum * velocity[i] + scale * gradient[i];
        weight[i] -= rate * velocity[i];
      }
    });
    return norm;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  void check() {
    if (tuned_.size() != shape_.layers)
      throw hotset::invalid_config(
          fmt::format("{} layers of tuned experts, accepted: {}", tuned_.size(), shape_.layers));
    std::size_t count = 0;
    for (std::size_t l = 0; l < tuned_.size(); ++l) {
      auto& sorted = tuned_[l];
      std::ranges::sort(sorted);
      for (std::size_t i = 0; i < sorted.size(); ++i)
        if (!is_within(sorted[i], shape_.experts) || (i > 0 && sorted[i] == sorted[i - 1]))
          throw hotset::invalid_config(
              fmt::format("layer {}: expert {}, accepted: each of 0..{} once", l, sorted[i],
                          shape_.experts - 1));
      count += sorted.size();
    }
    if (count == 0) throw hotset::invalid_config("no expert to tune, accepted: one or more");
    slot_of_.assign(shape_.layers * shape_.experts, none);
    lowest_ = shape_.layers;
  }
  void take_layer(const layer_weights& from) {
    const auto hidden = shape_.hidden_size;
    const auto width = shape_.heads * shape_.head_size;
    layers_.push_back(
        {widened<Scalar>(from.attention_norm, 1, hidden),
         widened<Scalar>(from.query, hidden, width), widened<Scalar>(from.key, hidden, width),
         widened<Scalar>(from.value, hidden, width), widened<Scalar>(from.output, width, hidden),
         widened<Scalar>(from.expert_norm, 1, hidden),
         widened<Scalar>(from.router, hidden, shape_.experts)});
  }
  void take_expert(const expert_tensors& from) {
    const auto count = shape_.hidden_size * shape_.inner_size;
    experts_.push_back({widened<Scalar>(from.gate, count), widened<Scalar>(from.up, count),
                        widened<Scalar>(from.down, count)});
  }
  [[nodiscard]] expert_matrices<Scalar> zeros() const {
    const std::vector<Scalar> none_yet(shape_.hidden_size * shape_.inner_size);
    return {none_yet, none_yet, none_yet};
  }
  /// Calls visit(gradient, velocity, weight) for every tuned matrix.
  template <class Visit>
  void for_each_matrix(Visit visit) {
    for (std::size_t at = 0; at < slot_of_.size(); ++at) {
      if (slot_of_[at] == none) continue;
      auto& g = gradients_[slot_of_[at]];
      auto& v = velocities_[slot_of_[at]];
      auto& w = experts_[at];
      visit(g.gate, v.gate, w.gate);
      visit(g.up, v.up, w.up);
      visit(g.down, v.down, w.down);
    }
  }

  // Forward.

  void forward(std::span<const std::uint8_t> text) {
    const auto tokens = text.size() - 1;  // the last byte is only predicted
    matrix stream(index(tokens), index(shape_.hidden_size));
    for (std::size_t t = 0; t < tokens; ++t) stream.row(index(t)) = embedding_.row(text[t]);
    for (std::size_t l = 0; l < shape_.layers; ++l) {
      attend_forward(l, stream);
      experts_forward(l, stream);
    }
    last_ = std::move(stream);
    out_ = normed(last_, final_norm_, epsilon_) * embedding_.transpose();
    softmax_rows(out_);
  }
  [[nodiscard]] double mean_bits(std::span<const std::uint8_t> text) const {
    double bits = 0;
    for (std::size_t t = 0; t + 1 < text.size(); ++t)
      bits -= std::log2(static_cast<double>(out_(index(t), text[t + 1])));
    return bits / static_cast<double>(text.size() - 1);
  }
  void attend_forward(std::size_t l, matrix& stream) {
    auto& pass = passes_[l];
    const auto& w = layers_[l];
    pass.in = stream;
    pass.attention_in = normed(stream, w.attention_norm, epsilon_);
    pass.query = pass.attention_in * w.query;
    pass.key = pass.attention_in * w.key;
    pass.value = pass.attention_in * w.value;
    rotate(pass.query, Scalar(1));
    rotate(pass.key, Scalar(1));
    pass.mixed.resize(stream.rows(), pass.query.cols());
    pass.attention.resize(shape_.heads);
    for (std::size_t h = 0; h < shape_.heads; ++h) {
      auto& weights = pass.attention[h];
      weights = head(pass.query, h) * head(pass.key, h).transpose() * head_scale();
      for (Eigen::Index t = 0; t < weights.rows(); ++t)
        weights.row(t).tail(weights.cols() - t - 1).setConstant(Scalar(-1e30));
      softmax_rows(weights);
      head(pass.mixed, h) = weights * head(pass.value, h);
    }
    stream += pass.mixed * w.output;
  }
  void experts_forward(std::size_t l, matrix& stream) {
    auto& pass = passes_[l];
    const auto& w = layers_[l];
    pass.middle = stream;
    pass.expert_in = normed(stream, w.expert_norm, epsilon_);
    pass.probabilities = pass.expert_in * w.router;
    softmax_rows(pass.probabilities);
    choose(pass);
    for (std::size_t e = 0; e < shape_.experts; ++e) {
      auto& one = pass.experts[e];
      if (one.places.empty()) continue;
      run(experts_[l * shape_.experts + e], pass.expert_in, one);
      for (std::size_t i = 0; i < one.places.size(); ++i)
        stream.row(token_of(one.places[i])) += pass.shares[one.places[i]] * one.out.row(index(i));
    }
  }
  void choose(layer_pass<Scalar>& pass) const {
    const auto tokens = static_cast<std::size_t>(pass.probabilities.rows());
    pass.ids.resize(tokens * shape_.top_k);
    pass.shares.resize(pass.ids.size());
    pass.chosen.assign(tokens, Scalar(0));
    pass.experts.resize(shape_.experts);
    for (auto& one : pass.experts) one.places.clear();
    std::vector<std::int32_t> order(shape_.experts);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto row = pass.probabilities.row(index(t));
      for (std::size_t e = 0; e < order.size(); ++e) order[e] = static_cast<std::int32_t>(e);
      std::ranges::stable_sort(order, [&](auto a, auto b) { return row[a] > row[b]; });
      for (std::size_t k = 0; k < shape_.top_k; ++k) pass.chosen[t] += row[order[k]];
      for (std::size_t k = 0; k < shape_.top_k; ++k) {
        const auto place = t * shape_.top_k + k;
        pass.ids[place] = order[k];
        pass.shares[place] = row[order[k]] / pass.chosen[t];
        pass.experts[static_cast<std::size_t>(order[k])].places.push_back(place);
      }
    }
  }
  void run(const expert_matrices<Scalar>& w, const matrix& in, expert_pass<Scalar>& one) const {
    one.in.resize(index(one.places.size()), in.cols());
    for (std::size_t i = 0; i < one.places.size(); ++i)
      one.in.row(index(i)) = in.row(token_of(one.places[i]));
    one.gate = one.in * seen(w.gate, shape_.inner_size, shape_.hidden_size).transpose();
    one.up = one.in * seen(w.up, shape_.inner_size, shape_.hidden_size).transpose();
    one.out = inner_of(one) * seen(w.down, shape_.hidden_size, shape_.inner_size).transpose();
  }
  [[nodiscard]] static matrix inner_of(const expert_pass<Scalar>& one) {
    return (one.gate.array() * logistic(one.gate) * one.up.array()).matrix();
  }

  // Backward: a gradient is named by what it is the gradient of.

  void backward(std::span<const std::uint8_t> text) {
    const auto tokens = text.size() - 1;
    matrix of_logits = out_;
    for (std::size_t t = 0; t < tokens; ++t) of_logits(index(t), text[t + 1]) -= Scalar(1);
    of_logits /= static_cast<Scalar>(static_cast<double>(tokens) * std::numbers::ln2);
    const matrix of_normed = of_logits * embedding_;
    matrix of_stream = matrix::Zero(last_.rows(), last_.cols());
    norm_backward(last_, final_norm_, epsilon_, of_normed, of_stream);
    for (std::size_t l = shape_.layers; l-- > lowest_;) {
      experts_backward(l, of_stream);
      if (l > lowest_) attend_backward(l, of_stream);
    }
  }
  void experts_backward(std::size_t l, matrix& of_stream) {
    const auto& pass = passes_[l];
    matrix of_in = matrix::Zero(of_stream.rows(), of_stream.cols());
    std::vector<Scalar> of_shares(pass.shares.size());
    for (std::size_t e = 0; e < shape_.experts; ++e) {
      const auto& one = pass.experts[e];
      if (one.places.empty()) continue;
      matrix of_out(index(one.places.size()), of_stream.cols());
      for (std::size_t i = 0; i < one.places.size(); ++i) {
        const auto token = of_stream.row(token_of(one.places[i]));
        of_shares[one.places[i]] = token.dot(one.out.row(index(i)));
        of_out.row(index(i)) = pass.shares[one.places[i]] * token;
      }
      run_backward(l * shape_.experts + e, one, of_out, of_in);
    }
    of_in += router_backward(pass, of_shares) * layers_[l].router.transpose();
    norm_backward(pass.middle, layers_[l].expert_norm, epsilon_, of_in, of_stream);
  }
  void run_backward(std::size_t expert, const expert_pass<Scalar>& one, const matrix& of_out,
                    matrix& of_in) {
    const auto inner = shape_.inner_size;
    const auto hidden = shape_.hidden_size;
    const auto& w = experts_[expert];
    const matrix of_inner = of_out * seen(w.down, hidden, inner);
    const array_of<Scalar> open = logistic(one.gate);
    const array_of<Scalar> gated = one.gate.array() * open;
    const matrix of_up = (of_inner.array() * gated).matrix();
    const matrix of_gate =
        (of_inner.array() * one.up.array() * (open + gated * (Scalar(1) - open))).matrix();
    const matrix of_rows =
        of_gate * seen(w.gate, inner, hidden) + of_up * seen(w.up, inner, hidden);
    for (std::size_t i = 0; i < one.places.size(); ++i)
      of_in.row(token_of(one.places[i])) += of_rows.row(index(i));
    if (slot_of_[expert] == none) return;
    auto& g = gradients_[slot_of_[expert]];
    changed(g.gate, inner, hidden) += of_gate.transpose() * one.in;
    changed(g.up, inner, hidden) += of_up.transpose() * one.in;
    changed(g.down, hidden, inner) += of_out.transpose() * inner_of(one);
  }
  /// Of the router's logits. share = p / sum of the chosen p; what was not chosen counts in no share.
  matrix router_backward(const layer_pass<Scalar>& pass,
                         const std::vector<Scalar>& of_shares) const {
    matrix of_logits = matrix::Zero(pass.probabilities.rows(), pass.probabilities.cols());
    const auto k = shape_.top_k;
    for (std::size_t t = 0; t < pass.chosen.size(); ++t) {
      Scalar mean = 0;
      for (auto i = t * k; i < (t + 1) * k; ++i) mean += of_shares[i] * pass.shares[i];
      // The softmax's own part cancels: shares do not change when all chosen p are scaled.
      for (auto i = t * k; i < (t + 1) * k; ++i)
        of_logits(index(t), pass.ids[i]) = pass.shares[i] * (of_shares[i] - mean);
    }
    return of_logits;
  }
  void attend_backward(std::size_t l, matrix& of_stream) {
    const auto& pass = passes_[l];
    const auto& w = layers_[l];
    const matrix of_mixed = of_stream * w.output.transpose();
    matrix of_query(of_mixed.rows(), of_mixed.cols());
    matrix of_key = of_query;
    matrix of_value = of_query;
    for (std::size_t h = 0; h < shape_.heads; ++h) {
      const auto& weights = pass.attention[h];
      head(of_value, h) = weights.transpose() * head(of_mixed, h);
      const matrix of_weights = head(of_mixed, h) * head(pass.value, h).transpose();
      const column_of<Scalar> along = (of_weights.array() * weights.array()).rowwise().sum();
      const matrix of_scores =
          (weights.array() * (of_weights.array().colwise() - along) * head_scale()).matrix();
      head(of_query, h) = of_scores * head(pass.key, h);
      head(of_key, h) = of_scores.transpose() * head(pass.query, h);
    }
    rotate(of_query, Scalar(-1));
    rotate(of_key, Scalar(-1));
    const matrix of_in = of_query * w.query.transpose() + of_key * w.key.transpose() +
                         of_value * w.value.transpose();
    norm_backward(pass.in, w.attention_norm, epsilon_, of_in, of_stream);
  }

  [[nodiscard]] Eigen::Index token_of(std::size_t place) const noexcept {
    return index(place / shape_.top_k);
  }
  template <class Matrix>
  auto head(Matrix& all, std::size_t h) const {
    return all.middleCols(index(h * shape_.head_size), index(shape_.head_size));
  }
  [[nodiscard]] Scalar head_scale() const {
    return Scalar(1) / std::sqrt(static_cast<Scalar>(shape_.head_size));
  }
  /// Turns each row's pairs by its position's angles, or back.
  void rotate(matrix& rows, Scalar way) const {
    const auto half = shape_.head_size / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(static_cast<double>(shape_.rope_theta),
                   -2.0 * static_cast<double>(i) / static_cast<double>(shape_.head_size));
      for (Eigen::Index t = 0; t < rows.rows(); ++t) {
        const double angle = static_cast<double>(t) * frequency;
        const auto cosine = static_cast<Scalar>(std::cos(angle));
        const auto sine = way * static_cast<Scalar>(std::sin(angle));
        for (std::size_t h = 0; h < shape_.heads; ++h) {
          auto& first = rows(t, index(h * shape_.head_size + i));
          auto& second = rows(t, index(h * shape_.head_size + half + i));
          const auto was = first;
          first = was * cosine - second * sine;
          second = second * cosine + was * sine;
        }
      }
    }
  }

  model_config shape_;
  Scalar epsilon_;
  tuned_experts tuned_;
  matrix embedding_;   ///< [256, hidden]
  matrix final_norm_;  ///< [1, hidden]
  std::vector<dense_layer<Scalar>> layers_;
  std::vector<expert_matrices<Scalar>> experts_;     ///< [layers, experts]
  std::vector<std::size_t> slot_of_;                 ///< [layers, experts]: in gradients_
  std::vector<expert_matrices<Scalar>> gradients_;   ///< of the tuned ones
  std::vector<expert_matrices<Scalar>> velocities_;  ///< likewise
  std::size_t lowest_ = 0;                           ///< layer with a tuned expert
  std::vector<layer_pass<Scalar>> passes_;           ///< [layers]
  matrix last_;                                      ///< the stream after the last layer
  matrix out_;                                       ///< [tokens, 256]: probabilities
};

template <class Scalar>
fine_tuner<Scalar>::fine_tuner(const model& weights, tuned_experts tuned)
    : decoder_(std::make_unique<decoder>(weights, std::move(tuned))) {}
template <class Scalar>
fine_tuner<Scalar>::fine_tuner(fine_tuner&&) noexcept = default;
template <class Scalar>
fine_tuner<Scalar>::~fine_tuner() = default;

template <class Scalar>
const tuned_experts& fine_tuner<Scalar>::tuned() const noexcept {
  return decoder_->tuned();
}
template <class Scalar>
expert_matrices<Scalar>& fine_tuner<Scalar>::expert(std::size_t layer, hotset::expert_id expert) {
  return decoder_->expert(layer, expert);
}
template <class Scalar>
const expert_matrices<Scalar>& fine_tuner<Scalar>::gradient(std::size_t layer,
                                                            hotset::expert_id expert) const {
  return decoder_->gradient(layer, expert);
}
template <class Scalar>
double fine_tuner<Scalar>::loss(std::span<const std::uint8_t> text) {
  return decoder_->loss(text);
}
template <class Scalar>
double fine_tuner<Scalar>::differentiate(std::span<const std::uint8_t> text) {
  return decoder_->differentiate(text);
}
template <class Scalar>
double fine_tuner<Scalar>::step(const rates& how) {
  return decoder_->step(how);
}

template class fine_tuner<float>;
template class fine_tuner<double>;

adapter_weights rounded(fine_tuner<float>& tuner, const model_config& shape, std::string name) {
  std::vector<std::uint16_t> halves;
  const auto append = [&](const std::vector<float>& matrix) {
    for (const auto value : matrix) {
      const auto half = hotset::float_to_half(value);
      if ((half & 0x7C00U) == 0x7C00U)
        throw hotset::invalid_config(
            fmt::format("adapter {}: weight {} does not fit into 16 bits", name, value));
      halves.push_back(half);
    }
  };
  for (std::size_t l = 0; l < tuner.tuned().size(); ++l)
    for (const auto e : tuner.tuned()[l]) {
      const auto& of = tuner.expert(l, e);
      append(of.gate);
      append(of.up);
      append(of.down);
    }
  return {shape, std::move(name), tuner.tuned(), std::move(halves)};
}

namespace {

/// Full residency that counts what is routed.
class counting_experts final : public expert_provider {
 public:
  explicit counting_experts(const model& weights) : shape_(weights.config()), resident_(weights) {
    scores_.token.resize(shape_.layers * shape_.experts);
    scores_.gate.resize(scores_.token.size());
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    const auto first = index_of(visit.layer) * shape_.experts;
    for (std::size_t i = 0; i < visit.ids.size(); ++i) {
      const auto expert = static_cast<std::size_t>(visit.ids[i]);
      scores_.token[first + expert] += 1;
      scores_.gate[first + expert] +=
          static_cast<double>(visit.probabilities[i / visit.top_k * visit.experts + expert]);
    }
    if (visit.layer == 0) tokens_ += visit.tokens;
    resident_.run(visit, compute);
  }
  [[nodiscard]] expert_scores scores() const {
    auto out = scores_;
    const auto tokens = static_cast<double>(tokens_);
    for (auto& s : out.token) s /= tokens * static_cast<double>(shape_.top_k);
    for (auto& s : out.gate) s /= tokens;
    return out;
  }

 private:
  model_config shape_;
  resident_experts resident_;
  expert_scores scores_;
  std::size_t tokens_ = 0;
};

}  // namespace

expert_scores score_experts(const model& weights, std::span<const std::uint8_t> text,
                            std::size_t window) {
  counting_experts counted(weights);
  engine decoder(weights, counted, {.max_positions = window});
  for (std::size_t at = 0; at < text.size(); at += window) {
    decoder.reset();
    (void)decoder.forward(text.subspan(at, std::min(window, text.size() - at)));
  }
  return counted.scores();
}

}  // namespace tiny_moe
