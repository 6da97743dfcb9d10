// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "fills.hpp"
#include "gguf_samples.hpp"
#include "hotset/cache/host_tier.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/lab/expert_files.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "trace_samples.hpp"

namespace hotset {
namespace {

using tier_type = host_tier<file_expert_source, pager<lfu>>;

/// Runs in the folder of a model in three parts.
struct model_on_disk : testing::Test {
  model_on_disk() {
    for (int part = 0; part < 3; ++part) {
      auto made = part == 0 ? gguf_samples::model("qwen3moe") : gguf_samples::file();
      made.number("split.count", 3);
      if (part < 2) gguf_samples::add_experts(made, part);
      auto bytes = made.bytes();
      const auto header = made.header().size();
      for (std::size_t at = header; at < bytes.size(); ++at)
        bytes[at] = static_cast<char>(at % 251);
      folder.write("model-0000" + std::to_string(part + 1) + "-of-00003.gguf", bytes);
    }
    std::filesystem::current_path(folder.path());
  }
  ~model_on_disk() override { std::filesystem::current_path(before); }

  std::string copy() {
    const auto refuse = [](const std::string& reason) { return reason; };
    const auto wanted = lab::find_experts("model-00001-of-00003.gguf");
    const auto layout = pool_layout::shared(wanted.shape, 4).value();
    const auto bank = host_slot_bank::create(layout, wanted.layouts).value();
#include "embedding_3.inc"
    const std::vector<fill> fills{support::fill_of({1_layer, 3_expert}, 0_slot),
                                  support::fill_of({0_layer, 2_expert}, 1_slot)};
    host_stream stream;
    for (int twice = 0; twice < 2; ++twice) {
      const auto sent = backend.submit(fills, stream, urgency::now);
      if (backend.wait(sent.id) != transfer_state::arrived) return disk.problem();
    }
    for (const auto& f : fills)
      for (std::size_t t = 0; t < 3; ++t) {
        const auto from = found.at(f.key)[t].offset;
        const auto bytes = bank.bytes(f.slot, t);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          if (bytes[i] != static_cast<std::byte>((from + i) % 251)) return "a wrong byte";
      }
    return std::to_string((*tier)->stats().hits) + " hits";
  }

  trace_samples::temporary_folder folder;
  std::filesystem::path before = std::filesystem::current_path();
};

TEST_F(model_on_disk, is_read_through_a_tier) {
  try {
    EXPECT_EQ(copy(), "2 hits");
  } catch (const trace_error& e) {
    GTEST_SKIP() << e.what();
  }
}

}  // namespace
}  // namespace hotset
