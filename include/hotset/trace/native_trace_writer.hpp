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

/// Returns the length of the well-formed UTF-8 sequence at the front of text, or 0.
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

/// Appends text as a JSON string. Bytes that are not UTF-8 become '?'.
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

/// Header of a safetensors file: arrays lie one after the other, in the order in which they are added.
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

  /// Returns length and JSON, padded with spaces so that the data begins at a multiple of 64.
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

/// Calls use(name, dtype, shape, bytes, bytes of an element) for each array of the file, in its order. The bytes of
/// ids are those in memory, which are wider. Wide elements come first: if the data begins at a multiple of 64, every
/// array is aligned.
template <class Use>
void each_native_array(const routing_trace& trace, Use use) {
  const auto t = trace.tokens();
  const auto l = static_cast<std::uint64_t>(trace.layers);
  const auto k = static_cast<std::uint64_t>(trace.top_k);
  const auto e = static_cast<std::uint64_t>(trace.experts);
  const auto d = static_cast<std::uint64_t>(trace.hidden_width);
  const auto ahead = static_cast<std::uint64_t>(trace.prediction_depth);
  using extents = std::initializer_list<std::uint64_t>;
  const auto array = [&](std::string_view name, std::string_view dtype, extents shape,
                         const auto& values) {
    if (!values.empty())
      use(name, dtype, shape, std::as_bytes(std::span(values)), sizeof(values[0]));
  };
  const auto halves = [&](std::string_view name, extents shape, const half_array& values) {
    if (!values.empty()) use(name, "F16", shape, values.bytes(), sizeof(std::uint16_t));
  };
  auto expert_bytes = trace.expert_bytes;
  if (expert_bytes.size() == 1) expert_bytes.assign(l, expert_bytes.front());
  array("expert_bytes", "U64", {l}, expert_bytes);
  array("step", "U32", {t}, trace.step);
  array("sequence", "U32", {t}, trace.sequence);
  array("token_ids", "I32", {t}, trace.token_ids);
  array("weights", "F32", {t, l, k}, trace.weights);
  array("logits", "F32", {t, l, e}, trace.logits);
  use("ids", "U16", extents{t, l, k}, std::as_bytes(std::span(trace.ids)), sizeof(std::uint16_t));
  halves("probabilities", {t, l, e}, trace.probabilities);
  halves("hidden", {t, l, d}, trace.hidden);
  halves("predictions", {t, l, ahead, e}, trace.predictions);
  array("adapter", "I16", {t}, trace.adapter);
  array("kind", "U8", {t}, trace.kind);
}

inline void write_native_ids(std::span<const expert_id> ids, file_writer& file) {
  std::vector<std::uint16_t> part(std::min<std::size_t>(ids.size(), std::size_t{1} << 16U));
  for (; !ids.empty(); ids = ids.subspan(part.size())) {
    part.resize(std::min(part.size(), ids.size()));
    for (std::size_t i = 0; i < part.size(); ++i)
      part[i] = static_cast<std::uint16_t>(ids[i]);  // -1 becomes 0xFFFF
    file.write(std::span<const std::uint16_t>(part));
  }
}

}  // namespace detail

/// Writes trace and finishes the file. Returns the error, or nothing; on failure an earlier file is unchanged. The
/// bytes depend only on the trace. Accepted: a valid trace of at most 65,535 experts (ids are U16; 0xFFFF means
/// absent).
[[nodiscard]] inline std::optional<error> write_native_trace(const routing_trace& trace,
                                                             file_writer& file) {
  if (auto bad = trace.validate()) return error{file.name() + ": not written: " + bad->message};
  if (trace.experts > routing_trace::max_experts_in_file)
    return refusal(file.name(), ": not written: experts = ", trace.experts,
                   ", accepted: 1..65535 (the format keeps ids in 16 bits)");
  safetensors_header header;
  detail::each_native_array(trace, [&](auto name, auto dtype, auto shape, auto, auto width) {
    header.add(name, dtype, {shape.begin(), shape.size()}, width);
  });
  std::map<std::string, std::string> facts(trace.metadata.begin(), trace.metadata.end());
  facts["format"] = "hotset.trace/1";
  facts["experts"] = std::to_string(trace.experts);
  facts["name"] = trace.name;
  facts["model"] = trace.model;
  facts["source"] = trace.source;
  file.write(header.bytes(facts));
  detail::each_native_array(trace, [&](std::string_view name, auto, auto, auto bytes, auto) {
    name == "ids" ? detail::write_native_ids(trace.ids, file) : file.write(bytes);
  });
  return file.finish();
}

/// Writes to a path like file_writer: complete or not at all, and directly if it is not a regular file.
[[nodiscard]] inline std::optional<error> write_native_trace(const routing_trace& trace,
                                                             const std::string& path) {
  file_writer file(path);
  return write_native_trace(trace, file);
}

}  // namespace hotset
