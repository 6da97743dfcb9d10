// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Collects what a reader of a trace guessed or left out.

#include <string>
#include <utility>
#include <vector>

#include "hotset/version.hpp"

namespace hotset::lab {

/// One line each, without the file's name.
using reading_notes = std::vector<std::string>;

/// Appends a line. `notes` may be null.
inline void add_note(reading_notes* notes, std::string line) {
  if (notes != nullptr) notes->push_back(std::move(line));
}

/// Says that the number of experts was inferred from the ids.
inline void note_inferred_experts(reading_notes* notes, int experts) {
  add_note(notes, "experts per layer: " + std::to_string(experts) +
                      ", the highest id + 1; --experts says otherwise");
}

}  // namespace hotset::lab
