// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/train_gate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "hotset/core/ids/id_view.hpp"

#define EIGEN_DONT_PARALLELIZE  // networks are trained side by side, each by one thread
#include <Eigen/Core>
#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "lab/errors.hpp"
#include "lab/progress.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset::lab {
namespace {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using row_vector = Eigen::RowVectorXf;
using rows_of_trace = std::vector<std::uint32_t>;

constexpr Eigen::Index as_index(std::size_t n) { return static_cast<Eigen::Index>(n); }

/// Tokens to learn from, and tokens to be judged on.
struct token_split {
  rows_of_trace learnt, judged;
  std::size_t learnt_sequences = 0, judged_sequences = 0;
};

template <class T>
void shuffle(std::vector<T>& values, splitmix64& random) {
  for (auto n = values.size(); n > 1; --n) std::swap(values[n - 1], values[random.below(n)]);
}

/// Whole sequences on either side.
token_split split(const routing_trace& trace, const gate_training& training) {
  std::unordered_map<std::uint32_t, std::size_t> place;
  for (const auto s : trace.sequence) place.try_emplace(s, place.size());
  std::vector<std::size_t> order(place.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  splitmix64 random(training.seed);
  shuffle(order, random);
  token_split out;
  if (training.holdout > 0) {
    if (order.size() < 2)
      throw trace_error(
          "1 sequence in the trace, accepted: 2 or more, of which some are held out, or a holdout "
          "of 0");
    const auto wanted = std::llround(training.holdout * static_cast<double>(order.size()));
    out.judged_sequences =
        std::clamp(static_cast<std::size_t>(wanted), std::size_t{1}, order.size() - 1);
  }
  out.learnt_sequences = order.size() - out.judged_sequences;
  std::vector<bool> held(order.size(), false);
  for (std::size_t i = 0; i < out.judged_sequences; ++i) held[order[i]] = true;
  for (std::uint32_t t = 0; t < trace.tokens(); ++t)
    (held[place.at(trace.sequence[t])] ? out.judged : out.learnt).push_back(t);
  return out;
}

std::size_t place_of(const routing_trace& trace, std::uint32_t token, layer_id layer) {
  return std::size_t{token} * static_cast<std::size_t>(trace.layers) + index_of(layer);
}

[[noreturn]] void refuse_state(layer_id layer) {
  throw trace_error(
      fmt::format("a hidden state of layer {} is not finite, accepted: finite numbers", layer));
}

/// What a layer's hidden states look like: taken away before a network learns, and put into its weights afterwards.
struct input_scale {
  row_vector mean;
  row_vector factor;  ///< 1 / deviation; 0 for an input that never changes
};

input_scale scale_of(const routing_trace& trace, const rows_of_trace& rows, layer_id layer) {
  const auto width = static_cast<std::size_t>(trace.hidden_width);
  Eigen::RowVectorXd sum = Eigen::RowVectorXd::Zero(as_index(width));
  Eigen::RowVectorXd squares = sum;
  row_vector one(as_index(width));
  for (const auto t : rows) {
    trace.hidden.convert(place_of(trace, t, layer) * width, {one.data(), width});
    sum += one.cast<double>();
    squares += one.cast<double>().cwiseAbs2();
  }
  if (!squares.allFinite()) refuse_state(layer);
  const auto count = static_cast<double>(rows.size());
  const Eigen::RowVectorXd mean = sum / count;
  const Eigen::RowVectorXd variance = squares / count - mean.cwiseAbs2();
  input_scale out{mean.cast<float>(), row_vector::Zero(as_index(width))};
  for (Eigen::Index i = 0; i < variance.size(); ++i)
    if (variance[i] > 1e-12 * (1 + mean[i] * mean[i]))
      out.factor[i] = static_cast<float>(1 / std::sqrt(variance[i]));
  return out;
}

/// What one network learns from.
class lesson {
 public:
  lesson(const routing_trace& trace, const input_scale& scale, gate_target target, layer_id layer,
         std::int32_t distance)
      : trace_(trace), scale_(scale), target_(target), layer_(layer), of_(layer + distance) {}

  /// The tokens for which it is known what the layer ahead should be given.
  [[nodiscard]] rows_of_trace known(const rows_of_trace& rows) const {
    row_vector goal(trace_.experts);
    rows_of_trace out;
    for (const auto t : rows)
      if (aim(t, {goal.data(), static_cast<std::size_t>(trace_.experts)})) out.push_back(t);
    return out;
  }
  /// Inputs and goals of these tokens, a row each.
  void read(std::span<const std::uint32_t> tokens, matrix& inputs, matrix& goals) const {
    const auto width = static_cast<std::size_t>(trace_.hidden_width);
    const auto experts = static_cast<std::size_t>(trace_.experts);
    inputs.resize(as_index(tokens.size()), as_index(width));
    goals.resize(as_index(tokens.size()), as_index(experts));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      trace_.hidden.convert(place_of(trace_, tokens[i], layer_) * width,
                            {inputs.data() + i * width, width});
      (void)aim(tokens[i], {goals.data() + i * experts, experts});
    }
    inputs.rowwise() -= scale_.mean;
    inputs.array().rowwise() *= scale_.factor.array();
  }

 private:
  /// False where nothing is known.
  bool aim(std::uint32_t token, std::span<float> goal) const {
    if (target_ == gate_target::probabilities)
      trace_.probabilities.convert(place_of(trace_, token, of_) * goal.size(), goal);
    else
      count_routed(token, goal);
    double sum = 0;
    for (const auto g : goal) sum += g >= 0 ? double{g} : std::nan("");
    if (!(sum > 0 && std::isfinite(sum))) return false;
    for (auto& g : goal) g = static_cast<float>(g / sum);
    return true;
  }
  void count_routed(std::uint32_t token, std::span<float> goal) const {
    std::ranges::fill(goal, 0.0F);
    for (const auto e : trace_.ids_of(token, of_))
      if (e >= 0) goal[index_of(e)] = 1;
  }

  const routing_trace& trace_;
  const input_scale& scale_;
  gate_target target_;
  layer_id layer_, of_;
};

using map = Eigen::Map<matrix>;
using row_map = Eigen::Map<row_vector>;

map matrix_of(std::span<float> values, std::size_t rows) {
  return {values.data(), as_index(rows), as_index(rows == 0 ? 0 : values.size() / rows)};
}
row_map row_of(std::span<float> values) { return {values.data(), as_index(values.size())}; }

/// One network under training: its numbers, their gradient and Adam's moments, all flat and in one order.
class student {
 public:
  student(const learned_gate::weights& like, std::span<float> numbers, splitmix64& random)
      : net_(like.cut(numbers)),
        numbers_(row_of(numbers)),
        gradient_(row_vector::Zero(numbers_.size())),
        first_(gradient_),
        second_(gradient_),
        slope_(like.cut(std::span<float>(gradient_.data(), numbers.size()))) {
    begin(net_.hidden, static_cast<std::size_t>(like.size().d_model), random);
    begin(net_.scores, net_.scores.size() / net_.scores_bias.size(), random);
  }
  student(const student&) = delete;
  student& operator=(const student&) = delete;

  /// One step of learning. Pre: as many goals as inputs.
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): given, then wanted
  void learn(const matrix& inputs, const matrix& goals, double rate) {
    const auto width = net_.hidden_bias.size();
    const auto experts = net_.scores_bias.size();
    const auto scores = matrix_of(net_.scores, experts);
    if (width > 0) {
      units_.noalias() = inputs * matrix_of(net_.hidden, width).transpose();
      units_.rowwise() += row_of(net_.hidden_bias);
      units_ = units_.cwiseMax(0.0F);
    }
    const matrix& seen = width > 0 ? units_ : inputs;
    error_.noalias() = seen * scores.transpose();
    error_.rowwise() += row_of(net_.scores_bias);
    for (Eigen::Index t = 0; t < error_.rows(); ++t) {
      const std::span<float> row(error_.row(t).data(), experts);
      softmax(row, row);
    }
    error_ -= goals;
    error_ /= static_cast<float>(error_.rows());

    matrix_of(slope_.scores, experts).noalias() = error_.transpose() * seen;
    row_of(slope_.scores_bias) = error_.colwise().sum();
    if (width > 0) {
      back_.noalias() = error_ * scores;
      back_.array() *= (units_.array() > 0.0F).cast<float>();
      matrix_of(slope_.hidden, width).noalias() = back_.transpose() * inputs;
      row_of(slope_.hidden_bias) = back_.colwise().sum();
    }
    descend(rate);
  }
  /// For inputs as they are, where it learnt from scaled ones.
  void unscale(const input_scale& scale) {
    const auto width = net_.hidden_bias.size();
    auto inward =
        width > 0 ? matrix_of(net_.hidden, width) : matrix_of(net_.scores, net_.scores_bias.size());
    inward.array().rowwise() *= scale.factor.array();
    row_of(width > 0 ? net_.hidden_bias : net_.scores_bias) -= scale.mean * inward.transpose();
  }

 private:
  /// Uniform, of variance 2 / inputs (He).
  static void begin(std::span<float> values, std::size_t inputs, splitmix64& random) {
    const auto most = std::sqrt(6.0 / static_cast<double>(inputs));
    for (auto& v : values) v = static_cast<float>((2 * random.uniform() - 1) * most);
  }
  void descend(double rate) {
    constexpr float keep_first = 0.9F;
    constexpr float keep_second = 0.999F;
    first_ = keep_first * first_ + (1 - keep_first) * gradient_;
    second_ = keep_second * second_ + (1 - keep_second) * gradient_.cwiseAbs2();
    ++steps_;
    const auto unbiased = [&](float keep) {
      return 1 - std::pow(static_cast<double>(keep), static_cast<double>(steps_));
    };
    const auto size = static_cast<float>(rate / unbiased(keep_first));
    const auto grow = static_cast<float>(1 / std::sqrt(unbiased(keep_second)));
    numbers_.array() -= size * first_.array() / (second_.array().sqrt() * grow + 1e-8F);
  }

  learned_gate::network<float> net_;
  row_map numbers_;
  row_vector gradient_, first_, second_;
  learned_gate::network<float> slope_;
  matrix units_, error_, back_;
  std::uint64_t steps_ = 0;
};

struct network_place {
  layer_id layer{};
  std::int32_t distance = 1;
};

/// Tells of epochs that threads have been through.
class shared_progress {
 public:
  explicit shared_progress(std::uint64_t total) : told_(total) {}
  void step() {
    const std::scoped_lock lock(mutex_);
    told_.at(++done_);
  }

 private:
  std::mutex mutex_;
  progress told_;
  std::uint64_t done_ = 0;
};

/// Pre: rows is not empty.
void train_network(const lesson& about, rows_of_trace rows, const gate_training& training,
                   student& one, splitmix64& random, shared_progress& told) {
  const auto batch = static_cast<std::size_t>(training.batch);
  const auto epochs = static_cast<std::size_t>(training.epochs);
  const auto batches = (rows.size() + batch - 1) / batch * epochs;
  const auto steps = static_cast<double>(batches);
  double step = 0;
  matrix inputs, goals;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    shuffle(rows, random);
    for (std::size_t first = 0; first < rows.size(); first += batch, ++step) {
      about.read(std::span(rows).subspan(first, std::min(batch, rows.size() - first)), inputs,
                 goals);
      one.learn(inputs, goals, training.rate * (1 - step / steps));
    }
    told.step();
  }
}

void train_all(const routing_trace& trace, const gate_training& training,
               const rows_of_trace& learnt, learned_gate::weights& weights) {
  std::vector<input_scale> scales(static_cast<std::size_t>(trace.layers) - 1);
  tbb::parallel_for(std::size_t{0}, scales.size(), [&](std::size_t l) {
    scales[l] = scale_of(trace, learnt, static_cast<layer_id>(l));
  });
  std::vector<network_place> places;
  for (const auto l : each<layer_id>(trace.layers - 1))
    for (std::int32_t d = 1; d <= training.depth && l + d < trace.layers; ++d)
      places.push_back({l, d});
  shared_progress told(places.size() * static_cast<std::uint64_t>(training.epochs));
  tbb::parallel_for(std::size_t{0}, places.size(), [&](std::size_t i) {
    const auto [layer, distance] = places[i];
    const auto& scale = scales[index_of(layer)];
    const lesson about(trace, scale, training.target, layer, distance);
    auto rows = about.known(learnt);
    if (rows.empty()) return;  // zeros: all experts are alike
    splitmix64 random(splitmix64(training.seed + (static_cast<std::uint64_t>(layer) << 32U) +
                                 static_cast<std::uint64_t>(distance))
                          .next());
    student one(weights, weights.all_of(layer, distance), random);
    train_network(about, std::move(rows), training, one, random, told);
    one.unscale(scale);
  });
}

/// The positions of the K largest values, ties to the lower one; what is no number is smallest.
template <class Values>
void best_of(const Values& values, std::size_t count, std::vector<expert_id>& out) {
  const auto all = each<expert_id>(values.size());
  out.assign(all.begin(), all.end());
  const auto value = [&](expert_id e) {
    const auto v = values[index_of(e)];
    return std::isnan(static_cast<double>(v)) ? std::numeric_limits<decltype(v)>::lowest() : v;
  };
  std::partial_sort(
      out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(),
      [&](expert_id a, expert_id b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  out.resize(count);
}

/// Judges by held-out tokens what was trained, and beside it what needs no training.
class judge_of_gates {
 public:
  judge_of_gates(const routing_trace& trace, const token_split& tokens,
                 const learned_gate::weights& weights)
      : trace_(trace),
        experts_(static_cast<std::size_t>(trace.experts)),
        top_k_(static_cast<std::size_t>(trace.top_k)),
        hidden_(static_cast<std::size_t>(trace.hidden_width)),
        scores_(experts_),
        popular_(popular_of(tokens.learnt)),
        out_(static_cast<std::size_t>(weights.size().depth)),
        gate_(learned_gate::create(trace.shape(),
                                   {.depth = weights.size().depth,
                                    .d_model = trace.hidden_width,
                                    .trained = std::make_shared<learned_gate::weights>(weights)})
                  .value()) {
    const bool scored = !trace.probabilities.empty() || !trace.logits.empty();
    for (std::size_t d = 0; d < out_.size(); ++d) {
      out_[d].distance = static_cast<std::int32_t>(d) + 1;
      if (scored) out_[d].current_gate_hits = 0;
      if (!trace.predictions.empty() && out_[d].distance <= trace.prediction_depth)
        out_[d].recorded_hits = 0;
    }
  }

  std::vector<distance_quality> over(const rows_of_trace& rows) {
    progress told(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      told.at(i);
      for (const auto l : each<layer_id>(trace_.layers - 1)) judge(rows[i], l);
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::vector<std::vector<expert_id>> popular_of(const rows_of_trace& rows) const {
    std::vector<std::vector<expert_id>> out(static_cast<std::size_t>(trace_.layers));
    for (const auto l : each<layer_id>(trace_.layers)) {
      std::vector<std::uint64_t> uses(experts_);
      for (const auto t : rows)
        for (const auto e : trace_.ids_of(t, l))
          if (e >= 0) ++uses[index_of(e)];
      best_of(uses, top_k_, out[index_of(l)]);
    }
    return out;
  }
  [[nodiscard]] std::uint64_t named(id_view<expert_id> routed,
                                    const std::vector<expert_id>& guess) const {
    return static_cast<std::uint64_t>(std::ranges::count_if(
        guess, [&](expert_id e) { return std::ranges::find(routed, e) != routed.end(); }));
  }
  void judge(std::uint32_t token, layer_id layer) {
    const auto place = place_of(trace_, token, layer);
    trace_.hidden.convert(place * hidden_.size(), hidden_);
    if (!std::ranges::all_of(hidden_, [](float h) { return std::isfinite(h); }))
      refuse_state(layer);
    routing_view view;
    view.layer = layer;
    view.experts = trace_.ids_of(token, layer);
    view.hidden = hidden_;
    const auto expected = gate_.expect(view, {}, 0);
    if (out_.front().current_gate_hits) best_of(current_scores(place), top_k_, current_);
    for (std::size_t d = 0; d < out_.size(); ++d) {
      const auto of = layer + out_[d].distance;
      if (of >= trace_.layers) break;
      const auto routed = trace_.ids_of(token, of);
      if (std::ranges::none_of(routed, [](expert_id e) { return e >= 0; })) continue;
      out_[d].places += top_k_;
      best_of(expected.probabilities.subspan(d * experts_, experts_), top_k_, guess_);
      out_[d].hits += named(routed, guess_);
      out_[d].popular_hits += named(routed, popular_[index_of(of)]);
      if (out_[d].current_gate_hits) *out_[d].current_gate_hits += named(routed, current_);
      if (!out_[d].recorded_hits) continue;
      const auto ahead = static_cast<std::size_t>(trace_.prediction_depth);
      trace_.predictions.convert((place * ahead + d) * experts_, scores_);
      best_of(scores_, top_k_, guess_);
      *out_[d].recorded_hits += named(routed, guess_);
    }
  }
  std::span<const float> current_scores(std::size_t place) {
    if (trace_.probabilities.empty())
      return std::span(trace_.logits).subspan(place * experts_, experts_);
    trace_.probabilities.convert(place * experts_, scores_);
    return scores_;
  }

  const routing_trace& trace_;
  std::size_t experts_, top_k_;
  std::vector<float> hidden_, scores_;
  std::vector<expert_id> guess_, current_;
  std::vector<std::vector<expert_id>> popular_;
  std::vector<distance_quality> out_;
  learned_gate gate_;
};

void check(const routing_trace& trace, const gate_training& training) {
  if (const auto bad = training.validate()) throw usage_error(bad->message);
  if (const auto bad = trace.validate()) throw trace_error(bad->message);
  if (trace.layers < 2) throw trace_error("the trace has 1 layer, accepted: 2 or more");
  if (training.depth >= trace.layers)
    throw usage_error(
        fmt::format("depth = {}, accepted: 1..{} (layers - 1)", training.depth, trace.layers - 1));
  if (trace.hidden.empty())
    throw trace_error("the trace has no hidden states, accepted: a trace that recorded them");
  if (training.target == gate_target::probabilities && trace.probabilities.empty())
    throw trace_error(
        "the trace has no probabilities, accepted: a trace that recorded them, or target routed");
}

}  // namespace

validation gate_training::validate() const {
  const auto refuse = [](std::string_view what, auto value, std::string_view accepted) {
    return error{fmt::format("{} = {}, accepted: {}", what, value, accepted)};
  };
  if (depth < 1) return refuse("depth", depth, "1 or more");
  if (width < 0) return refuse("width", width, "0 or more");
  if (epochs < 1) return refuse("epochs", epochs, "1 or more");
  if (!(holdout >= 0 && holdout < 1)) return refuse("holdout", holdout, "0 or more, less than 1");
  if (target != gate_target::routed && target != gate_target::probabilities)
    return refuse("target", static_cast<int>(target), "0 (routed), 1 (probabilities)");
  if (!(rate > 0 && rate <= 1)) return refuse("rate", rate, "more than 0, at most 1");
  if (batch < 1) return refuse("batch", batch, "1 or more");
  return std::nullopt;
}

gate_training_result train_gate(const routing_trace& trace, const gate_training& training) {
  check(trace, training);
  auto weights = learned_gate::weights::create(
      {trace.layers, trace.experts, trace.hidden_width, training.depth, training.width});
  if (!weights) throw usage_error(weights.error().message);
  const auto tokens = split(trace, training);
  train_all(trace, training, tokens.learnt, *weights);
  gate_training_result out{.trace = trace.name,
                           .top_k = trace.top_k,
                           .training = training,
                           .weights = *std::move(weights),
                           .learnt_sequences = tokens.learnt_sequences,
                           .learnt_tokens = tokens.learnt.size(),
                           .judged_sequences = tokens.judged_sequences,
                           .judged_tokens = tokens.judged.size()};
  if (!tokens.judged.empty())
    out.distances = judge_of_gates(trace, tokens, out.weights).over(tokens.judged);
  return out;
}

}  // namespace hotset::lab
