/* SPDX-License-Identifier: Apache-2.0 */
/* A program with llama.cpp that knows nothing of hotset; serve_check.sh runs it with and without LD_PRELOAD.
 *   llama_program HOW MODEL...
 * Prints a hash of all logits of some tokens. Ends with 1 if llama.cpp returns no model, no context or an error. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

enum { PROMPT = 60, GENERATED = 12, VOCABULARY = 256 };

static const char* how;
static bool is(const char* name) { return strcmp(how, name) == 0; }

static void require(bool ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "llama_program: %s\n", what);
  exit(1);
}

static void log_errors(enum ggml_log_level level, const char* text, void* user) {
  (void)user;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static struct llama_model* load(int count, char** paths) {
  struct llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  if (is("sizes")) {
    params.load_mode = LLAMA_LOAD_MODE_NONE;
    params.no_alloc = true;
  }
  if (is("splits")) return llama_model_load_from_splits((const char**)paths, (size_t)count, params);
  if (is("stream")) return llama_model_load_from_file_ptr(fopen(paths[0], "rb"), params);
  return llama_model_load_from_file(paths[0], params);
}

static struct llama_context* make_context(struct llama_model* model) {
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = 256;
  params.n_batch = params.n_ubatch = 64;
  params.n_threads = params.n_threads_batch = 1;
  params.embeddings = is("embeddings");
  return llama_init_from_model(model, params);
}

static int32_t compute(struct llama_context* context, llama_token* tokens, int32_t count,
                       llama_pos first) {
  if (!is("process")) return llama_decode(context, llama_batch_get_one(tokens, count));
  struct llama_batch_ext* const batch = llama_batch_ext_init(context);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t index = llama_batch_ext_add_token(batch, 0, tokens[i]);
    const llama_pos position = first + i;
    llama_batch_ext_set_pos(batch, index, &position);
    llama_batch_ext_set_output_logits(batch, index, i + 1 == count);
  }
  const int32_t code = llama_process(context, LLAMA_PROCESS_TYPE_DECODE, batch);
  llama_batch_ext_free(batch);
  return code;
}

static uint64_t hash_logits(struct llama_context* context, uint64_t hash) {
  const unsigned char* const bytes = (const unsigned char*)llama_get_logits_ith(context, -1);
  require(bytes != NULL, "no logits");
  for (size_t i = 0; i < VOCABULARY * sizeof(float); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

/* A prompt, then tokens one by one. */
static void* generate(void* of) {
  struct llama_context* const context = of;
  llama_token tokens[PROMPT + GENERATED];
  uint32_t seed = 1;
  for (int i = 0; i < PROMPT + GENERATED; ++i)
    tokens[i] = (llama_token)((seed = seed * 1664525u + 1013904223u) >> 24);
  uint64_t hash = 14695981039346656037u;
  for (int at = 0, count = PROMPT; at < PROMPT + GENERATED; at += count, count = 1) {
    require(compute(context, tokens + at, count, at) == 0, "an error of llama.cpp");
    hash = hash_logits(context, hash);
  }
  uint64_t* const out = malloc(sizeof *out);
  *out = hash;
  return out;
}

static void print(void* hash) {
  printf("%016llx\n", *(unsigned long long*)hash);
  free(hash);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fputs(
        "usage: llama_program decode|process|splits|stream|embeddings|sizes|threads|unfreed|"
        "leaked MODEL...\n",
        stderr);
    return 2;
  }
  how = argv[1];
  llama_log_set(log_errors, NULL);
  llama_backend_init();
  struct llama_model* const model = load(argc - 2, argv + 2);
  require(model != NULL, "no model");
  struct llama_context* const context = make_context(model);
  require(context != NULL, "no context");
  if (is("threads")) {
    struct llama_context* const other = make_context(model);
    require(other != NULL, "no second context");
    pthread_t thread;
    require(pthread_create(&thread, NULL, generate, other) == 0, "no thread");
    print(generate(context));
    void* hash = NULL;
    pthread_join(thread, &hash);
    print(hash);
    llama_free(other);
  } else if (!is("sizes")) {
    print(generate(context));
  }
  if (is("unfreed")) return 0;
  if (!is("leaked")) llama_free(context);
  llama_model_free(model);
  return 0;
}
