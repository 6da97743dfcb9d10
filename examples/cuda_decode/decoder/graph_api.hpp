// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The CUDA graph calls of this example as an interface, like hotset::cuda::runtime.

#include "hotset/cuda/error.hpp"
#include "hotset/cuda/runtime.hpp"

struct CUgraphExec_st;

namespace cuda_decode {

/// Same type as cudaGraphExec_t.
using graph_handle = CUgraphExec_st*;

/// Each call returns the runtime's code. Outputs are written on success only.
class graph_api {
 public:
  using error_code = hotset::cuda::error_code;
  using stream_handle = hotset::cuda::stream_handle;

  graph_api() = default;
  graph_api(const graph_api&) = delete;
  graph_api& operator=(const graph_api&) = delete;
  virtual ~graph_api() = default;

  /// Records further work of this thread on `stream` instead of running it.
  virtual error_code begin_capture(stream_handle stream) noexcept = 0;
  /// Ends the capture and instantiates the graph.
  virtual error_code end_capture(stream_handle stream, graph_handle& graph) noexcept = 0;
  virtual error_code launch(graph_handle graph, stream_handle stream) noexcept = 0;
  virtual error_code destroy(graph_handle graph) noexcept = 0;
};

/// Calls of the linked CUDA runtime.
graph_api& system_graphs() noexcept;

}  // namespace cuda_decode
