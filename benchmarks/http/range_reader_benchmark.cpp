// SPDX-License-Identifier: Apache-2.0
/// Experts read from servers on the loopback interface: the tensors of an expert at once, and one by one.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/http/range_reader.hpp"
#include "loopback_server.hpp"
#include "nginx_server.hpp"

namespace {

using namespace hotset;

constexpr std::size_t tensors = 3;
constexpr std::uint64_t tensor_bytes_of = 442'368;  ///< Q4_0, 768 x 1,024
constexpr std::int32_t experts = 64;
const geometry shape{.layers = 1, .experts = experts, .top_k = 8};

/// A file whose tensors lie as in GGUF: those of an expert apart.
const std::string& file() {
  static const auto made = [] {
    std::string out;
    for (std::size_t n = 0; n < tensors * experts; ++n)
      out.append(tensor_bytes_of, static_cast<char>(n));
    return out;
  }();
  return made;
}
const support::nginx_server& nginx() {
  static const auto made = [] {
    auto out = std::make_unique<support::nginx_server>();
    if (out->is_running()) std::ofstream(out->root() / "experts", std::ios::binary) << file();
    return out;
  }();
  return *made;
}
/// A server that answers after 5 ms, as one that is far away does.
const support::loopback_server& far_server() {
  static const support::loopback_server made([](const support::http_request& of) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return support::range_reply(file(), of);
  });
  return made;
}
sha256_bytes hash_of(std::span<const std::byte> bytes) {
  sha256_bytes out{};
  unsigned int length = 0;
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &length,
             EVP_sha256(), nullptr);
  return out;
}
validation add_experts(range_reader& reader, bool hashed) {
  for (std::size_t e = 0; e < experts; ++e) {
    std::array<file_extent, tensors> places;
    std::array<sha256_bytes, tensors> hashes;
    for (std::size_t t = 0; t < tensors; ++t) {
      const auto n = t * experts + e;
      places[t] = {0, n * tensor_bytes_of, tensor_bytes_of};
      if (hashed) hashes[t] = hash_of(std::vector(tensor_bytes_of, static_cast<std::byte>(n)));
    }
    const std::span<const sha256_bytes> checked(hashes);
    if (auto bad = reader.add(shape.key(e), {}, places, checked.first(hashed ? tensors : 0)))
      return bad;
  }
  return std::nullopt;
}

void read_experts(benchmark::State& state, const std::string& url, bool together, bool hashed) {
  ::setenv("no_proxy", "*", 1);
  auto reader = range_reader::open(shape, {{.urls = {url}}});
  if (!reader || add_experts(*reader, hashed))
    return state.SkipWithError(reader ? "a place is refused" : reader.error().message.c_str());
  std::vector<std::byte> to(tensors * tensor_bytes_of);
  std::uint64_t n = 0;
  for (auto _ : state) {
    const auto key = shape.key(n++ * 37 % experts);
    std::array<tensor_part, tensors> parts;
    for (std::size_t t = 0; t < tensors; ++t)
      parts[t] = {t, 0, std::span(to).subspan(t * tensor_bytes_of, tensor_bytes_of)};
    bool done = true;
    if (together)
      done = reader->read_all(key, {}, parts);
    else
      for (const auto& [tensor, at, into] : parts)
        done = done && reader->read(key, {}, tensor, at, into);
    if (!done || to[0] != static_cast<std::byte>(index_of(key.expert)))
      return state.SkipWithError("a read is not what was asked for");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(n * tensors * tensor_bytes_of));
}
void read_from_nginx(benchmark::State& state, bool together, bool hashed) {
  if (!nginx().is_running()) return state.SkipWithError(support::nginx_server::absent);
  read_experts(state, nginx().url("experts"), together, hashed);
}
void BM_Together(benchmark::State& state) { read_from_nginx(state, true, false); }
void BM_OneByOne(benchmark::State& state) { read_from_nginx(state, false, false); }
void BM_TogetherHashed(benchmark::State& state) { read_from_nginx(state, true, true); }
void BM_FarTogether(benchmark::State& state) {
  read_experts(state, far_server().url(), true, false);
}
void BM_FarOneByOne(benchmark::State& state) {
  read_experts(state, far_server().url(), false, false);
}
void BM_Hash(benchmark::State& state) {
  const std::vector<std::byte> bytes(tensors * tensor_bytes_of);
  const auto wanted = hash_of(bytes);
  for (auto _ : state) benchmark::DoNotOptimize(has_sha256(bytes, wanted));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(BM_Together)->UseRealTime();
BENCHMARK(BM_OneByOne)->UseRealTime();
BENCHMARK(BM_TogetherHashed)->UseRealTime();
BENCHMARK(BM_FarTogether)->UseRealTime();
BENCHMARK(BM_FarOneByOne)->UseRealTime();
BENCHMARK(BM_Hash);

}  // namespace

BENCHMARK_MAIN();
