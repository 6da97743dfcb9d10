// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The few calls of CUDA graphs that this example makes, as an interface like hotset::cuda::runtime.

#include "hotset/cuda/error.hpp"
#include "hotset/cuda/runtime.hpp"

struct CUgraphExec_st;

namespace cuda_decode {

/// What cudaGraphExec_t is.
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

  /// From here on what this thread enqueues on `stream` is written down and not run.
  virtual error_code begin_capture(stream_handle stream) noexcept = 0;
  /// Ends the capture, and makes it into a graph that can be launched.
  virtual error_code end_capture(stream_handle stream, graph_handle& graph) noexcept = 0;
  virtual error_code launch(graph_handle graph, stream_handle stream) noexcept = 0;
  virtual error_code destroy(graph_handle graph) noexcept = 0;
};

/// The calls of the CUDA runtime that the program was linked with.
graph_api& system_graphs() noexcept;

}  // namespace cuda_decode
