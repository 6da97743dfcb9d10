// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes a routing trace as a safetensors file, which hotset and every safetensors reader can open.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/trace/file_writer.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset {

namespace detail {

/// Length of the well-formed UTF-8 sequence at the front of text, or 0.
[[nodiscard]] inline std::size_t utf8_sequence(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  const std::size_t length = first >= 0xf0U ? 4 : first >= 0xe0U ? 3 : 2;
  if (first < 0xc2U || first > 0xf4U || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  const unsigned second = byte(1);
  if ((first == 0xe0U && second < 0xa0U) || (first == 0xedU && second > 0x9fU) ||
      (first == 0xf0U && second < 0x90U) || (first == 0xf4U && second > 0x8fU))
    return 0;
  return length;
}

/// Bytes that are not UTF-8 become '?'.
inline void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    const auto length = utf8_sequence(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text.front();
    } else if (c < 0x20U) {
      out.append("\\u00").append(1, digits[c >> 4U]).append(1, digits[c & 15U]);
    } else if (length == 0) {
      out += '?';
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += '"';
}

}  // namespace detail

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

/// The header of a safetensors file that is to be written: arrays one behind the other, as they are added.
class safetensors_header {
 public:
  /// Pre: names differ; the bytes of all arrays fit 64 bits.
  void add(std::string_view name, std::string_view dtype, std::span<const std::uint64_t> shape,
           std::uint64_t element_bytes) {
    arrays_ += ',';
    detail::append_json_string(arrays_, name);
    arrays_.append(":{\"dtype\":\"").append(dtype).append("\",\"shape\":[");
    auto size = element_bytes;
    bool first = true;
    for (const auto extent : shape) {
      arrays_.append(std::exchange(first, false) ? "" : ",").append(std::to_string(extent));
      size *= extent;
    }
    arrays_.append("],\"data_offsets\":[").append(std::to_string(end_));
    end_ += size;
    arrays_.append(",").append(std::to_string(end_)).append("]}");
  }

  /// Length and JSON, padded with spaces so that the data begins at a multiple of 64.
  [[nodiscard]] std::string bytes(const std::map<std::string, std::string>& metadata) const {
    std::string json = "{\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      if (!std::exchange(first, false)) json += ',';
      detail::append_json_string(json, key);
      json += ':';
      detail::append_json_string(json, value);
    }
    json += '}';
    json += arrays_;
    json += '}';
    json.append((64 - (8 + json.size()) % 64) % 64, ' ');
    const std::uint64_t length = json.size();
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    return out + json;
  }

 private:
  std::string arrays_;
  std::uint64_t end_ = 0;
};

namespace detail {

/// Lays the tensors of a trace out and writes them one after the other.
class native_layout {
 public:
  explicit native_layout(const routing_trace& trace)
      : trace_(trace), expert_bytes_(trace.expert_bytes) {
    const auto t = trace.tokens();
    const auto l = static_cast<std::size_t>(trace.layers);
    const auto k = static_cast<std::size_t>(trace.top_k);
    const auto e = static_cast<std::size_t>(trace.experts);
    const auto d = static_cast<std::size_t>(trace.hidden_width);
    const auto ahead = static_cast<std::size_t>(trace.prediction_depth);
    if (expert_bytes_.size() == 1) expert_bytes_.assign(l, expert_bytes_.front());
    // Wide elements first: with data that begins at a multiple of 64, everything is aligned.
    add("expert_bytes", "U64", {l}, expert_bytes_);
    add("step", "U32", {t}, trace.step);
    add("sequence", "U32", {t}, trace.sequence);
    add("token_ids", "I32", {t}, trace.token_ids);
    add("weights", "F32", {t, l, k}, trace.weights);
    add("logits", "F32", {t, l, e}, trace.logits);
    add_bytes("ids", "U16", {t, l, k}, {}, 2);
    add("probabilities", "F16", {t, l, e}, trace.probabilities);
    add("hidden", "F16", {t, l, d}, trace.hidden);
    add("predictions", "F16", {t, l, ahead, e}, trace.predictions);
    add("adapter", "I16", {t}, trace.adapter);
    add("kind", "U8", {t}, trace.kind);
  }
  native_layout(const native_layout&) = delete;
  native_layout& operator=(const native_layout&) = delete;

  [[nodiscard]] std::string header() const { return header_.bytes(metadata()); }

  void write(file_writer& file) const {
    for (const auto part : parts_) part.empty() ? write_ids(file) : file.write(part);
  }

 private:
  using extents = std::initializer_list<std::uint64_t>;

  /// An array without values is not written.
  template <class T>
  void add(std::string_view name, std::string_view dtype, extents shape,
           const std::vector<T>& values) {
    if (!values.empty()) add_bytes(name, dtype, shape, std::as_bytes(std::span(values)), sizeof(T));
  }
  void add(std::string_view name, std::string_view dtype, extents shape, const half_array& values) {
    if (!values.empty()) add_bytes(name, dtype, shape, values.bytes(), 2);
  }
  /// No bytes: those of ids, which are wider in memory.
  void add_bytes(std::string_view name, std::string_view dtype, extents shape,
                 std::span<const std::byte> bytes, std::uint64_t element_bytes) {
    header_.add(name, dtype, {shape.begin(), shape.size()}, element_bytes);
    parts_.push_back(bytes);
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
  std::vector<std::uint64_t> expert_bytes_;  ///< of every layer
  safetensors_header header_;
  std::vector<std::span<const std::byte>> parts_;
};

}  // namespace detail

/// Writes trace and finishes the file. Returns what went wrong, or nothing; on failure an earlier file is as it was.
/// The bytes depend on the trace alone. Accepted: a valid trace of at most 65,535 experts (ids are U16; 0xFFFF means
/// absent).
[[nodiscard]] inline std::optional<error> write_native_trace(const routing_trace& trace,
                                                             file_writer& file) {
  if (auto bad = trace.validate()) return error{file.name() + ": not written: " + bad->message};
  if (trace.experts > routing_trace::max_experts_in_file)
    return refusal(file.name(), ": not written: experts = ", trace.experts,
                   ", accepted: 1..65535 (the format keeps ids in 16 bits)");
  const detail::native_layout layout(trace);
  file.write(layout.header());
  layout.write(file);
  return file.finish();
}

/// Writes to a path as file_writer does: whole or not at all, and through what is no regular file.
[[nodiscard]] inline std::optional<error> write_native_trace(const routing_trace& trace,
                                                             const std::string& path) {
  file_writer file(path);
  return write_native_trace(trace, file);
}

}  // namespace hotset
