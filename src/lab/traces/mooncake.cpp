// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/traces/json_objects.hpp"
#include "lab/traces/open_requests.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

namespace dom = simdjson::dom;

template <class Number>
Number number(const json_objects& objects, const dom::object& request, std::string_view key,
              std::uint64_t most = std::numeric_limits<Number>::max()) {
  std::uint64_t n = 0;
  const auto value = objects.find(request, key);
  if (!value || value->get(n) != simdjson::SUCCESS || n > most)
    objects.lines().refuse("'" + std::string(key) + "' is missing or no such number",
                           "an integer in 0.." + std::to_string(most));
  return static_cast<Number>(n);
}

void add_blocks(kv_trace& trace, const json_objects& objects, const dom::object& request) {
  dom::array blocks;
  const auto named = objects.find(request, "hash_ids");
  if (!named || named->get(blocks) != simdjson::SUCCESS)
    objects.lines().refuse("'hash_ids' is missing or no array",
                           "an array of integers of 0 or more");
  for (const dom::element block : blocks)
    if (block.get(trace.blocks.emplace_back()) != simdjson::SUCCESS)
      objects.lines().refuse("'hash_ids' holds " + simdjson::to_string(block),
                             "integers of 0 or more");
  trace.block_end.push_back(trace.blocks.size());
}

}  // namespace

kv_trace parse_mooncake(std::string_view text, const std::string& file) {
  kv_trace trace;
  trace.name = trace_name(file);
  trace.source = "Mooncake";
  json_objects objects(file, text);
  dom::object request;
  while (objects.next(request)) {
    trace.timestamp.push_back(
        number<std::uint64_t>(objects, request, "timestamp", std::uint64_t{1} << 62U));
    trace.input_length.push_back(number<std::uint32_t>(objects, request, "input_length"));
    trace.output_length.push_back(number<std::uint32_t>(objects, request, "output_length"));
    add_blocks(trace, objects, request);
  }
  if (trace.requests() == 0) refuse_input(file, "", "holds no requests", "1 or more lines of JSON");
  return trace;
}

std::string format_mooncake(const kv_trace& trace) {
  std::string out;
  for (std::size_t r = 0; r < trace.requests(); ++r) {
    const auto blocks = trace.blocks_of(r);
    out += fmt::format(
        R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [{}]}})",
        trace.timestamp[r], trace.input_length[r], trace.output_length[r], fmt::join(blocks, ", "));
    out += '\n';
  }
  return out;
}

}  // namespace hotset::lab
