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
#include "lab/sizes.hpp"
#include "model_run.hpp"

namespace {

using namespace hotset_llama_cpp;

struct paging_deleter {
  void operator()(hotset_llama* p) const { hotset_llama_destroy(p); }
};
using paging_handle = std::unique_ptr<hotset_llama, paging_deleter>;

struct paging_choice {
  std::string budget;
  std::int32_t slots = 0;
  std::string eviction = "similar_steps";
  std::string prefetch = "none";
  std::string source = "mapped";
  std::int32_t readers = 1;
  std::string overflow = "pass";
  bool verify = false;
  bool plain = false;
};

void require(bool ok, const hotset_llama* paging) {
  if (!ok) throw std::runtime_error(hotset_llama_error(paging));
}

/// Tokens of each part in which a run was decoded.
using run_parts = std::vector<std::int32_t>;

llama_batch part_of(const llama_batch& whole, std::int32_t first, std::int32_t count) {
  auto out = whole;
  out.n_tokens = count;
  out.token += first;
  out.pos += first;
  out.n_seq_id += first;
  out.seq_id += first;
  out.logits += first;
  return out;
}
/// Runs without paging; in the given parts, if any.
run_outcome run_plain(const run_options& how, const std::vector<llama_token>& prompt,
                      llama_model& model, const run_parts& parts,
                      const std::function<void(llama_token)>& told) {
  const auto context = make_context(model, context_params(how));
  auto next = parts.begin();
  return run(
      *context, prompt, how, !parts.empty(),
      [&](llama_batch batch, const decode_part& decoded) {
        for (std::int32_t first = 0; first < batch.n_tokens;) {
          const auto count = next == parts.end() ? batch.n_tokens - first : *next++;
          const auto code = llama_decode(context.get(), part_of(batch, first, count));
          if (code != 0)
            throw std::runtime_error("llama_decode failed with " + std::to_string(code));
          decoded(first, count);
          first += count;
        }
      },
      told);
}

hotset_llama_options options_of(const run_options& how, const paging_choice& choice) {
  hotset_llama_options out{};
  out.struct_size = sizeof out;
  out.model_path = how.model.c_str();
  out.budget_bytes = choice.budget.empty() ? 0 : hotset::lab::read_size(choice.budget);
  out.slots = choice.slots;
  out.source = choice.source == "read"     ? HOTSET_LLAMA_READ
               : choice.source == "direct" ? HOTSET_LLAMA_DIRECT
               : choice.source == "uring"  ? HOTSET_LLAMA_URING
                                           : HOTSET_LLAMA_MAPPED;
  out.threads = choice.readers;
  out.max_tokens = how.micro_batch;
  out.eviction = choice.eviction.c_str();
  out.prefetch = choice.prefetch.c_str();
  out.overflow = choice.overflow == "halve" ? HOTSET_LLAMA_HALVE : HOTSET_LLAMA_PASS;
  return out;
}

void print_stats(const hotset_llama* paging, const run_outcome& out, std::size_t prompt) {
  hotset_llama_stats s{};
  s.struct_size = sizeof s;
  const bool told = paging != nullptr && hotset_llama_get_stats(paging, &s) == 0;
  if (told && s.slot_bytes == 0)
    std::fprintf(stderr, "experts: all %d of each of %d layers have room: nothing is copied\n",
                 s.experts, s.layers);
  else if (told)
    std::fprintf(
        stderr,
        "experts: %d of %d in slots of each of %d layers (%.1f MiB); %.2f %% hits of "
        "%llu, %.1f MiB copied, %llu copies ahead used, "
        "%llu batches halved, %llu visits past the slots\n",
        s.slots, s.experts, s.layers, static_cast<double>(s.slot_bytes) / (1 << 20),
        s.accesses == 0 ? 0.0
                        : 100.0 * static_cast<double>(s.hits) / static_cast<double>(s.accesses),
        static_cast<unsigned long long>(s.accesses),
        static_cast<double>(s.bytes_filled) / (1 << 20),
        static_cast<unsigned long long>(s.prefetch_hits), static_cast<unsigned long long>(s.halved),
        static_cast<unsigned long long>(s.passed));
  std::fprintf(stderr, "prompt: %zu tokens, %.2f tokens/s; generated: %zu tokens, %.2f tokens/s\n",
               prompt, static_cast<double>(prompt) / out.prompt_seconds, out.tokens.size(),
               static_cast<double>(out.tokens.size()) / out.generate_seconds);
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

/// A batch whose visits may bypass the slots is decoded by llama.cpp itself, as in a server. A batch that may have to
/// be halved is decoded by hotset.
void decode_paged(hotset_llama* paging, llama_context* context, bool may_pass, llama_batch batch,
                  decode_part told) {
  if (!may_pass) {
    const auto tell = [](void* user, std::int32_t first, std::int32_t count) {
      (*static_cast<const decode_part*>(user))(first, count);
    };
    return require(hotset_llama_decode(paging, batch, tell, &told) == 0, paging);
  }
  const auto code = llama_decode(context, batch);
  llama_synchronize(context);
  require(hotset_llama_check(paging) == 0, paging);
  if (code != 0) throw std::runtime_error("llama_decode failed with " + std::to_string(code));
  told(0, batch.n_tokens);
}

/// Runs with paging; `parts`: receives the parts.
run_outcome run_paged(const run_options& how, const paging_choice& choice,
                      const std::vector<llama_token>& prompt, llama_model& model,
                      const std::function<void(llama_token)>& told, run_parts& parts) {
  const auto options = options_of(how, choice);
  const paging_handle paging(hotset_llama_create(&options));
  if (!paging) throw std::runtime_error("no memory");
  auto params = context_params(how);
  require(hotset_llama_prepare(paging.get(), &params) == 0, paging.get());
  const auto context = make_context(model, params);
  require(hotset_llama_attach(paging.get(), context.get()) == 0, paging.get());
  auto out = run(
      *context, prompt, how, choice.verify,
      [&](llama_batch batch, const decode_part& decoded) {
        decode_paged(paging.get(), context.get(), options.overflow == HOTSET_LLAMA_PASS, batch,
                     [&](std::int32_t first, std::int32_t count) {
                       parts.push_back(count);
                       decoded(first, count);
                     });
      },
      told);
  std::fputs("\n", stdout);
  print_stats(paging.get(), out, prompt.size());
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
    const auto out = run_plain(how, prompt, *model, {}, show);
    std::fputs("\n", stdout);
    print_stats(nullptr, out, prompt.size());
    return 0;
  }
  run_parts parts;
  const auto paged = run_paged(how, choice, prompt, *model, show, parts);
  if (!choice.verify) return 0;
  const auto plain = run_plain(how, prompt, *model, parts, [](llama_token) {});
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
  auto* const budget =
      app.add_option("--expert-budget", choice.budget, "bytes of all slots, such as 6GiB");
  app.add_option("--slots", choice.slots, "slots of each layer")
      ->check(CLI::PositiveNumber)
      ->excludes(budget);
  app.add_option("--eviction", choice.eviction, "eviction policy, as of hotset simulate")
      ->capture_default_str();
  app.add_option("--prefetch", choice.prefetch,
                 "prefetch policy, by the predictor similar-steps, or none")
      ->capture_default_str();
  app.add_option(
         "--source", choice.source,
         "where experts are copied from: mapped (llama.cpp's mapping of the file), read, direct, "
         "uring (direct reads by io_uring)")
      ->check(CLI::IsMember({"mapped", "read", "direct", "uring"}))
      ->capture_default_str();
  app.add_option("--overflow", choice.overflow,
                 "where tokens that are computed together route more experts than there are slots: "
                 "pass (the layer is computed with the model's own weights), halve (fewer tokens "
                 "at a time)")
      ->check(CLI::IsMember({"pass", "halve"}))
      ->capture_default_str();
  app.add_option("--readers", choice.readers, "threads that copy")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_flag(
      "--verify", choice.verify,
      "then run the model without paging, in the same parts, and compare all outputs byte by byte");
  app.add_flag("--plain", choice.plain, "without paging, for comparison");
  try {
    app.parse(argc, argv);
    if (!choice.plain && choice.budget.empty() && choice.slots == 0)
      throw CLI::RequiredError("--expert-budget or --slots");
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
