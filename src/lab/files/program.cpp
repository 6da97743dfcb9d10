// SPDX-License-Identifier: Apache-2.0
#include "lab/files/program.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "lab/files/output_file.hpp"

namespace hotset::lab {
namespace {

/// Stores the path of one file. A signal handler may read it at any time.
struct entry {
  enum class state : int { unused, listed, taken };
  std::atomic<state> now{state::unused};
  std::array<char, PATH_MAX> path{};

  bool change(state from, state to) noexcept { return now.compare_exchange_strong(from, to); }
};

std::array<entry, 16> entries;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

class file_list final : public unfinished_files {
 public:
  /// Ignores paths longer than PATH_MAX: no system call creates them. With more files than entries, a signal does not
  /// remove the rest.
  void* begins(const char* path) noexcept override {
    if (std::strlen(path) >= PATH_MAX) return nullptr;
    for (auto& one : entries) {
      if (!one.change(entry::state::unused, entry::state::taken)) continue;
      std::strcpy(one.path.data(), path);  // length checked above
      one.now.store(entry::state::listed, std::memory_order_release);
      return &one;
    }
    return nullptr;
  }
  void ends(void* listed) noexcept override {
    // On failure a handler has taken the entry, and the program is ending.
    (void)static_cast<entry*>(listed)->change(entry::state::listed, entry::state::unused);
  }
  /// Async-signal-safe.
  void remove_all() noexcept {
    for (auto& one : entries)
      if (one.change(entry::state::listed, entry::state::taken)) ::unlink(one.path.data());
  }
};

file_list unfinished;                 // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> line_shown{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<entry::state>::is_always_lock_free);

constexpr std::string_view clear_line = "\r\033[K";

void end_by(int signal) {
  unfinished.remove_all();
  if (line_shown.load()) (void)!::write(STDERR_FILENO, clear_line.data(), clear_line.size());
  // Raises the signal again with the default action, so that a shell sees it once this handler returns.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void handle(int signal) {
  struct sigaction action {};
  if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = end_by;
  ::sigfillset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

/// Fills a closed standard descriptor with /dev/null opened for the wrong direction, so that every use fails.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): as in open and fcntl
void refuse_if_closed(int descriptor, int flags) {
  if (::fcntl(descriptor, F_GETFD) >= 0) return;
  const int made = ::open("/dev/null", flags);
  if (made < 0 || made == descriptor) return;
  ::dup2(made, descriptor);
  ::close(made);
}

}  // namespace

void end_cleanly_at_signals() {
  refuse_if_closed(STDIN_FILENO, O_WRONLY);
  refuse_if_closed(STDOUT_FILENO, O_RDONLY);
  refuse_if_closed(STDERR_FILENO, O_RDONLY);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU}) handle(signal);
}

unfinished_files& files_of_program() noexcept { return unfinished; }

void show_line_to_clear(bool shown) noexcept { line_shown = shown; }

void print(std::string_view text) { output_file("-").finish(text); }

void flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  if (errno == EPIPE) throw closed_pipe{};
  throw std::runtime_error(std::string("standard output: cannot be written: ") +
                           (errno == 0 ? "an earlier write failed" : std::strerror(errno)));
}

std::filesystem::path input_path(const std::filesystem::path& given) {
  return given == "-" ? std::filesystem::path("/dev/stdin") : given;
}

}  // namespace hotset::lab
