// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/traces/json_objects.hpp"
#include "lab/traces/open_requests.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

constexpr std::int64_t most_length = std::numeric_limits<std::uint32_t>::max();

std::uint64_t number(const line_scanner& lines, const json& request, const std::string& key,
                     std::int64_t most = most_length) {
  const auto* const value = member(request, key);
  const auto n = value == nullptr ? std::nullopt : whole_number(*value, 0, most);
  if (!n)
    lines.refuse("'" + key + "' is missing or no such number",
                 "an integer in 0.." + std::to_string(most));
  return static_cast<std::uint64_t>(*n);
}

void add_blocks(kv_trace& trace, const line_scanner& lines, const json& request) {
  const auto* const named = member(request, "hash_ids");
  if (named == nullptr || !named->is_array())
    lines.refuse("'hash_ids' is missing or no array", "an array of integers of 0 or more");
  for (const auto& block : *named) {
    if (!block.is_number_unsigned())
      lines.refuse("'hash_ids' holds " + described(block), "integers of 0 or more");
    trace.blocks.push_back(block.get<std::uint64_t>());
  }
  trace.block_end.push_back(trace.blocks.size());
}

}  // namespace

kv_trace parse_mooncake(std::string_view text, const std::string& file) {
  kv_trace trace;
  trace.name = trace_name(file);
  trace.source = "Mooncake";
  line_scanner lines(file, text);
  json request;
  while (next_object(lines, request)) {
    trace.timestamp.push_back(number(lines, request, "timestamp", std::int64_t{1} << 62U));
    trace.input_length.push_back(
        static_cast<std::uint32_t>(number(lines, request, "input_length")));
    trace.output_length.push_back(
        static_cast<std::uint32_t>(number(lines, request, "output_length")));
    add_blocks(trace, lines, request);
  }
  if (trace.requests() == 0) refuse_input(file, "", "holds no requests", "1 or more lines of JSON");
  return trace;
}

std::string format_mooncake(const kv_trace& trace) {
  std::string out;
  for (std::size_t r = 0; r < trace.requests(); ++r)
    out += fmt::format(
        R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [{}]}})"
        "\n",
        trace.timestamp[r], trace.input_length[r], trace.output_length[r],
        fmt::join(trace.blocks_of(r), ", "));
  return out;
}

}  // namespace hotset::lab
