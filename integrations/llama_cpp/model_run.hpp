// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A llama.cpp model and context for the programs: loaded so that experts can be paged, fed with tokens or text.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "llama.h"

namespace hotset_llama_cpp {

struct model_deleter {
  void operator()(llama_model* m) const { llama_model_free(m); }
};
struct context_deleter {
  void operator()(llama_context* c) const { llama_free(c); }
};
using model_handle = std::unique_ptr<llama_model, model_deleter>;
using context_handle = std::unique_ptr<llama_context, context_deleter>;

/// Options of a run.
struct run_options {
  std::string model;
  std::string prompt;         ///< text, or
  std::string prompt_file;    ///< a file of text, or
  std::string token_file;     ///< a file of int32 tokens, for models without a vocabulary
  std::int32_t predict = 32;  ///< tokens to generate
  std::int32_t threads = 1;
  std::int32_t context = 2048;  ///< tokens
  std::int32_t micro_batch = 512;
  std::int32_t sequences = 1;  ///< the prompt's parts, completed side by side
};

/// Adds the model and the options of both programs.
void add_options(CLI::App& app, run_options& how);

/// Loads from the system's mapping of the file, without repacking. Errors: throws std::runtime_error with one line.
[[nodiscard]] model_handle load_model(const run_options& how);
/// Parameters without flash attention and with F32 caches, so that a run is repeatable bit for bit.
[[nodiscard]] llama_context_params context_params(const run_options& how);
[[nodiscard]] context_handle make_context(llama_model& model, const llama_context_params& params);
/// Errors: throws std::runtime_error: an unreadable file, a missing vocabulary, more tokens than the context holds.
[[nodiscard]] std::vector<llama_token> prompt_tokens(const llama_model& model,
                                                     const run_options& how);
/// Returns an empty text for a model without a vocabulary.
[[nodiscard]] std::string piece_of(const llama_model& model, llama_token token);

/// Decodes a batch. Errors: throws std::runtime_error with one line.
using decode_call = std::function<void(llama_batch batch)>;
/// Decodes by llama.cpp and waits for the outputs. Errors: throws std::runtime_error.
void decode(llama_context& context, const llama_batch& batch);

/// Result of a run.
struct run_outcome {
  std::vector<std::vector<llama_token>> tokens;  ///< [sequences] generated
  std::vector<std::vector<float>>
      logits;  ///< logits of every token, prompt and generated; empty unless kept
  double prompt_seconds = 0;
  double generate_seconds = 0;
};
/// Feeds the prompt in micro-batches, then generates greedily, a token of every sequence at a time. Calls `take` for
/// each new token.
[[nodiscard]] run_outcome run(llama_context& context, const std::vector<llama_token>& prompt,
                              const run_options& how, bool keep_logits, const decode_call& decode,
                              const std::function<void(llama_token)>& take);

}  // namespace hotset_llama_cpp
