// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Every virtual_memory as an entry of suites: its construction, how a step is made to fail, how a byte is read, and
/// an independent check of what is left.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "failing_memory.hpp"
#include "fake_cuda_driver.hpp"
#include "host_mappings.hpp"
#include "hotset/cuda/virtual_memory.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"

namespace hotset::support {

/// The kernel checks what is left.
struct host_memory_entry {
  using memory_type = failing_memory<host_virtual_memory>;
  memory_type memory{host_virtual_memory::create().value()};

  void fail(std::size_t nth) { memory.fail(nth); }
  [[nodiscard]] bool armed() const { return memory.armed(); }
  static std::size_t mappings() { return memory_file_mappings(); }
  static std::uint64_t physical_bytes() { return memory_file_bytes(); }
  std::uint64_t reserved_bytes() { return memory.behind().reserved_bytes(); }
  static std::vector<std::string> violations() { return {}; }
  static bool has_access(const std::byte* at) { return is_readable(at); }
  static std::byte* touch(std::byte* at) { return has_access(at) ? at : nullptr; }
};

/// A driver without a device checks what is left.
struct cuda_memory_entry {
  using memory_type = cuda::virtual_memory;
  fake_cuda_driver driver;
  memory_type memory = cuda::virtual_memory::create(driver, 0).value();

  void fail(std::size_t nth) {
    driver.disarm();
    if (nth != 0) driver.fail(fake_cuda_driver::call::any, nth);
  }
  [[nodiscard]] bool armed() const { return driver.armed(); }
  [[nodiscard]] std::size_t mappings() const { return count("a mapping"); }
  [[nodiscard]] std::uint64_t physical_bytes() const { return driver.physical_bytes(); }
  [[nodiscard]] std::uint64_t reserved_bytes() const {
    return count("a reservation") == 0 ? 0 : memory.reserved_bytes();
  }
  [[nodiscard]] std::vector<std::string> violations() const { return driver.violations(); }
  bool has_access(const std::byte* at) const { return driver.has_access(at); }
  std::byte* touch(std::byte* at) { return driver.touch(at); }

 private:
  [[nodiscard]] std::size_t count(std::string_view what) const {
    const auto left = driver.leaks();
    return static_cast<std::size_t>(
        std::ranges::count_if(left, [what](const auto& l) { return l.starts_with(what); }));
  }
};

}  // namespace hotset::support
