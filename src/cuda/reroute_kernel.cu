// SPDX-License-Identifier: Apache-2.0
// One thread for each id applies the rule of adapters/redirect_rows.hpp.
#include "as_error_code.hpp"
#include "hotset/cuda/maps/reroute_kernel.hpp"

namespace hotset::cuda {
namespace {

constexpr std::uint32_t threads_of_block = 256;

__global__ void reroute(reroute_arguments a, std::uint32_t entries) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= entries) return;
  const expert_id id = a.ids[i];
  const std::int32_t adapter = a.adapter_of_token[i / static_cast<std::uint32_t>(a.top_k)];
  if (!is_refused(a.map, id, adapter)) {
    a.out[i] = redirected(a.map, id, adapter);
    return;
  }
  a.out[i] = no_expert;
  static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
  if (a.refused != nullptr) atomicAdd(reinterpret_cast<unsigned long long*>(a.refused), 1ULL);
}

}  // namespace

error_code launch_reroute(const reroute_arguments& arguments, stream_handle stream) noexcept {
  if (const auto bad = check(arguments); bad != error_code::success) return bad;
  auto entries = static_cast<std::uint32_t>(entries_of(arguments));
  if (entries == 0) return error_code::success;
  auto a = arguments;
  void* parameters[] = {&a, &entries};
  const dim3 blocks((entries - 1) / threads_of_block + 1);
  return as_error_code(
      cudaLaunchKernel(reroute, blocks, dim3(threads_of_block), parameters, 0, stream));
}

}  // namespace hotset::cuda
