// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_options.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/registry/parameters.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {

step_shape parse_step_shape(std::string_view text) {
  constexpr std::uint32_t most_abreast = 4096;
  if (text == "decode") return {};
  if (text == "prefill") return {request_class::prefill, 0};
  const auto count_after = [&](std::string_view prefix) -> std::uint32_t {
    if (!text.starts_with(prefix)) return 0;
    return parse_number<std::uint32_t>(text.substr(prefix.size())).value_or(0);
  };
  if (const auto chunk = count_after("prefill:"); chunk > 0) return {request_class::prefill, chunk};
  if (const auto abreast = count_after("decode:"); abreast > 0 && abreast <= most_abreast)
    return {.abreast = abreast};
  throw invalid_config("step shape '" + printable(text) +
                       "', accepted: decode, decode:<sequences of 1 to 4096>, prefill, "
                       "prefill:<tokens of 1 or more>");
}

std::vector<layer_range> parse_layer_ranges(std::string_view text) {
  std::vector<layer_range> out;
  for (const auto part : detail::split_at(text, ',')) {
    const auto dots = part.find("..");
    const auto behind = dots == part.npos ? part : part.substr(dots + 2);
    const auto first = parse_number<std::int32_t>(part.substr(0, dots));
    const auto last = behind.empty() ? most_layers - 1 : parse_number<std::int32_t>(behind);
    if (!first || !last || *first < 0 || *last < *first || *last >= most_layers)
      throw invalid_config("layers '" + printable(text) +
                           "', accepted: numbers and ranges such as 1..45, 3.. or 0,2,4..9");
    out.push_back({*first, *last});
  }
  return out;
}

row_range parse_row_range(std::string_view text) {
  const auto colon = text.find(':');
  const bool includes_last = colon == text.npos;
  const auto at = includes_last ? text.find("..") : colon;
  const auto behind = at == text.npos ? text : text.substr(at + (includes_last ? 2 : 1));
  const auto first = parse_number<std::uint32_t>(text.substr(0, at));
  row_range out;
  if (!behind.empty()) {
    const auto last = parse_number<std::uint32_t>(behind);
    out.end = last ? std::uint64_t{*last} + (includes_last ? 1 : 0) : 0;
  }
  out.first = first.value_or(0);
  if (at == text.npos || !first || out.end <= out.first)
    throw invalid_config("range '" + printable(text) +
                         "', accepted: 100:200 (200 excluded), 100..199 (199 included), or to the "
                         "end 100: and 100..");
  return out;
}

field_map parse_field_map(std::string_view text) {
  using field = std::string field_map::*;
  constexpr std::array<std::pair<std::string_view, field>, 8> known = {
      {{"layer", &field_map::layer},
       {"experts", &field_map::experts},
       {"weights", &field_map::weights},
       {"step", &field_map::step},
       {"token", &field_map::token},
       {"phase", &field_map::phase},
       {"sequence", &field_map::sequence},
       {"rank", &field_map::rank}}};
  field_map map;
  if (text.empty()) return map;
  for (const auto part : detail::split_at(text, ',')) {
    const auto equals = std::min(part.find('='), part.size());
    const auto name = part.substr(0, equals);
    const auto* const found =
        std::ranges::find(known, name, &std::pair<std::string_view, field>::first);
    if (found == known.end() || equals + 1 >= part.size())
      throw invalid_config(
          "field map '" + printable(part) +
          "', accepted: name=key, names layer experts weights step token phase sequence rank");
    map.*found->second = std::string(part.substr(equals + 1));
  }
  return map;
}

std::optional<request_class> parse_phase(std::string_view given) {
  const auto text = lower_case(given);
  for (const auto* const name : {"prompt", "extend", "context"})
    if (text == name) return request_class::prefill;
  for (const auto* const name : {"generate", "generation", "decoding"})
    if (text == name) return request_class::decode;
  if (text == "0" || text == "1" || text == "2") return static_cast<request_class>(text[0] - '0');
  for (const auto& [phase, known] : request_classes)
    if (text == known) return phase;
  return std::nullopt;
}

std::optional<std::int32_t> only_number(std::string_view text) noexcept {
  constexpr std::string_view digits = "0123456789";
  if (text.starts_with('-')) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_of(digits), text.size()));
  const auto end = text.find_first_not_of(digits);
  if (end != text.npos && text.find_first_of(digits, end) != text.npos) return std::nullopt;
  const auto number = parse_number<std::int32_t>(text.substr(0, end));
  return number && *number < most_layers ? number : std::nullopt;
}

std::string trace_name(const std::string& file) {
  const auto name = std::filesystem::path(file).filename().string();
  return name.substr(0, name.find('.', 1));
}

}  // namespace hotset::lab
