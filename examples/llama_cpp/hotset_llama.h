/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOTSET_LLAMA_H
#define HOTSET_LLAMA_H
/*
 * Keeps as many experts of each layer of a llama.cpp model in slots as a budget holds, and copies the others in
 * when they are routed. llama.cpp is not changed: a callback between the nodes of its graph reads what was routed,
 * and makes the products of experts read slots.
 *
 *     hotset_llama* paging = hotset_llama_create(&options);
 *     struct llama_context_params params = llama_context_default_params();
 *     hotset_llama_prepare(paging, &params);                // before the context is made
 *     struct llama_context* context = llama_init_from_model(model, params);
 *     if (hotset_llama_attach(paging, context) != 0) puts(hotset_llama_error(paging));
 *     ... hotset_llama_decode(paging, batch, 0, 0) in place of llama_decode(context, batch) ...
 *     hotset_llama_destroy(paging);                         // before llama_model_free(model)
 *
 * Outputs are those of the context without paging, bit for bit.
 *
 * Served: hotset changes neither the model's weights nor the chosen ids, so whatever else reads them is right:
 * - other contexts of the model, plain or paged, in this thread or another;
 * - adapters (LoRA) on any tensor, set or removed before or after attach;
 * - scales of experts; llama_set_warmup; another top-k than the file's; an abort callback;
 * - attention and routers on another device, with the experts in host memory (--cpu-moe).
 * Refused by attach, and nothing is changed:
 * - experts that were repacked (load the model with use_extra_bufts = false) or lie in a device's memory;
 * - a layer with more than one router;
 * - a file whose experts differ from the model's: in number or size, or in their bytes. Bytes are compared unless
 *   experts are copied from the mapping: 4 KiB of each expert.
 * An error of the decode, and no outputs: a copy that fails.
 *
 * One thread at a time calls a paging or decodes its context. The file stays as it is until destroy.
 */

#include <stddef.h>
#include <stdint.h>

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hotset_llama hotset_llama;

/* Where experts are copied from. */
enum {
  HOTSET_LLAMA_MAPPED = 0, /* llama.cpp's own memory or mapping of the file */
  HOTSET_LLAMA_READ = 1,   /* the file, through the system's cache */
  HOTSET_LLAMA_DIRECT = 2, /* the file, past it */
  HOTSET_LLAMA_URING = 3   /* the same by io_uring, if it was built with liburing */
};

/* What to do if a micro-batch routes more distinct experts of a layer than there are slots, as a prompt does. */
enum {
  /* Compute the layer with the model's own weights, as without paging: through the mapping of the file. Slots stay
   * as they are. */
  HOTSET_LLAMA_PASS = 0,
  /* Undo the batch and decode it in halves, and so on, until the experts fit: only slots are read. */
  HOTSET_LLAMA_HALVE = 1
};

/* Zeros are the defaults. */
typedef struct hotset_llama_options {
  size_t struct_size;
  const char* model_path; /* the GGUF file, or its first part */
  uint64_t budget_bytes;  /* of all slots; or */
  int32_t slots;          /* of each layer */
  int32_t source;         /* HOTSET_LLAMA_... */
  int32_t threads;        /* that read; 0: 1 */
  int32_t max_tokens;     /* of a micro-batch, at least the context's n_ubatch; 0: n_ubatch */
  const char* eviction;   /* null: "similar_steps" */
  const char* prefetch;   /* null: none; "next_layer_top_k", ... by the predictor similar-steps */
  int32_t overflow;       /* HOTSET_LLAMA_PASS or HOTSET_LLAMA_HALVE */
} hotset_llama_options;

/* Null if there is no memory; attach reports what is wrong with the options. */
hotset_llama* hotset_llama_create(const hotset_llama_options* options);
/* Puts the callback into the parameters; a callback that is there is called as well. Make one context of them.
 * 0, or not: this paging or another has prepared parameters already. */
int hotset_llama_prepare(hotset_llama* paging, struct llama_context_params* params);
/* Finds the experts by a decode of one token, and takes the slots; the context's memory is empty afterwards. If all
 * experts have room and come from the mapping, the mapping is their place: nothing is copied, and no node is stopped
 * at. 0, or not: the context then computes without paging. */
int hotset_llama_attach(hotset_llama* paging, struct llama_context* context);
/* Decodes as llama_decode. If a batch routes more experts than there are slots, `overflow` says what to do; in
 * halves, `decoded` (may be null) is called for each part while its outputs can be read: its first token in the
 * batch, and how many. Outputs are those of llama_decode for the same parts: what a matrix product gives for a row
 * may depend on the rows beside it. 0, or not: a copy failed, or a single token does not fit; the tokens of the
 * batch are not in the context's memory. */
int hotset_llama_decode(hotset_llama* paging, struct llama_batch batch,
                        void (*decoded)(void* user, int32_t first, int32_t count), void* user);
/* For a program that calls llama_decode itself, as it may if `overflow` is HOTSET_LLAMA_PASS. Call it after every
 * llama_decode and llama_synchronize. 0 if every visit since the last call was served. Or not: a copy failed,
 * llama_decode has returned 0 all the same, and there are no outputs; remove the tokens (llama_memory_seq_rm).
 * Nothing more is computed until check is called. */
int hotset_llama_check(hotset_llama* paging);
/* Why the last call failed. Never null. */
const char* hotset_llama_error(const hotset_llama* paging);

typedef struct hotset_llama_stats {
  size_t struct_size; /* in */
  uint64_t visits;
  uint64_t accesses;
  uint64_t hits;
  uint64_t bytes_filled;
  uint64_t prefetch_hits;
  uint64_t halved; /* batches that came in two */
  /* Visits that were computed with the model's own weights, not counted above: past the slots, or warming up. */
  uint64_t passed;
  uint64_t slot_bytes; /* of all slots */
  int32_t slots;       /* of each layer */
  int32_t layers;      /* with experts */
  int32_t experts;     /* of each */
} hotset_llama_stats;
int hotset_llama_get_stats(const hotset_llama* paging, hotset_llama_stats* out);

/* Frees the slots. A context that still is there goes on, and computes with the model's own weights; it may also be
 * freed first. The model may not: copies from its mapping may be under way. llama.cpp has no call that takes a
 * callback back, so about 400 bytes for each tensor of experts stay allocated until the process ends. Null: no-op. */
void hotset_llama_destroy(hotset_llama* paging);

#ifdef __cplusplus
}
#endif
#endif
