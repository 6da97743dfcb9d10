// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A file that appears complete or not at all: written beside its place, then renamed.

#include <filesystem>
#include <memory>
#include <string_view>

namespace hotset::inline v0::detail {
class replacing_file;
}

namespace hotset::inline v0::sim {

/// Without commit() nothing is left behind and an earlier file of that name stays as it was.
class atomic_file {
 public:
  /// Errors: trace_error if the folder cannot be written to.
  explicit atomic_file(const std::filesystem::path& path);
  ~atomic_file();
  atomic_file(atomic_file&&) noexcept;
  atomic_file& operator=(atomic_file&&) noexcept;

  /// Appends. A failure is kept and reported by commit().
  void write(std::string_view text);
  /// Puts the file in its place. Errors: trace_error if anything failed. Pre: called once.
  void commit();

 private:
  std::unique_ptr<detail::replacing_file> file_;
};

/// Writes a whole file in one go. Errors: trace_error; then the earlier file is as it was.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace hotset::inline v0::sim
