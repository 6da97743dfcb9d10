// SPDX-License-Identifier: Apache-2.0
#include "lab/files/input_error.hpp"

namespace hotset::lab {

std::string input_message(std::string_view file, std::string_view place, std::string_view found,
                          std::string_view accepted) {
  std::string line = printable(file, 4096);
  if (!place.empty()) line.append(": ").append(printable(place, 200));
  line.append(": ").append(printable(found, 400));
  if (!accepted.empty()) line.append("; accepted: ").append(printable(accepted, 400));
  return line;
}

void refuse_input(std::string_view file, std::string_view place, std::string_view found,
                  std::string_view accepted) {
  throw trace_error(input_message(file, place, found, accepted));
}

}  // namespace hotset::lab
