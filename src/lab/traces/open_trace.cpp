// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/open_trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "hotset/registry/parameters.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/npy.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/traces/esft.hpp"
#include "lab/traces/expert_counts.hpp"
#include "lab/traces/importers.hpp"
#include "lab/traces/kv_trace.hpp"
#include "lab/traces/native_trace.hpp"
#include "lab/traces/oracle_general.hpp"
#include "lab/traces/requests.hpp"
#include "lab/traces/routed_arrays.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

template <auto Parse>
routing_trace of_text(const fs::path& file, const open_trace_options& options) {
  return Parse(read_single_input(file), file.string(), options);
}

routing_trace of_requests(const fs::path& file, const open_trace_options& options) {
  const auto kv = open_block_requests(file, options.notes);
  auto made = block_accesses(kv, options.block_bytes);
  if (!made) refuse_input(file.string(), "", made.error().message, "");
  if (kv.own_blocks) made->source += "; what prompts share is not recorded: no block comes again";
  return *std::move(made);
}

struct importer {
  std::string_view name;
  std::string_view accepted;  ///< text for messages
  routing_trace (*read)(const fs::path&, const open_trace_options&);
  /// Whether rows are a router's choices. Requests have blocks of a KV cache, and oracleGeneral has objects.
  bool routers = true;
};

/// In the order of trace_format.
constexpr std::array importers = {
    importer{"auto", "", nullptr},
    importer{
        "native", "a native trace (safetensors)",
        [](const fs::path& file, const open_trace_options&) { return read_native_trace(file); }},
    importer{"bigmoe", "BigMoeOnEdge route CSV", of_text<parse_bigmoe_route_csv>},
    importer{"esft", "ESFT folder or archive", read_esft},
    importer{"layer-expert", "layer,expert CSV", of_text<parse_layer_expert_csv>},
    importer{"jsonl", "JSON lines with 'layer' and 'experts'", of_text<parse_json_lines>},
    importer{"csv", "a CSV with 'layer' and 'experts'", of_text<parse_column_csv>},
    importer{"npy", "NumPy arrays (.npy, .npz)", read_routed_arrays},
    importer{
        "oracle", "oracleGeneral",
        [](const fs::path& file, const open_trace_options&) { return read_oracle_general(file); },
        false},
    importer{"requests", "requests (JSON lines or CSV)", of_requests, false},
};
static_assert(importers.size() == static_cast<std::size_t>(trace_format::requests) + 1);

const importer& importer_of(trace_format format) noexcept {
  return importers[static_cast<std::size_t>(format)];
}

std::string known_formats() {
  std::string all;
  for (const auto& known : importers)
    if (known.read != nullptr) all.append(all.empty() ? "" : ", ").append(known.accepted);
  return all;
}

/// A small header length followed by a brace occurs only in safetensors.
bool looks_native(std::string_view text) noexcept {
  if (text.size() < 16 || text[8] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  return length < (std::uint64_t{1} << 40U);
}

/// The first line that is neither blank nor a comment, or the first comment that names a format.
std::string_view telling_line(std::string_view text) {
  line_scanner lines("", text);
  std::string_view line;
  while (lines.next(line)) {
    line = trimmed(line);
    if (line.starts_with("# route_trace")) return line;
    if (!line.empty() && line.front() != '#') return line;
  }
  return {};
}

/// Number of comma-separated columns, or 0 if one of them is no number.
std::size_t numeric_columns(std::string_view line) {
  const auto fields = detail::split_at(line, ',');
  const auto is_number = [](auto field) {
    return parse_number<double>(trimmed(field)).has_value();
  };
  return std::ranges::all_of(fields, is_number) ? fields.size() : 0;
}

std::optional<trace_format> text_format(std::string_view text, const field_map& fields) {
  const auto line = telling_line(text);
  if (line.empty()) return std::nullopt;
  if (line.front() == '{') {
    const bool routes = line.find("\"routed_experts\"") != line.npos ||
                        line.find('"' + fields.experts + '"') != line.npos;
    return !routes && looks_like_requests(line) ? trace_format::requests : trace_format::json_lines;
  }
  if (line.starts_with("# route_trace") || line.starts_with("turn,phase,"))
    return trace_format::bigmoe;
  if (line == "layer,expert" || line == "layer,expert,weight") return trace_format::layer_expert;
  if (looks_like_column_csv(line, fields)) return trace_format::columns;
  if (looks_like_requests(line)) return trace_format::requests;
  const auto columns = numeric_columns(line);
  if (columns == 7 || columns == 9) return trace_format::bigmoe;
  if (columns == 2 || columns == 3) return trace_format::layer_expert;
  return std::nullopt;
}

[[noreturn]] void refuse(const fs::path& path, std::string_view found, std::string_view accepted) {
  refuse_input(path.string(), "byte 0", found, accepted);
}

/// Shows the first line. Of a possible CSV (a row has the same number of columns) it is the header: names options that
/// probably read it. Errors: trace_error.
[[noreturn]] void refuse_text(const fs::path& path, std::string_view text) {
  const std::string unknown = "the format is not recognised";
  const auto line = telling_line(text);
  if (line.empty() || text.find('\0') != text.npos) refuse(path, unknown, known_formats());
  if (const auto columns = numeric_columns(line); columns > 1)
    refuse(path, fmt::format("{}: {} columns of numbers without a header", unknown, columns),
           "a first line of their names, such as token,layer,e0,e1");
  const auto behind = static_cast<std::size_t>(line.data() - text.data()) + line.size();
  const bool columns = have_same_columns(line, telling_line(text.substr(behind)));
  std::string accepted = columns ? suggested_fields(line) : known_formats();
  if (has_any(accepted, {"experts=NAME"})) accepted.append("; or ").append(accepted_request_names);
  if (line.starts_with('[') && has_any(text, {"{"}))
    accepted = "JSON lines, which this writes: jq -c '.[]' " + path.string() + " > routes.jsonl";
  refuse(path, fmt::format("{}; it begins with '{}'", unknown, printable(line, 120)), accepted);
}

/// Protocols 2 to 5. Two bytes prove little: every other format is tried first.
bool looks_like_pickle(std::string_view text) noexcept {
  return text.size() > 1 && text[0] == '\x80' && text[1] >= '\2' && text[1] <= '\5';
}

/// Names the command of the Python package that makes a readable file.
[[noreturn]] void refuse_unread(const fs::path& path, std::string_view what) {
  refuse(path, fmt::format("{}, which Python alone reads", what),
         fmt::format("what this writes: python3 -m hotset convert {} {}.converted", path.string(),
                     path.stem().string()));
}

/// Recognises profiles, which hotset itself reads or writes.
void refuse_what_is_no_trace(const fs::path& path, std::string_view text) {
  if (text.starts_with("GGUF"))
    refuse(path, "a GGUF file holds no trace",
           "a trace; counts of an importance matrix are a profile (hotset counts)");
  if (looks_like_logical_counts(text) || looks_like_count_csv(text))
    refuse(path, "counts of experts hold no trace",
           "a trace; counts are a profile (hotset counts)");
  if (has_any(text, {"\"non_expert_modules\""}))
    refuse(path, "a configuration of ESFT holds no trace",
           "a trace (hotset adapters plan reads it)");
  if (text.starts_with("PAR1")) refuse_unread(path, "a Parquet file");
}

/// Limits layers x experts, which decides the memory of replays and curves: a few large ids could exhaust it.
void refuse_empty_keys(const routing_trace& trace, const fs::path& path) {
  constexpr std::uint64_t free_keys = std::uint64_t{1} << 20U;
  constexpr std::uint64_t keys_per_id = 64;
  const auto keys =
      static_cast<std::uint64_t>(trace.layers) * static_cast<std::uint64_t>(trace.experts);
  const auto most = free_keys + keys_per_id * trace.ids.size();
  if (keys <= most) return;
  refuse_input(path.string(), "",
               fmt::format("{} layers x {} experts for {} routed experts", trace.layers,
                           trace.experts, trace.ids.size()),
               fmt::format("at most {} experts in all layers", most));
}

/// Notes options that the trace was not read by.
void note_unused(const routing_trace& trace, trace_format format,
                 const open_trace_options& options) {
  const auto note = [&](bool unused, std::string_view option, const std::string& why) {
    if (unused) add_note(options.notes, fmt::format("{} has no effect: {}", option, why));
  };
  const auto own = [](std::int32_t asked, std::int32_t read) {
    return asked != 0 && asked != read;
  };
  note(own(options.experts, trace.experts), "--experts",
       fmt::format("the trace has {} experts per layer", trace.experts));
  note(own(options.top_k, trace.top_k), "--top-k",
       fmt::format("the trace has {} experts per token", trace.top_k));
  note(options.fields != field_map{} && format != trace_format::json_lines &&
           format != trace_format::columns,
       "--field", "only jsonl and csv have named fields");
  note(options.block_bytes != 1 && format != trace_format::requests, "--block-bytes",
       "only requests have blocks");
}

}  // namespace

std::string_view name_of(trace_format format) noexcept { return importer_of(format).name; }

trace_format parse_trace_format(std::string_view name) {
  std::vector<std::string> all;
  all.reserve(std::size(importers));
  for (const auto& known : importers) all.emplace_back(known.name);
  return choice_of<trace_format>("trace format", name, all);
}

trace_format recognise_trace(const fs::path& path, const field_map& fields) {
  const kept_streams keep;
  const auto beginning = read_beginning(path, 65536);
  const auto name = path.filename().string();
  if (looks_like_npy(beginning.text)) return trace_format::arrays;
  if (beginning.collection && looks_like_pickle(beginning.text))
    refuse_unread(path, "a file of PyTorch or pickle");
  if (beginning.collection || name.starts_with("expert_weights_")) return trace_format::esft;
  if (beginning.text.empty()) refuse(path, "the file is empty", known_formats());
  if (name.find(".oracleGeneral") != std::string::npos) return trace_format::oracle;
  refuse_what_is_no_trace(path, beginning.text);
  if (looks_native(beginning.text)) return trace_format::native;
  if (const auto format = text_format(beginning.text, fields)) return *format;
  const bool binary = beginning.text.find('\0') != std::string::npos;
  if (binary && looks_like_oracle_general(beginning.text)) return trace_format::oracle;
  if (looks_like_pickle(beginning.text)) refuse_unread(path, "a file of PyTorch or pickle");
  refuse_text(path, beginning.text);
}

routing_trace open_trace(const fs::path& path, const open_trace_options& options) {
  const kept_streams keep;
  const auto format = options.format == trace_format::automatic
                          ? recognise_trace(path, options.fields)
                          : options.format;
  const auto& known = importer_of(format);
  auto trace = known.read(path, options);
  note_unused(trace, format, options);
  if (!options.layers.empty()) keep_layers(trace, options.layers, path.string());
  if (known.routers) empty_filled_rows(trace, path.string(), options.notes);
  if (known.routers && format != trace_format::native) {
    leave_out_dense_layers(trace, options.notes);
    note_constant_layers(trace, options.notes);
  }
  refuse_empty_keys(trace, path);
  if (options.first != 0) keep_first(trace, options.first);
  if (options.tokens) keep_tokens(trace, *options.tokens, path.string());
  if (options.sequences) keep_sequences(trace, *options.sequences, path.string());
  if (options.as) cut_steps(trace, *options.as);
  return trace;
}

}  // namespace hotset::lab
