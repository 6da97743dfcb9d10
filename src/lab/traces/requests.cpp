// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/requests.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/files/input_files.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/traces/json_objects.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;
using name_list = std::vector<std::string_view>;

constexpr std::string_view digits = "0123456789";
/// A request's time, prompt tokens and output tokens.
constexpr std::size_t request_fields = 3;
/// Whether a name in lower case without marks is of the field, as Azure, BurstGPT, Mooncake, Bailian, Vidur, Splitwise
/// and OpenAI write it.
bool is_field(std::size_t field, std::string_view name) {
  if (name.starts_with("num")) name.remove_prefix(3);
  const auto begins = [&](const auto&... words) { return (name.starts_with(words) || ...); };
  const auto ends = [&](const auto&... words) { return (name.ends_with(words) || ...); };
  if (field == 0)
    return name == "time" || name.ends_with("timestamp") || begins("arriv", "created");
  if (!ends("tokens", "length", "len", "size")) return false;
  return field == 1
             ? begins("context", "request", "input", "prefill", "prompt")
             : begins("generated", "response", "output", "decode", "completion", "tokensize");
}

/// Position of each field among the names, or nothing if one is missing.
std::optional<std::array<std::size_t, request_fields>> fields_in(const name_list& all) {
  std::array<std::size_t, request_fields> out{};
  for (std::size_t field = 0; field < out.size(); ++field) {
    const auto found = std::ranges::find_if(all, [&](std::string_view name) {
      std::string plain;
      for (const auto c : name)
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') plain += static_cast<char>(c | 0x20);
      return is_field(field, plain);
    });
    if (found == all.end()) return std::nullopt;
    out[field] = static_cast<std::size_t>(found - all.begin());
  }
  return out;
}

/// Keys of a JSON object, which may be cut short.
name_list keys_in(std::string_view line) {
  name_list out;
  for (auto end = line.find("\":"); end != line.npos; end = line.find("\":", end + 1))
    if (const auto begin = line.substr(0, end).rfind('"'); begin != line.npos)
      out.push_back(line.substr(begin + 1, end - begin - 1));
  return out;
}

/// Whether the text has digits where the pattern has 0, and equals the pattern elsewhere.
bool matches(std::string_view text, std::string_view pattern) {
  return std::ranges::equal(text, pattern, [](char c, char wanted) {
    return wanted == '0' ? c >= '0' && c <= '9' : c == wanted;
  });
}

/// Parses ".9799600" as whole milliseconds; nothing unless it is a fraction or empty.
std::optional<unsigned> fraction(std::string_view text) {
  if (text.empty()) return 0U;
  if (text[0] != '.' || text.size() == 1 || text.find_first_not_of(digits, 1) != text.npos)
    return std::nullopt;
  std::string first(text.substr(1, 3));
  first.append(3 - first.size(), '0');
  return parse_number<unsigned>(first);
}

/// Parses "2023-11-16 18:17:03.9799600" or "2023-11-16T18:17:03Z", also with "+02:00", as milliseconds since 1970.
std::optional<double> date_in(std::string_view text) {
  constexpr std::string_view pattern = "0000-00-00 00:00:00";
  double zone = 0;  // minutes east of Greenwich
  if (text.ends_with('Z')) text.remove_suffix(1);
  if (text.size() >= 25 && matches(text.substr(text.size() - 5), "00:00")) {
    const auto sign = text[text.size() - 6];
    const auto hours = *parse_number<int>(text.substr(text.size() - 5, 2));
    zone = (sign == '-' ? -1 : 1) * (60 * hours + *parse_number<int>(text.substr(text.size() - 2)));
    if (sign != '+' && sign != '-') return std::nullopt;
    text.remove_suffix(6);
  }
  if (!matches(text.substr(0, 10), pattern.substr(0, 10)) || text.size() < pattern.size() ||
      (text[10] != ' ' && text[10] != 'T') || !matches(text.substr(11, 8), pattern.substr(11)))
    return std::nullopt;
  const auto part = [&](std::size_t at, std::size_t width = 2) {
    return *parse_number<unsigned>(text.substr(at, width));
  };
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(part(0, 4))),
                                         std::chrono::month(part(5)), std::chrono::day(part(8))};
  const auto rest = fraction(text.substr(pattern.size()));
  if (!rest || !date.ok() || part(0, 4) < 1970 || part(11) > 23 || part(14) > 59 || part(17) > 60)
    return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const auto seconds = ((static_cast<double>(days) * 24 + part(11)) * 60 + part(14) - zone) * 60;
  return (seconds + part(17)) * 1000 + *rest;
}

class request_reader {
 public:
  request_reader(std::string_view text, const std::string& file, reading_notes* notes)
      : lines_(file, text), notes_(notes) {
    out_.name = trace_name(file);
    out_.source = "requests";
  }

  kv_trace read() {
    std::string_view line;
    auto ahead = lines_;
    const bool objects = ahead.next_row(line) && line.starts_with('{');
    objects ? read_objects() : read_columns();
    if (times_.empty()) refuse_input(lines_.file(), "", "holds no requests", "1 or more of them");
    if (objects && seconds_) add_note(notes_, "times of requests have fractions: read as seconds");
    for (const auto time : times_)
      out_.timestamp.push_back(
          static_cast<std::uint64_t>(!dates_ && seconds_ ? 1000 * time : time));
    if (!out_.blocks.empty()) infer_block_tokens();
    return std::move(out_);
  }

 private:
  void read_columns() {
    std::string_view line;
    seconds_ = true;
    if (!lines_.next_row(line)) return;
    const auto divider = divider_of(line);
    const auto header = lines_.fields(line, divider);
    const auto fields = fields_in(header);
    if (!fields) lines_.refuse("'" + printable(line, 200) + "'", accepted_request_names);
    while (lines_.next_row(line)) {
      const auto& cells = lines_.fields(line, divider);
      if (cells.size() != header.size())
        lines_.refuse(fmt::format("{} columns", cells.size()),
                      fmt::format("the header's {}", fmt::join(header, ",")));
      add(header, cells, *fields);
    }
  }

  void read_objects() {
    json object;
    while (next_object(lines_, object)) {
      name_list keys;
      std::vector<std::string> values;
      for (const auto& [key, value] : object.items()) {
        keys.push_back(key);
        values.push_back(value.is_string()   ? value.get<std::string>()
                         : value.is_number() ? value.dump()
                                             : described(value));
      }
      const auto fields = fields_in(keys);
      if (!fields)
        lines_.refuse(fmt::format("has the keys {}", fmt::join(keys, ", ")),
                      accepted_request_names);
      seconds_ = seconds_ || object[std::string(keys[fields->front()])].is_number_float();
      add(keys, {values.begin(), values.end()}, *fields);
      if (const auto* const blocks = member(object, "hash_ids")) add_blocks(*blocks);
      out_.block_end.back() = out_.blocks.size();
    }
  }

  void add(const name_list& header, const name_list& cells,
           const std::array<std::size_t, request_fields>& fields) {
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    const auto [time, input, output] = fields;
    times_.push_back(milliseconds_or_number(header[time], cells[time]));
    out_.input_length.push_back(
        lines_.integer<std::uint32_t>(cells[input], header[input], 0, most));
    out_.output_length.push_back(
        lines_.integer<std::uint32_t>(cells[output], header[output], 0, most));
    out_.block_end.push_back(0);
  }

  double milliseconds_or_number(std::string_view name, std::string_view cell) {
    constexpr double most = 1e15;
    const auto date = date_in(cell);
    const auto number = parse_number<double>(cell);
    if (times_.empty()) dates_ = date.has_value();
    const auto& time = dates_ ? date : number;
    if (!time || !(*time >= 0 && *time <= most))
      lines_.refuse(fmt::format("{} is '{}'", name, printable(cell)),
                    "a time such as 2023-11-16 18:17:03.9799600, or a number of 0 or more, alike "
                    "in all requests");
    return *time;
  }

  void add_blocks(const json& ids) {
    if (!ids.is_array())
      lines_.refuse("'hash_ids' is " + described(ids), "an array of integers of 0 or more");
    for (const auto& block : ids) {
      if (!block.is_number_unsigned())
        lines_.refuse("'hash_ids' holds " + described(block), "integers of 0 or more");
      out_.blocks.push_back(block.get<std::uint64_t>());
    }
  }

  /// Takes the power of two for which the lengths of the prompts best explain the number of their blocks.
  void infer_block_tokens() {
    const auto usual = out_.block_tokens;
    auto least = std::numeric_limits<std::uint64_t>::max();
    for (const auto tokens : {usual, 1U, 2U, 4U, 8U, 16U, 32U, 64U, 128U, 256U, 1024U, 2048U}) {
      std::uint64_t wrong = 0;
      for (std::size_t r = 0; r < out_.requests(); ++r) {
        const auto needed = (std::uint64_t{out_.input_length[r]} + tokens - 1) / tokens;
        const auto named = out_.blocks_of(r).size();
        wrong += needed > named ? needed - named : named - needed;
      }
      if (std::exchange(least, std::min(least, wrong)) > wrong) out_.block_tokens = tokens;
    }
    if (out_.block_tokens != usual)
      add_note(notes_,
               fmt::format("blocks of requests have {} tokens, by the lengths of the prompts",
                           out_.block_tokens));
  }

  line_scanner lines_;
  reading_notes* notes_;
  kv_trace out_;
  std::vector<double> times_;
  bool dates_ = false;    ///< times are dates in milliseconds
  bool seconds_ = false;  ///< numbers are seconds
};

}  // namespace

bool looks_like_requests(std::string_view line) {
  if (line.starts_with('{')) {
    const auto keys = keys_in(line);
    return fields_in(keys) || std::ranges::find(keys, "hash_ids") != keys.end();
  }
  name_list header;
  return split_fields(line, divider_of(line), header) && fields_in(header);
}

kv_trace parse_requests(std::string_view text, const std::string& file, reading_notes* notes) {
  return request_reader(text, file, notes).read();
}

std::string format_requests(const kv_trace& trace) {
  std::string out;
  for (std::size_t r = 0; r < trace.requests(); ++r)
    out += fmt::format(
        R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [{}]}})"
        "\n",
        trace.timestamp[r], trace.input_length[r], trace.output_length[r],
        fmt::join(trace.blocks_of(r), ", "));
  return out;
}

kv_trace open_requests(const std::filesystem::path& path, reading_notes* notes) {
  const kept_streams keep;
  return parse_requests(read_single_input(path), path.string(), notes);
}

kv_trace open_block_requests(const std::filesystem::path& path, reading_notes* notes) {
  auto kv = open_requests(path, notes);
  if (const auto bad = give_own_blocks(kv)) refuse_input(path.string(), "", bad->message, "");
  if (kv.own_blocks)
    add_note(notes, "the requests name no blocks: each prompt has its own, and nothing is shared");
  return kv;
}

}  // namespace hotset::lab
