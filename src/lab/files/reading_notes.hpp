// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Collects the guesses and omissions of a trace reader.

#include <string>
#include <utility>
#include <vector>

#include "hotset/version.hpp"

namespace hotset::lab {

/// One note per line, without the file's name.
using reading_notes = std::vector<std::string>;

/// Appends a note. `notes` may be null.
inline void add_note(reading_notes* notes, std::string line) {
  if (notes != nullptr) notes->push_back(std::move(line));
}

/// Notes that the number of experts was inferred from the ids.
inline void note_inferred_experts(reading_notes* notes, int experts) {
  add_note(notes, "experts per layer: " + std::to_string(experts) +
                      ", the highest id + 1; --experts says otherwise");
}

}  // namespace hotset::lab
