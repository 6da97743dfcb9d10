// SPDX-License-Identifier: Apache-2.0
/// hotset-llama-record: records the routing of a model run by llama.cpp as a trace.

#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
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

namespace {

using namespace hotset;
using namespace hotset_llama_cpp;

/// Observes the routers of one context.
class router_tap {
 public:
  router_tap(const lab::expert_files& files, std::size_t capacity, std::string name)
      : k_(files.shape.top_k),
        recorder_(trace_recorder::create(
                      {.shape = files.shape, .capacity = capacity, .name = std::move(name)})
                      .value()),
        layers_(static_cast<std::size_t>(files.shape.layers)) {
    for (std::size_t l = 0; l < files.layers.size(); ++l)
      number_of_[static_cast<std::int32_t>(files.layers[l])] = l;
  }

  static bool on_node(ggml_tensor* node, bool ask, void* self) {
    return static_cast<router_tap*>(self)->see(*node, ask);
  }
  /// Records the routing of the last micro-batch as a step.
  void close_step(std::int32_t tokens) {
    if (recorder_.begin_step(step_++, tokens > 1 ? request_class::prefill : request_class::decode,
                             static_cast<std::size_t>(tokens)) != status::ok)
      throw std::runtime_error("more tokens than the recorder was made for");
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      routing_view view;
      view.layer = layer_id{static_cast<std::int32_t>(l)};
      view.experts = layers_[l].ids;
      view.weights = layers_[l].weights;
      if (const auto code = recorder_.record(view); code != status::ok)
        throw std::runtime_error("layer " + std::to_string(l) + ": " + std::string(describe(code)));
      layers_[l] = {};
    }
    (void)recorder_.end_step();
  }
  void write(const std::string& path) {
    if (const auto bad = write_native_trace(recorder_.take(), path))
      throw std::runtime_error(bad->message);
  }
  [[nodiscard]] std::size_t tokens() const { return recorder_.tokens(); }

 private:
  struct routed {
    std::vector<std::int32_t> ids{};
    std::vector<float> weights{};
  };
  bool see(const ggml_tensor& node, bool ask) {
    if (const auto layer = chosen_of(node)) {
      if (!ask) copy_rows(node, k_, layers_[number_of_.at(*layer)].ids);
      return true;
    }
    if (const auto layer =
            weights_of(node)) {  // the last stage holds the weights of the experts' outputs
      if (!ask) copy_rows(node, k_, layers_[number_of_.at(*layer)].weights);
      return true;
    }
    return !ask;
  }

  std::int64_t k_;
  trace_recorder recorder_;
  std::vector<routed> layers_;
  std::map<std::int32_t, std::size_t> number_of_{};  ///< layer of the model -> layer with experts
  step_id step_ = 0;
};

int record(const run_options& how, const std::string& out) {
  const auto files = lab::find_experts(how.model);
  const auto model = load_model(how);
  const auto prompt = prompt_tokens(*model, how);
  router_tap tap(files, prompt.size() + static_cast<std::size_t>(how.predict), how.model);
  auto params = context_params(how);
  params.cb_eval = router_tap::on_node;
  params.cb_eval_user_data = &tap;
  const auto context = make_context(*model, params);
  (void)run(
      *context, prompt, how, false,
      [&](const llama_batch& batch) {
        decode(*context, batch);
        tap.close_step(batch.n_tokens);
      },
      [](llama_token) {});
  const auto tokens = tap.tokens();
  tap.write(out);
  std::printf("%s: %zu tokens, %d layers, %d experts, top-%d\n", out.c_str(), tokens,
              files.shape.layers, files.shape.experts, files.shape.top_k);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  run_options how;
  how.predict = 0;
  std::string out;
  CLI::App app(
      "Records which experts llama.cpp routes the tokens of a prompt to, and of what it "
      "generates.");
  add_options(app, how);
  app.add_option("-o,--out", out, "the trace to write")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    return record(how, out);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hotset-llama-record: %s\n", e.what());
    return 1;
  }
}
