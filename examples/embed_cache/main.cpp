// SPDX-License-Identifier: Apache-2.0
// Experts in host memory, slots for a third of them, a copying thread, and the loop that serves visits.
#include <cstdio>
#include <vector>

#include "hotset/cache/host_cache.hpp"
#include "hotset/eviction/similar_steps.hpp"

int main() {
  const hotset::geometry shape{
      .layers = 4, .experts = 16, .top_k = 2, .max_tokens_per_visit = 8, .expert_bytes = {4096}};
  std::vector<std::vector<std::byte>> model;
  for (std::size_t k = 0; k < shape.keys(); ++k) model.emplace_back(4096, std::byte(k));
  const std::vector<std::span<const std::byte>> experts(model.begin(), model.end());
  auto cache = hotset::make_host_cache<hotset::similar_steps>(shape, 5, experts).value();

  std::size_t computed = 0, wrong = 0;
  for (hotset::step_id step = 0; step < 100; ++step)
    for (const auto layer : hotset::each<hotset::layer_id>(shape.layers)) {
      std::vector<hotset::expert_id> ids;  // from a router: eight tokens, two experts each
      for (std::size_t n = 0; n < 16; ++n)
        ids.push_back(hotset::expert_id((step / 10 + n / 2 * (n % 2)) % 16));
      const auto served = cache->serve(
          {.layer = layer, .step = step, .experts = ids}, [&](const hotset::visit_group& group) {
            for (const auto token : group.tokens())
              for (const auto e : group.routed().subspan(token * 2, 2)) {  // computes with them
                const auto bytes = cache->bytes(group.row()[index_of(e)]);
                wrong += bytes[0] == std::byte(shape.index({layer, e})) ? 0U : 1U;
                ++computed;
              }
          });
      if (served != hotset::status::ok) return 1;
    }
  const auto stats = cache->stats();
  std::printf("%zu experts computed, %zu wrong; %.1f %% hits\n", computed, wrong,
              100.0 * double(stats.hits) / double(stats.accesses));
  return wrong == 0 && cache->settle() == hotset::status::ok ? 0 : 1;
}
