// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Checks JSON against a schema (JSON Schema 2020-12), as far as docs/schemas goes.

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace hotset::support {

/// Returns where and why `value` violates the schema; empty: valid. An unknown keyword is an error, because it would
/// otherwise be silently ignored.
class json_schema {
 public:
  explicit json_schema(nlohmann::json root) : root_(std::move(root)) {}

  [[nodiscard]] std::string trouble(const nlohmann::json& value) const {
    return trouble(root_, value, "$");
  }

 private:
  using json = nlohmann::json;

  static bool has_type(const json& value, const std::string& type) {
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    throw std::invalid_argument("unknown type " + type);
  }

  std::string trouble(const json& schema, const json& value, const std::string& place) const {
    static const std::set<std::string> known{
        "$schema",  "$defs",      "title",   "description", "$ref",
        "type",     "const",      "enum",    "anyOf",       "items",
        "required", "properties", "minimum", "maximum",     "additionalProperties"};
    for (const auto& [keyword, rule] : schema.items())
      if (!known.contains(keyword)) throw std::invalid_argument("unknown keyword " + keyword);
    if (schema.contains("$ref"))
      return trouble(root_.at(json::json_pointer(schema["$ref"].get<std::string>().substr(1))),
                     value, place);
    if (schema.contains("anyOf")) {
      std::string all;
      for (const auto& one : schema["anyOf"]) {
        const auto found = trouble(one, value, place);
        if (found.empty()) return {};
        all += found + "; ";
      }
      return all;
    }
    const auto refused = [&](const std::string& why) {
      return place + ": " + why + ": " + value.dump();
    };
    if (schema.contains("const") && value != schema["const"]) return refused("another constant");
    if (schema.contains("type")) {
      const auto types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
      if (std::none_of(types.begin(), types.end(),
                       [&](const json& t) { return has_type(value, t.get<std::string>()); }))
        return refused("no " + types.dump());
    }
    if (value.is_null()) return {};
    if (schema.contains("enum")) {
      const auto& accepted = schema["enum"];
      if (std::find(accepted.begin(), accepted.end(), value) == accepted.end())
        return refused("none of " + accepted.dump());
    }
    if (schema.contains("minimum") && value < schema["minimum"]) return refused("too small");
    if (schema.contains("maximum") && value > schema["maximum"]) return refused("too large");
    return value.is_object() ? of_object(schema, value, place) : of_array(schema, value, place);
  }

  std::string of_array(const json& schema, const json& value, const std::string& place) const {
    if (value.is_array() && schema.contains("items"))
      for (std::size_t i = 0; i < value.size(); ++i)
        if (auto found = trouble(schema["items"], value[i], place + '[' + std::to_string(i) + ']');
            !found.empty())
          return found;
    return {};
  }

  std::string of_object(const json& schema, const json& value, const std::string& place) const {
    for (const auto& name : schema.value("required", json::array()))
      if (!value.contains(name)) return place + ": no " + name.get<std::string>();
    const auto properties = schema.value("properties", json::object());
    const auto others = schema.value("additionalProperties", json(true));
    for (const auto& [name, member] : value.items()) {
      const bool named = properties.contains(name);
      if (!named && others == json(false)) return place + ": has " + name;
      if (!named && !others.is_object()) continue;
      auto found = trouble(named ? properties[name] : others, member, place + '.' + name);
      if (!found.empty()) return found;
    }
    return {};
  }

  json root_;
};

}  // namespace hotset::support
