// SPDX-License-Identifier: Apache-2.0
// Replaces the system's pthread_create and a sanitizer's. A sanitizer still sees every thread.

#include "refused_threads.hpp"

#include <atomic>

#if defined(__linux__)
#include <cerrno>
#include <memory>

#include <dlfcn.h>
#include <pthread.h>
#endif

namespace hotset::support {
namespace {
constexpr int all = -1;
std::atomic<int> left{all};
std::atomic<int> ends{0};
}  // namespace

refused_threads::refused_threads(int allowed) {
  ends = 0;
  left = allowed;
}
refused_threads::~refused_threads() { left = all; }
int refused_threads::ended() { return ends; }

#if defined(__linux__)

std::string refused_threads::why_not() { return ""; }

namespace {
using run_type = void* (*)(void*);
using create_type = int (*)(pthread_t*, const pthread_attr_t*, run_type, void*);

struct counted {
  run_type run;
  void* context;
};
void* run_and_count(void* self) {
  const std::unique_ptr<counted> what(static_cast<counted*>(self));
  void* const result = what->run(what->context);
  ++ends;
  return result;
}
}  // namespace

#endif

}  // namespace hotset::support

#if defined(__linux__)

extern "C" {

// The sanitizer's function, under its own name.
__attribute__((weak)) int sanitized_create(pthread_t*, const pthread_attr_t*,
                                           hotset::support::run_type, void*) noexcept
    __asm__("__interceptor_pthread_create");

int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*),
                   void* context) noexcept {
  using namespace hotset::support;
  static const auto real =
      &sanitized_create != nullptr
          ? static_cast<create_type>(&sanitized_create)
          : reinterpret_cast<create_type>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (left == all) return real(thread, how, run, context);
  if (left == 0) return EAGAIN;
  --left;
  return real(thread, how, run_and_count, new counted{run, context});
}
}

#else

namespace hotset::support {
std::string refused_threads::why_not() { return "only on Linux a test refuses threads"; }
}  // namespace hotset::support

#endif
