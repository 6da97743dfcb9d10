// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/native_trace.hpp"

#include <memory>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

using shape = std::vector<std::uint64_t>;

std::string text_of(std::string_view dtype, const shape& extents) {
  return fmt::format("{} [{}]", dtype, fmt::join(extents, ", "));
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
    const auto held = facts.find("experts");
    const std::string text = held == facts.end() ? "" : held->second;
    const auto experts = parse_number<std::int32_t>(text);
    if (!experts || *experts < 1 || *experts > routing_trace::max_experts_in_file)
      refuse("__metadata__", "experts is '" + text + "'", "1..65535");
    trace_.experts = *experts;
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

  enum class presence : std::uint8_t { needed, optional };

  /// Bytes of a tensor with checked dtype and shape; empty if it is optional and absent.
  [[nodiscard]] std::span<const std::byte> bytes_of(std::string_view name, std::string_view dtype,
                                                    const shape& extents, presence wanted) const {
    const auto* const found = wanted == presence::optional ? file_->find(name) : &file_->at(name);
    if (found == nullptr) return {};
    if (found->dtype != dtype || found->shape != extents)
      refuse(fmt::format("tensor '{}'", name), "is " + text_of(found->dtype, found->shape),
             text_of(dtype, extents));
    return found->bytes;
  }
  template <class Value>
  void take(std::vector<Value>& into, std::string_view name, std::string_view dtype,
            const shape& extents, presence wanted = presence::optional) {
    into = copy_elements<Value>(bytes_of(name, dtype, extents, wanted));
  }
  void take(half_array& into, std::string_view name, const shape& extents) {
    const auto bytes = bytes_of(name, "F16", extents, presence::optional);
    if (!bytes.empty()) into = half_array(file_, bytes);
  }

  void read_rows() {
    using enum presence;
    const auto& ids = file_->at("ids");
    if (ids.dtype != "U16" || ids.shape.size() != 3 || !fits(ids.shape[1]) || !fits(ids.shape[2]))
      refuse("tensor 'ids'", "is " + text_of(ids.dtype, ids.shape), "U16 [tokens, layers, top_k]");
    tokens_ = ids.shape[0];
    trace_.layers = static_cast<std::int32_t>(ids.shape[1]);
    trace_.top_k = static_cast<std::int32_t>(ids.shape[2]);
    take(trace_.step, "step", "U32", {tokens_}, needed);
    take(trace_.sequence, "sequence", "U32", {tokens_}, needed);
    take(trace_.kind, "kind", "U8", {tokens_}, needed);
    take(trace_.adapter, "adapter", "I16", {tokens_});
    take(trace_.token_ids, "token_ids", "I32", {tokens_});
    take(trace_.expert_bytes, "expert_bytes", "U64", {ids.shape[1]});
    trace_.ids.resize(ids.bytes.size() / 2);
    for (std::size_t i = 0; i < trace_.ids.size(); ++i) {
      const auto id = read_unaligned<std::uint16_t>(ids.bytes, i);
      trace_.ids[i] = id == 0xFFFF ? no_expert : expert_id{id};
    }
  }

  void read_scores() {
    const auto l = static_cast<std::uint64_t>(trace_.layers);
    const auto e = static_cast<std::uint64_t>(trace_.experts);
    const auto width = extent("hidden", 3);
    const auto depth = extent("predictions", 4);
    take(trace_.weights, "weights", "F32", {tokens_, l, static_cast<std::uint64_t>(trace_.top_k)});
    take(trace_.logits, "logits", "F32", {tokens_, l, e});
    take(trace_.probabilities, "probabilities", {tokens_, l, e});
    take(trace_.hidden, "hidden", {tokens_, l, width});
    take(trace_.predictions, "predictions", {tokens_, l, depth, e});
    trace_.hidden_width = static_cast<std::int32_t>(width);
    trace_.prediction_depth = static_cast<std::int32_t>(depth);
  }

  static constexpr std::uint64_t most_extent = std::uint64_t{1} << 24U;
  static bool fits(std::uint64_t extent) noexcept { return extent >= 1 && extent <= most_extent; }

  /// Third extent of an optional tensor; 0 if absent.
  [[nodiscard]] std::uint64_t extent(std::string_view name, std::size_t rank) const {
    const auto* const found = file_->find(name);
    if (found == nullptr) return 0;
    if (found->shape.size() != rank || !fits(found->shape[2]))
      refuse(fmt::format("tensor '{}'", name), "is " + text_of(found->dtype, found->shape),
             fmt::format("{} extents, the third in 1..{}", rank, most_extent));
    return found->shape[2];
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
