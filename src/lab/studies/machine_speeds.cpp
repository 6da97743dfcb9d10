// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/machine_speeds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "hotset/core/numbers/units.hpp"
#include "hotset/core/text/names.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

constexpr double gen4 = 31.5, gen5 = 63;  // PCIe, 16 lanes
constexpr std::array<graphics_card, 25> cards = {
    {{"rtx3060", 12288, 360, 51, gen4},       {"rtx3080", 10240, 760, 119, gen4},
     {"rtx3090", 24576, 936, 142, gen4},      {"rtx4060ti", 16380, 288, 88, gen4 / 2},
     {"rtx4070", 12282, 504, 117, gen4},      {"rtx4070tisuper", 16376, 672, 176, gen4},
     {"rtx4080", 16376, 717, 195, gen4},      {"rtx4090", 24564, 1008, 330, gen4},
     {"rtx5060ti", 16311, 448, 95, gen5 / 2}, {"rtx5070", 12227, 672, 123, gen5},
     {"rtx5070ti", 16303, 896, 176, gen5},    {"rtx5080", 16303, 960, 225, gen5},
     {"rtx5090", 32607, 1792, 419, gen5},     {"rtxa6000", 49140, 768, 155, gen4},
     {"rtx6000ada", 49140, 960, 364, gen4},   {"rtxpro6000", 97887, 1792, 504, gen5},
     {"rx7900xtx", 24560, 960, 123, gen4},    {"l4", 23034, 300, 121, gen4},
     {"l40s", 46068, 864, 362, gen4},         {"a100-40gb", 40960, 1555, 312, gen4},
     {"a100", 81920, 2039, 312, gen4},        {"h100-pcie", 81559, 2000, 756, gen5},
     {"h100", 81559, 3350, 989, gen5},        {"h200", 143771, 4800, 989, gen5},
     {"mi300x", 196592, 5300, 1307, gen5}}};

/// "NVIDIA GeForce RTX 4090" and "rtx4090" become "4090".
std::string short_name(std::string_view name) {
  std::string out;
  for (const char c : hotset::detail::plain_letters(name))
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out += c;
  for (const std::string_view maker :
       {"nvidia", "amd", "geforce", "radeon", "instinct", "rtx", "rx"})
    if (out.starts_with(maker)) out.erase(0, maker.size());
  return out;
}
/// Whether "24gb" is the memory that the card is sold with, of which its driver reports up to 7 % less.
bool is_memory(std::string_view text, const graphics_card& card) {
  const auto gigabytes = parse_number<std::uint64_t>(text.substr(0, text.find("gb")));
  return text.ends_with("gb") && gigabytes && *gigabytes * 1024 <= card.mebibytes * 107 / 100 &&
         (*gigabytes + 1) * 1024 > card.mebibytes;
}

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

const graphics_card* find_card(std::string_view name) {
  const auto wanted = short_name(name);
  for (const auto& card : cards) {
    const auto known = short_name(card.name);
    if (wanted == known ||
        (wanted.starts_with(known) && is_memory(wanted.substr(known.size()), card)))
      return &card;
  }
  return nullptr;
}

measured_speeds measure_speeds(const std::filesystem::path& file) {
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  return {.host_bandwidth = read_memory(threads), .disk_bandwidth = read_disk(file)};
}

}  // namespace hotset::lab
