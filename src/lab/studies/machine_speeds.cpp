// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/machine_speeds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "hotset/core/numbers/units.hpp"

namespace hotset::lab {
namespace {

constexpr std::array<graphics_card, 12> cards = {{{"rtx3060", 12, 360, 25.5},
                                                  {"rtx3090", 24, 936, 71},
                                                  {"rtx4060ti", 16, 288, 44.1},
                                                  {"rtx4090", 24, 1008, 165.2},
                                                  {"rtx5060ti", 16, 448, 47.4},
                                                  {"rtx5070ti", 16, 896, 87.9},
                                                  {"rtx5080", 16, 960, 112.6},
                                                  {"rtx5090", 32, 1792, 209.5},
                                                  {"a6000", 48, 768, 154.8},
                                                  {"l40s", 48, 864, 362},
                                                  {"a100", 80, 2039, 312},
                                                  {"h100", 80, 3350, 989}}};

/// Seconds of the fastest of `rounds` runs.
double fastest(int rounds, const std::function<void()>& run) {
  auto least = std::chrono::duration<double>::max();
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    least =
        std::min<std::chrono::duration<double>>(least, std::chrono::steady_clock::now() - start);
  }
  return least.count();
}
/// Runs work(thread) on `threads` threads.
void on_all(std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::vector<std::jthread> pool;
  for (std::size_t t = 0; t < threads; ++t) pool.emplace_back(work, t);
}

double read_memory(std::size_t threads) {
  const std::vector<std::uint64_t> words(512_MiB / sizeof(std::uint64_t), 1);
  std::vector<std::uint64_t> sums(threads);
  const auto share = words.size() / threads;
  const auto seconds = fastest(4, [&] {
    on_all(threads, [&](std::size_t t) {
      const auto begin = words.begin() + static_cast<std::ptrdiff_t>(t * share);
      sums[t] = std::reduce(begin, begin + static_cast<std::ptrdiff_t>(share));
    });
  });
  return static_cast<double>(std::reduce(sums.begin(), sums.end()) * sizeof(std::uint64_t)) /
         seconds;
}

/// Reads up to 1 GiB without the page cache, four requests of 4 MiB at a time.
std::optional<double> read_disk(const std::filesystem::path& file) {
  std::error_code ignored;
  const auto size = std::filesystem::file_size(file, ignored);
  if (ignored || size < 64_MiB) return std::nullopt;
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  constexpr std::size_t block = 4_MiB;
  constexpr std::size_t readers = 4;
  const auto blocks = std::min<std::size_t>(size, 1_GiB) / block;
  std::array<std::uint64_t, readers> got{};
  const auto seconds = fastest(1, [&] {
    on_all(readers, [&](std::size_t t) {
      const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, block),
                                                               &std::free);
      for (auto b = t; b < blocks; b += readers)
        got[t] += static_cast<std::uint64_t>(std::max<ssize_t>(
            0, ::pread(descriptor, memory.get(), block, static_cast<off_t>(b * block))));
    });
  });
  ::close(descriptor);
  const auto bytes = std::reduce(got.begin(), got.end());
  return bytes == 0 ? std::nullopt : std::optional(static_cast<double>(bytes) / seconds);
}

}  // namespace

std::span<const graphics_card> graphics_cards() noexcept { return cards; }

measured_speeds measure_speeds(const std::filesystem::path& file) {
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  return {.host_bandwidth = read_memory(threads), .disk_bandwidth = read_disk(file)};
}

}  // namespace hotset::lab
