// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ranges of one read, requested at once over kept connections, within time limits and with retries.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <curl/curl.h>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/http/range_request.hpp"

namespace hotset {

/// Time limits and retries of a read.
struct range_limits {
  std::chrono::milliseconds connect{2'000};  ///< for a connection, with TLS
  std::chrono::milliseconds stall{
      5'000};  ///< for the first byte of an answer, and between two pieces of it
  /// For a read with its retries, at all sources.
  std::chrono::milliseconds whole{60'000};
  unsigned tries = 3;                          ///< at each source
  std::chrono::milliseconds first_pause{100};  ///< before the second try; doubles with each
  std::chrono::milliseconds most_pause{2'000};

  [[nodiscard]] validation validate() const {
    for (const auto limit : {connect, stall, whole})
      if (limit.count() < 1 || limit > longest)
        return refusal("a limit of ", limit.count(), " ms, accepted: 1..", longest.count());
    for (const auto pause : {first_pause, most_pause})
      if (pause.count() < 0 || pause > longest)
        return refusal("a pause of ", pause.count(), " ms, accepted: 0..", longest.count());
    if (tries == 0 || tries > most_tries)
      return refusal("tries = ", tries, ", accepted: 1..", most_tries);
    return std::nullopt;
  }
  /// The pause before a try; `n` is 1 before the second.
  [[nodiscard]] std::chrono::milliseconds pause_before(unsigned n) const noexcept {
    return std::min(most_pause, first_pause * (std::int64_t{1} << std::min(n - 1, 20U)));
  }

 private:
  static constexpr std::chrono::milliseconds longest{std::chrono::hours{24}};
  static constexpr unsigned most_tries = 100;
};

/// Threads: one at a time. Keeps its connections open between reads. Nothing of a read is under way when `fetch`
/// returns, because the caller then owns the buffers.
class range_batch {
 public:
  using clock = range_request::clock;
  static constexpr std::size_t most_ranges = expert_layout::max_tensors;

  /// `authorities`: see range_request::create. Returns null without memory.
  static std::unique_ptr<range_batch> create(const range_limits& limits,
                                             const std::string& authorities) {
    std::unique_ptr<range_batch> out(new range_batch(limits));
    for (auto& request : out->requests_)
      if (!request.create(limits.connect, authorities)) return nullptr;
    if (out->multi_ == nullptr) return nullptr;
    return out;
  }

  /// Sorts the pieces, and makes one request for pieces of a file that follow one another. Pre: 1..most_ranges pieces,
  /// each with bytes; they and the files outlive the fetch.
  void aim(const std::vector<remote_file>& files, std::span<file_piece> pieces) noexcept {
    HOTSET_ASSERT(!pieces.empty() && pieces.size() <= most_ranges);
    std::ranges::sort(pieces, [](const file_piece& a, const file_piece& b) {
      return a.file != b.file ? a.file < b.file : a.at < b.at;
    });
    used_ = 0;
    for (std::size_t begin = 0, end = 1; begin < pieces.size(); begin = end++) {
      while (end < pieces.size() && pieces[end].file == pieces[begin].file &&
             pieces[end].at == pieces[end - 1].at + pieces[end - 1].to.size())
        ++end;
      requests_[used_++].aim(files[pieces[begin].file], pieces.subspan(begin, end - begin));
    }
  }
  /// Requests the ranges until all are complete, a server refuses one, tries or time end. Returns true if all are
  /// complete; otherwise `failure` has the reason.
  [[nodiscard]] bool fetch(clock::time_point deadline) noexcept {
    for (unsigned tried = 1;; ++tried) {
      run(deadline);
      const auto* const failed = find_failure();
      if (failed == nullptr) return true;
      failure_ = failed->failure();
      if (!failure_.is_temporary() || tried >= limits_.tries) return false;
      const auto pause = limits_.pause_before(tried);
      if (clock::now() + pause >= deadline) return false;
      std::this_thread::sleep_for(pause);
    }
  }
  [[nodiscard]] const range_failure& failure() const noexcept { return failure_; }
  /// The request of the n-th range, in the order of `aim`.
  [[nodiscard]] const range_request& request(std::size_t n) const noexcept { return requests_[n]; }

 private:
  explicit range_batch(const range_limits& limits) : limits_(limits), multi_(::curl_multi_init()) {}

  /// A failure that no retry can mend comes first.
  [[nodiscard]] const range_request* find_failure() const noexcept {
    const range_request* found = nullptr;
    for (const auto& request : std::span(requests_).first(used_))
      if (!request.is_done() && (found == nullptr || !request.failure().is_temporary()))
        found = &request;
    return found;
  }
  /// Runs each range that is not complete once.
  void run(clock::time_point deadline) noexcept {
    running_ = 0;
    for (auto& request : std::span(requests_).first(used_))
      if (!request.is_done()) start(request);
    while (running_ != 0) {
      int unused = 0;
      if (::curl_multi_perform(multi_.get(), &unused) != CURLM_OK) return stop_all();
      take_ended();
      stop_late(deadline);
      if (running_ != 0 && !wait(deadline)) return stop_all();
    }
  }
  void start(range_request& request) noexcept {
    if (!request.begin() || ::curl_multi_add_handle(multi_.get(), request.handle()) != CURLM_OK)
      return request.end(CURLE_OUT_OF_MEMORY);
    active_[running_++] = &request;
  }
  void stop(range_request& request) noexcept {
    ::curl_multi_remove_handle(multi_.get(), request.handle());
    const auto end = active_.begin() + static_cast<std::ptrdiff_t>(running_);
    *std::find(active_.begin(), end, &request) = active_[--running_];
  }
  void stop_all() noexcept {
    while (running_ != 0) {
      auto& request = *active_[0];
      stop(request);
      request.end(CURLE_OUT_OF_MEMORY);
    }
  }
  void take_ended() noexcept {
    int unused = 0;
    while (const auto* const message = ::curl_multi_info_read(multi_.get(), &unused)) {
      const auto code = message->data.result;
      void* ended = nullptr;
      ::curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &ended);
      auto& request = *static_cast<range_request*>(ended);
      stop(request);  // the message is invalid from here on
      request.end(code);
    }
  }
  void stop_late(clock::time_point deadline) noexcept {
    const auto now = clock::now();
    for (std::size_t n = running_; n-- > 0;) {
      auto& request = *active_[n];
      const bool is_late = now >= deadline;
      if (!is_late && now < request.last_byte() + limits_.stall) continue;
      stop(request);
      request.refuse(is_late ? range_fault::late : range_fault::stalled);
    }
  }
  /// Waits for the network, at most until the next limit. Returns false if libcurl has no memory.
  bool wait(clock::time_point deadline) noexcept {
    auto next = deadline;
    for (const auto* const request : std::span(active_).first(running_))
      next = std::min(next, request->last_byte() + limits_.stall);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock::now());
    const auto limit = std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 60'000);
    return ::curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(limit), nullptr) ==
           CURLM_OK;
  }

  range_limits limits_;
  detail::curl_owned<CURLM, ::curl_multi_cleanup> multi_;
  std::array<range_request, most_ranges> requests_;
  std::size_t used_ = 0;
  std::array<range_request*, most_ranges> active_{};
  std::size_t running_ = 0;
  range_failure failure_;
};

}  // namespace hotset
