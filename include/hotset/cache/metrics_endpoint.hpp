// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Serves one page of metrics over HTTP/1.1 (POSIX): GET /metrics, on its own thread.
///
/// It answers one request after another and closes each connection. A request has at most 8 KiB and two seconds, its
/// answer one second, so no client holds the thread for longer. There is no encryption and no password: keep the
/// address on the loopback, or behind a proxy.

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/start_threads.hpp"

namespace hotset {

namespace detail {

/// A file descriptor that its owner closes.
class descriptor {
 public:
  explicit descriptor(int number = -1) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const noexcept { return number_; }
  /// Makes calls return instead of waiting; a child process does not inherit it.
  void set_up() const noexcept {
    (void)::fcntl(number_, F_SETFD, FD_CLOEXEC);
    (void)::fcntl(number_, F_SETFL, O_NONBLOCK);
  }

 private:
  int number_;
};

/// A numeric address and a port.
struct socket_address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  std::string host;  ///< as in a URL: 127.0.0.1 or [::1]

  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&bytes); }
  [[nodiscard]] std::uint16_t port() const noexcept {
    return ntohs(bytes.ss_family == AF_INET6 ? as<sockaddr_in6>().sin6_port
                                             : as<sockaddr_in>().sin_port);
  }

  /// "127.0.0.1:9100", "[::1]:9100", or "9100" and ":9100" on 127.0.0.1. Errors: any other text.
  static result<socket_address> parse(std::string_view text) {
    const auto colon = text.rfind(':');
    const auto digits = colon == std::string_view::npos ? text : text.substr(colon + 1);
    auto host = std::string(colon == std::string_view::npos ? "" : text.substr(0, colon));
    if (host.empty() || host == "localhost") host = "127.0.0.1";
    std::uint16_t port = 0;
    const auto* const end = digits.data() + digits.size();
    const auto [rest, bad] = std::from_chars(digits.data(), end, port);
    socket_address out;
    out.host = host;
    if (digits.empty() || bad != std::errc{} || rest != end || !out.take(port))
      return refusal("metrics address '", text,
                     "', accepted: an address and a port, such as 127.0.0.1:9100, [::1]:9100, or "
                     "127.0.0.1:0 for any free port");
    return out;
  }

 private:
  template <class Address>
  [[nodiscard]] Address as() const noexcept {
    Address out{};
    std::memcpy(&out, &bytes, sizeof out);
    return out;
  }
  template <class Address>
  void set(const Address& address) noexcept {
    std::memcpy(&bytes, &address, sizeof address);
    size = sizeof address;
  }
  bool take(std::uint16_t port) {
    if (host.front() == '[' && host.back() == ']') {
      sockaddr_in6 six{};
      six.sin6_family = AF_INET6;
      six.sin6_port = htons(port);
      const auto inner = host.substr(1, host.size() - 2);
      if (::inet_pton(AF_INET6, inner.c_str(), &six.sin6_addr) != 1) return false;
      set(six);
      return true;
    }
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1) return false;
    set(four);
    return true;
  }
};

/// One connection: its request has two seconds, its answer another one.
class connection {
 public:
  explicit connection(descriptor socket) noexcept : socket_(std::move(socket)) {
    socket_.set_up();
#if defined(SO_NOSIGPIPE)
    const int on = 1;
    (void)::setsockopt(socket_.number(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
  }
  /// Reads up to the empty line that ends a request's head. Returns the status of an error, or 0.
  [[nodiscard]] int read_head(std::string& head) {
    std::array<char, 1024> part{};
    while (head.find("\r\n\r\n") == std::string::npos) {
      if (head.size() > most_bytes) return 431;
      if (!is_ready(POLLIN)) return 408;
      const auto got = ::recv(socket_.number(), part.data(), part.size(), 0);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return 400;
      if (got > 0) head.append(part.data(), static_cast<std::size_t>(got));
    }
    return 0;
  }
  void write(std::string_view text) {
    end_ = clock::now() + std::chrono::seconds(1);
#if defined(MSG_NOSIGNAL)
    constexpr int flags = MSG_NOSIGNAL;
#else
    constexpr int flags = 0;
#endif
    while (!text.empty() && is_ready(POLLOUT)) {
      const auto sent = ::send(socket_.number(), text.data(), text.size(), flags);
      if (sent < 0 && errno != EINTR && errno != EAGAIN) return;
      if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
    }
    (void)::shutdown(socket_.number(), SHUT_WR);
  }
  /// Reads what the client still sends. Closing a socket with unread bytes would reset the connection, and the client
  /// would lose the answer.
  void read_rest() {
    std::array<char, 1024> part{};
    for (std::size_t all = 0; all < most_bytes && is_ready(POLLIN);) {
      const auto got = ::recv(socket_.number(), part.data(), part.size(), 0);
      if (got <= 0) return;
      all += static_cast<std::size_t>(got);
    }
  }

 private:
  static constexpr std::size_t most_bytes = 8192;
  using clock = std::chrono::steady_clock;

  [[nodiscard]] bool is_ready(short event) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - clock::now()).count();
    pollfd waiting{socket_.number(), event, 0};
    return left > 0 && ::poll(&waiting, 1, static_cast<int>(left)) > 0;
  }

  descriptor socket_;
  clock::time_point end_ = clock::now() + std::chrono::seconds(2);
};

/// An HTTP/1.1 answer without a body for HEAD.
[[nodiscard]] inline std::string http_answer(std::string_view status, std::string_view body,
                                             bool is_head = false) {
  std::string out("HTTP/1.1 ");
  out.append(status).append("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
  if (status.starts_with("405")) out.append("Allow: GET, HEAD\r\n");
  out.append("Content-Length: ").append(std::to_string(body.size()));
  out.append("\r\nConnection: close\r\n\r\n");
  if (!is_head) out.append(body);
  return out;
}

}  // namespace detail

/// Listens from construction to destruction. `page` is called by the endpoint's thread and throws nothing but
/// std::bad_alloc, which ends the connection.
class metrics_endpoint {
 public:
  using page_type = std::function<std::string()>;

  /// Refuses an address that `create` cannot read.
  static validation check(std::string_view address) {
    auto where = detail::socket_address::parse(address);
    return where ? validation() : validation(where.error());
  }
  /// `address`: numeric, with a port; 0: any free port, see `address()`. Without a host, the loopback 127.0.0.1.
  /// Errors: an invalid address; the port is taken; the system refuses a socket or a thread.
  static result<std::unique_ptr<metrics_endpoint>> create(std::string_view address,
                                                          page_type page) {
    auto where = detail::socket_address::parse(address);
    if (!where) return where.error();
    std::unique_ptr<metrics_endpoint> made(new metrics_endpoint(std::move(page)));
    if (auto refused = made->listen(*where)) return *std::move(refused);
    if (auto refused =
            detail::start_threads(made->thread_, 1, [self = made.get()] { self->loop(); }))
      return *std::move(refused);
    return made;
  }
  metrics_endpoint(const metrics_endpoint&) = delete;
  metrics_endpoint& operator=(const metrics_endpoint&) = delete;
  /// Ends after the running answer, at most three seconds later.
  ~metrics_endpoint() {
    // Not by the end of the pipe: a forked process may hold it open, and the port as well.
    (void)!::write(wake_[1].number(), "", 1);
    (void)::shutdown(socket_.number(), SHUT_RDWR);
    for (auto& thread : thread_) thread.join();
  }

  /// Where it listens, with the chosen port, such as 127.0.0.1:9100.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] std::string url() const { return "http://" + address_ + "/metrics"; }

 private:
  explicit metrics_endpoint(page_type page) : page_(std::move(page)) {}

  static error refused(const detail::socket_address& where, std::string_view call, int code) {
    const auto name = where.host + ':' + std::to_string(where.port());
    if (code == EADDRINUSE)
      return refusal("metrics address ", name, " is taken, accepted: a free port, or 0 for any");
    return refusal("metrics address ", name, ": ", call, ": ", std::strerror(code),
                   ", accepted: an address of this machine and a port that this user may open");
  }
  validation listen(detail::socket_address& where) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return refused(where, "pipe", errno);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      wake_[i] = detail::descriptor(ends[i]);
      wake_[i].set_up();
    }
    socket_ = detail::descriptor(::socket(where.bytes.ss_family, SOCK_STREAM, 0));
    if (socket_.number() < 0) return refused(where, "socket", errno);
    socket_.set_up();
    // An engine that restarts takes its port again, although old connections linger.
    const int on = 1;
    (void)::setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket_.number(), where.get(), where.size) != 0)
      return refused(where, "bind", errno);
    if (::listen(socket_.number(), 16) != 0) return refused(where, "listen", errno);
    if (::getsockname(socket_.number(), where.get(), &where.size) != 0)
      return refused(where, "getsockname", errno);
    address_ = where.host + ':' + std::to_string(where.port());
    return std::nullopt;
  }

  void loop() {
    while (true) {
      std::array<pollfd, 2> waiting{
          {{wake_[0].number(), POLLIN, 0}, {socket_.number(), POLLIN, 0}}};
      if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
      if (waiting[0].revents != 0) return;
      detail::descriptor client(::accept(socket_.number(), nullptr, nullptr));
      if (client.number() >= 0)
        (void)unless_out_of_memory([&] { return serve(std::move(client)); }, false);
      else if (errno == EMFILE || errno == ENFILE)  // the request stays in the queue
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  bool serve(detail::descriptor client) const {
    detail::connection with(std::move(client));
    std::string head;
    const int bad = with.read_head(head);
    with.write(bad == 0 ? answer(head) : refuse(bad));
    with.read_rest();
    return true;
  }
  static std::string refuse(int code) {
    return code == 431 ? detail::http_answer("431 Request Header Fields Too Large",
                                             "a request above 8 KiB, accepted: GET /metrics\n")
           : code == 408
               ? detail::http_answer("408 Request Timeout",
                                     "no request in two seconds, accepted: GET /metrics\n")
               : detail::http_answer("400 Bad Request", "no request, accepted: GET /metrics\n");
  }
  [[nodiscard]] std::string answer(std::string_view head) const {
    const auto line = head.substr(0, head.find("\r\n"));
    const auto first = line.find(' ');
    const auto last = line.rfind(' ');
    if (first == std::string_view::npos || last == first ||
        !line.substr(last).starts_with(" HTTP/"))
      return refuse(400);
    const auto method = line.substr(0, first);
    const auto target = line.substr(first + 1, last - first - 1);
    if (method != "GET" && method != "HEAD")
      return detail::http_answer("405 Method Not Allowed", "accepted: GET /metrics\n");
    if (target.substr(0, target.find('?')) != "/metrics")
      return detail::http_answer("404 Not Found", "accepted: GET /metrics\n", method == "HEAD");
    return detail::http_answer("200 OK", page_(), method == "HEAD");
  }

  page_type page_;
  std::array<detail::descriptor, 2> wake_;  ///< pipe
  detail::descriptor socket_;
  std::string address_;
  std::vector<std::thread> thread_;
};

}  // namespace hotset
