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
 *     ... hotset_llama_decode(paging, batch, 0, 0) in place of llama_decode(context, batch) ...
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
 * If a copy fails, the decode reports an error and has no outputs.
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
  HOTSET_LLAMA_MAPPED = 0, /* llama.cpp's own memory or mapping of the file */
  HOTSET_LLAMA_READ = 1,   /* the file, through the page cache */
  HOTSET_LLAMA_DIRECT = 2, /* the file, bypassing the page cache */
  HOTSET_LLAMA_URING = 3   /* like DIRECT, by io_uring; needs a build with liburing */
};

/* Handling of a micro-batch that routes more distinct experts of a layer than there are slots, as prompts do. */
enum {
  /* Compute the layer with the model's own weights, as without paging: through the mapping of the file. Slots are
   * unchanged. */
  HOTSET_LLAMA_PASS = 0,
  /* Undo the batch and decode it in halves, recursively, until the experts fit: only slots are read. */
  HOTSET_LLAMA_HALVE = 1
};

/* Zero means the default. */
typedef struct hotset_llama_options {
  size_t struct_size;
  const char* model_path; /* the GGUF file, or its first part */
  uint64_t budget_bytes;  /* all slots together; or */
  int32_t slots;          /* per layer */
  int32_t source;         /* HOTSET_LLAMA_... */
  int32_t threads;        /* reading threads; 0: 1 */
  int32_t max_tokens;     /* per micro-batch, at least the context's n_ubatch; 0: n_ubatch */
  const char* eviction;   /* null: "similar_steps" */
  const char* prefetch;   /* null: none; "next_layer_top_k", ... with the predictor similar-steps */
  int32_t overflow;       /* HOTSET_LLAMA_PASS or HOTSET_LLAMA_HALVE */
} hotset_llama_options;

/* Returns null if there is no memory; attach reports invalid options. */
hotset_llama* hotset_llama_create(const hotset_llama_options* options);
/* Puts the callback into the parameters; an existing callback is still called. Make one context with them.
 * Returns 0, or another value if these parameters or this paging were prepared before. */
int hotset_llama_prepare(hotset_llama* paging, struct llama_context_params* params);
/* Finds the experts by a decode of one token, and allocates the slots; the context's memory is empty afterwards. If
 * all experts fit and come from the mapping, the mapping itself is used: nothing is copied, and no node is stopped at.
 * Returns 0, or another value on an error: the context then computes without paging. */
int hotset_llama_attach(hotset_llama* paging, struct llama_context* context);
/* Decodes like llama_decode. If a batch routes more experts than there are slots, `overflow` applies. With halves,
 * `decoded` (may be null) is called for each part while its outputs can be read, with its first token in the batch and
 * its number of tokens. Outputs equal those of llama_decode for the same parts: a matrix product's row may depend on
 * the rows beside it. Returns 0, or another value if a copy failed or a single token does not fit: the batch's tokens
 * are then not in the context's memory. */
int hotset_llama_decode(hotset_llama* paging, struct llama_batch batch,
                        void (*decoded)(void* user, int32_t first, int32_t count), void* user);
/* For a program that calls llama_decode itself, allowed if `overflow` is HOTSET_LLAMA_PASS. Call it after every
 * llama_decode and llama_synchronize. Returns 0 if every visit since the last call was served. Any other value: a copy
 * failed although llama_decode returned 0, and there are no outputs; remove the tokens (llama_memory_seq_rm). Nothing
 * is computed until check is called. */
int hotset_llama_check(hotset_llama* paging);
/* Reason for the last call's failure. Never null. */
const char* hotset_llama_error(const hotset_llama* paging);

typedef struct hotset_llama_stats {
  size_t struct_size; /* in */
  uint64_t visits;
  uint64_t accesses;
  uint64_t hits;
  uint64_t bytes_filled;
  uint64_t prefetch_hits;
  uint64_t halved; /* batches decoded in halves */
  /* Visits computed with the model's own weights, not counted above: more experts than slots, or warm-up. */
  uint64_t passed;
  uint64_t slot_bytes; /* all slots together */
  int32_t slots;       /* per layer */
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
