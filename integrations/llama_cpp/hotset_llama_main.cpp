// SPDX-License-Identifier: Apache-2.0
/// hotset-llama: a completion by llama.cpp with paged experts.

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "hotset_llama.h"
#include "model_run.hpp"

namespace {

using namespace hotset_llama_cpp;

struct paging_deleter {
  void operator()(hotset_llama* p) const { hotset_llama_destroy(p); }
};
using paging_handle = std::unique_ptr<hotset_llama, paging_deleter>;

struct paging_choice {
  std::string budget = "auto";
  std::int32_t slots = 0;
  std::string eviction = "similar_steps";
  std::string prefetch = "next_layer_top_k";
  std::string source = "auto";
  std::int32_t readers = 2;
  std::string metrics{};
  std::string timeline{};
  bool verify = false;
  bool plain = false;
};

void require(bool ok, const hotset_llama* paging) {
  if (!ok) throw std::runtime_error(hotset_llama_error(paging));
}

run_outcome run_plain(const run_options& how, const std::vector<llama_token>& prompt,
                      llama_model& model, bool keep_logits,
                      const std::function<void(llama_token)>& told) {
  const auto context = make_context(model, context_params(how));
  return run(
      *context, prompt, how, keep_logits,
      [&](const llama_batch& batch) { decode(*context, batch); }, told);
}

std::int32_t source_of(const std::string& name) {
  return name == "mapped"   ? HOTSET_LLAMA_MAPPED
         : name == "read"   ? HOTSET_LLAMA_READ
         : name == "direct" ? HOTSET_LLAMA_DIRECT
         : name == "uring"  ? HOTSET_LLAMA_URING
                            : HOTSET_LLAMA_AUTO;
}

hotset_llama_options options_of(const run_options& how, const paging_choice& choice) {
  hotset_llama_options out{};
  out.struct_size = sizeof out;
  out.model_path = how.model.c_str();
  out.budget = choice.slots == 0 ? choice.budget.c_str() : nullptr;
  out.slots = choice.slots;
  out.source = source_of(choice.source);
  out.threads = choice.readers;
  out.eviction = choice.eviction.c_str();
  out.prefetch = choice.prefetch.c_str();
  out.metrics = choice.metrics.empty() ? nullptr : choice.metrics.c_str();
  out.timeline = choice.timeline.empty() ? nullptr : choice.timeline.c_str();
  return out;
}

void print_paging(hotset_llama* paging) {
  hotset_llama_stats s{};
  s.struct_size = sizeof s;
  require(hotset_llama_get_stats(paging, &s) == 0, paging);
  std::fprintf(stderr, "experts: %s\n", hotset_llama_describe(paging));
  if (s.slot_bytes != 0)
    std::fprintf(
        stderr,
        "visits: %.2f %% hits of %llu experts, %.1f MiB copied, %llu prefetches used, %llu experts "
        "in spare slots, %llu visits past the slots\n",
        s.accesses == 0 ? 0.0
                        : 100.0 * static_cast<double>(s.hits) / static_cast<double>(s.accesses),
        static_cast<unsigned long long>(s.accesses),
        static_cast<double>(s.bytes_filled) / (1 << 20),
        static_cast<unsigned long long>(s.prefetch_hits), static_cast<unsigned long long>(s.spared),
        static_cast<unsigned long long>(s.passed));
  if (const auto* const warning = hotset_llama_warning(paging); warning != nullptr)
    std::fprintf(stderr, "warning: %s\n", warning);
}
void print_speed(const run_outcome& out, std::size_t prompt) {
  const auto generated = out.tokens.size() * out.tokens.front().size();
  std::fprintf(stderr, "prompt: %zu tokens, %.2f tokens/s; generated: %zu tokens, %.2f tokens/s\n",
               prompt, static_cast<double>(prompt) / out.prompt_seconds, generated,
               static_cast<double>(generated) / out.generate_seconds);
}

/// First difference between two runs; empty if there is none.
std::string difference(const run_outcome& a, const run_outcome& b) {
  if (a.logits.size() != b.logits.size()) return "another number of outputs";
  for (std::size_t t = 0; t < a.logits.size(); ++t)
    if (a.logits[t].size() != b.logits[t].size() ||
        std::memcmp(a.logits[t].data(), b.logits[t].data(), a.logits[t].size() * sizeof(float)) !=
            0)
      return "the outputs of token " + std::to_string(t);
  return a.tokens == b.tokens ? "" : "the tokens";
}

run_outcome run_paged(const run_options& how, const paging_choice& choice,
                      const std::vector<llama_token>& prompt, llama_model& model,
                      const std::function<void(llama_token)>& told) {
  const auto options = options_of(how, choice);
  const paging_handle paging(hotset_llama_create(&options));
  if (!paging) throw std::runtime_error("no memory");
  auto params = context_params(how);
  require(hotset_llama_prepare(paging.get(), &params) == 0, paging.get());
  const auto context = make_context(model, params);
  require(hotset_llama_attach(paging.get(), context.get()) == 0, paging.get());
  if (!choice.metrics.empty())  // before the run: a scraper needs the port
    std::fprintf(stderr, "experts: %s\n", hotset_llama_describe(paging.get()));
  auto out = run(
      *context, prompt, how, choice.verify,
      [&](const llama_batch& batch) {
        const auto code = llama_decode(context.get(), batch);
        llama_synchronize(context.get());
        require(hotset_llama_check(paging.get()) == 0, paging.get());
        if (code != 0) throw std::runtime_error("llama_decode failed with " + std::to_string(code));
      },
      told);
  std::fputs("\n", stdout);
  std::fflush(stdout);  // before the lines on stderr, also if both go to one pipe
  print_paging(paging.get());
  print_speed(out, prompt.size());
  return out;
}

int complete(const run_options& how, const paging_choice& choice) {
  const auto model = load_model(how);
  const auto prompt = prompt_tokens(*model, how);
  const auto show = [&](llama_token t) {
    const auto text = piece_of(*model, t);
    std::fputs((text.empty() ? std::to_string(t) + " " : text).c_str(), stdout);
    std::fflush(stdout);
  };
  if (choice.plain) {
    const auto out = run_plain(how, prompt, *model, false, show);
    std::fputs("\n", stdout);
    print_speed(out, prompt.size());
    return 0;
  }
  const auto paged = run_paged(how, choice, prompt, *model, show);
  if (!choice.verify) return 0;
  const auto plain = run_plain(how, prompt, *model, true, [](llama_token) {});
  const auto bad = difference(plain, paged);
  std::fprintf(stderr, "verify: %s\n",
               bad.empty()
                   ? ("byte-identical, " + std::to_string(paged.logits.size()) + " outputs").c_str()
                   : ("NOT identical: " + bad).c_str());
  return bad.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  run_options how;
  paging_choice choice;
  CLI::App app("Completes a prompt by llama.cpp, its experts paged.");
  add_options(app, how);
  app.add_option("--sequences", how.sequences,
                 "parts into which the prompt is cut, completed side by side")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  auto* const budget =
      app.add_option("--expert-budget", choice.budget,
                     "memory of all slots: 6GiB, 50% of all experts, or auto: what the machine and "
                     "the cgroup leave")
          ->capture_default_str();
  app.add_option("--slots", choice.slots, "slots of each layer")
      ->check(CLI::PositiveNumber)
      ->excludes(budget);
  app.add_option("--eviction", choice.eviction, "eviction policy, as of hotset simulate")
      ->capture_default_str();
  app.add_option("--prefetch", choice.prefetch,
                 "prefetch policy, by the predictor similar-steps, or none")
      ->capture_default_str();
  app.add_option("--source", choice.source,
                 "where experts are copied from: mapped (llama.cpp's mapping of the file), read, "
                 "direct, uring (direct reads by io_uring), or auto: mapped if the whole model has "
                 "room in memory, otherwise past the system's cache")
      ->check(CLI::IsMember({"auto", "mapped", "read", "direct", "uring"}))
      ->capture_default_str();
  app.add_option("--readers", choice.readers, "threads that copy")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--metrics", choice.metrics,
                 "address that shows metrics to Prometheus, such as 127.0.0.1:9100 (port 0: any "
                 "free port)");
  app.add_option("--timeline", choice.timeline,
                 "write a timeline for Perfetto, as Chrome trace events");
  app.add_flag("--verify", choice.verify,
               "then run the model without paging, and compare all outputs byte by byte");
  auto* const plain = app.add_flag("--plain", choice.plain, "without paging, for comparison");
  for (const auto* paged : {"--expert-budget", "--slots", "--eviction", "--prefetch", "--source",
                            "--readers", "--metrics", "--timeline", "--verify"})
    plain->excludes(paged);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    return complete(how, choice);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hotset-llama: %s\n", e.what());
    return 1;
  }
}
