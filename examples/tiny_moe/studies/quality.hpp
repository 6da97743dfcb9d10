// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a text costs in bits under a decoder: the price of experts that are not what they were.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/error.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// How a text is cut into windows, each a sequence of its own. A window that begins at byte b feeds the bytes b to
/// b + window - 1, and so predicts the bytes b + 1 to b + window. Of these it scores the ones that no window before
/// it scored: every byte of the text but the first is scored exactly once. The last byte is never fed.
struct quality_config {
  std::size_t window = 256;  ///< bytes fed; the model was trained on 256
  /// Of a window, the bytes fed in one prefill pass; the rest are decoded one by one. 0: all, nothing is decoded.
  std::size_t prompt = 0;
  /// Bytes from one window's begin to the next one's; below `window`, they overlap, and a scored byte has at least
  /// window - stride + 1 bytes before it. 0: `window` where all is prefill. Else window - prompt: each prompt repeats
  /// bytes that are scored already, and but for the first one's, every score is of a decoded byte.
  std::size_t stride = 0;

  [[nodiscard]] bool decodes() const noexcept { return prompt != 0 && prompt < window; }
  /// What the zeros stand for.
  [[nodiscard]] std::size_t prompt_bytes() const noexcept { return prompt == 0 ? window : prompt; }
  [[nodiscard]] std::size_t stride_bytes() const noexcept {
    if (stride != 0) return stride;
    return decodes() ? window - prompt : window;
  }
  /// For a decoder of so many positions.
  [[nodiscard]] hotset::validation validate(std::size_t max_positions) const;
};

/// A sum of what bytes cost; those of several texts may be added.
struct quality {
  double bits = 0.0;
  std::uint64_t bytes = 0;  ///< scored

  /// NaN if none is scored.
  [[nodiscard]] double bits_per_byte() const noexcept {
    return bytes == 0 ? std::numeric_limits<double>::quiet_NaN()
                      : bits / static_cast<double>(bytes);
  }
  quality& operator+=(const quality& other) noexcept {
    bits += other.bits;
    bytes += other.bytes;
    return *this;
  }
};

/// -log2 of the softmax at `byte`, in double. Pre: byte < logits.size().
[[nodiscard]] double bits_of(std::span<const float> logits, std::uint8_t byte) noexcept;

/// What is measured: `engine`, or a stand-in. forward gives [bytes fed, 256] logits.
template <class D>
concept byte_decoder = requires(D& decoder, std::span<const std::uint8_t> bytes,
                                request_kind kind) {
  decoder.reset();
  { decoder.forward(bytes, kind) } -> std::convertible_to<std::span<const float>>;
};

/// Scores the text under a decoder that has room for a window. Pre: `config` is valid.
template <byte_decoder Decoder>
[[nodiscard]] quality measure_windows(Decoder& decoder, std::span<const std::uint8_t> text,
                                      const quality_config& config) {
  quality sum;
  std::size_t scored = 0;  // the last byte that is; byte 0 needs no score
  for (std::size_t begin = 0; scored + 1 < text.size(); begin += config.stride_bytes()) {
    decoder.reset();
    const std::size_t end = std::min(begin + config.window, text.size() - 1);
    for (std::size_t at = begin; at < end;) {
      const std::size_t fed = at == begin ? std::min(config.prompt_bytes(), end - begin) : 1;
      const std::span<const float> logits = decoder.forward(
          text.subspan(at, fed), at == begin ? request_kind::prefill : request_kind::decode);
      for (std::size_t i = 0; i < fed; ++i) {
        const std::size_t next = at + i + 1;
        if (next <= scored) continue;
        scored = next;
        sum.bits += bits_of(logits.subspan(i * model_config::vocabulary, model_config::vocabulary),
                            text[next]);
        ++sum.bytes;
      }
      at += fed;
    }
  }
  return sum;
}

/// The same under an engine of its own. The same model, provider, text and machine give the same bits.
/// Errors: hotset::invalid_config for the config, or for a text of less than 2 bytes.
[[nodiscard]] quality measure_quality(const model& weights, expert_provider& experts,
                                      std::span<const std::uint8_t> text,
                                      const quality_config& config = {});
/// The mean over the scored bytes. Errors: as above.
[[nodiscard]] double bits_per_byte(const model& weights, expert_provider& experts,
                                   std::span<const std::uint8_t> text,
                                   const quality_config& config = {});

}  // namespace tiny_moe
