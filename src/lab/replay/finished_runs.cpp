// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/finished_runs.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/errors.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/traces/trace_hash.hpp"

namespace hotset::lab {
namespace {

using kept_json = nlohmann::ordered_json;

// One list of members for each struct; a writer and a reader pass through it.

template <class Io>
void members_of(Io& io, policy_set& s) {
  io("eviction", s.eviction);
  io("admission", s.admission);
  io("prefetch", s.prefetch);
  io("guard", s.guard);
  io("miss", s.miss);
  io("routing", s.routing);
  io("pre_eviction", s.pre_eviction);
  io("predictor", s.predictor);
  io("prefetch_order", s.prefetch_order);
  io("preset", s.preset);
}

template <class Io>
void members_of(Io& io, access_counts& s) {
  io("accesses", s.accesses);
  io("hits", s.hits);
  io("collisions", s.collisions);
}

template <class Io>
void members_of(Io& io, layer_counts& s) {
  members_of(io, static_cast<access_counts&>(s));
  io("compulsory", s.compulsory);
  io("bytes_filled", s.bytes_filled);
}

template <class Io>
void members_of(Io& io, pager_stats& s) {
  static_assert(sizeof(pager_stats) ==
                    (33 + 3 * 3) * sizeof(std::uint64_t) + sizeof(std::vector<layer_counts>),
                "the list below needs every counter");
  io("visits", s.visits);
  io("accesses", s.accesses);
  io("hits", s.hits);
  io("prefetch_hits", s.prefetch_hits);
  io("misses", s.misses);
  io("compulsory_misses", s.compulsory_misses);
  io("collision_misses", s.collision_misses);
  io("precision_misses", s.precision_misses);
  io("bypasses", s.bypasses);
  io("dropped_misses", s.dropped_misses);
  io("substituted_misses", s.substituted_misses);
  io("fills", s.fills);
  io("speculative_fills", s.speculative_fills);
  io("late_prefetches", s.late_prefetches);
  io("wasted_prefetches", s.wasted_prefetches);
  io("cancelled_prefetches", s.cancelled_prefetches);
  io("refused_prefetches", s.refused_prefetches);
  io("evictions", s.evictions);
  io("pre_evictions", s.pre_evictions);
  io("bytes_filled", s.bytes_filled);
  io("bytes_demand", s.bytes_demand);
  io("bytes_refetched", s.bytes_refetched);
  io("bytes_warm", s.bytes_warm);
  io("bytes_prefetched", s.bytes_prefetched);
  io("bytes_prefetch_used", s.bytes_prefetch_used);
  io("bytes_prefetch_wasted", s.bytes_prefetch_wasted);
  io("bytes_prefetch_cancelled", s.bytes_prefetch_cancelled);
  io("failed_fills", s.failed_fills);
  io("ignored_ids", s.ignored_ids);
  io("split_visits", s.split_visits);
  io("groups", s.groups);
  io("steps", s.steps);
  io("steps_with_miss", s.steps_with_miss);
  io("by_kind", s.by_kind);
  io("per_layer", s.per_layer);
}

template <class Io>
void members_of(Io& io, replay_times& s) {
  io("total", s.total);
  io("blocked", s.blocked);
  io("link_busy", s.link_busy);
  io("back_busy", s.back_busy);
  io("sequences", s.sequences);
  io("first_token", s.first_token);
  io("decoded", s.decoded);
  io("decoding", s.decoding);
}

template <class Io>
void members_of(Io& io, gate_mass& s) {
  io("routed", s.routed);
  io("lost", s.lost);
}

template <class Io>
void members_of(Io& io, prediction_score::counts& s) {
  io("predicted", s.predicted);
  io("predicted_and_routed", s.predicted_and_routed);
  io("routed", s.routed);
}

template <class Io>
void members_of(Io& io, prefetch_queue_stats& s) {
  io("added", s.added);
  io("repeated", s.repeated);
  io("issued", s.issued);
  io("expired", s.expired);
  io("displaced", s.displaced);
}

template <class Io>
void members_of(Io& io, replay_outcome& s) {
  io("times", s.times);
  io("bytes_back", s.bytes_back);
  io("streamed", s.streamed);
  io("mass", s.mass);
  io("predictions", s.predictions);
  io("confidence", s.confidence);
  io("queue", s.queue);
}

template <class Io>
void members_of(Io& io, window_counts& s) {
  io("first_step", s.first_step);
  io("steps", s.steps);
  io("tokens", s.tokens);
  io("accesses", s.accesses);
  io("hits", s.hits);
  io("fills", s.fills);
}

template <class Io>
void members_of(Io& io, sequence_counts& s) {
  io("sequence", s.sequence);
  io("tokens", s.tokens);
  io("accesses", s.accesses);
  io("hits", s.hits);
}

/// Members that a sweep sets: neither a model's quality nor a size that --until found.
template <class Io>
void members_of(Io& io, run_result& s) {
  io("key", s.key);
  io("policies", s.policies);
  io("scope", s.scope);
  io("replay", s.replay);
  io("precision", s.precision);
  io("link", s.link);
  io("slots", s.slots);
  io("budget_bytes", s.budget_bytes);
  io("stats", s.stats);
  io("outcome", s.outcome);
  io("decision_hash", s.decision_hash);
  io("notes", s.notes);
  io("size", s.size);
  io("layer_slots", s.layer_slots);
  io("windows", s.windows);
  io("by_sequence", s.by_sequence);
}

template <class T>
constexpr bool is_plain_value = std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;

struct run_writer {
  kept_json out = kept_json::object();

  template <class T>
  void operator()(const char* name, T& value) {
    out[name] = written(value);
  }

 private:
  template <class T>
  static kept_json written(T& value) {
    if constexpr (is_plain_value<T>) {
      return value;
    } else {
      run_writer inner;
      members_of(inner, value);
      return std::move(inner.out);
    }
  }
  template <class T>
  static kept_json written(std::optional<T>& value) {
    return value ? written(*value) : kept_json(nullptr);
  }
  template <class T>
  static kept_json written(std::vector<T>& values) {
    return all_of(values);
  }
  template <class T, std::size_t N>
  static kept_json written(std::array<T, N>& values) {
    return all_of(values);
  }
  template <class Values>
  static kept_json all_of(Values& values) {
    auto list = kept_json::array();
    for (auto& value : values) list.push_back(written(value));
    return list;
  }
};

struct run_reader {
  const kept_json& from;

  template <class T>
  void operator()(const char* name, T& value) {
    read(from.at(name), value);
  }

 private:
  template <class T>
  static void read(const kept_json& json, T& value) {
    if constexpr (is_plain_value<T>) {
      value = json.get<T>();
    } else {
      run_reader inner{json};
      members_of(inner, value);
    }
  }
  template <class T>
  static void read(const kept_json& json, std::optional<T>& value) {
    value.reset();
    if (!json.is_null()) read(json, value.emplace());
  }
  template <class T>
  static void read(const kept_json& json, std::vector<T>& values) {
    values.resize(json.size());
    for (std::size_t i = 0; i < values.size(); ++i) read(json.at(i), values[i]);
  }
  template <class T, std::size_t N>
  static void read(const kept_json& json, std::array<T, N>& values) {
    for (std::size_t i = 0; i < N; ++i) read(json.at(i), values[i]);
  }
};

/// A line of JSON, and a line with its hash.
std::string text_of_run(run_result run) {
  run_writer writer;
  members_of(writer, run);
  const kept_json root{{"schema", "hotset.cell/1"}, {"run", std::move(writer.out)}};
  const auto json = root.dump(-1, ' ', false, kept_json::error_handler_t::replace);
  return fmt::format("{}\n{:016x}\n", json, text_hash(json));
}

/// Errors: std::exception with the reason.
run_result run_of_text(std::string_view text, const std::string& key) {
  const auto json = text.substr(0, text.find('\n'));
  if (text.substr(json.size()) != fmt::format("\n{:016x}\n", text_hash(json)))
    throw std::runtime_error("its hash differs");
  const auto root = kept_json::parse(json);
  run_result run;
  run_reader reader{root.at("run")};
  members_of(reader, run);
  if (run.key != key) throw std::runtime_error("it holds the result of another run");
  return run;
}

}  // namespace

finished_runs::finished_runs(std::filesystem::path folder,
                             std::function<void(const std::string&)> complain)
    : folder_(std::move(folder)), complain_(std::move(complain)) {
  std::error_code bad;
  std::filesystem::create_directories(folder_, bad);
  if (bad || !std::filesystem::is_directory(folder_, bad))
    throw usage_error(
        fmt::format("{}: cannot be used{}{}, accepted: a folder that may be written to",
                    folder_.string(), bad ? ": " : "", bad ? bad.message() : ""));
}

std::filesystem::path finished_runs::file_of(const std::string& key) const {
  return folder_ / (key + ".json");
}

std::optional<run_result> finished_runs::find(const std::string& key) const {
  const auto file = file_of(key);
  std::error_code bad;
  if (!std::filesystem::exists(file, bad)) return std::nullopt;
  try {
    return run_of_text(mapped_file(file).text(), key);
  } catch (const std::exception& why) {
    complain_(fmt::format("{}: damaged ({}); taken as missing", file.string(), why.what()));
    return std::nullopt;
  }
}

void finished_runs::keep(const run_result& run) const {
  output_file file(file_of(run.key));
  file.write(text_of_run(run));
  file.writer().sync();
  file.commit();
}

}  // namespace hotset::lab
