// SPDX-License-Identifier: Apache-2.0
#include "weight_mapping.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace hotset_llama_cpp {

namespace {

using byte_range = std::span<const std::byte>;

std::uintptr_t begin_of(byte_range bytes) { return reinterpret_cast<std::uintptr_t>(bytes.data()); }
std::uintptr_t end_of(byte_range bytes) { return begin_of(bytes) + bytes.size(); }

/// Advice is a request: without it the same bytes are read, more slowly.
void advise(std::uintptr_t begin, std::uintptr_t end, int how) noexcept {
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, how);
}
std::uintptr_t page_bytes() { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }
std::uintptr_t page_from(std::uintptr_t at) { return at / page_bytes() * page_bytes(); }
std::uintptr_t page_up_to(std::uintptr_t at) { return page_from(at + page_bytes() - 1); }

}  // namespace

weight_mapping::weight_mapping(const std::vector<std::vector<byte_range>>& experts, bool pages_fit)
    : others_after_(experts.size()) {
  struct of_layer {
    byte_range bytes;
    std::size_t layer = 0;
  };
  std::vector<of_layer> in_order;
  for (std::size_t l = 0; l < experts.size(); ++l)
    for (const auto& bytes : experts[l]) in_order.push_back({bytes, l});
  std::ranges::sort(in_order, {}, [](const of_layer& one) { return begin_of(one.bytes); });
  byte_range file;
  const std::byte* at = nullptr;  // the end of the last experts, or the begin of their file
  const auto others_until = [&](const std::byte* end, std::size_t layer) {
    if (at != end) others_after_[layer].emplace_back(at, static_cast<std::size_t>(end - at));
  };
  std::size_t last = 0;  // layer of the last experts
  for (const auto& [bytes, layer] : in_order) {
    if (begin_of(bytes) >= end_of(file)) {
      others_until(file.data() + file.size(), last);
      const auto mapping = file_mapping_of(bytes.data());
      file = mapping.bytes;
      at = file.data();
      if (file.empty()) continue;
      files_.push_back({file, mapping.offset,
                        pages_fit ? -1 : ::open(mapping.path.c_str(), O_RDONLY | O_CLOEXEC)});
      if (!pages_fit) give_back(file);
      first_.emplace_back(file.data(), static_cast<std::size_t>(bytes.data() - file.data()));
    } else {
      others_until(bytes.data(), last);
    }
    at = bytes.data() + bytes.size();
    last = layer;
  }
  others_until(file.data() + file.size(), last);
}

weight_mapping::~weight_mapping() {
  set_read_ahead(true);
  for (const auto& file : files_)
    if (file.descriptor >= 0) ::close(file.descriptor);
}

void weight_mapping::request_others_after(std::size_t layer) noexcept {
  if (files_.empty()) return;
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  if (std::exchange(faults_, usage.ru_majflt) != usage.ru_majflt)
    visits_left_ = steps_to_request * others_after_.size();
  if (visits_left_ == 0) return;
  --visits_left_;
  for (const auto& bytes : others_after_[layer]) request(bytes);
}

void weight_mapping::set_read_ahead(bool on) noexcept {
  if (std::exchange(reads_ahead_, on) == on) return;
  for (const auto& file : files_)
    advise(begin_of(file.bytes), end_of(file.bytes), on ? MADV_NORMAL : MADV_RANDOM);
  if (on) return;
  visits_left_ = steps_to_request * others_after_.size();
  // Token embeddings are among the first weights: once, but not whenever pages were dropped.
  for (const auto& bytes : std::exchange(first_, {})) request(bytes);
}

void weight_mapping::request(byte_range bytes) const noexcept {
  if (!files_.empty()) advise(page_from(begin_of(bytes)), page_up_to(end_of(bytes)), MADV_WILLNEED);
}

void weight_mapping::give_back(byte_range bytes) const noexcept {
  const auto begin = page_up_to(begin_of(bytes));
  const auto end = page_from(end_of(bytes));
  for (const auto& [all, offset, descriptor] : files_) {
    if (begin >= end || begin < begin_of(all) || end > page_up_to(end_of(all))) continue;
    advise(begin, end, MADV_DONTNEED);
    if (descriptor >= 0)
      (void)::posix_fadvise(descriptor, static_cast<off_t>(begin - begin_of(all) + offset),
                            static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED);
  }
}

file_mapping file_mapping_of(const std::byte* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream in("/proc/self/maps");
  for (std::string line;
       std::getline(in, line);) {  // "<first>-<end> rw-s <offset> <device> <inode> <path>"
    std::istringstream words(line);
    std::string range;
    std::string access;
    std::string offset;
    std::string device;
    std::uint64_t inode = 0;
    if (!(words >> range >> access >> offset >> device >> inode)) continue;
    const auto dash = range.find('-');
    std::uintptr_t first = 0;
    std::uintptr_t end = 0;
    std::from_chars(range.data(), range.data() + dash, first, 16);
    std::from_chars(range.data() + dash + 1, range.data() + range.size(), end, 16);
    if (at < first || at >= end) continue;
    if (access.size() != 4 || access[3] != 's' || inode == 0) return {};
    file_mapping out{.bytes = {address - (at - first), end - first}};
    std::from_chars(offset.data(), offset.data() + offset.size(), out.offset, 16);
    std::getline(words >> std::ws, out.path);
    return out;
  }
  return {};
}

}  // namespace hotset_llama_cpp
