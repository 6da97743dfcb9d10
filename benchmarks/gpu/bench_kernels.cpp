// SPDX-License-Identifier: Apache-2.0
// Kernels: fused rerouting compared with separate operators, and the mirror of a visit.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "harness.hpp"
#include "hotset/adapters/expert_redirect.hpp"
#include "hotset/cuda/maps/mirror_kernel.hpp"
#include "hotset/cuda/maps/reroute_kernel.hpp"
#include "random_source.hpp"
#include "reroute_operators.hpp"

namespace {

using namespace hotset;
using namespace hotset::gpu_bench;

/// Top-k of a router that chooses uniformly among all experts.
std::vector<expert_id> routed_ids(support::random_source& random, std::int32_t tokens,
                                  std::int32_t top_k, std::int32_t experts) {
  std::vector<expert_id> ids;
  std::vector<expert_id> all(static_cast<std::size_t>(experts));
  std::iota(all.begin(), all.end(), expert_id{0});
  for (std::int32_t t = 0; t < tokens; ++t)
    for (std::int32_t k = 0; k < top_k; ++k) {
      const auto at = static_cast<std::size_t>(k + random.id_below(experts - k));
      std::swap(all[static_cast<std::size_t>(k)], all[at]);
      ids.push_back(all[static_cast<std::size_t>(k)]);
    }
  return ids;
}

/// Time of one call in a long sequence. Units: microseconds.
template <class Launch>
double microseconds_each(const timed_stream& stream, int calls, Launch launch) {
  const auto cost = stream.time([&] {
    for (int i = 0; i < calls; ++i) HOTSET_REQUIRE(launch());
  });
  return cost.on_device / calls * 1e6;
}

}  // namespace

HOTSET_BENCH(reroute) {
  // ExpertWeave's shape: 64 experts, top 6, ten adapters of up to 13 experts.
  constexpr std::int32_t experts = 64;
  constexpr std::int32_t top_k = 6;
  constexpr std::int32_t adapters = 10;
  support::random_source random(1);
  auto map = *expert_redirect::create({experts, adapters, 13});
  for (std::int32_t a = 0; a < adapters; ++a) {
    std::vector<expert_id> tuned = routed_ids(random, 1, 13, experts);
    (void)map.assign(a, tuned);
  }
  const auto rows = upload(std::vector<expert_id>(map.rows().begin(), map.rows().end()));
  const timed_stream stream;
  const int calls = out.quick() ? 50 : 500;
  for (const std::int32_t tokens : {1, 32, 256, 1024, 4096}) {
    std::vector<std::int32_t> adapter_of_token;
    for (std::int32_t t = 0; t < tokens; ++t)
      adapter_of_token.push_back(random.id_below(adapters + 1) - 1);
    const auto ids = upload(routed_ids(random, tokens, top_k, experts));
    const auto of_token = upload(adapter_of_token);
    const auto result = memory::on_device(static_cast<std::size_t>(tokens * top_k) * 4);
    cuda::reroute_arguments a{{rows.as<expert_id>(), adapters, experts},
                              ids.as<expert_id>(),
                              of_token.as<std::int32_t>(),
                              tokens,
                              top_k,
                              result.as<expert_id>()};
    const auto workspace = memory::on_device(benchmark_peers::reroute_operators_workspace(a));
    const auto end = "/tokens:" + std::to_string(tokens);
    compare(out, "us",
            {{"reroute/fused" + end,
              [&] {
                return microseconds_each(stream, calls,
                                         [&] { return cuda::launch_reroute(a, stream.handle()); });
              }},
             {"reroute/operators" + end, [&] {
                return microseconds_each(stream, calls, [&] {
                  return benchmark_peers::launch_reroute_operators(a, workspace.data(),
                                                                   stream.handle());
                });
              }}});
  }
}

HOTSET_BENCH(mirror) {
  struct shape {
    std::int32_t experts;
    std::int32_t top_k;
  };
  support::random_source random(2);
  const timed_stream stream;
  const int calls = out.quick() ? 50 : 500;
  for (const auto [experts, top_k] : {shape{64, 8}, shape{128, 8}, shape{512, 10}})
    for (const std::int32_t tokens : {1, 8, 32, 256, 1024, 4096})
      for (const std::int32_t resident_percent : {100, 50}) {
        std::vector<slot_id> slots_of_row;
        for (const auto s : each<slot_id>(experts))
          slots_of_row.push_back(random.id_below(100) < resident_percent ? s : no_slot);
        const auto count = static_cast<std::size_t>(tokens * top_k);
        const auto ids = upload(routed_ids(random, tokens, top_k, experts));
        const auto row = upload(slots_of_row);
        const auto slots = memory::on_device(count * sizeof(slot_id));
        const auto missing = memory::on_device(count * sizeof(expert_id));
        const auto counts = memory::on_device(sizeof(cuda::mirror_counts));
        const cuda::mirror_arguments a{ids.as<expert_id>(),
                                       static_cast<std::int64_t>(count),
                                       row.as<slot_id>(),
                                       experts,
                                       slots.as<slot_id>(),
                                       missing.as<expert_id>(),
                                       counts.as<cuda::mirror_counts>()};
        compare(out, "us",
                {{"mirror/experts:" + std::to_string(experts) + "/tokens:" +
                      std::to_string(tokens) + "/resident:" + std::to_string(resident_percent),
                  [&] {
                    return microseconds_each(
                        stream, calls, [&] { return cuda::launch_mirror(a, stream.handle()); });
                  }}});
      }
}
