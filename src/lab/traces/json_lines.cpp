// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "lab/traces/importers.hpp"
#include "lab/traces/json_objects.hpp"
#include "lab/traces/recorded_rows.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

namespace dom = simdjson::dom;

constexpr std::int64_t most_number = 0xffffffff;

class json_reader {
 public:
  json_reader(std::string_view text, const std::string& file, const open_trace_options& options)
      : objects_(file, text),
        fields_(options.fields),
        notes_(options.notes),
        rows_({file, "JSON lines", options}, objects_.lines()) {}

  routing_trace read() {
    dom::object object;
    while (objects_.next(object)) add(object);
    if (rows_read_ == 0 && !first_header_.empty())
      refuse_input(objects_.lines().file(), first_header_line_, first_header_, accepted_keys());
    if (headers_ > 0)
      add_note(notes_, std::to_string(headers_) + " records before the first route have neither '" +
                           fields_.layer + "' nor '" + fields_.experts + "': left out");
    return std::move(rows_).finish(weights_);
  }

 private:
  using optional_element = std::optional<dom::element>;

  [[noreturn]] void refuse(const std::string& found, const std::string& accepted) const {
    objects_.lines().refuse(found, accepted);
  }
  dom::element need(const dom::object& object, const std::string& key) const {
    const auto value = objects_.find(object, key);
    if (!value) refuse(without(object, key), accepted_keys());
    return *value;
  }
  static std::string without(const dom::object& object, const std::string& key) {
    std::string keys;
    for (const auto& field : object) keys.append(keys.empty() ? "" : ", ").append(field.key);
    return "has no '" + key + "' (it has " + (keys.empty() ? "no keys" : keys) + ")";
  }
  [[nodiscard]] std::string accepted_keys() const {
    return "an object with " + fields_.layer + " and " + fields_.experts +
           "; --field layer=KEY,experts=KEY names other keys";
  }
  std::int64_t number(const dom::element& value, const std::string& what, std::int64_t least,
                      std::int64_t most) const {
    std::int64_t n = 0;
    if (value.get(n) != simdjson::SUCCESS || n < least || n > most)
      refuse(what + " is " + simdjson::to_string(value),
             "an integer in " + std::to_string(least) + ".." + std::to_string(most));
    return n;
  }
  dom::array array(const dom::element& value, const std::string& what) const {
    dom::array items;
    if (value.get(items) != simdjson::SUCCESS)
      refuse(what + " is " + simdjson::to_string(value), "an array");
    return items;
  }
  std::optional<std::uint64_t> count(const dom::object& object, const std::string& key) const {
    const auto value = objects_.find(object, key);
    if (!value) return std::nullopt;
    return static_cast<std::uint64_t>(number(*value, key, 0, most_number));
  }
  /// A number or a text, as text.
  std::optional<std::string> name(const dom::object& object, const std::string& key,
                                  std::int64_t most) const {
    const auto value = objects_.find(object, key);
    if (!value) return std::nullopt;
    std::string_view text;
    if (value->get(text) == simdjson::SUCCESS) return std::string(text);
    return std::to_string(number(*value, key, 0, most));
  }
  std::optional<request_class> phase(const dom::object& object) const {
    const auto text = name(object, fields_.phase, 2);
    if (!text) return std::nullopt;
    const auto phase = parse_phase(*text);
    if (!phase) refuse(fields_.phase + " is '" + *text + "'", accepted_phases.data());
    return phase;
  }

  void add(const dom::object& object) {
    if (rows_read_ == 0 && is_header(object)) return;
    row_place place;
    const auto layer = need(object, fields_.layer);
    place.layer = static_cast<std::int32_t>(number(layer, fields_.layer, 0, most_layers - 1));
    place.phase = phase(object);
    const auto sequence = name(object, fields_.sequence, most_number).value_or("0");
    place.sequence = sequence;
    place.step = count(object, fields_.step);
    place.token = count(object, fields_.token);
    place.rank = 0;
    rows_.begin(place);
    const auto weights = objects_.find(object, fields_.weights);
    if (rows_read_++ == 0) weights_ = weights.has_value();
    if (weights_ != weights.has_value())
      refuse(weights ? "has weights" : "has no weights",
             "'" + fields_.weights + "' in every line or in none");
    const auto items = array(need(object, fields_.experts), fields_.experts);
    if (items.size() > 0 && items.at(0).is_array())
      add_tokens(items, weights);
    else
      add_token(items, weights);
  }

  /// Loggers write facts of the model first.
  bool is_header(const dom::object& object) {
    if (objects_.find(object, fields_.layer) || objects_.find(object, fields_.experts))
      return false;
    if (headers_++ > 0) return true;
    first_header_line_ = "line " + std::to_string(objects_.lines().number());
    first_header_ = without(object, fields_.layer);
    return true;
  }

  void add_tokens(const dom::array& tokens, const optional_element& weights) {
    const auto weight_rows = weights ? array(*weights, fields_.weights) : tokens;
    if (weight_rows.size() != tokens.size())
      refuse(std::to_string(weight_rows.size()) + " rows of weights for " +
                 std::to_string(tokens.size()) + " tokens",
             "one for each");
    auto weight_row = weight_rows.begin();
    bool first = true;
    for (const dom::element token : tokens) {
      if (!std::exchange(first, false)) rows_.next_token();
      add_token(array(token, fields_.experts),
                weights ? optional_element(*weight_row) : std::nullopt);
      ++weight_row;
    }
  }

  void add_token(const dom::array& ids, const optional_element& weights) {
    std::vector<float> values;
    if (weights)
      for (const dom::element item : array(*weights, fields_.weights))
        values.push_back(weight(item));
    std::size_t count = 0;
    for (const dom::element item : ids) {
      const auto id = number(item, fields_.experts, -1, rows_.most_expert());
      if (id < 0)
        rows_.skip();
      else
        rows_.add(static_cast<expert_id>(id), count < values.size() ? values[count] : 0);
      ++count;
    }
    if (weights && values.size() != count)
      refuse(std::to_string(values.size()) + " weights for " + std::to_string(count) + " experts",
             "one for each");
  }

  float weight(const dom::element& item) const {
    double value = 0;
    if (item.get(value) != simdjson::SUCCESS || !std::isfinite(static_cast<float>(value)))
      refuse("a weight is " + simdjson::to_string(item), "finite numbers");
    return static_cast<float>(value);
  }

  json_objects objects_;
  field_map fields_;
  reading_notes* notes_;
  recorded_rows rows_;
  bool weights_ = false;
  std::uint64_t rows_read_ = 0;
  std::uint64_t headers_ = 0;
  std::string first_header_line_;
  std::string first_header_;  ///< what it lacks
};

}  // namespace

routing_trace parse_json_lines(std::string_view text, const std::string& file,
                               const open_trace_options& options) {
  return json_reader(text, file, options).read();
}

}  // namespace hotset::lab
