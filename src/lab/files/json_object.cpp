// SPDX-License-Identifier: Apache-2.0
#include "lab/files/json_object.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

/// JSON text in which NaN and infinities became strings.
struct standard_text {
  std::string text;
  std::vector<std::size_t> quotes;  ///< positions of the inserted quotes, in order

  /// Maps a byte position, counted from 1, to the original text.
  [[nodiscard]] std::size_t original(std::size_t byte) const {
    const auto before = std::lower_bound(quotes.begin(), quotes.end(), byte - 1) - quotes.begin();
    return byte - static_cast<std::size_t>(before);
  }
};

standard_text with_quoted_numbers(std::string_view text) {
  constexpr std::array<std::string_view, 3> numbers = {"NaN", "Infinity", "-Infinity"};
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos)
    return {std::string(text), {}};
  standard_text out;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto rest = text.substr(at);
    const auto begins = [&](std::string_view number) { return rest.starts_with(number); };
    const auto* const found = std::ranges::find_if(numbers, begins);
    if (!in_string && found != numbers.end()) {
      out.quotes.push_back(out.text.size());
      out.quotes.push_back(out.text.size() + 1 + found->size());
      out.text.append("\"").append(*found).append("\"");
      at += found->size();
      continue;
    }
    if (rest.front() == '"') in_string = !in_string;
    const std::size_t taken = in_string && rest.front() == '\\' ? 2 : 1;
    out.text.append(rest.substr(0, taken));
    at += taken;
  }
  return out;
}

/// Refuses a repeated key of an object: the parser would silently keep the last value.
class unique_keys {
 public:
  explicit unique_keys(const std::string& file) : file_(file) {}
  /// Callback for the parser. Errors: trace_error.
  void check(json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event != json::parse_event_t::key) return;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!open_.back().insert(key).second)
      refuse_input(file_, fmt::format("key '{}'", printable(key, 60)), "is there twice",
                   "each key once");
  }

 private:
  const std::string& file_;
  std::vector<std::set<std::string>> open_;  ///< keys of each object that is still open
};

json parse_standard(std::string_view text, const std::string& file, std::string_view accepted) {
  constexpr int deepest = 32;
  unique_keys keys(file);
  return json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > deepest)
      refuse_input(file, "", fmt::format("nests values more than {} deep", deepest), accepted);
    keys.check(event, parsed);
    return true;
  });
}

}  // namespace

json parse_json_object(std::string_view text, const std::string& file, std::string_view accepted,
                       std::size_t most) {
  if (text.size() > most)
    refuse_input(file, "", fmt::format("has {} bytes", text.size()),
                 fmt::format("{} of up to {}", accepted, most));
  const auto standard = with_quoted_numbers(text);
  json root;
  try {
    root = parse_standard(standard.text, file, accepted);
  } catch (const json::parse_error& bad) {
    if (bad.byte > standard.text.size())
      refuse_input(file, "", "ends before its JSON does (is it cut short?)", accepted);
    refuse_input(file, fmt::format("byte {}", standard.original(bad.byte)), "is not JSON here",
                 accepted);
  } catch (const json::out_of_range&) {  // 1e999
    refuse_input(file, "", "holds a number that no double can", "numbers of less than 1.8e308");
  }
  if (!root.is_object()) refuse_input(file, "", "is no JSON object", accepted);
  return root;
}

std::string described(const json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return printable(value.dump(), 80);
}

std::optional<std::int32_t> numeric_key(std::string_view key, std::int32_t most) {
  const auto number = parse_number<std::int32_t>(key);
  const bool plain = number && *number >= 0 && *number <= most && std::to_string(*number) == key;
  return plain ? number : std::nullopt;
}

}  // namespace hotset::lab
