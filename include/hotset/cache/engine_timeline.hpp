// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes the timeline of a running engine: copies, waits, computations, and arrows from a copy to the wait for it.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/start_threads.hpp"
#include "hotset/trace/timeline_writer.hpp"
#include "hotset/transfer/transfer_observer.hpp"

namespace hotset {

/// Pass it to a backend as its observer, and report each computation by `on_compute`.
/// Events are collected under a lock and written by a thread of its own, ten times a second. After a crash the file
/// lacks at most the last of them and still opens.
/// Threads: safe.
class engine_timeline final : public transfer_observer {
 public:
  /// A computation of one layer.
  struct computation {
    layer_id layer{};
    step_id step = 0;
    std::size_t tokens = 0;
    observed_clock::time_point begin{};
    observed_clock::time_point end{};
  };

  /// Replaces the file. `process`: name of the engine. Errors: the file cannot be written; the system refuses a thread.
  static result<std::unique_ptr<engine_timeline>> create(const std::string& path,
                                                         std::string_view process) {
    std::unique_ptr<engine_timeline> made(new engine_timeline(path, process));
    if (made->failure_ != 0) return made->unwritten();
    if (auto refused =
            detail::start_threads(made->thread_, 1, [self = made.get()] { self->loop(); }))
      return *std::move(refused);
    return made;
  }
  engine_timeline(const engine_timeline&) = delete;
  engine_timeline& operator=(const engine_timeline&) = delete;
  ~engine_timeline() override { (void)finish(); }

  void on_copy(const ended_copy& copy) noexcept override { add({copy, {}, {}, kind::copy}); }
  void on_wait(const ended_wait& wait) noexcept override { add({{}, wait, {}, kind::wait}); }
  void on_compute(const computation& what) noexcept { add({{}, {}, what, kind::compute}); }

  /// Reason why events do not reach the file, if there is one.
  [[nodiscard]] validation problem() const {
    return failure_ == 0 ? validation() : validation(unwritten());
  }
  /// Writes the rest and ends the document; later events are ignored. Errors: the file could not be written.
  validation finish() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.empty()) return std::nullopt;
    thread_.front().join();
    thread_.clear();
    events_.finish();
    flush();
    file_.close();
    note_failure();
    if (failure_ != 0) return unwritten();
    if (lost_ != 0)
      return refusal("timeline ", path_, ": ", lost_, " events were lost, accepted: a faster disk");
    return std::nullopt;
  }

 private:
  enum class kind : std::uint8_t { copy, wait, compute };
  struct event {
    ended_copy copy{};
    ended_wait wait{};
    computation compute{};
    kind what = kind::copy;
  };
  /// A written copy, to which an arrow may point.
  struct written_copy {
    const void* backend = nullptr;
    ticket batch = no_ticket;
    int track = 0;
    std::uint64_t end = 0;
  };
  /// Copies overlap, so each kind has as many tracks as it needs.
  struct copy_track {
    int id = 0;
    bool is_ahead = false;
    std::uint64_t end = 0;  ///< end of its last copy
  };

  static constexpr int compute_track = 1;
  /// A wait finds the copies of its ticket among this number of the last ones.
  static constexpr std::size_t most_remembered = 65536;
  /// Bounds the memory of events that the disk is too slow for.
  static constexpr std::size_t most_waiting = 1U << 18U;

  engine_timeline(const std::string& path, std::string_view process)
      : path_(path), file_(path, std::ios::trunc), events_(lines_, process) {
    events_.track(compute_track, "engine");
    flush();
  }

  void add(const event& e) noexcept {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const bool kept = waiting_.size() < most_waiting &&
                      unless_out_of_memory([&] { return waiting_.push_back(e), true; }, false);
    if (!kept) ++lost_;
  }
  void loop() {
    std::vector<event> taken;
    std::unique_lock lock(mutex_);
    for (bool last = false; !last;) {
      (void)changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return stopping_; });
      last = stopping_;
      taken.swap(waiting_);
      lock.unlock();
      for (const auto& e : taken) write(e);
      taken.clear();
      flush();
      lock.lock();
    }
  }
  /// Writes whole lines at once: the stream's own buffer would be cut within a line.
  void flush() {
    const auto text = lines_.str();
    lines_.str({});
    file_.write(text.data(), static_cast<std::streamsize>(text.size()));
    file_.flush();
    note_failure();
  }
  void note_failure() {
    if (!file_ && failure_ == 0) failure_ = errno != 0 ? errno : EIO;
  }
  void write(const event& e) {
    if (e.what == kind::copy)
      write(e.copy);
    else if (e.what == kind::wait)
      write(e.wait);
    else
      events_.span(compute_track, "layer " + to_string(e.compute.layer), time(e.compute.begin),
                   time(e.compute.end),
                   "\"step\":" + std::to_string(e.compute.step) +
                       ",\"tokens\":" + std::to_string(e.compute.tokens));
  }
  void write(const ended_copy& copy) {
    const auto& f = copy.what;
    const auto end = time(copy.end);
    const auto track = track_of(copy.is_ahead(), time(copy.begin), end);
    events_.span(track, "layer " + to_string(f.key.layer) + " expert " + to_string(f.key.expert),
                 time(copy.begin), end,
                 "\"slot\":" + to_string(f.slot) + ",\"bytes\":" + std::to_string(copy.bytes) +
                     ",\"queued_us\":" +
                     std::to_string(nanoseconds_between(copy.submitted, copy.begin) / 1000) +
                     (copy.arrived ? "" : ",\"failed\":true"));
    if (copies_.size() == most_remembered) copies_.pop_front();
    copies_.push_back({copy.backend, copy.batch, track, end});
  }
  /// An arrow points from each copy of the ticket that ended during the wait.
  void write(const ended_wait& wait) {
    const auto begin = time(wait.begin);
    const auto end = time(wait.end);
    events_.span(compute_track, "wait", begin, end);
    if (wait.batch == no_ticket) return;
    for (auto copy = copies_.rbegin(); copy != copies_.rend() && copy->end >= begin; ++copy)
      if (copy->batch == wait.batch && copy->backend == wait.backend)
        events_.arrow(++arrows_, copy->track, copy->end, compute_track, end);
  }
  /// The first track of the kind whose last copy had ended before. Copies come in the order of their ends.
  int track_of(bool is_ahead, std::uint64_t begin, std::uint64_t end) {
    for (auto& track : tracks_) {
      if (track.is_ahead != is_ahead || track.end > begin) continue;
      track.end = end;
      return track.id;
    }
    const int id = compute_track + 1 + static_cast<int>(tracks_.size());
    tracks_.push_back({id, is_ahead, end});
    events_.track(id, is_ahead ? "copies: prefetch" : "copies: demand");
    return id;
  }
  [[nodiscard]] std::uint64_t time(observed_clock::time_point at) const noexcept {
    return nanoseconds_between(start_, at);
  }
  [[nodiscard]] error unwritten() const {
    return refusal("timeline ", path_, ": ", std::strerror(failure_),
                   ", accepted: a file that can be written, on a disk with room");
  }

  std::string path_;
  std::ofstream file_;
  std::ostringstream lines_;  ///< written events that are not in the file
  timeline_writer events_;
  observed_clock::time_point start_ = observed_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<event> waiting_;  ///< not written yet
  bool stopping_ = false;
  std::uint64_t lost_ = 0;        ///< events
  std::atomic<int> failure_ = 0;  ///< errno of the first failed write
  // Used by the writing thread.
  std::vector<copy_track> tracks_;
  std::deque<written_copy> copies_;
  std::uint64_t arrows_ = 0;
  std::vector<std::thread> thread_;
};

}  // namespace hotset
