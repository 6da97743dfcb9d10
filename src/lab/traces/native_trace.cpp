// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/native_trace.hpp"

#include <algorithm>
#include <charconv>
#include <memory>

#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

using tensor = safetensors_file::tensor;

std::string text_of(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const auto extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

class native_reader {
 public:
  explicit native_reader(const std::filesystem::path& path)
      : file_(std::make_shared<safetensors_file>(path)) {}

  routing_trace read() {
    read_metadata();
    read_rows();
    read_scores();
    if (const auto bad = trace_.validate()) refuse("", bad->message, "");
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const std::string& place, const std::string& found,
                           const std::string& accepted) const {
    refuse_input(file_->path().string(), place, found, accepted);
  }

  void read_metadata() {
    const auto& facts = file_->metadata();
    const auto format = facts.find("format");
    if (format == facts.end() || format->second != "hotset.trace/1")
      refuse("__metadata__",
             format == facts.end() ? "has no 'format'" : "format is '" + format->second + "'",
             "format hotset.trace/1");
    const auto experts = facts.find("experts");
    const std::string text = experts == facts.end() ? "" : experts->second;
    const auto* const end = text.data() + text.size();
    const auto [rest, code] = std::from_chars(text.data(), end, trace_.experts);
    if (code != std::errc{} || rest != end || trace_.experts < 1 || trace_.experts > 65535)
      refuse("__metadata__", "experts is '" + text + "'", "1..65535");
    for (const auto& [key, value] : facts) {
      if (key == "name")
        trace_.name = value;
      else if (key == "model")
        trace_.model = value;
      else if (key == "source")
        trace_.source = value;
      else if (key != "format" && key != "experts")
        trace_.metadata.emplace_back(key, value);
    }
    if (trace_.name.empty()) trace_.name = file_->path().stem().string();
  }

  /// The tensor, with its dtype and shape checked; nullptr if it is optional and absent.
  const tensor* take(std::string_view name, std::string_view dtype,
                     const std::vector<std::uint64_t>& shape, bool optional) const {
    const auto* const found = optional ? file_->find(name) : &file_->at(name);
    if (found == nullptr) return nullptr;
    if (found->dtype != dtype || found->shape != shape)
      refuse("tensor '" + std::string(name) + "'",
             "is " + std::string(found->dtype) + " " + text_of(found->shape),
             std::string(dtype) + " " + text_of(shape));
    return found;
  }

  void read_rows() {
    const auto& ids = file_->at("ids");
    constexpr std::uint64_t most = std::uint64_t{1} << 24U;
    if (ids.dtype != "U16" || ids.shape.size() != 3 || ids.shape[1] < 1 || ids.shape[1] > most ||
        ids.shape[2] < 1 || ids.shape[2] > most)
      refuse("tensor 'ids'", "is " + std::string(ids.dtype) + " " + text_of(ids.shape),
             "U16 [tokens, layers, top_k]");
    tokens_ = ids.shape[0];
    trace_.layers = static_cast<std::int32_t>(ids.shape[1]);
    trace_.top_k = static_cast<std::int32_t>(ids.shape[2]);
    trace_.step = copy_elements<std::uint32_t>(take("step", "U32", {tokens_}, false)->bytes);
    trace_.sequence =
        copy_elements<std::uint32_t>(take("sequence", "U32", {tokens_}, false)->bytes);
    trace_.kind = copy_elements<request_class>(take("kind", "U8", {tokens_}, false)->bytes);
    if (const auto* const t = take("adapter", "I16", {tokens_}, true))
      trace_.adapter = copy_elements<std::int16_t>(t->bytes);
    if (const auto* const t = take("token_ids", "I32", {tokens_}, true))
      trace_.token_ids = copy_elements<std::int32_t>(t->bytes);
    if (const auto* const t = take("expert_bytes", "U64", {ids.shape[1]}, true))
      trace_.expert_bytes = copy_elements<std::uint64_t>(t->bytes);
    trace_.ids.resize(ids.bytes.size() / 2);
    for (std::size_t i = 0; i < trace_.ids.size(); ++i) {
      const auto id = read_unaligned<std::uint16_t>(ids.bytes, i);
      trace_.ids[i] = id == 0xFFFF ? no_expert : expert_id{id};
    }
  }

  void read_scores() {
    const auto l = static_cast<std::uint64_t>(trace_.layers);
    const auto e = static_cast<std::uint64_t>(trace_.experts);
    const auto k = static_cast<std::uint64_t>(trace_.top_k);
    if (const auto* const t = take("weights", "F32", {tokens_, l, k}, true))
      trace_.weights = copy_elements<float>(t->bytes);
    if (const auto* const t = take("logits", "F32", {tokens_, l, e}, true))
      trace_.logits = copy_elements<float>(t->bytes);
    trace_.probabilities = halves(take("probabilities", "F16", {tokens_, l, e}, true));
    const auto width = extent("hidden", 3, 2);
    trace_.hidden = halves(take("hidden", "F16", {tokens_, l, width}, true));
    const auto depth = extent("predictions", 4, 2);
    trace_.predictions = halves(take("predictions", "F16", {tokens_, l, depth, e}, true));
    trace_.hidden_width = static_cast<std::int32_t>(width);
    trace_.prediction_depth = static_cast<std::int32_t>(depth);
  }

  /// Extent `at` of a tensor that may be absent (0).
  [[nodiscard]] std::uint64_t extent(std::string_view name, std::size_t rank,
                                     std::size_t at) const {
    const auto* const found = file_->find(name);
    if (found == nullptr) return 0;
    const auto& shape = found->shape;
    if (shape.size() != rank || shape[at] < 1 || shape[at] > (std::uint64_t{1} << 24U))
      refuse("tensor '" + std::string(name) + "'", "has shape " + text_of(shape),
             std::to_string(rank) + " extents, that at " + std::to_string(at) + " in 1..16777216");
    return shape[at];
  }

  [[nodiscard]] half_array halves(const tensor* found) const {
    return found == nullptr ? half_array() : half_array(file_, found->bytes);
  }

  std::shared_ptr<safetensors_file> file_;
  routing_trace trace_;
  std::uint64_t tokens_ = 0;
};

}  // namespace

routing_trace read_native_trace(const std::filesystem::path& path) {
  return native_reader(path).read();
}

}  // namespace hotset::lab
