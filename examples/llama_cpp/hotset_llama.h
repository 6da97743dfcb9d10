/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOTSET_LLAMA_H
#define HOTSET_LLAMA_H
/*
 * Experts of a llama.cpp model in slots: as many of each layer as a budget holds, and the others are copied in when they are routed. llama.cpp is
 * not changed: a callback between the nodes of its graph sees what was routed, and the ids become numbers of slots.
 *
 *     hotset_llama* paging = hotset_llama_create(&options);
 *     struct llama_context_params params = llama_context_default_params();
 *     hotset_llama_prepare(paging, &params);                // before the context is made
 *     struct llama_context* context = llama_init_from_model(model, params);
 *     if (hotset_llama_attach(paging, context) != 0) puts(hotset_llama_error(paging));
 *     ... hotset_llama_decode(paging, batch, 0, 0) in place of llama_decode(context, batch) ...
 *     hotset_llama_destroy(paging);                         // before the context is freed
 *
 * The model is loaded with use_extra_bufts = false (weights that were repacked cannot be paged) and n_gpu_layers = 0. One context at a time has the
 * model: its weights are the slots. One thread calls.
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
  HOTSET_LLAMA_URING = 3   /* the same by io_uring, where it was built with liburing */
};

/* What becomes of a micro-batch that names more experts of a layer than there are slots, as a prompt does. */
enum {
  /* Unless all of them are in slots, the layer is computed with the model's own weights, as without paging: through the mapping of the file. Slots stay as
   * they are. */
  HOTSET_LLAMA_PASS = 0,
  /* The batch is undone and comes in halves, and so on, until the experts fit: nothing but slots is read. */
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
  int32_t max_tokens;     /* of a micro-batch: n_ubatch of the context; 0: 512 */
  const char* eviction;   /* null: "similar_steps" */
  const char* prefetch;   /* null: none; "next_layer_top_k", ... by the predictor similar-steps */
  int32_t overflow;       /* HOTSET_LLAMA_PASS or HOTSET_LLAMA_HALVE */
} hotset_llama_options;

/* Null where there is no memory; what is wrong with the options is told by attach. */
hotset_llama* hotset_llama_create(const hotset_llama_options* options);
/* Puts the callback into the parameters; one that is there is called as well. 0, or not: a context has been prepared already. */
int hotset_llama_prepare(hotset_llama* paging, struct llama_context_params* params);
/* Finds the experts by a decode of one token, takes the slots and puts them in the weights' place. Where all experts have room and come from the mapping, that is their
 * place: nothing is copied, and no node is stopped at. 0, or not: then nothing has changed. */
int hotset_llama_attach(hotset_llama* paging, struct llama_context* context);
/* As llama_decode. Where a batch routes more experts than there are slots, `overflow` says what becomes of it; parts of it are told one by one: `decoded` (may
 * be null) hears of each part whose outputs can be read then: its first token in the batch, and how many. Outputs are those of llama_decode for the same parts, bit for
 * bit: what a matrix product gives for a row may depend on the rows beside it. 0, or not: the tokens
 * of the batch are not in the context's memory; a copy failed, or a single token does not fit. */
int hotset_llama_decode(hotset_llama* paging, struct llama_batch batch,
                        void (*decoded)(void* user, int32_t first, int32_t count), void* user);
/* For a program that calls llama_decode itself, as it may where `overflow` is HOTSET_LLAMA_PASS: 0 where every visit since the last call was served. Or not: a
 * copy failed, llama_decode has returned 0 all the same, and its outputs are none; take the tokens back (llama_memory_seq_rm). Until it is asked, nothing more is
 * computed. Ask after llama_synchronize. */
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
  /* Visits that were computed with the model's own weights, not counted above; not where all experts have room. */
  uint64_t passed;
  uint64_t slot_bytes; /* of all slots */
  int32_t slots;       /* of each layer */
  int32_t layers;      /* with experts */
  int32_t experts;     /* of each */
} hotset_llama_stats;
int hotset_llama_get_stats(const hotset_llama* paging, hotset_llama_stats* out);

/* The model has its own weights again. Null is nothing. */
void hotset_llama_destroy(hotset_llama* paging);

#ifdef __cplusplus
}
#endif
#endif
