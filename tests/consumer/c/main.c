/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "hotset.h"

int main(void) {
  hotset_pager_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.layers = 2;
  options.experts = 8;
  options.top_k = 2;
  options.slots = 4;
  options.eviction = "similar_steps";
  hotset_pager* pager = NULL;
  if (hotset_pager_create(&options, &pager) != HOTSET_OK) {
    fprintf(stderr, "%s\n", hotset_last_error());
    return 1;
  }
  const int32_t ids[2] = {5, 3};
  hotset_view view;
  memset(&view, 0, sizeof view);
  view.struct_size = sizeof view;
  view.layer = 1;
  view.tokens = 1;
  view.experts = ids;
  hotset_visit visit;
  visit.struct_size = sizeof visit;
  int bad = hotset_plan(pager, &view, &visit) != HOTSET_OK || visit.fill_count != 2 || hotset_commit(pager) != HOTSET_OK;
  bad = bad || hotset_plan(pager, &view, &visit) != HOTSET_OK || visit.fill_count != 0 || hotset_commit(pager) != HOTSET_OK;
  hotset_pager_destroy(pager);
  return bad || strcmp(hotset_version(), "") == 0;
}
