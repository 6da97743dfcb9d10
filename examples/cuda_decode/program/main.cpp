// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>
#include <vector>

#include "cuda_decode/decoder/cuda_kernels.hpp"
#include "cuda_decode/program/program.hpp"
#ifdef CUDA_DECODE_HAS_SIM
#include "lab/traces/native_trace.hpp"
#endif
#ifdef CUDA_DECODE_HAS_TINY
#include "cuda_decode/experts/tiny_on_device.hpp"
#endif

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  cuda_decode::cuda_kernels kernels;
  cuda_decode::program_parts parts{hotset::cuda::system_runtime(), kernels,
                                   cuda_decode::system_graphs()};
#ifdef CUDA_DECODE_HAS_SIM
  parts.read_trace = [](const std::string& file) { return hotset::lab::read_native_trace(file); };
#endif
#ifdef CUDA_DECODE_HAS_TINY
  parts.run_tiny = cuda_decode::run_tiny;
#endif
  return cuda_decode::run_program(arguments, parts, std::cout, std::cerr);
}
