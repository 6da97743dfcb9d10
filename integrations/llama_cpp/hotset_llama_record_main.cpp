// SPDX-License-Identifier: Apache-2.0
/// hotset-llama-record: records the routing of a model run by llama.cpp as a trace.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "graph_nodes.hpp"
#include "hotset/lab/expert_files.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/trace_recorder.hpp"
#include "model_run.hpp"
#include "score_recorder.hpp"

namespace {

using namespace hotset;
using namespace hotset_llama_cpp;

/// Records the routers of one context.
class recording {
 public:
  /// `width`: of a token in the model.
  recording(const lab::expert_files& files, std::size_t capacity, std::string name,
            const score_options& wanted, std::int32_t width)
      : k_(files.shape.top_k),
        recorder_(trace_recorder::create({.shape = files.shape,
                                          .capacity = capacity,
                                          .logits = wanted.on,
                                          .probabilities = wanted.on,
                                          .hidden_width = wanted.hidden ? width : 0,
                                          .name = std::move(name)})
                      .value()),
        layers_(files.shape.layer_count()) {
    for (std::size_t l = 0; l < files.layers.size(); ++l)
      number_of_[static_cast<std::int32_t>(files.layers[l])] = l;
    if (wanted.on) scores_.emplace(files.shape, files.layers, wanted);
  }

  static bool on_node(ggml_tensor* node, bool ask, void* self) {
    return static_cast<recording*>(self)->see(*node, ask);
  }
  /// Records the routing of the last micro-batch as a step.
  void close_step(std::int32_t tokens) {
    if (recorder_.begin_step(step_++, tokens > 1 ? request_class::prefill : request_class::decode,
                             static_cast<std::size_t>(tokens)) != status::ok)
      throw std::runtime_error("more tokens than the recorder was made for");
    if (scores_) scores_->close_step(static_cast<std::size_t>(tokens));
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      routing_view view;
      view.layer = layer_id{static_cast<std::int32_t>(l)};
      view.experts = layers_[l].ids;
      view.weights = layers_[l].weights;
      if (scores_) scores_->add_to(view);
      if (const auto code = recorder_.record(view); code != status::ok)
        throw std::runtime_error("layer " + std::to_string(l) + ": " + std::string(describe(code)));
      layers_[l] = {};
    }
    (void)recorder_.end_step();
  }
  void write(const std::string& path) {
    auto trace = recorder_.take();
    if (scores_) scores_->move_into(trace);
    if (const auto bad = write_native_trace(trace, path)) throw std::runtime_error(bad->message);
  }
  [[nodiscard]] std::size_t tokens() const { return recorder_.tokens(); }

 private:
  struct routed {
    std::vector<std::int32_t> ids{};
    std::vector<float> weights{};
  };
  bool see(const ggml_tensor& node, bool ask) {
    const bool is_logits = scores_ && scores_->see(node, ask);
    if (const auto layer = chosen_of(node)) {
      if (!ask) copy_rows(node, k_, layers_[number_of_.at(*layer)].ids);
      return true;
    }
    if (const auto layer =
            weights_of(node)) {  // the last stage holds the weights of the experts' outputs
      if (!ask) copy_rows(node, k_, layers_[number_of_.at(*layer)].weights);
      return true;
    }
    return is_logits || !ask;
  }

  std::int64_t k_;
  trace_recorder recorder_;
  std::vector<routed> layers_;
  std::map<std::int32_t, std::size_t> number_of_{};  ///< layer of the model -> layer with experts
  step_id step_ = 0;
  std::optional<score_recorder> scores_{};
};

int record(const run_options& how, const score_options& scores, const std::string& out) {
  auto files = lab::find_experts(how.model);
  files.shape.max_tokens_per_visit = how.micro_batch;
  if (scores.on && (scores.next_layers < 0 || scores.next_layers >= files.shape.layers))
    throw std::runtime_error("--next-layers " + std::to_string(scores.next_layers) +
                             ", accepted: 0.." + std::to_string(files.shape.layers - 1) +
                             " (layers with experts - 1)");
  const auto model = load_model(how);
  const auto prompt = prompt_tokens(*model, how);
  recording records(files, prompt.size() + static_cast<std::size_t>(how.predict), how.model, scores,
                    llama_model_n_embd(model.get()));
  auto params = context_params(how);
  params.cb_eval = recording::on_node;
  params.cb_eval_user_data = &records;
  const auto context = make_context(*model, params);
  (void)run(
      *context, prompt, how, false,
      [&](const llama_batch& batch) {
        decode(*context, batch);
        records.close_step(batch.n_tokens);
      },
      [](llama_token) {});
  const auto tokens = records.tokens();
  records.write(out);
  std::printf("%s: %zu tokens, %d layers, %d experts, top-%d\n", out.c_str(), tokens,
              files.shape.layers, files.shape.experts, files.shape.top_k);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  run_options how;
  how.predict = 0;
  score_options scores;
  std::string out;
  CLI::App app(
      "Records which experts llama.cpp routes the tokens of a prompt to, and of what it "
      "generates.");
  add_options(app, how);
  app.add_option("-o,--out", out, "the trace to write")->required();
  auto* const on = app.add_flag("--scores", scores.on,
                                "also record router logits, probabilities and predictions");
  app.add_option("--next-layers", scores.next_layers,
                 "layers ahead to predict: their routers on the input of this layer's router")
      ->needs(on)
      ->capture_default_str();
  app.add_flag(
         "--hidden", scores.hidden,
         "also record the routers' inputs, for 'train-gate': 2 bytes x width x layers a token")
      ->needs(on);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    return record(how, scores, out);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hotset-llama-record: %s\n", e.what());
    return 1;
  }
}
