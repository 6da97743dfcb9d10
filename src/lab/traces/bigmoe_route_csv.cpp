// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "lab/traces/importers.hpp"
#include "lab/traces/recorded_rows.hpp"

namespace hotset::lab {
namespace {

constexpr std::int64_t most_number = 0xffffffff;
constexpr std::int64_t most_bytes = std::int64_t{1} << 50U;

/// Value after "key=" in a comment, up to the next space.
std::optional<std::string_view> noted_value(std::string_view line, std::string_view key) {
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
  route_reader(std::string_view text, const std::string& file, const open_trace_options& options)
      : lines_(file, text), rows_({file, "BigMoeOnEdge route CSV", options}, lines_) {}

  routing_trace read() {
    std::string_view line;
    while (lines_.next(line)) {
      if (line.starts_with('#'))
        comment(line);
      else if (!line.empty() && !line.starts_with("turn,"))
        row(line);
    }
    rows_.refuse_a_broken_end();
    if (facts_.layer_bytes.empty()) facts_.layer_bytes = std::move(read_bytes_);
    return std::move(rows_).finish(true);
  }

 private:
  void comment(std::string_view line) {
    if (const auto experts = noted_value(line, "n_expert"))
      facts_.experts = lines_.integer(*experts, "n_expert", 1, most_experts);
    if (const auto used = noted_value(line, "n_expert_used"))
      facts_.top_k = lines_.integer(*used, "n_expert_used", 1, most_ranks);
    if (const auto model = noted_value(line, "model"))
      facts_.model = std::string(model->substr(model->find_last_of('/') + 1));
    const auto layer = noted_value(line, "layer");
    const auto bytes = noted_value(line, "expert_bytes");
    if (!layer || !bytes) return;
    const auto number = lines_.integer(*layer, "layer", 0, most_layers - 1);
    const auto size = lines_.integer<std::uint64_t>(*bytes, "expert_bytes", 0, most_bytes);
    if (size > 0) facts_.layer_bytes.emplace(number, size);
  }

  void row(std::string_view line) {
    const auto& cells = lines_.fields(line);
    if (cells.size() != 9 && cells.size() != 7)
      lines_.refuse(
          std::to_string(cells.size()) + " columns",
          "turn,phase,step,layer,slot,expert,weight with or without residency,expert_bytes");
    const auto ranks = facts_.top_k > 0 ? facts_.top_k : most_ranks;
    (void)lines_.integer<std::uint64_t>(cells[0], "turn", 0, most_number);
    const bool decodes = lines_.integer(cells[1], "phase", 0, 1) == 1;
    const auto token = lines_.integer<std::uint64_t>(cells[2], "step", 0, most_number);
    const auto layer = lines_.integer(cells[3], "layer", 0, most_layers - 1);
    rows_.begin({.layer = layer,
                 .step = decodes ? 1 + token : 0,
                 .token = token,
                 .rank = lines_.integer(cells[4], "slot", 0, ranks - 1),
                 .phase = decodes ? request_class::decode : request_class::prefill,
                 .sequence = cells[0]});
    rows_.add(expert_id{lines_.integer(cells[5], "expert", 0, facts_.most_expert())},
              lines_.weight(cells[6]));
    if (cells.size() == 7) return;
    (void)lines_.integer(cells[7], "residency", 0, 2);
    const auto size = lines_.integer<std::uint64_t>(cells[8], "expert_bytes", 0, most_bytes);
    if (size > 0) read_bytes_[layer] = std::max(read_bytes_[layer], size);
  }

  line_scanner lines_;
  recorded_rows rows_;
  record_facts& facts_ = rows_.facts();
  std::map<std::int32_t, std::uint64_t> read_bytes_;
};

}  // namespace

routing_trace parse_bigmoe_route_csv(std::string_view text, const std::string& file,
                                     const open_trace_options& options) {
  return route_reader(text, file, options).read();
}

}  // namespace hotset::lab
