// SPDX-License-Identifier: Apache-2.0
#include "lab/models/gguf_model.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/files/gguf.hpp"
#include "lab/files/gguf_parts.hpp"
#include "lab/files/input_error.hpp"
#include "lab/models/expert_names.hpp"
#include "lab/models/hf_config.hpp"
#include "lab/models/model_weights.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {
namespace {

constexpr std::uint64_t most_blocks = 65536;
constexpr std::uint64_t most_extent = std::uint64_t{1} << 24U;

/// Values of general.architecture whose cache is known here; MoE files of "llama" are Mixtral's.
constexpr std::array<std::string_view, 17> architectures = {
    "olmoe",        "llama",       "llama4",     "qwen2moe", "qwen3moe", "qwen3vlmoe",
    "qwen3next",    "phimoe",      "deepseek2",  "jamba",    "glm4moe",  "dots1",
    "ernie4_5-moe", "hunyuan-moe", "minimax-m2", "gpt-oss",  "llada-moe"};

class gguf_describer {
 public:
  gguf_describer(const std::filesystem::path& path, const model_options& options)
      : parts_(open_gguf_parts(path, file_extent::header)),
        name_(path.string()),
        model_name_(gguf_name(path)) {
    out_.kv_bits = options.kv_bits.value_or(model_options::usual_kv_bits);
  }

  model_description describe() {
    read_architecture();
    auto& m = out_.memory;
    m.name = model_name_;
    m.experts.experts = static_cast<std::int32_t>(experts());
    m.experts.top_k = static_cast<std::int32_t>(need("expert_used_count", most_experts));
    m.max_context = number("context_length", ~std::uint64_t{0}).value_or(0);
    blocks_ = need("block_count", most_blocks);
    find_prediction_blocks();
    read_weights();
    m.is_causal = number("attention.causal", 1).value_or(1) != 0;
    read_cache();
    m.kv = kv_of(m.blocks);
    if (const auto bad = m.validate()) refuse_input(name_, "", bad->message, "");
    note_cut_files();
    std::size_t tensors = 0;
    for_each_tensor([&](const gguf_file::tensor&) { ++tensors; });
    out_.source =
        fmt::format("{}: GGUF {}, {}, {} tensors{}", name_, first().version(), architecture_,
                    tensors, parts_.size() == 1 ? "" : fmt::format(" in {} parts", parts_.size()));
    return std::move(out_);
  }

 private:
  static constexpr std::uint64_t most_experts = std::uint64_t{1} << 20U;

  [[noreturn]] void refuse_key(std::string_view key, const std::string& found,
                               const std::string& accepted) const {
    refuse_input(name_, fmt::format("key '{}'", key), found, accepted);
  }
  [[nodiscard]] std::string full(std::string_view key) const {
    return fmt::format("{}.{}", architecture_, key);
  }
  /// Entry `at` of an array, or the value of a scalar. Pre: the value is there.
  [[nodiscard]] std::uint64_t entry(std::string_view key, const gguf_file::value& value,
                                    std::uint64_t at, std::uint64_t most) const {
    if (value.is_array && value.count != blocks_)
      refuse_key(key, fmt::format("has {} entries", value.count),
                 fmt::format("one, or one per block ({})", blocks_));
    const auto found = value.natural(value.is_array ? at : 0);
    if (!found || *found > most)
      refuse_key(key, found ? fmt::format("is {}", *found) : "is no integer of 0 or more",
                 fmt::format("0..{}", most));
    return *found;
  }
  /// A key of the architecture: one value, or, where a block is asked for, one for each.
  [[nodiscard]] std::optional<std::uint64_t> number(
      std::string_view key, std::uint64_t most = most_extent,
      std::optional<std::uint64_t> block = std::nullopt) const {
    const auto name = full(key);
    const auto* const value = first().find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_array && !block) refuse_key(name, "is an array", "an integer");
    return entry(name, *value, block.value_or(0), most);
  }
  [[nodiscard]] std::uint64_t need(std::string_view key, std::uint64_t most = most_extent) const {
    const auto found = number(key, most);
    if (!found || *found == 0)
      refuse_key(full(key), found ? "is 0" : "is missing", fmt::format("1..{}", most));
    return *found;
  }
  /// The part that has the metadata.
  [[nodiscard]] const gguf_file& first() const noexcept { return parts_.front(); }
  void note_cut_files() {
    std::uint64_t missing = 0;
    for (const auto& part : parts_) missing += part.missing_bytes();
    if (missing > 0)
      out_.notes.push_back(fmt::format(
          "the file is cut short by {}: its header is enough for a plan", size_text(missing)));
  }
  template <class Visit>
  void for_each_tensor(Visit visit) const {
    for (const auto& part : parts_)
      for (const auto& t : part.tensors()) visit(t);
  }

  void read_architecture() {
    const auto* const value = first().find("general.architecture");
    const auto text = value == nullptr ? std::nullopt : value->text();
    const auto accepted =
        fmt::format("by hand {}; or one of {}", hand_options, fmt::join(architectures, ", "));
    if (!text) refuse_key("general.architecture", "is missing, or no string", accepted);
    architecture_ = *text;
    if (std::ranges::find(architectures, architecture_) == architectures.end())
      refuse_key("general.architecture", "is '" + printable(architecture_, 60) + "'", accepted);
  }

  [[nodiscard]] std::uint64_t experts() const {
    const auto count = number("expert_count", most_experts).value_or(0);
    if (count < 2)
      refuse_key(full("expert_count"),
                 fmt::format("is {}: a dense model has no experts to page", count), "2 or more");
    return count;
  }

  /// Blocks of multi-token prediction, which block_count may include.
  void find_prediction_blocks() {
    for_each_tensor([&](const gguf_file::tensor& t) {
      const auto place = place_in_gguf(t.name);
      if (place.layer && place.rest.starts_with("nextn.")) prediction_.insert(*place.layer);
    });
    if (!prediction_.empty())
      out_.notes.push_back(fmt::format(
          "multi-token prediction ({} layer{}) is not counted: ordinary serving does not load it",
          prediction_.size(), prediction_.size() == 1 ? "" : "s"));
  }

  void read_weights() {
    std::map<std::uint64_t, std::uint64_t> routed;  // bytes of all experts, by block
    out_.memory.blocks.resize(blocks_, {.is_moe = false});
    for_each_tensor([&](const gguf_file::tensor& t) {
      const auto place = place_in_gguf(t.name);
      if (place.layer && prediction_.contains(*place.layer)) return;
      if (!place.is_of_experts()) {
        out_.memory.resident_bytes += t.bytes;
        if (place.layer && *place.layer < out_.memory.blocks.size())
          out_.memory.blocks[*place.layer].resident_bytes += t.bytes;
        return;
      }
      if (*place.layer >= blocks_)
        refuse_input(name_, "tensor '" + t.name + "'", fmt::format("is of block {}", *place.layer),
                     fmt::format("0..{}, by {}", blocks_ - 1, full("block_count")));
      const auto count = static_cast<std::uint64_t>(out_.memory.experts.experts);
      if (t.dimensions.back() != count || t.bytes % count != 0)
        refuse_input(name_, "tensor '" + t.name + "'",
                     fmt::format("stacks {} experts", t.dimensions.back()),
                     fmt::format("{}, which is {}", count, full("expert_count")));
      routed[*place.layer] += t.bytes;
      out_.memory.blocks[*place.layer].is_moe = true;
    });
    if (routed.empty())
      refuse_input(name_, "", "has no tensor blk.*.ffn_*_exps",
                   "stacked experts (files of before 2024 lie otherwise: convert them again)");
    while (!out_.memory.blocks.empty() && prediction_.contains(out_.memory.blocks.size() - 1))
      out_.memory.blocks.pop_back();
    auto& shape = out_.memory.experts;
    shape.layers = static_cast<std::int32_t>(routed.size());
    for (const auto& [block, bytes] : routed)
      shape.expert_bytes.push_back(bytes / static_cast<std::uint64_t>(shape.experts));
    shape.expert_bytes = by_layer(std::move(shape.expert_bytes));
  }

  void read_cache() {
    if (!out_.memory.is_causal) {
      out_.notes.emplace_back(
          "no KV cache: the model is not causal, and its plain sampler keeps none");
      return;
    }
    read_window();
    std::uint64_t recurrent = 0;
    for (std::uint64_t block = 0; block < blocks_; ++block) {
      if (prediction_.contains(block)) continue;
      auto& own = out_.memory.blocks[block];
      own.window = has_window(block) ? window_ : 0;
      own.kv_bytes_per_token = kv_bytes_of(kv_elements(block), out_.kv_bits);
      if (own.kv_bytes_per_token == 0) ++recurrent;
    }
    if (recurrent > 0) read_state(recurrent);
    note_latent();
  }

  /// Elements of a token that a block keeps.
  [[nodiscard]] std::uint64_t kv_elements(std::uint64_t block) const {
    const auto heads = number("attention.head_count", most_extent, block).value_or(0);
    const auto kv_heads = number("attention.head_count_kv", most_extent, block).value_or(heads);
    if (kv_heads == 0 || is_delta(block)) return 0;
    const bool swa = has_window(block);
    const auto key = length("attention.key_length", swa, heads);
    if (is_latent()) return kv_heads * key;
    return kv_heads * (key + length("attention.value_length", swa, heads));
  }
  /// Of a head's keys or values: its own key, or an even share of the width.
  [[nodiscard]] std::uint64_t length(const std::string& key, bool windowed,
                                     std::uint64_t heads) const {
    if (windowed)
      if (const auto own = number(key + "_swa")) return *own;
    if (const auto given = number(key)) return *given;
    if (heads == 0) refuse_key(full("attention.head_count"), "is missing or 0", "1 or more");
    return need("embedding_length") / heads;
  }
  /// Of Qwen3-Next's blocks the last of each interval has attention, the others Gated DeltaNet.
  [[nodiscard]] bool is_delta(std::uint64_t block) const {
    if (architecture_ != "qwen3next") return false;
    const auto interval = std::max<std::uint64_t>(1, number("full_attention_interval").value_or(4));
    return (block + 1) % interval != 0;
  }
  [[nodiscard]] bool is_latent() const {
    return number("attention.kv_lora_rank").has_value() &&
           number("attention.key_length_mla").has_value();
  }

  void read_window() {
    // Llama 4 attends in chunks, but in every fourth block; llama.cpp knows it without a key.
    window_ = number("attention.sliding_window").value_or(is_llama4() ? 8192 : 0);
    const bool binds = out_.memory.max_context == 0 || window_ < out_.memory.max_context;
    if (window_ > 0 && !binds) window_ = 0;
    if (window_ == 0) return;
    const auto pattern = full("attention.sliding_window_pattern");
    pattern_ = first().find(pattern);
    if (pattern_ == nullptr && architecture_ != "gpt-oss" && !is_llama4()) {
      out_.notes.push_back(
          fmt::format("sliding window {} is not used: no key says of which layers", window_));
      window_ = 0;
      return;
    }
    const auto windowed = std::ranges::count_if(std::views::iota(std::uint64_t{0}, blocks_),
                                                [&](auto block) { return has_window(block); });
    out_.notes.push_back(fmt::format(
        "sliding window {} of {} layers; an engine keeps more than the window while it computes",
        window_, windowed));
  }
  [[nodiscard]] bool is_llama4() const noexcept { return architecture_ == "llama4"; }
  /// A pattern is a flag a block, or a period whose last block alone has no window.
  [[nodiscard]] bool has_window(std::uint64_t block) const {
    if (window_ == 0) return false;
    if (pattern_ == nullptr) return is_llama4() ? block % 4 != 3 : block % 2 == 0;
    const auto value =
        entry(full("attention.sliding_window_pattern"), *pattern_, block, most_extent);
    if (pattern_->is_array || pattern_->type == gguf_file::value_type::boolean) return value != 0;
    return value > 1 && block % value != value - 1;
  }

  /// In F32, as llama.cpp keeps it.
  void read_state(std::uint64_t blocks) {
    const auto inner = need("ssm.inner_size");
    const auto state = need("ssm.state_size");
    const auto kernel = need("ssm.conv_kernel");
    // Gated DeltaNet convolves its keys, queries and values; Mamba what it scans.
    const auto groups = architecture_ == "qwen3next" ? need("ssm.group_count", most_blocks) : 0;
    const auto matrix = detail::saturating_product(inner, state);
    const auto convolution = detail::saturating_product(inner + 2 * groups * state, kernel - 1);
    out_.memory.state_bytes_per_sequence =
        detail::saturating_product(4 * blocks, detail::saturating_sum(matrix, convolution));
    for (std::uint64_t b = 0; b < out_.memory.blocks.size(); ++b)
      if (out_.memory.blocks[b].kv_bytes_per_token == 0 && !prediction_.contains(b))
        out_.memory.blocks[b].state_bytes = out_.memory.state_bytes_per_sequence / blocks;
    out_.notes.push_back(
        fmt::format("recurrent state of {} layers in F32, with a convolution state of {} (as "
                    "llama.cpp keeps it)",
                    blocks, kernel - 1));
  }

  void note_latent() {
    if (is_latent())
      out_.notes.emplace_back(
          "latent attention: keys alone are kept; older builds also keep values");
    else if (number("attention.kv_lora_rank"))
      out_.notes.emplace_back(
          "latent attention in an older form: whole keys and values are kept; convert the file "
          "again to keep one vector a token and layer");
  }

  std::vector<gguf_file> parts_;
  std::string name_;
  std::string model_name_;
  std::string architecture_;
  std::uint64_t blocks_ = 0;
  std::uint64_t window_ = 0;
  const gguf_file::value* pattern_ = nullptr;
  std::set<std::uint64_t> prediction_;
  model_description out_;
};

}  // namespace

model_description describe_gguf(const std::filesystem::path& path, const model_options& options) {
  return gguf_describer(path, options).describe();
}

}  // namespace hotset::lab
