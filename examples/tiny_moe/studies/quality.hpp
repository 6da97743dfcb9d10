// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Cost of a text in bits under a decoder: the price of inexact experts.

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

/// Division of a text into windows, each a separate sequence. A window that begins at byte b feeds the bytes b to b +
/// window - 1, and so predicts the bytes b + 1 to b + window. It scores those that no earlier window scored: every
/// byte of the text except the first is scored exactly once. The last byte is never fed.
struct quality_config {
  std::size_t window = 256;  ///< bytes fed; the model was trained on 256
  /// Bytes of a window fed in one prefill pass; the rest is decoded one by one. 0: all, nothing is decoded.
  std::size_t prompt = 0;
  /// Bytes between the beginnings of windows. Below `window` they overlap, and a scored byte has at least window -
  /// stride + 1 bytes before it. 0: `window` if all is prefill, else window - prompt: each prompt repeats bytes that
  /// were scored, so that except in the first prompt every score is of a decoded byte.
  std::size_t stride = 0;

  [[nodiscard]] bool decodes() const noexcept { return prompt != 0 && prompt < window; }
  /// Values that the zeros stand for.
  [[nodiscard]] std::size_t prompt_bytes() const noexcept { return prompt == 0 ? window : prompt; }
  [[nodiscard]] std::size_t stride_bytes() const noexcept {
    if (stride != 0) return stride;
    return decodes() ? window - prompt : window;
  }
  /// Checks the config for a decoder with this many positions.
  [[nodiscard]] hotset::validation validate(std::size_t max_positions) const;
};

/// Sum of the cost of bytes; those of several texts may be added.
struct quality {
  double bits = 0.0;
  std::uint64_t bytes = 0;  ///< scored bytes

  /// NaN if no byte was scored.
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

/// The measured decoder: `engine`, or a test's substitute. forward returns [bytes fed, 256] logits.
template <class D>
concept byte_decoder = requires(D& decoder, std::span<const std::uint8_t> bytes,
                                request_kind kind) {
  decoder.reset();
  { decoder.forward(bytes, kind) } -> std::convertible_to<std::span<const float>>;
};

/// Scores the text under a decoder with room for a window. Pre: `config` is valid.
template <byte_decoder Decoder>
[[nodiscard]] quality measure_windows(Decoder& decoder, std::span<const std::uint8_t> text,
                                      const quality_config& config) {
  quality sum;
  std::size_t scored = 0;  // last scored byte; byte 0 needs no score
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

/// Scores the text under its own engine. The same model, provider, text and machine give the same bits.
/// Errors: hotset::invalid_config for the config, or for a text of less than 2 bytes.
[[nodiscard]] quality measure_quality(const model& weights, expert_provider& experts,
                                      std::span<const std::uint8_t> text,
                                      const quality_config& config = {});
/// Mean over the scored bytes. Errors: those of measure_quality.
[[nodiscard]] double bits_per_byte(const model& weights, expert_provider& experts,
                                   std::span<const std::uint8_t> text,
                                   const quality_config& config = {});

}  // namespace tiny_moe
