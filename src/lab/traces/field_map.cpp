// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/field_map.hpp"

#include <array>
#include <utility>

#include "hotset/core/error.hpp"
#include "lab/traces/text_scan.hpp"

namespace hotset::lab {

field_map parse_field_map(std::string_view text) {
  field_map map;
  const std::array<std::pair<std::string_view, std::string*>, 8> known = {
      {{"layer", &map.layer},
       {"experts", &map.experts},
       {"weights", &map.weights},
       {"step", &map.step},
       {"token", &map.token},
       {"phase", &map.phase},
       {"sequence", &map.sequence},
       {"rank", &map.rank}}};
  field_scanner scan(text, ',');
  while (const auto part = scan.next()) {
    if (text.empty()) break;
    const auto equals = part->find('=');
    bool found = false;
    for (const auto& [name, target] : known)
      if (equals != std::string_view::npos && equals + 1 < part->size() &&
          part->substr(0, equals) == name) {
        *target = std::string(part->substr(equals + 1));
        found = true;
      }
    if (!found)
      throw invalid_config(
          "field map '" + printable(*part) +
          "', accepted: name=key, names layer experts weights step token phase sequence rank");
  }
  return map;
}

}  // namespace hotset::lab
