// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A machine without a device: runtime, host kernels in its streams, graphs, and experts in page-locked memory.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <vector>

#include "cuda_decode/decoder/host_kernels.hpp"
#include "cuda_decode/model/numbers.hpp"
#include "cuda_decode/model/weights.hpp"
#include "cuda_decode/program/arms.hpp"
#include "fake_cuda_runtime.hpp"
#include "fake_graphs.hpp"

namespace cuda_decode {

/// GoogleTest searches PrintTo in the type's namespace.
inline void PrintTo(number_format format, std::ostream* out) {
  constexpr const char* names[] = {"bf16", "f16", "e4m3", "e2m1"};
  *out << names[static_cast<std::size_t>(format)];
}

using pace = hotset::support::fake_cuda_runtime::pace;

struct fake_machine {
  explicit fake_machine(pace how = pace::late, std::uint64_t seed = 1)
      : api(how, seed),
        graphs(api),
        kernels([this](auto stream, auto work) { graphs.enqueue(stream, std::move(work)); }),
        parts{api, kernels, graphs, 0} {}
  /// The machine with the given kernels.
  [[nodiscard]] device_parts with(decode_kernels& others) { return {api, others, graphs, 0}; }

  hotset::support::fake_cuda_runtime api;
  fake_graphs graphs;
  host_kernels kernels;
  device_parts parts;
};

/// A small shape of a format with its weights and its routing.
struct small_model {
  small_model(fake_machine& machine, model_shape made, std::size_t steps,
              const routing_statistics& statistics = {})
      : shape(std::move(made)),
        pages(machine.api, host_weights::bytes_for(shape)),
        weights(shape, pages),
        routing(synthetic_routing(shape, statistics, steps)) {}

  [[nodiscard]] comparison compare(const device_parts& parts, std::size_t warmup = 0,
                                   routing_known known = routing_known::ahead,
                                   offload_fetch fetch = offload_fetch::routed) const {
    return {parts, shape, weights.source(), pages, routing, warmup, known, fetch};
  }

  model_shape shape;
  hotset::cuda::pinned_memory pages;
  host_weights weights;
  decode_routing routing;
};

inline const std::vector<decode_mode> all_modes = {decode_mode::eager, decode_mode::layer_graphs,
                                                   decode_mode::step_graph};

/// Wraps other kernels; a test changes the arguments of gate_up and the mirror before they are enqueued.
class bent_kernels final : public decode_kernels {
 public:
  using bend = std::function<void(expert_arguments&)>;
  using bend_mirror = std::function<void(hotset::cuda::mirror_arguments&)>;
  bent_kernels(
      decode_kernels& inner, bend change,
      bend_mirror change_mirror = [](hotset::cuda::mirror_arguments&) {})
      : inner_(inner), change_(std::move(change)), change_mirror_(std::move(change_mirror)) {}

  error_code begin(const begin_arguments& a, stream_handle s) noexcept override {
    return inner_.begin(a, s);
  }
  error_code normalize(const normalize_arguments& a, stream_handle s) noexcept override {
    return inner_.normalize(a, s);
  }
  error_code gate_up(const expert_arguments& a, stream_handle s) noexcept override {
    auto bent = a;
    change_(bent);
    return inner_.gate_up(bent, s);
  }
  error_code down(const expert_arguments& a, stream_handle s) noexcept override {
    return inner_.down(a, s);
  }
  error_code combine(const combine_arguments& a, stream_handle s) noexcept override {
    return inner_.combine(a, s);
  }
  error_code finish(const finish_arguments& a, stream_handle s) noexcept override {
    return inner_.finish(a, s);
  }
  error_code mirror(const hotset::cuda::mirror_arguments& a, stream_handle s) noexcept override {
    auto bent = a;
    change_mirror_(bent);
    return inner_.mirror(bent, s);
  }

 private:
  decode_kernels& inner_;
  bend change_;
  bend_mirror change_mirror_;
};

}  // namespace cuda_decode
