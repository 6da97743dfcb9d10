// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Command-line options. Parsed without a library: a machine with a GPU often has only a compiler and a toolkit.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_decode/decoder/decoder.hpp"
#include "cuda_decode/experts/static_experts.hpp"
#include "cuda_decode/model/routing.hpp"

namespace cuda_decode {

enum exit_code : int { ok = 0, failure = 1, usage = 2, infeasible = 3, bad_input = 4 };

/// An invalid command line: the value found and the accepted values.
class usage_error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The request needs more than the machine has.
class infeasible_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class subcommand : std::uint8_t { compare, tiny, help, version };

struct program_options {
  subcommand what = subcommand::compare;
  int device = 0;
  std::string json;              ///< file; empty: none
  std::string eviction = "lru";  ///< for paged experts

  // compare
  std::string shape = "qwen3-30b-a3b";
  std::int32_t layers = 0;         ///< 0: all layers of the shape
  bool fit_layers = false;         ///< as many layers as host_budget holds
  std::vector<std::int32_t> caps;  ///< empty: default_caps; a 0 in it: all experts of a layer
  std::vector<decode_mode> modes = {decode_mode::eager, decode_mode::layer_graphs,
                                    decode_mode::step_graph};
  offload_fetch fetch = offload_fetch::routed;
  routing_known known = routing_known::in_time;
  std::size_t steps = 64;
  std::size_t warmup = 16;
  std::string trace;  ///< file; empty: synthetic
  routing_statistics statistics{};
  std::uint64_t host_budget = std::uint64_t{64} << 30U;  ///< maximum page-locked bytes
  std::size_t check_steps = 0;                           ///< steps that the host computes, too

  // tiny
  std::string model;  ///< folder; empty: this repository's
  std::string expert_budget = "25%";
  std::string prompt = "The hot set of a model";
  std::size_t tokens = 32;
};

/// `arguments` without the program's name. Errors: usage_error, one line.
[[nodiscard]] program_options read_options(std::span<const std::string> arguments);

[[nodiscard]] std::string_view help_text() noexcept;

}  // namespace cuda_decode
