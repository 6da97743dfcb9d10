// SPDX-License-Identifier: Apache-2.0
/// The paging of a llama.cpp context: its callback, and the weights that it takes the place of.

#include "hotset_llama.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "expert_weights.hpp"
#include "graph_nodes.hpp"
#include "hotset/sim/models/expert_files.hpp"
#include "paged_experts.hpp"

namespace {

using namespace hotset;
using namespace hotset_llama_cpp;

/// A part of a batch, as a batch of its own.
llama_batch part_of(const llama_batch& whole, std::int32_t first, std::int32_t count) {
  const auto at = [first](auto* p) { return p == nullptr ? nullptr : p + first; };
  llama_batch out = whole;
  out.n_tokens = count;
  out.token = at(whole.token);
  out.pos = at(whole.pos);
  out.n_seq_id = at(whole.n_seq_id);
  out.seq_id = at(whole.seq_id);
  out.logits = at(whole.logits);
  return out;
}

}  // namespace

/// The handle that C sees.
struct hotset_llama {
  explicit hotset_llama(const hotset_llama_options& o) : options(o) {
    for (const auto** text : {&options.model_path, &options.eviction, &options.prefetch})
      keep(text);
  }
  ~hotset_llama() {
    rest();
    give_back();
  }
  /// Nothing is computed any more with what the last visit named.
  void rest() const {
    if (experts) experts->rest();
  }

  bool refuse(std::string why) {
    error = std::move(why);
    return false;
  }

  bool attach(llama_context* of) {
    if (options.struct_size < sizeof(hotset_llama_options))
      return refuse("options.struct_size is too small");
    if (context != nullptr) return refuse("a context is attached already, accepted: one at a time");
    if (!prepared)
      return refuse("the context's parameters were not prepared (hotset_llama_prepare)");
    if (options.overflow != HOTSET_LLAMA_PASS && options.overflow != HOTSET_LLAMA_HALVE)
      return refuse("overflow = " + std::to_string(options.overflow) + ", accepted: 0 or 1");
    if (options.model_path == nullptr)
      return refuse("no model_path, accepted: the GGUF file of the model");
    context = of;
    if (find_weights() && take_place()) return true;
    context = nullptr;
    experts.reset();
    give_back();
    return false;
  }

  /// A decode of one token shows every weight; nothing of it stays.
  bool find_weights() {
    finder = weight_finder();
    looking = true;
    llama_token token = 0;
    const auto failed = llama_decode(context, llama_batch_get_one(&token, 1));
    llama_synchronize(context);
    looking = false;
    llama_memory_clear(llama_get_memory(context), true);
    if (failed != 0) return refuse("the decode of one token failed with " + std::to_string(failed));
    if (const auto bad = finder.check()) return refuse(bad->message);
    return true;
  }

  bool take_place() {
    try {
      files = sim::find_experts(options.model_path);
    } catch (const std::exception& e) {
      return refuse(e.what());
    }
    if (!match()) return false;
    const auto asked = slots_asked_for(files, options);
    if (!asked) return refuse(asked.error().message);
    if (auto bad = check_policies(files, options)) return refuse(bad->message);
    if (*asked == files.shape.experts && options.source == HOTSET_LLAMA_MAPPED) {
      slots.slots = *asked;  // the mapping is their place
      return true;
    }
    auto memory = take_slots(files, *asked);
    if (!memory) return refuse(memory.error().message);
    slots = *std::move(memory);
    auto made = make_paged_experts(files, slots, weights, options);
    if (!made) return refuse(made.error().message);
    experts = *std::move(made);
    for (const auto l : each<layer_id>(files.shape.layers)) use_slots(l);
    return true;
  }

  /// That the running model's weights are the file's.
  bool match() {
    weights.clear();
    for (std::size_t l = 0; l < files.layers.size(); ++l) {
      const auto layer = static_cast<std::int32_t>(files.layers[l]);
      const auto found = finder.layers().find(layer);
      const auto& layout = files.layouts[index_of(files.shape.size_classes()[l])];
      auto& of_layer = weights.emplace_back();
      for (const auto& t : layout.tensors) {
        const auto what = "blk." + std::to_string(layer) + "." + t.name;
        if (found == finder.layers().end() || !found->second.contains(t.name))
          return refuse(what +
                        " of the file is not used by the context, accepted: the file that the "
                        "model was loaded from");
        of_layer.push_back(found->second.at(t.name));
        if (of_layer.back().bytes != t.bytes)
          return refuse(what + " has experts of " + std::to_string(of_layer.back().bytes) +
                        " bytes, accepted: " + std::to_string(t.bytes) + ", as in the file");
      }
      if (found->second.size() != layout.tensors.size())
        return refuse("layer " + std::to_string(layer) +
                      " uses weights that the file does not have");
      number_of[layer] = layer_id{static_cast<std::int32_t>(l)};
    }
    if (number_of.size() != finder.layers().size())
      return refuse("the context has layers that the file does not have");
    return true;
  }
  void give_back() {
    for (const auto& layer : weights)
      for (const auto& w : layer) w.tensor->data = w.own;
    weights.clear();
  }

  static bool on_node(ggml_tensor* node, bool ask, void* self) {
    return static_cast<hotset_llama*>(self)->see(*node, ask);
  }
  /// Asked first whether a node is to be stopped at, then, once it is computed, whether to go on. The program's own callback hears of
  /// what it asked for.
  bool see(ggml_tensor& node, bool ask) {
    if (looking) {
      finder.see(node);
      return false;
    }
    const bool ours = experts != nullptr && is_last_reader(node);
    if (ask) {
      if (const auto layer = chosen_of(node)) chosen[*layer] = &node;
      program_asked = program != nullptr && program(&node, true, program_data);
      return ours || program_asked;
    }
    if (ours && !serve(node)) return false;
    return !program_asked || program(&node, false, program_data);
  }
  bool is_last_reader(const ggml_tensor& node) const {
    const auto layer = weights_of(node);
    if (!layer) return false;
    const auto last = finder.last_readers().find(*layer);
    return last != finder.last_readers().end() && last->second == node.name;
  }

  /// What the router of a layer chose, from here on as numbers of slots.
  bool serve(const ggml_tensor& node) {
    if (outcome != status::ok) return false;  // of the batch's graph before
    const auto of = *weights_of(node);
    auto& rows = *chosen.at(of);
    const auto k = static_cast<std::int64_t>(files.shape.top_k);
    const auto tokens = rows_of(rows, k);
    ids.resize(static_cast<std::size_t>(tokens * k));
    for (std::int64_t r = 0; r < tokens; ++r)
      std::memcpy(&ids[static_cast<std::size_t>(r * k)], row_of<std::int32_t>(rows, k, r),
                  static_cast<std::size_t>(k) * sizeof(std::int32_t));
    const auto layer = number_of.at(of);
    if (layer <= last_layer) ++step;
    last_layer = layer;
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.kind = tokens > 1 ? request_class::prefill : request_class::decode;
    view.experts = ids;
    if (options.overflow == HOTSET_LLAMA_PASS &&
        ids.size() > static_cast<std::size_t>(slots.slots) && !experts->holds(layer, ids))
      return pass(layer);
    outcome = experts->visit(view);
    if (outcome != status::ok) return false;
    use_slots(layer);
    for (std::int64_t r = 0; r < tokens; ++r) {
      auto* const row = row_of<std::int32_t>(rows, k, r);
      for (std::int64_t i = 0; i < k; ++i) row[i] = experts->slot_of(layer, row[i]);
    }
    return true;
  }

  [[nodiscard]] bool does_not_fit() const {
    return outcome == status::does_not_fit || outcome == status::visit_too_large;
  }
  /// The layer is computed with the model's own weights, its ids as they are.
  bool pass(layer_id layer) {
    ++passed;
    for (const auto& w : weights[index_of(layer)]) w.tensor->data = w.own;
    return true;
  }
  void use_slots(layer_id layer) {
    const auto l = index_of(layer);
    for (std::size_t t = 0; t < weights[l].size(); ++t)
      weights[l][t].tensor->data = slots.arrays[l][t].data();
  }

  /// All of the batch or nothing of it, in parts whose experts fit.
  bool decode(const llama_batch& batch, void (*decoded)(void*, std::int32_t, std::int32_t),
              void* user) {
    fitting = std::min(batch.n_tokens, 2 * fitting);
    for (std::int32_t first = 0; first < batch.n_tokens;) {
      const auto count = std::min(fitting, batch.n_tokens - first);
      const auto part = part_of(batch, first, count);
      if (decode_part(part)) {
        if (decoded != nullptr) decoded(user, first, count);
        first += count;
        continue;
      }
      // A graph that the callback has stopped is no error to llama_decode: its tokens are in the memory.
      if (!take_back(part))
        return refuse("the context's memory does not let go of tokens, accepted: one that does");
      if (does_not_fit() && count > 1) {
        ++halved;
        fitting = count / 2;
        continue;
      }
      (void)take_back(part_of(batch, 0, first));
      return refuse(why_not());
    }
    return true;
  }
  /// Whether all visits since the last question were served; of those of llama_decode that the program called.
  bool check() {
    if (context == nullptr) return refuse("no context is attached");
    rest();
    code = 0;
    if (outcome == status::ok) return true;
    const auto why = why_not();
    outcome = status::ok;
    return refuse(why);
  }
  bool decode_part(const llama_batch& part) {
    outcome = status::ok;
    code = llama_decode(context, part);
    llama_synchronize(context);
    rest();
    return code == 0 && outcome == status::ok;
  }
  [[nodiscard]] std::string why_not() const {
    if (outcome == status::ok) return "llama_decode failed with " + std::to_string(code);
    const auto why = experts ? experts->problem() : std::string();
    return std::string(describe(outcome)) + (why.empty() ? "" : ": " + why);
  }
  bool take_back(const llama_batch& batch) {
    auto* const memory = llama_get_memory(context);
    bool done = true;
    for (std::int32_t i = 0; i < batch.n_tokens; ++i)
      for (std::int32_t s = 0; s < batch.n_seq_id[i]; ++s)
        done =
            llama_memory_seq_rm(memory, batch.seq_id[i][s], batch.pos[i], batch.pos[i] + 1) && done;
    return done;
  }

  hotset_llama_options options;
  std::vector<std::unique_ptr<std::string>> texts{};
  std::string error{};
  llama_context* context = nullptr;
  bool prepared = false;
  bool looking = false;
  ggml_backend_sched_eval_callback program = nullptr;  ///< that was there
  void* program_data = nullptr;
  bool program_asked = false;  ///< for the node that was seen last
  weight_finder finder{};
  sim::expert_files files{};
  slot_memory slots{};
  std::vector<std::vector<expert_weight>> weights{};  ///< in whose place the slots are
  std::map<std::int32_t, layer_id> number_of{};       ///< layer of the model -> layer with experts
  std::unique_ptr<paged_experts> experts{};
  std::map<std::int32_t, ggml_tensor*> chosen{};  ///< of the graph that runs
  std::vector<std::int32_t> ids{};
  layer_id last_layer = before_layers;
  step_id step = 0;
  status outcome = status::ok;     ///< of the last part's visits: the first that failed
  std::int32_t code = 0;           ///< what llama_decode said of it
  std::int32_t fitting = 1 << 20;  ///< tokens of a part
  std::uint64_t halved = 0;
  std::uint64_t passed = 0;

 private:
  void keep(const char** text) {
    if (*text == nullptr) return;
    texts.push_back(std::make_unique<std::string>(*text));
    *text = texts.back()->c_str();
  }
};

namespace {

/// No exception leaves C's functions.
template <class Call>
int guarded(hotset_llama* of, Call call) {
  try {
    return call() ? 0 : 1;
  } catch (const std::exception& e) {
    of->error = e.what();
    return 1;
  }
}

}  // namespace

extern "C" {

hotset_llama* hotset_llama_create(const hotset_llama_options* options) {
  if (options == nullptr) return nullptr;
  try {
    return new hotset_llama(*options);
  } catch (const std::exception&) {
    return nullptr;
  }
}
int hotset_llama_prepare(hotset_llama* paging, struct llama_context_params* params) {
  return guarded(paging, [&] {
    if (paging->prepared)
      return paging->refuse("a context was prepared already, accepted: one for each paging");
    paging->program = params->cb_eval;
    paging->program_data = params->cb_eval_user_data;
    params->cb_eval = hotset_llama::on_node;
    params->cb_eval_user_data = paging;
    paging->prepared = true;
    return true;
  });
}
int hotset_llama_attach(hotset_llama* paging, struct llama_context* context) {
  return guarded(paging, [&] { return paging->attach(context); });
}
int hotset_llama_decode(hotset_llama* paging, struct llama_batch batch,
                        void (*decoded)(void* user, int32_t first, int32_t count), void* user) {
  return guarded(paging, [&] {
    if (paging->context == nullptr) return paging->refuse("no context is attached");
    if (batch.pos == nullptr || batch.n_seq_id == nullptr || batch.seq_id == nullptr)
      return paging->refuse(
          "a batch without positions and sequences, accepted: one of llama_batch_init");
    return paging->decode(batch, decoded, user);
  });
}
int hotset_llama_check(hotset_llama* paging) {
  return guarded(paging, [&] { return paging->check(); });
}
const char* hotset_llama_error(const hotset_llama* paging) { return paging->error.c_str(); }
int hotset_llama_get_stats(const hotset_llama* paging, hotset_llama_stats* out) {
  if (paging->context == nullptr || out->struct_size < sizeof(hotset_llama_stats)) return 1;
  const auto s = paging->experts ? paging->experts->stats() : hotset::pager_stats();
  *out = {out->struct_size,
          s.visits,
          s.accesses,
          s.hits,
          s.bytes_filled,
          s.prefetch_hits,
          paging->halved,
          paging->passed,
          paging->slots.bytes,
          paging->slots.slots,
          paging->files.shape.layers,
          paging->files.shape.experts};
  return 0;
}
void hotset_llama_destroy(hotset_llama* paging) { delete paging; }

}  // extern "C"
