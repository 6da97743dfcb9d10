/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOTSET_LLAMA_H
#define HOTSET_LLAMA_H
/*
 * Keeps experts of each layer of a llama.cpp model in slots within a budget, and copies the others in when they are
 * routed. llama.cpp is unmodified: a callback between the nodes of its graph reads the routing, and makes the products
 * of experts read slots.
 *
 *     hotset_llama* paging = hotset_llama_create(&options);
 *     struct llama_context_params params = llama_context_default_params();
 *     hotset_llama_prepare(paging, &params);                // before the context is made
 *     struct llama_context* context = llama_init_from_model(model, params);
 *     if (hotset_llama_attach(paging, context) != 0) puts(hotset_llama_error(paging));
 *     ... llama_decode(context, batch), then llama_synchronize(context) and hotset_llama_check(paging) ...
 *     hotset_llama_destroy(paging);                         // before llama_model_free(model)
 *
 * Outputs equal those of the context without paging, bit for bit.
 *
 * Supported, because hotset changes neither the model's weights nor the chosen ids that others read:
 * - other contexts of the model, plain or paged, in this thread or another;
 * - adapters (LoRA) on any tensor, set or removed before or after attach;
 * - scales of experts; llama_set_warmup; another top-k than the file's; an abort callback;
 * - attention and routers on another device, with the experts in host memory (--cpu-moe).
 * Refused by attach, without any change:
 * - experts that were repacked (load the model with use_extra_bufts = false) or are in a device's memory;
 * - a layer with more than one router;
 * - a file whose experts differ from the model's in number, size or bytes. Bytes (4 KiB of each expert) are compared
 *   unless experts are copied from the mapping.
 * If a copy fails, hotset_llama_check reports an error and there are no outputs.
 *
 * Only one thread at a time may call a paging or decode its context. The file must not change until destroy.
 */

#include <stddef.h>
#include <stdint.h>

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hotset_llama hotset_llama;

/* Source of expert copies. */
enum {
  /* MAPPED if memory has room for the whole model; otherwise the first of URING, DIRECT and READ that works. */
  HOTSET_LLAMA_AUTO = 0,
  HOTSET_LLAMA_MAPPED = 1, /* llama.cpp's own memory or mapping of the file */
  HOTSET_LLAMA_READ = 2,   /* the file, through the page cache */
  HOTSET_LLAMA_DIRECT = 3, /* the file, bypassing the page cache */
  HOTSET_LLAMA_URING = 4   /* like DIRECT, by io_uring; needs a build with liburing */
};

/* Zero means the default. */
typedef struct hotset_llama_options {
  size_t struct_size;
  const char* model_path; /* the GGUF file, or its first part */
  /* Memory of all slots: "6GiB", "50%" of all experts, or "auto". Null: "auto", which takes what the machine and the
   * cgroup leave beside the other weights, the caches and the buffers. */
  const char* budget;
  int32_t slots;        /* per layer, in place of a budget */
  int32_t source;       /* HOTSET_LLAMA_... */
  int32_t threads;      /* reading threads; 0: 2 */
  const char* eviction; /* null: "similar_steps" */
  const char* prefetch; /* null: "next_layer_top_k", with the predictor similar-steps; "none" */
  /* Address of an HTTP server that shows metrics to Prometheus, such as "127.0.0.1:9100"; port 0 takes any free one,
   * and hotset_llama_describe names it. Null: none. Each paging needs an address of its own. */
  const char* metrics;
  const char* timeline; /* file for a timeline (Chrome trace events, for Perfetto); null: none */
} hotset_llama_options;

/* Returns null if there is no memory; attach reports invalid options. */
hotset_llama* hotset_llama_create(const hotset_llama_options* options);
/* Puts the callback into the parameters; an existing callback is still called. Make one context with them.
 * Returns 0, or another value: these parameters or this paging were prepared before, or the running llama.cpp is not
 * the version that this library was built for. */
int hotset_llama_prepare(hotset_llama* paging, struct llama_context_params* params);
/* Finds the experts by a decode of one token, and allocates the slots; the context's memory is empty afterwards. If
 * all experts fit and come from the mapping, the mapping itself is used: nothing is copied, and no node is stopped at.
 * Returns 0, or another value on an error: the context then computes without paging. */
int hotset_llama_attach(hotset_llama* paging, struct llama_context* context);
/* Call it after every llama_decode and llama_synchronize. Returns 0 if every visit since the last call was served. Any
 * other value: a copy failed although llama_decode returned 0, and there are no outputs; remove the tokens
 * (llama_memory_seq_rm). Nothing is computed until check is called. */
int hotset_llama_check(hotset_llama* paging);
/* Reason for the last call's failure. Never null. */
const char* hotset_llama_error(const hotset_llama* paging);
/* A sentence: which experts have slots, how many bytes, and how "auto" came to it. Empty before attach. Never null. */
const char* hotset_llama_describe(const hotset_llama* paging);
/* A sentence if the process reads far more than is copied, which means that the budget is too large, or if the timeline
 * cannot be written. Each is given once: then, and otherwise, null. */
const char* hotset_llama_warning(hotset_llama* paging);
/* The version of llama.cpp that this library was built for, such as "llama.cpp 0.5.0, ggml 0.25.3". */
const char* hotset_llama_built_for(void);

typedef struct hotset_llama_stats {
  size_t struct_size; /* in */
  uint64_t visits;
  uint64_t accesses;
  uint64_t hits;
  uint64_t bytes_filled;
  uint64_t prefetch_hits;
  /* Experts copied into spare slots, because a visit routed more experts than its layer has slots. */
  uint64_t spared;
  /* Visits computed with the model's own weights: they route more experts than there are slots, and no spare slots are
   * left, or most of the experts must be read. */
  uint64_t passed;
  uint64_t slot_bytes; /* all slots together; 0: all experts have room, and nothing is copied */
  int32_t slots;       /* per layer */
  int32_t spares;      /* spare slots, which all layers share */
  int32_t layers;      /* with experts */
  int32_t experts;     /* per layer */
} hotset_llama_stats;
int hotset_llama_get_stats(const hotset_llama* paging, hotset_llama_stats* out);

/* Frees the slots. An existing context continues with the model's own weights; it may also be freed first. The model
 * must not be freed first: copies from its mapping may be outstanding. llama.cpp has no call to remove a callback, so
 * about 400 bytes for each tensor of experts stay allocated until the process ends. Null: no-op. */
void hotset_llama_destroy(hotset_llama* paging);

#ifdef __cplusplus
}
#endif
#endif
