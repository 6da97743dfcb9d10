// SPDX-License-Identifier: Apache-2.0
#include "sim/io/json_object.hpp"

#include <charconv>
#include <set>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "hotset/sim/io/input_error.hpp"

namespace hotset::inline v0::sim {
namespace {

using json = nlohmann::json;

/// Refuses a key that its object already has: the parser itself would keep the last value without a word.
class key_check {
 public:
  explicit key_check(const std::string& file) : file_(file) {}

  bool operator()(int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second)
        refuse_input(file_, fmt::format("key '{}'", printable(key, 60)), "is there twice",
                     "each key once");
    }
    return true;
  }

 private:
  const std::string& file_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

json parse_json_object(std::string_view text, const std::string& file, std::string_view accepted) {
  constexpr std::size_t most = std::size_t{16} << 20U;
  if (text.size() > most)
    refuse_input(file, "", fmt::format("has {} bytes", text.size()),
                 fmt::format("{} of up to {}", accepted, most));
  json root;
  key_check keys(file);
  try {
    root = json::parse(text, [&keys](int depth, json::parse_event_t event, json& parsed) {
      return keys(depth, event, parsed);
    });
  } catch (const json::parse_error& bad) {
    if (bad.byte > text.size())
      refuse_input(file, "", "ends before its JSON does (is it cut short?)", accepted);
    refuse_input(file, fmt::format("byte {}", bad.byte), "is not JSON here", accepted);
  } catch (const json::out_of_range&) {  // 1e999
    refuse_input(file, "", "holds a number that no double can", "numbers of less than 1.8e308");
  }
  if (!root.is_object()) refuse_input(file, "", "is no JSON object", accepted);
  return root;
}

std::string told(const json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return printable(value.dump(), 80);
}

std::optional<std::int32_t> numeric_key(std::string_view key, std::int32_t most) {
  std::int32_t number = 0;
  const char* const end = key.data() + key.size();
  const auto [rest, code] = std::from_chars(key.data(), end, number);
  const bool plain = key.size() == 1 || !key.starts_with('0');
  if (code != std::errc{} || rest != end || !plain || number < 0 || number > most)
    return std::nullopt;
  return number;
}

}  // namespace hotset::inline v0::sim
