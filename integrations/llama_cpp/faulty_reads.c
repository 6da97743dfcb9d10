/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded (LD_PRELOAD), it makes positional file reads fail, for check.sh:
 *   FAULTY_READS=short     every read returns half of the requested bytes
 *   FAULTY_READS=eio       reads fail, starting with the FAULTY_AFTER-th
 *   FAULTY_READS=end       reads return end of file, starting with the FAULTY_AFTER-th, as for a truncated file
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef ssize_t read_at(int, void*, size_t, off_t);

static ssize_t faulty(read_at* real, int file, void* to, size_t bytes, off_t at) {
  static atomic_long calls;
  const char* how = getenv("FAULTY_READS");
  const char* after = getenv("FAULTY_AFTER");
  const int due = atomic_fetch_add(&calls, 1) >= (after == NULL ? 0 : atol(after));
  if (how != NULL && strcmp(how, "short") == 0)
    return real(file, to, bytes > 1 ? bytes / 2 : bytes, at);
  if (how != NULL && due && strcmp(how, "eio") == 0) {
    errno = EIO;
    return -1;
  }
  if (how != NULL && due && strcmp(how, "end") == 0) return 0;
  return real(file, to, bytes, at);
}

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  return faulty((read_at*)dlsym(RTLD_NEXT, "pread"), file, to, bytes, at);
}
ssize_t pread64(int file, void* to, size_t bytes, off64_t at) {
  return faulty((read_at*)dlsym(RTLD_NEXT, "pread64"), file, to, bytes, (off_t)at);
}
