// SPDX-License-Identifier: Apache-2.0
// Floor of every fill: plain copies from page-locked memory, piece by piece, and batches of them.
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "harness.hpp"

namespace {

using namespace hotset;
using namespace hotset::gpu_bench;

// Sizes from small experts to Mixtral's. Units: bytes.
constexpr std::size_t pieces[] = {500'000, 900'000, 4'500'000, 9'400'000, 17'000'000};
constexpr std::size_t host_bytes = std::size_t{512} << 20U;
constexpr std::size_t alignment = 256;

/// The pieces of one sample, consecutive on both sides.
struct piece_list {
  piece_list(std::size_t piece, std::size_t count, std::byte* device, const std::byte* host) {
    const auto stride = (piece + alignment - 1) / alignment * alignment;
    for (std::size_t i = 0; i < count; ++i) {
      to.push_back(device + i * stride);
      from.push_back(host + i * stride);
      bytes.push_back(piece);
    }
  }
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;
};

}  // namespace

HOTSET_BENCH(copies) {
  auto& api = cuda::system_runtime();
  const auto host = memory::page_locked(host_bytes);
  const auto device = memory::on_device(host_bytes);
  const timed_stream stream;
  for (std::size_t at = 0; at < host_bytes; at += 4096) host.data()[at] = std::byte{1};
  if (!api.has_copy_batch()) out.leave_out("copies/batch", "this runtime or driver has none");

  for (const std::size_t piece : pieces) {
    const auto most = host_bytes / (piece + alignment);
    const auto count = out.quick() ? std::min<std::size_t>(most, 16) : most;
    const piece_list list(piece, count, device.data(), host.data());
    const auto total = static_cast<double>(piece) * static_cast<double>(count);
    const auto gigabytes_per_second = [&](const auto& enqueue) {
      return total / stream.time(enqueue).on_device * 1e-9;
    };
    std::vector<rival> rivals;
    const auto end = "/piece:" + std::to_string(piece);
    rivals.push_back(
        {"copies/plain" + end, [&] {
           return gigabytes_per_second([&] {
             for (std::size_t i = 0; i < count; ++i)
               HOTSET_REQUIRE(api.copy({list.to[i], list.from[i], list.bytes[i]}, stream.handle()));
           });
         }});
    for (const std::size_t in_batch : {std::size_t{4}, std::size_t{8}, std::size_t{16}}) {
      if (!api.has_copy_batch()) break;
      rivals.push_back({"copies/batch:" + std::to_string(in_batch) + end, [&, in_batch] {
                          return gigabytes_per_second([&] {
                            for (std::size_t i = 0; i < count; i += in_batch) {
                              const auto n = std::min(in_batch, count - i);
                              HOTSET_REQUIRE(api.copy_batch(std::span(list.to).subspan(i, n),
                                                            std::span(list.from).subspan(i, n),
                                                            std::span(list.bytes).subspan(i, n),
                                                            stream.handle()));
                            }
                          });
                        }});
    }
    compare(out, "GB/s", rivals);
  }
}

// Host time to submit four misses, a visit's budget.
HOTSET_BENCH(submit) {
  auto& api = cuda::system_runtime();
  constexpr std::size_t piece = 500'000;
  constexpr std::size_t count = 4;
  const auto host = memory::page_locked((piece + alignment) * count);
  const auto device = memory::on_device((piece + alignment) * count);
  const timed_stream stream;
  const piece_list list(piece, count, device.data(), host.data());
  const auto repeats = out.quick() ? 20 : 200;
  const auto microseconds = [&](const auto& submit) {
    double total = 0;
    for (int i = 0; i < repeats; ++i) total += stream.time(submit).on_host;
    return total / repeats * 1e6;
  };
  std::vector<rival> rivals;
  rivals.push_back(
      {"submit/plain/copies:4", [&] {
         return microseconds([&] {
           for (std::size_t i = 0; i < count; ++i)
             HOTSET_REQUIRE(api.copy({list.to[i], list.from[i], list.bytes[i]}, stream.handle()));
         });
       }});
  if (api.has_copy_batch())
    rivals.push_back({"submit/batch/copies:4", [&] {
                        return microseconds([&] {
                          HOTSET_REQUIRE(
                              api.copy_batch(list.to, list.from, list.bytes, stream.handle()));
                        });
                      }});
  compare(out, "us", rivals);
}
