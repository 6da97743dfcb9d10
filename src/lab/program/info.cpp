// SPDX-License-Identifier: Apache-2.0
// hotset info: what a trace holds.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hotset/core/ids.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/text_table.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {
namespace {

using json = nlohmann::ordered_json;

struct info_options {
  std::vector<std::filesystem::path> traces;
  trace_options reading;
  bool as_json = false;
};

struct trace_facts {
  opened_trace opened;
  std::size_t sequences = 0;
  std::uint64_t steps = 0;
  std::array<std::uint64_t, 3> steps_by_kind{};  ///< by request_class
  std::uint64_t visits = 0;
  std::uint64_t routed = 0;
  std::uint64_t accesses = 0;
  std::uint64_t keys_used = 0;
  std::uint64_t bytes_used = 0;
  std::uint32_t widest_union = 0;
  double top_tenth = 0;  ///< share of accesses

  [[nodiscard]] const routing_trace& trace() const noexcept { return opened.trace; }
  [[nodiscard]] bool bytes_known() const noexcept { return !trace().expert_bytes.empty(); }
};

void count_steps(const visit_sequence& visits, trace_facts& facts) {
  std::int64_t last = -1;
  for (const visit& v : visits.visits()) {
    if (std::exchange(last, v.step) == v.step) continue;
    ++facts.steps_by_kind[static_cast<std::size_t>(v.kind)];
  }
}

/// Accesses of every key: the visits that it takes part in.
std::vector<std::uint64_t> accesses_by_key(const visit_sequence& visits) {
  const auto& shape = visits.shape();
  std::vector<std::uint64_t> accesses(shape.keys(), 0);
  std::vector<std::uint64_t> last(shape.keys(), 0);
  lab::progress told(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    told.at(i);
    const auto view = visits[i];
    for (const expert_id expert : view.experts) {
      if (expert < 0) continue;
      const auto key = shape.index({view.layer, expert});
      if (std::exchange(last[key], i + 1) != i + 1) ++accesses[key];
    }
  }
  told.at(visits.size());
  return accesses;
}

void count_keys(const visit_sequence& visits, trace_facts& facts) {
  auto accesses = accesses_by_key(visits);
  for (std::size_t key = 0; key < accesses.size(); ++key) {
    if (accesses[key] == 0) continue;
    ++facts.keys_used;
    facts.bytes_used += visits.shape().bytes_of(visits.shape().key(key).layer);
  }
  const auto tenth = static_cast<std::ptrdiff_t>((accesses.size() + 9) / 10);
  std::nth_element(accesses.begin(), accesses.begin() + tenth - 1, accesses.end(),
                   std::greater<>());
  const auto top = std::accumulate(accesses.begin(), accesses.begin() + tenth, std::uint64_t{0});
  facts.top_tenth = static_cast<double>(top) / static_cast<double>(facts.accesses);
}

std::size_t count_sequences(const routing_trace& trace) {
  auto sequences = trace.sequence;
  std::sort(sequences.begin(), sequences.end());
  return static_cast<std::size_t>(
      std::distance(sequences.begin(), std::unique(sequences.begin(), sequences.end())));
}

trace_facts examine(opened_trace opened) {
  auto visits = visit_sequence::create(opened.trace);
  if (!visits) throw trace_error(with_path(opened.path, visits.error().message));
  trace_facts facts;
  facts.sequences = count_sequences(opened.trace);
  facts.steps = visits->steps();
  facts.visits = visits->size();
  facts.routed = visits->routed();
  facts.accesses = visits->accesses();
  facts.widest_union = visits->widest_union();
  facts.opened = std::move(opened);
  count_steps(*visits, facts);
  count_keys(*visits, facts);
  return facts;
}

std::pair<std::uint64_t, std::uint64_t> byte_range(const routing_trace& trace) {
  const auto [least, most] =
      std::minmax_element(trace.expert_bytes.begin(), trace.expert_bytes.end());
  return {*least, *most};
}

std::vector<std::string> arrays_of(const routing_trace& trace) {
  std::vector<std::string> present;
  const auto add = [&](const char* name, bool there) {
    if (there) present.emplace_back(name);
  };
  add("weights", !trace.weights.empty());
  add("logits", !trace.logits.empty());
  add("probabilities", !trace.probabilities.empty());
  add("hidden", !trace.hidden.empty());
  add("predictions", !trace.predictions.empty());
  add("adapter", !trace.adapter.empty());
  add("token ids", !trace.token_ids.empty());
  return present;
}

json to_json(const trace_facts& facts) {
  const auto& trace = facts.trace();
  json steps;
  for (const auto& [kind, name] : request_classes)
    steps[name] = facts.steps_by_kind[static_cast<std::size_t>(kind)];
  json out{{"schema", "hotset.info/1"},
           {"name", trace.name},
           {"format", lab::name_of(facts.opened.format)},
           {"model", trace.model},
           {"source", trace.source},
           {"layers", trace.layers},
           {"experts", trace.experts},
           {"top_k", trace.top_k},
           {"tokens", trace.tokens()},
           {"sequences", facts.sequences},
           {"steps", facts.steps},
           {"steps_by_kind", std::move(steps)},
           {"visits", facts.visits},
           {"routed", facts.routed},
           {"accesses", facts.accesses},
           {"widest_union", facts.widest_union},
           {"distinct_experts", facts.keys_used},
           {"footprint_bytes", nullptr},
           {"expert_bytes_min", nullptr},
           {"expert_bytes_max", nullptr},
           {"arrays", arrays_of(trace)},
           {"top_tenth_share", facts.top_tenth}};
  if (facts.bytes_known()) {
    const auto [least, most] = byte_range(trace);
    out["footprint_bytes"] = facts.bytes_used;
    out["expert_bytes_min"] = least;
    out["expert_bytes_max"] = most;
  }
  return out;
}

std::string steps_text(const trace_facts& facts) {
  std::string parts;
  for (const auto& [kind, name] : request_classes) {
    const auto count = facts.steps_by_kind[static_cast<std::size_t>(kind)];
    if (count > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", count, name);
  }
  return fmt::format("{} ({})", facts.steps, parts);
}

std::string expert_bytes_text(const routing_trace& trace) {
  if (trace.expert_bytes.empty())
    return trace.fact("sizes") == "differ" ? "the sizes of objects differ" : "not recorded";
  const auto [least, most] = byte_range(trace);
  if (least == most) return fmt::format("{} ({})", least, lab::size_text(least));
  return fmt::format("{} to {} ({} to {})", least, most, lab::size_text(least),
                     lab::size_text(most));
}

std::string footprint_text(const trace_facts& facts) {
  const auto keys = static_cast<std::uint64_t>(facts.trace().layers) *
                    static_cast<std::uint64_t>(facts.trace().experts);
  auto text = fmt::format("{} of {} experts used", facts.keys_used, keys);
  if (facts.bytes_known()) text += ", " + lab::size_text(facts.bytes_used);
  return text;
}

std::string to_text(const trace_facts& facts) {
  const auto& trace = facts.trace();
  const auto arrays = arrays_of(trace);
  const auto or_unknown = [](const std::string& text) {
    return text.empty() ? std::string("not recorded") : printable(text, 400);
  };
  const std::pair<const char*, std::string> lines[] = {
      {"name", or_unknown(trace.name)},
      {"format", std::string(lab::name_of(facts.opened.format))},
      {"model", or_unknown(trace.model)},
      {"source", or_unknown(trace.source)},
      {"layers", fmt::format("{}", trace.layers)},
      {"experts per layer", fmt::format("{}", trace.experts)},
      {"top-k", fmt::format("{}", trace.top_k)},
      {"tokens", fmt::format("{}", trace.tokens())},
      {"sequences", fmt::format("{}", facts.sequences)},
      {"steps", steps_text(facts)},
      {"visits", fmt::format("{}", facts.visits)},
      {"distinct accesses", fmt::format("{} of {} routed ids", facts.accesses, facts.routed)},
      {"footprint", footprint_text(facts)},
      {"widest union", fmt::format("{} experts in one visit", facts.widest_union)},
      {"bytes per expert", expert_bytes_text(trace)},
      {"optional arrays", arrays.empty() ? "none" : fmt::format("{}", fmt::join(arrays, ", "))},
      {"popularity skew",
       fmt::format("the top 10 % of experts take {:.1f} % of accesses", 100 * facts.top_tenth)},
  };
  std::string out;
  for (const auto& [label, value] : lines) out += fmt::format("{:<18} {}\n", label, value);
  return out;
}

int info(const info_options& options) {
  const auto reading = checked(options.reading);
  std::vector<trace_facts> all;
  for (const auto& path : options.traces) {
    auto opened = open_input(path, reading);
    const shown_progress shown(printable(opened.trace.name, 40));
    all.push_back(examine(std::move(opened)));
    if (options.as_json) all.back().opened.trace.ids = {};  // counted; only the facts are printed
  }
  std::string out;
  if (options.as_json) {
    json objects = json::array();
    for (const auto& facts : all) objects.push_back(to_json(facts));
    out = (objects.size() == 1 ? objects.front() : objects)
              .dump(2, ' ', false, json::error_handler_t::replace) +
          '\n';
  } else {
    for (const auto& facts : all)
      out += (out.empty() ? "" : "\n") + lab::folded(to_text(facts), lab::output_width());
  }
  print(out);
  return ok;
}

}  // namespace

command add_info(CLI::App& root) {
  auto* app = root.add_subcommand("info", "Say what a trace holds");
  auto options = std::make_shared<info_options>();
  app->add_option("TRACE", options->traces, "traces of any known format")
      ->required()
      ->type_name("FILE");
  app->add_flag("--json", options->as_json,
                "print JSON: an object, or an array for several traces");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset info routes.trace
  hotset info --json routes.csv
  hotset info --format jsonl --field layer=l,experts=ids dump.jsonl)");
  return {app, [options] { return info(*options); }};
}

}  // namespace hotset::cli
