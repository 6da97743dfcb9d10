// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads routing from NumPy arrays, as engines return it per request, saved as .npy or .npz.

#include <filesystem>
#include <string>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/npy.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// One of three layouts:
///   routed_experts (experts, topk_ids, ids): integers [tokens, layers, top_k], optionally with `weights` of that
///   shape, `sequences` [tokens] and `steps` [tokens];
///   logits (router_logits): real numbers [tokens, layers, experts]: a token's experts are the top_k highest, ties by
///   the lower id, and their weights the softmax over them. `sequences` and `steps` are optional;
///   none of these names: each array of integers [tokens, layers, top_k] is a request and becomes a sequence, left
///   out if it has no tokens. Requests are ordered by name (numbers at the end by value). A file with one array of
///   real numbers holds logits.
/// Zeros and ones over a last axis of 3 or more are a map [tokens, layers, experts]: an expert with a 1 is routed.
/// top_k applies to logits, which are refused without it; ids must agree with it. Number of experts: the highest id +
/// 1, or the last axis of logits.
/// Ids below 0 are absent; so is the highest value of an unsigned type if no expert has it. Without steps, each token
/// is a step; tokens of one step and sequence are prefill. Other arrays are ignored.
/// Errors: trace_error.
[[nodiscard]] routing_trace trace_of_arrays(const std::vector<npy_array>& arrays,
                                            const std::string& file,
                                            const open_trace_options& options = {});

/// Reads a .npy file, or an archive of them (.npz). Errors: trace_error.
[[nodiscard]] routing_trace read_routed_arrays(const std::filesystem::path& path,
                                               const open_trace_options& options = {});

}  // namespace hotset::lab
