// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes a routing trace as a safetensors file, which hotset and every safetensors reader can open.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/trace/file_writer.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "hotset/trace/safetensors_header.hpp"

namespace hotset {

namespace detail {

/// Lays the tensors of a trace out and writes them one after the other.
class native_layout {
 public:
  explicit native_layout(const routing_trace& trace) : trace_(trace) {
    const auto t = trace.tokens();
    const auto l = static_cast<std::size_t>(trace.layers);
    const auto k = static_cast<std::size_t>(trace.top_k);
    const auto e = static_cast<std::size_t>(trace.experts);
    const auto d = static_cast<std::size_t>(trace.hidden_width);
    const auto ahead = static_cast<std::size_t>(trace.prediction_depth);
    // Wide elements first: with data that begins at a multiple of 64, everything is aligned.
    if (!trace.expert_bytes.empty()) add("expert_bytes", "U64", {l}, 8);
    add("step", "U32", {t}, 4);
    add("sequence", "U32", {t}, 4);
    if (!trace.token_ids.empty()) add("token_ids", "I32", {t}, 4);
    if (!trace.weights.empty()) add("weights", "F32", {t, l, k}, 4);
    if (!trace.logits.empty()) add("logits", "F32", {t, l, e}, 4);
    add("ids", "U16", {t, l, k}, 2);
    if (!trace.probabilities.empty()) add("probabilities", "F16", {t, l, e}, 2);
    if (!trace.hidden.empty()) add("hidden", "F16", {t, l, d}, 2);
    if (!trace.predictions.empty()) add("predictions", "F16", {t, l, ahead, e}, 2);
    if (!trace.adapter.empty()) add("adapter", "I16", {t}, 2);
    add("kind", "U8", {t}, 1);
  }

  [[nodiscard]] std::string header() const { return header_.bytes(metadata()); }

  void write(file_writer& file) const {
    std::vector<std::uint64_t> bytes = trace_.expert_bytes;
    if (bytes.size() == 1) bytes.assign(static_cast<std::size_t>(trace_.layers), bytes.front());
    file.write(std::span<const std::uint64_t>(bytes));
    file.write(std::span<const std::uint32_t>(trace_.step));
    file.write(std::span<const std::uint32_t>(trace_.sequence));
    file.write(std::span<const std::int32_t>(trace_.token_ids));
    file.write(std::span<const float>(trace_.weights));
    file.write(std::span<const float>(trace_.logits));
    write_ids(file);
    file.write(trace_.probabilities.bytes());
    file.write(trace_.hidden.bytes());
    file.write(trace_.predictions.bytes());
    file.write(std::span<const std::int16_t>(trace_.adapter));
    file.write(trace_.kind.data(), trace_.kind.size());
  }

 private:
  void add(std::string_view name, std::string_view dtype,
           std::initializer_list<std::uint64_t> shape, std::uint64_t element_bytes) {
    header_.add(name, dtype, {shape.begin(), shape.size()}, element_bytes);
  }

  [[nodiscard]] std::map<std::string, std::string> metadata() const {
    std::map<std::string, std::string> facts(trace_.metadata.begin(), trace_.metadata.end());
    facts["format"] = "hotset.trace/1";
    facts["experts"] = std::to_string(trace_.experts);
    facts["name"] = trace_.name;
    facts["model"] = trace_.model;
    facts["source"] = trace_.source;
    return facts;
  }

  void write_ids(file_writer& file) const {
    std::vector<std::uint16_t> part(
        std::min<std::size_t>(trace_.ids.size(), std::size_t{1} << 16U));
    for (std::size_t at = 0; at < trace_.ids.size(); at += part.size()) {
      const auto count = std::min(part.size(), trace_.ids.size() - at);
      for (std::size_t i = 0; i < count; ++i)
        part[i] = static_cast<std::uint16_t>(trace_.ids[at + i]);  // -1 becomes 0xFFFF
      file.write(std::span<const std::uint16_t>(part).first(count));
    }
  }

  const routing_trace& trace_;
  safetensors_header header_;
};

}  // namespace detail

/// Writes trace and finishes the file. Returns what went wrong, or nothing; on failure an earlier file is as it was.
/// The bytes depend on the trace alone. Accepted: a valid trace of at most 65,535 experts (ids are U16; 0xFFFF means
/// absent).
[[nodiscard]] inline std::optional<error> write_native_trace(const routing_trace& trace,
                                                             file_writer& file) {
  if (auto bad = trace.validate()) return error{file.name() + ": not written: " + bad->message};
  if (trace.experts > routing_trace::max_experts_in_file)
    return error{file.name() + ": not written: experts = " + std::to_string(trace.experts) +
                 ", accepted: 1..65535 (the format keeps ids in 16 bits)"};
  const detail::native_layout layout(trace);
  file.write(layout.header());
  layout.write(file);
  return file.finish();
}

/// The same to a path, as file_writer has it: whole or not at all, and through what is no regular file.
[[nodiscard]] inline std::optional<error> write_native_trace(const routing_trace& trace,
                                                             const std::string& path) {
  file_writer file(path);
  return write_native_trace(trace, file);
}

}  // namespace hotset
