// SPDX-License-Identifier: Apache-2.0
// CUDA graphs over the linked runtime.
#include <cuda_runtime_api.h>

#include "cuda_decode/decoder/graph_api.hpp"

namespace cuda_decode {
namespace {

graph_api::error_code as_error_code(cudaError_t code) noexcept {
  if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
  return static_cast<graph_api::error_code>(code);
}

class cudart_graphs final : public graph_api {
 public:
  error_code begin_capture(stream_handle stream) noexcept override {
    // Thread-local, because a backend's threads make unrelated calls during the capture.
    return as_error_code(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  error_code end_capture(stream_handle stream, graph_handle& graph) noexcept override {
    cudaGraph_t captured = nullptr;
    if (const auto code = as_error_code(cudaStreamEndCapture(stream, &captured));
        code != error_code::success)
      return code;
    cudaGraphExec_t made = nullptr;
    const auto code = as_error_code(cudaGraphInstantiateWithFlags(&made, captured, 0));
    (void)cudaGraphDestroy(captured);
    if (code == error_code::success) graph = made;
    return code;
  }
  error_code launch(graph_handle graph, stream_handle stream) noexcept override {
    return as_error_code(cudaGraphLaunch(graph, stream));
  }
  error_code destroy(graph_handle graph) noexcept override {
    return as_error_code(cudaGraphExecDestroy(graph));
  }
};

}  // namespace

graph_api& system_graphs() noexcept {
  static cudart_graphs graphs;
  return graphs;
}

}  // namespace cuda_decode
