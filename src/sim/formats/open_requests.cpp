// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/formats/open_requests.hpp"

#include "hotset/sim/formats/azure_requests.hpp"
#include "hotset/sim/formats/mooncake.hpp"
#include "hotset/sim/io/input_error.hpp"
#include "hotset/sim/io/input_files.hpp"
#include "hotset/sim/io/mapped_file.hpp"
#include "sim/formats/text_scan.hpp"

namespace hotset::sim {

kv_trace open_requests(const std::filesystem::path& path) {
  const kept_streams keep;
  const auto beginning = read_beginning(path, 4096);
  const auto text = trimmed(beginning.text);
  if (!beginning.collection && text.starts_with('{')) return read_mooncake(path);
  if (!beginning.collection && text.starts_with("TIMESTAMP,")) return read_azure_requests(path);
  refuse_input(path.string(), "byte 0", "the format is not recognised",
               "requests as Mooncake's JSON lines or as Azure's CSV");
}

kv_trace open_block_requests(const std::filesystem::path& path) {
  auto kv = open_requests(path);
  if (const auto bad = give_own_blocks(kv)) refuse_input(path.string(), "", bad->message, "");
  return kv;
}

}  // namespace hotset::sim
