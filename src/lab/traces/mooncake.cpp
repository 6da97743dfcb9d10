// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/mooncake.hpp"

#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include "lab/files/input_files.hpp"
#include "lab/traces/json_member.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

namespace dom = simdjson::dom;

class mooncake_reader {
 public:
  mooncake_reader(std::string_view text, const std::string& file) : lines_(file, text) {
    trace_.name = trace_name(file);
    trace_.source = "Mooncake";
  }

  kv_trace read() {
    std::string_view line;
    while (lines_.next(line))
      if (!trimmed(line).empty()) add(line);
    if (trace_.requests() == 0)
      refuse_input(lines_.file(), "", "holds no requests", "1 or more lines of JSON");
    return std::move(trace_);
  }

 private:
  void add(std::string_view line) {
    dom::element document;
    dom::object request;
    const auto code = parser_.parse(line.data(), line.size()).get(document);
    if (code != simdjson::SUCCESS)
      lines_.refuse(std::string("is not JSON: ") + simdjson::error_message(code),
                    "one JSON object a line");
    if (document.get(request) != simdjson::SUCCESS)
      lines_.refuse("is no object", "one JSON object a line");
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    trace_.timestamp.push_back(number(request, "timestamp", std::uint64_t{1} << 62U));
    trace_.input_length.push_back(
        static_cast<std::uint32_t>(number(request, "input_length", most)));
    trace_.output_length.push_back(
        static_cast<std::uint32_t>(number(request, "output_length", most)));
    dom::array blocks;
    const auto named = member(request, "hash_ids", lines_);
    if (!named || named->get(blocks) != simdjson::SUCCESS)
      lines_.refuse("'hash_ids' is missing or no array", "an array of integers of 0 or more");
    for (const dom::element block : blocks) {
      std::uint64_t id = 0;
      if (block.get(id) != simdjson::SUCCESS)
        lines_.refuse("'hash_ids' holds " + simdjson::to_string(block), "integers of 0 or more");
      trace_.blocks.push_back(id);
    }
    trace_.block_end.push_back(trace_.blocks.size());
  }

  std::uint64_t number(const dom::object& request, std::string_view key, std::uint64_t most) const {
    std::uint64_t n = 0;
    const auto value = member(request, key, lines_);
    if (!value || value->get(n) != simdjson::SUCCESS || n > most)
      lines_.refuse("'" + std::string(key) + "' is missing or no such number",
                    "an integer in 0.." + std::to_string(most));
    return n;
  }

  line_scanner lines_;
  dom::parser parser_;
  kv_trace trace_;
};

}  // namespace

kv_trace parse_mooncake(std::string_view text, const std::string& file) {
  return mooncake_reader(text, file).read();
}

kv_trace read_mooncake(const std::filesystem::path& path) {
  const auto input = read_input(path);
  if (input.size() != 1)
    refuse_input(path.string(), "", std::to_string(input.size()) + " files",
                 "one file of JSON lines");
  return parse_mooncake(input.front().text, path.string());
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
