// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

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

/// The first member that passes the test, in the object or in what it holds, or null.
template <class Test>
const json* first_within(const json& value, Test test) {
  if (value.is_object())
    for (const auto& [key, part] : value.items())
      if (test(key, part)) return &part;
  if (value.is_structured())
    for (const auto& part : value)
      if (const auto* const found = first_within(part, test)) return found;
  return nullptr;
}
const json* find_within(const json& value, std::string_view wanted) {
  return first_within(value, [&](const auto& key, const auto&) { return key == wanted; });
}

/// Keys of an object's arrays by layer: those with the word and one number, such as "model.layers.3.mlp".
std::map<std::int32_t, std::string> layer_keys(const json& object, std::string_view word) {
  std::map<std::int32_t, std::string> out;
  if (!object.is_object()) return out;
  for (const auto& [key, value] : object.items())
    if (const auto layer = only_number(key); layer && value.is_array() && has_any(key, {word}))
      out.emplace(*layer, key);
  return out;
}

/// The longest text of an object, or the value itself.
const json& text_in(const json& value) {
  const json* found = &value;
  std::size_t longest = 0;
  if (value.is_object())
    for (const auto& part : value)
      if (const auto* const text = part.get_ptr<const std::string*>();
          text != nullptr && text->size() > longest) {
        found = &part;
        longest = text->size();
      }
  return *found;
}

/// Sets the type "uint8", "torch.int32" or "<i4"; false for others.
bool set_type(npy_array& array, std::string_view name) {
  constexpr std::array<std::string_view, 16> known{
      "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
      "i1",   "u1",    "i2",    "u2",     "i4",    "u4",     "i8",    "u8"};
  name.remove_prefix(name.find_last_of(".<|=") + 1);
  const auto at = static_cast<std::size_t>(std::ranges::find(known, name) - known.begin());
  array.kind = at % 2 == 0 ? 'i' : 'u';
  array.item = std::size_t{1} << (at % 8 / 2);
  return at < known.size();
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
        experts_(columns_of(fields_.experts)),
        weights_names_(columns_of(fields_.weights)),
        rows_({file, "JSON lines", options}, lines_) {}

  routing_trace read() {
    json object;
    while (next_object(lines_, object)) add(object);
    if (rows_read_ == 0 && headers_ > 0)
      refuse_input(lines_.file(), header_line_, header_lacks_, header_accepted_);
    if (headers_ > 0)
      add_note(notes_, std::to_string(headers_) + " records have neither '" + fields_.layer +
                           "' nor '" + fields_.experts + "': left out");
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

  /// The member, or an array of the columns that the field names; else null.
  static const json* value_of(const json& object, const std::string& field,
                              const std::vector<std::string>& columns, json& array) {
    if (columns.empty() || !object.contains(columns.front())) return member(object, field);
    array = json::array();
    for (const auto& column : columns) {
      const auto* const item = member(object, column);
      array.push_back(item == nullptr ? json(-1) : *item);
    }
    return &array;
  }
  /// A number without a layer counts experts.
  const json* routes_of(const json& object) {
    const auto* named = value_of(object, fields_.experts, experts_, gathered_ids_);
    if (named == nullptr && fields_.experts == field_map{}.experts)
      named = member(object, "expert");
    const bool counts = named != nullptr && named->is_number() && !member(object, fields_.layer);
    if (named != nullptr && !counts) return named;
    if (const auto* const usual = find_within(object, usual_routes)) return usual;
    return first_within(object, [](const auto& key, const auto& value) {
      return has_any(key, {"layer", "expert", "rout"}) && !layer_keys(value, "").empty();
    });
  }

  void add(const json& object) {
    const auto* const routes = routes_of(object);
    const auto layers = routes == nullptr ? layer_keys(object, "layer") : layer_keys(*routes, "");
    const bool unrouted = routes == nullptr && layers.empty();
    if (unrouted && (is_header(object) || object.contains(fields_.experts))) return;
    const auto& held = routes != nullptr ? *routes
                       : layers.empty()  ? need(object, fields_.experts)
                                         : object;
    const auto& ids = layers.empty() ? text_in(held) : held;
    const auto depth = layers.empty() ? depth_of(ids) : 1 + depth_of(held[layers.begin()->second]);
    row_place place;
    place.phase = phase(object);
    place.step = count(object, fields_.step);
    place.token = count(object, fields_.token);
    place.rank = 0;
    const bool request = (ids.is_string() || depth == 3) && !place.step;
    const auto sequence = name(object, fields_.sequence, most_in_32_bits)
                              .value_or(request ? std::to_string(rows_read_) : "0");
    place.sequence = sequence;
    const auto* const weights =
        value_of(object, fields_.weights, weights_names_, gathered_weights_);
    if (rows_read_ == 0) note_unread_fields(notes_, fields_, keys_of(object));
    if (rows_read_++ == 0) weights_ = weights != nullptr;
    if (weights_ != (weights != nullptr))
      lines_.refuse(weights_ ? "has no weights" : "has weights",
                    "'" + fields_.weights + "' in every line or in none");
    if (ids.is_string()) return add_encoded(object, held, place, ids.get_ref<const std::string&>());
    if (depth == 3 && !layers.empty()) place.token = place.token.value_or(0);
    for (const auto& [layer, key] : layers) {
      place.layer = layer;
      const auto* const beside = weights == nullptr ? nullptr : &need(*weights, key);
      add_axes(place, held[key], beside, depth_of(held[key]), true);
    }
    if (!layers.empty()) return;
    const bool layered = depth < 2 || member(object, fields_.layer) != nullptr;
    if (layered) place.layer = layer_of(need(object, fields_.layer));
    if (ids.is_number()) return add_one(object, place, ids, weights);
    if (depth > (layered ? 2 : 3))
      lines_.refuse(fmt::format("{} has {} axes", fields_.experts, depth),
                    "the experts of a token in a layer, or [layers][experts], or "
                    "[tokens][layers][experts]; with a layer, [tokens][experts]");
    add_axes(place, array(ids, fields_.experts), weights, depth, layered);
  }

  std::int32_t layer_of(const json& value) const {
    if (value.is_string())
      if (const auto layer = only_number(value.get_ref<const std::string&>())) return *layer;
    return static_cast<std::int32_t>(number(value, fields_.layer, 0, most_layers - 1));
  }

  /// An expert a row, as in a CSV.
  void add_one(const json& object, row_place place, const json& id, const json* weight) {
    place.rank.reset();
    if (const auto* const rank = member(object, fields_.rank))
      place.rank = static_cast<std::int32_t>(number(*rank, fields_.rank, 0, most_ranks - 1));
    if (!place.token && !place.rank)
      lines_.refuse("has one expert, and nothing says which are one token's",
                    "'" + fields_.token + "' or '" + fields_.rank + "', or lists of experts");
    const auto listed = weight == nullptr ? json() : json::array({*weight});
    add_axes(place, json::array({id}), weight == nullptr ? nullptr : &listed, 1, true);
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

  /// Reads NumPy's format (vLLM), or integers whose type (default: 32 bits) and shape stand beside them. SGLang's shape
  /// follows from the number of tokens.
  void add_encoded(const json& object, const json& held, row_place place, const std::string& text) {
    const auto bytes = decoded(text);
    if (!bytes) lines_.refuse(fields_.experts + " is a text", "an array, or one in base64");
    npy_array array{.name = {}, .item = 4, .shape = {}, .bytes = *bytes};
    if (looks_like_npy(*bytes)) {
      array = parse_npy(*bytes, fmt::format("{}: line {}", lines_.file(), lines_.number()));
    } else {
      const auto& facts = held.is_object() ? held : object;
      const auto* const type = first_within(facts, [](const auto& key, const auto& value) {
        return value.is_string() && has_any(key, {"dtype"}) && key != "torch_dtype";
      });
      if (type != nullptr && !set_type(array, type->get_ref<const std::string&>()))
        lines_.refuse("numbers in base64 are of type " + described(*type), "int8 to uint64");
      array.shape = shape_of(object, array.size(), facts);
    }
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

  std::vector<std::size_t> shape_of(const json& object, std::size_t size, const json& facts) const {
    const auto* const given = first_within(facts, [](const auto& key, const auto& value) {
      return value.is_array() && value.size() == 3 && has_any(key, {"shape"});
    });
    if (given != nullptr) {
      std::vector<std::size_t> shape;
      for (const auto& extent : *given)
        shape.push_back(static_cast<std::size_t>(number(extent, "shape", 1, most_in_32_bits)));
      if (detail::product({shape[0], shape[1], shape[2]}) == size) return shape;
      lines_.refuse(fmt::format("{} numbers in base64 for a shape of {}", size, given->dump()),
                    "as many as the shape");
    }
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
                  "'shape' [tokens, layers, top_k] (and 'dtype') beside them; or a multiple of "
                  "tokens x top_k, by --top-k, prompt_tokens and completion_tokens");
  }

  /// Loggers write facts about the model first.
  bool is_header(const json& object) {
    if (member(object, fields_.layer) != nullptr) return false;
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
  std::vector<std::string> experts_;  ///< columns that the field names; empty: it names one member
  std::vector<std::string> weights_names_;
  json gathered_ids_{};
  json gathered_weights_{};
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
