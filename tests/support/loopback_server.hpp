// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An HTTP server on the loopback interface whose answers a test writes byte by byte.

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace hotset::support {

/// A socket that is closed with the object.
class owned_socket {
 public:
  explicit owned_socket(int handle = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
      : handle_(handle) {
    if (handle_ < 0) throw std::runtime_error("no socket");
  }
  owned_socket(owned_socket&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  owned_socket& operator=(owned_socket&&) = delete;
  ~owned_socket() {
    if (handle_ >= 0) ::close(handle_);
  }
  [[nodiscard]] int handle() const { return handle_; }

  /// Listens on a free port. Returns it.
  [[nodiscard]] std::uint16_t listen(int backlog) const {
    auto where = loopback(0);
    socklen_t size = sizeof where;
    auto* const address = reinterpret_cast<sockaddr*>(&where);
    if (::bind(handle_, address, size) != 0 || ::listen(handle_, backlog) != 0 ||
        ::getsockname(handle_, address, &size) != 0)
      throw std::runtime_error("cannot listen on the loopback interface");
    return ntohs(where.sin_port);
  }
  [[nodiscard]] bool connect(std::uint16_t port) const {
    const auto where = loopback(port);
    return ::connect(handle_, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
  }
  int handle_;
};

struct http_request {
  std::string head;  ///< request line and headers
  std::size_t first = 0;
  std::size_t last = 0;

  [[nodiscard]] bool has(std::string_view text) const {
    return head.find(text) != std::string::npos;
  }
  [[nodiscard]] std::size_t bytes() const { return last - first + 1; }
};

struct http_reply {
  enum class end : std::uint8_t { keep, close, reset };
  std::string text;  ///< status line, headers, body
  end then = end::keep;
  /// The server sends so many bytes, and the rest when the test calls `go_on`.
  std::size_t hold_at = std::string::npos;
};

/// A right answer of the requested range.
inline http_reply range_reply(const std::string& file, const http_request& of,
                              const std::string& headers = "ETag: \"1\"\r\n") {
  const auto range =
      std::to_string(of.first) + "-" + std::to_string(of.last) + "/" + std::to_string(file.size());
  return {"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + range +
          "\r\nContent-Length: " + std::to_string(of.bytes()) + "\r\n" + headers + "\r\n" +
          file.substr(of.first, of.bytes())};
}
inline http_reply status_reply(const std::string& status, const std::string& headers = {}) {
  return {"HTTP/1.1 " + status + "\r\nContent-Length: 5\r\n" + headers + "\r\nsorry"};
}

/// Each connection has a thread. The destructor closes all connections.
class loopback_server {
 public:
  using answers = std::function<http_reply(const http_request&)>;

  explicit loopback_server(answers answer) : answer_(std::move(answer)) {
    port_ = listening_.listen(64);
    acceptor_ = std::thread([this] { accept(); });
  }
  loopback_server(const loopback_server&) = delete;
  loopback_server& operator=(const loopback_server&) = delete;
  ~loopback_server() { stop(); }

  /// Later connections are refused.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      stopping_ = true;
      for (const auto& one : open_) ::shutdown(one.handle(), SHUT_RDWR);
    }
    changed_.notify_all();
    ::shutdown(listening_.handle(), SHUT_RDWR);
    acceptor_.join();
    for (auto& thread : threads_) thread.join();
    const owned_socket closed(std::move(listening_));
  }
  void answer(answers with) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(with);
  }
  /// Sends the rest of the replies that are held.
  void go_on() {
    {
      const std::lock_guard lock(mutex_);
      ++rounds_;
    }
    changed_.notify_all();
  }

  [[nodiscard]] std::string url(const std::string& path = "/experts",
                                const std::string& user = {}) const {
    return "http://" + user + "127.0.0.1:" + std::to_string(port_) + path;
  }
  [[nodiscard]] std::vector<http_request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void forget_requests() {
    const std::lock_guard lock(mutex_);
    requests_.clear();
  }
  [[nodiscard]] std::size_t connections() const {
    const std::lock_guard lock(mutex_);
    return open_.size();
  }

 private:
  void accept() {
    while (true) {
      const int handle = ::accept4(listening_.handle(), nullptr, nullptr, SOCK_CLOEXEC);
      const std::lock_guard lock(mutex_);
      if (handle < 0 || stopping_) {
        if (handle >= 0) ::close(handle);
        return;
      }
      const auto& one = open_.emplace_back(handle);
      threads_.emplace_back([this, &one] { serve(one.handle()); });
    }
  }
  void serve(int connection) {
    std::string text;
    for (http_request next; read_head(connection, text, next);) {
      const auto reply = reply_to(next);
      const auto held = std::min(reply.hold_at, reply.text.size());
      bool sent = send(connection, std::string_view(reply.text).substr(0, held));
      if (reply.hold_at != std::string::npos) {
        wait_for_round();
        sent = sent && send(connection, std::string_view(reply.text).substr(held));
      }
      if (reply.then == http_reply::end::reset) {
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        // Connecting to nowhere dissolves the connection with a reset; the descriptor stays open.
        const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
        ::connect(connection, &none, sizeof none);
        return;
      }
      if (!sent || reply.then == http_reply::end::close) break;
    }
    ::shutdown(connection, SHUT_RDWR);
  }
  http_reply reply_to(const http_request& request) {
    answers answer;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      answer = answer_;
    }
    return answer(request);
  }
  void wait_for_round() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, seen = rounds_] { return stopping_ || rounds_ != seen; });
  }
  static bool read_head(int connection, std::string& text, http_request& to) {
    std::size_t end = 0;
    while ((end = text.find("\r\n\r\n")) == std::string::npos) {
      char part[4096];
      const auto got = ::recv(connection, part, sizeof part, 0);
      if (got <= 0) return false;
      text.append(part, static_cast<std::size_t>(got));
    }
    to.head = text.substr(0, end + 2);
    text.erase(0, end + 4);
    constexpr std::string_view name = "Range: bytes=";
    const auto at = to.head.find(name);
    if (at == std::string::npos) return true;
    const char* const stop = to.head.data() + to.head.size();
    const auto [dash, code] = std::from_chars(to.head.data() + at + name.size(), stop, to.first);
    return code == std::errc() && std::from_chars(dash + 1, stop, to.last).ec == std::errc();
  }
  static bool send(int connection, std::string_view text) {
    while (!text.empty()) {
      const auto sent = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  answers answer_;
  owned_socket listening_;
  std::uint16_t port_ = 0;
  std::list<owned_socket> open_;  ///< addresses stay; closed at the end
  std::list<std::thread> threads_;
  std::vector<http_request> requests_;
  int rounds_ = 0;
  bool stopping_ = false;
  std::thread acceptor_;
};

}  // namespace hotset::support
