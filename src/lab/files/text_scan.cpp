// SPDX-License-Identifier: Apache-2.0
#include "lab/files/text_scan.hpp"

namespace hotset::lab {

char divider_of(std::string_view header) noexcept {
  for (const char divider : {',', ';', '\t', '|'})
    if (header.find(divider) != std::string_view::npos) return divider;
  return ',';
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (auto& c : out)
    if (c >= 'A' && c <= 'Z') c |= 0x20;
  return out;
}

bool split_fields(std::string_view line, char divider, std::vector<std::string_view>& fields) {
  fields.clear();
  while (true) {
    const auto quoted = line.find_first_not_of(' ');
    std::size_t from = 0;
    if (quoted != std::string_view::npos && line[quoted] == '"') {
      const auto end = line.find('"', quoted + 1);
      if (end == std::string_view::npos) return false;
      fields.push_back(trimmed(line.substr(quoted + 1, end - quoted - 1)));
      from = end + 1;
    }
    const auto end = line.find(divider, from);
    if (from == 0) fields.push_back(trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return true;
    line.remove_prefix(end + 1);
  }
}

const std::vector<std::string_view>& line_scanner::fields(std::string_view row, char divider) {
  if (!split_fields(row, divider, fields_))
    refuse("a quote has no end", "fields in pairs of quotes, or in none");
  return fields_;
}

void line_scanner::refuse_integer(std::string_view field, std::string_view what, std::int64_t least,
                                  std::int64_t most) const {
  refuse(std::string(what) + " is '" + printable(field) + "'",
         "an integer in " + std::to_string(least) + ".." + std::to_string(most));
}

}  // namespace hotset::lab
