// SPDX-License-Identifier: Apache-2.0
// One block runs the steps of mirror_step, in the order of their emulation in tests/cuda/maps/mirror_kernel_test.cpp.
#include "as_error_code.hpp"
#include "hotset/cuda/maps/mirror_kernel.hpp"

namespace hotset::cuda {
namespace {

constexpr unsigned int whole_warp = 0xffffffffU;
constexpr int most_threads = 1024;

__global__ void __launch_bounds__(most_threads) mirror(mirror_arguments a) {
  extern __shared__ std::uint32_t first[];  // [experts]
  __shared__ std::uint32_t firsts_of_warp[most_threads / mirror_step::warp_size];
  __shared__ std::uint32_t ignored;

  const auto count = static_cast<std::uint32_t>(a.count);
  const auto experts = static_cast<std::uint32_t>(a.experts);
  const std::uint32_t threads = blockDim.x;
  const std::uint32_t thread = threadIdx.x;
  const std::uint32_t warp = thread / mirror_step::warp_size;
  const std::uint32_t lane = thread % mirror_step::warp_size;

  for (std::uint32_t e = thread; e < experts; e += threads) first[e] = mirror_step::nowhere;
  if (thread == 0) ignored = 0;
  __syncthreads();

  bool any_missing = false;
  std::uint32_t ignored_here = 0;
  for (std::uint32_t i = thread; i < count; i += threads) {
    const expert_id id = a.ids[i];
    const auto found = mirror_step::look_up(id, a.row, experts);
    a.slots[i] = found.slot;
    if (found.is_ignored) ++ignored_here;
    if (found.is_missing) {
      atomicMin(&first[index_of(id)], i);
      any_missing = true;
    }
  }
  if (ignored_here != 0) atomicAdd(&ignored, ignored_here);
  any_missing = __syncthreads_or(any_missing) != 0;  // equal for all threads from here on

  std::uint32_t listed = 0;
  for (std::uint32_t begin = 0; any_missing && begin < count; begin += threads) {
    const std::uint32_t i = begin + thread;
    const bool is_first = mirror_step::is_first(a.ids, count, i, first, experts);
    const std::uint32_t firsts = __ballot_sync(whole_warp, is_first);
    if (lane == 0) firsts_of_warp[warp] = static_cast<std::uint32_t>(__popc(firsts));
    __syncthreads();
    const auto sums =
        mirror_step::sum_warps(firsts_of_warp, threads / mirror_step::warp_size, warp);
    const auto in_warp =
        static_cast<std::uint32_t>(__popc(firsts & mirror_step::lanes_before(lane)));
    if (is_first) a.missing[listed + sums.before + in_warp] = a.ids[i];
    listed += sums.all;
    __syncthreads();  // all have read firsts_of_warp before the next round writes it
  }
  if (thread == 0) *a.counts = {listed, ignored};
}

}  // namespace

error_code launch_mirror(const mirror_arguments& arguments, stream_handle stream) noexcept {
  if (const auto bad = check(arguments); bad != error_code::success) return bad;
  mirror_arguments a = arguments;
  void* parameters[] = {&a};
  const dim3 blocks(1);
  const dim3 threads(mirror_threads(a.count, a.experts));
  const std::size_t shared_bytes = static_cast<std::size_t>(a.experts) * sizeof(std::uint32_t);
  return as_error_code(cudaLaunchKernel(mirror, blocks, threads, parameters, shared_bytes, stream));
}

}  // namespace hotset::cuda
