// SPDX-License-Identifier: Apache-2.0
#include "model_run.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>

#include "hotset/version.hpp"

namespace hotset_llama_cpp {

namespace {

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be read, accepted: a file");
  return {std::istreambuf_iterator<char>(in), {}};
}
double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A batch that owns its memory.
class batch_of {
 public:
  explicit batch_of(std::int32_t most) : held_(llama_batch_init(most, 0, 1)) {}
  batch_of(const batch_of&) = delete;
  batch_of& operator=(const batch_of&) = delete;
  ~batch_of() { llama_batch_free(held_); }
  void clear() { held_.n_tokens = 0; }
  /// Requests outputs of all tokens.
  void add(llama_token token, std::size_t position, std::int32_t sequence) {
    const auto i = held_.n_tokens++;
    held_.token[i] = token;
    held_.pos[i] = static_cast<llama_pos>(position);
    held_.n_seq_id[i] = 1;
    held_.seq_id[i][0] = sequence;
    held_.logits[i] = 1;
  }
  [[nodiscard]] const llama_batch& get() const { return held_; }

 private:
  llama_batch held_;
};

}  // namespace

void add_options(CLI::App& app, run_options& how) {
  app.set_version_flag("--version", "hotset " HOTSET_VERSION_TEXT);
  app.add_option("model", how.model, "GGUF file of a Mixture-of-Experts model")->required();
  auto* const prompt = app.add_option("-p,--prompt", how.prompt, "the prompt");
  auto* const file = app.add_option("-f,--file", how.prompt_file, "a file that holds the prompt")
                         ->excludes(prompt);
  app.add_option("--tokens", how.token_file,
                 "a file of int32 tokens, for a model without a vocabulary")
      ->excludes(prompt)
      ->excludes(file);
  app.add_option("-n,--predict", how.predict, "tokens to generate")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("-t,--threads", how.threads, "threads that compute")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("-c,--context", how.context, "tokens of the context")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--ubatch", how.micro_batch, "tokens computed together: a step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
}

model_handle load_model(const run_options& how) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_backend_init();
  auto params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = false;
  params.load_mode = LLAMA_LOAD_MODE_MMAP;
  model_handle out(llama_model_load_from_file(how.model.c_str(), params));
  if (!out)
    throw std::runtime_error(how.model + ": llama.cpp does not load it, accepted: a GGUF model");
  return out;
}

llama_context_params context_params(const run_options& how) {
  auto out = llama_context_default_params();
  out.n_ctx = static_cast<std::uint32_t>(how.context);
  out.n_seq_max = static_cast<std::uint32_t>(how.sequences);
  out.kv_unified = true;
  out.n_batch = out.n_ubatch = static_cast<std::uint32_t>(std::max(how.micro_batch, how.sequences));
  out.n_threads = out.n_threads_batch = how.threads;
  out.type_k = out.type_v = GGML_TYPE_F32;
  out.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  out.no_perf = true;
  return out;
}

context_handle make_context(llama_model& model, const llama_context_params& params) {
  context_handle out(llama_init_from_model(&model, params));
  if (!out)
    throw std::runtime_error("llama.cpp makes no context of " + std::to_string(params.n_ctx) +
                             " tokens");
  return out;
}

std::vector<llama_token> prompt_tokens(const llama_model& model, const run_options& how) {
  const auto* const vocabulary = llama_model_get_vocab(&model);
  std::vector<llama_token> out;
  if (!how.token_file.empty()) {
    const auto bytes = content_of(how.token_file);
    out.resize(bytes.size() / sizeof(llama_token));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(llama_token));
    for (const auto t : out)
      if (t < 0 || t >= llama_vocab_n_tokens(vocabulary))
        throw std::runtime_error(how.token_file + ": token " + std::to_string(t) +
                                 ", accepted: 0.." +
                                 std::to_string(llama_vocab_n_tokens(vocabulary) - 1));
  } else {
    if (llama_vocab_type(vocabulary) == LLAMA_VOCAB_TYPE_NONE)
      throw std::runtime_error(
          how.model + ": has no vocabulary, accepted: --tokens with a file of int32 tokens");
    const auto text = how.prompt_file.empty() ? how.prompt : content_of(how.prompt_file);
    out.resize(text.size() + 16);
    const auto count =
        llama_tokenize(vocabulary, text.data(), static_cast<std::int32_t>(text.size()), out.data(),
                       static_cast<std::int32_t>(out.size()), true, true);
    if (count < 0) throw std::runtime_error("the prompt cannot be cut into tokens");
    out.resize(static_cast<std::size_t>(count));
  }
  const auto sequences = static_cast<std::size_t>(how.sequences);
  if (out.size() < sequences)
    throw std::runtime_error("a prompt of " + std::to_string(out.size()) + " tokens, accepted: " +
                             std::to_string(sequences) + " or more, 1 for each sequence");
  if (out.size() + sequences * static_cast<std::size_t>(how.predict) >
      static_cast<std::size_t>(how.context))
    throw std::runtime_error(
        std::to_string(out.size()) + " tokens of prompt and " + std::to_string(how.predict) +
        " to generate for each of " + std::to_string(sequences) +
        " sequences, accepted: " + std::to_string(how.context) + " in all (--context)");
  return out;
}

std::string piece_of(const llama_model& model, llama_token token) {
  const auto* const vocabulary = llama_model_get_vocab(&model);
  if (llama_vocab_type(vocabulary) == LLAMA_VOCAB_TYPE_NONE) return {};
  std::array<char, 256> text{};
  const auto count = llama_token_to_piece(vocabulary, token, text.data(),
                                          static_cast<std::int32_t>(text.size()), 0, true);
  return {text.data(), static_cast<std::size_t>(std::max(0, count))};
}

void decode(llama_context& context, const llama_batch& batch) {
  const auto code = llama_decode(&context, batch);
  llama_synchronize(&context);
  if (code != 0) throw std::runtime_error("llama_decode failed with " + std::to_string(code));
}

namespace {

/// A run's state.
class completion {
 public:
  completion(llama_context& context, std::span<const llama_token> prompt, const run_options& how,
             bool keep_logits, const decode_call& decode)
      : context_(context),
        how_(how),
        decode_(decode),
        keep_logits_(keep_logits),
        width_(static_cast<std::size_t>(
            llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(&context))))),
        batch_(std::max(how.micro_batch, how.sequences)) {
    const auto parts = static_cast<std::size_t>(how.sequences);
    for (std::size_t s = 0; s < parts; ++s) {
      const auto first = prompt.size() * s / parts;
      prompts_.push_back(prompt.subspan(first, prompt.size() * (s + 1) / parts - first));
    }
    next_.resize(parts);
    out_.tokens.resize(parts);
  }

  void read_prompts() {
    for (std::size_t s = 0; s < prompts_.size(); ++s) {
      const auto most = static_cast<std::size_t>(how_.micro_batch);
      for (std::size_t at = 0; at < prompts_[s].size(); at += most) {
        batch_.clear();
        for (auto i = at; i < std::min(prompts_[s].size(), at + most); ++i)
          batch_.add(prompts_[s][i], i, static_cast<std::int32_t>(s));
        decode();
        next_[s] = likeliest(batch_.get().n_tokens - 1);
      }
    }
  }
  /// A token of every sequence.
  void generate_one() {
    batch_.clear();
    for (std::size_t s = 0; s < next_.size(); ++s) {
      batch_.add(next_[s], prompts_[s].size() + out_.tokens[s].size(),
                 static_cast<std::int32_t>(s));
      out_.tokens[s].push_back(next_[s]);
    }
    decode();
    for (std::size_t s = 0; s < next_.size(); ++s)
      next_[s] = likeliest(static_cast<std::int32_t>(s));
  }
  [[nodiscard]] const std::vector<llama_token>& next() const { return next_; }
  [[nodiscard]] run_outcome& out() { return out_; }

 private:
  void decode() {
    decode_(batch_.get());
    for (std::int32_t i = 0; keep_logits_ && i < batch_.get().n_tokens; ++i) {
      const auto* const row = llama_get_logits_ith(&context_, i);
      out_.logits.emplace_back(row, row + width_);
    }
  }
  [[nodiscard]] llama_token likeliest(std::int32_t row) const {
    const auto* const logits = llama_get_logits_ith(&context_, row);
    return static_cast<llama_token>(std::max_element(logits, logits + width_) - logits);
  }

  llama_context& context_;
  const run_options& how_;
  const decode_call& decode_;
  bool keep_logits_;
  std::size_t width_;
  batch_of batch_;
  std::vector<std::span<const llama_token>> prompts_;  ///< [sequences]
  std::vector<llama_token> next_;                      ///< [sequences]
  run_outcome out_;
};

}  // namespace

run_outcome run(llama_context& context, const std::vector<llama_token>& prompt,
                const run_options& how, bool keep_logits, const decode_call& decode,
                const std::function<void(llama_token)>& take) {
  completion c(context, prompt, how, keep_logits, decode);
  const auto begin = std::chrono::steady_clock::now();
  c.read_prompts();
  c.out().prompt_seconds = seconds_since(begin);
  const auto middle = std::chrono::steady_clock::now();
  for (std::int32_t n = 0; n < how.predict; ++n) {
    if (how.sequences == 1) take(c.next().front());
    c.generate_one();
  }
  c.out().generate_seconds = seconds_since(middle);
  if (how.sequences != 1)
    for (const auto& tokens : c.out().tokens)
      for (const auto token : tokens) take(token);
  return c.out();
}

}  // namespace hotset_llama_cpp
