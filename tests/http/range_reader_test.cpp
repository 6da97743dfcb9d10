// SPDX-License-Identifier: Apache-2.0
#include "hotset/http/range_reader.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "file_readers.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "loopback_server.hpp"
#include "reader_suite.hpp"

namespace hotset::support::range_reader_test {
namespace {

/// A reader over a server that answers as it should, until `fail_reads`.
struct range_reader_entry {
  using reader_type = range_reader;
  range_reader_entry() { file.add_to(reader); }
  void fail_reads() {
    server.answer([](const auto&) { return status_reply("404 Not Found"); });
  }
  void mend() {
    server.answer([this](const http_request& of) { return range_reply(file.bytes, of); });
  }

  reader_file file;
  loopback_server server{[this](const http_request& of) { return range_reply(file.bytes, of); }};
  range_reader reader =
      range_reader::open(reader_file::shape(), {{.urls = {server.url()}}}, {.beside = 4}).value();
};

using entries = testing::Types<range_reader_entry, tier_entry<range_reader_entry>>;

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(ranges, reader_conformance, entries);

}  // namespace hotset::support::range_reader_test

namespace hotset::range_reader_test {
namespace {

using support::guarded_parts;
using support::http_reply;
using support::http_request;
using support::loopback_server;
using support::range_reply;
using support::reader_file;
using support::status_reply;
using testing::HasSubstr;
using testing::Not;
using end = http_reply::end;
using namespace std::chrono_literals;

const expert_key together{0_layer, 2_expert};  ///< its tensors follow one another in the file
const expert_key apart{1_layer, 2_expert};

/// Collects the lines of a log.
struct collected_log {
  static void write(void* self, log_level, std::string_view text) noexcept {
    auto& log = *static_cast<collected_log*>(self);
    const std::lock_guard lock(log.mutex);
    log.lines.emplace_back(text);
  }
  log_sink sink() { return {&collected_log::write, this}; }
  std::mutex mutex;
  std::vector<std::string> lines;
};

/// A server whose answers a test chooses, and readers with short pauses.
class ranges : public testing::Test {
 protected:
  ranges() { ::setenv("no_proxy", "*", 1); }

  [[nodiscard]] loopback_server::answers right(
      const std::string& headers = "ETag: \"1\"\r\n") const {
    return [this, headers](const http_request& of) { return range_reply(file.bytes, of, headers); };
  }
  /// Answers the next request in this way and later ones as it should.
  void answer_once(loopback_server::answers wrong) {
    auto asked = std::make_shared<std::atomic<int>>(0);
    server.answer([this, wrong = std::move(wrong), asked](const http_request& of) {
      return (*asked)++ == 0 ? wrong(of) : range_reply(file.bytes, of);
    });
  }
  static range_reader_config quick() {
    range_reader_config out;
    out.limits.first_pause = 1ms;
    out.limits.most_pause = 2ms;
    return out;
  }
  [[nodiscard]] range_reader open(const range_reader_config& setup = quick()) {
    return open_at({{.urls = {server.url()}}}, setup);
  }
  [[nodiscard]] range_reader open_at(const std::vector<http_source>& sources,
                                     const range_reader_config& setup = quick()) {
    auto out = range_reader::open(reader_file::shape(), sources, setup).value();
    file.add_to(out);
    server.forget_requests();
    return out;
  }
  static std::string why_not_opened(const std::vector<http_source>& sources,
                                    const range_reader_config& setup = quick()) {
    const auto opened = range_reader::open(reader_file::shape(), sources, setup);
    return opened ? "opened" : opened.error().message;
  }
  /// Returns whether all tensors of an expert were read; checks their bytes.
  static bool reads(const range_reader& reader, expert_key key) {
    guarded_parts parts;
    parts.add_all();
    if (!reader.read_all(key, {}, parts.parts())) return false;
    EXPECT_TRUE(parts.hold(key));
    return true;
  }

  reader_file file;
  loopback_server server{right()};
};

TEST_F(ranges, tensors_that_follow_one_another_are_one_request) {
  const auto reader = open();
  EXPECT_TRUE(reads(reader, together));
  const auto asked = server.requests();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].first, file.at(together)[0].offset);
  EXPECT_EQ(asked[0].bytes(), reader_file::expert_bytes);
  EXPECT_TRUE(asked[0].has("If-Match: \"1\"\r\n")) << asked[0].head;
}

TEST_F(ranges, tensors_apart_are_requested_at_once_over_connections_that_stay) {
  const auto reader = open();
  std::mutex mutex;
  std::condition_variable met;
  int waiting = 0;
  server.answer([&](const http_request& of) {
    std::unique_lock lock(mutex);
    ++waiting;
    met.notify_all();
    // None of three requests is answered before all have arrived.
    EXPECT_TRUE(met.wait_for(lock, 30s, [&] { return waiting >= 3; }));
    return range_reply(file.bytes, of);
  });
  EXPECT_TRUE(reads(reader, apart));
  EXPECT_EQ(server.requests().size(), 3U);
  for (int n = 0; n < 5; ++n) EXPECT_TRUE(reads(reader, apart));
  EXPECT_EQ(server.connections(), 3U);
}

TEST_F(ranges, only_failed_requests_are_repeated) {
  const auto reader = open();
  answer_once([](const auto&) { return status_reply("503 Service Unavailable"); });
  EXPECT_TRUE(reads(reader, apart));
  EXPECT_EQ(server.requests().size(), 3U + 1U);
}

TEST_F(ranges, an_expert_of_a_backend_is_one_batch_whatever_its_chunks) {
  const auto reader = open();
  const auto bank = host_slot_bank::create(pool_layout::shared(reader_file::shape(), 4).value(),
                                           reader_file::layouts())
                        .value();
  host_backend<range_reader> backend(reader, bank, {.threads = 2, .pace = unpaced(16)});
  host_stream stream;
  const std::array fills{fill{.key = together, .slot = 0_slot}, fill{.key = apart, .slot = 1_slot}};
  ASSERT_EQ(backend.wait(backend.submit(fills, stream, urgency::now).id), transfer_state::arrived);
  for (const auto& one : fills) EXPECT_TRUE(support::slot_holds(bank, one.slot, one.key));
  EXPECT_EQ(server.requests().size(), 1U + 3U);
}

/// A failure that the same server may not have again.
struct passing_fault {
  const char* name;
  std::function<http_reply(http_reply)> spoil;
};
std::ostream& operator<<(std::ostream& to, const passing_fault& of) { return to << of.name; }
class passing_faults : public ranges, public testing::WithParamInterface<passing_fault> {};

http_reply first_bytes(const http_reply& of, std::size_t count, end then) {
  return {of.text.substr(0, count), then};
}
const std::vector<passing_fault> all_passing_faults{
    {"unavailable", [](auto) { return status_reply("503 Service Unavailable"); }},
    {"too_many", [](auto) { return status_reply("429 Too Many Requests"); }},
    {"error", [](auto) { return status_reply("500 Internal Server Error"); }},
    {"gateway", [](auto) { return status_reply("502 Bad Gateway"); }},
    {"request_timeout", [](auto) { return status_reply("408 Request Timeout"); }},
    {"closed_in_the_middle",
     [](const http_reply& of) { return first_bytes(of, of.text.size() - 100, end::close); }},
    {"reset_in_the_middle",
     [](const http_reply& of) { return first_bytes(of, of.text.size() - 100, end::reset); }},
    {"closed_without_an_answer",
     [](const http_reply& of) { return first_bytes(of, 0, end::close); }},
    {"reset_without_an_answer",
     [](const http_reply& of) { return first_bytes(of, 0, end::reset); }},
    {"closed_in_the_headers", [](const http_reply& of) { return first_bytes(of, 40, end::close); }},
    {"short_without_a_length",
     [](const http_reply& of) {
       const auto at = of.text.find("Content-Length");
       const auto next = of.text.find("\r\n", at) + 2;
       return http_reply{of.text.substr(0, at) + of.text.substr(next, of.text.size() - next - 9),
                         end::close};
     }},
};

TEST_P(passing_faults, are_tried_again) {
  const auto reader = open();
  answer_once(
      [&](const http_request& of) { return GetParam().spoil(range_reply(file.bytes, of)); });
  EXPECT_TRUE(reads(reader, together)) << reader.problem();
  EXPECT_EQ(server.requests().size(), 2U);
  EXPECT_EQ(reader.problem(), "");
}

TEST_P(passing_faults, end_after_the_last_try) {
  const auto reader = open();
  server.answer(
      [&](const http_request& of) { return GetParam().spoil(range_reply(file.bytes, of)); });
  EXPECT_FALSE(reads(reader, together));
  // libcurl itself repeats a request once if a kept connection closes without an answer.
  EXPECT_GE(server.requests().size(), 3U);
  EXPECT_LE(server.requests().size(), 4U);
  EXPECT_THAT(reader.problem(), HasSubstr("cannot read " + server.url() + " at byte "));
  server.answer(right());
  EXPECT_TRUE(reads(reader, together)) << "the next read is another one";
}

INSTANTIATE_TEST_SUITE_P(each, passing_faults, testing::ValuesIn(all_passing_faults),
                         [](const auto& one) { return one.param.name; });

/// An answer that a second try does not mend.
struct lasting_fault {
  const char* name;
  std::function<http_reply(const std::string& file, const http_request&)> answer;
  const char* says;
  bool writes_nothing = true;  ///< the headers alone show the fault
};
std::ostream& operator<<(std::ostream& to, const lasting_fault& of) { return to << of.name; }
class lasting_faults : public ranges, public testing::WithParamInterface<lasting_fault> {};

http_reply with(http_reply reply, const std::string& old_text, const std::string& new_text) {
  const auto at = reply.text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  reply.text.replace(at, old_text.size(), new_text);
  return reply;
}
const std::vector<lasting_fault> all_lasting_faults{
    {"not_found", [](auto&, auto&) { return status_reply("404 Not Found"); },
     "the server answers 404"},
    {"forbidden", [](auto&, auto&) { return status_reply("403 Forbidden"); },
     "the server answers 403"},
    {"no_ranges",
     [](auto& file, auto&) {
       return http_reply{"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: " +
                         std::to_string(file.size()) + "\r\n\r\n" + file};
     },
     "the server ignores ranges and answers 200, accepted: 206"},
    {"other_range",
     [](auto& file, auto& of) {
       const auto first = std::to_string(of.first);
       return with(range_reply(file, of), "bytes " + first,
                   "bytes " + std::to_string(of.first - 1));
     },
     "Content-Range names other bytes"},
    {"other_end",
     [](auto& file, auto& of) {
       return with(range_reply(file, of), "-" + std::to_string(of.last),
                   "-" + std::to_string(of.last - 1));
     },
     "Content-Range names other bytes"},
    {"no_content_range",
     [](auto& file, auto& of) { return with(range_reply(file, of), "Content-Range", "X-Range"); },
     "no Content-Range"},
    {"unknown_size",
     [](auto& file, auto& of) {
       return with(range_reply(file, of), "/" + std::to_string(file.size()), "/*");
     },
     "no Content-Range"},
    {"garbled_range",
     [](auto& file, auto& of) { return with(range_reply(file, of), ": bytes ", ": bytes x"); },
     "no Content-Range"},
    {"longer_length",
     [](auto& file, auto& of) {
       auto reply = with(range_reply(file, of), "Length: " + std::to_string(of.bytes()),
                         "Length: " + std::to_string(of.bytes() + 7));
       reply.text += "surplus";
       return reply;
     },
     "Content-Length is not"},
    {"shorter_length",
     [](auto& file, auto& of) {
       return with(range_reply(file, of), "Length: " + std::to_string(of.bytes()), "Length: 3");
     },
     "Content-Length is not"},
    {"longer_body",
     [](auto& file, auto& of) {
       auto reply = with(range_reply(file, of), "Content-Length: " + std::to_string(of.bytes()),
                         "Connection: close");
       reply.text += std::string(1000, 'x');
       reply.then = end::close;
       return reply;
     },
     "more bytes than requested", false},
    {"compressed",
     [](auto& file, auto& of) {
       return range_reply(file, of, "ETag: \"1\"\r\nContent-Encoding: gzip\r\n");
     },
     "Content-Encoding"},
    {"changed_by_if_match", [](auto&, auto&) { return status_reply("412 Precondition Failed"); },
     "has changed since it was opened"},
    {"changed_etag", [](auto& file, auto& of) { return range_reply(file, of, "ETag: \"2\"\r\n"); },
     "has changed since it was opened"},
    {"lost_etag", [](auto& file, auto& of) { return range_reply(file, of, ""); },
     "has changed since it was opened"},
    {"changed_size",
     [](auto& file, auto& of) {
       return with(range_reply(file, of), "/" + std::to_string(file.size()),
                   "/" + std::to_string(file.size() + 1));
     },
     "has changed since it was opened"},
    {"no_http",
     [](auto&, auto&) {
       return http_reply{"\x16\x03\x01 this is not HTTP\r\n\r\n" + std::string(500, '\x7f'),
                         end::close};
     },
     "at byte "},
    {"endless_redirect",
     [](auto&, auto&) { return status_reply("302 Found", "Location: /experts\r\n"); }, "redirects"},
    {"redirect_to_a_file",
     [](auto&, auto&) { return status_reply("302 Found", "Location: file:///etc/passwd\r\n"); },
     "rotocol"},
};

TEST_P(lasting_faults, are_refused_in_one_line_and_the_next_read_is_another) {
  const auto reader = open();
  const bool is_endless = GetParam().name == std::string("endless_redirect");
  const auto wrong = [&](const http_request& of) { return GetParam().answer(file.bytes, of); };
  is_endless ? server.answer(wrong) : answer_once(wrong);
  {
    guarded_parts parts;
    parts.add_all();
    EXPECT_FALSE(reader.read_all(together, {}, parts.parts()));
    EXPECT_TRUE(parts.are_untouched() || !GetParam().writes_nothing);
  }
  EXPECT_THAT(reader.problem(), HasSubstr("cannot read " + server.url() + " at byte "));
  EXPECT_THAT(reader.problem(), HasSubstr(GetParam().says));
  EXPECT_THAT(reader.problem(), Not(HasSubstr("\n")));
  const std::size_t requests = is_endless ? 6 : 1;
  EXPECT_EQ(server.requests().size(), requests) << "it is not tried again";
  server.answer(right());
  EXPECT_TRUE(reads(reader, together));
}

TEST_P(lasting_faults, leave_a_source_for_the_next) {
  loopback_server second(right("ETag: \"other\"\r\n"));
  collected_log log;
  auto setup = quick();
  setup.log = log.sink();
  const auto reader = open_at({{{server.url()}}, {{second.url()}}}, setup);
  server.answer([&](const http_request& of) { return GetParam().answer(file.bytes, of); });
  EXPECT_TRUE(reads(reader, together));
  ASSERT_EQ(log.lines.size(), 1U);
  EXPECT_THAT(log.lines[0], HasSubstr(GetParam().says));
  EXPECT_THAT(log.lines[0], HasSubstr("reads go on at " + second.url()));
  server.forget_requests();
  EXPECT_TRUE(reads(reader, apart));
  EXPECT_TRUE(server.requests().empty());
  EXPECT_EQ(log.lines.size(), 1U) << "it is said once";
}

INSTANTIATE_TEST_SUITE_P(each, lasting_faults, testing::ValuesIn(all_lasting_faults),
                         [](const auto& one) { return one.param.name; });

TEST_F(ranges, a_silent_server_is_left_at_its_limit_and_writes_no_more) {
  auto setup = quick();
  setup.limits.stall = 300ms;
  setup.limits.tries = 2;
  const auto reader = open(setup);
  const auto held_at = [&](std::size_t count) {
    return [this, count](const http_request& of) {
      auto reply = range_reply(file.bytes, of);
      reply.hold_at = count == 0 ? 0 : reply.text.size() - count;
      return reply;
    };
  };
  for (const std::size_t left : {0U, 90U, 1U}) {
    server.answer(held_at(left));
    std::vector<std::byte> to(96);
    EXPECT_FALSE(reader.read(together, {}, 0, 0, to));
    EXPECT_THAT(reader.problem(), HasSubstr("no byte arrived within the time limit `stall`"));
    // The buffer is the caller's again.
    std::ranges::fill(to, std::byte{0xff});
    server.answer(right());
    server.go_on();
    EXPECT_TRUE(reads(reader, together));
    EXPECT_THAT(to, testing::Each(std::byte{0xff}));
  }
}

TEST_F(ranges, a_read_ends_at_its_time_limit) {
  auto setup = quick();
  setup.limits.whole = 1s;
  setup.limits.stall = 10s;
  const auto reader = open(setup);
  server.answer([&](const http_request& of) {
    auto reply = range_reply(file.bytes, of);
    reply.hold_at = reply.text.size() - 300;
    return reply;
  });
  EXPECT_FALSE(reads(reader, together));
  EXPECT_THAT(reader.problem(), HasSubstr("it did not end within the time limit `whole`"));
  server.go_on();
}

TEST_F(ranges, a_source_that_takes_all_the_time_is_left_for_the_next) {
  loopback_server second(right("ETag: \"other\"\r\n"));
  auto setup = quick();
  setup.limits.whole = 500ms;
  setup.limits.stall = 10s;
  const auto reader = open_at({{{server.url()}}, {{second.url()}}}, setup);
  server.answer([&](const http_request& of) {
    auto reply = range_reply(file.bytes, of);
    reply.hold_at = reply.text.size() - 300;
    return reply;
  });
  EXPECT_FALSE(reads(reader, together));
  EXPECT_TRUE(reads(reader, together));
  server.go_on();
}

TEST_F(ranges, a_long_error_page_is_not_read_to_its_end) {
  auto setup = quick();
  setup.limits.whole = 2s;
  setup.limits.stall = 10s;
  setup.limits.tries = 1;
  const auto reader = open(setup);
  server.answer([&](const http_request&) {
    http_reply reply;
    reply.text =
        "HTTP/1.1 404 Not Found\r\nContent-Length: 1000000000\r\n\r\n" + std::string(200'000, 'x');
    reply.hold_at = reply.text.size();
    return reply;
  });
  EXPECT_FALSE(reads(reader, together));
  EXPECT_THAT(reader.problem(), HasSubstr("404"));
  server.go_on();
}

TEST_F(ranges, retries_end_at_the_time_limit) {
  auto setup = quick();
  setup.limits.whole = 1s;
  setup.limits.tries = 100;
  setup.limits.first_pause = 400ms;
  setup.limits.most_pause = 400ms;
  const auto reader = open(setup);
  server.answer([](const auto&) { return status_reply("503 Service Unavailable"); });
  EXPECT_FALSE(reads(reader, together));
  EXPECT_LE(server.requests().size(), 3U);
  EXPECT_THAT(reader.problem(), HasSubstr("503"));
}

// The backlog of a listening socket is full, so that no connection is completed.
TEST_F(ranges, a_connection_has_a_time_limit) {
  const support::owned_socket listening;
  const auto port = listening.listen(0);
  std::vector<support::owned_socket> queued;
  for (int n = 0; n < 4; ++n) {
    queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_FALSE(queued.back().connect(port)) << "it does not wait";
  }
  auto setup = quick();
  setup.limits.connect = 50ms;
  setup.limits.tries = 1;
  EXPECT_THAT(why_not_opened({{{"http://127.0.0.1:" + std::to_string(port) + "/f"}}}, setup),
              HasSubstr("Timeout was reached"));
}

TEST(range_limits, pauses_double_up_to_the_longest) {
  const range_limits limits{.first_pause = 100ms, .most_pause = 1'000ms};
  std::vector<std::chrono::milliseconds> pauses;
  for (unsigned n = 1; n <= 5; ++n) pauses.push_back(limits.pause_before(n));
  EXPECT_THAT(pauses, testing::ElementsAre(100ms, 200ms, 400ms, 800ms, 1'000ms));
  EXPECT_EQ(limits.pause_before(100), 1'000ms);
}

TEST_F(ranges, a_server_that_ends_is_left_for_the_next_source) {
  loopback_server second(right());
  collected_log log;
  auto setup = quick();
  setup.log = log.sink();
  setup.beside = 4;
  const auto reader = open_at({{{server.url()}}, {{second.url()}}}, setup);
  server.stop();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { EXPECT_TRUE(reads(reader, together)); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(log.lines.size(), 1U) << "one of the threads says so";
  EXPECT_EQ(reader.problem(), "");
  second.stop();
  EXPECT_FALSE(reads(reader, together));
  EXPECT_THAT(reader.problem(), HasSubstr(server.url()));
  EXPECT_THAT(reader.problem(), HasSubstr(second.url())) << "the reason of each source";
}

TEST_F(ranges, a_source_that_cannot_be_opened_is_left_out) {
  collected_log log;
  auto setup = quick();
  setup.log = log.sink();
  loopback_server absent([](const auto&) { return status_reply("404 Not Found"); });
  loopback_server larger(
      [this](const http_request& of) { return range_reply(file.bytes + "more", of); });
  const auto reader = open_at({{{absent.url()}}, {{server.url()}}, {{larger.url()}}}, setup);
  EXPECT_TRUE(reads(reader, together));
  ASSERT_EQ(log.lines.size(), 2U);
  EXPECT_EQ(log.lines[0], "a source is left out: cannot read " + absent.url() +
                              " at byte 0: the server answers 404, accepted: 206");
  EXPECT_THAT(log.lines[1], HasSubstr("accepted: " + std::to_string(file.bytes.size())));
  EXPECT_EQ(why_not_opened({{{absent.url()}}, {{absent.url("/other")}}}),
            "cannot read " + absent.url() + " at byte 0: the server answers 404, accepted: 206");
}

/// Hashes of an expert's tensors, as sha256sum prints them.
std::array<sha256_bytes, 3> hashes_of(expert_key key) {
  std::array<sha256_bytes, 3> out{};
  for (std::size_t t = 0; t < 3; ++t) {
    std::vector<std::byte> bytes(reader_file::sizes[t]);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = support::pattern(key, t, i);
    unsigned int length = 0;
    EXPECT_EQ(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(&out[t]),
                         &length, EVP_sha256(), nullptr),
              1);
  }
  return out;
}

TEST_F(ranges, a_tensor_with_a_wrong_byte_is_never_delivered) {
  const auto place = file.at(apart)[1].offset + 20;
  auto corrupted = file.bytes;
  corrupted[place] = static_cast<char>(corrupted[place] ^ 1);
  server.answer([&](const http_request& of) { return range_reply(corrupted, of); });
  auto reader = open();
  EXPECT_EQ(reader.add(apart, {}, file.at(apart), std::array<sha256_bytes, 2>{})->message,
            "2 hashes of 3 tensors, accepted: 0 or 3");
  const auto hashes = hashes_of(apart);
  EXPECT_FALSE(reader.add(apart, {}, file.at(apart), hashes));
  guarded_parts parts;
  parts.add_all();
  EXPECT_FALSE(reader.read_all(apart, {}, parts.parts()));
  EXPECT_EQ(reader.problem(), "cannot read " + server.url() + " at byte " +
                                  std::to_string(file.at(apart)[1].offset) +
                                  ": the tensor's bytes do not have its SHA-256");
  EXPECT_EQ(server.requests().size(), 3U) << "it is not tried again";
  std::vector<std::byte> whole(96);
  EXPECT_TRUE(reader.read(apart, {}, 0, 0, whole)) << "another tensor";
  EXPECT_TRUE(reader.read(apart, {}, 1, 0, std::span(whole).first(10))) << "a part has no hash";
  EXPECT_TRUE(reads(reader, together)) << "an expert without hashes";
  EXPECT_FALSE(reader.add(apart, {}, file.at(apart))) << "without hashes again";
  EXPECT_TRUE(reader.read_all(apart, {}, parts.parts()));
}

TEST_F(ranges, a_source_with_a_wrong_byte_is_left_for_the_next) {
  auto corrupted = file.bytes;
  corrupted[file.at(together)[2].offset] ^= 1;
  server.answer([&](const http_request& of) { return range_reply(corrupted, of); });
  loopback_server second(right());
  collected_log log;
  auto setup = quick();
  setup.log = log.sink();
  auto reader = open_at({{{server.url()}}, {{second.url()}}}, setup);
  EXPECT_FALSE(reader.add(together, {}, file.at(together), hashes_of(together)));
  EXPECT_TRUE(reads(reader, together));
  ASSERT_EQ(log.lines.size(), 1U);
  EXPECT_THAT(log.lines[0], HasSubstr("SHA-256"));
}

TEST_F(ranges, a_redirect_is_followed) {
  loopback_server store(right("ETag: \"stored\"\r\n"));
  server.answer([&](const http_request&) {
    return status_reply("302 Found", "Location: " + store.url("/elsewhere") + "\r\n");
  });
  const auto reader = open();
  store.forget_requests();
  EXPECT_TRUE(reads(reader, apart));
  EXPECT_EQ(server.requests().size(), 3U);
  ASSERT_EQ(store.requests().size(), 3U);
  EXPECT_TRUE(store.requests()[0].has("GET /elsewhere "));
  EXPECT_FALSE(server.requests()[0].has("If-Match")) << "the ETag is the other server's";
  store.answer(right("ETag: \"new\"\r\n"));
  EXPECT_FALSE(reads(reader, apart));
  EXPECT_THAT(reader.problem(), HasSubstr("has changed since it was opened"));
}

TEST_F(ranges, a_file_without_a_strong_etag_is_known_by_its_date) {
  const std::string monday = "Last-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n";
  const std::string tuesday = "Last-Modified: Tue, 03 Nov 2026 10:00:00 GMT\r\n";
  for (const std::string etag : {"", "ETag: W/\"1\"\r\n"}) {
    server.answer(right(etag + monday));
    const auto reader = open();
    EXPECT_TRUE(reads(reader, together));
    EXPECT_TRUE(server.requests()[0].has("If-Unmodified-Since: Mon, 02 Nov 2026"));
    EXPECT_FALSE(server.requests()[0].has("If-Match"));
    server.answer(right(etag + tuesday));
    EXPECT_FALSE(reads(reader, together));
    EXPECT_THAT(reader.problem(), HasSubstr("has changed since it was opened"));
  }
  server.answer(right("ETag: W/\"1\"\r\n"));
  EXPECT_THAT(why_not_opened({{{server.url()}}}), HasSubstr("so that a change would go unnoticed"));
}

TEST_F(ranges, no_message_has_a_secret) {
  collected_log log;
  auto setup = quick();
  setup.log = log.sink();
  const auto url = server.url("/f?X-Amz-Signature=sesame", "me:sesame@");
  const auto reader = open_at({{{url}}, {{url}}}, setup);
  EXPECT_TRUE(reads(reader, together));
  EXPECT_TRUE(server.requests()[0].has("GET /f?X-Amz-Signature=sesame "));
  EXPECT_TRUE(server.requests()[0].has("Authorization: Basic bWU6c2VzYW1l"));
  server.answer([](const auto&) { return status_reply("403 Forbidden"); });
  EXPECT_FALSE(reads(reader, together));
  EXPECT_EQ(reader.problem(), "cannot read " + server.url("/f") +
                                  " at byte 772: the server answers " +
                                  "403, accepted: 206; cannot read " + server.url("/f") +
                                  " at byte 772: the server answers 403, accepted: 206");
  EXPECT_THAT(why_not_opened({{{url}}, {{url}}}, setup), Not(HasSubstr("sesame")));
  EXPECT_THAT(log.lines, testing::Each(Not(HasSubstr("sesame"))));
  EXPECT_THAT(log.lines, testing::SizeIs(2));
  for (const auto* const bad : {"http://me:sesame@[broken/f?sesame", "sesame", "",
                                "ftp://me:sesame@host/f?sesame", "s3://bucket/sesame"})
    EXPECT_THAT(why_not_opened({{{bad}}}), Not(HasSubstr("me:sesame")));
  EXPECT_EQ(why_not_opened({{{"file:///etc/passwd?sesame"}}}),
            "cannot open file:///etc/passwd: its scheme is file, accepted: http and https");
  EXPECT_EQ(why_not_opened({{{"http://me:sesame@[broken/f?sesame"}}}),
            "a URL that cannot be parsed, accepted: https://host/file or http://host/file");
}

TEST_F(ranges, a_reader_that_cannot_work_is_refused) {
  const auto url = server.url();
  const auto refused = [&](const std::function<void(range_reader_config&)>& change) {
    auto setup = quick();
    change(setup);
    return why_not_opened({{{url}}}, setup);
  };
  EXPECT_EQ(refused([](auto& c) { c.beside = 0; }), "beside = 0, accepted: 1..256");
  EXPECT_EQ(refused([](auto& c) { c.limits.tries = 0; }), "tries = 0, accepted: 1..100");
  EXPECT_EQ(refused([](auto& c) { c.limits.stall = 0ms; }),
            "a limit of 0 ms, accepted: 1..86400000");
  EXPECT_EQ(refused([](auto& c) { c.limits.most_pause = -1ms; }),
            "a pause of -1 ms, accepted: 0..86400000");
  EXPECT_EQ(why_not_opened({}), "0 sources, accepted: 1..8");
  EXPECT_EQ(why_not_opened({{}}), "no files, accepted: one file or more");
  EXPECT_EQ(why_not_opened({{{url}}, {{url, url}}}),
            "a source of 2 files beside one of 1, accepted: the same files in the same order");
  auto reader = open();
  const file_extent beyond{0, file.bytes.size() - 5, 6};
  EXPECT_THAT(reader.add(together, {}, std::span(&beyond, 1))->message,
              HasSubstr("6 bytes of " + url + ", accepted: 1 or more of its 6176"));
}

TEST_F(ranges, many_files_are_opened_and_read) {
  server.answer([&](const http_request& of) {
    for (int f = 0; f < 20; ++f)
      if (of.has("GET /" + std::to_string(f) + " "))
        return range_reply(std::string(1000 + static_cast<std::size_t>(f), static_cast<char>(f)),
                           of);
    return status_reply("404 Not Found");
  });
  http_source source;
  for (int f = 0; f < 20; ++f) source.urls.push_back(server.url("/" + std::to_string(f)));
  auto reader = range_reader::open(reader_file::shape(), {source}).value();
  // The first two would follow one another in one file.
  const std::array<file_extent, 3> places{file_extent{17, 5, 20}, file_extent{3, 0, 5},
                                          file_extent{17, 1000, 17}};
  ASSERT_FALSE(reader.add(together, {}, places));
  std::array<std::vector<std::byte>, 3> to;
  std::array<tensor_part, 3> parts;
  for (std::size_t t = 0; t < 3; ++t) {
    to[t].resize(places[t].bytes);
    parts[t] = {t, 0, to[t]};
  }
  ASSERT_TRUE(reader.read_all(together, {}, parts)) << reader.problem();
  for (std::size_t t = 0; t < 3; ++t)
    EXPECT_THAT(to[t], testing::Each(static_cast<std::byte>(places[t].file)));
  EXPECT_TRUE(reader.read(together, {}, 0, 20, {})) << "no bytes";
}

TEST_F(ranges, a_failed_read_keeps_nothing_in_a_tier) {
  const auto disk = open();
  using tier_type = host_tier<range_reader, pager<lru>>;
  const auto tier =
      tier_type::create(
          reader_file::shape(),
          pager<lru>(
              {.layout = pool_layout::shared(host_tier_shape(reader_file::shape()), 4).value()}),
          disk, reader_file::layouts())
          .value();
  const auto reads_through = [&] {
    guarded_parts parts;
    parts.add_all();
    const bool done = tier->read_all(apart, {}, parts.parts());
    EXPECT_EQ(parts.hold(apart), done);
    return done;
  };
  answer_once(
      [&](const http_request& of) { return range_reply(file.bytes, of, "ETag: \"2\"\r\n"); });
  EXPECT_FALSE(reads_through());
  EXPECT_EQ(tier->stats().failed_fills, 1U);
  server.forget_requests();
  EXPECT_TRUE(reads_through());
  EXPECT_TRUE(reads_through());
  EXPECT_EQ(server.requests().size(), 3U);
  EXPECT_EQ(tier->stats().hits, 1U);
}

TEST(content_range, reads_its_numbers_and_nothing_else) {
  const auto right = content_range::read("bytes 5-9/10");
  EXPECT_TRUE(right.valid);
  EXPECT_EQ(right.first, 5U);
  EXPECT_EQ(right.last, 9U);
  EXPECT_EQ(right.total, 10U);
  for (const auto* const bad :
       {"", "bytes", "bytes 5-9/*", "bytes */10", "bytes 5-9/10 ", "bytes -9/10", "bytes 5-/10",
        "bytes 5-10/10", "items 5-9/10", "bytes 5-9/99999999999999999999", "bytes 5-9"})
    EXPECT_FALSE(content_range::read(bad).valid) << bad;
}

}  // namespace
}  // namespace hotset::range_reader_test
