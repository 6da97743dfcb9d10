// SPDX-License-Identifier: Apache-2.0
#include "lab/models/config_keys.hpp"

#include <fmt/format.h>

#include "hotset/core/text/names.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

std::optional<std::uint64_t> natural(const json& value, std::uint64_t least, std::uint64_t most) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

/// Message for a missing key, with the most similar key present. A longer key with the same prefix is not suggested.
std::string missing(std::string_view key, const json& inner, const json& outer) {
  std::vector<std::string> there;
  for (const auto* const object : {&inner, &outer})
    for (const auto& [name, value] : object->items())
      if (!name.starts_with(key)) there.push_back(name);
  const auto meant = nearest_name(key, there);
  return meant.empty() ? "is missing" : fmt::format("is missing (there is '{}')", printable(meant));
}

/// Refuses a value that is not accepted. Returns nullptr if the key is missing.
const json* find_if(const config_keys& keys, std::string_view key, std::string_view accepted,
                    bool (*accepts)(const json&)) {
  const auto* const value = keys.find(key);
  if (value != nullptr && !accepts(*value))
    keys.refuse(key, "is " + described(*value), std::string(accepted));
  return value;
}

/// Entries parsed by `read`, exactly `size` of them unless that is 0; nothing if the key is missing.
template <class T>
std::optional<std::vector<T>> list_of(const config_keys& keys, std::string_view key,
                                      std::size_t size, std::string_view of, std::string_view each,
                                      std::optional<T> (*read)(const json&)) {
  const auto* const values = keys.find(key);
  if (values == nullptr) return std::nullopt;
  if (!values->is_array() || (size > 0 && values->size() != size))
    keys.refuse(key, "is " + described(*values),
                size > 0 ? fmt::format("an array of {} {}, one a layer", size, of)
                         : fmt::format("an array of {}", of));
  std::vector<T> out;
  for (const auto& value : *values) {
    const auto found = read(value);
    if (!found)
      keys.refuse(key, fmt::format("entry {} is {}", out.size(), described(value)),
                  std::string(each));
    out.push_back(*found);
  }
  return out;
}

}  // namespace

const json* config_keys::find(std::string_view key) const {
  for (const auto* const object : {&inner_, &outer_}) {
    const auto at = object->find(key);
    if (at != object->end() && !at->is_null()) return &*at;
  }
  return nullptr;
}

std::optional<std::uint64_t> config_keys::number(std::string_view key, std::uint64_t least,
                                                 std::uint64_t most) const {
  const auto* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool is_list = value->is_array() && !value->empty();
  const auto& one = is_list ? value->front() : *value;
  const auto found = natural(one, least, most);
  if (!found)
    refuse(key, (is_list ? "entry 0 is " : "is ") + described(one),
           fmt::format("an integer in {}..{}", least, most));
  for (std::size_t i = 1; is_list && i < value->size(); ++i)
    if ((*value)[i] != one)
      refuse(key, fmt::format("entry {} is {}, entry 0 is {}", i, described((*value)[i]), *found),
             "one and the same in every layer");
  return found;
}

std::uint64_t config_keys::need(std::string_view key, std::uint64_t least,
                                std::uint64_t most) const {
  const auto found = number(key, least, most);
  if (!found)
    refuse(key, missing(key, inner_, outer_), fmt::format("an integer in {}..{}", least, most));
  return *found;
}

std::optional<std::uint64_t> config_keys::any(std::initializer_list<std::string_view> keys,
                                              std::uint64_t least) const {
  for (const auto key : keys)
    if (const auto found = number(key, least)) return found;
  return std::nullopt;
}

std::uint64_t config_keys::need_any(std::initializer_list<std::string_view> keys,
                                    std::uint64_t least, const std::string& otherwise) const {
  const auto found = any(keys, least);
  if (!found)
    refuse(*keys.begin(), missing(*keys.begin(), inner_, outer_),
           fmt::format(
               "an integer in {}..{}{}{}{}", least, most_extent, keys.size() > 1 ? ", under " : "",
               keys.size() > 1 ? fmt::format("{}", fmt::join(keys, " or ")) : "", otherwise));
  return *found;
}

std::optional<double> config_keys::real(std::string_view key) const {
  const auto* const value = find_if(*this, key, "a number above 0", [](const json& found) {
    return found.is_number() && found.get<double>() > 0;
  });
  return value == nullptr ? std::nullopt : std::optional(value->get<double>());
}

bool config_keys::flag(std::string_view key, bool otherwise) const {
  const auto* const value =
      find_if(*this, key, "true or false", [](const json& found) { return found.is_boolean(); });
  return value == nullptr ? otherwise : value->get<bool>();
}

std::optional<std::string> config_keys::text(std::string_view key) const {
  const auto* const value =
      find_if(*this, key, "a string", [](const json& found) { return found.is_string(); });
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

const json* config_keys::object(std::string_view key) const {
  return find_if(*this, key, "an object", [](const json& found) { return found.is_object(); });
}

std::optional<std::vector<std::uint64_t>> config_keys::numbers(std::string_view key,
                                                               std::size_t size) const {
  return list_of<std::uint64_t>(
      *this, key, size, "integers", fmt::format("integers in 0..{}", most_extent),
      [](const json& value) {
        return value.is_boolean() ? std::optional<std::uint64_t>(value.get<bool>() ? 1 : 0)
                                  : natural(value, 0, most_extent);
      });
}

std::optional<std::vector<std::string>> config_keys::words(std::string_view key,
                                                           std::size_t size) const {
  return list_of<std::string>(*this, key, size, "strings", "strings", [](const json& value) {
    return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
  });
}

std::vector<std::string> config_keys::like(std::string_view word) const {
  std::vector<std::string> out;
  for (const auto& [key, value] : inner_.items())
    if (key.find(word) != key.npos && !value.is_null()) out.push_back(printable(key, 60));
  return out;
}

void config_keys::refuse(std::string_view key, const std::string& found,
                         const std::string& accepted) const {
  refuse_input(file_, fmt::format("key '{}{}'", prefix_, key), found, accepted);
}

}  // namespace hotset::lab
