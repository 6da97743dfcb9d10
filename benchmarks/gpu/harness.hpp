// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by the device benchmarks: registration, memory, interleaved timing, and results as rows of one JSON file.
///
/// A benchmark is a function that adds rows:  HOTSET_BENCH(copies) { out.add(...); }

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "device_support.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::gpu_bench {

/// One measured quantity: median over the rounds, and their spread.
struct row {
  std::string name;  ///< for example copies/plain/piece:4500000
  std::string unit;  ///< for example GB/s
  double median = 0;
  double lowest = 0;
  double highest = 0;
  std::size_t rounds = 0;
};

/// Results of a run's benchmarks, and the amount of work.
class results {
 public:
  explicit results(bool quick) : quick_(quick) {}

  /// Rounds of an interleaved comparison.
  [[nodiscard]] std::size_t rounds() const noexcept { return quick_ ? 3 : 15; }
  [[nodiscard]] bool quick() const noexcept { return quick_; }

  /// Pre: !samples.empty().
  void add(std::string name, std::string unit, std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const auto n = samples.size();
    const double median = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
    rows_.push_back({std::move(name), std::move(unit), median, samples.front(), samples.back(), n});
  }
  /// Records a benchmark that could not run here, with the reason.
  void leave_out(const std::string& name, const std::string& why) {
    left_out_.push_back({name, why});
  }

  [[nodiscard]] const std::vector<row>& rows() const noexcept { return rows_; }
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& left_out() const noexcept {
    return left_out_;
  }

 private:
  bool quick_;
  std::vector<row> rows_;
  std::vector<std::pair<std::string, std::string>> left_out_;
};

struct bench {
  std::string name;
  void (*run)(results&);
};
inline std::vector<bench>& all_benches() {
  static std::vector<bench> benches;
  return benches;
}
inline bool add_bench(const char* name, void (*run)(results&)) {
  all_benches().push_back({name, run});
  return true;
}
#define HOTSET_BENCH(name)                                                                      \
  static void bench_##name(::hotset::gpu_bench::results& out);                                  \
  static const bool bench_##name##_added = ::hotset::gpu_bench::add_bench(#name, bench_##name); \
  static void bench_##name([[maybe_unused]] ::hotset::gpu_bench::results& out)

/// Memory of one kind, freed with the object.
class memory {
 public:
  static memory on_device(std::size_t bytes) {
    memory m(true);
    HOTSET_REQUIRE(cuda::system_runtime().allocate(m.data_, bytes));
    return m;
  }
  static memory page_locked(std::size_t bytes) {
    memory m(false);
    HOTSET_REQUIRE(cuda::system_runtime().allocate_host(m.data_, bytes));
    return m;
  }
  memory(memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), is_device_(other.is_device_) {}
  memory& operator=(memory&&) = delete;
  ~memory() {
    auto& api = cuda::system_runtime();
    if (data_ != nullptr) (void)(is_device_ ? api.free(data_) : api.free_host(data_));
  }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }

 private:
  explicit memory(bool is_device) : is_device_(is_device) {}
  void* data_ = nullptr;
  bool is_device_;
};

template <class T>
memory upload(const std::vector<T>& values) {
  auto made = memory::on_device(std::max<std::size_t>(values.size(), 1) * sizeof(T));
  if (!values.empty())
    HOTSET_REQUIRE(
        cudaMemcpy(made.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  // Needed because the call may return before the device is done, and no timed_stream waits for the default stream.
  HOTSET_REQUIRE(cudaStreamSynchronize(nullptr));
  return made;
}

/// A separate stream with a clock that runs on the device.
class timed_stream {
 public:
  timed_stream() {
    HOTSET_REQUIRE(cuda::system_runtime().create_stream(handle_, cuda::stream_priority::high));
    HOTSET_REQUIRE(cudaEventCreate(&begin_));
    HOTSET_REQUIRE(cudaEventCreate(&end_));
  }
  timed_stream(const timed_stream&) = delete;
  timed_stream& operator=(const timed_stream&) = delete;
  ~timed_stream() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
    (void)cuda::system_runtime().destroy_stream(handle_);
  }
  [[nodiscard]] cuda::stream_handle handle() const noexcept { return handle_; }

  /// Time of `enqueue`. Units: seconds.
  struct cost {
    double on_device;  ///< from before the first to after the last piece of work
    double on_host;    ///< until `enqueue` returned
  };
  template <class Enqueue>
  cost time(Enqueue enqueue) const {
    using clock = std::chrono::steady_clock;
    HOTSET_REQUIRE(cudaEventRecord(begin_, handle_));
    const auto before = clock::now();
    enqueue();
    const std::chrono::duration<double> on_host = clock::now() - before;
    HOTSET_REQUIRE(cudaEventRecord(end_, handle_));
    HOTSET_REQUIRE(cudaEventSynchronize(end_));
    float milliseconds = 0;
    HOTSET_REQUIRE(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return {static_cast<double>(milliseconds) * 1e-3, on_host.count()};
  }

 private:
  cuda::stream_handle handle_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// Alternative ways to do one thing. Each runs once unmeasured, then all alternate: A B C A B C ...
struct rival {
  std::string name;
  std::function<double()> sample;
};
inline void compare(results& out, const std::string& unit, const std::vector<rival>& rivals) {
  std::vector<std::vector<double>> samples(rivals.size());
  for (const auto& r : rivals) (void)r.sample();
  for (std::size_t round = 0; round < out.rounds(); ++round)
    for (std::size_t i = 0; i < rivals.size(); ++i) samples[i].push_back(rivals[i].sample());
  for (std::size_t i = 0; i < rivals.size(); ++i)
    out.add(rivals[i].name, unit, std::move(samples[i]));
}

}  // namespace hotset::gpu_bench
