// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Text in a field of CSV.

#include <string>

#include "lab/files/input_error.hpp"

namespace hotset::lab {

/// Quoted where the text would not survive otherwise.
inline std::string csv_field(const std::string& text) {
  std::string plain = printable(text, 4096);
  if (plain.find_first_of(",\"") == std::string::npos) return plain;
  std::string quoted = "\"";
  for (const char c : plain) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

}  // namespace hotset::lab
