// SPDX-License-Identifier: Apache-2.0
// A cache in a page: experts in host memory, slots for a third of them, a thread that copies, and the loop that serves visits.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

int main() {
  constexpr std::uint64_t bytes = 4096;  // of an expert, here one tensor
  const hotset::geometry shape{
      .layers = 4, .experts = 16, .top_k = 2, .max_tokens_per_visit = 8, .expert_bytes = {bytes}};
  const auto layout = hotset::pool_layout::per_layer(shape, 5).value();
  const std::vector<hotset::expert_layout> tensors{{{{"weights", bytes}}}};

  // The backend: where experts lie, where their slots are, and who copies.
  auto source = hotset::memory_expert_source::create(shape, tensors).value();
  std::vector<std::byte> model(shape.keys() * bytes);
  for (std::size_t k = 0; k < shape.keys(); ++k) {
    const std::span<const std::byte> weights = std::span(model).subspan(k * bytes, bytes);
    model[k * bytes] = static_cast<std::byte>(k);  // so that a wrong expert is seen
    if (source.add(shape.key(k), std::span(&weights, 1))) return 1;
  }
  auto bank = hotset::host_slot_bank::create(layout, tensors).value();
  hotset::host_backend<hotset::memory_expert_source> backend(source, bank);

  hotset::host_stream
      stream;  // the caller's own thread; an accelerator's backend has its stream here
  hotset::slot_cache cache(hotset::pager<hotset::lfru>({.layout = layout}), backend);
  auto visit = cache.make_visit();

  std::size_t computed = 0, wrong = 0;
  for (hotset::step_id step = 0; step < 100; ++step)
    for (const auto layer : hotset::each<hotset::layer_id>(shape.layers)) {
      std::vector<hotset::expert_id> ids;  // a router's: eight tokens, two experts each
      for (std::size_t token = 0; token < 8; ++token)
        for (const std::size_t rank : {0U, 1U})
          ids.push_back(static_cast<hotset::expert_id>((step / 10 + token * rank) % 16));
      const auto served =
          cache.serve({.layer = layer, .step = step, .experts = ids}, stream, visit,
                      [&](const hotset::visit_group& group) {
                        for (const auto token : group.tokens())
                          for (const auto e : group.routed().subspan(std::size_t{token} * 2, 2)) {
                            const auto slot = group.row()[index_of(e)];
                            const auto expected = static_cast<std::byte>(shape.index({layer, e}));
                            wrong += bank.bytes(slot, 0)[0] == expected ? 0U : 1U;
                            ++computed;
                          }
                      });
      if (served != hotset::status::ok) return 1;
    }
  if (cache.settle() != hotset::status::ok) return 1;

  const auto stats = cache.stats();
  std::printf("%zu experts computed, %zu wrong; %.1f %% hits, %llu of %llu visits in groups\n",
              computed, wrong,
              100.0 * static_cast<double>(stats.hits) / static_cast<double>(stats.accesses),
              static_cast<unsigned long long>(stats.split_visits),
              static_cast<unsigned long long>(stats.visits));
  return wrong == 0 ? 0 : 1;
}
