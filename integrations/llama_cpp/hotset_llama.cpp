// SPDX-License-Identifier: Apache-2.0
/// Paging of a llama.cpp context: the callback, and the handle for C.

#include "hotset_llama.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "expert_weights.hpp"
#include "graph_nodes.hpp"
#include "hotset/lab/expert_files.hpp"
#include "memory_limit.hpp"
#include "model_file.hpp"
#include "paged_experts.hpp"
#include "reads_watch.hpp"
#include "slot_memory.hpp"
#include "slot_plan.hpp"
#include "weight_mapping.hpp"

namespace {

using namespace hotset;
using namespace hotset_llama_cpp;

/// Describes ids as a matrix with rows of `width`.
void describe_ids(ggml_tensor& out, std::int64_t width, std::vector<std::int32_t>& ids) {
  out.type = GGML_TYPE_I32;
  out.data = ids.data();
  out.ne[0] = width;
  out.ne[1] = static_cast<std::int64_t>(ids.size()) / width;
  out.ne[2] = out.ne[3] = 1;
  out.nb[0] = sizeof(std::int32_t);
  for (int i = 1; i < GGML_MAX_DIMS; ++i)
    out.nb[i] = out.nb[i - 1] * static_cast<std::size_t>(out.ne[i - 1]);
}

std::string running_version() {
  return std::string("llama.cpp ") + llama_version() + ", ggml " + ggml_version();
}

}  // namespace

/// Callback between the nodes of a context's graphs. llama.cpp has no call to remove it, so it outlives `paging`. It
/// then only restores the sources of nodes that are computed again.
struct context_callback {
  hotset_llama* paging = nullptr;  ///< null: destroyed
  /// The program's own callback from the parameters.
  ggml_backend_sched_eval_callback program = nullptr;
  void* program_data = nullptr;
  bool program_asked = false;  ///< for the last node seen
  replaced_sources replaced{};
  std::deque<ggml_tensor> stand_ins{};  ///< tensors that replace sources

  static bool on_node(ggml_tensor* node, bool ask, void* self);
  /// Keeps the callback until the process ends: its context may live as long.
  static void retire(std::unique_ptr<context_callback> callback) {
    static std::mutex mutex;
    static auto& retired = *new std::deque<std::unique_ptr<context_callback>>;
    const std::lock_guard lock(mutex);
    retired.push_back(std::move(callback));
  }
};

/// A layer with experts.
struct paged_layer {
  std::int32_t number = 0;              ///< number in the model
  std::string router_end;               ///< name of its router's last node
  std::vector<ggml_tensor*> stand_ins;  ///< replacements of its weights
  ggml_tensor* slot_ids = nullptr;      ///< replacement of its ids
  std::vector<std::int32_t> slots;      ///< data of slot_ids
  // State of the running graph.
  const ggml_tensor* chosen = nullptr;
  bool in_slots = false;  ///< all chosen experts are in slots; otherwise the nodes stay unchanged
};

/// The handle for C.
struct hotset_llama {
  struct weight_place {
    layer_id layer{};
    std::size_t tensor = 0;
  };

  explicit hotset_llama(const hotset_llama_options& o) : options(o) {
    for (const auto** text : {&options.model_path, &options.budget, &options.eviction,
                              &options.prefetch, &options.metrics, &options.timeline})
      keep(text);
    callback->paging = this;
  }
  hotset_llama(const hotset_llama&) = delete;
  hotset_llama& operator=(const hotset_llama&) = delete;
  ~hotset_llama() {
    rest();
    callback->paging = nullptr;
    if (prepared) context_callback::retire(std::move(callback));
  }
  /// Ends the last visit: no node uses its slots any more.
  void rest() const {
    if (experts) experts->rest();
  }

  bool refuse(std::string why) {
    error = std::move(why);
    return false;
  }

  bool prepare(llama_context_params& params) {
    // The parameters' layout changes between versions.
    if (const auto running = running_version(); running != HOTSET_LLAMA_BUILT_FOR)
      return refuse("the running " + running +
                    ", accepted: " HOTSET_LLAMA_BUILT_FOR ", for which hotset was built");
    if (prepared) return refuse("a context was prepared already, accepted: one for each paging");
    if (params.cb_eval == context_callback::on_node)
      return refuse("another paging prepared these parameters, accepted: one paging of a context");
    callback->program = params.cb_eval;
    callback->program_data = params.cb_eval_user_data;
    params.cb_eval = context_callback::on_node;
    params.cb_eval_user_data = callback.get();
    prepared = true;
    return true;
  }

  bool attach(llama_context* of) {
    if (options.struct_size < sizeof(hotset_llama_options))
      return refuse("options.struct_size is too small");
    if (of == nullptr) return refuse("no context, accepted: one that llama.cpp made");
    if (context != nullptr) return refuse("a context is attached already, accepted: one at a time");
    if (!prepared)
      return refuse("the context's parameters were not prepared (hotset_llama_prepare)");
    if (options.model_path == nullptr)
      return refuse("no model_path, accepted: the GGUF file of the model");
    context = of;
    bool done = false;
    try {
      done = find_weights() && take_place();
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (!done) context = nullptr;
    return done;
  }

  /// Finds the weights by a decode of one token, which is then removed.
  bool find_weights() {
    finder = weight_finder();
    looking = true;
    llama_token token = 0;
    const auto failed = llama_decode(context, llama_batch_get_one(&token, 1));
    llama_synchronize(context);
    looking = false;
    llama_memory_clear(llama_get_memory(context), true);
    if (failed != 0) return refuse("the decode of one token failed with " + std::to_string(failed));
    if (finder.saw_nothing())
      return refuse("the context was not made from the parameters that were prepared");
    if (!finder.has_experts())
      return refuse("the model has no experts, accepted: a Mixture-of-Experts model");
    if (const auto layer = finder.routed_twice())
      return refuse("layer " + std::to_string(*layer) +
                    " has more than one router, accepted: one for each layer");
    return true;
  }

  bool take_place() {
    auto found = matrices_and_biases(lab::find_experts(options.model_path));
    if (!found) return refuse(found.error().message);
    files = *std::move(found);
    auto weights = match(files, finder);
    if (!weights) return refuse(weights.error().message);
    // The model may use another top-k than the file. A warm-up pass does not show it.
    if (finder.top_k() < files.shape.experts)
      files.shape.top_k = static_cast<std::int32_t>(finder.top_k());
    files.shape.max_tokens_per_visit = static_cast<std::int32_t>(llama_n_ubatch(context));
    const auto chosen = choose_slots(files, options.budget, options.slots, beside_experts(*weights),
                                     available_memory());
    if (!chosen) return refuse(chosen.error().message);
    if (auto bad = paged_experts::check(files, policies_asked_for())) return refuse(bad->message);
    slots.plan = chosen->plan;
    // The mapping itself serves as the slots.
    const auto maps = options.source == HOTSET_LLAMA_MAPPED ||
                      (options.source == HOTSET_LLAMA_AUTO && chosen->model_fits);
    const bool copies = !maps || chosen->plan.slots != files.shape.experts;
    if (copies && !take_slots_and_fill(*weights, maps ? HOTSET_LLAMA_MAPPED : options.source,
                                       chosen->pages_fit))
      return false;
    describe_slots(*chosen);
    return true;
  }
  bool take_slots_and_fill(const layer_weights& weights, std::int32_t source, bool pages_fit) {
    if (source != HOTSET_LLAMA_MAPPED)
      if (auto bad = compare_bytes(files, weights)) return refuse(bad->message);
    const auto asked = policies_asked_for();
    auto bytes = expert_bytes::open(files, weights, source, 2 * asked.readers, pages_fit);
    if (!bytes) return refuse(bytes.error().message);
    from = bytes->name();
    auto memory = take_slots(files, slots.plan);
    if (!memory) return refuse(memory.error().message);
    slots = *std::move(memory);
    auto made = paged_experts::create(files, slots, *std::move(bytes), asked);
    if (!made) return refuse(made.error().message);
    make_stand_ins(weights);
    experts = *std::move(made);
    return true;
  }
  [[nodiscard]] paging_options policies_asked_for() const {
    paging_options out;
    if (options.eviction != nullptr) out.eviction = options.eviction;
    if (options.prefetch != nullptr) out.prefetch = options.prefetch;
    if (options.threads > 0) out.readers = static_cast<std::size_t>(options.threads);
    if (options.metrics != nullptr) out.view.metrics = options.metrics;
    if (options.timeline != nullptr) out.view.timeline = options.timeline;
    out.view.engine = "llama.cpp";
    return out;
  }
  [[nodiscard]] other_memory beside_experts(const layer_weights& weights) const {
    other_memory out;
    const auto* const expert = weights.front().front().tensor->data;
    out.experts_are_mapped = !file_mapping_of(static_cast<const std::byte*>(expert)).bytes.empty();
    out.buffers = finder.host_bytes_of(GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    const auto mapped = finder.host_bytes_of(GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    out.slots = slot_bytes_of_process();
    if (out.experts_are_mapped) out.weights = mapped - std::min(mapped, bytes_of_all(files));
    return out;
  }
  void describe_slots(const slot_choice& chosen) {
    const auto& shape = files.shape;
    const auto of_all = std::to_string(shape.experts) + " experts of each of " +
                        std::to_string(shape.layers) + " layers";
    if (experts == nullptr)
      description = "all " + of_all + " have room: nothing is copied";
    else
      description = std::to_string(slots.plan.slots) + " of " + of_all + " in slots, " +
                    std::to_string(slots.plan.spares) + " spare slots: " + mebibytes(slots.bytes) +
                    " of " + mebibytes(bytes_of_all(files)) + ", filled by " + from;
    if (!chosen.reason.empty()) description += "; " + chosen.reason;
    if (experts != nullptr && !experts->metrics_url().empty())
      description += "; metrics: " + experts->metrics_url();
    if (experts == nullptr && !policies_asked_for().view.is_empty())
      description += ", so there are no metrics and no timeline";
  }
  void make_stand_ins(const layer_weights& weights) {
    const auto stand_in = [&](const ggml_tensor& like) {
      return &callback->stand_ins.emplace_back(like);
    };
    for (std::size_t l = 0; l < weights.size(); ++l) {
      auto& layer = layers.emplace_back();
      layer.number = static_cast<std::int32_t>(files.layers[l]);
      layer.router_end = finder.routed().at(layer.number);
      layer.slot_ids = stand_in({});
      for (std::size_t t = 0; t < weights[l].size(); ++t) {
        layer.stand_ins.push_back(stand_in(*weights[l][t].tensor));
        layer.stand_ins.back()->data = slots.first[l][t];
        place_of[weights[l][t].tensor] = {static_cast<layer_id>(l), t};
      }
    }
  }

  /// Called before each node is computed. Returns whether to stop at it.
  bool stops_at(ggml_tensor& node) {
    if (experts == nullptr) return false;
    if (outcome != status::ok) return true;
    if (auto* const layer = layer_of(chosen_of(node))) {
      layer->chosen = &node;
      layer->in_slots = false;
    }
    return give_slots(node) || router_of(node) != nullptr;
  }
  /// Called after a node with a stop was computed. Returns whether to continue.
  bool goes_on(ggml_tensor& node) {
    if (experts == nullptr) return true;
    if (const auto weight = weight_read_by(node); weight && experts->is_late(weight->layer))
      experts->computed(weight->layer, weight->tensor);
    auto* const layer = router_of(node);
    if (layer != nullptr && outcome == status::ok) serve(*layer);
    return outcome == status::ok;
  }

  paged_layer* layer_of(std::optional<std::int32_t> number) {
    const auto found =
        number ? std::ranges::find(layers, *number, &paged_layer::number) : layers.end();
    return found == layers.end() ? nullptr : &*found;
  }
  /// The layer whose router ends with this node.
  paged_layer* router_of(const ggml_tensor& node) {
    auto* layer = layer_of(chosen_of(node));
    if (layer == nullptr) layer = layer_of(weights_of(node));
    return layer != nullptr && layer->router_end == node.name ? layer : nullptr;
  }

  /// Copies the chosen experts of a layer into slots, unless the layer runs with the model's own weights.
  void serve(paged_layer& of) {
    if (of.chosen == nullptr || !take_ids(*of.chosen)) return;
    const auto layer = static_cast<layer_id>(&of - layers.data());
    if (layer <= last_layer) ++step;
    last_layer = layer;
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.kind = of.chosen->ne[1] > 1 ? request_class::prefill : request_class::decode;
    view.experts = ids;
    outcome = experts->visit(view);
    if (outcome != status::ok) return;
    if (!experts->is_placed()) {
      ++passed;
      return;
    }
    of.slots.resize(ids.size());
    std::ranges::transform(ids, of.slots.begin(),
                           [&](std::int32_t id) { return experts->slot_of(layer, id); });
    describe_ids(*of.slot_ids, of.chosen->ne[0], of.slots);
    of.in_slots = true;
  }
  /// Copies the ids of a node. Returns false if they are not experts of the model: a context of another model was made
  /// from the same parameters.
  bool take_ids(const ggml_tensor& node) {
    copy_rows(node, node.ne[0], ids);
    return std::ranges::all_of(
        ids, [&](std::int32_t id) { return id >= 0 && id < files.shape.experts; });
  }
  /// The paged weight that a node reads by the chosen ids.
  std::optional<weight_place> weight_read_by(ggml_tensor& node) const {
    const auto op = expert_operation_of(node);
    if (!op) return std::nullopt;
    const auto found = place_of.find(*op->weight);
    if (found == place_of.end() ||
        ids_of(**op->ids) != layers[index_of(found->second.layer)].number)
      return std::nullopt;
    return found->second;
  }
  /// Makes a node that reads a paged weight by the chosen ids read slots instead. All other nodes stay unchanged, and
  /// are correct because the model's weights and the ids are unchanged. Returns whether copies wait for the node.
  bool give_slots(ggml_tensor& node) {
    const auto weight = weight_read_by(node);
    if (!weight) return false;
    auto& layer = layers[index_of(weight->layer)];
    const bool late = experts->is_late(weight->layer);
    if (!layer.in_slots) return late;
    if (late && !experts->has_arrived(weight->tensor)) outcome = status::fill_failed;
    callback->replaced.replace(node, *expert_operation_of(node), *layer.stand_ins[weight->tensor],
                               *layer.slot_ids);
    return late;
  }

  /// Whether all visits since the last call were served, for llama_decode calls of the program.
  bool check() {
    if (context == nullptr) return refuse("no context is attached");
    rest();
    if (outcome != status::ok) {
      const auto why = experts->problem();
      return refuse(std::string(describe(std::exchange(outcome, status::ok))) +
                    (why.empty() ? "" : ": " + why));
    }
    if (experts) experts->publish();
    if (experts && ++checks % reads_watch::period == 0)
      watch.look(bytes_read_from_disks(), experts->stats().bytes_filled, passed);
    return true;
  }
  const char* warning() {
    if (experts && timeline_text.empty())
      if (const auto failed = experts->timeline_problem()) {
        timeline_text = failed->message;
        return timeline_text.c_str();
      }
    if (!watch.is_too_much(bytes_of_all(files)) || !warning_text.empty()) return nullptr;
    warning_text = "the process has read " + mebibytes(watch.read()) + " from disks while " +
                   mebibytes(watch.copied()) +
                   " of experts were copied: memory is too short for the other weights, accepted: "
                   "a smaller budget than " +
                   mebibytes(slots.bytes);
    return warning_text.c_str();
  }

  hotset_llama_options options;
  std::vector<std::unique_ptr<std::string>> texts{};
  std::string error{};
  std::unique_ptr<context_callback> callback = std::make_unique<context_callback>();
  llama_context* context = nullptr;
  bool prepared = false;
  bool looking = false;
  weight_finder finder{};
  lab::expert_files files{};
  slot_memory slots{};
  /// In the order of expert_files.
  std::vector<paged_layer> layers{};
  std::unordered_map<const ggml_tensor*, weight_place> place_of{};  ///< by the model's weights
  std::unique_ptr<paged_experts> experts{};  ///< null: not attached, or all experts have room
  std::vector<std::int32_t> ids{};           ///< ids of the last visit
  layer_id last_layer = before_layers;
  step_id step = 0;
  status outcome = status::ok;  ///< first failure among the visits since the last check
  std::uint64_t passed = 0;
  const char* from = "mapping";  ///< what fills the slots
  std::string description{};
  reads_watch watch{};
  std::uint64_t checks = 0;
  std::string warning_text{};   ///< empty until it was given
  std::string timeline_text{};  ///< empty until it was given

 private:
  void keep(const char** text) {
    if (*text == nullptr) return;
    texts.push_back(std::make_unique<std::string>(*text));
    *text = texts.back()->c_str();
  }
};

bool context_callback::on_node(ggml_tensor* node, bool ask, void* self) {
  auto& c = *static_cast<context_callback*>(self);
  if (c.paging != nullptr && c.paging->looking) {
    c.paging->finder.see(*node);
    return false;
  }
  if (!ask) {
    if (c.paging != nullptr && !c.paging->goes_on(*node)) return false;
    return !c.program_asked || c.program(node, false, c.program_data);
  }
  c.replaced.restore(*node);
  const bool stops = c.paging != nullptr && c.paging->stops_at(*node);
  c.program_asked = c.program != nullptr && c.program(node, true, c.program_data);
  return stops || c.program_asked;
}

namespace {

/// No exception leaves the C functions.
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
  hotset_llama_options known{};
  std::memcpy(&known, options, std::min(options->struct_size, sizeof known));
  try {
    return new hotset_llama(known);
  } catch (const std::exception&) {
    return nullptr;
  }
}
int hotset_llama_prepare(hotset_llama* paging, struct llama_context_params* params) {
  return guarded(paging, [&] { return paging->prepare(*params); });
}
int hotset_llama_attach(hotset_llama* paging, struct llama_context* context) {
  return guarded(paging, [&] { return paging->attach(context); });
}
int hotset_llama_check(hotset_llama* paging) {
  return guarded(paging, [&] { return paging->check(); });
}
const char* hotset_llama_error(const hotset_llama* paging) { return paging->error.c_str(); }
const char* hotset_llama_describe(const hotset_llama* paging) {
  return paging->description.c_str();
}
const char* hotset_llama_warning(hotset_llama* paging) {
  const char* out = nullptr;
  (void)guarded(paging, [&] {
    out = paging->warning();
    return true;
  });
  return out;
}
const char* hotset_llama_built_for(void) { return HOTSET_LLAMA_BUILT_FOR; }
int hotset_llama_get_stats(const hotset_llama* paging, hotset_llama_stats* out) {
  if (paging->context == nullptr || out->struct_size < sizeof(hotset_llama_stats)) return 1;
  const auto s = paging->experts ? paging->experts->stats() : hotset::pager_stats();
  *out = {out->struct_size,
          s.visits,
          s.accesses,
          s.hits,
          s.bytes_filled,
          s.prefetch_hits,
          paging->experts ? paging->experts->spared() : 0,
          paging->passed,
          paging->slots.bytes,
          paging->slots.plan.slots,
          paging->slots.plan.spares,
          paging->files.shape.layers,
          paging->files.shape.experts};
  return 0;
}
void hotset_llama_destroy(hotset_llama* paging) { delete paging; }

}  // extern "C"
