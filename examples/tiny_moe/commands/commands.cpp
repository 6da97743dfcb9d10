// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/commands/commands.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "hotset/core/error.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/files/output_file.hpp"
#include "lab/files/program.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/preset.hpp"
#include "lab/reports/sweep_report.hpp"
#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/experts/paging_choice.hpp"
#include "tiny_moe/experts/tracing_experts.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/studies/clock_check.hpp"
#include "tiny_moe/studies/quality.hpp"
#include "tiny_moe/studies/reference_check.hpp"
#include "tiny_moe/studies/verification.hpp"

namespace tiny_moe {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string read_prompt(const std::filesystem::path& path) {
  const hotset::lab::mapped_file file(hotset::lab::input_path(path));
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_length(const model& weights, const std::string& prompt, std::size_t tokens) {
  const std::size_t room = weights.config().max_positions;
  if (prompt.empty() || prompt.size() > room || tokens > room - prompt.size() + 1) {
    hotset::lab::refuse_input(
        "prompt", "",
        fmt::format("has {} bytes, and {} tokens are to follow", prompt.size(), tokens),
        fmt::format("1..{} bytes, and {} in all", room, room + 1));
  }
}

// Feeds a prompt in passes of at most the engine's max_tokens. Returns the last row of logits.
std::span<const float> prefill(engine& decoder, std::span<const std::uint8_t> prompt) {
  std::span<const float> logits;
  while (!prompt.empty()) {
    const std::size_t count = std::min(prompt.size(), decoder.max_tokens());
    logits = decoder.forward(prompt.first(count), request_kind::prefill);
    prompt = prompt.subspan(count);
  }
  return logits.last(model_config::vocabulary);
}

/// Every combination of the lists on top of each preset, combined with every budget.
std::vector<paging_choice> choices_of(const options& chosen, const std::string& eviction) {
  hotset::lab::policy_set plain;
  plain.eviction = eviction;
  std::vector<paging_choice> out;
  for (const auto& budget : chosen.budgets) {
    for (auto& set : hotset::lab::combine_policies(chosen.policies, plain)) {
      paging_choice one;
      one.policies = std::move(set);
      one.scope = chosen.scope;
      one.budget = budget;
      one.precision = chosen.precision;
      one.link = chosen.link;
      one.latency = chosen.latency;
      one.transient = chosen.transient;
      one.stream = chosen.stream;
      one.max_tokens = chosen.max_tokens;
      out.push_back(std::move(one));
    }
  }
  return out;
}

void print_paging(const paged_provider& experts, const paging_choice& choice) {
  const auto stats = experts.stats();
  const auto& layout = experts.layout();
  const auto& shape = layout.shape();
  std::uint64_t bytes = 0;
  for (const auto p : hotset::each<hotset::pool_id>(layout.pools())) {
    const auto& pool = layout.at(p);
    bytes += static_cast<std::uint64_t>(pool.slots) *
             shape.bytes_of(hotset::layer_id{0}, pool.precision);
  }
  fmt::print(stderr,
             "experts {} of {} in slots ({}, {:.0f} KiB of {:.0f}), {}: {:.1f} % hits of {}, "
             "{:.1f} MB moved, {} visits split, {} uses from the host\n",
             layout.slots(), shape.keys(), choice.scope, static_cast<double>(bytes) / 1024.0,
             static_cast<double>(shape.keys() * shape.bytes_of(hotset::layer_id{0})) / 1024.0,
             choice.policies.eviction, percent(stats.hits, stats.accesses), stats.accesses,
             static_cast<double>(experts.bytes_moved()) / 1e6, stats.split_visits, stats.bypasses);
  if (stats.speculative_fills != 0) {
    fmt::print(stderr,
               "prefetched {} experts by {}: {} used, {} of them late, {} wasted, {} taken back\n",
               stats.speculative_fills, choice.policies.prefetch, stats.prefetch_hits,
               stats.late_prefetches, stats.wasted_prefetches, stats.cancelled_prefetches);
  }
  if (experts.streamed() != 0)
    fmt::print(stderr, "copied {} experts through transient slots\n", experts.streamed());
  if (stats.pre_evictions != 0)
    fmt::print(stderr, "freed {} slots ahead by {}\n", stats.pre_evictions,
               choice.policies.pre_eviction);
  if (!choice.link.empty()) {
    fmt::print(stderr, "over {}: waited {:.1f} ms, the link carried for {:.1f} ms\n", choice.link,
               static_cast<double>(experts.blocked()) * 1e-6,
               static_cast<double>(experts.link_busy()) * 1e-6);
  }
  if (!experts.is_exact())
    fmt::print(stderr, "not exact: {}, {}\n", choice.policies.miss, choice.policies.routing);
}

// One row per policy, one column per cache.
void print_hit_table(std::span<const verification_case> cases,
                     std::span<const verification_outcome> outcomes) {
  const auto is_plain = [](const verification_case& one) {
    return one.admission == "always" && one.max_tokens == 0 && one.prefetch == "no_prefetch" &&
           one.pre_eviction == "none" && one.stream == hotset::host_stream::mode::caller;
  };
  fmt::print(
      "hit rate of distinct experts, by policy and cache (slots, or share of the experts)\n");
  fmt::print("{:<20}", "");
  for (const auto& one : cases) {
    if (one.eviction != cases.front().eviction || !is_plain(one)) break;
    const auto scope = hotset::lab::name_of(one.scope);
    fmt::print(" {:>10}", one.budget == "4" ? fmt::format("{} 4", scope) : one.budget);
  }
  std::string row;
  for (std::size_t i = 0; i < cases.size() && is_plain(cases[i]); ++i) {
    if (cases[i].eviction != row) {
      row = cases[i].eviction;
      fmt::print("\n{:<20}", row);
    }
    fmt::print(" {:>8.1f} %", percent(outcomes[i].hits, outcomes[i].accesses));
  }
  fmt::print("\n");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (is_plain(cases[i])) continue;
    fmt::print("{}: {:.1f} % hits, {} uses from the host\n", cases[i].text(),
               percent(outcomes[i].hits, outcomes[i].accesses), outcomes[i].host_uses);
  }
}

}  // namespace

int generate(const options& chosen) {
  const model weights(chosen.model);
  const std::string prompt =
      chosen.prompt_file.empty() ? chosen.prompt : read_prompt(chosen.prompt_file);
  check_length(weights, prompt, chosen.tokens);
  resident_experts resident(weights);
  const auto choices = choices_of(chosen, "lfru");
  if (choices.size() > 1)
    throw hotset::lab::usage_error(
        fmt::format("{} choices of budget and policies, accepted here: one", choices.size()));
  chosen_paging paging;
  const routing_profile profile(weights, {prompt});
  if (!choices.empty()) paging = make_paging(weights, choices.front(), profile);
  expert_provider& experts =
      paging.experts ? static_cast<expert_provider&>(*paging.experts) : resident;
  engine decoder(weights, experts, {.max_tokens = chosen.max_tokens});
  if (paging.experts) {
    if (const auto warning = paging.experts->warning())
      fmt::print(stderr, "warning: {}\n", *warning);
  }

  const std::vector<std::uint8_t> tokens(prompt.begin(), prompt.end());
  const auto prefill_start = std::chrono::steady_clock::now();
  auto logits = prefill(decoder, tokens);
  const double prefill_seconds = seconds_since(prefill_start);

  std::string text = prompt;
  const auto decode_start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < chosen.tokens; ++i) {
    const auto token = static_cast<std::uint8_t>(largest(logits));
    text += static_cast<char>(token);
    if (i + 1 < chosen.tokens) logits = decoder.forward({&token, 1}, request_kind::decode);
  }
  const double decode_seconds = seconds_since(decode_start);

  text += '\n';
  hotset::lab::print(text);
  fmt::print(stderr, "prefill {} tokens, {:.0f} tokens/s\n", tokens.size(),
             static_cast<double>(tokens.size()) / prefill_seconds);
  if (chosen.tokens > 1) {
    // The prefill produced the first token.
    fmt::print(stderr, "decode {} tokens, {:.0f} tokens/s\n", chosen.tokens - 1,
               static_cast<double>(chosen.tokens - 1) / decode_seconds);
  }
  if (paging.experts) print_paging(*paging.experts, choices.front());
  return ok;
}

int check(const options& chosen) {
  const model weights(chosen.model);
  resident_experts experts(weights);
  const reference_tolerance tolerance;
  const auto report = check_reference(
      weights, experts,
      chosen.reference.empty() ? chosen.model / "reference.safetensors" : chosen.reference,
      tolerance);
  bool all = true;
  fmt::print("{:<12} {:>6} {:>10} {:>10} {:>10} {:>12} {:>10}\n", "prompt", "tokens", "logits",
             "weights", "router", "ids", "greedy");
  for (const auto& prompt : report) {
    const bool agrees = prompt.agrees(tolerance);
    all = all && agrees;
    fmt::print("{:<12} {:>6} {:>10.1e} {:>10.1e} {:>10.1e} {:>12} {:>10}{}\n", prompt.name,
               prompt.tokens, prompt.logits, prompt.weights, prompt.probabilities,
               fmt::format("{}/{}", prompt.ids - prompt.ids_differing, prompt.ids),
               fmt::format("{}/{}", prompt.greedy - prompt.greedy_differing, prompt.greedy),
               agrees ? "" : "  DIFFERS");
  }
  fmt::print("largest difference accepted: logits {:.0e}, weights {:.0e}, router {:.0e}\n",
             tolerance.logits, tolerance.weights, tolerance.probabilities);
  fmt::print("{}\n", all ? "agrees with the reference" : "differs from the reference");
  return all ? ok : failure;
}

int verify(const options& chosen) {
  const model weights(chosen.model);
  const verification full(weights, read_texts(chosen.prompts, chosen.model), chosen.tokens);
  const auto cases = exact_cases();
  const auto outcomes = full.compare_all(cases);
  std::size_t rows = 0;
  std::uint64_t split = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (const auto& first = outcomes[i].difference) {
      fmt::print("DIFFERS: {}: prompt {}, position {}, largest difference {:.1e}\n",
                 cases[i].text(), first->prompt, first->position, outcomes[i].largest);
      return failure;
    }
    rows += outcomes[i].rows;
    split += outcomes[i].split_visits;
  }
  print_hit_table(cases, outcomes);

  const verification_case by_expert{.scope = hotset::cache_scope::per_layer,
                                    .budget = "4",
                                    .split = hotset::visit_split::by_expert};
  const auto inexact = full.compare(by_expert);
  fmt::print("not exact, as it says: {}: largest difference of a logit {:.1e} in {} rows\n",
             by_expert.text(), inexact.largest, inexact.rows);
  fmt::print(
      "verified: {} runs, {} logits rows ({} visits larger than the cache), all byte-identical to "
      "full residency\n",
      cases.size(), rows, split);
  return ok;
}

int trace(const options& chosen) {
  const auto wants = [&](const char* what) {
    return std::find(chosen.with.begin(), chosen.with.end(), what) != chosen.with.end();
  };
  hotset::lab::output_file out(chosen.out, hotset::lab::output_content::binary);
  const model weights(chosen.model);
  const auto texts = read_texts(chosen.prompts, chosen.model);
  std::size_t capacity = 0;
  for (const auto& [name, text] : texts) {
    check_length(weights, text, chosen.tokens);
    capacity += text.size() + chosen.tokens - 1;
  }
  resident_experts resident(weights);
  tracing_experts tracing(weights, resident,
                          {.capacity = capacity,
                           .logits = wants("logits"),
                           .probabilities = wants("probabilities"),
                           .hidden = wants("hidden"),
                           .predictions = wants("predictions")});
  engine decoder(weights, tracing, {.max_tokens = chosen.max_tokens});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    tracing.begin_sequence(static_cast<std::uint32_t>(i));
    decoder.reset();
    const std::vector<std::uint8_t> prompt(texts[i].text.begin(), texts[i].text.end());
    auto logits = prefill(decoder, prompt);
    for (std::size_t t = 0; t + 1 < chosen.tokens; ++t) {
      const auto token = static_cast<std::uint8_t>(largest(logits));
      logits = decoder.forward({&token, 1}, request_kind::decode);
    }
  }
  const auto recorded = tracing.take();
  const auto bad = hotset::write_native_trace(recorded, out.writer());
  out.check();
  if (bad) throw std::runtime_error(bad->message);
  fmt::print(stderr, "{}: {} tokens of {} prompts, {} steps, {} layers\n", out.name(),
             recorded.tokens(), texts.size(), recorded.step.back() + 1, recorded.layers);
  return ok;
}

namespace {

/// Windows for `evaluate`, with as few positions as possible.
quality_config windows_of(const options& chosen) {
  return {.window = chosen.window, .prompt = chosen.prefill};
}

/// Measures all texts with one provider, each as a sequence of windows.
double measure_texts(const model& weights, expert_provider& experts,
                     std::span<const named_text> texts, const quality_config& windows) {
  quality sum;
  for (const auto& one : texts) {
    const std::vector<std::uint8_t> bytes(one.text.begin(), one.text.end());
    sum += measure_quality(weights, experts, bytes, windows);
  }
  return sum.bits_per_byte();
}

std::vector<named_text> texts_to_evaluate(const options& chosen) {
  auto texts = read_texts(chosen.prompts, chosen.model);
  if (chosen.limit != 0)
    for (auto& one : texts) one.text.resize(std::min(one.text.size(), chosen.limit));
  return texts;
}

/// Prints the quality; the simulator's table has everything else.
void print_quality(std::span<const hotset::lab::run_result> runs) {
  fmt::print("bits per byte at full precision: {:.4f}\n", *runs.front().full_bits_per_byte);
  for (const auto& run : runs) {
    const auto& p = run.policies;
    const double cost = *run.bits_per_byte - *run.full_bits_per_byte;
    fmt::print("{:.4f} ({:+.4f})  {}{}, {}, {}, {}, {} slots{}{}\n", *run.bits_per_byte, cost,
               p.preset.empty() ? "" : p.preset + ": ", p.eviction, p.prefetch, p.miss, p.routing,
               run.slots, run.precision.empty() ? "" : ", precision ", run.precision);
  }
}

}  // namespace

int evaluate(const options& chosen) {
  const hotset::lab::table_view view{.width = hotset::lab::output_width(),
                                     .columns = chosen.columns};
  hotset::lab::check_columns(view, hotset::lab::report_columns());
  const model weights(chosen.model);
  const auto texts = texts_to_evaluate(chosen);
  const routing_profile profile(weights, words_of(texts));
  const auto windows = windows_of(chosen);
  const auto choices = choices_of(chosen, "lru");

  resident_experts resident(weights);
  const double full = measure_texts(weights, resident, texts, windows);
  hotset::lab::sweep_result sweep;
  sweep.name = texts.size() == 1 ? texts.front().name : fmt::format("{} texts", texts.size());
  const auto shape = geometry_of(weights);
  sweep.layers = shape.layers;
  sweep.experts = shape.experts;
  sweep.top_k = shape.top_k;
  for (const auto& choice : choices) {
    const auto paging = make_paging(weights, choice, profile);
    const double bits = measure_texts(weights, *paging.experts, texts, windows);
    auto run = result_of(*paging.experts, choice);
    run.bits_per_byte = bits;
    run.full_bits_per_byte = full;
    sweep.visits = run.stats.visits;
    sweep.results.push_back(std::move(run));
  }
  for (const auto& one : texts) sweep.tokens += one.text.size();
  if (chosen.as_json) {
    fmt::print("{}", hotset::lab::to_json_text(std::span(&sweep, 1)));
    return ok;
  }
  fmt::print("{}", hotset::lab::to_table(sweep, view));
  print_quality(sweep.results);
  return ok;
}

int clock(const options& chosen) {
  const model weights(chosen.model);
  const auto texts = texts_to_evaluate(chosen);
  fmt::print("{:<44} {:>12} {:>12} {:>8} {:>12} {:>12}\n", "", "engine ms", "clock ms", "differs",
             "engine I/O", "clock I/O");
  for (const auto& choice : choices_of(chosen, "lru")) {
    const auto found = compare_with_clock(weights, choice, texts, chosen.tokens);
    fmt::print("{:<44} {:>12.1f} {:>12.1f} {:>+6.1f} % {:>12.1f} {:>12.1f}\n",
               fmt::format("{}, {}, {}, {}", choice.policies.eviction, choice.policies.prefetch,
                           choice.policies.miss, choice.budget),
               found.engine_blocked * 1e3, found.clock_blocked * 1e3, found.difference() * 100,
               found.engine_io * 1e3, found.clock_io * 1e3);
    fmt::print("{:<44} a visit {:.0f} us + {:.0f} us a token; {} and {} misses\n", "",
               found.visit * 1e6, found.token * 1e6, found.engine_misses, found.clock_misses);
  }
  return ok;
}

}  // namespace tiny_moe
