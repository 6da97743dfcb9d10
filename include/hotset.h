/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOTSET_H
#define HOTSET_H
/*
 * C interface of hotset: decides, visit by visit, which experts of a Mixture-of-Experts model stay on the
 * accelerator. For engines in C and for languages that call C. It copies no bytes: the engine makes the copies that a
 * visit lists.
 *
 * Per MoE layer, after the router:
 *
 *     hotset_visit visit = {.struct_size = sizeof visit};
 *     hotset_status s = hotset_plan(pager, &view, &visit);   // experts, their slots, and copies to make
 *     while (s == HOTSET_OK) {
 *       ... copy visit.fills, then compute visit.tokens with visit.slots ...
 *       s = hotset_commit(pager);                            // or hotset_abort, if a copy failed
 *       if (s != HOTSET_OK || !visit.more) break;
 *       s = hotset_plan_next(pager, &visit);                 // a visit that did not fit comes in groups of tokens
 *     }
 *
 * Structs begin with their size as the caller was compiled; later versions add members at the end. Arrays passed to a
 * call must last as long as the call; arrays of a view, until the visit's last commit. No exception leaves a
 * function. Functions that create, list, divide, write, or read statistics or a curve allocate memory. A recorder
 * allocates if rows lie apart. The others do not allocate.
 *
 * A call that fails changes neither the handle nor its outputs, unless the function says otherwise. Arrays of a
 * hotset_visit are valid until the pager plans again, even if that plan fails with NO_VICTIM, DOES_NOT_FIT or
 * POLICY_FAILED. If it fails with another code, they stay valid.
 *
 * A handle belongs to one thread at a time. If another call with the handle is running, a call returns
 * HOTSET_WRONG_THREAD; so does a call from a callback with the handle whose call runs it. A call in a process that
 * was forked after the handle was made returns HOTSET_FORKED. No call with a handle may run while it is destroyed.
 * hotset_last_error() describes why the thread's last failed call failed.
 *
 * A callback must return: leaving it by longjmp or an exception locks the handle for ever.
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

/* Attribute of types through which the library hands out its own memory, which has other types inside the library. */
#if defined(__GNUC__)
#define HOTSET_MAY_ALIAS __attribute__((may_alias))
#else
#define HOTSET_MAY_ALIAS
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Increases when a struct or a function changes so that a program must be compiled again. */
#define HOTSET_ABI_VERSION 1

/* ---- status codes ---- */

typedef int32_t hotset_status;
enum {
  HOTSET_OK = 0,
  HOTSET_INVALID_VISIT = 1,     /* layer out of range, or array lengths that do not match */
  HOTSET_VISIT_TOO_LARGE = 2,   /* more tokens than max_tokens */
  HOTSET_NO_VICTIM = 3,         /* not even one token fits beside the pinned slots */
  HOTSET_PLAN_OPEN = 4,         /* an earlier plan was neither committed nor aborted */
  HOTSET_VISIT_UNFINISHED = 5,  /* the last visit has groups left: plan them, or abandon it */
  HOTSET_NO_PLAN = 6,           /* no plan is open, or no group of the visit is left */
  HOTSET_BUSY = 7,              /* a slot is pinned or its copy is pending */
  HOTSET_EXCEEDS_MEMORY = 8,    /* a quota that the slots cannot give, or a full recorder */
  HOTSET_FILL_FAILED = 9,       /* a copy did not arrive; its slot is free and no row names it */
  HOTSET_INVALID_ARGUMENT = 10, /* a null pointer, or a key, slot or size out of range */
  HOTSET_DOES_NOT_FIT = 11,    /* the visit needs more slots than there are, and may not be split */
  HOTSET_INVALID_CONFIG = 100, /* invalid options */
  HOTSET_NO_MEMORY = 101,
  HOTSET_WRONG_THREAD = 102, /* another call with the handle is running */
  HOTSET_FORKED = 103,       /* the handle was made in the process that forked this one */
  HOTSET_CANNOT_WRITE = 104, /* the file does not exist, or is unchanged */
  HOTSET_STOPPED = 105,      /* a callback ended the visit */
  HOTSET_POLICY_FAILED = 106 /* a callback of a policy failed, or named an invalid victim */
};

/* Version that the library was built with. */
HOTSET_API uint32_t hotset_abi_version(void);
/* "0.1.0" */
HOTSET_API const char* hotset_version(void);
/* A sentence fragment fit for a message; never null. */
HOTSET_API const char* hotset_describe(hotset_status status);
/* Describes why the calling thread's last failed call failed, with the value and what is accepted. Valid until the
 * thread's next call; never null. */
HOTSET_API const char* hotset_last_error(void);

/* ---- pager: chooses which experts are resident ---- */

typedef struct hotset_pager hotset_pager;

enum { HOTSET_SCOPE_PER_LAYER = 0, HOTSET_SCOPE_SHARED = 1 };
/* Handling of a visit that does not fit. BY_TOKEN: groups of tokens (exact). BY_EXPERT: groups of experts (not
 * exact). REFUSE: returns HOTSET_DOES_NOT_FIT. LEAVE_REST: the experts that the fewest places name stay on the host. */
enum {
  HOTSET_SPLIT_BY_TOKEN = 0,
  HOTSET_SPLIT_BY_EXPERT = 1,
  HOTSET_SPLIT_REFUSE = 2,
  HOTSET_SPLIT_LEAVE_REST = 3
};
/* Residents that a prefetch may evict: any, or only those not already requested. PREDICTED spares those that
 * hotset_expect says are used sooner. */
enum { HOTSET_GUARD_NONE = 0, HOTSET_GUARD_NAMED = 1, HOTSET_GUARD_PREDICTED = 2 };

/* An expert or a slot in an array that a pager owns; read it as an int32_t. */
typedef int32_t hotset_id HOTSET_MAY_ALIAS;

typedef struct HOTSET_MAY_ALIAS hotset_key {
  int32_t layer;
  int32_t expert; /* -1 with layer -1: no key */
} hotset_key;

/* A copy of an expert that lost its slot, for any reason. */
typedef struct hotset_removal {
  hotset_key key;
  int32_t slot;
  int32_t precision;
  uint64_t last_reader; /* reader passed to hotset_unpin; 0: none */
} hotset_removal;

typedef struct hotset_eviction_policy hotset_eviction_policy;

/* Set struct_size and the wanted options, and leave the rest zero: zeros are the defaults. */
typedef struct hotset_pager_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts; /* in each layer */
  int32_t top_k;
  int32_t max_tokens;           /* most tokens of one visit; 0: 1 */
  const uint64_t* expert_bytes; /* one value for all layers, or one per layer; null: unknown */
  size_t expert_bytes_count;
  int32_t scope; /* HOTSET_SCOPE_... */
  int32_t split; /* HOTSET_SPLIT_... */
  int32_t guard; /* HOTSET_GUARD_... */
  int64_t slots; /* of each layer, or in all if shared; 0: as many as budget_bytes hold */
  uint64_t budget_bytes;
  /* "lfu:history=resident", "protect_hot+lru"; null: "lru". importance and expert_map_priority use hotset_expect, and
   * without it past use alone. Refused: policies that need a counted profile (popularity) or the future (belady). */
  const char* eviction;
  const char* admission; /* null: "always" */
  const char* miss;      /* null: "fetch" */
  /* Called for each expert that loses its slot, inside the call that takes the slot. It must not call hotset, and it
   * must return. May be null. */
  void (*removed)(void* user, const hotset_removal* removal);
  void* user;
  /* Several precisions, highest first: expert_bytes are those of the highest one. lower_bytes
   * [lower_precisions][expert_bytes_count] are those of the others, decreasing. slots_of_precision [1 +
   * lower_precisions] replaces slots and budget_bytes. Null: one precision. */
  const uint64_t* lower_bytes;
  size_t lower_precisions;
  const int64_t* slots_of_precision;
  /* "cache_aware:lambda=0.3"; null: "router_order". budget_top_k needs pre_eviction. Applied by hotset_route alone. */
  const char* routing;
  /* "active_evict:tau=0.002": hotset_expect then frees slots for the next layer. Null: "none". */
  const char* pre_eviction;
  /* The program's own eviction policy, in place of `eviction`, which must be null. Null: by name. */
  const hotset_eviction_policy* policy;
} hotset_pager_options;

/* On any error *out is null. Errors: INVALID_CONFIG, NO_MEMORY, INVALID_ARGUMENT, POLICY_FAILED (its reset failed). */
HOTSET_API hotset_status hotset_pager_create(const hotset_pager_options* options,
                                             hotset_pager** out);
/* Null is accepted and ignored. */
HOTSET_API void hotset_pager_destroy(hotset_pager* pager);

/* The router's choice for the tokens of one layer. */
typedef struct hotset_view {
  size_t struct_size;
  int32_t layer;
  int32_t kind;  /* 0 decode, 1 prefill, 2 verify */
  uint64_t step; /* the engine's, increasing */
  size_t tokens;
  /* [tokens][top_k] in rank order; -1: none. Other ids outside 0..experts - 1 are ignored and counted
   * (hotset_stats.ignored_ids); `routed` holds -1 in their places. A hardened library (HOTSET_HARDENED) refuses them
   * with INVALID_VISIT. */
  const int32_t* experts;
  size_t experts_stride; /* numbers between adjacent tokens' rows; 0: top_k */
  /* Gate weights [tokens][top_k]; null: none. A policy that needs them (gate_score, drop_cascade) refuses a visit
   * without them. */
  const float* weights;
  size_t weights_stride;     /* 0: top_k */
  const uint32_t* sequences; /* [tokens] sequence of each token; null: one sequence */
  /* Router logits [tokens][experts]; null: none. A policy or predictor that needs them (substitute, cache_aware,
   * current-gate) refuses a visit without them. */
  const float* logits;
  /* The router's own ids [tokens][top_k], if `experts` are those of hotset_route; null: `experts`. Policies that rank
   * experts by past routing use them. */
  const int32_t* chosen;
} hotset_view;

/* A copy to make, into a slot that has no reader once `after` has been passed. */
typedef struct HOTSET_MAY_ALIAS hotset_fill {
  hotset_key key;
  int32_t slot;
  uint32_t generation; /* of the slot: identifies this copy in hotset_arrived and others */
  hotset_key victim;   /* key whose bytes are overwritten; -1: a free slot */
  uint8_t precision;
  uint8_t speculative;
  uint64_t after; /* the slot's last reader, as passed to hotset_unpin; 0: none */
} hotset_fill;

enum { HOTSET_HIT = 0, HOTSET_FILL = 1, HOTSET_HOST = 2 };

/* Decisions of a plan. All arrays belong to the pager. */
typedef struct hotset_visit {
  size_t struct_size;       /* in */
  const hotset_id* experts; /* [count] distinct experts, in order of first appearance */
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
  /* [routed_count] ids to compute: the view's own, or the replacements of a miss policy */
  const hotset_id* routed;
  size_t routed_count;
  /* [late_count] slots of hits whose prefetched copy was not reported yet. Wait for it before kernels read the slot. If
   * it cannot arrive: hotset_abort, report it with hotset_failed or _cancelled, and plan again. */
  const hotset_id* late;
  size_t late_count;
} hotset_visit;

/* Writes the routing policy's choice for the view to `experts` [tokens][top_k]; -1: none. Plan it in place of the
 * router's, with gate weights that the engine computes from the router's unchanged scores. `experts` must not overlap
 * the view's arrays. Errors: INVALID_VISIT, VISIT_TOO_LARGE, PLAN_OPEN, VISIT_UNFINISHED. */
HOTSET_API hotset_status hotset_route(hotset_pager* pager, const hotset_view* view,
                                      int32_t* experts);
/* Errors: INVALID_VISIT, VISIT_TOO_LARGE, NO_VICTIM, DOES_NOT_FIT, PLAN_OPEN, VISIT_UNFINISHED. */
HOTSET_API hotset_status hotset_plan(hotset_pager* pager, const hotset_view* view,
                                     hotset_visit* out);
/* Plans the next group. Errors: PLAN_OPEN, NO_PLAN, NO_VICTIM. */
HOTSET_API hotset_status hotset_plan_next(hotset_pager* pager, hotset_visit* out);
/* Publishes the copies, which have been made or are ordered before the readers of the slots. Errors: NO_PLAN. */
HOTSET_API hotset_status hotset_commit(hotset_pager* pager);
/* Undoes the plan. `begun` [fills] is 1 for each copy that may have begun; null: none has. The visit's remaining
 * groups can be planned again, or abandoned. Errors: NO_PLAN, INVALID_ARGUMENT (count is not the plan's number of
 * fills). */
HOTSET_API hotset_status hotset_abort(hotset_pager* pager, const uint8_t* begun, size_t count);
/* Skips the remaining groups of the visit. Errors: PLAN_OPEN. */
HOTSET_API hotset_status hotset_abandon(hotset_pager* pager);

/* Serves a whole visit: for each group calls copy(user, fills), commits, then calls use(user, visit). Each callback
 * returns 0 to continue. If copy returns another value, the visit ends with FILL_FAILED, and all of the group's
 * copies count as begun. If use does, it ends with STOPPED. `copy` may be null if there is nothing to copy with.
 * Neither callback may call anything with the pager, and each must return. */
typedef struct hotset_callbacks {
  size_t struct_size;
  int32_t (*copy)(void* user, const hotset_fill* fills, size_t count);
  int32_t (*use)(void* user, const hotset_visit* visit);
  void* user;
} hotset_callbacks;
HOTSET_API hotset_status hotset_serve(hotset_pager* pager, const hotset_view* view,
                                      const hotset_callbacks* callbacks);

/* Row of a layer for kernels: [experts] slot of every expert whose bytes may be read, -1 for the others. *row is
 * valid until the pager is destroyed; its content changes when the row's version does. */
HOTSET_API hotset_status hotset_row(hotset_pager* pager, int32_t layer, const hotset_id** row,
                                    size_t* experts);
HOTSET_API hotset_status hotset_row_version(hotset_pager* pager, int32_t layer, uint64_t* version);
/* *slot is -1 for an absent key; a pending copy counts as present. */
HOTSET_API hotset_status hotset_locate(hotset_pager* pager, hotset_key key, int32_t* slot);
/* Precision that a slot is for; 0 is the highest. */
HOTSET_API hotset_status hotset_precision(hotset_pager* pager, int32_t slot, int32_t* precision);
/* Prevents eviction of a slot while enqueued work reads it. Pass *pin to hotset_unpin once. Errors: INVALID_ARGUMENT (a
 * free slot), PLAN_OPEN (the open plan has reserved the slot: pin it after the commit). */
HOTSET_API hotset_status hotset_pin(hotset_pager* pager, int32_t slot, uint64_t* pin);
/* `reader`: the engine's number for the work after which the slot is no longer read; 0: none. The fill that
 * overwrites the slot has it as `after`. */
HOTSET_API hotset_status hotset_unpin(hotset_pager* pager, uint64_t pin, uint64_t reader);

/* ---- an eviction policy of the program's own ---- */

/* The slots that a policy chooses from. */
typedef struct hotset_policy_layout {
  size_t struct_size;
  int32_t layers;
  int32_t experts; /* in each layer */
  int32_t top_k;
  int32_t pools; /* 1 if all layers share their slots; a victim is always of the visit's pool */
  const int32_t* pool_slots; /* [pools] slots of each pool at first; a quota may change them */
  size_t slots;              /* of all pools */
  /* [slots] key in each slot, -1: none. Valid while the policy is used; changed before each callback. */
  const hotset_key* keys;
} hotset_policy_layout;

/* An expert that a visit uses without a slot. */
typedef struct HOTSET_MAY_ALIAS hotset_bypass {
  int32_t expert;
  double weight; /* as hotset_visit_event.weights; unspecified without needs_weights */
} hotset_bypass;

/* A committed visit, or a group of one that was split. With several precisions, one event for each pool. */
typedef struct hotset_visit_event {
  size_t struct_size;
  int32_t layer;
  int32_t pool;
  uint64_t step;
  int32_t kind;             /* as hotset_view.kind */
  int32_t begins;           /* 0: a further event of the same visit */
  const hotset_id* experts; /* [count] distinct experts with a slot, in the order of last use */
  const hotset_id* slots;   /* [count] */
  const double* weights; /* [count] sum of each expert's gate weights; null without needs_weights */
  size_t count;
  const hotset_fill*
      fills; /* [fill_count] the experts that were copied, in the same order, with their victims */
  size_t fill_count;
  const hotset_bypass* bypassed; /* [bypassed_count] experts without a slot */
  size_t bypassed_count;
  const uint8_t*
      counted; /* [experts of a layer] 1: an earlier group used the expert; null: none did */
} hotset_visit_event;

/* Victims to choose. */
typedef struct hotset_choice {
  size_t struct_size;
  int32_t layer; /* the running layer; -1: before the first layer of a step */
  int32_t pool;
  uint64_t step;
  int32_t kind;
  int32_t speculative;         /* 1: for a prefetch */
  const hotset_id* candidates; /* [candidate_count] slots that may be evicted, ascending */
  size_t candidate_count;
  size_t count; /* victims to name: 1..candidate_count */
} hotset_choice;

/* Callbacks of a policy, called inside the calls with its pager. They must return, and must not call anything with
 * the pager. A callback that returns another value than it should fails: its call returns POLICY_FAILED, and the
 * pager goes on. A plan is not made then. A commit, an abort and a report of a copy have taken place.
 * hotset_set_quota may have evicted experts already. hotset_check_eviction tests a policy. */
struct hotset_eviction_policy {
  size_t struct_size;
  const char* name;      /* for messages; null: "called" */
  void* user;            /* first argument of each callback */
  int32_t needs_weights; /* 1: needs gate weights; visits without them are refused */
  /* Forgets everything: a pager starts with all slots free. Returns 0. May be null. */
  int32_t (*reset)(void* user, const hotset_policy_layout* layout);
  /* A visit took place. Returns 0. The event's fills overwrite their victims; on_evict does not report these. */
  int32_t (*on_visit)(void* user, const hotset_visit_event* event);
  /* A copy for a visit of `step` or for a warm start has a slot. Returns 0. May be null. */
  int32_t (*on_prefetch)(void* user, hotset_key key, int32_t slot, int32_t pool, uint64_t step);
  /* Outside of a visit, the slot lost its key: to a prefetch, a quota, a failed copy. Returns 0. May be null. */
  int32_t (*on_evict)(void* user, hotset_key key, int32_t slot, int32_t pool);
  /* Writes choice->count distinct candidates to `victims`, the first to evict first, and returns their number; a
   * negative number if it failed. It changes no answer: a repeated call names the same victims, and a call for fewer
   * names the first of them. on_visit reports which victims were taken. */
  int32_t (*select_victims)(void* user, const hotset_choice* choice, int32_t* victims);
};

/* Tests a policy with random visits, prefetches, evictions, pools of one layer and of all, as
 * hotset/testing/eviction_suite.hpp does. Errors: POLICY_FAILED; hotset_last_error() says after which event which
 * callback broke which rule. */
HOTSET_API hotset_status hotset_check_eviction(const hotset_eviction_policy* policy);

/* ---- prefetch ---- */

typedef struct hotset_request {
  hotset_key key;
  uint64_t for_step; /* step of the layer's visit that the request is for */
  float probability; /* 0..1 */
} hotset_request;
/* Plans copies of experts that are likely to be used, best first, at most `most`, in parallel with the running visit
 * of `layer`. Submit visit->fills, then commit (or abort). Report each copy with hotset_arrived, _cancelled or
 * _failed. *consumed: the requests of this plan, at most as many as a visit has experts; call again with the rest. */
HOTSET_API hotset_status hotset_prefetch(hotset_pager* pager, int32_t layer, uint64_t step,
                                         const hotset_request* requests, size_t count, size_t most,
                                         hotset_visit* out, size_t* consumed);
/* Probability that the router chooses each expert of the `depth` layers after `layer` (-1: before the first layer) in
 * `step`. Used by eviction policies that look ahead and by HOTSET_GUARD_PREDICTED; others ignore it. `probabilities`:
 * [tokens][depth][experts], each 0..1. With pre_eviction it also frees slots for the next layer, whose hotset_route
 * then takes the number of free slots as its budget. Call it after hotset_route of `layer`. Errors: INVALID_ARGUMENT;
 * with pre_eviction, PLAN_OPEN. */
HOTSET_API hotset_status hotset_expect(hotset_pager* pager, int32_t layer, uint64_t step,
                                       const float* probabilities, size_t tokens, int32_t depth);
/* Report a speculative copy. Ignored if the slot was used again since. _cancelled: if a committed visit uses the slot, the
 * copy has failed. Errors of _cancelled and _failed: PLAN_OPEN (the open plan reads the slot: hotset_abort first). */
HOTSET_API hotset_status hotset_arrived(hotset_pager* pager, int32_t slot, uint32_t generation);
HOTSET_API hotset_status hotset_cancelled(hotset_pager* pager, int32_t slot, uint32_t generation);
/* Reports any copy as failed: the slot becomes free and no row names it. */
HOTSET_API hotset_status hotset_failed(hotset_pager* pager, int32_t slot, uint32_t generation);

/* Predicts future uses for hotset_prefetch, with a predictor and a prefetch policy of the library. */
typedef struct hotset_prefetcher hotset_prefetcher;
typedef struct hotset_prefetcher_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts;
  int32_t top_k;
  int32_t max_tokens;    /* most tokens of one visit; 0: 1 */
  const char* prefetch;  /* "cumulative_probability"; null: "next_layer_top_k" */
  const char* predictor; /* "mixed+co-activation+last-routed"; null: "similar-steps" */
} hotset_prefetcher_options;
/* On any error *out is null. Errors: INVALID_CONFIG (also for a predictor or policy that needs what C cannot give:
 * routers, hidden states, a trace), NO_MEMORY. */
HOTSET_API hotset_status hotset_prefetcher_create(const hotset_prefetcher_options* options,
                                                  hotset_prefetcher** out);
HOTSET_API void hotset_prefetcher_destroy(hotset_prefetcher* prefetcher);
/* Most requests that one call returns. */
HOTSET_API hotset_status hotset_prefetcher_most(hotset_prefetcher* prefetcher, size_t* most);
/* Call it once for each routed visit, in order; or with layer -1 when a step begins and its tokens' sequences are
 * known. Layer -1 requests experts of the step's first layers. Writes at most `room` requests for later visits, best
 * first, and their number to *count. Errors: INVALID_VISIT, VISIT_TOO_LARGE. */
HOTSET_API hotset_status hotset_propose(hotset_prefetcher* prefetcher, const hotset_view* view,
                                        hotset_request* requests, size_t room, size_t* count);

/* ---- residents: forget, resize, list, warm start ---- */

/* Forgets a key, or with expert -1 its whole layer. Call it before its bytes change or are freed. Errors: BUSY,
 * PLAN_OPEN. */
HOTSET_API hotset_status hotset_invalidate(hotset_pager* pager, hotset_key key);
/* Sets how many slots a layer's pool may use: it shrinks in the policy's order and grows from spare slots. Errors:
 * BUSY, EXCEEDS_MEMORY, PLAN_OPEN, VISIT_UNFINISHED, INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_set_quota(hotset_pager* pager, int32_t layer, int32_t slots);
HOTSET_API hotset_status hotset_quota(hotset_pager* pager, int32_t layer, int32_t* slots);
/* Lists the resident keys, the next victim first. Writes at most `room` keys, and the number of residents to *count. */
HOTSET_API hotset_status hotset_residents(hotset_pager* pager, hotset_key* keys, size_t room,
                                          size_t* count);
/* Plans copies of keys into free slots, the most wanted key last; then commit or abort. *consumed keys were handled,
 * at most as many as one visit has experts: while it is not 0, call again with the rest. Errors: PLAN_OPEN,
 * VISIT_UNFINISHED, INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_plan_warm(hotset_pager* pager, const hotset_key* keys, size_t count,
                                          hotset_visit* out, size_t* consumed);

/* ---- statistics ---- */

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
/* Hash of every fill and eviction so far: equal for two pagers that decided alike. */
HOTSET_API hotset_status hotset_decision_hash(hotset_pager* pager, uint64_t* hash);

/* ---- miss curves, and the division of bytes by them ---- */

/* Exact misses of LRU at every size, computed from the observed visits. */
typedef struct hotset_curve hotset_curve;
typedef struct hotset_curve_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts;
  int32_t top_k;
  int32_t max_tokens; /* most tokens of one visit; 0: 1 */
  int32_t scope;      /* HOTSET_SCOPE_...: one curve per layer, or one for all */
} hotset_curve_options;
HOTSET_API hotset_status hotset_curve_create(const hotset_curve_options* options,
                                             hotset_curve** out);
HOTSET_API void hotset_curve_destroy(hotset_curve* curve);
/* Adds a visit. Errors: INVALID_VISIT, VISIT_TOO_LARGE. */
HOTSET_API hotset_status hotset_curve_observe(hotset_curve* curve, const hotset_view* view);
/* Mean misses per step with this many slots, first uses included: of a layer, or of all layers with scope SHARED and
 * layer 0. Errors: INVALID_ARGUMENT. */
HOTSET_API hotset_status hotset_curve_misses(hotset_curve* curve, int32_t layer, size_t slots,
                                             double* misses);
/* Number of slots from which on more slots change nothing. */
HOTSET_API hotset_status hotset_curve_most_slots(hotset_curve* curve, int32_t layer, size_t* slots);

/* A consumer of memory: a layer's experts, KV blocks, adapters. */
typedef struct hotset_consumer {
  const double* misses; /* [misses_count] misses per step with 0, 1, ... units, never rising */
  size_t misses_count;  /* units beyond the table change nothing */
  uint64_t unit_bytes;  /* bytes of one slot, block or page */
  double seconds_per_miss;
  uint64_t min_units; /* with fewer the engine does not run */
  uint64_t max_units; /* 0: as many as are useful */
} hotset_consumer;
/* Divides bytes so that the next byte saves the same time for every consumer: units[i] of consumer i. `seconds`, the
 * time of a step's misses, may be null. Errors: INVALID_ARGUMENT, EXCEEDS_MEMORY (the minimum of all consumers is
 * more), NO_MEMORY. */
HOTSET_API hotset_status hotset_divide(const hotset_consumer* consumers, size_t count,
                                       uint64_t total_bytes, uint64_t* units, double* seconds);

/* ---- placement of experts on the ranks of expert parallelism ---- */

typedef struct hotset_place_options {
  size_t struct_size;
  int32_t experts;
  int32_t ranks;
  int32_t redundant; /* slots beyond one for each expert, in all ranks together */
  int32_t nodes;     /* 0: 1. The ranks of a node are neighbours */
  int32_t groups;    /* 0: 1. Groups of a router that sends a token to few groups stay in a node */
  uint32_t
      move_cost; /* price of an expert that moves, in millionths of a rank's mean load; needs a start */
  int32_t starts; /* number of searches; 0: 1 */
  const int32_t*
      start; /* [slots] expert of each slot, to begin with; null: experts packed by their sums */
} hotset_place_options;
/* Places the experts of a layer by their loads in single steps: loads [steps][experts], tokens of each expert. Writes
 * the expert of each slot: rank r holds slots / ranks of them from r * slots / ranks on. slots: experts + redundant.
 * Every machine gives the same bits for the same loads. Threads: any number may call at once. Errors: INVALID_ARGUMENT,
 * NO_MEMORY. */
HOTSET_API hotset_status hotset_place(const hotset_place_options* options, const uint32_t* loads,
                                      size_t steps, int32_t* placed, size_t slots);

/* ---- recorder: routed ids as a trace file that hotset and every safetensors reader opens ---- */

typedef struct hotset_recorder hotset_recorder;
typedef struct hotset_recorder_options {
  size_t struct_size;
  int32_t layers;
  int32_t experts; /* in each layer, at most 65535: a trace file keeps ids in 16 bits */
  int32_t top_k;
  size_t capacity;   /* tokens; all memory is allocated at once */
  int32_t weights;   /* 1: gate weights too */
  const char* name;  /* null: none */
  const char* model; /* null: none */
} hotset_recorder_options;
HOTSET_API hotset_status hotset_recorder_create(const hotset_recorder_options* options,
                                                hotset_recorder** out);
HOTSET_API void hotset_recorder_destroy(hotset_recorder* recorder);
/* Begins a step with this many tokens; `sequences` [tokens] or null. Errors: EXCEEDS_MEMORY (the recorder is full;
 * the step counts as lost), INVALID_ARGUMENT (no tokens, a step is open, or the step is not after the last one or
 * exceeds 4294967295). */
HOTSET_API hotset_status hotset_recorder_begin_step(hotset_recorder* recorder, uint64_t step,
                                                    int32_t kind, size_t tokens,
                                                    const uint32_t* sequences);
/* Records one layer of the open step. Errors: INVALID_VISIT (another number of tokens than the step's),
 * INVALID_ARGUMENT (no step is open). */
HOTSET_API hotset_status hotset_recorder_record(hotset_recorder* recorder, const hotset_view* view);
/* Records a layer that has rows for only some of the step's tokens, such as an engine's last layer if not every
 * token's output is needed. `of`: [view->tokens] token of each row, ascending; the other tokens route nothing there.
 * Errors: those of hotset_recorder_record, and INVALID_VISIT for any other `of`. */
HOTSET_API hotset_status hotset_recorder_record_rows(hotset_recorder* recorder,
                                                     const hotset_view* view, const uint32_t* of);
HOTSET_API hotset_status hotset_recorder_end_step(hotset_recorder* recorder);
/* Tokens held of closed steps, and tokens that did not fit. */
HOTSET_API hotset_status hotset_recorder_tokens(hotset_recorder* recorder, size_t* held,
                                                uint64_t* lost);
/* Writes the closed steps and starts empty; an open step is dropped. Errors: CANNOT_WRITE; then the recorder is
 * unchanged. */
HOTSET_API hotset_status hotset_recorder_write(hotset_recorder* recorder, const char* path);

#ifdef __cplusplus
}
#endif
#endif
