// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/request_shapes.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lab/traces/synthetic/synthetic.hpp"

namespace tiny_moe {
namespace {

// Identity of a piece of text: a block of the trace, or a whole request without blocks.
struct piece {
  std::uint64_t id = 0;
  bool is_request = false;
};

class prompt_writer {
 public:
  prompt_writer(std::span<const std::string> texts, std::uint64_t seed)
      : texts_(texts), seed_(seed) {}

  /// The text for a request that begins with this piece.
  [[nodiscard]] const std::string& topic(piece first) const {
    return texts_[random_of(first, 1) % texts_.size()];
  }
  /// Appends the piece's unique name, then some of the text, wrapping around.
  void append(piece p, const std::string& topic, std::size_t bytes,
              std::vector<std::uint8_t>& out) const {
    const std::string name = name_of(p);
    std::size_t at = random_of(p, 2) % topic.size();
    for (std::size_t i = 0; i < bytes; ++i) {
      if (i < name.size()) {
        out.push_back(static_cast<std::uint8_t>(name[i]));
        continue;
      }
      out.push_back(static_cast<std::uint8_t>(topic[at]));
      at = at + 1 == topic.size() ? 0 : at + 1;
    }
  }

 private:
  [[nodiscard]] std::uint64_t random_of(piece p, std::uint64_t use) const {
    hotset::splitmix64 random(seed_ + 0x9E3779B97F4A7C15U * (2 * p.id + (p.is_request ? 1 : 0)) +
                              use);
    return random.next();
  }
  // Base 64, low digits first, so that truncated pieces still differ early.
  [[nodiscard]] static std::string name_of(piece p) {
    constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string name(1, p.is_request ? '<' : '[');
    std::uint64_t id = p.id;
    do name += digits[id % digits.size()];
    while ((id /= digits.size()) != 0);
    return name + ' ';
  }

  std::span<const std::string> texts_;
  std::uint64_t seed_;
};

std::size_t scaled(std::uint32_t tokens, std::uint32_t scale) {
  return std::max<std::size_t>(1, tokens / scale);
}

std::vector<std::uint8_t> prompt_of(const hotset::kv_trace& trace, std::size_t r,
                                    const prompt_writer& writer, std::uint32_t scale) {
  const std::size_t bytes = scaled(trace.input_length[r], scale);
  const std::size_t block = scaled(trace.block_tokens, scale);
  const auto blocks = trace.blocks_of(r);
  const piece own{.id = r, .is_request = true};
  const std::string& topic = writer.topic(blocks.empty() ? own : piece{.id = blocks.front()});
  std::vector<std::uint8_t> out;
  out.reserve(bytes);
  for (std::size_t b = 0; b < blocks.size() && out.size() < bytes; ++b)
    writer.append({.id = blocks[b]}, topic, std::min(block, bytes - out.size()), out);
  writer.append(own, topic, bytes - out.size(), out);
  return out;
}

}  // namespace

hotset::validation request_scaling::validate() const {
  if (scale < 1) return hotset::error{"request scale = 0, accepted: 1 or more"};
  if (!(steps_per_second > 0 && steps_per_second <= 1e9))
    return hotset::error{
        fmt::format("steps_per_second = {}, accepted: more than 0, at most 1e9", steps_per_second)};
  return std::nullopt;
}

std::vector<serving_request> shaped_requests(const hotset::kv_trace& trace,
                                             std::span<const std::string> texts,
                                             const request_scaling& scaling) {
  const prompt_writer writer(texts, scaling.seed);
  const std::size_t all = trace.requests();
  const std::size_t count = scaling.most == 0 ? all : std::min(all, scaling.most);
  const auto begin = *std::min_element(
      trace.timestamp.begin(), trace.timestamp.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<serving_request> out(count);
  for (std::size_t r = 0; r < count; ++r) {
    const double seconds = static_cast<double>(trace.timestamp[r] - begin) / 1000;
    out[r].arrival = scaling.first_arrival +
                     static_cast<std::uint64_t>(std::floor(seconds * scaling.steps_per_second));
    out[r].prompt = prompt_of(trace, r, writer, scaling.scale);
    out[r].tokens = scaled(trace.output_length[r], scaling.scale);
  }
  return out;
}

}  // namespace tiny_moe
