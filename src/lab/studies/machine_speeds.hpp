// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Speeds of a machine: assumed, of a card by name, or measured here.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace hotset::lab {

/// Units: bytes and operations per second. Defaults: an RTX 3090, two channels of DDR5-5600, eight cores with AVX2,
/// NVMe.
struct machine_speeds {
  double device_bandwidth = 936e9;
  double device_flops = 142e12;
  double host_bandwidth = 89.6e9;
  double host_flops = 1e12;
  double disk_bandwidth = 3e9;
};

/// A graphics card. Memory is what its driver reports; products are FP16 with the faster sums, without sparsity; the
/// link is PCIe's rate for its generation and lanes.
struct graphics_card {
  std::string_view name;
  std::uint64_t mebibytes;
  double gigabytes_per_second, teraflops, link_gigabytes_per_second;
};
[[nodiscard]] std::span<const graphics_card> graphics_cards() noexcept;
/// Finds a card by the names that people write: "RTX 4090", "4090 24GB", "NVIDIA L40S"; nullptr: none.
[[nodiscard]] const graphics_card* find_card(std::string_view name);

/// Speeds of this machine. Units: bytes per second.
struct measured_speeds {
  double host_bandwidth = 0;               ///< reads of memory by all threads
  std::optional<double> disk_bandwidth{};  ///< direct reads of the file
};
/// Takes about a second and 512 MiB of memory. file: of the model, at least 64 MiB; else the disk is not measured.
[[nodiscard]] measured_speeds measure_speeds(const std::filesystem::path& file);

}  // namespace hotset::lab
