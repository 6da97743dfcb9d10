// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A CUDA runtime without a device: streams are queues that run in an order chosen by the test. Records a violation
/// for each use that on a real device silently stalls or gives wrong bytes.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/cuda/runtime.hpp"
#include "random_source.hpp"

namespace hotset::support {

/// Threads: safe; scripted functions (`launch`, `hold`) run under its lock and must not call it.
class fake_cuda_runtime : public cuda::runtime {
 public:
  using code = cuda::error_code;
  /// When enqueued work runs: as late as possible, as soon as possible, or now and then.
  enum class pace { late, soon, random };
  friend void PrintTo(pace how, std::ostream* out) {
    *out << (how == pace::late ? "late" : how == pace::soon ? "soon" : "random");
  }

  explicit fake_cuda_runtime(pace how = pace::late, std::uint64_t seed = 1)
      : pace_(how), random_(seed) {}
  ~fake_cuda_runtime() override = default;

  // --- the script
  int devices = 1;
  bool batches = true;
  /// The n-th call of a function from now on (n starts at 1) returns `what` and has no other effect.
  void fail(const std::string& call, std::size_t nth, code what = code::unknown) {
    const std::lock_guard lock(mutex_);
    failing_[call][calls_[call] + nth] = what;
  }
  /// The device is lost at its n-th copy from now on: the copy is not made, and every later call about its work
  /// reports it.
  void lose_device_at_copy(std::size_t nth) {
    const std::lock_guard lock(mutex_);
    copies_left_ = nth;
  }
  /// Enqueues a kernel.
  void launch(cuda::stream_handle stream, std::function<void()> kernel) {
    const std::lock_guard lock(mutex_);
    of(stream).work.push_back({.run = std::move(kernel), .ready = {}});
  }
  /// Blocks a stream until `open()` returns true.
  void hold(cuda::stream_handle stream, std::function<bool()> open) {
    const std::lock_guard lock(mutex_);
    of(stream).work.push_back({.run = {}, .ready = std::move(open), .held = true});
  }
  /// Releases all blocked streams, now and later.
  void release_holds() {
    const std::lock_guard lock(mutex_);
    for (const auto& s : streams_)
      std::erase_if(s->work, [](const work_item& item) { return item.held; });
  }
  /// Device memory that a driver has reserved: an access without rights crashes.
  void reserved(std::span<std::byte> range, int device) {
    const std::lock_guard lock(mutex_);
    reserved_.push_back({range.data(), range.size(), device});
  }
  void begin_capture(cuda::stream_handle stream) { of(stream).capturing = true; }
  void end_capture(cuda::stream_handle stream) { of(stream).capturing = false; }
  /// Runs all work that can run.
  void run_all() {
    const std::lock_guard lock(mutex_);
    while (step()) {
    }
  }
  /// Runs one piece of work of one stream, if there is one that can run.
  bool run_one() {
    const std::lock_guard lock(mutex_);
    return step();
  }

  // --- results
  [[nodiscard]] std::vector<std::string> violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  [[nodiscard]] std::size_t calls(const std::string& call) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(call);
    return found == calls_.end() ? 0 : found->second;
  }
  /// Copies from pageable memory and batches of mixed sizes: on a real device both block the caller.
  [[nodiscard]] std::size_t synchronous_copies() const {
    const std::lock_guard lock(mutex_);
    return synchronous_copies_;
  }
  [[nodiscard]] std::size_t pending() const {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const auto& s : streams_) sum += s->work.size();
    return sum;
  }
  [[nodiscard]] std::size_t pinned_bytes() const {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const auto& r : host_) sum += r.bytes;
    return sum;
  }
  /// Streams, events and memory that were not released.
  [[nodiscard]] std::size_t leaks() const {
    const std::lock_guard lock(mutex_);
    std::size_t live = device_.size() + host_.size();
    for (const auto& s : streams_) live += s->alive ? 1U : 0U;
    for (const auto& e : events_) live += e->alive ? 1U : 0U;
    return live;
  }

  // --- the runtime
  [[nodiscard]] std::string_view error_name(code) const noexcept override { return "fakeError"; }
  [[nodiscard]] std::string_view error_text(code) const noexcept override { return "as told"; }
  code device_count(int& count) noexcept override {
    return call("cudaGetDeviceCount", [&] { count = devices; });
  }
  code current_device(int& device) noexcept override {
    return call("cudaGetDevice", [&] { device = current(); });
  }
  code set_device(int device) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const auto told = count("cudaSetDevice"); told != code::success) return told;
    if (device < 0 || device >= devices) return code::invalid_device;
    current() = device;
    return code::success;
  }
  code memory_info(std::size_t& free, std::size_t& total) noexcept override {
    return call("cudaMemGetInfo", [&] { free = total = std::size_t{1} << 30; });
  }
  code allocate(void*& memory, std::size_t bytes) noexcept override {
    return call("cudaMalloc", [&] {
      owned_.push_back(std::make_unique<std::byte[]>(bytes));
      memory = owned_.back().get();
      device_.push_back({owned_.back().get(), bytes, current()});
    });
  }
  code free(void* memory) noexcept override {
    return call("cudaFree", [&] { forget(device_, memory, "device memory"); });
  }
  code allocate_host(void*& memory, std::size_t bytes) noexcept override {
    return call("cudaHostAlloc", [&] {
      owned_.push_back(std::make_unique<std::byte[]>(bytes));
      memory = owned_.back().get();
      host_.push_back({owned_.back().get(), bytes, 0});
    });
  }
  code free_host(void* memory) noexcept override {
    return call("cudaFreeHost", [&] { forget(host_, memory, "page-locked memory"); });
  }
  code register_host(void* memory, std::size_t bytes, bool) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const auto told = count("cudaHostRegister"); told != code::success) return told;
    auto* const first = static_cast<std::byte*>(memory);
    for (const auto& r : host_)
      if (first < r.first + r.bytes && r.first < first + bytes)
        return static_cast<code>(712);  // cudaErrorHostMemoryAlreadyRegistered
    host_.push_back({first, bytes, 0});
    return code::success;
  }
  code unregister_host(void* memory) noexcept override {
    return call("cudaHostUnregister", [&] { forget(host_, memory, "page-locked memory"); });
  }
  code create_stream(cuda::stream_handle& stream, cuda::stream_priority) noexcept override {
    return call("cudaStreamCreateWithPriority", [&] {
      streams_.push_back(std::make_unique<stream_state>());
      streams_.back()->device = current();
      stream = reinterpret_cast<cuda::stream_handle>(streams_.back().get());
    });
  }
  code destroy_stream(cuda::stream_handle stream) noexcept override {
    return call("cudaStreamDestroy", [&] { of(stream).alive = false; });
  }
  code wait_event(cuda::stream_handle stream, cuda::event_handle event) noexcept override {
    return call("cudaStreamWaitEvent", [&] {
      const auto& e = of(event);
      if (of(stream).capturing) violate("a stream under capture waits for an event from outside");
      if (e.recorded == 0)
        return violate("a wait for an event that was never recorded does nothing");
      of(stream).work.push_back(
          {.run = {}, .ready = [&e, n = e.recorded] { return e.passed >= n; }});
    });
  }
  code synchronize_stream(cuda::stream_handle stream) noexcept override {
    auto& s = of(stream);
    return wait_until("cudaStreamSynchronize", [&s] { return s.work.empty(); });
  }
  code is_capturing(cuda::stream_handle stream, bool& capturing) noexcept override {
    return call("cudaStreamIsCapturing", [&] { capturing = of(stream).capturing; });
  }
  code create_event(cuda::event_handle& event) noexcept override {
    return call("cudaEventCreateWithFlags", [&] {
      events_.push_back(std::make_unique<event_state>());
      events_.back()->device = current();
      event = reinterpret_cast<cuda::event_handle>(events_.back().get());
    });
  }
  code destroy_event(cuda::event_handle event) noexcept override {
    return call("cudaEventDestroy", [&] { of(event).alive = false; });
  }
  code record_event(cuda::event_handle event, cuda::stream_handle stream) noexcept override {
    return call("cudaEventRecord", [&] {
      auto& e = of(event);
      if (e.device != of(stream).device) violate("an event is recorded on another device");
      if (of(stream).capturing) violate("an event is recorded in a capture");
      if (e.passed != e.recorded) violate("an event is recorded again while it is pending");
      const auto n = ++e.recorded;
      of(stream).work.push_back({.run = [&e, n] { e.passed = n; }, .ready = {}});
    });
  }
  code query_event(cuda::event_handle event) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const auto told = count("cudaEventQuery"); told != code::success) return told;
    if (std::ranges::any_of(streams_, [](const auto& s) { return s->capturing; }))
      return code::stream_capture_unsupported;
    const auto& e = of(event);
    return e.passed == e.recorded ? code::success : code::not_ready;
  }
  code synchronize_event(cuda::event_handle event) noexcept override {
    auto& e = of(event);
    return wait_until("cudaEventSynchronize", [&e] { return e.passed == e.recorded; });
  }
  [[nodiscard]] bool has_copy_batch() const noexcept override { return batches; }
  code copy(const cuda::copy_request& what, cuda::stream_handle stream) noexcept override {
    return call("cudaMemcpyAsync", [&] { enqueue_copies({&what, 1}, stream); });
  }
  code copy_on_device(const cuda::copy_request& what,
                      cuda::stream_handle stream) noexcept override {
    return call("cudaMemcpyAsync on the device", [&] {
      int device = -1;
      if (!inside(device_, what.from, what.bytes, &device) &&
          !inside(reserved_, what.from, what.bytes, &device))
        violate("a copy on the device comes from elsewhere");
      if (device != of(stream).device) violate("a copy comes from the memory of another device");
      enqueue_copies({&what, 1}, stream, true);
    });
  }
  code copy_batch(std::span<void* const> to, std::span<const void* const> from,
                  std::span<const std::size_t> bytes,
                  cuda::stream_handle stream) noexcept override {
    return call("cudaMemcpyBatchAsync", [&] {
      std::vector<cuda::copy_request> copies;
      for (std::size_t i = 0; i < to.size(); ++i) copies.push_back({to[i], from[i], bytes[i]});
      if (std::ranges::adjacent_find(bytes, std::not_equal_to{}) != bytes.end())
        ++synchronous_copies_;
      enqueue_copies(copies, stream);
    });
  }

 private:
  struct work_item {
    std::function<void()> run;
    std::function<bool()> ready;  ///< none: always
    std::vector<cuda::copy_request> copies{};
    bool held = false;  ///< by the script
  };
  struct stream_state {
    int device = 0;
    bool alive = true;
    bool capturing = false;
    std::deque<work_item> work;
  };
  struct event_state {
    int device = 0;
    bool alive = true;
    std::uint64_t recorded = 0;
    std::uint64_t passed = 0;
  };
  struct region {
    std::byte* first = nullptr;
    std::size_t bytes = 0;
    int device = 0;
  };

  static stream_state& of(cuda::stream_handle s) { return *reinterpret_cast<stream_state*>(s); }
  static event_state& of(cuda::event_handle e) { return *reinterpret_cast<event_state*>(e); }
  static int& current() {
    thread_local int device = 0;  // a new thread's device is 0, as on a real machine
    return device;
  }
  void violate(std::string what) { violations_.push_back(std::move(what)); }

  code count(const std::string& name) {
    const auto n = ++calls_[name];
    if (pace_ == pace::random)
      for (auto steps = random_.below(3); steps != 0; --steps) step();
    if (lost_ && (name.find("Event") != std::string::npos ||
                  name.find("Memcpy") != std::string::npos || name == "cudaStreamSynchronize"))
      return code::unknown;
    const auto told = failing_.find(name);
    if (told == failing_.end() || told->second.count(n) == 0) return code::success;
    return told->second.at(n);
  }
  template <class Action>
  code call(const char* name, Action act) {
    const std::lock_guard lock(mutex_);
    if (const auto told = count(name); told != code::success) return told;
    act();
    if (pace_ == pace::soon)
      while (step()) {
      }
    changed_.notify_all();
    return code::success;
  }
  template <class Condition>
  code wait_until(const char* name, Condition met) {
    std::unique_lock lock(mutex_);
    if (const auto told = count(name); told != code::success) return told;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!met()) {
      if (step()) continue;
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      if (std::chrono::steady_clock::now() > give_up) {
        violate(std::string(name) + " would wait for ever");
        return code::unknown;
      }
    }
    return lost_ ? code::unknown : code::success;
  }
  bool step() {
    std::vector<stream_state*> able;
    for (const auto& s : streams_)
      if (!s->work.empty() && (!s->work.front().ready || s->work.front().ready()))
        able.push_back(s.get());
    if (able.empty()) return false;
    auto& chosen = *able[random_.below(able.size())];
    const auto item = std::move(chosen.work.front());
    chosen.work.pop_front();
    // The order of copies in a batch is unspecified.
    for (const auto& c : item.copies) {
      if (copies_left_ != 0 && --copies_left_ == 0) lost_ = true;
      if (!lost_) std::memcpy(c.to, c.from, c.bytes);
    }
    if (item.run) item.run();
    return true;
  }

  static bool inside(const std::vector<region>& regions, const void* at, std::size_t bytes,
                     int* device = nullptr) {
    const auto* const first = static_cast<const std::byte*>(at);
    for (const auto& r : regions)
      if (r.first <= first && first + bytes <= r.first + r.bytes) {
        if (device != nullptr) *device = r.device;
        return true;
      }
    return false;
  }
  void enqueue_copies(std::span<const cuda::copy_request> copies, cuda::stream_handle stream,
                      bool on_device = false) {
    auto& s = of(stream);
    if (s.capturing) violate("a copy is put into a capture");
    if (s.device != current()) violate("a copy is enqueued while another device is current");
    work_item item;
    for (const auto& c : copies) {
      int device = -1;
      if (!inside(device_, c.to, c.bytes, &device) && !inside(reserved_, c.to, c.bytes, &device))
        violate("a copy leaves its device memory");
      if (device != s.device) violate("a copy goes to the memory of another device");
      if (!on_device && !inside(host_, c.from, c.bytes)) ++synchronous_copies_;
      item.copies.push_back(c);
    }
    s.work.push_back(std::move(item));
  }
  void forget(std::vector<region>& regions, void* memory, const std::string& what) {
    const auto found = std::ranges::find(regions, static_cast<std::byte*>(memory), &region::first);
    if (found == regions.end()) return violate(what + " is given back that was never taken");
    for (const auto& s : streams_)
      for (const auto& item : s->work)
        for (const auto& c : item.copies)
          if (inside({*found}, c.to, c.bytes) || inside({*found}, c.from, c.bytes))
            violate(what + " is given back while a copy needs it");
    regions.erase(found);
  }

  pace pace_;
  random_source random_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<stream_state>> streams_;
  std::vector<std::unique_ptr<event_state>> events_;
  /// Kept to the end, so that a late copy is detected and does not crash.
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::vector<region> device_;
  std::vector<region> reserved_;
  std::vector<region> host_;
  std::map<std::string, std::size_t> calls_;
  std::map<std::string, std::map<std::size_t, code>> failing_;
  std::size_t copies_left_ = 0;  ///< until the device is lost; 0: never
  bool lost_ = false;
  std::vector<std::string> violations_;
  std::size_t synchronous_copies_ = 0;
};

}  // namespace hotset::support
