/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a program under glibc 2.28: its own code runs the constructors. From 2.34 on glibc does that, unless the
 * program passes a function for it. Linked with --wrap=__libc_start_main. */
#include <stddef.h>

typedef void step(int count, char** words, char** environment);
typedef int start(int (*main)(int, char**, char**), int count, char** words, step* before,
                  void (*after)(void), void (*unload)(void), void* stack);
start __real___libc_start_main;
start __wrap___libc_start_main;
void _init(void);
__attribute__((visibility("hidden"))) extern step *__preinit_array_start[], *__preinit_array_end[];
__attribute__((visibility("hidden"))) extern step *__init_array_start[], *__init_array_end[];

static void run(step** begin, step** end, int count, char** words, char** environment) {
  for (; begin != end; ++begin) (*begin)(count, words, environment);
}
static void construct(int count, char** words, char** environment) {
  run(__preinit_array_start, __preinit_array_end, count, words, environment);
  _init();
  run(__init_array_start, __init_array_end, count, words, environment);
}
int __wrap___libc_start_main(int (*main)(int, char**, char**), int count, char** words,
                             step* before, void (*after)(void), void (*unload)(void), void* stack) {
  return __real___libc_start_main(main, count, words, before ? before : construct, after, unload,
                                  stack);
}
