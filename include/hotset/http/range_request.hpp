// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One range of a remote file, requested by libcurl and written into the caller's buffers.

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <curl/curl.h>

#include "hotset/http/remote_file.hpp"

namespace hotset {

/// Reason for which a range was not read.
enum class range_fault : std::uint8_t {
  none,
  network,       ///< libcurl's code says more
  status,        ///< the server's status says more
  no_ranges,     ///< the server sends the whole file
  no_size,       ///< Content-Range is absent, or lacks the size of the file
  other_range,   ///< Content-Range names other bytes than the requested ones
  other_length,  ///< Content-Length differs from the bytes of the range
  encoded,       ///< the body is compressed
  changed,       ///< the file is no longer the one that was opened
  too_short,     ///< the body ended early
  too_long,      ///< the body has more bytes than the range
  stalled,       ///< no byte for config::stall
  late,          ///< not complete within config::whole
  wrong_hash,    ///< a tensor's bytes are not those of its SHA-256
};

/// A failed range; a value of fixed size, so that recording one allocates nothing.
struct range_failure {
  range_fault why = range_fault::none;
  CURLcode code = CURLE_OK;
  long status = 0;
  std::uint64_t at = 0;  ///< first byte of the range in the file
  const remote_file* file = nullptr;

  /// True if the same request may succeed later.
  [[nodiscard]] bool is_temporary() const noexcept {
    switch (why) {
      case range_fault::status: return status == 408 || status == 429 || status >= 500;
      case range_fault::network: return is_temporary(code);
      case range_fault::too_short:
      case range_fault::stalled: return true;
      default: return false;
    }
  }
  /// One line: file, position, reason.
  [[nodiscard]] std::string text() const {
    return "cannot read " + file->path() + " at byte " + std::to_string(at) + ": " + reason();
  }

 private:
  static bool is_temporary(CURLcode code) noexcept {
    switch (code) {
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_RESOLVE_PROXY:
      case CURLE_COULDNT_CONNECT:
      case CURLE_OPERATION_TIMEDOUT:
      case CURLE_SSL_CONNECT_ERROR:
      case CURLE_SEND_ERROR:
      case CURLE_RECV_ERROR:
      case CURLE_GOT_NOTHING:
      case CURLE_PARTIAL_FILE: return true;
      default: return false;
    }
  }
  [[nodiscard]] std::string reason() const {
    switch (why) {
      case range_fault::none: break;
      case range_fault::network: return ::curl_easy_strerror(code);
      case range_fault::status:
        return "the server answers " + std::to_string(status) + ", accepted: 206";
      case range_fault::no_ranges:
        return "the server ignores ranges and answers " + std::to_string(status) +
               ", accepted: 206";
      case range_fault::no_size:
        return "the answer has no Content-Range with the file's size, accepted: bytes a-b/size";
      case range_fault::other_range:
        return "the server's Content-Range names other bytes than the requested ones";
      case range_fault::other_length:
        return "the server's Content-Length is not the length of the requested bytes";
      case range_fault::encoded:
        return "the server's answer has a Content-Encoding, accepted: none";
      case range_fault::changed: return "the file has changed since it was opened";
      case range_fault::too_short: return "the answer ended early";
      case range_fault::too_long: return "the answer has more bytes than requested";
      case range_fault::stalled: return "no byte arrived within the time limit `stall`";
      case range_fault::late: return "it did not end within the time limit `whole`";
      case range_fault::wrong_hash: return "the tensor's bytes do not have its SHA-256";
    }
    return "not read";
  }
};

/// Bytes of a file and the buffer for them.
struct file_piece {
  std::size_t file = 0;  ///< index in a source's files
  std::uint64_t at = 0;
  std::span<std::byte> to{};
  std::size_t tensor = 0;
};

/// Threads: one at a time. libcurl allocates in each request; this class does not.
class range_request {
 public:
  using clock = std::chrono::steady_clock;

  range_request() = default;
  range_request(const range_request&) = delete;
  range_request& operator=(const range_request&) = delete;

  /// Makes the handle, which keeps a pointer to this object. `authorities`: a file of trusted certificates; empty:
  /// those of the system. Returns false without memory.
  [[nodiscard]] bool create(std::chrono::milliseconds connect, const std::string& authorities) {
    easy_.reset(::curl_easy_init());
    // No SIGALRM. No SIGPIPE either: libcurl 7.88 and later send with MSG_NOSIGNAL, TLS too.
    return easy_ != nullptr && set(CURLOPT_NOSIGNAL, 1L) &&
           set(CURLOPT_PROTOCOLS_STR, "http,https") &&
           set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1)) &&
           set(CURLOPT_FOLLOWLOCATION, 1L) && set(CURLOPT_MAXREDIRS, most_redirects) &&
           set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect.count())) &&
           set(CURLOPT_BUFFERSIZE, buffer_bytes) && set(CURLOPT_USERAGENT, "hotset") &&
           set(CURLOPT_WRITEFUNCTION, &range_request::on_bytes) &&
           set(CURLOPT_WRITEDATA, static_cast<void*>(this)) &&
           set(CURLOPT_PRIVATE, static_cast<void*>(this)) &&
           (authorities.empty() || set(CURLOPT_CAINFO, authorities.c_str()));
  }

  /// Names the next range. Pre: the pieces are of this file, have bytes, and follow one another without a gap. They
  /// outlive the request.
  void aim(const remote_file& file, std::span<const file_piece> pieces) noexcept {
    file_ = &file;
    pieces_ = pieces;
    bytes_ = 0;
    for (const auto& piece : pieces) bytes_ += piece.to.size();
    done_ = false;
    failure_ = {.at = pieces.front().at, .file = &file};
  }
  /// Starts, or starts again from the first byte. Returns false without memory.
  [[nodiscard]] bool begin() noexcept {
    piece_ = 0;
    within_ = 0;
    left_ = bytes_;
    is_checked_ = false;
    error_page_ = 0;
    failure_.why = range_fault::none;
    last_byte_ = clock::now();
    range_text to{};
    return set(CURLOPT_URL, file_->url().c_str()) && set(CURLOPT_RANGE, write_range(to)) &&
           set(CURLOPT_HTTPHEADER, file_->conditions()) &&
           set(CURLOPT_REDIR_PROTOCOLS_STR, file_->redirects());
  }
  /// Takes libcurl's result. Call it after libcurl has released the handle.
  void end(CURLcode code) noexcept {
    // Without a body, the headers may be incomplete: libcurl accepts a connection that is closed within them.
    if (code == CURLE_OK && !is_checked_) failure_.why = fault_of_status();
    if (failure_.why == range_fault::none && code != CURLE_OK) {
      failure_.why = range_fault::network;
      failure_.code = code;
    }
    if (failure_.why == range_fault::none && left_ != 0) failure_.why = range_fault::too_short;
    done_ = failure_.why == range_fault::none;
  }
  /// Ends a request that took too long, or whose bytes are wrong.
  void refuse(range_fault why) noexcept {
    failure_.why = why;
    done_ = false;
  }

  [[nodiscard]] CURL* handle() const noexcept { return easy_.get(); }
  [[nodiscard]] bool is_done() const noexcept { return done_; }
  [[nodiscard]] const range_failure& failure() const noexcept { return failure_; }
  /// Time of the last byte of a body, or of the start.
  [[nodiscard]] clock::time_point last_byte() const noexcept { return last_byte_; }

 private:
  static constexpr long most_redirects = 5;
  static constexpr std::size_t most_error_page = 64U << 10U;
  static constexpr long buffer_bytes = 256L << 10;
  using range_text = std::array<char, 48>;

  template <class Value>
  bool set(CURLoption which, Value value) const noexcept {
    return ::curl_easy_setopt(easy_.get(), which, value) == CURLE_OK;
  }
  const char* write_range(range_text& to) const noexcept {
    const auto first = pieces_.front().at;
    auto* const end = to.data() + to.size() - 1;  // the last byte stays 0
    auto* const dash = std::to_chars(to.data(), end, first).ptr;
    *dash = '-';
    std::to_chars(dash + 1, end, first + bytes_ - 1);
    return to.data();
  }

  static std::size_t on_bytes(char* from, std::size_t, std::size_t count, void* self) noexcept {
    auto& request = *static_cast<range_request*>(self);
    return request.take(std::as_bytes(std::span(from, count))) ? count : CURL_WRITEFUNC_ERROR;
  }
  /// Returns false if the transfer must end.
  bool take(std::span<const std::byte> from) noexcept {
    last_byte_ = clock::now();
    if (!is_checked_) check();
    // Reads a short error page to its end, so that the connection stays open.
    if (failure_.why == range_fault::status) return (error_page_ += from.size()) <= most_error_page;
    if (failure_.why == range_fault::none && from.size() > left_)
      failure_.why = range_fault::too_long;
    if (failure_.why != range_fault::none) return false;
    left_ -= from.size();
    while (!from.empty()) {
      const auto to = pieces_[piece_].to.subspan(within_);
      const auto count = std::min(to.size(), from.size());
      std::memcpy(to.data(), from.data(), count);
      from = from.subspan(count);
      within_ += count;
      if (count == to.size()) {
        ++piece_;
        within_ = 0;
      }
    }
    return true;
  }
  /// Checks the headers before the first byte is written.
  void check() noexcept {
    is_checked_ = true;
    failure_.why = fault_of_status();
    if (failure_.why == range_fault::none) failure_.why = fault_of_headers();
  }
  range_fault fault_of_status() noexcept {
    ::curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &failure_.status);
    if (failure_.status == 206) return range_fault::none;
    if (failure_.status == 412) return range_fault::changed;
    if (failure_.status >= 200 && failure_.status < 206) return range_fault::no_ranges;
    return range_fault::status;
  }
  [[nodiscard]] range_fault fault_of_headers() const noexcept {
    auto* const easy = easy_.get();
    const auto encoding = detail::header_of(easy, "Content-Encoding");
    if (!encoding.empty() && encoding != "identity") return range_fault::encoded;
    const auto range = content_range::read(detail::header_of(easy, "Content-Range"));
    if (!range.valid) return range_fault::no_size;
    if (file_->size() != 0 && !file_->is_unchanged(easy, range.total)) return range_fault::changed;
    const auto first = pieces_.front().at;
    if (range.first != first || range.last != first + bytes_ - 1) return range_fault::other_range;
    curl_off_t length = -1;
    ::curl_easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length >= 0 && static_cast<std::uint64_t>(length) != bytes_)
      return range_fault::other_length;
    return range_fault::none;
  }

  detail::curl_owned<CURL, ::curl_easy_cleanup> easy_;
  const remote_file* file_ = nullptr;
  std::span<const file_piece> pieces_;
  std::uint64_t bytes_ = 0;  ///< of the range
  std::size_t piece_ = 0;    ///< the next byte's piece
  std::size_t within_ = 0;   ///< and its place there
  std::uint64_t left_ = 0;
  bool is_checked_ = false;
  bool done_ = false;
  range_failure failure_;
  std::size_t error_page_ = 0;  ///< bytes of it so far
  clock::time_point last_byte_;
};

}  // namespace hotset
