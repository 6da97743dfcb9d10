/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that g++ and its libraries take from glibc after 2.28, by means of 2.28. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* 0: reference counts are atomic, always. */
char __libc_single_threaded = 0;

/* Up to 2.32 a function took the version of struct stat, and these were inline. */
struct stat;
int __xstat(int version, const char* path, struct stat* out);
int __lxstat(int version, const char* path, struct stat* out);
int __fxstat(int version, int file, struct stat* out);
enum { stat_version = 1 };
int stat(const char* path, struct stat* out) { return __xstat(stat_version, path, out); }
int lstat(const char* path, struct stat* out) { return __lxstat(stat_version, path, out); }
int fstat(int file, struct stat* out) { return __fxstat(stat_version, file, out); }
/* The struct is the same on 64-bit systems. */
int stat64(const char* path, struct stat* out) __attribute__((alias("stat")));
int lstat64(const char* path, struct stat* out) __attribute__((alias("lstat")));
int fstat64(int file, struct stat* out) __attribute__((alias("fstat")));

/* Waits by the real-time clock, as libstdc++ did before 2.30: a step of that clock moves the deadline. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  struct timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  const int64_t second = 1000000000;
  const int64_t at = (int64_t)(real.tv_sec - now.tv_sec + deadline->tv_sec) * second +
                     real.tv_nsec - now.tv_nsec + deadline->tv_nsec;
  const struct timespec until = {.tv_sec = at / second, .tv_nsec = at % second};
  return pthread_cond_timedwait(condition, mutex, &until);
}

uint32_t arc4random(void) {
  uint32_t out;
  if (getentropy(&out, sizeof out) != 0) abort();
  return out;
}
