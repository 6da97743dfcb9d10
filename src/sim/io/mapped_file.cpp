// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/io/mapped_file.hpp"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hotset/sim/io/input_error.hpp"

namespace hotset::inline v0::sim {
namespace {

class descriptor {
 public:
  // O_NONBLOCK: opening a pipe by mistake must not wait for its other end.
  explicit descriptor(const std::filesystem::path& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

std::string last_error() { return std::generic_category().message(errno); }

}  // namespace

mapped_file::mapped_file(const std::filesystem::path& path) {
  const descriptor file(path);
  if (file.number() < 0)
    refuse_input(path.string(), "", "cannot be opened: " + last_error(), "a readable file");
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0)
    refuse_input(path.string(), "", "cannot be examined: " + last_error(), "a readable file");
  if (!S_ISREG(facts.st_mode)) refuse_input(path.string(), "", "is no regular file", "a file");
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

}  // namespace hotset::inline v0::sim
