// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#if defined(HOTSET_HAS_HTTP)
#include <cstdlib>
#include <filesystem>
#include <string>

#include "fills.hpp"
#include "gguf_samples.hpp"
#include "hotset/cache/host_tier.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/http/range_reader.hpp"
#include "hotset/lab/expert_files.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "loopback_server.hpp"
#include "trace_samples.hpp"

namespace hotset {
namespace {

using tier_type = host_tier<range_reader, pager<lfu>>;

/// Runs in a folder with the headers of a model, whose experts are on two servers.
struct model_on_servers : testing::Test {
  model_on_servers() {
    ::setenv("no_proxy", "*", 1);
    auto made = gguf_samples::model("qwen3moe");
    for (int layer = 0; layer < 2; ++layer) gguf_samples::add_experts(made, layer);
    bytes = made.bytes();
    const auto header = made.header();
    for (std::size_t at = header.size(); at < bytes.size(); ++at)
      bytes[at] = static_cast<char>(at % 251);
    std::filesystem::resize_file(folder.write("model.gguf", header), bytes.size());
    std::filesystem::current_path(folder.path());
  }
  ~model_on_servers() override { std::filesystem::current_path(before); }

  [[nodiscard]] support::loopback_server::answers right() const {
    return [this](const support::http_request& of) { return support::range_reply(bytes, of); };
  }
  /// `before_copies`: called once the tier is there.
  template <class Call>
  std::string copy(const std::string& store, const std::string& peer, Call before_copies) {
    const auto refuse = [](const std::string& reason) { return reason; };
    const log_sink log{};
    const auto wanted = lab::find_experts("model.gguf");
    const auto layout = pool_layout::shared(wanted.shape, 4).value();
    const auto bank = host_slot_bank::create(layout, wanted.layouts).value();
#include "embedding_4.inc"
    before_copies();
    const std::vector<fill> fills{support::fill_of({1_layer, 3_expert}, 0_slot),
                                  support::fill_of({0_layer, 2_expert}, 1_slot)};
    host_stream stream;
    for (int twice = 0; twice < 2; ++twice) {
      const auto sent = backend.submit(fills, stream, urgency::now);
      if (backend.wait(sent.id) != transfer_state::arrived) return remote->problem();
    }
    for (const auto& f : fills)
      for (std::size_t t = 0; t < 3; ++t) {
        const auto from = found.at(f.key)[t].offset;
        const auto copied = bank.bytes(f.slot, t);
        for (std::size_t i = 0; i < copied.size(); ++i)
          if (copied[i] != static_cast<std::byte>((from + i) % 251)) return "a wrong byte";
      }
    return std::to_string((*tier)->stats().hits) + " hits";
  }

  std::string bytes;
  trace_samples::temporary_folder folder;
  std::filesystem::path before = std::filesystem::current_path();
};

TEST_F(model_on_servers, is_read_through_a_tier_also_if_a_server_ends) {
  support::loopback_server store(right());
  support::loopback_server peer(right());
  EXPECT_EQ(copy(store.url(), peer.url(), [] {}), "2 hits");
  EXPECT_EQ(copy(store.url(), peer.url(), [&] { store.stop(); }), "2 hits");
}

TEST_F(model_on_servers, that_cannot_be_opened_is_reported) {
  support::loopback_server none([](const auto&) { return support::status_reply("404 Not Found"); });
  EXPECT_EQ(copy(none.url(), none.url(), [] {}),
            "cannot read " + none.url() + " at byte 0: the server answers 404, accepted: 206");
}

}  // namespace
}  // namespace hotset
#else
TEST(model_on_servers, is_read_through_a_tier) { GTEST_SKIP() << "hotset::http is not built"; }
#endif
