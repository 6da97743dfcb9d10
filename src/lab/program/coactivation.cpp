// SPDX-License-Identifier: Apache-2.0
// hotset coactivation: tables of which experts fire together, by user: learnt, merged, saved, judged, compared.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hotset/predict/co_activation.hpp"
#include "lab/errors.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/program/command.hpp"
#include "lab/program/console.hpp"
#include "lab/program/trace_input.hpp"
#include "lab/reports/co_activation_report.hpp"
#include "lab/studies/co_activation_study.hpp"

namespace hotset::cli {
namespace {

using json = nlohmann::ordered_json;

struct coactivation_options {
  std::vector<std::filesystem::path> traces;
  std::vector<std::filesystem::path> tables;
  std::filesystem::path save;
  std::filesystem::path evaluate;
  std::int32_t reach = 0;  ///< 0: that of the loaded tables, or the usual one
  double decay = co_activation::config{}.decay;
  double coverage = 0.95;
  std::string study;
  std::vector<std::string> sizes;
  std::string users = "traces";
  bool as_json = false;
  table_options table;
  std::filesystem::path out;
  trace_options reading;
};

/// A user's table and what it is worth.
struct user_table {
  std::string name;
  std::uint64_t uses = 0;
  lab::table_support support{};
};
struct table_report {
  co_activation::saved_shape shape{};
  std::vector<user_table> users;
  user_table merged;
  std::optional<lab::next_layer_quality> quality{};
  std::string judged_on;
};

std::string shape_text(const routing_trace& trace) {
  return fmt::format("{} layers x {} experts, top-{}", trace.layers, trace.experts, trace.top_k);
}

/// Traces of one model often share its name: their files tell users apart.
opened_trace open_user(const std::filesystem::path& path, const lab::open_trace_options& reading) {
  auto opened = open_input(path, reading);
  opened.trace.name = opened.path.filename().string();
  return opened;
}

/// The inputs of a command: all of one shape.
class table_inputs {
 public:
  explicit table_inputs(const coactivation_options& options) : options_(options) {
    if (options.traces.empty() && options.tables.empty())
      throw lab::usage_error("coactivation: nothing to learn from; accepted: traces, or --load");
    const auto& reading = options.reading;
    for (const auto& path : options.traces) {
      traces_.push_back(open_user(path, reading));
      need_shape_of_first(traces_.back());
    }
    if (!options.evaluate.empty()) {
      traces_.push_back(open_user(options.evaluate, reading));
      need_shape_of_first(traces_.back());
    }
    for (const auto& path : options.tables)
      files_.push_back({input_path(path), lab::mapped_file(input_path(path))});
    shape_ = shape_of_inputs();
    if (const auto bad = config().validate()) throw lab::usage_error(bad->message);
  }

  [[nodiscard]] const co_activation::saved_shape& shape() const { return shape_; }
  [[nodiscard]] std::size_t learnt() const { return options_.traces.size(); }
  [[nodiscard]] const opened_trace& trace(std::size_t i) const { return traces_[i]; }
  [[nodiscard]] const opened_trace& held_out() const { return traces_.back(); }
  [[nodiscard]] std::size_t tables() const { return files_.size(); }
  [[nodiscard]] const std::filesystem::path& table_path(std::size_t i) const {
    return files_[i].path;
  }

  [[nodiscard]] co_activation empty() const { return {geometry_of(), config()}; }
  /// Errors: trace_error for what is no table, usage_error for one of another shape.
  [[nodiscard]] co_activation loaded(std::size_t i) const {
    const auto bytes = files_[i].content.bytes();
    (void)saved(files_[i]);
    auto out = empty();
    if (const auto bad = out.load(bytes))
      throw lab::usage_error(with_path(files_[i].path, bad->message));
    return out;
  }

 private:
  struct table_file {
    std::filesystem::path path;
    lab::mapped_file content;
  };

  static co_activation::saved_shape saved(const table_file& file) {
    const auto found = co_activation::shape_of(file.content.bytes());
    if (!found) throw trace_error(with_path(file.path, found.error().message));
    return *found;
  }
  void need_shape_of_first(const opened_trace& opened) const {
    const auto wanted = shape_text(traces_.front().trace);
    const auto found = shape_text(opened.trace);
    if (found != wanted)
      throw lab::usage_error(
          with_path(opened.path, fmt::format("{}; accepted: {}, as {}", found, wanted,
                                             printable(traces_.front().path.string(), 4096))));
  }
  /// The traces' shape, else that of the first table; the reach as asked for, else the first table's, else the usual one.
  [[nodiscard]] co_activation::saved_shape shape_of_inputs() const {
    co_activation::saved_shape out{0, 0, co_activation::config{}.reach};
    if (!files_.empty()) out = saved(files_.front());
    if (!traces_.empty()) {
      out.layers = traces_.front().trace.layers;
      out.experts = traces_.front().trace.experts;
    }
    if (options_.reach != 0) out.reach = options_.reach;
    return out;
  }
  [[nodiscard]] co_activation::config config() const {
    return {.reach = shape_.reach, .depth = 1, .decay = options_.decay};
  }
  /// A table that only merges others needs no K.
  [[nodiscard]] geometry geometry_of() const {
    if (!traces_.empty()) return traces_.front().trace.shape();
    return {.layers = shape_.layers,
            .experts = shape_.experts,
            .top_k = 1,
            .max_tokens_per_visit = 1,
            .expert_bytes = {},
            .layer_size_class = {},
            .lower_precisions = {}};
  }

  const coactivation_options& options_;
  std::deque<opened_trace> traces_;  ///< learnt from, then the held-out one
  std::deque<table_file> files_;
  co_activation::saved_shape shape_{};
};

user_table row_of(std::string name, const co_activation& table, std::size_t experts,
                  double coverage) {
  return {std::move(name), table.observed(), lab::support_of(table, experts, coverage)};
}

/// Every user's table is made, looked at and merged, one after the other.
co_activation merge_all(const table_inputs& inputs, double coverage, table_report& report) {
  const auto experts = static_cast<std::size_t>(inputs.shape().experts);
  auto merged = inputs.empty();
  const auto take = [&](std::string name, const co_activation& table) {
    report.users.push_back(row_of(std::move(name), table, experts, coverage));
    require_valid(merged.merge(table));
  };
  for (std::size_t i = 0; i < inputs.tables(); ++i)
    take(inputs.table_path(i).filename().string(), inputs.loaded(i));
  for (std::size_t i = 0; i < inputs.learnt(); ++i) {
    auto table = inputs.empty();
    lab::learn(table, lab::user_of(inputs.trace(i).trace));
    take(inputs.trace(i).trace.name, table);
  }
  report.merged = row_of("merged", merged, experts, coverage);
  return merged;
}

json row_json(const user_table& row) {
  return {{"name", row.name},
          {"uses", row.uses},
          {"cap", row.support.cap},
          {"mean_support", row.support.mean}};
}
json quality_json(const table_report& report) {
  if (!report.quality) return nullptr;
  const auto& q = *report.quality;
  return {{"trace", report.judged_on},  {"tokens", q.tokens},
          {"places", q.places},         {"hits", q.hits},
          {"precision", q.precision()}, {"popular_precision", q.popular_precision()}};
}
json to_json(const table_report& report, const coactivation_options& options) {
  json users = json::array();
  for (const auto& user : report.users) users.push_back(row_json(user));
  return {{"schema", lab::coactivation_schema},
          {"layers", report.shape.layers},
          {"experts", report.shape.experts},
          {"reach", report.shape.reach},
          {"decay", options.decay},
          {"coverage", options.coverage},
          {"users", std::move(users)},
          {"merged", row_json(report.merged)},
          {"evaluation", quality_json(report)}};
}

lab::text_table empty_user_table() {
  lab::text_table out;
  out.add({"user", "user", true, 0, true, {}});
  out.add({"uses", "uses", false, 0, true, {}});
  out.add({"cap", "cap", false, 0, true, {}});
  out.add({"mean", "mean", false, 0, true, {}});
  return out;
}

std::string to_table(const table_report& report, const coactivation_options& options,
                     const lab::table_view& view) {
  auto table = empty_user_table();
  const auto add = [&](const user_table& row) {
    table.add_row({printable(row.name, 24), std::to_string(row.uses),
                   std::to_string(row.support.cap), fmt::format("{:.1f}", row.support.mean)});
  };
  for (const auto& user : report.users) add(user);
  if (report.users.size() > 1) add(report.merged);
  auto head = fmt::format(
      "{} layers x {} experts; reach {}, decay {}; experts of a layer for {} % of the uses\n",
      report.shape.layers, report.shape.experts, report.shape.reach, options.decay,
      100 * options.coverage);
  auto out = lab::folded(head, view.width) + table.render(view);
  if (!report.quality) return out;
  return out + lab::folded(fmt::format("{}: {} tokens, next layer's experts named {:.2f} % (the "
                                       "most used ones {:.2f} %)\n",
                                       printable(report.judged_on, 40), report.quality->tokens,
                                       100 * report.quality->precision(),
                                       100 * report.quality->popular_precision()),
                           view.width);
}

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

int report_tables(const coactivation_options& options) {
  const auto view = checked(options.table, empty_user_table().names(), !options.out.empty());
  std::optional<output_file> saved;  // refused now if it cannot be written, not afterwards
  if (!options.save.empty()) saved.emplace(options.save, lab::output_content::binary);
  output_file out(options.out);
  const table_inputs inputs(options);
  table_report report;
  report.shape = inputs.shape();
  auto merged = merge_all(inputs, options.coverage, report);
  if (!options.evaluate.empty()) {
    report.judged_on = inputs.held_out().trace.name;
    report.quality = lab::judge(merged, lab::user_of(inputs.held_out().trace));
  }
  if (saved) {
    write_bytes(*saved, merged.save());
    saved->commit();
  }
  out.finish(options.as_json ? dumped(to_json(report, options)) : to_table(report, options, view));
  return ok;
}

std::vector<std::uint64_t> sizes_of(const coactivation_options& options) {
  if (options.sizes.empty())
    throw lab::usage_error("--study needs --sizes; accepted: tokens of training, such as 64,256");
  std::vector<std::uint64_t> sizes;
  for (const auto& text : split_lists("--sizes", options.sizes))
    sizes.push_back(parse_number("--sizes", text, std::uint64_t{1}, std::uint64_t{1} << 32U));
  return sizes;
}

std::vector<lab::user_tokens> users_of(const std::deque<opened_trace>& traces,
                                       const std::string& kind) {
  std::vector<lab::user_tokens> users;
  for (const auto& opened : traces) {
    if (kind == "traces")
      users.push_back(lab::user_of(opened.trace));
    else
      for (auto& user : lab::users_by_sequence(opened.trace)) users.push_back(std::move(user));
  }
  return users;
}

int study(const coactivation_options& options) {
  if (options.study != "personal-vs-population")
    lab::refuse_name("--study:", options.study, {"personal-vs-population"});
  if (options.users != "traces" && options.users != "sequences")
    lab::refuse_name("--users:", options.users, {"traces", "sequences"});
  lab::study_request request;
  request.sizes = sizes_of(options);
  request.table.decay = options.decay;
  if (options.reach != 0) request.table.reach = options.reach;
  request.coverage = options.coverage;
  const auto view = checked(options.table, lab::study_columns(), !options.out.empty());
  output_file out(options.out);
  const auto& reading = options.reading;
  std::deque<opened_trace> traces;
  for (const auto& path : options.traces) traces.push_back(open_user(path, reading));
  request.users = users_of(traces, options.users);
  const auto result = lab::compare_personal_and_population(request);
  out.finish(options.as_json ? lab::to_json_text(result) : lab::to_table(result, view));
  return ok;
}

int coactivation(const coactivation_options& options) {
  return options.study.empty() ? report_tables(options) : study(options);
}

void add_study(CLI::App& app, coactivation_options& options,
               std::initializer_list<CLI::Option*> others) {
  auto* chosen = app.add_option("--study", options.study,
                                "compare by training size: personal-vs-population (a user's table "
                                "with that of all users)")
                     ->type_name("NAME");
  for (auto* other : others) chosen->excludes(other);
  add_list(app, "--sizes", options.sizes,
           "tokens of training of each user; what lies after the largest is held out")
      ->needs(chosen);
  app.add_option("--users", options.users, "who is a user: traces, or sequences of the traces")
      ->type_name("NAME")
      ->capture_default_str()
      ->needs(chosen);
}

}  // namespace

command add_coactivation(CLI::App& root) {
  auto* app = root.add_subcommand(
      "coactivation", "Learn, merge, save and judge users' tables of experts that fire together");
  auto options = std::make_shared<coactivation_options>();
  app->add_option("TRACE", options->traces, "traces of one model to learn from, a user each")
      ->type_name("FILE");
  auto* load = app->add_option("--load", options->tables, "saved tables of users, merged first")
                   ->type_name("FILE")
                   ->allow_extra_args(false);
  auto* save =
      app->add_option("--save", options->save, "write the merged table")->type_name("FILE");
  auto* evaluate = app->add_option("--evaluate", options->evaluate,
                                   "a trace that the table has not seen: how well it predicts "
                                   "each next layer")
                       ->type_name("FILE");
  add_number(*app, "--reach", options->reach, 0, 64,
             fmt::format("layers back that are looked at; 0: as in the loaded tables, or {}",
                         co_activation::config{}.reach));
  add_number(*app, "--decay", options->decay, 1e-6, 1.0,
             "of a layer's weight, for each layer that it is further back");
  add_number(*app, "--coverage", options->coverage, 1e-6, 1.0,
             "share of the uses that the cap covers");
  add_study(*app, *options, {load, save, evaluate});
  auto* json =
      app->add_flag("--json", options->as_json, "print JSON (schema hotset.coactivation/1)");
  auto columns = empty_user_table().names();
  for (const auto& name : lab::study_columns())
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  add_columns(*app, options->table, columns)->excludes(json);
  app->add_option("--out", options->out, "write there, not to standard output")->type_name("FILE");
  add_trace_options(*app, options->reading);
  app->footer(R"(Examples:
  hotset coactivation monday.trace --save me.table --evaluate tuesday.trace
  hotset coactivation --load me.table --load you.table --coverage 0.99
  hotset coactivation code.trace math.trace prose.trace --study personal-vs-population --sizes 64,256,1024)");
  return {app, [options] { return coactivation(*options); }};
}

}  // namespace hotset::cli
