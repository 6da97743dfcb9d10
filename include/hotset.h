/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOTSET_H
#define HOTSET_H
/*
 * The C interface of hotset: which experts of a Mixture-of-Experts model stay on the accelerator, decided visit by
 * visit, for engines in C and for whatever calls C. It decides and moves no bytes: the engine makes the copies that a
 * visit names.
 *
 * Per MoE layer, after the router:
 *
 *     hotset_visit visit = {.struct_size = sizeof visit};
 *     hotset_status s = hotset_plan(pager, &view, &visit);   // which experts, where, and what must be copied
 *     while (s == HOTSET_OK) {
 *       ... copy visit.fills, then compute visit.tokens with visit.slots ...
 *       s = hotset_commit(pager);                            // or hotset_abort, if a copy failed
 *       if (s != HOTSET_OK || !visit.more) break;
 *       s = hotset_plan_next(pager, &visit);                 // a visit that did not fit comes in groups of tokens
 *     }
 *
 * Structs begin with their size, as the caller was compiled: later versions add members at the end. Arrays that are
 * passed in last as long as the call, those of a view until the visit's last commit. No exception leaves a function.
 * Functions that create, list, divide, write, or read statistics or a curve allocate, and a recorder if rows lie
 * apart; the others do not.
 *
 * A call that fails changes nothing, neither the handle nor what it was to write, unless the function says more. What
 * a hotset_visit points at is valid until the pager plans again, also if that plan fails with NO_VICTIM or
 * DOES_NOT_FIT. A plan that fails with another code leaves it valid.
 *
 * A handle belongs to one thread at a time. A call while another one runs is HOTSET_WRONG_THREAD, and so is a call
 * from a callback with the handle whose call runs it. A call in a process that was forked after the handle was made is
 * HOTSET_FORKED. No call with a handle may run while it is destroyed. hotset_last_error() says in words why the
 * thread's last call failed.
 *
 * A callback returns: leaving it by longjmp or an exception leaves the handle locked for ever.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "hotset's C interface is built for systems with POSIX threads"
#elif defined(__GNUC__)
#define HOTSET_API __attribute__((visibility("default")))
#else
#define HOTSET_API
#endif

/* The library's own memory is handed out through these types, whatever its types there are called. */
#if defined(__GNUC__)
#define HOTSET_MAY_ALIAS __attribute__((may_alias))
#else
#define HOTSET_MAY_ALIAS
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Rises when a struct or a function changes so that a program must be compiled again. */
#define HOTSET_ABI_VERSION 1

/* ---- what became of a call ---- */

typedef int32_t hotset_status;
enum {
  HOTSET_OK = 0,
  HOTSET_INVALID_VISIT = 1,     /* layer out of range, or arrays that do not belong together */
  HOTSET_VISIT_TOO_LARGE = 2,   /* more tokens than max_tokens */
  HOTSET_NO_VICTIM = 3,         /* not even one token fits beside the pinned slots */
  HOTSET_PLAN_OPEN = 4,         /* an earlier plan was neither committed nor aborted */
  HOTSET_VISIT_UNFINISHED = 5,  /* the last visit has groups left: plan them, or abandon it */
  HOTSET_NO_PLAN = 6,           /* no plan is open, or no group of the visit is left */
  HOTSET_BUSY = 7,              /* a slot is pinned or its copy is on its way */
  HOTSET_EXCEEDS_MEMORY = 8,    /* a quota that the slots cannot give, or a recorder that is full */
  HOTSET_FILL_FAILED = 9,       /* a copy did not arrive; its slot is free and no row names it */
  HOTSET_INVALID_ARGUMENT = 10, /* a null pointer, or a key, slot or size out of range */
  HOTSET_DOES_NOT_FIT = 11,    /* the visit needs more slots than there are, and may not be split */
  HOTSET_INVALID_CONFIG = 100, /* options that cannot work */
  HOTSET_NO_MEMORY = 101,
  HOTSET_WRONG_THREAD = 102, /* another call with the handle is running */
  HOTSET_FORKED = 103,       /* the handle was made in the process that forked this one */
  HOTSET_CANNOT_WRITE = 104, /* a file; it is not there, or as it was before */
  HOTSET_STOPPED = 105       /* a callback asked for it */
};

/* The version that the library was built with. */
HOTSET_API uint32_t hotset_abi_version(void);
/* "0.1.0" */
HOTSET_API const char* hotset_version(void);
/* A sentence fragment fit for a message; never null. */
HOTSET_API const char* hotset_describe(hotset_status status);
/* Why the calling thread's last call that failed did, with the value and what is accepted. Good until its next call. Never null. */
HOTSET_API const char* hotset_last_error(void);

/* ---- a pager: who stays ---- */

typedef struct hotset_pager hotset_pager;

enum { HOTSET_SCOPE_PER_LAYER = 0, HOTSET_SCOPE_SHARED = 1 };
/* What becomes of a visit that does not fit: it comes in groups of tokens (exact), in groups of experts (not exact), it is refused with
 * HOTSET_DOES_NOT_FIT, or what the fewest of its places name stays on the host. */
enum {
  HOTSET_SPLIT_BY_TOKEN = 0,
  HOTSET_SPLIT_BY_EXPERT = 1,
  HOTSET_SPLIT_REFUSE = 2,
  HOTSET_SPLIT_LEAVE_REST = 3
};
/* Residents that a prefetch may evict: any, or only those not already requested. PREDICTED spares those that
 * hotset_expect says are used sooner. */
enum { HOTSET_GUARD_NONE = 0, HOTSET_GUARD_NAMED = 1, HOTSET_GUARD_PREDICTED = 2 };

/* An expert or a slot in an array that a pager owns: an int32_t, and read as one. */
typedef int32_t hotset_id HOTSET_MAY_ALIAS;

typedef struct HOTSET_MAY_ALIAS hotset_key {
  int32_t layer;
  int32_t expert; /* -1 with layer -1: none */
} hotset_key;

/* A copy of an expert that was given up, whatever gave it up. */
typedef struct hotset_departure {
  hotset_key key;
  int32_t slot;
  int32_t precision;
  uint64_t last_reader; /* what hotset_unpin was told; 0: none */
} hotset_departure;

/* Zero but for the struct's size and what is wanted: zeros are the defaults. */
typedef struct hotset_pager_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts; /* of a layer */
  int32_t top_k;
  int32_t max_tokens;           /* of one visit; 0: 1 */
  const uint64_t* expert_bytes; /* one for all layers, or one for each; null: unknown */
  size_t expert_bytes_count;
  int32_t scope; /* HOTSET_SCOPE_... */
  int32_t split; /* HOTSET_SPLIT_... */
  int32_t guard; /* HOTSET_GUARD_... */
  int64_t slots; /* of each layer, or of all in a shared pool; 0: as many as budget_bytes hold */
  uint64_t budget_bytes;
  /* "lfu:history=resident", "protect_hot+lru"; null: "lru". importance and expert_map_priority go by hotset_expect, and
   * without it by past use alone. Refused: policies that go by a counted profile (popularity) or by the future
   * (belady). */
  const char* eviction;
  const char* admission; /* null: "always" */
  const char* miss;      /* null: "fetch" */
  /* Called for each expert that loses its slot, within the call that takes the slot. It must not call hotset, and it
   * returns. May be null. */
  void (*departed)(void* user, const hotset_departure* departure);
  void* user;
  /* Several precisions, highest first: expert_bytes are the highest one's, and lower_bytes [lower_precisions][expert_bytes_count]
   * those of the others, falling. slots_of_precision: [1 + lower_precisions] in place of slots and budget_bytes. Null: one precision. */
  const uint64_t* lower_bytes;
  size_t lower_precisions;
  const int64_t* slots_of_precision;
} hotset_pager_options;

/* On any error *out is null. Errors: INVALID_CONFIG, NO_MEMORY, INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_pager_create(const hotset_pager_options* options,
                                             hotset_pager** out);
/* Null is nothing. */
HOTSET_API void hotset_pager_destroy(hotset_pager* pager);

/* What the router chose for the tokens of one layer. */
typedef struct hotset_view {
  size_t struct_size;
  int32_t layer;
  int32_t kind;  /* 0 decode, 1 prefill, 2 verify */
  uint64_t step; /* of the engine, rising */
  size_t tokens;
  /* [tokens][top_k] in rank order; -1: none. Other ids outside 0..experts - 1 are ignored and counted
   * (hotset_stats.ignored_ids): `routed` holds -1 in their places. A hardened library (HOTSET_HARDENED) refuses them
   * with INVALID_VISIT. */
  const int32_t* experts;
  size_t experts_stride; /* numbers from one token to the next; 0: top_k */
  /* Likewise; null: none. A policy that goes by them (gate_score, drop_cascade) refuses a visit without. */
  const float* weights;
  size_t weights_stride;     /* 0: top_k */
  const uint32_t* sequences; /* [tokens] whose token it is; null: all of one */
  /* [tokens][experts] of the router; null: none. A policy or predictor that goes by them (substitute, current-gate)
   * refuses a visit without. */
  const float* logits;
} hotset_view;

/* A copy to make, into a slot that nobody reads once `after` has been passed. */
typedef struct HOTSET_MAY_ALIAS hotset_fill {
  hotset_key key;
  int32_t slot;
  uint32_t generation; /* of the slot: names this copy to hotset_arrived and others */
  hotset_key victim;   /* whose bytes it overwrites; -1: a free slot */
  uint8_t precision;
  uint8_t speculative;
  uint64_t after; /* the slot's last reader, as hotset_unpin was told; 0: none */
} hotset_fill;

enum { HOTSET_HIT = 0, HOTSET_FILL = 1, HOTSET_HOST = 2 };

/* What was decided. All arrays belong to the pager. */
typedef struct hotset_visit {
  size_t struct_size;       /* in */
  const hotset_id* experts; /* [count] the distinct ones, in order of first appearance */
  const hotset_id* slots;   /* [count] -1: stays on the host */
  const uint8_t* services;  /* [count] HOTSET_HIT, HOTSET_FILL or HOTSET_HOST */
  size_t count;
  const hotset_fill* fills; /* [fill_count] in the order of need */
  size_t fill_count;
  const uint32_t* tokens; /* [token_count] of this group, ascending */
  size_t token_count;
  uint32_t group;
  uint32_t groups;
  int32_t more;        /* 1: hotset_plan_next has another group */
  int32_t expert_wise; /* 1: a part of every token's sum */
  /* [routed_count] the ids to compute: the view's own, or what a miss policy made of them */
  const hotset_id* routed;
  size_t routed_count;
} hotset_visit;

/* Errors: INVALID_VISIT, VISIT_TOO_LARGE, NO_VICTIM, DOES_NOT_FIT, PLAN_OPEN, VISIT_UNFINISHED. */
HOTSET_API hotset_status hotset_plan(hotset_pager* pager, const hotset_view* view,
                                     hotset_visit* out);
/* The next group. Errors: PLAN_OPEN, NO_PLAN, NO_VICTIM. */
HOTSET_API hotset_status hotset_plan_next(hotset_pager* pager, hotset_visit* out);
/* The copies have been made, or are ordered before whatever reads the slots: publishes them. Errors: NO_PLAN. */
HOTSET_API hotset_status hotset_commit(hotset_pager* pager);
/* Undoes the plan. `begun` [fills] is 1 for each copy that may have begun; null: for none. The visit's groups that are left stay to be
 * planned again; or abandon them. Errors: NO_PLAN, INVALID_ARGUMENT (another count than the plan's fills). */
HOTSET_API hotset_status hotset_abort(hotset_pager* pager, const uint8_t* begun, size_t count);
/* Gives up the groups that are left. Errors: PLAN_OPEN. */
HOTSET_API hotset_status hotset_abandon(hotset_pager* pager);

/* A whole visit: for each group copy(user, fills) and then, once it is committed, use(user, visit). Either returns 0,
 * or ends the visit: a copy that fails with FILL_FAILED, and all of the group's copies count as begun; a use with
 * STOPPED. `copy` may be null where there is nothing to copy with. Neither may call anything with the pager, and each
 * returns. */
typedef struct hotset_callbacks {
  size_t struct_size;
  int32_t (*copy)(void* user, const hotset_fill* fills, size_t count);
  int32_t (*use)(void* user, const hotset_visit* visit);
  void* user;
} hotset_callbacks;
HOTSET_API hotset_status hotset_serve(hotset_pager* pager, const hotset_view* view,
                                      const hotset_callbacks* callbacks);

/* Slot of every expert of a layer whose bytes may be read, -1 for the others: what a kernel looks up. *row is good until the pager is destroyed;
 * its content changes when the row's version does. */
HOTSET_API hotset_status hotset_row(hotset_pager* pager, int32_t layer, const hotset_id** row,
                                    size_t* experts);
HOTSET_API hotset_status hotset_row_version(hotset_pager* pager, int32_t layer, uint64_t* version);
/* *slot is -1 for what is absent; a copy that is on its way counts. */
HOTSET_API hotset_status hotset_locate(hotset_pager* pager, hotset_key key, int32_t* slot);
/* Which precision a slot is for, 0 the highest. */
HOTSET_API hotset_status hotset_precision(hotset_pager* pager, int32_t slot, int32_t* precision);
/* Keeps a slot from being evicted while work that was enqueued reads it. *pin ends it, once. */
HOTSET_API hotset_status hotset_pin(hotset_pager* pager, int32_t slot, uint64_t* pin);
/* `reader`: a number of the engine's, 0 for none, after which the slot is no longer read; the fill that overwrites it has it as `after`. */
HOTSET_API hotset_status hotset_unpin(hotset_pager* pager, uint64_t pin, uint64_t reader);

/* ---- prefetch ---- */

typedef struct hotset_request {
  hotset_key key;
  uint64_t for_step; /* the step whose visit of the layer it is for */
  float probability; /* 0..1 */
} hotset_request;
/* Plans copies for what is likely to be used, best first, at most `most` of them, beside the visit of `layer` that is running. Submit visit->fills, then
 * commit (or abort); tell hotset_arrived, _cancelled or _failed of each. */
HOTSET_API hotset_status hotset_prefetch(hotset_pager* pager, int32_t layer, uint64_t step,
                                         const hotset_request* requests, size_t count, size_t most,
                                         hotset_visit* out);
/* How likely the router is to choose each expert of the `depth` layers after `layer`, -1 before the first, in `step`: for
 * eviction policies that look ahead and for HOTSET_GUARD_PREDICTED. Others do not hear it. `probabilities`:
 * [tokens][depth][experts], each 0..1. Errors: INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_expect(hotset_pager* pager, int32_t layer, uint64_t step,
                                       const float* probabilities, size_t tokens, int32_t depth);
/* Of a speculative copy. Ignored where the slot was used again since. */
HOTSET_API hotset_status hotset_arrived(hotset_pager* pager, int32_t slot, uint32_t generation);
HOTSET_API hotset_status hotset_cancelled(hotset_pager* pager, int32_t slot, uint32_t generation);
/* Of any copy: the slot becomes free and no row names it. */
HOTSET_API hotset_status hotset_failed(hotset_pager* pager, int32_t slot, uint32_t generation);

/* What will be used, by a predictor and a prefetch policy of the library, for hotset_prefetch. */
typedef struct hotset_prefetcher hotset_prefetcher;
typedef struct hotset_prefetcher_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts;
  int32_t top_k;
  int32_t max_tokens;    /* of one visit; 0: 1 */
  const char* prefetch;  /* "cumulative_probability"; null: "next_layer_top_k" */
  const char* predictor; /* "mixed+co-activation+last-routed"; null: "similar-steps" */
} hotset_prefetcher_options;
/* On any error *out is null. Errors: INVALID_CONFIG (also a predictor or policy that goes by what C cannot give:
 * routers, hidden states, a trace), NO_MEMORY. */
HOTSET_API hotset_status hotset_prefetcher_create(const hotset_prefetcher_options* options,
                                                  hotset_prefetcher** out);
HOTSET_API void hotset_prefetcher_destroy(hotset_prefetcher* prefetcher);
/* The most requests that one call gives. */
HOTSET_API hotset_status hotset_prefetcher_most(hotset_prefetcher* prefetcher, size_t* most);
/* A visit was routed, once each and in their order; or, with layer -1, a step begins, of whose tokens the sequences are known: what is asked for then is of its first
 * layers. Writes at most `room` requests for later visits, best first, and to *count how many.
 * Errors: INVALID_VISIT, VISIT_TOO_LARGE. */
HOTSET_API hotset_status hotset_propose(hotset_prefetcher* prefetcher, const hotset_view* view,
                                        hotset_request* requests, size_t room, size_t* count);

/* ---- what is given up, and what is kept for another run ---- */

/* Forgets a key, or with expert -1 its whole layer, because its bytes change or go away. Errors: BUSY, PLAN_OPEN. */
HOTSET_API hotset_status hotset_invalidate(hotset_pager* pager, hotset_key key);
/* How many slots a layer's pool may use: it shrinks in the policy's order and grows from spare slots. Errors: BUSY, EXCEEDS_MEMORY, PLAN_OPEN,
 * VISIT_UNFINISHED, INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_set_quota(hotset_pager* pager, int32_t layer, int32_t slots);
HOTSET_API hotset_status hotset_quota(hotset_pager* pager, int32_t layer, int32_t* slots);
/* What is resident, first what would go first. Writes at most `room` keys, and to *count how many there are. */
HOTSET_API hotset_status hotset_residents(hotset_pager* pager, hotset_key* keys, size_t room,
                                          size_t* count);
/* Plans copies of keys into free slots, the last one wanted most; commit or abort it. *consumed of them were dealt
 * with, at most as many as one visit has experts: call again with the rest while that is not 0. Errors: PLAN_OPEN,
 * VISIT_UNFINISHED, INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_plan_warm(hotset_pager* pager, const hotset_key* keys, size_t count,
                                          hotset_visit* out, size_t* consumed);

/* ---- figures ---- */

typedef struct hotset_stats {
  size_t struct_size; /* in */
  uint64_t visits;
  uint64_t steps;
  uint64_t accesses;
  uint64_t hits;
  uint64_t misses;
  uint64_t compulsory_misses;
  uint64_t collision_misses;
  uint64_t fills;
  uint64_t bypasses;
  uint64_t evictions;
  uint64_t split_visits;
  uint64_t groups;
  uint64_t failed_fills;
  uint64_t ignored_ids; /* routed ids outside 0..experts - 1, -1 among them */
  uint64_t bytes_filled;
  uint64_t speculative_fills;
  uint64_t prefetch_hits;
  uint64_t wasted_prefetches;
} hotset_stats;
HOTSET_API hotset_status hotset_get_stats(hotset_pager* pager, hotset_stats* out);
/* Of every fill and eviction so far: two pagers that decided alike agree. */
HOTSET_API hotset_status hotset_decision_hash(hotset_pager* pager, uint64_t* hash);

/* ---- miss curves, and bytes divided by them ---- */

/* What LRU would have missed at every size, exactly, from the visits that it is shown. */
typedef struct hotset_curve hotset_curve;
typedef struct hotset_curve_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts;
  int32_t top_k;
  int32_t max_tokens; /* of one visit; 0: 1 */
  int32_t scope;      /* HOTSET_SCOPE_...: a curve for each layer, or one of all */
} hotset_curve_options;
HOTSET_API hotset_status hotset_curve_create(const hotset_curve_options* options,
                                             hotset_curve** out);
HOTSET_API void hotset_curve_destroy(hotset_curve* curve);
/* Takes a visit in. Errors: INVALID_VISIT, VISIT_TOO_LARGE. */
HOTSET_API hotset_status hotset_curve_observe(hotset_curve* curve, const hotset_view* view);
/* Misses of a step with so many slots, on average, first uses included; of a layer, or with scope SHARED of layer 0: all layers. Errors: INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_curve_misses(hotset_curve* curve, int32_t layer, size_t slots,
                                             double* misses);
/* From so many slots on nothing changes. */
HOTSET_API hotset_status hotset_curve_most_slots(hotset_curve* curve, int32_t layer, size_t* slots);

/* One that wants memory: a layer's experts, KV blocks, adapters. */
typedef struct hotset_consumer {
  const double* misses; /* [misses_count] misses of a step with 0, 1, ... units, never rising */
  size_t misses_count;  /* as many units more than the table has change nothing */
  uint64_t unit_bytes;  /* of a slot, block or page */
  double seconds_per_miss;
  uint64_t min_units; /* below it the engine does not run */
  uint64_t max_units; /* 0: as many as help */
} hotset_consumer;
/* Divides bytes so that the next one saves as much time wherever it goes: units[i] of consumer i. `seconds`, of a
 * step by the misses, may be null. Errors: INVALID_ARGUMENT, EXCEEDS_MEMORY (what all need at least is more),
 * NO_MEMORY. */
HOTSET_API hotset_status hotset_divide(const hotset_consumer* consumers, size_t count,
                                       uint64_t total_bytes, uint64_t* units, double* seconds);

/* ---- a recorder: what was routed, as a trace that hotset and every reader of safetensors opens ---- */

typedef struct hotset_recorder hotset_recorder;
typedef struct hotset_recorder_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts; /* of a layer, at most 65535: a trace file keeps ids in 16 bits */
  int32_t top_k;
  size_t capacity;   /* tokens; all memory is taken at once */
  int32_t weights;   /* 1: gate weights too */
  const char* name;  /* null: none */
  const char* model; /* null: none */
} hotset_recorder_options;
HOTSET_API hotset_status hotset_recorder_create(const hotset_recorder_options* options,
                                                hotset_recorder** out);
HOTSET_API void hotset_recorder_destroy(hotset_recorder* recorder);
/* A step of so many tokens; `sequences` [tokens] or null. Errors: EXCEEDS_MEMORY (it is full; the step is counted as
 * lost), INVALID_ARGUMENT (no tokens, a step is open, or the step does not come after the last one or exceeds
 * 4294967295). */
HOTSET_API hotset_status hotset_recorder_begin_step(hotset_recorder* recorder, uint64_t step,
                                                    int32_t kind, size_t tokens,
                                                    const uint32_t* sequences);
/* One layer of the open step. Errors: INVALID_VISIT (other tokens than the step's), INVALID_ARGUMENT (no step is open). */
HOTSET_API hotset_status hotset_recorder_record(hotset_recorder* recorder, const hotset_view* view);
/* A layer that has rows for some tokens of the step alone, as an engine's last one has where not every token's output is wanted. `of`: [view->tokens] the token
 * of each row, ascending; the others route nothing there. Errors: as above, and INVALID_VISIT for such an `of`. */
HOTSET_API hotset_status hotset_recorder_record_rows(hotset_recorder* recorder,
                                                     const hotset_view* view, const uint32_t* of);
HOTSET_API hotset_status hotset_recorder_end_step(hotset_recorder* recorder);
/* Tokens of closed steps that it holds, and tokens that found no room. */
HOTSET_API hotset_status hotset_recorder_tokens(hotset_recorder* recorder, size_t* held,
                                                uint64_t* lost);
/* Writes the closed steps and begins anew; an open step is dropped. Errors: CANNOT_WRITE: then the recorder is as it
 * was. */
HOTSET_API hotset_status hotset_recorder_write(hotset_recorder* recorder, const char* path);

#ifdef __cplusplus
}
#endif
#endif
