// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/open_requests.hpp"

#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/mapped_file.hpp"
#include "lab/traces/text_scan.hpp"

namespace hotset::lab {

kv_trace open_requests(const std::filesystem::path& path) {
  const kept_streams keep;
  const auto beginning = read_beginning(path, 4096);
  const auto text = beginning.collection ? std::string_view() : trimmed(beginning.text);
  const auto parse = text.starts_with('{')            ? parse_mooncake
                     : text.starts_with("TIMESTAMP,") ? parse_azure_requests
                                                      : nullptr;
  if (parse == nullptr)
    refuse_input(path.string(), "byte 0", "the format is not recognised",
                 "requests as Mooncake's JSON lines or as Azure's CSV");
  return parse(read_single_input(path), path.string());
}

kv_trace open_block_requests(const std::filesystem::path& path) {
  auto kv = open_requests(path);
  if (const auto bad = give_own_blocks(kv)) refuse_input(path.string(), "", bad->message, "");
  return kv;
}

}  // namespace hotset::lab
