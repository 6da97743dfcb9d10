// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/open_trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/errors.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/npy.hpp"
#include "lab/traces/azure_requests.hpp"
#include "lab/traces/bigmoe_route_csv.hpp"
#include "lab/traces/column_csv.hpp"
#include "lab/traces/esft.hpp"
#include "lab/traces/expert_counts.hpp"
#include "lab/traces/json_lines.hpp"
#include "lab/traces/layer_expert_csv.hpp"
#include "lab/traces/mooncake.hpp"
#include "lab/traces/native_trace.hpp"
#include "lab/traces/oracle_general.hpp"
#include "lab/traces/routed_arrays.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/unrouted_rows.hpp"

namespace hotset::lab {
namespace {

struct format_name {
  trace_format format;
  std::string_view name;
};
constexpr std::array format_names = {
    format_name{trace_format::automatic, "auto"},
    format_name{trace_format::native, "native"},
    format_name{trace_format::bigmoe, "bigmoe"},
    format_name{trace_format::esft, "esft"},
    format_name{trace_format::layer_expert, "layer-expert"},
    format_name{trace_format::json_lines, "jsonl"},
    format_name{trace_format::columns, "csv"},
    format_name{trace_format::arrays, "npy"},
    format_name{trace_format::oracle, "oracle"},
    format_name{trace_format::mooncake, "mooncake"},
    format_name{trace_format::azure, "azure"},
};

constexpr std::string_view known_formats =
    "a native trace (safetensors), BigMoeOnEdge route CSV, ESFT folder or archive, layer,expert "
    "CSV, JSON lines or a CSV with 'layer' and 'experts', NumPy arrays (.npy, .npz), Mooncake JSON "
    "lines, Azure's request CSV, "
    "oracleGeneral";

/// A small enough header that opens with a brace is a safetensors file and nothing else.
bool looks_native(std::string_view text) noexcept {
  if (text.size() < 16 || text[8] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  return length < (std::uint64_t{1} << 40U);
}

/// The first line with anything on it that is no comment, or the first comment that names a format.
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

/// How many comma-separated columns, or 0 if one of them is no number.
std::size_t numeric_columns(std::string_view line) {
  std::size_t count = 0;
  field_scanner scan(line, ',');
  while (const auto field = scan.next()) {
    if (!parse_number<double>(trimmed(*field))) return 0;
    ++count;
  }
  return count;
}

std::optional<trace_format> text_format(std::string_view text, const field_map& fields) {
  const auto line = telling_line(text);
  if (line.empty()) return std::nullopt;
  if (line.front() == '{')
    return line.find("\"hash_ids\"") != std::string_view::npos ? trace_format::mooncake
                                                               : trace_format::json_lines;
  if (line.starts_with("# route_trace") || line.starts_with("turn,phase,"))
    return trace_format::bigmoe;
  if (line.starts_with("TIMESTAMP,")) return trace_format::azure;
  if (line == "layer,expert" || line == "layer,expert,weight") return trace_format::layer_expert;
  if (looks_like_column_csv(line, fields)) return trace_format::columns;
  const auto columns = numeric_columns(line);
  if (columns == 7 || columns == 9) return trace_format::bigmoe;
  if (columns == 2 || columns == 3) return trace_format::layer_expert;
  return std::nullopt;
}

/// Whether a text may be a CSV: numbers alone, or a header and a row with as many columns.
bool may_be_csv(std::string_view text) {
  const auto line = telling_line(text);
  if (line.empty() || text.find('\0') != std::string_view::npos) return false;
  const auto behind = static_cast<std::size_t>(line.data() - text.data()) + line.size();
  return numeric_columns(line) > 1 || have_same_columns(line, telling_line(text.substr(behind)));
}

/// Errors: trace_error that shows the header of what may be a CSV, and options that are likely to read it.
[[noreturn]] void refuse_text(const std::filesystem::path& path, std::string_view text) {
  if (!may_be_csv(text))
    refuse_input(path.string(), "byte 0", "the format is not recognised", known_formats);
  const auto line = telling_line(text);
  if (const auto columns = numeric_columns(line); columns > 0)
    refuse_input(path.string(), "byte 0",
                 "the format is not recognised: " + std::to_string(columns) +
                     " columns of numbers without a header",
                 "a first line of their names, such as token,layer,e0,e1");
  refuse_input(path.string(), "byte 0",
               "the format is not recognised; the header of a CSV would be " +
                   std::string(line.substr(0, 200)),
               suggested_fields(line));
}

/// Whether an archive is one of torch.save: its first file is a pickle.
bool is_torch_archive(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return false;
  const mapped_file file(path);
  constexpr std::size_t first_name = 128;
  const auto bytes = file.bytes().first(std::min(first_name, file.bytes().size()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with("PK\3\4") && text.find("/data.pkl") != std::string_view::npos;
}

/// Protocols 2 to 5. Two bytes tell little: every other format is tried first.
bool looks_like_pickle(std::string_view text) noexcept {
  return text.size() > 1 && text[0] == '\x80' && text[1] >= '\2' && text[1] <= '\5';
}

[[noreturn]] void refuse_pickle(const std::filesystem::path& path) {
  refuse_input(path.string(), "byte 0", "a file of PyTorch or pickle, which Python alone reads",
               "its tensors as NumPy arrays (numpy.save), or in Python hotset.importers");
}

void refuse_what_is_no_trace(const std::filesystem::path& path, std::string_view text) {
  if (looks_like_gguf(text))
    refuse_input(path.string(), "byte 0", "a GGUF file holds no trace",
                 "a trace; counts of an importance matrix are a profile (hotset counts)");
  if (looks_like_logical_counts(text))
    refuse_input(path.string(), "byte 0", "counts of experts hold no trace",
                 "a trace; counts are a profile (hotset counts)");
}

/// What replays and curves allocate goes with layers x experts, of which a few large ids make too many.
void refuse_empty_keys(const routing_trace& trace, const std::filesystem::path& path) {
  constexpr std::uint64_t free_keys = std::uint64_t{1} << 20U;
  constexpr std::uint64_t keys_per_id = 64;
  const auto keys =
      static_cast<std::uint64_t>(trace.layers) * static_cast<std::uint64_t>(trace.experts);
  const auto most = free_keys + keys_per_id * trace.ids.size();
  if (keys <= most) return;
  refuse_input(path.string(), "",
               std::to_string(trace.layers) + " layers x " + std::to_string(trace.experts) +
                   " experts for " + std::to_string(trace.ids.size()) + " routed experts",
               "at most " + std::to_string(most) + " experts in all layers");
}

routing_trace blocks_of(kv_trace kv, const std::filesystem::path& path,
                        const open_trace_options& options) {
  if (const auto bad = give_own_blocks(kv)) refuse_input(path.string(), "", bad->message, "");
  auto made = block_accesses(kv, options.block_bytes);
  if (!made) refuse_input(path.string(), "", made.error().message, "");
  if (kv.own_blocks) made->source += "; what prompts share is not recorded: no block comes again";
  return *std::move(made);
}

constexpr std::uint32_t most_abreast = 4096;

/// rows[i] is the row of `before` that comes to place i. Empty arrays stay so.
template <class Value>
void reorder(std::vector<Value>& values, std::size_t before, const std::vector<std::size_t>& rows) {
  if (values.empty()) return;
  const auto width = values.size() / before;
  std::vector<Value> out;
  out.reserve(rows.size() * width);
  for (const auto row : rows) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(row * width);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(width));
  }
  values = std::move(out);
}
void reorder(half_array& values, std::size_t before, const std::vector<std::size_t>& rows) {
  if (values.empty()) return;
  std::vector<std::uint16_t> raw(values.size());
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = values.raw(i);
  reorder(raw, before, rows);
  values = half_array(std::move(raw));
}

void reorder(routing_trace& trace, const std::vector<std::size_t>& rows) {
  const auto before = trace.tokens();
  reorder(trace.step, before, rows);
  reorder(trace.sequence, before, rows);
  reorder(trace.kind, before, rows);
  reorder(trace.ids, before, rows);
  reorder(trace.weights, before, rows);
  reorder(trace.logits, before, rows);
  reorder(trace.probabilities, before, rows);
  reorder(trace.hidden, before, rows);
  reorder(trace.predictions, before, rows);
  reorder(trace.adapter, before, rows);
  reorder(trace.token_ids, before, rows);
}

/// The rows that are left of a run of one sequence's.
struct row_run {
  std::size_t next = 0;
  std::size_t end = 0;
};
std::vector<row_run> runs_of(const routing_trace& trace) {
  std::vector<row_run> out;
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    if (t == 0 || trace.sequence[t] != trace.sequence[t - 1]) out.push_back({t, t});
    ++out.back().end;
  }
  return out;
}
void put_abreast(routing_trace& trace, std::uint32_t abreast) {
  auto waiting = runs_of(trace);
  auto first = waiting.begin();
  std::vector<row_run> running;
  std::vector<std::size_t> rows;
  std::vector<std::uint32_t> steps;
  for (std::uint32_t step = 0;; ++step) {
    while (running.size() < abreast && first != waiting.end()) running.push_back(*first++);
    if (running.empty()) break;
    for (auto& run : running) {
      rows.push_back(run.next++);
      steps.push_back(step);
    }
    std::erase_if(running, [](const row_run& run) { return run.next == run.end; });
  }
  reorder(trace, rows);
  trace.step = std::move(steps);
  trace.kind.assign(trace.tokens(), request_class::decode);
}

void keep_first(routing_trace& trace, std::size_t tokens) {
  if (tokens >= trace.tokens()) return;
  std::vector<std::size_t> rows(tokens);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  reorder(trace, rows);
}

/// Whether rows are choices of a router. Requests name blocks of a KV cache, and oracleGeneral objects.
bool has_routers(trace_format format) noexcept {
  return format != trace_format::oracle && format != trace_format::mooncake &&
         format != trace_format::azure;
}

bool named_esft(const std::filesystem::path& path) {
  return path.filename().string().starts_with("expert_weights_");
}

bool named_oracle(const std::filesystem::path& path) {
  return path.filename().string().find(".oracleGeneral") != std::string::npos;
}

}  // namespace

std::string_view name_of(trace_format format) noexcept {
  for (const auto& known : format_names)
    if (known.format == format) return known.name;
  return "unknown";
}

trace_format parse_trace_format(std::string_view name) {
  std::vector<std::string> all;
  for (const auto& known : format_names) {
    if (known.name == name) return known.format;
    all.emplace_back(known.name);
  }
  refuse_name("trace format", name, all);
}

step_shape parse_step_shape(std::string_view text) {
  if (text == "decode") return {};
  if (text == "prefill") return {request_class::prefill, 0};
  const auto count_after = [&](std::string_view prefix) -> std::uint32_t {
    if (!text.starts_with(prefix)) return 0;
    return parse_number<std::uint32_t>(text.substr(prefix.size())).value_or(0);
  };
  if (const auto chunk = count_after("prefill:"); chunk > 0) return {request_class::prefill, chunk};
  if (const auto abreast = count_after("decode:"); abreast > 0 && abreast <= most_abreast)
    return {.abreast = abreast};
  throw invalid_config("step shape '" + printable(text) +
                       "', accepted: decode, decode:<sequences of 1 to 4096>, prefill, "
                       "prefill:<tokens of 1 or more>");
}

void cut_steps(routing_trace& trace, const step_shape& shape) {
  if (shape.kind == request_class::decode && shape.abreast > 1)
    return put_abreast(trace, shape.abreast);
  const bool prefill = shape.kind == request_class::prefill;
  std::uint32_t step = 0;
  std::uint32_t filled = 0;
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    const bool other = t > 0 && trace.sequence[t] != trace.sequence[t - 1];
    const bool full = !prefill || (shape.chunk > 0 && filled == shape.chunk);
    if (t > 0 && (other || full)) {
      ++step;
      filled = 0;
    }
    ++filled;
    trace.step[t] = step;
    trace.kind[t] = shape.kind;
  }
}

trace_format recognise_trace(const std::filesystem::path& path, const field_map& fields) {
  const kept_streams keep;
  const auto beginning = read_beginning(path, 65536);
  if (looks_like_npy(beginning.text)) return trace_format::arrays;
  if (beginning.collection && is_torch_archive(path)) refuse_pickle(path);
  if (beginning.collection || named_esft(path)) return trace_format::esft;
  if (beginning.text.empty())
    refuse_input(path.string(), "byte 0", "the file is empty", known_formats);
  if (named_oracle(path)) return trace_format::oracle;
  refuse_what_is_no_trace(path, beginning.text);
  if (looks_native(beginning.text)) return trace_format::native;
  if (const auto format = text_format(beginning.text, fields)) return *format;
  const bool binary = beginning.text.find('\0') != std::string::npos;
  if (binary && looks_like_oracle_general(beginning.text)) return trace_format::oracle;
  if (looks_like_pickle(beginning.text)) refuse_pickle(path);
  refuse_text(path, beginning.text);
}

routing_trace open_trace(const std::filesystem::path& path, const open_trace_options& options) {
  const kept_streams keep;
  const auto format = options.format == trace_format::automatic
                          ? recognise_trace(path, options.fields)
                          : options.format;
  const auto top_k = options.top_k;
  const auto experts = options.experts;
  auto* const notes = options.notes;
  auto trace = [&]() -> routing_trace {
    switch (format) {
      case trace_format::automatic: break;
      case trace_format::native: return read_native_trace(path);
      case trace_format::bigmoe: return read_bigmoe_route_csv(path, experts, notes);
      case trace_format::esft: return read_esft(path, {top_k, experts, notes}).trace;
      case trace_format::layer_expert: return read_layer_expert_csv(path, {top_k, experts, notes});
      case trace_format::json_lines: return read_json_lines(path, options.fields, experts, notes);
      case trace_format::columns: return read_column_csv(path, options.fields, experts, notes);
      case trace_format::arrays: return read_routed_arrays(path, {top_k, experts, notes});
      case trace_format::oracle: return read_oracle_general(path);
      case trace_format::mooncake: return blocks_of(read_mooncake(path), path, options);
      case trace_format::azure: return blocks_of(read_azure_requests(path), path, options);
    }
    refuse_input(path.string(), "", "no such trace format", known_formats);
  }();
  if (has_routers(format)) empty_filled_rows(trace, path.string(), notes);
  if (has_routers(format) && format != trace_format::native) leave_out_dense_layers(trace, notes);
  refuse_empty_keys(trace, path);
  if (options.first != 0) keep_first(trace, options.first);
  if (options.as) cut_steps(trace, *options.as);
  return trace;
}

}  // namespace hotset::lab
