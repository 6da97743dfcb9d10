// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "lab/traces/importers.hpp"
#include "lab/traces/json_objects.hpp"
#include "lab/traces/recorded_rows.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

constexpr std::int64_t most_in_32_bits = 0xffffffff;

class json_reader {
 public:
  json_reader(std::string_view text, const std::string& file, const open_trace_options& options)
      : lines_(file, text),
        fields_(options.fields),
        notes_(options.notes),
        rows_({file, "JSON lines", options}, lines_) {}

  routing_trace read() {
    json object;
    while (next_object(lines_, object)) add(object);
    if (rows_read_ == 0 && !first_header_.empty())
      refuse_input(lines_.file(), first_header_line_, first_header_, accepted_keys());
    if (headers_ > 0)
      add_note(notes_, std::to_string(headers_) + " records before the first route have neither '" +
                           fields_.layer + "' nor '" + fields_.experts + "': left out");
    return std::move(rows_).finish(weights_);
  }

 private:
  const json& need(const json& object, const std::string& key) const {
    const auto* const value = member(object, key);
    if (value == nullptr) lines_.refuse(without(object, key), accepted_keys());
    return *value;
  }
  static std::string without(const json& object, const std::string& key) {
    std::string keys;
    for (const auto& field : object.items())
      keys.append(keys.empty() ? "" : ", ").append(field.key());
    return "has no '" + key + "' (it has " + (keys.empty() ? "no keys" : keys) + ")";
  }
  [[nodiscard]] std::string accepted_keys() const {
    return "an object with " + fields_.layer + " and " + fields_.experts +
           "; --field layer=KEY,experts=KEY names other keys";
  }
  std::int64_t number(const json& value, const std::string& what, std::int64_t least,
                      std::int64_t most) const {
    const auto n = whole_number(value, least, most);
    if (!n)
      lines_.refuse(what + " is " + described(value),
                    "an integer in " + std::to_string(least) + ".." + std::to_string(most));
    return *n;
  }
  const json& array(const json& value, const std::string& what) const {
    if (!value.is_array()) lines_.refuse(what + " is " + described(value), "an array");
    return value;
  }
  std::optional<std::uint64_t> count(const json& object, const std::string& key) const {
    const auto* const value = member(object, key);
    if (value == nullptr) return std::nullopt;
    return static_cast<std::uint64_t>(number(*value, key, 0, most_in_32_bits));
  }
  /// A number or a text, as text.
  std::optional<std::string> name(const json& object, const std::string& key,
                                  std::int64_t most) const {
    const auto* const value = member(object, key);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    return std::to_string(number(*value, key, 0, most));
  }
  std::optional<request_class> phase(const json& object) const {
    const auto text = name(object, fields_.phase, 2);
    if (!text) return std::nullopt;
    const auto phase = parse_phase(*text);
    if (!phase) lines_.refuse(fields_.phase + " is '" + *text + "'", accepted_phases);
    return phase;
  }

  void add(const json& object) {
    if (rows_read_ == 0 && is_header(object)) return;
    row_place place;
    const auto& layer = need(object, fields_.layer);
    place.layer = static_cast<std::int32_t>(number(layer, fields_.layer, 0, most_layers - 1));
    place.phase = phase(object);
    const auto sequence = name(object, fields_.sequence, most_in_32_bits).value_or("0");
    place.sequence = sequence;
    place.step = count(object, fields_.step);
    place.token = count(object, fields_.token);
    place.rank = 0;
    rows_.begin(place);
    const auto* const weights = member(object, fields_.weights);
    if (rows_read_++ == 0) weights_ = weights != nullptr;
    if (weights_ != (weights != nullptr))
      lines_.refuse(weights_ ? "has no weights" : "has weights",
                    "'" + fields_.weights + "' in every line or in none");
    add_experts(array(need(object, fields_.experts), fields_.experts), weights);
  }

  /// Loggers write facts about the model first.
  bool is_header(const json& object) {
    if (object.contains(fields_.layer) || object.contains(fields_.experts)) return false;
    if (headers_++ > 0) return true;
    first_header_line_ = "line " + std::to_string(lines_.number());
    first_header_ = without(object, fields_.layer);
    return true;
  }

  void add_experts(const json& ids, const json* weights) {
    if (weights != nullptr && array(*weights, fields_.weights).size() != ids.size())
      lines_.refuse(std::to_string(weights->size()) + " weights for " + std::to_string(ids.size()) +
                        " experts",
                    "one for each");
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto id = number(ids[i], fields_.experts, -1, rows_.most_expert());
      rows_.add(static_cast<expert_id>(id), weights == nullptr ? 0 : weight((*weights)[i]));
    }
  }

  float weight(const json& item) const {
    const auto value = item.is_number() ? item.get<float>() : INFINITY;
    if (!std::isfinite(value)) lines_.refuse("a weight is " + described(item), "finite numbers");
    return value;
  }

  line_scanner lines_;
  field_map fields_;
  reading_notes* notes_;
  recorded_rows rows_;
  bool weights_ = false;
  std::uint64_t rows_read_ = 0;
  std::uint64_t headers_ = 0;
  std::string first_header_line_;
  std::string first_header_;  ///< keys that the first header lacks
};

}  // namespace

routing_trace parse_json_lines(std::string_view text, const std::string& file,
                               const open_trace_options& options) {
  return json_reader(text, file, options).read();
}

}  // namespace hotset::lab
