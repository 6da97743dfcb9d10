// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Infers the step and token of rows that do not say them.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "lab/traces/trace_records.hpp"

namespace hotset::lab {

/// The places that a row itself names.
struct row_facts {
  bool step = false;
  bool token = false;
  bool rank = false;
  bool phase = false;
};

/// Places rows in the order of the file. Sequences may be interleaved.
///   token alone: each token is a step.
///   step alone: rows of one layer that follow each other are the step's tokens.
///   neither: a step ends where the layer does not rise.
///   rank: a row whose rank rises within a layer continues the token.
class row_places {
 public:
  /// Where the last row of a sequence ended. The reader updates token and rank if a row holds several.
  struct place {
    std::uint64_t step = 0;
    std::uint64_t token = 0;
    std::int32_t layer = 0;
    std::int32_t rank = 0;
  };

  /// Sets r.step and r.token as far as the row does not say them. Pre: sequence, layer and what `facts` says are set.
  place& add(trace_record& r, const row_facts& facts);

  /// A prompt may be recorded layer by layer: n rows of each of its layers, then those of the next. Makes such rows the
  /// n tokens of one step, and prefill if no row says its phase. Does nothing unless inferred().
  void join_layer_by_layer(std::vector<trace_record>& records, reading_notes* notes) const;
  /// Whether no row says its step or token.
  [[nodiscard]] bool inferred() const noexcept { return !numbered_; }

 private:
  std::unordered_map<std::uint64_t, place> last_;  ///< by sequence
  bool numbered_ = false;
  bool phased_ = false;
};

}  // namespace hotset::lab
