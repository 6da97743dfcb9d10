// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters_2_includes.inc"
#include "hotset/adapters/adapter_registry.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "trace_samples.hpp"

namespace {

using hotset::each;
using hotset::expert_id;
using namespace hotset::literals;

constexpr std::int32_t layers = 2;
constexpr std::uint64_t inner = 2;
constexpr std::uint64_t hidden = 3;

/// Every byte of an expert is its number.
void write_adapter(const std::filesystem::path& folder, const hotset::lab::esft_config& config) {
  const hotset::lab::adapter_format format{
      .base = {.layers = layers, .experts = 64, .first_layer = 1},
      .weights = {{{"gate_proj", inner, hidden}, {"up_proj", inner, hidden}},
                  {{"down_proj", hidden, inner}}},
      .dtype = "BF16"};
  std::vector<std::byte> bytes(2 * inner * hidden);
  hotset::lab::write_adapter_checkpoint(
      folder, format, config,
      [&](hotset::layer_id, expert_id expert, const hotset::lab::expert_matrix&) {
        std::ranges::fill(bytes, static_cast<std::byte>(expert));
        return std::span<const std::byte>(bytes);
      });
}

/// Serves the adapter in a folder through layer 1: expert 9 is tuned there and must have the folder's bytes.
std::string served(const std::filesystem::path& folder) {
  using memory_type = hotset::host_virtual_memory;
  auto memory = memory_type::create().value();
  hotset::host_uploader copies;
  auto pool = hotset::page_pool<memory_type>::create(
                  memory, {.page_bytes = memory.granularity(), .most_pages = 64})
                  .value();
  const auto fail = [](const std::string& why) { return why; };
  constexpr std::uint64_t host_bytes = 1 << 10;
  const hotset::layer_id layer = 1_layer;
  std::vector<expert_id> places;
  const auto serve = [&](hotset::id_view<expert_id> row) { places.assign(row.begin(), row.end()); };
#include "adapters_2.inc"
  for (const auto e : each<expert_id>(64)) EXPECT_EQ(places[index_of(e)], e == 9 ? 64_expert : e);
  for (const std::size_t weight : {0U, 1U})
    EXPECT_THAT(adapters->tensor(layer, weight).bytes(64_expert), testing::Each(std::byte{9}));
  EXPECT_EQ(adapters->forget("law"), hotset::adapter_status::ok) << "it was released";
  return "served";
}

TEST(adapters_document, a_folder_is_read_registered_acquired_and_released) {
  const trace_samples::temporary_folder folder;
  write_adapter(folder.path(), {{1, 2}, {{7_expert, 3_expert}, {9_expert}}});
  EXPECT_EQ(served(folder.path()), "served");
}

TEST(adapters_document, an_adapter_without_room_is_reported) {
  const trace_samples::temporary_folder folder;
  std::vector<expert_id> many(13);
  for (const auto e : each<expert_id>(13)) many[index_of(e)] = e;
  write_adapter(folder.path(), {{1, 2}, {many, {9_expert}}});
  EXPECT_EQ(served(folder.path()),
            "adapter law: layer 0: tuned experts = 13, accepted: at most 12");
}

}  // namespace
