/* SPDX-License-Identifier: Apache-2.0 */
/* A minimal engine in C: a random router, experts that are single numbers, and a cache for half of them.
 *   c_engine [eviction policy]      c_engine lru      c_engine similar_steps:rows=256 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hotset.h"

enum { LAYERS = 4, EXPERTS = 32, TOP_K = 4, TOKENS = 2, STEPS = 500, SLOTS = 16 };

/* State of the engine: the weights on the host, and its slots. */
typedef struct engine {
  double host[LAYERS][EXPERTS];
  double slots[LAYERS * SLOTS];
  double sum;
} engine;

static int32_t copy(void* user, const hotset_fill* fills, size_t count) {
  engine* const e = user;
  for (size_t i = 0; i < count; ++i) e->slots[fills[i].slot] = e->host[fills[i].key.layer][fills[i].key.expert];
  return 0;
}
static int32_t use(void* user, const hotset_visit* visit) {
  engine* const e = user;
  for (size_t i = 0; i < visit->count; ++i) e->sum += e->slots[visit->slots[i]];
  return 0;
}

static int fail(const char* what) {
  fprintf(stderr, "c_engine: %s: %s\n", what, hotset_last_error());
  return 1;
}

int main(int count, char** words) {
  static engine e;
  for (int l = 0; l < LAYERS; ++l)
    for (int x = 0; x < EXPERTS; ++x) e.host[l][x] = 1.0 + l * EXPERTS + x;

  hotset_pager_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.layers = LAYERS;
  options.experts = EXPERTS;
  options.top_k = TOP_K;
  options.max_tokens = TOKENS;
  options.slots = SLOTS; /* per layer */
  options.eviction = count > 1 ? words[1] : "similar_steps";
  hotset_pager* pager = NULL;
  if (hotset_pager_create(&options, &pager) != HOTSET_OK) return fail("no pager");

  const hotset_callbacks calls = {sizeof calls, copy, use, &e};
  double wanted = 0;
  unsigned random = 1;
  for (uint64_t step = 0; step < STEPS; ++step)
    for (int32_t layer = 0; layer < LAYERS; ++layer) {
      int32_t ids[TOKENS * TOP_K]; /* stands for a router: neighbours of a centre that moves sometimes */
      int32_t used[EXPERTS] = {0};
      for (int i = 0; i < TOKENS * TOP_K; ++i) {
        random = random * 1664525u + 1013904223u;
        ids[i] = (int32_t)((step / 50 * 11 + (random >> 24) % 12) % EXPERTS);
        if (used[ids[i]]++ == 0) wanted += e.host[layer][ids[i]];
      }
      hotset_view view;
      memset(&view, 0, sizeof view);
      view.struct_size = sizeof view;
      view.layer = layer;
      view.step = step;
      view.tokens = TOKENS;
      view.experts = ids;
      if (hotset_serve(pager, &view, &calls) != HOTSET_OK) return fail("a visit");
    }

  hotset_stats stats;
  stats.struct_size = sizeof stats;
  if (hotset_get_stats(pager, &stats) != HOTSET_OK) return fail("statistics");
  hotset_pager_destroy(pager);
  printf("%s: %llu of %llu experts were there, %llu copied; the sum is %s\n", options.eviction, (unsigned long long)stats.hits,
         (unsigned long long)stats.accesses, (unsigned long long)stats.fills, e.sum == wanted ? "right" : "WRONG");
  return e.sum == wanted ? 0 : 1;
}
