// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads routing from arrays of NumPy's: what engines return of a request, saved as .npy or .npz.

#include <filesystem>
#include <string>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/npy.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// One of three:
///   routed_experts (experts, topk_ids, ids): integers [tokens, layers, top_k], with `weights` of that shape, `sequences`
///     [tokens] and `steps` [tokens] beside it where they are there;
///   logits (router_logits): real numbers [tokens, layers, experts]: a token's experts are the top_k highest, ties by the lower
///     id, and their weights the softmax over them. With `sequences` and `steps` as above;
///   nothing of these names: each array of integers [tokens, layers, top_k] is a request, in the order of their names (numbers
///     at the end by value): a sequence of its own, left out if it has no tokens. A file with one array of real numbers
///     holds logits.
/// Zeros and ones over a last axis of 3 or more are a map [tokens, layers, experts]: an expert with a 1 is routed.
/// The top_k is of logits, which are refused without one; ids must agree with it. Experts: the highest id + 1, or what
/// logits have.
/// Ids below 0, and the highest value of an unsigned type where no expert has it, are absent. Each token is a step where no
/// steps are given; tokens of one step and sequence are prefill. Other arrays are left alone.
/// Errors: trace_error.
[[nodiscard]] routing_trace trace_of_arrays(const std::vector<npy_array>& arrays,
                                            const std::string& file,
                                            const open_trace_options& options = {});

/// A .npy file, or an archive of them (.npz). Errors: trace_error.
[[nodiscard]] routing_trace read_routed_arrays(const std::filesystem::path& path,
                                               const open_trace_options& options = {});

}  // namespace hotset::lab
