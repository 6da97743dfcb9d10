// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "reroute_operators.hpp"

namespace hotset::benchmark_peers {
namespace {

using cuda::error_code;
using cuda::stream_handle;

constexpr std::uint32_t threads_of_block = 256;

/// This thread's place in the batch. Every kernel here has one thread for each id.
__device__ std::uint32_t place() { return blockIdx.x * blockDim.x + threadIdx.x; }

__device__ void count_one(std::uint64_t* counter) {
  static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
  if (counter != nullptr) atomicAdd(reinterpret_cast<unsigned long long*>(counter), 1ULL);
}

enum kind_of_id : std::int32_t { stays = 0, is_looked_up = 1, is_out_of_range = 2 };

__global__ void broadcast_adapters(const std::int32_t* adapter_of_token, std::uint32_t top_k,
                                   std::uint32_t entries, std::int32_t* adapters) {
  const std::uint32_t i = place();
  if (i < entries) adapters[i] = adapter_of_token[i / top_k];
}

__global__ void mask_ids(const expert_id* ids, const std::int32_t* adapters, redirect_rows map,
                         std::uint32_t entries, std::int32_t* kinds) {
  const std::uint32_t i = place();
  if (i >= entries) return;
  std::int32_t kind = stays;
  if (number(ids[i]) >= 0 && adapters[i] >= 0) kind = is_looked_up;
  if (number(ids[i]) >= map.experts) kind = is_out_of_range;
  if (number(ids[i]) >= 0 && adapters[i] >= map.adapters) kind = is_out_of_range;
  kinds[i] = kind;
}

__global__ void offset_ids(const expert_id* ids, const std::int32_t* adapters,
                           const std::int32_t* kinds, std::int32_t experts, std::uint32_t entries,
                           std::int32_t* offsets) {
  const std::uint32_t i = place();
  if (i < entries)
    offsets[i] = kinds[i] == is_looked_up ? adapters[i] * experts + number(ids[i]) : -1;
}

__global__ void gather_rows(const expert_id* rows, const std::int32_t* offsets,
                            std::uint32_t entries, expert_id* gathered) {
  const std::uint32_t i = place();
  if (i < entries) gathered[i] = offsets[i] < 0 ? no_expert : rows[offsets[i]];
}

__global__ void select_ids(const expert_id* ids, const expert_id* gathered,
                           const std::int32_t* kinds, std::uint32_t entries, expert_id* out,
                           std::uint64_t* refused) {
  const std::uint32_t i = place();
  if (i >= entries) return;
  if (kinds[i] == is_out_of_range) count_one(refused);
  out[i] = kinds[i] == stays ? ids[i] : gathered[i];
}

/// Enqueues a kernel with one thread for each id.
template <class... Parameters>
error_code launch_each(void (*kernel)(Parameters...), std::uint32_t entries, stream_handle stream,
                       Parameters... parameters) noexcept {
  void* addresses[] = {&parameters...};
  const dim3 blocks((entries - 1) / threads_of_block + 1);
  return static_cast<error_code>(
      cudaLaunchKernel(kernel, blocks, dim3(threads_of_block), addresses, std::size_t{0}, stream));
}

}  // namespace

error_code launch_reroute_operators(const cuda::reroute_arguments& a, void* workspace,
                                    stream_handle stream) noexcept {
  if (const auto bad = check(a); bad != error_code::success) return bad;
  const auto entries = static_cast<std::uint32_t>(entries_of(a));
  if (entries == 0) return error_code::success;
  auto* const adapters = static_cast<std::int32_t*>(workspace);
  auto* const kinds = adapters + entries;
  auto* const offsets = kinds + entries;
  auto* const gathered = reinterpret_cast<expert_id*>(offsets + entries);
  using in = const std::int32_t*;
  auto code = launch_each(broadcast_adapters, entries, stream, a.adapter_of_token,
                          static_cast<std::uint32_t>(a.top_k), entries, adapters);
  if (code == error_code::success)
    code = launch_each(mask_ids, entries, stream, a.ids, in{adapters}, a.map, entries, kinds);
  if (code == error_code::success)
    code = launch_each(offset_ids, entries, stream, a.ids, in{adapters}, in{kinds}, a.map.experts,
                       entries, offsets);
  if (code == error_code::success)
    code = launch_each(gather_rows, entries, stream, a.map.rows, in{offsets}, entries, gathered);
  if (code == error_code::success)
    code = launch_each(select_ids, entries, stream, a.ids, static_cast<const expert_id*>(gathered),
                       in{kinds}, entries, a.out, a.refused);
  return code;
}

}  // namespace hotset::benchmark_peers
