// SPDX-License-Identifier: Apache-2.0
/// Experts read from a file, bypassing the page cache, compared with the bare reads.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/transfer/file_expert_source.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#if defined(HOTSET_HAS_URING)
#include "hotset/uring/uring_file.hpp"
#endif

namespace {

using namespace hotset;

constexpr std::uint64_t tensor_bytes_of = 442'368;  ///< Q4_0, 768 x 1,024
constexpr std::uint64_t expert_bytes = 3 * tensor_bytes_of;
constexpr std::int32_t experts = 256;
constexpr std::size_t batch = 8;  ///< per visit

/// 324 MiB that direct reads never find in the page cache; in the current folder, or in HOTSET_BENCHMARK_FOLDER.
class made_file {
 public:
  made_file() {
    const char* const folder = std::getenv("HOTSET_BENCHMARK_FOLDER");
    path = std::string(folder == nullptr ? "." : folder) + "/file_reads_benchmark.bin";
    std::ofstream to(path, std::ios::binary);
    std::vector<char> piece(expert_bytes);
    for (std::int32_t e = 0; e < experts; ++e) {
      std::fill(piece.begin(), piece.end(), static_cast<char>(e));
      to.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    }
  }
  ~made_file() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  std::string path;
};
const std::string& file() {
  static const made_file made;
  return made.path;
}

std::int32_t expert_at(std::uint64_t n) { return static_cast<std::int32_t>(n * 97 % experts); }

/// The floor: one pread per expert, by one thread, into one aligned buffer.
void BM_BareReads(benchmark::State& state) {
  const auto opened = posix_file::open(file(), true);
  if (!opened) {
    state.SkipWithError(opened.error().message.c_str());
    return;
  }
  constexpr std::size_t block = 4096;
  constexpr std::size_t most = expert_bytes + 2 * block;
  const std::unique_ptr<std::byte, void (*)(std::byte*)> buffer(
      static_cast<std::byte*>(::operator new (most, std::align_val_t{block})),
      [](std::byte* p) { ::operator delete (p, std::align_val_t{block}); });
  std::uint64_t n = 0;
  for (auto _ : state)
    for (std::size_t i = 0; i < batch; ++i) {
      const auto at = static_cast<std::uint64_t>(expert_at(n++)) * expert_bytes / block * block;
      const auto bytes = (expert_bytes + 2 * block - 1) / block * block;
      if (opened->read(at, {buffer.get(), bytes}) <= 0) {
        state.SkipWithError("a read failed");
        return;
      }
    }
  state.SetBytesProcessed(static_cast<std::int64_t>(n * expert_bytes));
}

/// A visit's misses by a backend with this many threads.
template <class File>
void read_visits(benchmark::State& state, file_reads how) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  const geometry shape{.layers = 1, .experts = experts, .top_k = 8};
  auto source = basic_file_expert_source<File>::open(shape, {file()}, how, threads);
  if (!source) {
    state.SkipWithError(source.error().message.c_str());
    return;
  }
  for (const auto e : each<expert_id>(experts)) {
    const auto at = index_of(e) * expert_bytes;
    if (source->add({0_layer, e}, {},
                    std::array{file_extent{0, at, tensor_bytes_of},
                               file_extent{0, at + tensor_bytes_of, tensor_bytes_of},
                               file_extent{0, at + 2 * tensor_bytes_of, tensor_bytes_of}})) {
      state.SkipWithError("an extent was refused");
      return;
    }
  }
  const auto layout = pool_layout::shared(shape, batch).value();
  const auto bank =
      host_slot_bank::create(
          layout,
          {{{{"gate", tensor_bytes_of}, {"up", tensor_bytes_of}, {"down", tensor_bytes_of}}}})
          .value();
  host_backend<basic_file_expert_source<File>> backend(*source, bank, {.threads = threads});
  host_stream stream;
  std::array<fill, batch> fills{};
  std::uint64_t n = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) {
      fills[i].key = {0_layer, expert_id{expert_at(n++)}};
      fills[i].slot = static_cast<slot_id>(i);
    }
    const auto sent = backend.submit(fills, stream, urgency::now);
    if (backend.wait(sent.id) != transfer_state::arrived ||
        bank.bytes(fills.back().slot, 2).back() !=
            static_cast<std::byte>(fills.back().key.expert)) {
      state.SkipWithError("a copy is not what was asked for");
      return;
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(n * expert_bytes));
}
void BM_DirectReads(benchmark::State& state) { read_visits<posix_file>(state, file_reads::direct); }
void BM_CachedReads(benchmark::State& state) { read_visits<posix_file>(state, file_reads::cached); }
BENCHMARK(BM_BareReads)->UseRealTime();
BENCHMARK(BM_DirectReads)->ArgName("threads")->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseRealTime();
#if defined(HOTSET_HAS_URING)
void BM_UringReads(benchmark::State& state) { read_visits<uring_file>(state, file_reads::direct); }
BENCHMARK(BM_UringReads)->ArgName("threads")->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
#endif
BENCHMARK(BM_CachedReads)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
