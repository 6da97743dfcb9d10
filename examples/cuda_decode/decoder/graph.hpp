// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A captured graph that is destroyed with the object.

#include <utility>

#include "cuda_decode/decoder/device_memory.hpp"
#include "cuda_decode/decoder/graph_api.hpp"
#include "hotset/cuda/runtime.hpp"

namespace cuda_decode {

class graph {
 public:
  /// Captures the work that `enqueue` puts into the stream. Errors: device_error; exceptions of `enqueue`, after
  /// ending the capture.
  template <class Enqueue>
  static graph capture(const hotset::cuda::runtime& api, graph_api& graphs,
                       hotset::cuda::stream_handle stream, Enqueue enqueue) {
    require(api, graphs.begin_capture(stream), "cudaStreamBeginCapture");
    graph_handle made = nullptr;
    try {
      enqueue();
    } catch (...) {
      if (graphs.end_capture(stream, made) == hotset::cuda::error_code::success)
        (void)graphs.destroy(made);
      throw;
    }
    require(api, graphs.end_capture(stream, made), "cudaStreamEndCapture");
    return {graphs, made};
  }
  graph(graph&& other) noexcept
      : graphs_(other.graphs_), handle_(std::exchange(other.handle_, nullptr)) {}
  graph& operator=(graph&&) = delete;
  ~graph() {
    if (handle_ != nullptr) (void)graphs_.destroy(handle_);
  }

  [[nodiscard]] hotset::cuda::error_code launch(hotset::cuda::stream_handle stream) const noexcept {
    return graphs_.launch(handle_, stream);
  }

 private:
  graph(graph_api& graphs, graph_handle handle) noexcept : graphs_(graphs), handle_(handle) {}

  graph_api& graphs_;
  graph_handle handle_;
};

}  // namespace cuda_decode
