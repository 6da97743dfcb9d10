// SPDX-License-Identifier: Apache-2.0
/// hotset-llama-matrix: compares paged contexts with plain ones bit for bit: models of every shape in every type, with
/// every feature of llama.cpp, with experts from every source. Prints one line per group.
///     hotset-llama-matrix <folder of shapes.py> [shape]

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "graph_nodes.hpp"
#include "hotset/core/router_scores.hpp"
#include "hotset/lab/expert_files.hpp"
#include "router_tap.hpp"
#include "test_session.hpp"

namespace {

using namespace hotset;
using namespace hotset_llama_cpp;

/// Files of shapes.py.
constexpr std::array shapes = {"mixtral", "qwen3moe",   "qwen3moe-scales", "qwen2moe",
                               "olmoe",   "gpt-oss",    "deepseek2",       "deepseek2-fused",
                               "llama4",  "granitemoe", "phimoe",          "hunyuan-fused",
                               "dots1"};

struct quantisation {
  const char* name;
  llama_ftype type;
};
constexpr quantisation usual = {"Q4_K_M", LLAMA_FTYPE_MOSTLY_Q4_K_M};
constexpr std::array types = {usual,
                              quantisation{"Q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
                              quantisation{"MXFP4_MOE", LLAMA_FTYPE_MOSTLY_MXFP4_MOE},
                              quantisation{"IQ4_NL", LLAMA_FTYPE_MOSTLY_IQ4_NL},
                              quantisation{"IQ4_XS", LLAMA_FTYPE_MOSTLY_IQ4_XS},
                              quantisation{"Q6_K", LLAMA_FTYPE_MOSTLY_Q6_K},
                              quantisation{"Q2_K", LLAMA_FTYPE_MOSTLY_Q2_K},
                              quantisation{"Q5_K_M", LLAMA_FTYPE_MOSTLY_Q5_K_M},
                              quantisation{"BF16", LLAMA_FTYPE_MOSTLY_BF16},
                              quantisation{"TQ1_0", LLAMA_FTYPE_MOSTLY_TQ1_0}};

struct source {
  const char* name;
  std::int32_t number;
};
/// Besides the mapping.
constexpr std::array sources = {source{"read", HOTSET_LLAMA_READ},
                                source{"direct", HOTSET_LLAMA_DIRECT},
                                source{"uring", HOTSET_LLAMA_URING}};

/// llama.cpp itself does not have the combination.
struct not_in_llama : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Differences from parameters().
struct setup {
  llama_flash_attn_type flash = LLAMA_FLASH_ATTN_TYPE_AUTO;
  ggml_type cache = GGML_TYPE_F16;
  bool unified = true;
  std::uint32_t tokens_together = micro_batch;
  std::int32_t threads = 1;

  auto operator<=>(const setup&) const = default;
  [[nodiscard]] llama_context_params parameters() const {
    auto out = hotset_llama_cpp::parameters();
    out.flash_attn_type = flash;
    out.type_k = out.type_v = cache;
    out.kv_unified = unified;
    out.n_ubatch = tokens_together;
    out.n_threads = out.n_threads_batch = threads;
    return out;
  }
};

/// A model of a shape in a type.
struct subject {
  std::string name;
  std::string path;
  model_handle model;
  adapter_handle adapter;

  subject(std::string called, const std::string& shape, std::string file)
      : name(std::move(called)),
        path(std::move(file)),
        model(load_path(path, on_processor())),
        adapter(load_adapter(*model, shape + "-lora.gguf")) {}
};

/// Decodes with a context; returns its outputs.
using scenario = logits (*)(session&, subject&);
using step = void (*)(session&, subject&);

struct feature {
  std::string name;
  scenario play;
  setup context{};
  paged paging{.slots = 12};
  step before_attach = nullptr;
  bool in_parts = false;  ///< from a model in three files
};

llama_memory_t memory_of(session& s) { return llama_get_memory(s.context.get()); }

/// The first prompt passes the slots and fills them; the next one needs spare slots.
logits two_prompts(session& s) {
  auto out = s.decode(text(24, 90));
  append(out, s.decode(text(40, 91)));
  return out;
}

logits turns(session& s, subject&) {
  logits out;
  std::uint32_t seed = 0;
  for (const auto& [asked, answered] : {std::pair{24, 6}, std::pair{9, 4}, std::pair{50, 6}}) {
    append(out, s.decode(text(static_cast<std::size_t>(asked), ++seed)));
    append(out, s.one_by_one(text(static_cast<std::size_t>(answered), ++seed)));
  }
  return out;
}

/// Two threads wait for each other by spinning: slow while another process computes.
logits few_tokens(session& s, subject&) {
  auto out = two_prompts(s);
  append(out, s.one_by_one(text(3, 1)));
  return out;
}

/// Prompts of different lengths, then one token of each sequence at a time.
logits four_sequences(session& s, subject&) {
  logits out;
  std::array<llama_pos, 4> ends{};
  for (llama_seq_id q = 0; q < 4; ++q) {
    std::vector<placed_token> prompt;
    for (const auto t : text(5 + 6 * static_cast<std::size_t>(q), static_cast<std::uint32_t>(q)))
      prompt.push_back({t, ends[static_cast<std::size_t>(q)]++, q});
    append(out, s.decode_batch(prompt));
  }
  for (std::uint32_t n = 0; n < 8; ++n) {
    std::vector<placed_token> batch;
    const auto next = text(4, 50 + n);
    for (std::size_t q = 0; q < 4; ++q)
      batch.push_back({next[q], ends[q]++, static_cast<llama_seq_id>(q)});
    append(out, s.decode_batch(batch));
  }
  s.next = ends[0];
  append(out, s.one_by_one(text(6, 60)));
  return out;
}

logits context_shift(session& s, subject&) {
  if (!llama_memory_can_shift(memory_of(s))) throw not_in_llama("its memory does not shift");
  auto out = two_prompts(s);
  append(out, s.one_by_one(text(6, 1)));
  require(llama_memory_seq_rm(memory_of(s), 0, 10, 30), "seq_rm");
  llama_memory_seq_add(memory_of(s), 0, 30, -1, -20);
  s.next -= 20;
  append(out, s.one_by_one(text(8, 9)));
  return out;
}

/// Six guessed tokens at a time, of which two stay.
logits speculation(session& s, subject&) {
  auto out = s.decode(text(30, 1));
  for (std::uint32_t n = 0; n < 6; ++n) {
    append(out, s.decode(text(6, 10 + n)));
    s.next -= 4;
    require(llama_memory_seq_rm(memory_of(s), 0, s.next, -1), "seq_rm");
  }
  append(out, s.one_by_one(text(6, 20)));
  return out;
}

logits save_and_restore(session& s, subject&) {
  auto out = two_prompts(s);
  const auto saved_at = s.next;
  std::vector<std::uint8_t> state(llama_state_get_size(s.context.get()));
  const auto bytes = llama_state_get_data(s.context.get(), state.data(), state.size());
  append(out, s.one_by_one(text(6, 2)));
  require(llama_state_set_data(s.context.get(), state.data(), bytes) == bytes, "set_data");
  s.next = saved_at;
  append(out, s.one_by_one(text(6, 3)));
  return out;
}

logits warm_up_first(session& s, subject& on) {
  set_warm_up(s, true);
  auto out = s.decode(text(3, 7));
  set_warm_up(s, false);
  s.forget();
  append(out, turns(s, on));
  return out;
}

void add_adapter(session& s, subject& on) { set_adapter(s, on.adapter.get()); }
logits adapter_for_a_while(session& s, subject& on) {
  auto out = s.generate(1, 4);
  add_adapter(s, on);
  append(out, s.generate(2, 4));
  set_adapter(s, nullptr);
  append(out, s.generate(3, 4));
  return out;
}

/// Two contexts of the model by turns.
logits two_contexts(session& s, session& other) {
  auto out = two_prompts(s);
  append(out, two_prompts(other));
  for (const auto t : text(6, 3)) {
    append(out, s.decode({t}));
    append(out, other.decode({t}));
  }
  return out;
}
logits beside_a_plain_context(session& s, subject& on) {
  session other(*on.model);
  return two_contexts(s, other);
}
logits beside_a_paged_context(session& s, subject& on) {
  if (!s.paging) return beside_a_plain_context(s, on);
  session other(*on.model, on.path, {.slots = 6});
  return two_contexts(s, other);
}

constexpr auto flash_on = LLAMA_FLASH_ATTN_TYPE_ENABLED;
const std::vector<feature> features = {
    {.name = "flash attention auto", .play = turns},
    {.name = "flash attention on", .play = turns, .context = {.flash = flash_on}},
    {.name = "flash attention off",
     .play = turns,
     .context = {.flash = LLAMA_FLASH_ATTN_TYPE_DISABLED}},
    {.name = "cache F32", .play = turns, .context = {.cache = GGML_TYPE_F32}},
    {.name = "cache Q8_0", .play = turns, .context = {.flash = flash_on, .cache = GGML_TYPE_Q8_0}},
    {.name = "cache Q4_0", .play = turns, .context = {.flash = flash_on, .cache = GGML_TYPE_Q4_0}},
    {.name = "four sequences", .play = four_sequences},
    {.name = "four sequences, each with its cache",
     .play = four_sequences,
     .context = {.unified = false}},
    {.name = "context shift", .play = context_shift},
    {.name = "speculation, rolled back", .play = speculation},
    {.name = "state saved and restored", .play = save_and_restore},
    {.name = "warm-up", .play = warm_up_first},
    {.name = "adapter set before attach", .play = turns, .before_attach = add_adapter},
    {.name = "adapter set and removed after attach", .play = adapter_for_a_while},
    {.name = "beside a plain context", .play = beside_a_plain_context},
    {.name = "beside a paged context", .play = beside_a_paged_context},
    {.name = "model in three files", .play = turns, .in_parts = true},
    {.name = "micro-batches of 1", .play = turns, .context = {.tokens_together = 1}},
    {.name = "micro-batches of 16", .play = turns, .context = {.tokens_together = 16}},
    {.name = "two threads", .play = few_tokens, .context = {.threads = 2}},
    {.name = "4 slots, no spare ones", .play = turns, .paging = {.slots = 4}},
    {.name = "8 slots, no spare ones", .play = turns, .paging = {.slots = 8}},
    {.name = "15 slots", .play = turns, .paging = {.slots = 15}},
    {.name = "budget of 90%", .play = turns, .paging = {.budget = "90%"}},
    {.name = "source chosen by itself",
     .play = turns,
     .paging = {.slots = 12, .source = HOTSET_LLAMA_AUTO}},
    {.name = "prefetch", .play = turns, .paging = {.slots = 12, .prefetch = "next_layer_top_k"}},
};

/// Outputs of plain contexts of one subject. Rows that differ in their paging share them.
class expected_outputs {
 public:
  explicit expected_outputs(subject& of) : of_(of) {}
  const logits& operator()(const feature& f) {
    const auto key = std::tuple(f.play, f.before_attach, f.context);
    if (const auto found = outputs_.find(key); found != outputs_.end()) return found->second;
    return outputs_.emplace(key, compute(f)).first->second;
  }

 private:
  logits compute(const feature& f) {
    std::optional<session> s;
    try {
      s.emplace(*of_.model, f.context.parameters());
    } catch (const std::runtime_error& e) {
      throw not_in_llama(e.what());
    }
    if (f.before_attach != nullptr) f.before_attach(*s, of_);
    return f.play(*s, of_);
  }

  subject& of_;
  std::map<std::tuple<scenario, step, setup>, logits> outputs_;
};

void compare(subject& on, expected_outputs& plain, const feature& f) {
  const auto& expected = plain(f);
  session s(*on.model, on.path, f.paging, f.context.parameters(), [&](session& made) {
    if (f.before_attach != nullptr) f.before_attach(made, on);
  });
  require_same(expected, f.play(s, on), "paged");
  const auto stats = s.stats();
  require(stats.hits > 0, "nothing was paged");
  require(stats.spares == 0 || stats.spared > 0 || f.context.tokens_together == 1,
          "spare slots were not used");
  require(stats.spares > 0 || stats.passed > 0, "the mapping computed no layer");
  if (f.before_attach != nullptr)
    require(expected != plain({.name = f.name, .play = f.play, .context = f.context}),
            "it changes nothing");
}

/// Counts rows; reports them as one line.
class group {
 public:
  explicit group(std::string name, const char* result = "byte-identical")
      : name_(std::move(name)), result_(result) {}
  void row(const std::string& name, const std::function<void()>& run) {
    try {
      run();
      ++same_;
    } catch (const not_in_llama& e) {
      left_out_[e.what()].push_back(name);
    } catch (const std::exception& e) {
      std::printf("FAILED: %s: %s\n", name.c_str(), e.what());
      std::fflush(stdout);
      ++failed_;
    }
  }
  /// Returns whether no row differed.
  bool report() const {
    for (const auto& [why, rows] : left_out_)
      std::printf("left out, %zu rows: %s (%s%s)\n", rows.size(), why.c_str(), rows.front().c_str(),
                  rows.size() > 1 ? ", ..." : "");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
    std::printf("%s: %s: %zu rows %s, %.1f s (%.1f s of processor time)\n",
                failed_ == 0 && same_ > 0 ? "ok" : "FAILED", name_.c_str(), same_, result_,
                took.count(), static_cast<double>(std::clock() - begin_clock_) / CLOCKS_PER_SEC);
    std::fflush(stdout);
    return failed_ == 0 && same_ > 0;
  }

 private:
  std::string name_;
  const char* result_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::clock_t begin_clock_ = std::clock();
  std::size_t same_ = 0;
  std::size_t failed_ = 0;
  std::map<std::string, std::vector<std::string>> left_out_;
};

/// A quantised copy of a file, or of a model in parts. Removed at the end.
class quantised_file {
 public:
  quantised_file(const std::string& from, const quantisation& q)
      : prefix_(file_of("quantised")), in_parts_(from.ends_with(parts_end)) {
    auto params = llama_model_quantize_default_params();
    params.nthread = 1;
    params.ftype = q.type;
    params.keep_split = in_parts_;
    const auto to = in_parts_ ? prefix_ : path();
    require(llama_model_quantize(file_of(from).c_str(), to.c_str(), &params) == 0,
            from + ": llama.cpp does not quantise it");
  }
  quantised_file(const quantised_file&) = delete;
  quantised_file& operator=(const quantised_file&) = delete;
  ~quantised_file() {
    for (const auto* const end :
         {".gguf", "-00001-of-00003.gguf", "-00002-of-00003.gguf", "-00003-of-00003.gguf"})
      fs::remove(prefix_ + end);
  }
  [[nodiscard]] std::string path() const { return prefix_ + (in_parts_ ? parts_end : ".gguf"); }

 private:
  static constexpr const char* parts_end = "-00001-of-00003.gguf";
  std::string prefix_;
  bool in_parts_;
};

/// Selected shapes: all, or the one given.
using shape_list = std::vector<std::string>;

bool every_type(const shape_list& of) {
  group g(std::to_string(of.size()) + " shapes x " + std::to_string(types.size()) +
          " types, from the mapping and by reads");
  const std::array ways = {
      feature{.name = "5 slots, mapped", .play = turns, .paging = {.slots = 5}},
      feature{.name = "12 slots, read",
              .play = turns,
              .paging = {.slots = 12, .source = HOTSET_LLAMA_READ}}};
  for (const auto& shape : of)
    for (const auto& type : types) {
      const quantised_file file(shape + ".gguf", type);
      subject on(shape + ", " + type.name, shape, file.path());
      expected_outputs plain(on);
      for (const auto& way : ways)
        g.row(on.name + ", " + way.name, [&] { compare(on, plain, way); });
    }
  return g.report();
}

/// Rows of a shape, of the whole model first: both use one file name.
void compare_all(group& g, const std::string& shape, const std::vector<feature>& rows) {
  for (const bool in_parts : {false, true}) {
    const quantised_file file(shape + (in_parts ? "-parts-00001-of-00003.gguf" : ".gguf"), usual);
    subject on(shape, shape, file.path());
    expected_outputs plain(on);
    for (const auto& f : rows)
      if (f.in_parts == in_parts) g.row(shape + ", " + f.name, [&] { compare(on, plain, f); });
  }
}

bool every_feature(const shape_list& of) {
  group g(std::to_string(of.size()) + " shapes x " + std::to_string(features.size()) +
          " features in " + usual.name);
  for (const auto& shape : of) compare_all(g, shape, features);
  return g.report();
}

/// Sources that this folder's file system and this build support.
std::vector<source> usable_sources(const std::string& shape) {
  std::vector<source> out;
  const auto path = file_of(shape + ".gguf");
  const auto model = load_path(path, on_processor());
  for (const auto& s : sources) {
    try {
      session(*model, path, {.source = s.number});
      out.push_back(s);
    } catch (const std::runtime_error& e) {
      const std::string why = e.what();
      const bool is_known = std::ranges::any_of(
          std::array{"accepted: cached ones", "accepted: plain reads", "built with liburing"},
          [&](const char* words) { return why.find(words) != std::string::npos; });
      if (!is_known) throw;
      std::printf("left out: experts by %s: %s\n", s.name, why.c_str());
    }
  }
  return out;
}
bool every_source(const std::string& shape) {
  const auto from = usable_sources(shape);
  std::vector<feature> rows;
  for (const auto& f : features)
    for (const auto& s : from) {
      if (f.paging.source == HOTSET_LLAMA_AUTO) continue;
      auto& row = rows.emplace_back(f);
      row.name += std::string(", ") + s.name;
      row.paging.source = s.number;
    }
  group g(shape + " x " + std::to_string(from.size()) + " sources x " +
          std::to_string(rows.size() / std::max<std::size_t>(1, from.size())) + " features");
  compare_all(g, shape, rows);
  return g.report();
}

/// Attaches to a model whose weights llama.cpp repacked, where the processor has kernels for that.
void repacked_weights(const std::string& shape) {
  const quantised_file file(shape + ".gguf", usual);
  auto params = on_processor();
  params.use_extra_bufts = true;
  const auto model = load_path(file.path(), params);
  std::optional<session> s;
  try {
    s.emplace(*model, file.path(), paged{});
  } catch (const std::runtime_error& e) {
    return require(
        std::string(e.what()).find("is not in host memory as the file has it") != std::string::npos,
        e.what());
  }
  session plain(*model);
  require_same(plain.generate(1), s->generate(1), "not repacked");
}
bool every_refusal(const shape_list& of) {
  group g(std::to_string(of.size()) + " shapes, repacked, and with the file of another",
          "refused in words");
  for (std::size_t i = 0; i < of.size(); ++i) {
    const std::string other = of.size() > 1        ? of[(i + 1) % of.size()]
                              : of[i] == shapes[0] ? shapes[1]
                                                   : shapes[0];
    g.row(of[i] + ", repacked", [&] { repacked_weights(of[i]); });
    g.row(of[i] + ", the file of " + other, [&] {
      const auto model = load(of[i] + ".gguf");
      require_refused(
          [&] { session(*model, file_of(other + ".gguf"), {.source = HOTSET_LLAMA_READ}); },
          "accepted: the file that the model was loaded from", "another model");
    });
  }
  return g.report();
}

/// Routers of a context, and the experts that they choose.
struct watched_routers {
  lab::expert_files files;
  router_tap tap;
  std::map<std::int32_t, std::vector<std::int32_t>> chosen{};  ///< by the model's layer

  explicit watched_routers(const std::string& path)
      : files(lab::find_experts(path)), tap(files.layers) {}
  static bool on_node(ggml_tensor* node, bool ask, void* self) {
    auto& of = *static_cast<watched_routers*>(self);
    const bool is_logits = of.tap.see(*node, ask);
    const auto layer = chosen_of(*node);
    if (layer && !ask) copy_rows(*node, of.files.shape.top_k, of.chosen[*layer]);
    return is_logits || layer || !ask;
  }
};

/// Product of a router's weight and an input, plus its bias.
logits product_of(const router& of, std::span<const float> input, std::size_t experts) {
  logits out;
  for (std::size_t e = 0; e < experts; ++e)
    out.push_back(std::inner_product(input.begin(), input.end(), &of.weight[e * input.size()],
                                     of.bias.empty() ? 0.0F : of.bias[e]));
  return out;
}
void require_near(std::span<const float> expected, std::span<const float> found,
                  const std::string& what) {
  require(std::ranges::equal(expected, found,
                             [](float a, float b) { return std::abs(a - b) <= 1e-4F; }),
          what);
}

/// Checks one token of a layer. Pre: the rows are within the router's.
void check_scores(const watched_routers& of, std::size_t layer, std::size_t token) {
  const auto& shape = of.files.shape;
  const auto& r = of.tap.routers()[layer];
  const auto experts = shape.expert_count();
  const auto row = std::span(r.logits).subspan(token * experts, experts);
  const auto width = static_cast<std::size_t>(r.width(shape.experts));
  require_near(row, product_of(r, std::span(r.input).subspan(token * width, width), experts),
               "logits are not the product of weight and input");
  logits ranks(experts);
  router_scores(shape, r.scores).likely(row, r.selection_bias, ranks);
  std::vector<std::int32_t> best(experts);
  std::iota(best.begin(), best.end(), 0);
  std::ranges::stable_sort(best, std::greater<>(),
                           [&](std::int32_t e) { return ranks[static_cast<std::size_t>(e)]; });
  const auto& ids = of.chosen.at(static_cast<std::int32_t>(of.files.layers[layer]));
  const auto k = shape.ranks();
  require(std::ranges::equal(std::span(best).first(k), std::span(ids).subspan(token * k, k)),
          "the greatest scores are not those of the chosen experts");
}
/// Checks the first layer's predictions of the second.
void check_predictions(const watched_routers& of, std::size_t tokens) {
  auto shape = of.files.shape;
  shape.max_tokens_per_visit = static_cast<std::int32_t>(tokens);
  const auto& routers = of.tap.routers();
  const auto experts = shape.expert_count();
  const auto& input = routers[0].input;
  const auto found = next_layer_scores(shape, routers, 1).expect(layer_id{0}, input);
  router_scores scores(shape, routers[1].scores);
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto width = input.size() / tokens;
    auto row = product_of(routers[1], std::span(input).subspan(t * width, width), experts);
    scores.likely(row, routers[1].selection_bias, row);
    require_near(row, std::span(found).subspan(t * experts, experts),
                 "predictions are not the next router's scores");
  }
}

bool every_router(const shape_list& of) {
  group g(std::to_string(of.size()) + " shapes, recorded scores",
          "with the chosen experts' scores greatest");
  constexpr std::size_t tokens_read = 24;
  for (const auto& shape : of)
    g.row(shape, [&] {
      watched_routers watched(file_of(shape + ".gguf"));
      const auto model = load(shape + ".gguf");
      auto params = parameters();
      params.cb_eval = watched_routers::on_node;
      params.cb_eval_user_data = &watched;
      session s(*model, params);
      (void)s.decode(text(tokens_read, 1));
      if (const auto bad = watched.tap.check()) throw std::runtime_error(bad->message);
      for (std::size_t l = 0; l < watched.tap.routers().size(); ++l)
        for (std::size_t t = 0; t < tokens_read; ++t) check_scores(watched, l, t);
      check_predictions(watched, tokens_read);
    });
  return g.report();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: hotset-llama-matrix <folder of shapes.py> [shape]\n");
    return 2;
  }
  folder = argv[1];
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_backend_init();
  const auto of = argc > 2 ? shape_list{argv[2]} : shape_list(shapes.begin(), shapes.end());
  try {
    const bool typed = every_type(of);
    const bool featured = every_feature(of);
    const bool sourced = every_source(of.size() > 1 ? "qwen3moe" : of.front());
    const bool refused = every_refusal(of);
    const bool routed = every_router(of);
    return typed && featured && sourced && refused && routed ? 0 : 1;
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}
