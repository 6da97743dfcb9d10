// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/esft.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "hotset/registry/parameters.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/traces/trace_rows.hpp"

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

/// Returns 12 for "expert_weights_12.txt".
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
    std::ranges::sort(layers_, {}, &layer_file::number);
  }

  routing_trace read() {
    if (layers_.empty())
      refuse_input(file_, "", "holds no expert_weights_<layer>.txt", "one or more of them");
    check_layers_agree();
    top_k_ = options_.top_k > 0 ? checked_top_k() : infer_top_k();
    begin_trace();
    for (std::size_t s = 0; s < layers_.front().lines.size(); ++s) add_sequence(s);
    if (const auto bad = trace_.validate()) refuse_input(file_, "", bad->message, "");
    return std::move(trace_);
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
    const auto most = (experts_ > 0 ? experts_ : most_experts) - 1;
    const auto read = [&](std::string_view fields, std::string_view what, const auto& parse,
                          const std::string& accepted, auto& into) {
      for (const auto field : detail::split_at(fields, '\t')) {
        const auto value = parse(field);
        if (!value)
          lines.refuse(fmt::format("{} {} is '{}'", what, into.size(), printable(field)), accepted);
        into.push_back(*value);
      }
    };
    const auto parse_id = [&](std::string_view field) -> std::optional<expert_id> {
      const auto id = parse_number<std::int32_t>(field);
      return id && *id >= 0 && *id <= most ? std::optional(expert_id{*id}) : std::nullopt;
    };
    sequence_line out;
    read(text.substr(0, gap), "expert", parse_id, fmt::format("0..{}", most), out.ids);
    read(text.substr(gap + 2), "weight", parse_weight, "a finite number", out.weights);
    if (out.ids.size() != out.weights.size())
      lines.refuse(fmt::format("{} weights for {} experts", out.weights.size(), out.ids.size()),
                   "one for each");
    return out;
  }

  void check_layers_agree() const {
    const auto& first = layers_.front();
    for (const auto& layer : layers_) {
      if (layer.lines.size() != first.lines.size())
        refuse_input(place(layer), "", fmt::format("{} sequences", layer.lines.size()),
                     fmt::format("{}, as in {}", first.lines.size(), first.name));
      for (std::size_t s = 0; s < layer.lines.size(); ++s)
        if (const auto wanted = first.lines[s].ids.size(); layer.lines[s].ids.size() != wanted)
          refuse_length(layer, s, fmt::format("{}, as in {}", wanted, first.name));
    }
  }

  [[noreturn]] void refuse_length(const layer_file& layer, std::size_t sequence,
                                  const std::string& accepted) const {
    refuse_input(place(layer), fmt::format("line {}", sequence + 1),
                 fmt::format("{} experts", layer.lines[sequence].ids.size()), accepted);
  }

  [[nodiscard]] std::size_t checked_top_k() const {
    const auto k = static_cast<std::size_t>(options_.top_k);
    const auto& first = layers_.front();
    for (std::size_t s = 0; s < first.lines.size(); ++s)
      if (first.lines[s].ids.size() % k != 0)
        refuse_length(first, s, fmt::format("a multiple of top_k = {}", k));
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
    trace_.name = trace_name(file_);
    trace_.source = "ESFT expert_weights";
    trace_.layers = static_cast<std::int32_t>(layers_.size());
    trace_.top_k = static_cast<std::int32_t>(top_k_);
    trace_.experts = experts_;
    std::vector<std::int32_t> numbers;
    for (const auto& layer : layers_) {
      numbers.push_back(layer.number);
      for (const auto& line : layer.lines)
        for (const auto id : line.ids)
          if (options_.experts == 0) trace_.experts = std::max(trace_.experts, number(id) + 1);
    }
    if (experts_ == 0) note_inferred_experts(options_.notes, trace_.experts);
    keep_layer_numbers(trace_, numbers);
  }

  void add_sequence(std::size_t s) {
    const auto tokens = layers_.front().lines[s].ids.size() / top_k_;
    for (std::size_t t = 0; t < tokens; ++t) {
      trace_.step.push_back(static_cast<std::uint32_t>(trace_.step.size()));
      trace_.sequence.push_back(static_cast<std::uint32_t>(s));
      trace_.kind.push_back(request_class::decode);
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
      trace_.ids.push_back(line.ids[begin + position]);
      trace_.weights.push_back(line.weights[begin + position]);
    }
  }

  std::string file_;
  open_trace_options options_;
  std::int32_t experts_;
  std::size_t top_k_ = 0;
  std::vector<layer_file> layers_;
  std::vector<std::uint16_t> order_;
  routing_trace trace_;
};

}  // namespace

routing_trace parse_esft(const std::vector<input_entry>& entries, const std::string& file,
                         const open_trace_options& options) {
  return esft_reader(entries, file, options).read();
}

routing_trace read_esft(const std::filesystem::path& path, const open_trace_options& options) {
  return parse_esft(read_input(path), path.string(), options);
}

}  // namespace hotset::lab
