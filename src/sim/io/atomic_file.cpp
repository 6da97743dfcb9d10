// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/io/atomic_file.hpp"

#include "hotset/sim/io/input_error.hpp"
#include "hotset/trace/native_trace_writer.hpp"

namespace hotset::inline v0::sim {

atomic_file::atomic_file(const std::filesystem::path& path)
    : file_(std::make_unique<detail::replacing_file>(path.string())) {
  if (const auto problem = file_->problem()) throw trace_error(printable(problem->message, 4096));
}
atomic_file::~atomic_file() = default;
atomic_file::atomic_file(atomic_file&&) noexcept = default;
atomic_file& atomic_file::operator=(atomic_file&&) noexcept = default;

void atomic_file::write(std::string_view text) { file_->write(text.data(), text.size()); }

void atomic_file::commit() {
  if (const auto problem = file_->finish()) throw trace_error(printable(problem->message, 4096));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  atomic_file file(path);
  file.write(text);
  file.commit();
}

}  // namespace hotset::inline v0::sim
