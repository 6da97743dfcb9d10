// SPDX-License-Identifier: Apache-2.0
#pragma once
/// CUDA graphs without a device: a capture records kernels, a launch enqueues them in a stream of fake_cuda_runtime.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_decode/decoder/graph_api.hpp"
#include "cuda_decode/decoder/host_kernels.hpp"
#include "fake_cuda_runtime.hpp"

namespace cuda_decode {

class fake_graphs final : public graph_api {
 public:
  explicit fake_graphs(hotset::support::fake_cuda_runtime& api) : api_(api) {}

  /// Target of host_kernels' work.
  void enqueue(stream_handle stream, host_kernels::work kernel) {
    if (capturing_ == stream)
      captured_.push_back(std::move(kernel));
    else
      api_.launch(stream, std::move(kernel));
  }

  error_code begin_capture(stream_handle stream) noexcept override {
    if (capturing_ != nullptr) return error_code::invalid_value;
    capturing_ = stream;
    api_.begin_capture(stream);
    return error_code::success;
  }
  error_code end_capture(stream_handle stream, graph_handle& graph) noexcept override {
    if (capturing_ != stream) return error_code::invalid_value;
    api_.end_capture(stream);
    capturing_ = nullptr;
    graphs_.push_back(std::make_unique<made>(made{std::exchange(captured_, {}), true}));
    graph = reinterpret_cast<graph_handle>(graphs_.back().get());
    return error_code::success;
  }
  error_code launch(graph_handle graph, stream_handle stream) noexcept override {
    const auto& g = *reinterpret_cast<made*>(graph);
    if (!g.alive) return error_code::invalid_value;
    ++launches_;
    for (const auto& kernel : g.kernels) api_.launch(stream, kernel);
    return error_code::success;
  }
  error_code destroy(graph_handle graph) noexcept override {
    reinterpret_cast<made*>(graph)->alive = false;
    return error_code::success;
  }

  [[nodiscard]] std::size_t captures() const noexcept { return graphs_.size(); }
  [[nodiscard]] std::size_t launches() const noexcept { return launches_; }
  [[nodiscard]] std::size_t leaks() const noexcept {
    std::size_t live = 0;
    for (const auto& g : graphs_) live += g->alive ? 1U : 0U;
    return live;
  }

 private:
  struct made {
    std::vector<host_kernels::work> kernels;
    bool alive = true;
  };

  hotset::support::fake_cuda_runtime& api_;
  stream_handle capturing_ = nullptr;
  std::vector<host_kernels::work> captured_;
  std::vector<std::unique_ptr<made>> graphs_;
  std::size_t launches_ = 0;
};

}  // namespace cuda_decode
