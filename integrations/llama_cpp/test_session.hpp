// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Contexts, paged or not, for the programs that compare them.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hotset_llama.h"
#include "model_run.hpp"

namespace hotset_llama_cpp {

namespace fs = std::filesystem;
using logits = std::vector<float>;
using tokens = std::vector<llama_token>;

/// Folder of the models.
inline fs::path folder;

inline std::string file_of(const std::string& name) { return (folder / name).string(); }

inline void require(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
inline void require_same(const logits& expected, const logits& found, const std::string& what) {
  require(!expected.empty() && expected.size() == found.size(), what + ": no outputs, or fewer");
  require(std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) == 0,
          what + ": other outputs");
}
/// Checks that the call is refused with these words.
inline void require_refused(const std::function<void()>& call, const std::string& words,
                            const std::string& what) {
  try {
    call();
  } catch (const std::runtime_error& e) {
    return require(std::string(e.what()).find(words) != std::string::npos,
                   what + ": \"" + e.what() + "\" does not say \"" + words + "\"");
  }
  throw std::runtime_error(what + ": accepted");
}

/// Pseudo-random tokens.
inline tokens text(std::size_t count, std::uint32_t seed) {
  tokens out(count);
  for (auto& t : out) {
    seed = seed * 1664525U + 1013904223U;
    t = static_cast<llama_token>(seed >> 24U);
  }
  return out;
}

inline model_handle load_path(const std::string& path, const llama_model_params& params) {
  model_handle out(llama_model_load_from_file(path.c_str(), params));
  require(out != nullptr, path + ": llama.cpp does not load it");
  return out;
}
inline model_handle load(const std::string& name, const llama_model_params& params) {
  return load_path(file_of(name), params);
}
inline llama_model_params on_processor() {
  auto out = llama_model_default_params();
  out.n_gpu_layers = 0;
  out.use_extra_bufts = false;
  return out;
}
inline model_handle load(const std::string& name) { return load(name, on_processor()); }

inline constexpr std::uint32_t micro_batch = 64;

inline llama_context_params parameters() {
  auto out = llama_context_default_params();
  out.n_ctx = 512;
  out.n_batch = out.n_ubatch = micro_batch;
  out.n_seq_max = 4;
  out.n_threads = out.n_threads_batch = 1;
  out.kv_unified = true;
  out.no_perf = true;
  return out;
}

struct paging_deleter {
  void operator()(hotset_llama* p) const { hotset_llama_destroy(p); }
};
using paging_handle = std::unique_ptr<hotset_llama, paging_deleter>;

inline void must(int code, const hotset_llama* paging) {
  require(code == 0, hotset_llama_error(paging));
}

struct paged {
  std::int32_t slots = 8;
  std::int32_t source = HOTSET_LLAMA_MAPPED;
  const char* prefetch = "none";
  const char* budget = nullptr;  ///< in place of slots
};
inline paging_handle make_paging(const std::string& path, const paged& how = {}) {
  hotset_llama_options o{};
  o.struct_size = sizeof o;
  o.model_path = path.c_str();
  o.slots = how.budget == nullptr ? how.slots : 0;
  o.budget = how.budget;
  o.source = how.source;
  o.prefetch = how.prefetch;
  paging_handle out(hotset_llama_create(&o));
  require(out != nullptr, "no memory");
  return out;
}

struct placed_token {
  llama_token token = 0;
  llama_pos position = 0;
  llama_seq_id sequence = 0;
};

inline void append(logits& out, const logits& more) {
  out.insert(out.end(), more.begin(), more.end());
}

/// A context, paged or not.
struct session {
  paging_handle paging{};  // before the context, so that it outlives it: both orders are allowed
  context_handle context{};
  std::int32_t next = 0;  ///< position of sequence 0

  explicit session(llama_model& model, const llama_context_params& params = parameters())
      : context(make_context(model, params)) {}
  session(llama_model& model, const std::string& path, const paged& how,
          llama_context_params params = parameters(),
          const std::function<void(session&)>& before_attach = {})
      : paging(make_paging(path, how)) {
    must(hotset_llama_prepare(paging.get(), &params), paging.get());
    context = make_context(model, params);
    if (before_attach) before_attach(*this);
    must(hotset_llama_attach(paging.get(), context.get()), paging.get());
  }

  /// Decodes tokens that continue each of these sequences; returns all outputs.
  logits decode(const tokens& text, std::int32_t sequences = 1) {
    std::vector<placed_token> batch;
    for (llama_seq_id s = 0; s < sequences; ++s)
      for (std::size_t i = 0; i < text.size(); ++i)
        batch.push_back({text[i], next + static_cast<std::int32_t>(i), s});
    auto out = decode_batch(batch);
    next += static_cast<std::int32_t>(text.size());
    return out;
  }
  /// Decodes one token of each sequence.
  logits decode_each(const tokens& next_tokens) {
    std::vector<placed_token> batch;
    for (std::size_t i = 0; i < next_tokens.size(); ++i)
      batch.push_back({next_tokens[i], next, static_cast<llama_seq_id>(i)});
    ++next;
    return decode_batch(batch);
  }
  logits decode_batch(const std::vector<placed_token>& placed) {
    const auto rows = static_cast<std::int32_t>(placed.size());
    auto batch = llama_batch_init(rows, 0, 1);
    batch.n_tokens = rows;
    for (std::size_t i = 0; i < placed.size(); ++i) {
      batch.token[i] = placed[i].token;
      batch.pos[i] = placed[i].position;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = placed[i].sequence;
      batch.logits[i] = 1;
    }
    const auto code = llama_decode(context.get(), batch);
    llama_synchronize(context.get());
    const auto served = paging == nullptr || hotset_llama_check(paging.get()) == 0;
    llama_batch_free(batch);
    if (!served) throw std::runtime_error(hotset_llama_error(paging.get()));
    require(code == 0, "llama_decode returned " + std::to_string(code));
    const auto width = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context.get())));
    logits out;
    for (std::int32_t i = 0; i < rows; ++i) {
      const auto* const row = llama_get_logits_ith(context.get(), i);
      out.insert(out.end(), row, row + width);
    }
    return out;
  }
  logits one_by_one(const tokens& text) {
    logits out;
    for (const auto t : text) append(out, decode({t}));
    return out;
  }
  /// A prompt with more experts than slots, then tokens one by one.
  logits generate(std::uint32_t seed, std::size_t count = 12) {
    auto out = decode(text(40, seed));
    append(out, one_by_one(text(count, seed + 1)));
    return out;
  }
  void forget() {
    llama_memory_clear(llama_get_memory(context.get()), true);
    next = 0;
  }
  [[nodiscard]] hotset_llama_stats stats() const {
    hotset_llama_stats out{};
    out.struct_size = sizeof out;
    require(hotset_llama_get_stats(paging.get(), &out) == 0, "no statistics");
    return out;
  }
};

using adapter_handle = std::unique_ptr<llama_adapter_lora, void (*)(llama_adapter_lora*)>;
inline adapter_handle load_adapter(llama_model& model, const std::string& name) {
  adapter_handle out(llama_adapter_lora_init(&model, file_of(name).c_str()),
                     [](llama_adapter_lora*) {});  // the model frees it
  require(out != nullptr, name + ": llama.cpp does not load it");
  return out;
}
inline void set_adapter(session& s, llama_adapter_lora* adapter) {
  float scale = 1;
  const auto code =
      llama_set_adapters_lora(s.context.get(), &adapter, adapter == nullptr ? 0 : 1, &scale);
  require(code == 0, "llama_set_adapters_lora returned " + std::to_string(code));
}

/// Deprecated, but llama.cpp still computes with it.
inline void set_warm_up(session& s, bool on) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  llama_set_warmup(s.context.get(), on);
#pragma GCC diagnostic pop
}
}  // namespace hotset_llama_cpp
