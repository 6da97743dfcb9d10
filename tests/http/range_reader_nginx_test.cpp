// SPDX-License-Identifier: Apache-2.0
// range_reader against a real server.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/cache/host_tier.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/http/range_reader.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "nginx_server.hpp"
#include "random_source.hpp"
#include "reader_file.hpp"

namespace hotset::range_reader_nginx_test {
namespace {

using support::guarded_parts;
using support::nginx_server;
using support::reader_file;
using testing::HasSubstr;
using tier_type = host_tier<range_reader, pager<lru>>;

std::unique_ptr<tier_type> tier_of(const range_reader& disk, std::int64_t slots) {
  const auto room = pool_layout::shared(host_tier_shape(reader_file::shape()), slots).value();
  return tier_type::create(reader_file::shape(), pager<lru>({.layout = room}), disk,
                           reader_file::layouts())
      .value();
}
template <class Reader>
bool reads(const Reader& reader, expert_key key) {
  guarded_parts parts;
  parts.add_all();
  if (!reader.read_all(key, {}, parts.parts())) return false;
  EXPECT_TRUE(parts.hold(key));
  return true;
}

class nginx : public testing::Test {
 protected:
  nginx() { ::setenv("no_proxy", "*", 1); }
  void SetUp() override {
    if (!server.is_running()) GTEST_SKIP() << nginx_server::absent;
    write(server, "experts", file.bytes);
  }
  /// Writes a file beside its place and moves it there, as a careful upload does.
  static void write(const nginx_server& to, const std::string& name, const std::string& bytes) {
    const auto path = to.root() / name;
    std::ofstream(path.string() + ".new", std::ios::binary) << bytes;
    std::filesystem::rename(path.string() + ".new", path);
  }
  static result<range_reader> try_open(const std::vector<http_source>& sources,
                                       const std::string& authorities = {}) {
    range_reader_config setup{.beside = 4, .authorities = authorities};
    setup.limits.first_pause = setup.limits.most_pause = std::chrono::milliseconds(1);
    return range_reader::open(reader_file::shape(), sources, setup);
  }
  range_reader open() {
    auto out = try_open({{{server.url("experts")}}}).value();
    file.add_to(out);
    return out;
  }

  reader_file file;
  nginx_server server;
};

// Four threads walk through a tier that holds three experts. A second reader, of the file itself, has the same bytes.
TEST_F(nginx, a_tier_over_it_has_the_bytes_of_the_file) {
  const auto remote = open();
  const auto tier = tier_of(remote, 3);
  auto local =
      file_expert_source::open(reader_file::shape(), {(server.root() / "experts").string()})
          .value();
  file.add_to(local);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      support::random_source random(t);
      for (int n = 0; n < 200; ++n) {
        const auto key = reader_file::shape().key(random.below(11));  // without the absent one
        const auto tensor = random.below(3);
        const auto bytes = reader_file::sizes[tensor];
        const auto at = random.one_in(2) ? 0 : random.below(bytes);
        std::vector<std::byte> one(bytes - at);
        std::vector<std::byte> other(bytes - at);
        EXPECT_TRUE(tier->read(key, {}, tensor, at, one)) << remote.problem();
        EXPECT_TRUE(local.read(key, {}, tensor, at, other));
        EXPECT_EQ(one, other);
        EXPECT_TRUE(!random.one_in(3) || reads(*tier, key));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_GT(tier->stats().hits, 0U);
  EXPECT_GT(tier->stats().evictions, 0U);
}

TEST_F(nginx, a_cache_over_a_tier_serves_its_experts) {
  const auto remote = open();
  const auto tier = tier_of(remote, 5);
  const auto layout = pool_layout::shared(reader_file::shape(), 4).value();
  const auto bank = host_slot_bank::create(layout, reader_file::layouts()).value();
  host_backend<tier_type> backend(*tier, bank, {.threads = 3});
  slot_cache<pager<lru>, host_backend<tier_type>> cache(pager<lru>({.layout = layout}), backend);
  auto visit = cache.make_visit();
  host_stream stream;
  support::random_source random(5);
  for (step_id step = 0; step < 300; ++step) {
    const std::array ids{random.id_below(8), random.id_below(8)};
    const routing_view view{.layer = 0_layer, .step = step, .experts = ids};
    ASSERT_EQ(cache.serve(view, stream, visit,
                          [&](const visit_group& group) {
                            for (std::size_t i = 0; i < group.slots().size(); ++i)
                              ASSERT_TRUE(support::slot_holds(
                                  bank, group.slots()[i], {0_layer, group.plan().experts()[i]}));
                          }),
              status::ok);
  }
}

TEST_F(nginx, a_replaced_file_is_reported_and_nothing_of_it_is_kept) {
  const auto remote = open();
  const auto tier = tier_of(remote, 4);
  EXPECT_TRUE(reads(*tier, {0_layer, 1_expert}));
  // Another size in bytes: the ETag of nginx is the second of the change and the size.
  write(server, "experts", std::string(file.bytes.size() + 1, 'x'));
  EXPECT_FALSE(reads(*tier, {0_layer, 2_expert}));
  EXPECT_EQ(remote.problem(), "cannot read " + server.url("experts") + " at byte " +
                                  std::to_string(file.at({0_layer, 2_expert})[0].offset) +
                                  ": the file has changed since it was opened");
  EXPECT_EQ(tier->stats().failed_fills, 1U);
  EXPECT_TRUE(reads(*tier, {0_layer, 1_expert})) << "it was read before";
  const auto reopened = open();
  std::vector<std::byte> to(96);
  EXPECT_TRUE(reopened.read({0_layer, 2_expert}, {}, 0, 0, to));
  EXPECT_THAT(to, testing::Each(static_cast<std::byte>('x')));
}

TEST_F(nginx, a_removed_file_is_read_from_the_next_source) {
  const nginx_server second;
  write(second, "copy", file.bytes);
  auto reader = try_open({{{server.url("experts")}}, {{second.url("copy")}}}).value();
  file.add_to(reader);
  std::filesystem::remove(server.root() / "experts");
  EXPECT_TRUE(reads(reader, {1_layer, 2_expert}));
}

TEST_F(nginx, without_ranges_it_is_refused) {
  const nginx_server whole("max_ranges 0;");
  write(whole, "experts", file.bytes);
  EXPECT_EQ(try_open({{{whole.url("experts")}}}).error().message,
            "cannot read " + whole.url("experts") +
                " at byte 0: the server ignores ranges and answers 200, accepted: 206");
}

TEST_F(nginx, a_server_that_ends_connections_is_read_all_the_same) {
  const nginx_server strict("keepalive_timeout 0;\nlimit_rate 200k;\noutput_buffers 1 64;");
  write(strict, "experts", file.bytes);
  auto reader = try_open({{{strict.url("experts")}}}).value();
  file.add_to(reader);
  EXPECT_EQ(support::failed_reads(reader, 4, 50), 0) << reader.problem();
}

TEST_F(nginx, certificates_are_checked_and_https_is_never_left) {
  const support::temporary_folder keys;
  const auto key = keys.file("key.pem");
  const auto certificate = keys.file("certificate.pem");
  const auto make =
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
      "subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + certificate + " 2>/dev/null";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no openssl program on this machine";
  const auto redirect = "location /away { return 302 " + server.url("experts") + "; }";
  const nginx_server secure(
      "ssl_certificate " + certificate + ";\nssl_certificate_key " + key + ";\n" + redirect,
      " ssl");
  ASSERT_TRUE(secure.is_running());
  write(secure, "experts", file.bytes);
  const auto url = secure.url("experts", "https");
  EXPECT_EQ(try_open({{{url}}}).error().message,
            "cannot read " + url + " at byte 0: SSL peer certificate or SSH remote key was not OK");
  auto reader = try_open({{{url}}}, certificate).value();
  file.add_to(reader);
  EXPECT_TRUE(reads(reader, {1_layer, 2_expert}));
  EXPECT_THAT(try_open({{{secure.url("away", "https")}}}, certificate).error().message,
              HasSubstr("Unsupported protocol"));
  EXPECT_THAT(try_open({{{url}}}, keys.file("absent.pem")).error().message, HasSubstr("SSL"));
}

}  // namespace
}  // namespace hotset::range_reader_nginx_test
