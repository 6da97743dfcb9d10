// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads experts' tensors from files on HTTP servers when they are copied: object stores, nginx, peers.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <curl/curl.h>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/http/range_batch.hpp"
#include "hotset/http/remote_file.hpp"
#include "hotset/http/sha256.hpp"
#include "hotset/transfer/expert_extents.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset/transfer/file_expert_source.hpp"

namespace hotset {

/// A place that holds all files of a model. Every source of a reader has the same files in the same order.
struct http_source {
  std::vector<std::string> urls;  ///< public or presigned; user and password may stand in them
};

/// Connections, limits and log of a range_reader.
struct range_reader_config {
  /// The most reads at one time, such as the number of backend threads; more reads wait. Each has its own connections,
  /// up to one for each tensor of an expert.
  std::size_t beside = 1;
  range_limits limits{};
  std::string authorities{};  ///< file of trusted certificates (PEM); empty: those of the system
  log_sink log{};             ///< notified of a source that is left out, or left for another

  static constexpr std::size_t most_beside = 256;

  [[nodiscard]] validation validate() const {
    if (beside == 0 || beside > most_beside)
      return refusal("beside = ", beside, ", accepted: 1..", most_beside);
    return limits.validate();
  }
};

/// Reads block the copying thread. The tensors of an expert are requested at once, over connections that stay open.
/// A read that fails at one source, after its retries, is repeated whole at the next; later reads start there. If the
/// first one takes all the time, the read fails, and later ones start at the next. A file that has changed since it was
/// opened fails. `problem` gives the reasons if a read fails at every source.
/// Only hashes detect a file that is overwritten in place, and sources with different files of one size. A tensor's
/// hash is checked if the whole tensor is read, as tiers and backends do.
/// Redirects are followed, from https only to https. Certificates are checked.
/// Threads: reads are safe; `add` must not run beside them. Memory: as expert_extents, and 32 bytes for each hash.
/// A read without failures allocates nothing here, but libcurl allocates in each request. Reads do not throw.
class range_reader {
 public:
  using config = range_reader_config;

  /// Requests one byte of each file. A source that cannot be opened is left out with a warning, if another can be.
  /// Errors: those of config; an invalid shape; no sources, or sources with different numbers of files; a URL that
  /// cannot be used; no source that can be opened: the message has the first one's reason.
  static result<range_reader> open(const geometry& shape, const std::vector<http_source>& sources,
                                   const config& setup = {}) {
    if (auto bad = setup.validate()) return *std::move(bad);
    if (auto bad = shape.validate()) return *std::move(bad);
    static const CURLcode ready = ::curl_global_init(CURL_GLOBAL_DEFAULT);
    if (ready != CURLE_OK) return error{::curl_easy_strerror(ready)};
    range_reader out(shape, setup);
    for (std::size_t b = 0; b < setup.beside; ++b) {
      auto batch = range_batch::create(setup.limits, setup.authorities);
      if (batch == nullptr) return no_host_memory();
      out.shared_->batches.add(std::move(batch));
    }
    if (auto bad = out.open_sources(sources)) return *std::move(bad);
    return out;
  }

  /// Sets the position of an expert's tensors, and their hashes if there are any. Errors: those of
  /// expert_extents::add; another number of hashes than of tensors.
  validation add(expert_key key, precision_id precision, std::span<const file_extent> tensors,
                 std::span<const sha256_bytes> hashes = {}) {
    if (!hashes.empty() && hashes.size() != tensors.size())
      return refusal(hashes.size(), " hashes of ", tensors.size(), " tensors, accepted: 0 or ",
                     tensors.size());
    if (auto bad = where_.add(key, precision, tensors, sources_.front())) return bad;
    const auto place = where_.place_of(key, precision);
    if (hashes.empty()) {
      if (place < hashes_of_.size()) hashes_of_[place] = no_hashes;
      return std::nullopt;
    }
    if (place >= hashes_of_.size()) hashes_of_.resize(place + 1, no_hashes);
    hashes_of_[place] = hashes_.size();
    hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
    return std::nullopt;
  }

  [[nodiscard]] std::span<const std::uint64_t> sizes(expert_key key,
                                                     precision_id precision) const noexcept {
    return where_.sizes(key, precision);
  }
  [[nodiscard]] bool read(expert_key key, precision_id precision, std::size_t tensor,
                          std::uint64_t at, std::span<std::byte> to) const noexcept {
    return read_all(key, precision, std::array{tensor_part{tensor, at, to}});
  }
  [[nodiscard]] bool read_all(expert_key key, precision_id precision,
                              std::span<const tensor_part> parts) const noexcept {
    std::array<file_piece, range_batch::most_ranges> buffer;
    const auto pieces = pieces_of(key, precision, parts, buffer);
    if (pieces.empty()) return true;
    lending_pool<batch_handle>::borrowed batch(shared_->batches);
    const auto deadline = range_batch::clock::now() + limits_.whole;
    const auto first = shared_->current.load();
    failures tried{};
    for (std::size_t n = 0; n < sources_.size() && range_batch::clock::now() < deadline; ++n) {
      const auto s = (first + n) % sources_.size();
      if (read_from(sources_[s], **batch, key, precision, pieces, deadline, tried[s])) {
        if (n != 0) change_source(first, s, tried[first]);
        return true;
      }
    }
    // A source that took all the time must not take the next read's.
    if (range_batch::clock::now() >= deadline)
      change_source(first, (first + 1) % sources_.size(), tried[first]);
    const std::lock_guard lock(shared_->mutex);
    shared_->last = tried;
    return false;
  }

  /// The reasons of the last failed read, one for each source that was tried; empty if none has failed.
  [[nodiscard]] std::string problem() const {
    const std::lock_guard lock(shared_->mutex);
    std::string out;
    for (const auto& failure : shared_->last)
      if (failure.why != range_fault::none) out += (out.empty() ? "" : "; ") + failure.text();
    return out;
  }

 private:
  static constexpr std::size_t most_sources = 8;
  static constexpr std::size_t no_hashes = ~std::size_t{0};
  using batch_handle = std::unique_ptr<range_batch>;
  using failures = std::array<range_failure, most_sources>;
  using files = std::vector<remote_file>;
  /// State that reads may change.
  struct shared_state {
    std::mutex mutex;
    failures last{};
    std::atomic<std::size_t> current = 0;  ///< the source at which reads start
    lending_pool<batch_handle> batches;
  };

  range_reader(const geometry& shape, const config& setup)
      : limits_(setup.limits),
        log_(setup.log),
        where_(shape),
        shared_(std::make_unique<shared_state>()) {}

  validation open_sources(const std::vector<http_source>& sources) {
    if (sources.empty() || sources.size() > most_sources)
      return refusal(sources.size(), " sources, accepted: 1..", most_sources);
    if (sources.front().urls.empty()) return error{"no files, accepted: one file or more"};
    validation first;
    for (const auto& source : sources) {
      const auto wanted = sources.front().urls.size();
      if (source.urls.size() != wanted)
        return refusal("a source of ", source.urls.size(), " files beside one of ", wanted,
                       ", accepted: the same files in the same order");
      files opened;
      for (const auto& url : source.urls) {
        auto file = remote_file::at(url);
        if (!file) return file.error();
        opened.push_back(*std::move(file));
      }
      auto bad = open_files(opened);
      if (!bad) {
        sources_.push_back(std::move(opened));
        continue;
      }
      if (!first) first = bad;
      if (sources.size() > 1) log_(log_level::warning, "a source is left out: " + bad->message);
    }
    return sources_.empty() ? first : std::nullopt;
  }
  validation open_files(files& opened) const {
    lending_pool<batch_handle>::borrowed batch(shared_->batches);
    for (std::size_t begin = 0; begin < opened.size(); begin += range_batch::most_ranges) {
      const auto count = std::min(range_batch::most_ranges, opened.size() - begin);
      std::array<std::byte, range_batch::most_ranges> bytes{};
      std::array<file_piece, range_batch::most_ranges> pieces;
      for (std::size_t n = 0; n < count; ++n)
        pieces[n] = {begin + n, 0, std::span(bytes).subspan(n, 1), 0};
      (*batch)->aim(opened, std::span(pieces).first(count));
      if (!(*batch)->fetch(range_batch::clock::now() + limits_.whole))
        return error{(*batch)->failure().text()};
      for (std::size_t n = 0; n < count; ++n)
        if (auto bad = opened[begin + n].open((*batch)->request(n).handle())) return bad;
    }
    for (std::size_t f = 0; f < opened.size() && !sources_.empty(); ++f)
      if (const auto wanted = sources_.front()[f].size(); opened[f].size() != wanted)
        return refusal(opened[f].path(), " has ", opened[f].size(), " bytes, accepted: ", wanted,
                       " as in ", sources_.front()[f].path());
    return std::nullopt;
  }

  std::span<file_piece> pieces_of(
      expert_key key, precision_id precision, std::span<const tensor_part> parts,
      std::array<file_piece, range_batch::most_ranges>& buffer) const noexcept {
    HOTSET_ASSERT(parts.size() <= buffer.size());
    std::size_t used = 0;
    for (const auto& [tensor, at, to] : parts) {
      const auto& extent = where_.at(key, precision, tensor);
      if (!to.empty()) buffer[used++] = {extent.file, extent.offset + at, to, tensor};
    }
    return std::span(buffer).first(used);
  }
  bool read_from(const files& source, range_batch& batch, expert_key key, precision_id precision,
                 std::span<file_piece> pieces, range_batch::clock::time_point deadline,
                 range_failure& failure) const noexcept {
    batch.aim(source, pieces);
    if (!batch.fetch(deadline)) {
      failure = batch.failure();
      return false;
    }
    const auto wrong = std::ranges::find_if_not(
        pieces, [&](const file_piece& piece) { return has_its_hash(key, precision, piece); });
    if (wrong == pieces.end()) return true;
    failure = {.why = range_fault::wrong_hash, .at = wrong->at, .file = &source[wrong->file]};
    return false;
  }
  /// True for a part of a tensor, and for a tensor without a hash, too.
  [[nodiscard]] bool has_its_hash(expert_key key, precision_id precision,
                                  const file_piece& piece) const noexcept {
    const auto place = where_.place_of(key, precision);
    if (place >= hashes_of_.size() || hashes_of_[place] == no_hashes) return true;
    if (piece.to.size() != where_.at(key, precision, piece.tensor).bytes) return true;
    return has_sha256(piece.to, hashes_[hashes_of_[place] + piece.tensor]);
  }
  /// If several threads leave a source, one of them changes it and says so.
  void change_source(std::size_t from, std::size_t to, const range_failure& why) const noexcept {
    if (from == to || !shared_->current.compare_exchange_strong(from, to)) return;
    const auto say = [&] {
      log_(log_level::warning, why.text() + "; reads go on at " + sources_[to].front().path());
      return true;
    };
    (void)unless_out_of_memory(say, false);
  }

  range_limits limits_;
  log_sink log_;
  std::vector<files> sources_;  ///< those that were opened
  expert_extents where_;
  /// [precisions][keys] an expert's first in hashes_, or no_hashes; grows as needed.
  std::vector<std::size_t> hashes_of_;
  std::vector<sha256_bytes> hashes_;
  std::unique_ptr<shared_state> shared_;
};
static_assert(batch_reader<range_reader>);

}  // namespace hotset
