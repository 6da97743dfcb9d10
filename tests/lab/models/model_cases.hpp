// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by tests of models: cases as lines of text, the summary of a model, and files of weights.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "hotset/registry/parameters.hpp"
#include "lab/models/model_description.hpp"
#include "trace_samples.hpp"

namespace hotset::model_cases {

/// Calls check(case, part) for each part of each line "case => part | part". A line that ends in a colon is a comment.
template <class Check>
void for_each_case(std::string_view lines, Check check) {
  for (const auto line : detail::split_at(lines, '\n')) {
    const std::string text(line);
    if (text.empty() || text.ends_with(':')) continue;
    const auto arrow = text.find(" => ");
    ASSERT_NE(arrow, text.npos) << text;
    const auto parts = text.substr(arrow + 4);
    for (std::size_t at = 0; at <= parts.size();) {
      const auto end = std::min(parts.find(" | ", at), parts.size());
      check(text.substr(0, arrow), parts.substr(at, end - at));
      at = end + 3;
    }
  }
}

/// Summary of a model: everything that a plan uses except its resident bytes, and all notes. An expert has one size, or
/// one for each layer. A cache is layers x bytes of a token, in a window.
inline std::string told(const lab::model_description& out) {
  const auto& m = out.memory;
  const auto& of = m.experts;
  std::vector<std::string> cache;
  for (const auto& kv : m.kv)
    cache.push_back(fmt::format("{} x {}{}", kv.layers, kv.bytes_per_token,
                                kv.window == 0 ? "" : fmt::format(" in {}", kv.window)));
  return fmt::format(
      "{} layers of {} experts, top {}; expert {}; cache {}; state {}; context {}; notes: {}",
      of.layers, of.experts, of.top_k, fmt::join(of.expert_bytes, ", "), fmt::join(cache, ", "),
      m.state_bytes_per_sequence, m.max_context, fmt::join(out.notes, "; "));
}

/// Number of weights: those that a token multiplies, embeddings of which it reads one row, and all experts.
inline std::uint64_t parameters_of(const lab::model_description& out) {
  const auto& a = out.arithmetic;
  const auto rows = a.lookup_bytes == 0 ? 0 : a.hidden * a.vocabulary;
  return a.resident_parameters + rows + a.expert_parameters * out.memory.experts.keys();
}

/// Expects equal memory. Names and origins may differ.
inline void expect_same_memory(const lab::model_description& out,
                               const lab::model_description& expected) {
  SCOPED_TRACE(out.source);
  EXPECT_EQ(out.memory.experts.layers, expected.memory.experts.layers);
  EXPECT_EQ(out.memory.experts.expert_bytes, expected.memory.experts.expert_bytes);
  EXPECT_EQ(out.memory.resident_bytes, expected.memory.resident_bytes);
  EXPECT_EQ(out.memory.kv, expected.memory.kv);
  EXPECT_EQ(out.memory.blocks, expected.memory.blocks);
}

struct stored_tensor {
  std::string name;
  const char* dtype = "BF16";
  std::vector<std::uint64_t> shape;
};
using tensors_of = std::vector<stored_tensor>;

/// A .safetensors file of zeros.
inline std::string stored(const tensors_of& tensors) {
  nlohmann::ordered_json header;
  std::uint64_t end = 0;
  for (const auto& t : tensors) {
    const std::string_view dtype = t.dtype;
    std::uint64_t bytes = dtype == "BF16" ? 2 : dtype == "F32" ? 4 : 1;
    for (const auto extent : t.shape) bytes *= extent;
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  return trace_samples::safetensors_bytes(header.dump(), std::string(end, '\0'));
}

}  // namespace hotset::model_cases
