/* SPDX-License-Identifier: Apache-2.0 */
/* A program of a user of the installed library: pages a model with hotset_llama.h. serve_check.sh builds it by
 * pkg-config and by CMake.
 *   llama_consumer MODEL BUDGET */
#include <stdio.h>

#include "hotset_llama.h"

static void no_log(enum ggml_log_level level, const char* text, void* user) {
  (void)level, (void)text, (void)user;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  llama_log_set(no_log, NULL);
  struct llama_model_params model_params = llama_model_default_params();
  model_params.use_extra_bufts = false;
  struct llama_model* const model = llama_model_load_from_file(argv[1], model_params);
  if (model == NULL) return 1;
  hotset_llama_options options = {
      .struct_size = sizeof options, .model_path = argv[1], .budget = argv[2]};
  hotset_llama* const paging = hotset_llama_create(&options);
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = 64;
  if (hotset_llama_prepare(paging, &params) != 0) goto failed;
  struct llama_context* const context = llama_init_from_model(model, params);
  if (context == NULL || hotset_llama_attach(paging, context) != 0) goto failed;
  llama_token token = 'a';
  if (llama_decode(context, llama_batch_get_one(&token, 1)) != 0) goto failed;
  llama_synchronize(context);
  if (hotset_llama_check(paging) != 0) goto failed;
  hotset_llama_stats stats = {.struct_size = sizeof stats};
  hotset_llama_get_stats(paging, &stats);
  printf("%s: %d slots, %llu accesses\n", hotset_llama_built_for(), stats.slots,
         (unsigned long long)stats.accesses);
  llama_free(context);
  hotset_llama_destroy(paging);
  llama_model_free(model);
  return 0;
failed:
  fprintf(stderr, "llama_consumer: %s\n", hotset_llama_error(paging));
  return 1;
}
