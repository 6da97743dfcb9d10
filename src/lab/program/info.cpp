// SPDX-License-Identifier: Apache-2.0
// hotset info: facts of a trace.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/ids.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/folded_text.hpp"
#include "lab/reports/rows.hpp"
#include "lab/sizes.hpp"

namespace hotset::cli {
namespace {

using lab::row;

struct info_options {
  std::vector<std::filesystem::path> traces;
  trace_options reading;
  bool as_json = false;
};

row steps_by_kind(const visit_sequence& visits) {
  std::array<std::uint64_t, 3> steps{};
  std::int64_t last = -1;
  for (const visit& v : visits.visits())
    if (std::exchange(last, v.step) != v.step) ++steps[static_cast<std::size_t>(v.kind)];
  row out;
  for (const auto& [kind, name] : request_classes)
    out[name] = steps[static_cast<std::size_t>(kind)];
  return out;
}

/// Accesses of every key: the number of visits that use it.
std::vector<std::uint64_t> accesses_by_key(const visit_sequence& visits) {
  const auto& shape = visits.shape();
  std::vector<std::uint64_t> accesses(shape.keys(), 0);
  std::vector<std::uint64_t> last(shape.keys(), 0);
  lab::progress bar(visits.size());
  for (std::size_t i = 0; i < visits.size(); ++i) {
    bar.at(i);
    const auto view = visits[i];
    for (const expert_id expert : view.experts) {
      if (expert < 0) continue;
      const auto key = shape.index({view.layer, expert});
      if (std::exchange(last[key], i + 1) != i + 1) ++accesses[key];
    }
  }
  bar.at(visits.size());
  return accesses;
}

/// Share of all accesses that go to the most used tenth of the keys.
double top_tenth_share(std::vector<std::uint64_t> accesses, std::uint64_t all) {
  const auto tenth = static_cast<std::ptrdiff_t>((accesses.size() + 9) / 10);
  std::nth_element(accesses.begin(), accesses.begin() + tenth - 1, accesses.end(),
                   std::greater<>());
  return static_cast<double>(
             std::accumulate(accesses.begin(), accesses.begin() + tenth, std::uint64_t{0})) /
         static_cast<double>(all);
}

row arrays_of(const routing_trace& trace) {
  row present = row::array();
  for (const auto& [name, missing] : {std::pair("weights", trace.weights.empty()),
                                      {"logits", trace.logits.empty()},
                                      {"probabilities", trace.probabilities.empty()},
                                      {"hidden", trace.hidden.empty()},
                                      {"predictions", trace.predictions.empty()},
                                      {"adapter", trace.adapter.empty()},
                                      {"token ids", trace.token_ids.empty()}})
    if (!missing) present.push_back(name);
  return present;
}

/// The facts, with the names of schema hotset.info/1.
row facts_of(const opened_trace& opened) {
  const auto& trace = opened.trace;
  const auto visits = visit_sequence::create(trace);
  if (!visits) throw trace_error(with_path(opened.path, visits.error().message));
  const auto accesses = accesses_by_key(*visits);
  std::uint64_t used = 0;
  std::uint64_t bytes = 0;
  for (std::size_t key = 0; key < accesses.size(); ++key) {
    if (accesses[key] == 0) continue;
    ++used;
    bytes += visits->shape().bytes_of(visits->shape().key(key).layer);
  }
  row out{{"schema", "hotset.info/1"},
          {"name", trace.name},
          {"format", lab::name_of(opened.format)},
          {"model", trace.model},
          {"source", trace.source},
          {"layers", trace.layers},
          {"experts", trace.experts},
          {"top_k", trace.top_k},
          {"tokens", trace.tokens()},
          {"sequences", std::set(trace.sequence.begin(), trace.sequence.end()).size()},
          {"steps", visits->steps()},
          {"steps_by_kind", steps_by_kind(*visits)},
          {"visits", visits->size()},
          {"routed", visits->routed()},
          {"accesses", visits->accesses()},
          {"widest_union", visits->widest_union()},
          {"distinct_experts", used},
          {"footprint_bytes", nullptr},
          {"expert_bytes_min", nullptr},
          {"expert_bytes_max", nullptr},
          {"arrays", arrays_of(trace)},
          {"top_tenth_share", top_tenth_share(accesses, visits->accesses())}};
  if (!trace.expert_bytes.empty()) {
    out["footprint_bytes"] = bytes;
    out["expert_bytes_min"] = std::ranges::min(trace.expert_bytes);
    out["expert_bytes_max"] = std::ranges::max(trace.expert_bytes);
  }
  return out;
}

std::string size_of(const row& bytes) { return lab::size_text(bytes.get<std::uint64_t>()); }

std::string steps_text(const row& facts) {
  std::vector<std::string> parts;
  for (const auto& [kind, count] : facts["steps_by_kind"].items())
    if (count != 0) parts.push_back(fmt::format("{} {}", count.dump(), kind));
  return fmt::format("{} ({})", facts["steps"].dump(), fmt::join(parts, ", "));
}

std::string expert_bytes_text(const row& facts, const routing_trace& trace) {
  if (trace.expert_bytes.empty())
    return trace.fact("sizes") == "differ" ? "the sizes of objects differ" : "not recorded";
  const auto& least = facts["expert_bytes_min"];
  const auto& most = facts["expert_bytes_max"];
  if (least == most) return fmt::format("{} ({})", least.dump(), size_of(least));
  return fmt::format("{} to {} ({} to {})", least.dump(), most.dump(), size_of(least),
                     size_of(most));
}

std::string to_text(const row& facts, const routing_trace& trace) {
  const auto number = [&](const char* key) { return facts[key].dump(); };
  const auto word = [&](const char* key) {
    const auto text = printable(facts[key].get<std::string>(), 400);
    return text.empty() ? std::string("not recorded") : text;
  };
  const auto arrays = facts["arrays"].get<std::vector<std::string>>();
  const auto& footprint = facts["footprint_bytes"];
  const std::pair<const char*, std::string> lines[] = {
      {"name", word("name")},
      {"format", word("format")},
      {"model", word("model")},
      {"source", word("source")},
      {"layers", number("layers")},
      {"experts per layer", number("experts")},
      {"top-k", number("top_k")},
      {"tokens", number("tokens")},
      {"sequences", number("sequences")},
      {"steps", steps_text(facts)},
      {"visits", number("visits")},
      {"distinct accesses", number("accesses") + " of " + number("routed") + " routed ids"},
      {"footprint",
       fmt::format("{} of {} experts used{}", number("distinct_experts"), trace.shape().keys(),
                   footprint.is_null() ? "" : ", " + size_of(footprint))},
      {"widest union", number("widest_union") + " experts in one visit"},
      {"bytes per expert", expert_bytes_text(facts, trace)},
      {"optional arrays", arrays.empty() ? "none" : fmt::format("{}", fmt::join(arrays, ", "))},
      {"popularity skew", fmt::format("the top 10 % of experts take {:.1f} % of accesses",
                                      100 * facts["top_tenth_share"].get<double>())},
  };
  std::string out;
  for (const auto& [label, value] : lines) out += lab::labelled(label, value);
  return out;
}

int info(const info_options& options) {
  row all = row::array();
  std::string text;
  for (const auto& path : options.traces) {
    const auto opened = open_input(path, options.reading);
    const shown_progress shown(printable(opened.trace.name, 40));
    all.push_back(facts_of(opened));
    text += (text.empty() ? "" : "\n") +
            lab::folded(to_text(all.back(), opened.trace), lab::output_width());
  }
  print(options.as_json ? lab::indented(all.size() == 1 ? all.front() : all) + '\n' : text);
  return ok;
}

}  // namespace

command add_info(CLI::App& root) {
  auto* app = root.add_subcommand("info", "Print the facts of a trace");
  auto options = std::make_shared<info_options>();
  add_file(*app, "TRACE", options->traces, "traces of any known format")->required();
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
