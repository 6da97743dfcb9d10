// SPDX-License-Identifier: Apache-2.0
#include "lab/files/mapped_file.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hotset/trace/file_writer.hpp"
#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;
using content = std::shared_ptr<const std::vector<std::byte>>;
using stream_key = std::pair<dev_t, ino_t>;

// Thread-local: a recogniser and a later reader open the same path without sharing an object.
thread_local int keepers = 0;                     // NOLINT
thread_local std::map<stream_key, content> kept;  // NOLINT

std::string last_error() { return std::generic_category().message(errno); }

/// Duplicates the descriptor if the path names one: reading then continues at its position, not at the beginning.
int open_input(const fs::path& path) {
  const int own = path == "/dev/stdin" ? STDIN_FILENO : detail::descriptor_named(path);
  if (own >= 0) return ::fcntl(own, F_DUPFD_CLOEXEC, 3);
  int number = -1;
  do number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  while (number < 0 && errno == EINTR);
  return number;
}

class descriptor {
 public:
  explicit descriptor(const fs::path& path) : number_(open_input(path)) {}
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

/// Whether the file can be mapped: reading has not moved its position. Otherwise only the rest is read.
bool is_whole_file(int number, const struct stat& facts) noexcept {
  return S_ISREG(facts.st_mode) && ::lseek(number, 0, SEEK_CUR) == 0;
}

bool is_stream(int number, const struct stat& facts) noexcept {
  return S_ISREG(facts.st_mode) || S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode) ||
         (S_ISCHR(facts.st_mode) && ::isatty(number) == 1);
}

std::size_t most_of_a_stream() noexcept {
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  const auto size = ::sysconf(_SC_PAGESIZE);
  return static_cast<std::size_t>(std::max(pages, 1L)) * static_cast<std::size_t>(size) / 2;
}

/// Reads up to `count` further bytes; 0 at the end.
std::size_t read_some(int number, std::byte* to, std::size_t count, const fs::path& path) {
  while (true) {
    const auto got = ::read(number, to, count);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN) {
      pollfd ready{number, POLLIN, 0};
      (void)::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      refuse_input(path.string(), "", "cannot be read: " + last_error(), "a readable file");
    }
  }
}

content read_stream(int number, const fs::path& path) {
  const auto most = most_of_a_stream();
  std::vector<std::byte> bytes(std::size_t{1} << 16U);
  std::size_t size = 0;
  while (const auto got = read_some(number, bytes.data() + size, bytes.size() - size, path)) {
    size += got;
    if (size > most)
      refuse_input(path.string(), "", "holds more than " + std::to_string(most) + " bytes",
                   "half of this machine's memory through a pipe; any size as a file");
    if (size == bytes.size()) bytes.resize(2 * size);
  }
  bytes.resize(size);
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

/// Returns the stored bytes of the path, or nullptr. A FIFO without a writer cannot be opened again.
content already_read(const fs::path& path) {
  struct stat facts {};
  if (kept.empty() || ::stat(path.c_str(), &facts) != 0) return nullptr;
  const auto found = kept.find({facts.st_dev, facts.st_ino});
  return found == kept.end() ? nullptr : found->second;
}

content stream_of(int number, const struct stat& facts, const fs::path& path) {
  auto read = read_stream(number, path);
  if (keepers > 0) kept.emplace(stream_key{facts.st_dev, facts.st_ino}, read);
  return read;
}

/// Refuses every device except an empty one, the null device.
void need_empty(int number, const fs::path& path) {
  std::byte first{};
  if (read_some(number, &first, 1, path) > 0)
    refuse_input(path.string(), "", "is a device", "a file or a pipe");
}

}  // namespace

kept_streams::kept_streams() noexcept { ++keepers; }
kept_streams::~kept_streams() {
  if (--keepers == 0) kept.clear();
}

mapped_file::mapped_file(const fs::path& path) : stream_(already_read(path)) {
  if (stream_) return;
  const descriptor file(path);
  if (file.number() < 0)
    refuse_input(path.string(), "", "cannot be opened: " + last_error(), "a readable file");
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0)
    refuse_input(path.string(), "", "cannot be examined: " + last_error(), "a readable file");
  if (!is_whole_file(file.number(), facts)) {
    if (S_ISDIR(facts.st_mode)) refuse_input(path.string(), "", "is a folder", "a file or a pipe");
    if (is_stream(file.number(), facts))
      stream_ = stream_of(file.number(), facts, path);
    else
      need_empty(file.number(), path);
    return;
  }
  if (facts.st_size == 0) return;
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (data == MAP_FAILED)
    refuse_input(path.string(), "", "cannot be mapped: " + last_error(), "a readable file");
  data_ = data;
  size_ = size;
}

mapped_file::~mapped_file() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace hotset::lab
