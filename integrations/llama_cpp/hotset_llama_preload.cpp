// SPDX-License-Identifier: Apache-2.0
/// libhotset_llama_preload.so pages the experts of an unmodified program that is linked to libllama.so:
///
///   LD_PRELOAD=libhotset_llama_preload.so HOTSET_LLAMA_BUDGET=50% llama-server -m model.gguf
///
/// It defines the functions of llama.h that load models, make contexts and compute. Each of them calls llama.cpp's own.
/// Every context of a Mixture-of-Experts model has slots of its own. Contexts that do not generate (embeddings, a
/// draft by the model's own layers) and models without experts run as without it; a line says so. If experts cannot be
/// paged, the program gets no context, and a line gives the reason.
///
///   HOTSET_LLAMA_BUDGET    all slots of a context: 6GiB, 50% of the experts, auto (default)
///   HOTSET_LLAMA_SOURCE    source of copies: auto (default), mapped, read, direct, uring
///   HOTSET_LLAMA_THREADS   reading threads, 1 to 256 (2)
///   HOTSET_LLAMA_EVICTION  eviction policy (similar_steps)
///   HOTSET_LLAMA_PREFETCH  prefetch policy, or none (next_layer_top_k)
///   HOTSET_LLAMA_METRICS   address that shows metrics to Prometheus, such as 127.0.0.1:9100 (none)
///   HOTSET_LLAMA_TIMELINE  file for a timeline, as Chrome trace events for Perfetto (none)
///   HOTSET_LLAMA_STATS     1: hits and copies of a context when it ends

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <dlfcn.h>

#include "gguf.h"
#include "hotset_llama.h"

namespace {

void say(const std::string& text) { std::fprintf(stderr, "hotset: %s\n", text.c_str()); }

/// llama.cpp's own function. Ends the process if there is none: the caller could not go on.
template <class Function>
Function* original(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    say(std::string(name) +
        " is in no library that the program is linked to, accepted: a program that is linked to "
        "libllama.so");
    std::exit(1);
  }
  return reinterpret_cast<Function*>(found);
}
#define HOTSET_ORIGINAL(name) static auto* const original_##name = original<decltype(name)>(#name)

struct settings {
  std::optional<std::string> budget, eviction, prefetch, metrics, timeline;
  std::int32_t source = HOTSET_LLAMA_AUTO;
  std::int32_t threads = 0;
  bool stats = false;
  std::string error;  ///< empty: all variables are valid

  settings()
      : budget(variable("HOTSET_LLAMA_BUDGET")),
        eviction(variable("HOTSET_LLAMA_EVICTION")),
        prefetch(variable("HOTSET_LLAMA_PREFETCH")),
        metrics(variable("HOTSET_LLAMA_METRICS")),
        timeline(variable("HOTSET_LLAMA_TIMELINE")) {
    if (const auto text = variable("HOTSET_LLAMA_SOURCE")) read_source(*text);
    if (const auto text = variable("HOTSET_LLAMA_THREADS")) read_threads(*text);
    if (const auto text = variable("HOTSET_LLAMA_STATS")) read_stats(*text);
  }

 private:
  static std::optional<std::string> variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? std::nullopt : std::optional<std::string>(text);
  }
  void refuse(const char* name, const std::string& text, const char* accepted) {
    error = std::string(name) + " = '" + text + "', accepted: " + accepted;
  }
  void read_source(const std::string& text) {
    constexpr std::array<std::string_view, 5> names = {"auto", "mapped", "read", "direct", "uring"};
    static_assert(HOTSET_LLAMA_AUTO == 0 && HOTSET_LLAMA_URING == names.size() - 1);
    const auto found = std::ranges::find(names, text);
    if (found == names.end())
      return refuse("HOTSET_LLAMA_SOURCE", text, "auto, mapped, read, direct, uring");
    source = static_cast<std::int32_t>(found - names.begin());
  }
  void read_threads(const std::string& text) {
    const auto* const end = text.data() + text.size();
    const auto [stop, bad] = std::from_chars(text.data(), end, threads);
    if (bad != std::errc() || stop != end || threads < 1 || threads > 256)
      refuse("HOTSET_LLAMA_THREADS", text, "1..256");
  }
  void read_stats(const std::string& text) {
    if (text != "0" && text != "1") return refuse("HOTSET_LLAMA_STATS", text, "0, 1");
    stats = text == "1";
  }
};
/// Never destroyed: at_end runs after the destructors of static objects.
const settings& chosen() {
  static const auto& out = *new settings;
  return out;
}

struct paging_deleter {
  void operator()(hotset_llama* p) const { hotset_llama_destroy(p); }
};
using paging_handle = std::unique_ptr<hotset_llama, paging_deleter>;

/// The right to the metrics and the timeline, which one context of the process has at a time.
class view_right {
 public:
  view_right() : is_held_((chosen().metrics || chosen().timeline) && !taken().exchange(true)) {}
  view_right(view_right&& other) noexcept : is_held_(std::exchange(other.is_held_, false)) {}
  view_right& operator=(view_right&& other) noexcept {
    std::swap(is_held_, other.is_held_);
    return *this;
  }
  view_right(const view_right&) = delete;
  view_right& operator=(const view_right&) = delete;
  ~view_right() {
    if (is_held_) taken() = false;
  }
  [[nodiscard]] bool is_held() const { return is_held_; }
  /// Whether another context has it.
  [[nodiscard]] bool is_elsewhere() const {
    return !is_held_ && (chosen().metrics || chosen().timeline);
  }

 private:
  static std::atomic<bool>& taken() {
    static std::atomic<bool> out = false;
    return out;
  }
  bool is_held_;
};

struct loaded_model {
  std::string path;
  bool computes = true;  ///< false: only its vocabulary or its sizes were loaded
};
struct paged_context {
  const llama_model* model = nullptr;
  std::string path;
  view_right view;  ///< given back after the paging has ended
  paging_handle paging;
};

/// Models and paged contexts of the process.
class registry {
 public:
  void add(const llama_model* model, loaded_model about) {
    const std::lock_guard lock(mutex_);
    models_[model] = std::move(about);
  }
  void add(const llama_context* context, paged_context about) {
    const std::lock_guard lock(mutex_);
    paged_once_ = true;
    contexts_[context] = std::move(about);
  }
  [[nodiscard]] std::optional<loaded_model> find(const llama_model* model) const {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    return found == models_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Null: the context is not paged.
  [[nodiscard]] hotset_llama* paging_of(const llama_context* context) const {
    const std::lock_guard lock(mutex_);
    const auto found = contexts_.find(context);
    return found == contexts_.end() ? nullptr : found->second.paging.get();
  }
  /// The caller ends the paging, outside the lock.
  [[nodiscard]] std::optional<paged_context> remove(const llama_context* context) {
    const std::lock_guard lock(mutex_);
    auto node = contexts_.extract(context);
    return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
  }
  /// A context of the model that is still paged, or null.
  [[nodiscard]] const llama_context* context_of(const llama_model* model) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        contexts_, [&](const auto& entry) { return entry.second.model == model; });
    return found == contexts_.end() ? nullptr : found->first;
  }
  void remove(const llama_model* model) {
    const std::lock_guard lock(mutex_);
    models_.erase(model);
  }
  template <class Call>
  void each_context(Call call) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [context, about] : contexts_) call(about);
  }
  [[nodiscard]] bool paged_once() const {
    const std::lock_guard lock(mutex_);
    return paged_once_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const llama_model*, loaded_model> models_;
  std::unordered_map<const llama_context*, paged_context> contexts_;
  bool paged_once_ = false;
};
/// Never destroyed: threads of the program may outlive static objects.
registry& known() {
  static auto& out = *new registry;
  return out;
}

void print_stats(const paged_context& of) {
  hotset_llama_stats s{};
  s.struct_size = sizeof s;
  if (!chosen().stats || of.paging == nullptr || hotset_llama_get_stats(of.paging.get(), &s) != 0)
    return;
  const auto hits =
      s.accesses == 0 ? 0.0 : 100.0 * static_cast<double>(s.hits) / static_cast<double>(s.accesses);
  std::fprintf(
      stderr,
      "hotset: %s: %d of %d experts in slots of each of %d layers; %.2f %% hits of %llu, "
      "%.1f MiB copied, %llu experts in spare slots, %llu visits with the model's own weights\n",
      of.path.c_str(), s.slots, s.experts, s.layers, hits,
      static_cast<unsigned long long>(s.accesses), static_cast<double>(s.bytes_filled) / (1 << 20),
      static_cast<unsigned long long>(s.spared), static_cast<unsigned long long>(s.passed));
}
/// Statistics of contexts that the program did not free, for example because it called exit.
[[gnu::destructor]] void at_end() {
  if (!chosen().stats) return;
  if (!known().paged_once()) say("no experts were paged in this process");
  known().each_context(print_stats);
}

/// Parameters are passed by value, so their layout must be the one of the headers.
bool is_supported() {
  if (!chosen().error.empty()) {
    say(chosen().error);
    return false;
  }
  const auto running = std::string("llama.cpp ") + llama_version() + ", ggml " + ggml_version();
  if (running == hotset_llama_built_for()) return true;
  say("the program runs " + running + ", accepted: " + hotset_llama_built_for() +
      ", for which this library was built");
  return false;
}

/// By the metadata of a file that is not loaded yet. False if it is no GGUF file: llama.cpp reports that.
bool has_experts(const char* path) {
  const std::unique_ptr<gguf_context, void (*)(gguf_context*)> file(
      gguf_init_from_file(path, {.no_alloc = true, .ctx = nullptr}),
      [](gguf_context* f) { gguf_free(f); });
  if (file == nullptr) return false;
  const auto name = gguf_find_key(file.get(), "general.architecture");
  if (name < 0 || gguf_get_kv_type(file.get(), name) != GGUF_TYPE_STRING) return false;
  const auto key = std::string(gguf_get_val_str(file.get(), name)) + ".expert_count";
  const auto count = gguf_find_key(file.get(), key.c_str());
  return count >= 0 && gguf_get_kv_type(file.get(), count) == GGUF_TYPE_UINT32 &&
         gguf_get_val_u32(file.get(), count) > 0;
}
bool has_experts(const llama_model* model) {
  std::array<char, 128> text{};
  if (llama_model_meta_val_str(model, "general.architecture", text.data(), text.size()) < 0)
    return false;
  const auto key = std::string(text.data()) + ".expert_count";
  return llama_model_meta_val_str(model, key.c_str(), text.data(), text.size()) > 0 &&
         std::strcmp(text.data(), "0") != 0;
}

template <class Load>
llama_model* load_model(const char* path, llama_model_params params, Load load) {
  if (!is_supported()) return nullptr;
  // A repacked expert is not the file's, so it could not be copied into a slot.
  if (has_experts(path)) params.use_extra_bufts = false;
  auto* const out = load(params);
  if (out != nullptr) known().add(out, {path, !params.vocab_only && !params.no_alloc});
  return out;
}

/// Reason why a context runs without paging, or null.
const char* why_plain(const llama_model* model, const llama_context_params& params) {
  if (!has_experts(model)) return "the model has no experts";
  if (params.embeddings) return "the context computes embeddings";
  if (params.ctx_type != LLAMA_CONTEXT_TYPE_DEFAULT || params.ctx_other != nullptr)
    return "the context belongs to another one";
  return nullptr;
}

hotset_llama_options options_for(const std::string& path, bool has_view) {
  const auto text = [](const std::optional<std::string>& t) { return t ? t->c_str() : nullptr; };
  hotset_llama_options out{};
  out.struct_size = sizeof out;
  out.model_path = path.c_str();
  out.budget = text(chosen().budget);
  out.source = chosen().source;
  out.threads = chosen().threads;
  out.eviction = text(chosen().eviction);
  out.prefetch = text(chosen().prefetch);
  if (!has_view) return out;
  out.metrics = text(chosen().metrics);
  out.timeline = text(chosen().timeline);
  return out;
}

llama_context* refuse(const std::string& path, const char* why) {
  say(path + " is not paged: " + why);
  return nullptr;
}

template <class Make>
llama_context* make_paged(const llama_model* model, const std::string& path,
                          llama_context_params params, Make make) {
  view_right view;
  const auto options = options_for(path, view.is_held());
  paging_handle paging(hotset_llama_create(&options));
  if (paging == nullptr) return refuse(path, "no memory");
  if (hotset_llama_prepare(paging.get(), &params) != 0)
    return refuse(path, hotset_llama_error(paging.get()));
  auto* const context = make(params);
  if (context == nullptr) return nullptr;
  if (hotset_llama_attach(paging.get(), context) != 0) {
    refuse(path, hotset_llama_error(paging.get()));
    paging.reset();
    llama_free(context);
    return nullptr;
  }
  say(path + ": " + hotset_llama_describe(paging.get()));
  if (view.is_elsewhere())
    say(path + ": no metrics and no timeline, another context of this process has them");
  known().add(context, {model, path, std::move(view), std::move(paging)});
  return context;
}

/// Result of a computation after its experts were checked.
std::int32_t checked(llama_context* context, std::int32_t code) {
  auto* const paging = known().paging_of(context);
  if (paging == nullptr) return code;
  llama_synchronize(context);
  constexpr std::int32_t fatal_error = -3;  // below -1, see llama_decode
  if (hotset_llama_check(paging) != 0) {
    say(hotset_llama_error(paging));
    return fatal_error;
  }
  if (const char* const warning = hotset_llama_warning(paging)) say(warning);
  return code;
}

void end_paging(const llama_context* context) {
  if (const auto ended = known().remove(context)) print_stats(*ended);
}

}  // namespace

// The deprecated functions call the others, which a library linked with -Bsymbolic-functions would not.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

extern "C" {

llama_model* llama_model_load_from_file(const char* path, llama_model_params params) {
  HOTSET_ORIGINAL(llama_model_load_from_file);
  return load_model(path, params, [&](const llama_model_params& with) {
    return original_llama_model_load_from_file(path, with);
  });
}
llama_model* llama_load_model_from_file(const char* path, llama_model_params params) {
  return llama_model_load_from_file(path, params);
}
llama_model* llama_model_load_from_splits(const char** paths, size_t count,
                                          llama_model_params params) {
  HOTSET_ORIGINAL(llama_model_load_from_splits);
  if (count == 0) return original_llama_model_load_from_splits(paths, count, params);
  return load_model(paths[0], params, [&](const llama_model_params& with) {
    return original_llama_model_load_from_splits(paths, count, with);
  });
}

llama_context* llama_init_from_model(llama_model* model, llama_context_params params) {
  HOTSET_ORIGINAL(llama_init_from_model);
  const auto about = known().find(model);
  if (model == nullptr || (about && !about->computes))
    return original_llama_init_from_model(model, params);
  const auto path = about ? about->path : std::string("a model");
  if (const char* const why = why_plain(model, params)) {
    say(path + " runs without paging: " + why);
    return original_llama_init_from_model(model, params);
  }
  if (!about)
    return refuse(path, "it was not loaded by its path, accepted: llama_model_load_from_file");
  return make_paged(model, path, params, [&](const llama_context_params& with) {
    return original_llama_init_from_model(model, with);
  });
}
llama_context* llama_new_context_with_model(llama_model* model, llama_context_params params) {
  return llama_init_from_model(model, params);
}

int32_t llama_decode(llama_context* context, llama_batch batch) {
  HOTSET_ORIGINAL(llama_decode);
  return checked(context, original_llama_decode(context, batch));
}
int32_t llama_encode(llama_context* context, llama_batch batch) {
  HOTSET_ORIGINAL(llama_encode);
  return checked(context, original_llama_encode(context, batch));
}
int32_t llama_process(llama_context* context, llama_process_type type, llama_batch_ext* batch) {
  HOTSET_ORIGINAL(llama_process);
  return checked(context, original_llama_process(context, type, batch));
}

void llama_free(llama_context* context) {
  HOTSET_ORIGINAL(llama_free);
  end_paging(context);
  original_llama_free(context);
}
void llama_model_free(llama_model* model) {
  HOTSET_ORIGINAL(llama_model_free);
  // Copies from the model's mapping must end first. The program may free its contexts later, or never.
  while (const auto* const context = known().context_of(model)) end_paging(context);
  known().remove(model);
  original_llama_model_free(model);
}
void llama_free_model(llama_model* model) { llama_model_free(model); }

}  // extern "C"
