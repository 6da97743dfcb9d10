// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/bigmoe_route_csv.hpp"

#include <algorithm>
#include <array>

#include "lab/files/input_files.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

/// The value after "key=" in a comment, up to the next blank.
std::optional<std::string_view> value_of(std::string_view line, std::string_view key) {
  for (auto at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
    const auto end = at + key.size();
    const bool begins = at == 0 || line[at - 1] == ' ' || line[at - 1] == '#';
    if (begins && end < line.size() && line[end] == '=')
      return line.substr(end + 1, line.find_first_of(" \t", end) - end - 1);
  }
  return std::nullopt;
}

class route_reader {
 public:
  route_reader(std::string_view text, const std::string& file, std::int32_t experts,
               reading_notes* notes)
      : lines_(file, text) {
    facts_.file = file;
    facts_.experts = experts;
    facts_.notes = notes;
    facts_.source = "BigMoeOnEdge route CSV";
    facts_.weights = true;
  }

  routing_trace read() {
    std::string_view line;
    while (lines_.next(line)) {
      if (line.empty()) continue;
      if (line.front() == '#')
        comment(line);
      else if (line.starts_with("turn,"))
        continue;
      else
        row(line);
    }
    refuse_a_broken_end();
    if (facts_.layer_bytes.empty()) facts_.layer_bytes = std::move(read_bytes_);
    return trace_of(std::move(records_), facts_);
  }

 private:
  template <class T>
  T number(std::string_view text, const char* what, T least, T most) const {
    const auto value = parse_number<T>(trimmed(text));
    if (!value || *value < least || *value > most)
      lines_.refuse(std::string(what) + " is '" + std::string(text) + "'",
                    std::to_string(least) + ".." + std::to_string(most));
    return *value;
  }

  void comment(std::string_view line) {
    if (const auto experts = value_of(line, "n_expert"))
      facts_.experts = number<std::int32_t>(*experts, "n_expert", 1, most_experts);
    if (const auto used = value_of(line, "n_expert_used"))
      facts_.top_k = number<std::int32_t>(*used, "n_expert_used", 1, most_ranks);
    if (const auto model = value_of(line, "model"))
      facts_.model = std::string(model->substr(model->find_last_of('/') + 1));
    const auto layer = value_of(line, "layer");
    const auto bytes = value_of(line, "expert_bytes");
    if (!layer || !bytes) return;
    facts_.layer_bytes.emplace_back(
        number<std::int32_t>(*layer, "layer", 0, most_layers - 1),
        number<std::uint64_t>(*bytes, "expert_bytes", 0, std::uint64_t{1} << 50U));
  }

  void row(std::string_view line) {
    std::array<std::string_view, 9> fields{};
    std::size_t count = 0;
    field_scanner scan(line, ',');
    while (const auto field = scan.next()) {
      if (count == fields.size()) {
        ++count;
        break;
      }
      fields[count++] = *field;
    }
    if (count != 9 && count != 7)
      lines_.refuse(
          (count > 9 ? "more than 9" : std::to_string(count)) + " columns",
          "turn,phase,step,layer,slot,expert,weight with or without residency,expert_bytes");
    constexpr std::uint64_t most = 0xffffffffU;
    trace_record r;
    r.sequence = number<std::uint64_t>(fields[0], "turn", 0, most);
    const auto phase = number<std::int32_t>(fields[1], "phase", 0, 1);
    r.token = number<std::uint64_t>(fields[2], "step", 0, most);
    r.kind = phase == 0 ? request_class::prefill : request_class::decode;
    r.step = phase == 0 ? 0 : 1 + r.token;
    r.layer = number<std::int32_t>(fields[3], "layer", 0, most_layers - 1);
    r.rank = number<std::int32_t>(fields[4], "slot", 0,
                                  (facts_.top_k > 0 ? facts_.top_k : most_ranks) - 1);
    const auto experts = facts_.experts > 0 ? facts_.experts : most_experts;
    r.expert = expert_id{number<std::int32_t>(fields[5], "expert", 0, experts - 1)};
    const auto weight = parse_weight(trimmed(fields[6]));
    if (!weight) lines_.refuse("weight is '" + std::string(fields[6]) + "'", "a finite number");
    r.weight = *weight;
    r.line = lines_.number();
    if (count == 9) {
      number<std::int32_t>(fields[7], "residency", 0, 2);
      keep_bytes(r.layer,
                 number<std::uint64_t>(fields[8], "expert_bytes", 0, std::uint64_t{1} << 50U));
    }
    records_.push_back(r);
  }

  void keep_bytes(std::int32_t layer, std::uint64_t bytes) {
    if (bytes == 0) return;
    const auto at = std::find_if(read_bytes_.begin(), read_bytes_.end(),
                                 [&](const auto& known) { return known.first == layer; });
    if (at == read_bytes_.end())
      read_bytes_.emplace_back(layer, bytes);
    else
      at->second = std::max(at->second, bytes);
  }

  /// Rows come in execution order, so the last one is the last rank of the last layer.
  void refuse_a_broken_end() const {
    if (records_.empty()) return;
    std::int32_t layer = 0;
    std::int32_t ranks = facts_.top_k;
    for (const auto& r : records_) {
      layer = std::max(layer, r.layer);
      ranks = std::max(ranks, r.rank + 1);
    }
    const auto& last = records_.back();
    if (last.layer != layer || last.rank + 1 != ranks)
      lines_.refuse(
          "the file ends inside a token, at layer " + std::to_string(last.layer) + ", slot " +
              std::to_string(last.rank),
          "a last row of layer " + std::to_string(layer) + ", slot " + std::to_string(ranks - 1));
  }

  line_scanner lines_;
  record_facts facts_;
  std::vector<trace_record> records_;
  std::vector<std::pair<std::int32_t, std::uint64_t>> read_bytes_;
};

}  // namespace

routing_trace parse_bigmoe_route_csv(std::string_view text, const std::string& file,
                                     std::int32_t experts, reading_notes* notes) {
  return route_reader(text, file, experts, notes).read();
}

routing_trace read_bigmoe_route_csv(const std::filesystem::path& path, std::int32_t experts,
                                    reading_notes* notes) {
  const auto input = read_input(path);
  if (input.size() != 1)
    refuse_input(path.string(), "", std::to_string(input.size()) + " files", "one route CSV");
  return parse_bigmoe_route_csv(input.front().text, path.string(), experts, notes);
}

}  // namespace hotset::lab
