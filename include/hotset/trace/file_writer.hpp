// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes to a path safely: a regular file appears complete or not at all; anything else is written directly.
///
/// Rule: if the path names a regular file or nothing, bytes go to an unfinished file beside it, which takes its place
///   when it is complete. Links are followed: they stay, and their target is written. The earlier file's mode and
///   owner are kept, and it must be writable. Devices, FIFOs and sockets are not replaced and get the bytes as they
///   come. So does a descriptor of this process that a path names, such as /dev/stdout.

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hotset/core/error.hpp"

namespace hotset {

/// Notified of each unfinished file, so that a program can remove it when a signal ends the program.
class unfinished_files {
 public:
  virtual ~unfinished_files() = default;
  /// Called before the file is created. Returns the argument of ends().
  virtual void* begins(const char* path) noexcept = 0;
  /// Called after the file got its name, or was removed.
  virtual void ends(void* entry) noexcept = 0;
};

namespace detail {

/// Returns the descriptor of this process that a path such as /proc/self/fd/1 names, or -1.
[[nodiscard]] inline int own_descriptor(const std::filesystem::path& path) {
  const auto digits = path.filename().string();
  const auto* const end = digits.data() + digits.size();
  unsigned number = 0;
  const auto [rest, wrong] = std::from_chars(digits.data(), end, number);
  if (wrong != std::errc{} || rest != end) return -1;
  std::error_code bad;
  const auto own = std::filesystem::canonical("/proc/self/fd", bad);
  if (bad || std::filesystem::canonical(path.parent_path(), bad) != own || bad) return -1;
  return static_cast<int>(number);
}

/// Follows the links of a path. If they lead to a descriptor of this process, writes its number. Returns errno, or 0.
[[nodiscard]] inline int follow_links(std::filesystem::path& path, int& number) {
  for (int links = 0; links < 40; ++links) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) return errno == ENOENT ? 0 : errno;
    if (!S_ISLNK(facts.st_mode)) return 0;
    number = own_descriptor(path);
    if (number >= 0) return 0;
    std::error_code bad;
    const auto next = std::filesystem::read_symlink(path, bad);
    if (bad) return bad.value();
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return ELOOP;
}

/// Returns the descriptor of this process that a path leads to, such as /dev/stdin, or -1.
[[nodiscard]] inline int descriptor_named(std::filesystem::path path) {
  int number = -1;
  return follow_links(path, number) == 0 ? number : -1;
}

/// Suggested alternative path, or empty.
[[nodiscard]] inline const char* accepted_path(int code) noexcept {
  switch (code) {
    case ENOENT:
    case ENOTDIR: return "a path in a folder that exists";
    case EACCES:
    case EPERM:
    case EROFS: return "a path that may be written to";
    default: return "";
  }
}

}  // namespace detail

/// Errors are kept: problem() and finish() return the first one, with the path as it was given.
class file_writer {
 public:
  /// Opening a FIFO waits for its reader. `watch` must outlive the writer.
  explicit file_writer(std::string path, unfinished_files* watch = nullptr)
      : name_(std::move(path)), watch_(watch) {
    open();
  }
  /// Writes through a descriptor of this process, such as that of standard output; `name` is for messages.
  file_writer(int descriptor, std::string name) : name_(std::move(name)) { share(descriptor); }
  /// Without finish(), removes the unfinished file; an earlier file is unchanged.
  ~file_writer() { abandon(); }
  file_writer(const file_writer&) = delete;
  file_writer& operator=(const file_writer&) = delete;

  /// Appends bytes.
  void write(const void* bytes, std::size_t size) {
    wanted_ += size;
    const auto* at = static_cast<const char*>(bytes);
    if (size >= buffer_bytes) {
      flush();
      return put(at, size);
    }
    buffer_.insert(buffer_.end(), at, at + size);
    if (buffer_.size() >= buffer_bytes) flush();
  }
  template <class T>
  void write(std::span<const T> values) {
    write(values.data(), values.size_bytes());
  }
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Writes the buffered bytes now. Not needed before finish().
  void flush() {
    put(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  /// Moves the bytes to the disk: a file that finish() completes then survives a crash of the machine.
  void sync() {
    flush();
    is_synced_ = true;
    if (!code_ && !temporary_.empty() && ::fsync(file_) != 0) fail("cannot be written", errno);
  }
  /// Completes the file. Returns the first error since the start, or nothing if the file is in place. Pre: called
  /// once.
  std::optional<error> finish() {
    flush();
    if (!code_) close_and_rename();
    abandon();
    return problem();
  }

  /// Returns the first error so far, or nothing.
  [[nodiscard]] std::optional<error> problem() const {
    if (!code_) return std::nullopt;
    if (code_ == EISDIR) return error{name_ + ": is a folder; accepted: a file"};
    std::string text = name_ + ": " + what_ + ": " + std::strerror(*code_);
    if (*code_ == ENOSPC || *code_ == EDQUOT || *code_ == EFBIG)
      return refusal(text, ": ", written_, " of ", wanted_, " bytes fitted");
    const std::string_view accepted = detail::accepted_path(*code_);
    return error{accepted.empty() ? text : text + "; accepted: " + std::string(accepted)};
  }
  /// Returns whether the reader of a pipe has gone, which is not the writer's error.
  [[nodiscard]] bool reader_is_gone() const noexcept { return code_ == EPIPE; }
  [[nodiscard]] bool is_terminal() const noexcept { return file_ >= 0 && ::isatty(file_) == 1; }
  /// Returns whether another descriptor leads to the same pipe, device or open file.
  [[nodiscard]] bool leads_to(int descriptor) const noexcept {
    struct stat ours {
    }, other{};
    return file_ >= 0 && temporary_.empty() && ::fstat(file_, &ours) == 0 &&
           ::fstat(descriptor, &other) == 0 && ours.st_dev == other.st_dev &&
           ours.st_ino == other.st_ino;
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 16U;

  void fail(const char* what, int code) {
    if (code_) return;
    what_ = what;
    code_ = code;
  }

  void open() {
    // The system checks the whole path first: it knows which links it does not follow.
    struct stat facts {};
    const bool there = ::stat(name_.c_str(), &facts) == 0;
    if (!there && errno != ENOENT) return fail("cannot be created", errno);
    if (there && S_ISDIR(facts.st_mode)) return fail("cannot be created", EISDIR);
    target_ = name_;
    int number = -1;
    if (const int bad = detail::follow_links(target_, number); bad != 0)
      return fail("cannot be created", bad);
    if (number >= 0) return share(number);
    if (!there) return begin(0666, "cannot be created");
    struct stat found {};
    const bool same = ::stat(target_.c_str(), &found) == 0 && found.st_dev == facts.st_dev &&
                      found.st_ino == facts.st_ino;
    if (same && S_ISREG(facts.st_mode)) return replace(facts);
    if (!same) target_ = name_;  // the link's target has no path
    open_as_it_is();
  }
  void share(int descriptor) {
    file_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    if (file_ < 0) fail("cannot be written", errno);
  }
  void open_as_it_is() {
    do file_ = ::open(target_.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
    while (file_ < 0 && errno == EINTR);
    if (file_ < 0) fail("cannot be opened", errno);
  }
  /// The replacement gets the file's permissions, and never has wider ones.
  void replace(const struct stat& facts) {
    if (::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0)
      return fail("cannot be written", errno);
    begin(0600, "cannot be replaced");
    if (file_ < 0) return;
    struct stat made {};
    if (::fstat(file_, &made) != 0) return fail("cannot be replaced", errno);
    const bool others = made.st_uid != facts.st_uid || made.st_gid != facts.st_gid;
    if (others && ::fchown(file_, facts.st_uid, facts.st_gid) != 0)
      return fail("its owner cannot be kept", errno);
    if (::fchmod(file_, facts.st_mode & 07777U) != 0) return fail("its mode cannot be kept", errno);
  }
  /// Creates the unfinished file.
  void begin(mode_t mode, const char* what) {
    auto number =
        static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
        static_cast<std::uint64_t>(::getpid()) << 40U;
    for (int tries = 0; tries < 100 && file_ < 0; ++tries, ++number) {
      // A name may have the greatest length that the system allows: the suffix must not make it longer.
      const auto shown = target_.filename().string().substr(0, 200);
      temporary_ = (target_.parent_path() / (shown + ".partial" + std::to_string(number))).string();
      entry_ = watch_ == nullptr ? nullptr : watch_->begins(temporary_.c_str());
      // O_EXCL: never opens an existing file
      file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      if (file_ >= 0) return;
      const int code = errno;
      forget();
      if (code != EEXIST && code != EINTR) return fail(what, code);
    }
    fail(what, EEXIST);
  }
  /// The unfinished file no longer exists.
  void forget() {
    temporary_.clear();
    if (entry_ != nullptr) watch_->ends(std::exchange(entry_, nullptr));
  }

  void put(const char* at, std::size_t size) {
    while (size > 0 && !code_) {
      const auto done = ::write(file_, at, size);
      if (done > 0) {
        at += done;
        size -= static_cast<std::size_t>(done);
        written_ += static_cast<std::size_t>(done);
      } else if (done < 0 && errno == EAGAIN) {
        pollfd ready{file_, POLLOUT, 0};
        (void)::poll(&ready, 1, -1);
      } else if (done == 0 || errno != EINTR) {
        fail("cannot be written", done == 0 ? ENOSPC : errno);
      }
    }
  }
  void close_and_rename() {
    if (::close(std::exchange(file_, -1)) != 0 && errno != EINTR)
      return fail("cannot be closed", errno);
    if (temporary_.empty()) return;
    if (::rename(temporary_.c_str(), target_.c_str()) != 0)
      return fail("cannot be put in its place", errno);
    forget();
    if (is_synced_) sync_folder();
  }
  /// Moves the new name to the disk. Not every file system can: what it refuses is no error.
  void sync_folder() const {
    const auto folder =
        target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
    const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return;
    (void)::fsync(opened);
    ::close(opened);
  }
  void abandon() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    if (temporary_.empty()) return;
    ::unlink(temporary_.c_str());
    forget();
  }

  std::string name_;
  unfinished_files* watch_ = nullptr;
  std::filesystem::path target_;
  std::string temporary_;  ///< empty: there is none
  void* entry_ = nullptr;
  int file_ = -1;
  bool is_synced_ = false;  ///< sync() was called
  std::vector<char> buffer_;
  std::uint64_t wanted_ = 0, written_ = 0;
  const char* what_ = "";
  std::optional<int> code_;
};

}  // namespace hotset
