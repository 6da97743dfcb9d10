// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file on an HTTP server, as it was when it was opened.

#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <curl/curl.h>

#include "hotset/core/error.hpp"

namespace hotset {

/// The numbers of a Content-Range header: "bytes 0-99/1000".
struct content_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t total = 0;  ///< bytes of the whole file
  bool valid = false;       ///< false: no range of bytes, or an unknown total

  [[nodiscard]] static content_range read(std::string_view text) noexcept {
    content_range out;
    const auto skip = [&](std::string_view what) {
      const bool starts = text.starts_with(what);
      if (starts) text.remove_prefix(what.size());
      return starts;
    };
    const auto number = [&](std::uint64_t& to) {
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), to);
      text.remove_prefix(static_cast<std::size_t>(end - text.data()));
      return code == std::errc();
    };
    out.valid = skip("bytes ") && number(out.first) && skip("-") && number(out.last) && skip("/") &&
                number(out.total) && text.empty() && out.last < out.total;
    return out;
  }
};

namespace detail {

/// Owns an object of libcurl that `Free` frees.
template <class T, auto Free>
using curl_owned = std::unique_ptr<T, std::integral_constant<decltype(Free), Free>>;

/// Returns a header of the last answer; empty if there is none.
inline std::string_view header_of(CURL* easy, const char* name) noexcept {
  curl_header* found = nullptr;
  if (::curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &found) != CURLHE_OK) return {};
  return found->value;
}

}  // namespace detail

/// Threads: reads are safe once it was opened.
class remote_file {
 public:
  /// Errors: a URL that cannot be parsed, or that is not of HTTP or HTTPS. The message names no part of a URL that it
  /// cannot parse, because that part may be a password.
  static result<remote_file> at(std::string url) {
    const detail::curl_owned<CURLU, ::curl_url_cleanup> parsed(::curl_url());
    if (parsed == nullptr) return no_host_memory();
    remote_file out;
    if (::curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
        CURLUE_OK)
      return error{"a URL that cannot be parsed, accepted: https://host/file or http://host/file"};
    for (const auto secret : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS,
                              CURLUPART_QUERY, CURLUPART_FRAGMENT})
      ::curl_url_set(parsed.get(), secret, nullptr, 0);
    out.path_ = part_of(parsed.get(), CURLUPART_URL);
    const auto scheme = part_of(parsed.get(), CURLUPART_SCHEME);
    if (scheme != "http" && scheme != "https")
      return refusal("cannot open ", out.path_, ": its scheme is ", scheme,
                     ", accepted: http and https");
    out.redirects_ = scheme == "https" ? "https" : "http,https";
    out.url_ = std::move(url);
    return out;
  }

  /// The URL without user, password, query and fragment, for messages.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  /// Size when the file was opened; 0 before. Units: bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The protocols that a redirect may lead to: an https URL never leads to http.
  [[nodiscard]] const char* redirects() const noexcept { return redirects_; }
  /// Headers that let the server refuse a range if the file has changed; null: none.
  [[nodiscard]] curl_slist* conditions() const noexcept { return conditions_.get(); }

  /// Records size and version from the answer to the first range. Errors: no ETag and no date; no host memory.
  validation open(CURL* easy) {
    const auto etag = detail::header_of(easy, "ETag");
    const auto date = detail::header_of(easy, "Last-Modified");
    const bool is_strong = !etag.empty() && !etag.starts_with("W/");
    if (!is_strong && date.empty())
      return refusal("cannot open ", path_,
                     ": its answer has no strong ETag and no Last-Modified, so that a change would "
                     "go unnoticed");
    etag_ = etag;
    if (!is_strong) date_ = date;
    size_ = content_range::read(detail::header_of(easy, "Content-Range")).total;
    long redirected = 0;
    ::curl_easy_getinfo(easy, CURLINFO_REDIRECT_COUNT, &redirected);
    if (redirected != 0) return std::nullopt;  // the first server does not have this version's ETag
    const auto condition = is_strong ? "If-Match: " + etag_ : "If-Unmodified-Since: " + date_;
    conditions_.reset(::curl_slist_append(nullptr, condition.c_str()));
    if (conditions_ == nullptr) return no_host_memory();
    return std::nullopt;
  }
  /// Returns true if the last answer is of the version that was opened.
  [[nodiscard]] bool is_unchanged(CURL* easy, std::uint64_t total) const noexcept {
    return total == size_ && detail::header_of(easy, "ETag") == etag_ &&
           (date_.empty() || detail::header_of(easy, "Last-Modified") == date_);
  }

 private:
  static std::string part_of(CURLU* url, CURLUPart which) {
    char* text = nullptr;
    if (::curl_url_get(url, which, &text, 0) != CURLUE_OK) return {};
    const detail::curl_owned<char, ::curl_free> held(text);
    return text;
  }

  std::string url_;
  std::string path_;
  const char* redirects_ = "https";
  std::uint64_t size_ = 0;
  std::string etag_;
  std::string date_;  ///< empty where a strong ETag says more
  detail::curl_owned<curl_slist, ::curl_slist_free_all> conditions_;
};

}  // namespace hotset
