// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/esft.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/output_file.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

constexpr std::string_view name_begin = "expert_weights_";
constexpr std::string_view name_end = ".txt";

/// One sequence in one layer, in file order.
struct sequence_line {
  std::vector<expert_id> ids;
  std::vector<float> weights;
};

struct layer_file {
  std::int32_t number = 0;
  std::string name;
  std::vector<sequence_line> lines;
};

/// "12" of "expert_weights_12.txt".
std::optional<std::int32_t> layer_number(std::string_view name) {
  if (!name.starts_with(name_begin) || !name.ends_with(name_end)) return std::nullopt;
  if (name.size() <= name_begin.size() + name_end.size()) return std::nullopt;
  const auto number = parse_number<std::int32_t>(
      name.substr(name_begin.size(), name.size() - name_begin.size() - name_end.size()));
  return number && *number >= 0 && *number < most_layers ? number : std::nullopt;
}

class esft_reader {
 public:
  esft_reader(const std::vector<input_entry>& entries, std::string file,
              const open_trace_options& options)
      : file_(std::move(file)), options_(options), experts_(options.experts) {
    for (const auto& entry : entries)
      if (entry.name == "summary.json" && experts_ == 0) experts_ = listed_experts(entry);
    for (const auto& entry : entries)
      if (const auto number = layer_number(entry.name)) add_layer(*number, entry);
    std::sort(layers_.begin(), layers_.end(),
              [](const layer_file& a, const layer_file& b) { return a.number < b.number; });
  }

  esft_trace read() {
    if (layers_.empty())
      refuse_input(file_, "", "holds no expert_weights_<layer>.txt", "one or more of them");
    check_layers_agree();
    top_k_ = options_.top_k > 0 ? checked_top_k() : infer_top_k();
    begin_trace();
    for (std::size_t s = 0; s < layers_.front().lines.size(); ++s) add_sequence(s);
    if (const auto bad = out_.trace.validate()) refuse_input(file_, "", bad->message, "");
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string place(const layer_file& layer) const {
    return file_ + ": " + layer.name;
  }

  [[nodiscard]] std::int32_t listed_experts(const input_entry& entry) const {
    const auto file = file_ + ": summary.json";
    constexpr std::string_view accepted = "gate_scores: an object layer -> expert -> score";
    const auto json = parse_json_object(entry.text, file, accepted);
    const auto scores = json.find("gate_scores");
    const bool usable = scores != json.end() && scores->is_object() && !scores->empty();
    const std::size_t count = usable ? scores->begin()->size() : 0;
    if (count < 1 || count > static_cast<std::size_t>(most_experts))
      refuse_input(file, "", "has no gate_scores of one or more experts", accepted);
    return static_cast<std::int32_t>(count);
  }

  void add_layer(std::int32_t number, const input_entry& entry) {
    for (const auto& known : layers_)
      if (known.number == number)
        refuse_input(file_, "", entry.name + " and " + known.name + " are the same layer",
                     "one file each");
    layer_file layer{number, entry.name, {}};
    line_scanner lines(place(layer), entry.text);
    std::string_view line;
    while (lines.next(line)) layer.lines.push_back(parse_line(lines, line));
    if (layer.lines.empty()) refuse_input(place(layer), "", "is empty", "one line a sequence");
    if (!entry.text.ends_with('\n'))
      lines.refuse("the last line has no end (is the file cut short?)", "lines that end");
    layers_.push_back(std::move(layer));
  }

  [[nodiscard]] sequence_line parse_line(const line_scanner& lines, std::string_view text) const {
    const auto gap = text.find("\t\t");
    if (gap == std::string_view::npos)
      lines.refuse("has no empty column", "ids, an empty column, as many weights");
    sequence_line out;
    const auto most = (experts_ > 0 ? experts_ : most_experts) - 1;
    field_scanner ids(text.substr(0, gap), '\t');
    while (const auto field = ids.next()) {
      const auto id = parse_number<std::int32_t>(*field);
      if (!id || *id < 0 || *id > most)
        lines.refuse("expert " + std::to_string(out.ids.size()) + " is '" + printable(*field) + "'",
                     "0.." + std::to_string(most));
      out.ids.push_back(expert_id{*id});
    }
    field_scanner weights(text.substr(gap + 2), '\t');
    while (const auto field = weights.next()) {
      const auto weight = parse_weight(*field);
      if (!weight)
        lines.refuse(
            "weight " + std::to_string(out.weights.size()) + " is '" + printable(*field) + "'",
            "a finite number");
      out.weights.push_back(*weight);
    }
    if (out.ids.size() != out.weights.size())
      lines.refuse(std::to_string(out.weights.size()) + " weights for " +
                       std::to_string(out.ids.size()) + " experts",
                   "one for each");
    return out;
  }

  void check_layers_agree() const {
    const auto& first = layers_.front();
    for (const auto& layer : layers_) {
      if (layer.lines.size() != first.lines.size())
        refuse_input(place(layer), "", std::to_string(layer.lines.size()) + " sequences",
                     std::to_string(first.lines.size()) + ", as in " + first.name);
      for (std::size_t s = 0; s < layer.lines.size(); ++s)
        if (layer.lines[s].ids.size() != first.lines[s].ids.size())
          refuse_input(place(layer), "line " + std::to_string(s + 1),
                       std::to_string(layer.lines[s].ids.size()) + " experts",
                       std::to_string(first.lines[s].ids.size()) + ", as in " + first.name);
    }
  }

  [[nodiscard]] std::size_t checked_top_k() const {
    const auto k = static_cast<std::size_t>(options_.top_k);
    for (std::size_t s = 0; s < layers_.front().lines.size(); ++s)
      if (layers_.front().lines[s].ids.size() % k != 0)
        refuse_input(place(layers_.front()), "line " + std::to_string(s + 1),
                     std::to_string(layers_.front().lines[s].ids.size()) + " experts",
                     "a multiple of top_k = " + std::to_string(k));
    return k;
  }

  [[nodiscard]] std::size_t infer_top_k() const {
    std::size_t common = 0;
    for (const auto& line : layers_.front().lines) common = std::gcd(common, line.ids.size());
    for (std::size_t k = std::min<std::size_t>(common, static_cast<std::size_t>(most_ranks)); k > 1;
         --k)
      if (common % k == 0 && divides_into_tokens(k)) return k;
    return 1;
  }

  [[nodiscard]] bool divides_into_tokens(std::size_t k) const {
    std::vector<std::uint64_t> seen(static_cast<std::size_t>(most_experts), 0);
    std::uint64_t token = 0;
    for (const auto& layer : layers_)
      for (const auto& line : layer.lines)
        for (std::size_t begin = 0; begin < line.ids.size(); begin += k) {
          ++token;
          double sum = 0;
          for (std::size_t i = begin; i < begin + k; ++i) {
            sum += static_cast<double>(line.weights[i]);
            if (std::exchange(seen[index_of(line.ids[i])], token) == token) return false;
          }
          if (sum > 1.01) return false;
        }
    return true;
  }

  void begin_trace() {
    auto& trace = out_.trace;
    trace.name = trace_name(file_);
    trace.source = "ESFT expert_weights";
    trace.layers = static_cast<std::int32_t>(layers_.size());
    trace.top_k = static_cast<std::int32_t>(top_k_);
    trace.experts = experts_;
    std::vector<std::int32_t> numbers;
    for (const auto& layer : layers_) {
      numbers.push_back(layer.number);
      for (const auto& line : layer.lines)
        for (const auto id : line.ids)
          if (options_.experts == 0) trace.experts = std::max(trace.experts, number(id) + 1);
    }
    if (experts_ == 0) note_inferred_experts(options_.notes, trace.experts);
    keep_layer_numbers(trace, numbers);
  }

  void add_sequence(std::size_t s) {
    auto& trace = out_.trace;
    const auto tokens = layers_.front().lines[s].ids.size() / top_k_;
    for (std::size_t t = 0; t < tokens; ++t) {
      trace.step.push_back(static_cast<std::uint32_t>(trace.step.size()));
      trace.sequence.push_back(static_cast<std::uint32_t>(s));
      trace.kind.push_back(request_class::decode);
      for (const auto& layer : layers_) add_token(layer.lines[s], t * top_k_);
    }
  }

  void add_token(const sequence_line& line, std::size_t begin) {
    order_.resize(top_k_);
    std::iota(order_.begin(), order_.end(), std::uint16_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint16_t a, std::uint16_t b) {
      return line.weights[begin + a] > line.weights[begin + b];
    });
    for (const auto position : order_) {
      out_.trace.ids.push_back(line.ids[begin + position]);
      out_.trace.weights.push_back(line.weights[begin + position]);
      out_.file_position.push_back(position);
    }
  }

  std::string file_;
  open_trace_options options_;
  std::int32_t experts_;
  std::size_t top_k_ = 0;
  std::vector<layer_file> layers_;
  std::vector<std::uint16_t> order_;
  esft_trace out_;
};

/// Appends a number as Python prints it: 0.0, 1.0, 0.0003, 1e-05.
void append_weight(std::string& out, float value) {
  std::array<char, 64> text{};
  const bool fixed = value == 0 || (std::fabs(value) >= 1e-4F && std::fabs(value) < 1e16F);
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  const std::string_view digits(text.data(), static_cast<std::size_t>(end - text.data()));
  out.append(digits);
  if (fixed && digits.find('.') == std::string_view::npos) out.append(".0");
}

void require_writable(const esft_trace& esft) {
  const auto& trace = esft.trace;
  if (const auto bad = trace.validate()) refuse_input(trace.name, "", bad->message, "");
  if (trace.weights.empty() || std::count(trace.ids.begin(), trace.ids.end(), no_expert) > 0)
    refuse_input(trace.name, "", "cannot be written as ESFT: weights or experts are absent",
                 "a trace with weights, top_k experts in every layer of every token");
  if (!esft.file_position.empty() && esft.file_position.size() != trace.ids.size())
    refuse_input(trace.name, "",
                 "file_position has " + std::to_string(esft.file_position.size()) + " entries",
                 std::to_string(trace.ids.size()) + " or none");
  for (const auto position : esft.file_position)
    if (position >= trace.top_k)
      refuse_input(trace.name, "", "file_position holds " + std::to_string(position),
                   "0.." + std::to_string(trace.top_k - 1));
}

/// Pre: require_writable() returned.
std::string layer_text(const esft_trace& esft, layer_id layer) {
  const auto& trace = esft.trace;
  const auto k = static_cast<std::size_t>(trace.top_k);
  std::vector<std::size_t> order(k);
  // Indices of the token's experts as the file had them.
  const auto file_order = [&](std::size_t token) -> const std::vector<std::size_t>& {
    const auto first = trace.index(token, layer);
    for (std::size_t rank = 0; rank < k; ++rank)
      order[esft.file_position.empty() ? rank : esft.file_position[first + rank]] = first + rank;
    return order;
  };
  std::string out;
  for (std::size_t begin = 0, end = 0; begin < trace.tokens(); begin = end) {
    while (end < trace.tokens() && trace.sequence[end] == trace.sequence[begin]) ++end;
    for (std::size_t t = begin; t < end; ++t)
      for (const auto at : file_order(t)) out.append(to_string(trace.ids[at])).append("\t");
    for (std::size_t t = begin; t < end; ++t)
      for (const auto at : file_order(t)) {
        out += '\t';
        append_weight(out, trace.weights[at]);
      }
    out += '\n';
  }
  return out;
}

}  // namespace

esft_trace parse_esft(const std::vector<input_entry>& entries, const std::string& file,
                      const open_trace_options& options) {
  return esft_reader(entries, file, options).read();
}

esft_trace read_esft(const std::filesystem::path& path, const open_trace_options& options) {
  return parse_esft(read_input(path), path.string(), options);
}

std::string format_esft_layer(const esft_trace& esft, layer_id layer) {
  require_writable(esft);
  return layer_text(esft, layer);
}

void write_esft(const esft_trace& esft, const std::filesystem::path& folder) {
  require_writable(esft);
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    refuse_input(folder.string(), "", "cannot be made: " + code.message(),
                 "a folder that can be written to");
  const auto numbers = layer_numbers(esft.trace);
  for (const auto layer : each<layer_id>(esft.trace.layers))
    write_file(folder / (std::string(name_begin) + std::to_string(numbers[index_of(layer)]) +
                         std::string(name_end)),
               layer_text(esft, layer));
}

esft_scores score_esft(const routing_trace& trace) {
  if (trace.weights.empty()) refuse_input(trace.name, "", "has no weights", "a trace with weights");
  const auto layers = static_cast<std::size_t>(trace.layers);
  const std::vector<double> none(static_cast<std::size_t>(trace.experts), 0.0);
  esft_scores scores{std::vector(layers, none), std::vector(layers, none)};
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto layer : each<layer_id>(trace.layers)) {
      const auto ids = trace.ids_of(t, layer);
      const auto weights = trace.weights_of(t, layer);
      for (std::size_t k = 0; k < ids.size(); ++k) {
        if (ids[k] < 0) continue;
        const auto l = index_of(layer);
        const auto e = index_of(ids[k]);
        scores.gate[l][e] += static_cast<double>(weights[k]);
        scores.token[l][e] += 1;
      }
    }
  const auto tokens = static_cast<double>(trace.tokens());
  for (auto& row : scores.gate)
    for (auto& score : row) score /= tokens;
  for (auto& row : scores.token)
    for (auto& score : row) score /= tokens * trace.top_k;
  return scores;
}

}  // namespace hotset::lab
