// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by the tests of the paged engine: the model, texts, and backends that fail on purpose.

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/model/kernels.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace paging_samples {

using namespace tiny_moe;
using hotset::cache_scope;
using lru_pager = hotset::pager<hotset::lru>;

inline constexpr std::string_view text =
    "The ledger of the house was kept in two columns: def add(a, b): return a + b; 17 + 25 = 42.";

inline const model& weights() {
  static const model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}

inline std::vector<std::uint8_t> bytes_of(std::string_view words) {
  return {words.begin(), words.end()};
}

inline bool same_bytes(std::span<const float> left, std::span<const float> right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size_bytes()) == 0;
}

/// All logits of one pass over the words, as a new sequence.
inline std::vector<float> logits_of(engine& decoder, std::string_view words) {
  decoder.reset();
  const auto logits = decoder.forward(bytes_of(words));
  return {logits.begin(), logits.end()};
}
inline std::vector<float> logits_of(expert_provider& provider, std::string_view words) {
  engine decoder(weights(), provider);
  return logits_of(decoder, words);
}
inline std::vector<float> resident_logits(std::string_view words) {
  resident_experts experts(weights());
  return logits_of(experts, words);
}

/// Greedy continuation of a request's prompt, in its own KV cache.
inline std::vector<std::uint8_t> greedy(expert_provider& experts, const serving_request& one) {
  engine decoder(weights(), experts, {.max_positions = 256});
  std::vector<std::uint8_t> output;
  auto row = decoder.forward(one.prompt);
  while (output.size() < one.tokens) {
    output.push_back(static_cast<std::uint8_t>(largest(row.last(256))));
    row = decoder.forward({&output.back(), 1});
  }
  return output;
}
/// Greedy continuation with all experts resident. Each prompt is decoded once, up to the requested length.
inline std::vector<std::uint8_t> alone(const serving_request& one) {
  static std::map<std::vector<std::uint8_t>, std::vector<std::uint8_t>> known;
  auto& output = known[one.prompt];
  if (output.size() < one.tokens) {
    resident_experts experts(weights());
    output = greedy(experts, one);
  }
  return {output.begin(), output.begin() + static_cast<std::ptrdiff_t>(one.tokens)};
}

inline const routing_profile& nothing_counted() {
  static const routing_profile none(weights(), {});
  return none;
}

using plain_backend = hotset::host_backend<expert_copies>;

/// Copies, but sometimes reports a failure at the fence.
class refusing_backend : public plain_backend {
 public:
  using plain_backend::plain_backend;
  hotset::status fence(hotset::host_stream& stream, hotset::ticket t) noexcept {
    const bool refuse = period != 0 && ++fences % period < burst;
    return refuse ? hotset::status::fill_failed : plain_backend::fence(stream, t);
  }
  int period = 0;  ///< of every `period` fences...
  int burst = 1;   ///< ... this many are refused
  int fences = 0;
};

/// Reports copies that it does not make.
class idle_backend : public plain_backend {
 public:
  using plain_backend::plain_backend;
  hotset::submission submit(std::span<const hotset::fill> fills, hotset::host_stream&,
                            hotset::urgency) noexcept {
    return {hotset::no_ticket, fills.size()};
  }
};

/// A source whose experts are missing on request, or late. Threads: safe.
class failing_source {
 public:
  explicit failing_source(const expert_copies& inner) : inner_(inner) {}
  [[nodiscard]] std::span<const hotset::tensor_bytes> tensors(
      hotset::expert_key key, hotset::precision_id precision) const noexcept {
    const auto n = ++asked_;
    if (slow_every != 0 && n % slow_every == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if ((failures > 0 && failures-- > 0) || (fail_every != 0 && n % fail_every == 0)) {
      ++failed;
      return {};
    }
    return inner_.tensors(key, precision);
  }
  mutable std::atomic<int> failures{0};  ///< the next n experts are missing
  mutable std::atomic<std::uint64_t> failed{0};
  std::uint64_t fail_every = 0;
  std::uint64_t slow_every = 0;

 private:
  const expert_copies& inner_;
  mutable std::atomic<std::uint64_t> asked_{0};
};

struct failing_source_holder {
  explicit failing_source_holder(const expert_copies& source) : broken(source) {}
  failing_source broken;
};

/// Copies of a failing source. `late`: the result of a copy is visible only after a kernel has read it.
class failing_backend : public failing_source_holder, public hotset::host_backend<failing_source> {
 public:
  using base = hotset::host_backend<failing_source>;
  failing_backend(const expert_copies& source, const hotset::host_slot_bank& bank,
                  const base::config& setup)
      : failing_source_holder(source), base(broken, bank, setup) {}

  hotset::submission submit(std::span<const hotset::fill> fills, hotset::host_stream& stream,
                            hotset::urgency when) noexcept {
    const auto sent = base::submit(fills, stream, when);
    (void)base::wait(sent.id);
    last_ = sent.id;
    return sent;
  }
  hotset::ticket record(hotset::host_stream& stream) noexcept {
    read_ = last_;
    return base::record(stream);
  }
  [[nodiscard]] hotset::transfer_state poll(hotset::ticket t) const noexcept {
    return late && t > read_ ? hotset::transfer_state::pending : base::poll(t);
  }
  bool late = false;

 private:
  hotset::ticket last_ = hotset::no_ticket;  ///< that was submitted
  hotset::ticket read_ = hotset::no_ticket;  ///< up to which a kernel has read
};

}  // namespace paging_samples
