// SPDX-License-Identifier: Apache-2.0
// Starts without a server and prints the refusal.
#include <cstdio>

#include "hotset/http/range_reader.hpp"

int main() {
  const hotset::geometry shape{.layers = 1, .experts = 2, .top_k = 1};
  const auto opened = hotset::range_reader::open(shape, {{.urls = {"ftp://host/model.gguf"}}});
  std::printf("%s\n", opened ? "opened" : opened.error().message.c_str());
  return opened ? 1 : 0;
}
