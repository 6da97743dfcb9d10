// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The program without its main: from arguments to an exit code, over the given device parts.

#include <functional>
#include <iosfwd>
#include <span>
#include <string>

#include "cuda_decode/decoder/decoder.hpp"
#include "cuda_decode/program/options.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace cuda_decode {

struct program_parts {
  hotset::cuda::runtime& api;
  decode_kernels& kernels;
  graph_api& graphs;
  /// Empty if the program was built without hotset::lab.
  std::function<hotset::routing_trace(const std::string& file)> read_trace{};
  /// Returns the exit code. Empty if the program was built without examples/tiny_moe.
  std::function<int(const program_options&, const device_parts&, std::ostream& out)> run_tiny{};
};

/// `arguments` excludes the program's name. Prints figures to `out`, and a failure as one line to `err`. Without a
/// device: one line with the driver's reason, and exit code 0. Returns: an exit_code.
[[nodiscard]] int run_program(std::span<const std::string> arguments, const program_parts& parts,
                              std::ostream& out, std::ostream& err);

}  // namespace cuda_decode
