// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Host versions of the kernels: the reference for the device's, bit for bit, and used by tests without a device.

#include <functional>
#include <utility>

#include "cuda_decode/decoder/decode_kernels.hpp"

namespace cuda_decode {

/// Each function computes its kernel at once. All pointers are host pointers.
namespace on_host {

void begin(const begin_arguments& a) noexcept;
void normalize(const normalize_arguments& a) noexcept;
void gate_up(const expert_arguments& a) noexcept;
void down(const expert_arguments& a) noexcept;
void combine(const combine_arguments& a) noexcept;
void finish(const finish_arguments& a) noexcept;
void mirror(const hotset::cuda::mirror_arguments& a);

}  // namespace on_host

/// Passes each kernel to a function that runs it in its stream, when it chooses.
class host_kernels final : public decode_kernels {
 public:
  using work = std::function<void()>;
  using enqueue_function = std::function<void(stream_handle, work)>;

  explicit host_kernels(enqueue_function enqueue) : enqueue_(std::move(enqueue)) {}

  error_code begin(const begin_arguments& a, stream_handle stream) noexcept override {
    return enqueue(stream, [a] { on_host::begin(a); });
  }
  error_code normalize(const normalize_arguments& a, stream_handle stream) noexcept override {
    return enqueue(stream, [a] { on_host::normalize(a); });
  }
  error_code gate_up(const expert_arguments& a, stream_handle stream) noexcept override {
    return enqueue(stream, [a] { on_host::gate_up(a); });
  }
  error_code down(const expert_arguments& a, stream_handle stream) noexcept override {
    return enqueue(stream, [a] { on_host::down(a); });
  }
  error_code combine(const combine_arguments& a, stream_handle stream) noexcept override {
    return enqueue(stream, [a] { on_host::combine(a); });
  }
  error_code finish(const finish_arguments& a, stream_handle stream) noexcept override {
    return enqueue(stream, [a] { on_host::finish(a); });
  }
  error_code mirror(const hotset::cuda::mirror_arguments& a,
                    stream_handle stream) noexcept override {
    if (const auto bad = hotset::cuda::check(a); bad != error_code::success) return bad;
    return enqueue(stream, [a] { on_host::mirror(a); });
  }

 private:
  error_code enqueue(stream_handle stream, work kernel) {
    enqueue_(stream, std::move(kernel));
    return error_code::success;
  }

  enqueue_function enqueue_;
};

}  // namespace cuda_decode
