// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/metrics_endpoint.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::metrics_endpoint_test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string page() { return "a_metric 1\n"; }

std::unique_ptr<metrics_endpoint> endpoint(std::string_view address = "127.0.0.1:0") {
  auto made = metrics_endpoint::create(address, page);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *std::move(made) : nullptr;
}
std::string refusal_of(std::string_view address) {
  const auto made = metrics_endpoint::create(address, page);
  return made ? "" : made.error().message;
}

/// A client's connection.
class client {
 public:
  explicit client(const metrics_endpoint& to) {
    auto where = detail::socket_address::parse(to.address());
    EXPECT_TRUE(where);
    socket_ = detail::descriptor(::socket(where->bytes.ss_family, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(socket_.number(), where->get(), where->size), 0);
  }
  void send(std::string_view text) const {
    while (!text.empty()) {
      const auto sent = ::send(socket_.number(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  [[nodiscard]] std::string receive() const {
    std::string out;
    std::array<char, 4096> part{};
    for (;;) {
      const auto got = ::recv(socket_.number(), part.data(), part.size(), 0);
      if (got <= 0) return out;
      out.append(part.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  detail::descriptor socket_;
};

std::string answer(const metrics_endpoint& to, std::string_view request) {
  const client one(to);
  one.send(request);
  return one.receive();
}

TEST(metrics_endpoint, answers_a_scraper) {
  const auto served = endpoint();
  for (int n = 0; n < 3; ++n)
    EXPECT_EQ(answer(*served, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"),
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
              "Content-Length: 11\r\nConnection: close\r\n\r\na_metric 1\n");
  EXPECT_THAT(answer(*served, "GET /metrics?x=1 HTTP/1.0\r\n\r\n"), EndsWith("a_metric 1\n"));
  EXPECT_THAT(answer(*served, "HEAD /metrics HTTP/1.1\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 11\r\n"), EndsWith("\r\n\r\n")));
}

TEST(metrics_endpoint, refuses_other_requests_with_what_it_accepts) {
  const auto served = endpoint();
  EXPECT_THAT(answer(*served, "GET / HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("accepted: GET /metrics\n")));
  EXPECT_THAT(answer(*served, "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD\r\n")));
  EXPECT_THAT(answer(*served, "hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer(*served, "GET /metrics\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer(*served, std::string(9000, 'x')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(answer(*served, "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("a_metric 1\n"));
}

TEST(metrics_endpoint, a_silent_client_is_refused_and_others_are_served_after_it) {
  const auto served = endpoint();
  const client silent(*served);
  silent.send("GET /metr");
  EXPECT_THAT(answer(*served, "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("a_metric 1\n"));
  EXPECT_THAT(silent.receive(), StartsWith("HTTP/1.1 408 "));
}

TEST(metrics_endpoint, several_clients_at_once_are_served) {
  const auto served = endpoint();
  std::atomic<int> right = 0;
  std::vector<std::thread> clients;
  for (int n = 0; n < 8; ++n)
    clients.emplace_back([&] {
      right += answer(*served, "GET /metrics HTTP/1.1\r\n\r\n").ends_with("a_metric 1\n") ? 1 : 0;
    });
  for (auto& one : clients) one.join();
  EXPECT_EQ(right, 8);
}

TEST(metrics_endpoint, listens_on_the_loopback_unless_an_address_is_written) {
  EXPECT_THAT(endpoint("0")->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT(endpoint(":0")->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT(endpoint("localhost:0")->url(), StartsWith("http://127.0.0.1:"));
  EXPECT_THAT(endpoint("0.0.0.0:0")->address(), StartsWith("0.0.0.0:"));
  if (const auto six = metrics_endpoint::create("[::1]:0", page)) {
    EXPECT_THAT((*six)->address(), StartsWith("[::1]:"));
    EXPECT_THAT(answer(**six, "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("a_metric 1\n"));
  } else {
    EXPECT_THAT(six.error().message, HasSubstr("[::1]:0")) << "a machine without IPv6";
  }
}

TEST(metrics_endpoint, a_port_that_is_taken_is_one_clear_error) {
  const auto first = endpoint();
  EXPECT_EQ(refusal_of(first->address()), "metrics address " + first->address() +
                                              " is taken, accepted: a free port, or 0 for any");
}

TEST(metrics_endpoint, invalid_addresses_are_refused) {
  for (const char* bad : {"", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                          "host.example:80", "::1:80", "[::1]80", "[]:80", "[:80", "1 :80"})
    EXPECT_THAT(refusal_of(bad), AllOf(StartsWith("metrics address '" + std::string(bad) + "'"),
                                       HasSubstr("accepted: an address and a port")))
        << bad;
  EXPECT_THAT(refusal_of("192.0.2.1:80"), HasSubstr("accepted: an address of this machine"));
}

// A worker process that was forked holds copies of all descriptors.
TEST(metrics_endpoint, ends_and_frees_its_port_although_a_forked_process_lives) {
  auto first = endpoint();
  const auto address = first->address();
  std::array<int, 2> life{};
  ASSERT_EQ(::pipe(life.data()), 0);
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(life[1]);
    char end = 0;
    ::_exit(static_cast<int>(::read(life[0], &end, 1)));  // until the parent has ended the endpoint
  }
  ::close(life[0]);
  first.reset();
  EXPECT_THAT(answer(*endpoint(address), "GET /metrics HTTP/1.1\r\n\r\n"),
              EndsWith("a_metric 1\n"));
  ::close(life[1]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(metrics_endpoint, is_free_again_after_its_end) {
  auto first = endpoint();
  const auto address = first->address();
  EXPECT_THAT(answer(*first, "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("a_metric 1\n"));
  first.reset();
  EXPECT_THAT(answer(*endpoint(address), "GET /metrics HTTP/1.1\r\n\r\n"),
              EndsWith("a_metric 1\n"));
}

}  // namespace
}  // namespace hotset::metrics_endpoint_test
