// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lab/files/npy.hpp"
#include "lab/traces/importers.hpp"
#include "lab/traces/json_objects.hpp"
#include "lab/traces/recorded_rows.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

constexpr std::int64_t most_in_32_bits = 0xffffffff;
/// The key of engines: SGLang and vLLM answer with it, nested in other objects.
const std::string usual_routes = "routed_experts";

/// The first member with the key in the object or in what it holds, or null.
const json* find_within(const json& value, const std::string& key) {
  if (value.is_object())
    if (const auto at = value.find(key); at != value.end()) return &*at;
  if (value.is_structured())
    for (const auto& part : value)
      if (const auto* const found = find_within(part, key)) return found;
  return nullptr;
}

int depth_of(const json& rows) {
  return rows.is_array() && !rows.empty() ? 1 + depth_of(rows.front()) : rows.is_array() ? 1 : 0;
}

/// Bytes of a text of base64, or nothing if it is none.
std::optional<std::string> decoded(std::string_view text) {
  constexpr std::string_view known =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (const auto c : text) {
    const auto value = known.find(c);
    if (value == known.npos) return std::nullopt;
    bits = bits << 6U | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held);
  }
  return out;
}

class json_reader {
 public:
  json_reader(std::string_view text, const std::string& file, const open_trace_options& options)
      : lines_(file, text),
        fields_(options.fields),
        top_k_(options.top_k),
        notes_(options.notes),
        rows_({file, "JSON lines", options}, lines_) {}

  routing_trace read() {
    json object;
    while (next_object(lines_, object)) add(object);
    if (rows_read_ == 0 && headers_ > 0)
      refuse_input(lines_.file(), header_line_, header_lacks_, header_accepted_);
    if (headers_ > 0)
      add_note(notes_, std::to_string(headers_) + " records before the first route have neither '" +
                           fields_.layer + "' nor '" + fields_.experts + "': left out");
    return std::move(rows_).finish(weights_);
  }

 private:
  const json& need(const json& object, const std::string& key) const {
    const auto* const value = member(object, key);
    if (value == nullptr) lines_.refuse(without(object, key), accepted_keys(object));
    return *value;
  }
  static std::string without(const json& object, const std::string& key) {
    const auto keys = keys_of(object);
    return "has no '" + key + "' (it has " + (keys.empty() ? "no keys" : keys) + ")";
  }
  static std::string keys_of(const json& object) {
    std::string keys;
    for (const auto& field : object.items())
      keys.append(keys.empty() ? "" : ", ").append(field.key());
    return keys;
  }
  [[nodiscard]] std::string accepted_keys(const json& object) const {
    return "an object with " + fields_.layer + " and " + fields_.experts + ", or " + usual_routes +
           "; " + suggested_fields(keys_of(object), "jsonl");
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
    const auto* const named = member(object, fields_.experts);
    const auto* const routes =
        named != nullptr && !named->is_number() ? named : find_within(object, usual_routes);
    if (rows_read_ == 0 && routes == nullptr && is_header(object)) return;
    const auto& ids = routes != nullptr ? *routes : need(object, fields_.experts);
    const auto depth = depth_of(ids);
    const bool request = depth == 0 || depth == 3;
    row_place place;
    place.phase = phase(object);
    const auto sequence = name(object, fields_.sequence, most_in_32_bits)
                              .value_or(request ? std::to_string(rows_read_) : "0");
    place.sequence = sequence;
    place.step = count(object, fields_.step);
    place.token = count(object, fields_.token);
    place.rank = 0;
    const auto* const weights = member(object, fields_.weights);
    if (rows_read_++ == 0) weights_ = weights != nullptr;
    if (weights_ != (weights != nullptr))
      lines_.refuse(weights_ ? "has no weights" : "has weights",
                    "'" + fields_.weights + "' in every line or in none");
    if (ids.is_string()) return add_encoded(object, place, ids.get_ref<const std::string&>());
    const bool layered = depth < 2 || object.contains(fields_.layer);
    if (layered)
      place.layer = static_cast<std::int32_t>(
          number(need(object, fields_.layer), fields_.layer, 0, most_layers - 1));
    if (depth > (layered ? 2 : 3))
      lines_.refuse(fmt::format("{} has {} axes", fields_.experts, depth),
                    "the experts of a token in a layer, or [layers][experts], or "
                    "[tokens][layers][experts]; with a layer, [tokens][experts]");
    add_axes(place, array(ids, fields_.experts), weights, depth, layered);
  }

  /// Axes: tokens, unless the object is one token; layers, unless it is in one layer; experts.
  void add_axes(row_place place, const json& ids, const json* weights, int depth, bool layered) {
    if (depth == 1) {
      rows_.begin(place);
      return add_experts(array(ids, fields_.experts), weights);
    }
    same_sizes(array(ids, fields_.experts), weights);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      auto part = place;
      if (depth == 2 && !layered)
        part.layer = layer_at(i);
      else if (depth == 3 || place.token)
        part.token = place.token.value_or(0) + i;
      add_axes(part, ids[i], weights == nullptr ? nullptr : &(*weights)[i], depth - 1, layered);
    }
  }

  std::int32_t layer_at(std::size_t i) const {
    if (i >= std::size_t{most_layers})
      lines_.refuse("has too many layers", "up to " + std::to_string(most_layers));
    return static_cast<std::int32_t>(i);
  }

  /// Reads NumPy's format (vLLM), or 32-bit integers whose shape follows from the number of tokens (SGLang).
  void add_encoded(const json& object, row_place place, const std::string& text) {
    const auto bytes = decoded(text);
    if (!bytes) lines_.refuse(fields_.experts + " is a text", "an array, or one in base64");
    npy_array array{.name = {}, .item = 4, .shape = {}, .bytes = *bytes};
    if (looks_like_npy(*bytes))
      array = parse_npy(*bytes, fmt::format("{}: line {}", lines_.file(), lines_.number()));
    else
      array.shape = shape_of(object, array.size());
    if (!array.is_integer() || array.shape.size() != 3 || array.size() == 0 || weights_)
      lines_.refuse(array.description(), "integers [tokens, layers, top_k] without weights");
    const auto values = integers_of(array);
    const auto first = place.token.value_or(0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % array.shape[2] == 0) {
        const auto row = i / array.shape[2];
        place.layer = layer_at(row % array.shape[1]);
        place.token = first + row / array.shape[1];
        rows_.begin(place);
      }
      rows_.add(
          static_cast<expert_id>(number(values[i], fields_.experts, -1, rows_.most_expert())));
    }
  }

  std::vector<std::size_t> shape_of(const json& object, std::size_t size) const {
    const auto* const prompt = find_within(object, "prompt_tokens");
    const auto* const output = find_within(object, "completion_tokens");
    if (prompt != nullptr && output != nullptr && top_k_ > 0) {
      // The last token is sampled and not computed.
      const auto tokens = static_cast<std::size_t>(
          number(*prompt, "prompt_tokens", 1, most_in_32_bits) +
          std::max<std::int64_t>(number(*output, "completion_tokens", 0, most_in_32_bits) - 1, 0));
      const auto ranks = static_cast<std::size_t>(top_k_);
      if (size % (tokens * ranks) == 0) return {tokens, size / (tokens * ranks), ranks};
    }
    lines_.refuse(fmt::format("{} has {} numbers in base64, and their shape is unknown",
                              fields_.experts, size),
                  "a multiple of tokens x top_k, by --top-k, prompt_tokens and completion_tokens");
  }

  /// Loggers write facts about the model first.
  bool is_header(const json& object) {
    if (object.contains(fields_.layer)) return false;
    // If no route follows, the last of some records is likelier to be one than the first.
    if (headers_++ >= 16) return true;
    header_line_ = "line " + std::to_string(lines_.number());
    header_lacks_ = without(object, fields_.layer);
    header_accepted_ = accepted_keys(object);
    return true;
  }

  void same_sizes(const json& ids, const json* weights) const {
    if (weights != nullptr && array(*weights, fields_.weights).size() != ids.size())
      lines_.refuse(std::to_string(weights->size()) + " weights for " + std::to_string(ids.size()) +
                        " experts",
                    "one for each");
  }

  void add_experts(const json& ids, const json* weights) {
    same_sizes(ids, weights);
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
  std::int32_t top_k_;
  reading_notes* notes_;
  recorded_rows rows_;
  bool weights_ = false;
  std::uint64_t rows_read_ = 0;
  std::uint64_t headers_ = 0;
  std::string header_line_;
  std::string header_lacks_;
  std::string header_accepted_;
};

}  // namespace

routing_trace parse_json_lines(std::string_view text, const std::string& file,
                               const open_trace_options& options) {
  return json_reader(text, file, options).read();
}

}  // namespace hotset::lab
