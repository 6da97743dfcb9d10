// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Entries of the suite of expert readers: a file, and a tier over another entry.

#include <filesystem>
#include <memory>
#include <string>

#include "hotset/cache/host_tier.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/file_expert_source.hpp"
#include "reader_suite.hpp"
#include "temporary_folder.hpp"

namespace hotset::support {

template <class File>
struct file_reader {
  using reader_type = basic_file_expert_source<File>;
  file_reader() { file.add_to(reader); }
  void fail_reads() const { std::filesystem::resize_file(path, 0); }
  void mend() const { folder.write("experts", file.bytes); }

  reader_file file;
  temporary_folder folder;
  std::string path = folder.write("experts", file.bytes).string();
  reader_type reader =
      reader_type::open(reader_file::shape(), {path}, file_reads::cached, 4).value();
};

/// A tier with room for three experts.
template <class Entry>
struct tier_entry {
  using tier_type = host_tier<typename Entry::reader_type, pager<lru>>;
  void fail_reads() { below.fail_reads(); }
  void mend() { below.mend(); }

  Entry below;
  std::unique_ptr<tier_type> tier =
      tier_type::create(
          reader_file::shape(),
          pager<lru>(
              {.layout = pool_layout::shared(host_tier_shape(reader_file::shape()), 3).value()}),
          below.reader, reader_file::layouts())
          .value();
  tier_type& reader = *tier;
};

}  // namespace hotset::support
