// SPDX-License-Identifier: Apache-2.0
#include "lab/files/input_files.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/progress.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

/// Recognises xz, zstd, gzip and zip by their first bytes, and tar by the mark after the first header's name.
bool is_packed(std::string_view bytes) noexcept {
  using namespace std::string_view_literals;
  constexpr std::array beginnings{"\xFD\x37\x7A\x58\x5A\x00"sv, "\x28\xB5\x2F\xFD"sv, "\x1F\x8B"sv,
                                  "PK\3\4"sv, "PK\5\6"sv};
  return std::ranges::any_of(beginnings, [&](auto known) { return bytes.starts_with(known); }) ||
         (bytes.size() >= 512 && bytes.substr(257, 5) == "ustar");
}

/// An open archive, or a single compressed file read as an archive of one.
class unpacker {
 public:
  unpacker(std::string file, std::string_view bytes)
      : file_(std::move(file)), progress_(bytes.size()), archive_(archive_read_new()) {
    if (!archive_) refuse("out of memory");
    archive_read_support_filter_gzip(archive_.get());
    archive_read_support_filter_xz(archive_.get());
    archive_read_support_filter_zstd(archive_.get());
    archive_read_support_format_tar(archive_.get());
    archive_read_support_format_zip(archive_.get());
    archive_read_support_format_raw(archive_.get());
    archive_read_support_format_empty(archive_.get());
    if (archive_read_open_memory(archive_.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) fail();
  }

  /// Moves to the next regular file; returns false at the end.
  bool next() {
    archive_entry* entry = nullptr;
    while (true) {
      const int code = archive_read_next_header(archive_.get(), &entry);
      if (code == ARCHIVE_EOF) return false;
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) fail();
      if (single() || archive_entry_filetype(entry) == AE_IFREG) break;
    }
    const char* const path = archive_entry_pathname(entry);
    const auto whole = single() || path == nullptr ? fs::path() : fs::path(path).lexically_normal();
    if (!whole.empty() && !seen_.insert(whole.string()).second)
      refuse_input(file_, printable(whole.string(), 120), "is in the archive twice",
                   "each file once");
    name_ = whole.filename().string();
    return true;
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether the input is a compressed file and no archive. Pre: next() was called.
  [[nodiscard]] bool single() const noexcept {
    return (archive_format(archive_.get()) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_RAW;
  }

  /// Appends up to `most` bytes of the current file. Returns whether it ended.
  bool read(std::string& out, std::uint64_t most) {
    std::array<char, 65536> part;  // NOLINT: filled by the read
    while (most > 0) {
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(most, part.size()));
      const auto got = archive_read_data(archive_.get(), part.data(), wanted);
      if (got < 0) fail();
      progress_.at(static_cast<std::uint64_t>(archive_filter_bytes(archive_.get(), -1)));
      if (got == 0) return true;
      out.append(part.data(), static_cast<std::size_t>(got));
      most -= static_cast<std::uint64_t>(got);
    }
    return false;
  }

 private:
  struct closer {
    void operator()(archive* a) const noexcept { archive_read_free(a); }
  };
  [[noreturn]] void refuse(std::string_view found) const {
    refuse_input(file_, "", found, "an intact .gz, .xz, .zst, tar or zip file");
  }
  [[noreturn]] void fail() const {
    const char* const text = archive_error_string(archive_.get());
    refuse(std::string("cannot be unpacked: ") + (text == nullptr ? "damaged or cut short" : text));
  }

  std::string file_;
  progress progress_;  ///< in packed bytes
  std::unique_ptr<archive, closer> archive_;
  std::string name_;
  std::set<std::string> seen_;  ///< paths of the files so far
};

/// Returns "a.csv" for "a.csv.xz".
std::string unpacked_name(const fs::path& path) {
  const auto last = path.extension();
  const bool packed = last == ".xz" || last == ".zst" || last == ".gz";
  return (packed ? path.stem() : path.filename()).string();
}

class collector {
 public:
  collector(std::string file, std::uint64_t most) : file_(std::move(file)), most_(most) {}

  void add_file(const fs::path& path) {
    const mapped_file map(path);
    if (is_packed(map.text())) return add_packed(path, map.text());
    if (map.text().size() > most_ - bytes_) too_large();
    add(path.filename().string(), std::string(map.text()));
  }
  void add_folder(const fs::path& path) {
    std::error_code ignored;
    for (const auto& one : paths_in(path))
      if (fs::is_regular_file(one, ignored)) add_file(one);
  }
  std::vector<input_entry> take() {
    std::ranges::sort(entries_, {}, &input_entry::name);
    return std::move(entries_);
  }

 private:
  [[noreturn]] void too_large() const {
    refuse_input(file_, "", fmt::format("holds more than {} bytes unpacked", most_),
                 "up to that many");
  }
  void add(std::string name, std::string text) {
    bytes_ += text.size();
    entries_.push_back({std::move(name), std::move(text)});
  }
  void add_packed(const fs::path& path, std::string_view bytes) {
    constexpr std::uint64_t floor = std::uint64_t{2} << 20U;
    constexpr std::uint64_t ratio = 50;
    unpacker packed(path.string(), bytes);
    const auto most = floor + ratio * bytes.size();
    std::uint64_t unpacked = 0;
    while (packed.next()) {
      std::string text;
      const auto left = most_ - bytes_;
      const auto room = std::min(left, most - unpacked);
      if (!packed.read(text, room + 1) || text.size() > room) {
        if (room == left) too_large();
        refuse_input(
            path.string(), "", fmt::format("{} bytes unpack to more than {}", bytes.size(), most),
            fmt::format("{} times its size and {} bytes; or unpack it by hand", ratio, floor));
      }
      unpacked += text.size();
      add(packed.name().empty() ? unpacked_name(path) : packed.name(), std::move(text));
    }
  }

  std::string file_;
  std::uint64_t most_;  ///< bytes
  std::vector<input_entry> entries_;
  std::uint64_t bytes_ = 0;
};

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

}  // namespace

std::vector<fs::path> paths_in(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> out;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (ending.empty() || at->path().extension() == ending) out.push_back(at->path());
  if (code)
    refuse_input(folder.string(), "", "cannot be listed: " + code.message(), "a readable folder");
  std::ranges::sort(out);
  return out;
}

std::vector<input_entry> read_input(const fs::path& path, std::uint64_t most_bytes) {
  collector all(path.string(), most_bytes);
  is_folder(path) ? all.add_folder(path) : all.add_file(path);
  return all.take();
}

namespace {

/// Editors and Excel begin UTF-8 with a byte order mark.
std::string without_mark(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

}  // namespace

std::string read_single_input(const fs::path& path) {
  auto input = read_input(path);
  if (input.size() != 1)
    refuse_input(path.string(), "", fmt::format("holds {} files", input.size()), "one file");
  return without_mark(std::move(input.front().text));
}

input_beginning read_beginning(const fs::path& path, std::size_t bytes) {
  if (is_folder(path)) return {{}, true};
  const mapped_file map(path);
  if (!is_packed(map.text()))
    return {without_mark(std::string(map.text().substr(0, bytes))), false};
  input_beginning out;
  unpacker packed(path.string(), map.text());
  if (packed.next()) packed.read(out.text, bytes);
  out.text = without_mark(std::move(out.text));
  out.collection = !packed.single();
  return out;
}

}  // namespace hotset::lab
