// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/json_lines.hpp"

#include <cmath>
#include <utility>

#include <simdjson.h>

#include "lab/files/input_files.hpp"
#include "lab/traces/json_member.hpp"
#include "lab/traces/row_places.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

namespace dom = simdjson::dom;

constexpr std::int64_t most_number = 0xffffffff;

class json_reader {
 public:
  json_reader(std::string_view text, const std::string& file, const field_map& fields,
              std::int32_t experts, reading_notes* notes)
      : lines_(file, text), fields_(fields) {
    facts_.file = file;
    facts_.source = "JSON lines";
    facts_.experts = experts;
    facts_.notes = notes;
  }

  routing_trace read() {
    std::string_view line;
    while (lines_.next(line))
      if (!trimmed(line).empty()) add(line);
    if (lines_read_ == 0 && !first_header_.empty())
      refuse_input(facts_.file, first_header_line_, first_header_, accepted_keys());
    if (headers_ > 0)
      add_note(facts_.notes, std::to_string(headers_) +
                                 " records before the first route have neither '" + fields_.layer +
                                 "' nor '" + fields_.experts + "': left out");
    places_.join_layer_by_layer(records_, facts_.notes);
    sequences_.settle(records_);
    facts_.places_inferred = places_.inferred();
    return trace_of(std::move(records_), facts_);
  }

 private:
  using optional_element = std::optional<dom::element>;

  optional_element find(const dom::object& object, const std::string& key) const {
    return member(object, key, lines_);
  }
  dom::element need(const dom::object& object, const std::string& key) const {
    const auto value = find(object, key);
    if (!value) lines_.refuse(without(object, key), accepted_keys());
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
      lines_.refuse(what + " is " + simdjson::to_string(value),
                    "an integer in " + std::to_string(least) + ".." + std::to_string(most));
    return n;
  }
  dom::array array(const dom::element& value, const std::string& what) const {
    dom::array items;
    if (value.get(items) != simdjson::SUCCESS)
      lines_.refuse(what + " is " + simdjson::to_string(value), "an array");
    return items;
  }

  request_class phase(const optional_element& value) const {
    if (!value) return request_class::decode;
    std::string_view text;
    if (value->get(text) == simdjson::SUCCESS) {
      if (const auto named = phase_named(text)) return *named;
      lines_.refuse(fields_.phase + " is '" + std::string(text) + "'", accepted_phases);
    }
    return static_cast<request_class>(number(*value, fields_.phase, 0, 2));
  }

  void add(std::string_view line) {
    dom::object object;
    dom::element document;
    const auto code = parser_.parse(line.data(), line.size()).get(document);
    if (code != simdjson::SUCCESS)
      lines_.refuse(std::string("is not JSON: ") + simdjson::error_message(code),
                    "one JSON object a line");
    if (document.get(object) != simdjson::SUCCESS)
      lines_.refuse("is no object", "one JSON object a line");
    if (lines_read_ == 0 && is_header(object)) return;
    trace_record r;
    r.line = lines_.number();
    r.layer = static_cast<std::int32_t>(
        number(need(object, fields_.layer), fields_.layer, 0, most_layers - 1));
    const auto phase_said = find(object, fields_.phase);
    r.kind = phase(phase_said);
    r.sequence = sequences_.add(sequence(find(object, fields_.sequence)));
    const auto step = find(object, fields_.step);
    const auto token = find(object, fields_.token);
    if (step) r.step = static_cast<std::uint64_t>(number(*step, fields_.step, 0, most_number));
    if (token) r.token = static_cast<std::uint64_t>(number(*token, fields_.token, 0, most_number));
    ++lines_read_;
    auto& here =
        places_.add(r, {step.has_value(), token.has_value(), false, phase_said.has_value()});
    here.token = add_experts(r, need(object, fields_.experts), find(object, fields_.weights));
  }

  /// Loggers write facts of the model first.
  bool is_header(const dom::object& object) {
    if (find(object, fields_.layer) || find(object, fields_.experts)) return false;
    if (headers_++ > 0) return true;
    first_header_line_ = "line " + std::to_string(lines_.number());
    first_header_ = without(object, fields_.layer);
    return true;
  }

  /// A number or a name.
  std::string sequence(const optional_element& value) const {
    if (!value) return "0";
    std::string_view name;
    if (value->get(name) == simdjson::SUCCESS) return std::string(name);
    return std::to_string(number(*value, fields_.sequence, 0, most_number));
  }

  /// Returns the last token.
  std::uint64_t add_experts(trace_record r, const dom::element& experts,
                            const optional_element& weights) {
    if (lines_read_ == 1) facts_.weights = weights.has_value();
    if (facts_.weights != weights.has_value())
      lines_.refuse(weights ? "has weights" : "has no weights",
                    "'" + fields_.weights + "' in every line or in none");
    const auto items = array(experts, fields_.experts);
    const bool nested = items.size() > 0 && items.at(0).is_array();
    if (!nested) {
      add_token(r, items, weights);
    } else {
      add_rows(r, items, weights);
    }
    return r.token;
  }

  void add_rows(trace_record& r, const dom::array& rows, const optional_element& weights) {
    const auto weight_rows = weights ? array(*weights, fields_.weights) : rows;
    if (weight_rows.size() != rows.size())
      lines_.refuse(std::to_string(weight_rows.size()) + " rows of weights for " +
                        std::to_string(rows.size()) + " tokens",
                    "one for each");
    auto weight_row = weight_rows.begin();
    for (const dom::element row : rows) {
      add_token(r, array(row, fields_.experts),
                weights ? optional_element(*weight_row) : std::nullopt);
      ++weight_row;
      ++r.token;
    }
    --r.token;
  }

  void add_token(trace_record r, const dom::array& ids, const optional_element& weights) {
    std::vector<float> values;
    if (weights)
      for (const dom::element item : array(*weights, fields_.weights))
        values.push_back(weight(item));
    std::size_t count = 0;
    for (const dom::element id : ids) {
      const auto most = (facts_.experts > 0 ? facts_.experts : most_experts) - 1;
      r.expert = static_cast<expert_id>(number(id, fields_.experts, -1, most));
      r.rank = static_cast<std::int32_t>(count);
      if (weights && count < values.size()) r.weight = values[count];
      if (r.expert >= 0) records_.push_back(r);
      if (++count > static_cast<std::size_t>(most_ranks))
        lines_.refuse("a token has too many experts", "up to " + std::to_string(most_ranks));
    }
    if (weights && values.size() != count)
      lines_.refuse(
          std::to_string(values.size()) + " weights for " + std::to_string(count) + " experts",
          "one for each");
  }

  float weight(const dom::element& item) const {
    double value = 0;
    if (item.get(value) != simdjson::SUCCESS || !std::isfinite(static_cast<float>(value)))
      lines_.refuse("a weight is " + simdjson::to_string(item), "finite numbers");
    return static_cast<float>(value);
  }

  line_scanner lines_;
  field_map fields_;
  record_facts facts_;
  dom::parser parser_;
  std::vector<trace_record> records_;
  row_places places_;
  sequence_names sequences_;
  std::uint64_t lines_read_ = 0;
  std::uint64_t headers_ = 0;
  std::string first_header_line_;
  std::string first_header_;  ///< what it lacks
};

}  // namespace

routing_trace parse_json_lines(std::string_view text, const std::string& file,
                               const field_map& fields, std::int32_t experts,
                               reading_notes* notes) {
  return json_reader(text, file, fields, experts, notes).read();
}

routing_trace read_json_lines(const std::filesystem::path& path, const field_map& fields,
                              std::int32_t experts, reading_notes* notes) {
  const auto input = read_input(path);
  if (input.size() != 1)
    refuse_input(path.string(), "", std::to_string(input.size()) + " files",
                 "one file of JSON lines");
  return parse_json_lines(input.front().text, path.string(), fields, experts, notes);
}

}  // namespace hotset::lab
