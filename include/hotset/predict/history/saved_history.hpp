// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A profile of past traffic that `similar_steps` can start from: the routing of tokens, their order, and the rates
/// of use of each expert.
///
/// Promise: a file that is truncated, damaged, or of another version, shape or model is refused; nothing has changed
///       then.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/file_bytes.hpp"
#include "hotset/core/text/names.hpp"
#include "hotset/predict/refusals.hpp"
#include "hotset/predict/saved_file.hpp"

namespace hotset {

/// Plain data. Rows are tokens, oldest first. Threads: const use is safe.
struct saved_history {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t version = 1;
  static constexpr std::uint32_t most_rows = std::uint32_t{1} << 20U;
  static constexpr std::uint32_t most_visits = std::uint32_t{1} << 24U;
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 33U;

  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  /// A number that the engine gives its model, such as a hash of the weights; 0: unspecified.
  std::uint64_t model = 0;
  std::vector<std::uint32_t> before;  ///< [rows] row of the sequence's previous token, or none
  /// [rows, layers, top_k], ascending; unused entries are no_expert.
  std::vector<expert_id> ids;
  std::vector<float> fast;            ///< [layers, experts], fast rates of two_rates
  std::vector<float> slow;            ///< [layers, experts], slow rates of two_rates
  std::vector<std::uint32_t> visits;  ///< [layers]
  friend bool operator==(const saved_history&, const saved_history&) = default;

  /// Returns an empty profile. Pre: shape.validate() returns no error.
  [[nodiscard]] static saved_history of(const geometry& shape, std::uint64_t model = 0) {
    saved_history out;
    out.layers = shape.layers;
    out.experts = shape.experts;
    out.top_k = shape.top_k;
    out.model = model;
    out.fast.assign(out.keys(), 0.0F);
    out.slow.assign(out.keys(), 0.0F);
    out.visits.assign(shape.layer_count(), 0);
    return out;
  }

  [[nodiscard]] std::size_t rows() const noexcept { return before.size(); }
  [[nodiscard]] std::size_t keys() const noexcept {
    return static_cast<std::size_t>(layers) * static_cast<std::size_t>(experts);
  }
  /// Number of ids of one row. Shape: [layers, top_k].
  [[nodiscard]] std::size_t ids_of_row() const noexcept {
    return static_cast<std::size_t>(layers) * static_cast<std::size_t>(top_k);
  }
  /// Errors: another shape; another model, if both models are specified.
  [[nodiscard]] validation check(const geometry& shape, std::uint64_t of_model = 0) const {
    if (layers != shape.layers || experts != shape.experts || top_k != shape.top_k)
      return error{"a history of " + text_of(layers, experts, top_k) +
                   ", accepted: " + text_of(shape.layers, shape.experts, shape.top_k)};
    return check_model(of_model);
  }
  /// Errors: another model, if both models are specified.
  [[nodiscard]] validation check_model(std::uint64_t of_model) const {
    if (model != 0 && of_model != 0 && model != of_model)
      return refusal("a history of model ", model, ", accepted: ", of_model);
    return std::nullopt;
  }

  /// Keeps the newest `count` rows; links to removed rows are cut.
  void keep_newest(std::size_t count) {
    if (rows() <= count) return;
    const auto gone = static_cast<std::uint32_t>(rows() - count);
    before.erase(before.begin(), before.begin() + gone);
    for (auto& row : before) row = row == none || row < gone ? none : row - gone;
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(gone * ids_of_row()));
  }
  /// Keeps only the newest share of the rows, 0..1, and scales the visit counts by it. Errors: a share outside 0..1.
  validation fade(double share) {
    if (!(share >= 0 && share <= 1)) return refusal("share = ", share, ", accepted: 0..1");
    keep_newest(static_cast<std::size_t>(std::llround(share * static_cast<double>(rows()))));
    for (auto& count : visits)
      count = static_cast<std::uint32_t>(std::llround(share * static_cast<double>(count)));
    return std::nullopt;
  }
  /// Appends the rows of a newer profile; rates become means weighted by visits. Errors: those of check, and more
  /// rows than the maximum; nothing has changed then.
  validation merge(const saved_history& newer) {
    if (&newer == this) return merge(saved_history(newer));
    const geometry shape{.layers = layers, .experts = experts, .top_k = top_k};
    if (auto bad = newer.check(shape, model)) return bad;
    if (rows() + newer.rows() > most_rows)
      return refusal("histories of ", rows() + newer.rows(), " rows, accepted: at most ",
                     most_rows);
    if (model == 0) model = newer.model;
    const auto first = static_cast<std::uint32_t>(rows());
    for (const auto row : newer.before) before.push_back(row == none ? none : first + row);
    ids.insert(ids.end(), newer.ids.begin(), newer.ids.end());
    for (std::size_t l = 0; l < visits.size(); ++l) merge_rates(newer, l);
    return std::nullopt;
  }

  [[nodiscard]] std::vector<std::byte> save() const {
    detail::saved_writer out(kind, numbers_of(layers, experts, top_k, rows()));
    out.add(version);
    out.add_all(std::array{layers, experts, top_k});
    out.add(rows());
    out.add_long(model);
    out.add_all(before);
    out.add_all(ids);
    out.add_all(fast);
    out.add_all(slow);
    out.add_all(visits);
    out.add_checksum();
    return std::move(out).take();
  }
  /// Errors: bytes that are no history, another version, a wrong length, or damage.
  static result<saved_history> load(std::span<const std::byte> bytes) {
    const detail::saved_reader saved(bytes);
    if (!saved.is(kind, header_numbers))
      return error{"no routing history, accepted: one that hotset history writes"};
    if (saved[0] != version)
      return refusal("a routing history of version ", saved[0], ", accepted: ", version);
    if (auto bad = check_size(saved)) return *std::move(bad);
    if (!saved.ends_with_checksum())
      return error{"a damaged routing history, accepted: one as it was written"};
    return unless_out_of_memory([&] { return read(saved); },
                                result<saved_history>(no_host_memory()));
  }
  /// Errors: those of load, after the file's name; a file that cannot be read.
  static result<saved_history> read_file(const std::string& path) {
    return detail::load_file(path, most_bytes, "a file of hotset history", load);
  }

 private:
  static constexpr detail::file_kind kind = {'h', 's', 'h', 'i', 's', 't', 'o', 'r'};
  static constexpr std::size_t header_numbers = 5 + 2;  ///< one of them takes two numbers

  static std::string text_of(std::int64_t layers, std::int64_t experts, std::int64_t top_k) {
    return detail::shape_text(layers, experts) + ", top-" + std::to_string(top_k);
  }
  /// Pre: no product wraps.
  static std::uint64_t numbers_of(std::int64_t layers, std::int64_t experts, std::int64_t top_k,
                                  std::uint64_t rows) {
    const auto l = static_cast<std::uint64_t>(layers);
    return header_numbers + rows + rows * l * static_cast<std::uint64_t>(top_k) +
           2 * l * static_cast<std::uint64_t>(experts) + l + 2;
  }
  static validation check_size(const detail::saved_reader& saved) {
    constexpr std::uint32_t most = 65536;
    const auto layers = saved[1], experts = saved[2], top_k = saved[3], rows = saved[4];
    const bool sane = layers >= 1 && layers <= most && experts >= 1 && experts <= most &&
                      top_k >= 1 && top_k <= experts && rows <= most_rows;
    const auto what =
        "a history of " + text_of(layers, experts, top_k) + ", " + std::to_string(rows) + " rows";
    const auto numbers = sane ? numbers_of(layers, experts, top_k, rows) : most_bytes;
    if (sizeof kind + 4 * numbers > most_bytes)
      return refusal(what, ", accepted: at most ", most_bytes, " bytes");
    return saved.check_count(numbers, what);
  }
  /// Pre: the length matches the header, and the checksum is right.
  static result<saved_history> read(const detail::saved_reader& saved) {
    saved_history out;
    out.layers = static_cast<std::int32_t>(saved[1]);
    out.experts = static_cast<std::int32_t>(saved[2]);
    out.top_k = static_cast<std::int32_t>(saved[3]);
    out.before.resize(saved[4]);
    out.model = saved.whole_long(5);
    auto place = header_numbers;
    const auto next = [&] { return saved[place++]; };
    for (auto& row : out.before) row = next();
    out.ids.resize(out.rows() * out.ids_of_row());
    for (auto& id : out.ids) id = static_cast<expert_id>(next());
    for (auto* rates : {&out.fast, &out.slow}) {
      rates->resize(out.keys());
      for (auto& rate : *rates) rate = saved.real(place++);
    }
    out.visits.resize(static_cast<std::size_t>(out.layers));
    for (auto& count : out.visits) count = next();
    if (auto bad = out.check_content()) return *std::move(bad);
    return out;
  }
  [[nodiscard]] validation check_content() const {
    const auto bad = [](const char* what) {
      return refusal("a routing history with ", what, ", accepted: one that hotset history writes");
    };
    std::vector<std::uint8_t> is_followed(rows(), 0);
    for (std::size_t r = 0; r < rows(); ++r) {
      if (before[r] == none) continue;
      if (before[r] >= r || is_followed[before[r]]++ != 0) return bad("rows out of order");
    }
    for (const auto id : ids)
      if (id < no_expert || id >= experts) return bad("ids that are no experts");
    for (const auto* rates : {&fast, &slow})
      for (const auto rate : *rates)
        if (!(rate >= 0 && rate <= 1.00001F)) return bad("rates outside 0..1");
    for (const auto count : visits)
      if (count > most_visits) return bad("too many visits");
    return std::nullopt;
  }
  void merge_rates(const saved_history& newer, std::size_t l) {
    const auto all = double{1} * visits[l] + newer.visits[l];
    if (all == 0) return;
    const auto share = static_cast<float>(newer.visits[l] / all);
    const auto width = static_cast<std::size_t>(experts);
    for (auto k = l * width; k < (l + 1) * width; ++k) {
      fast[k] += share * (newer.fast[k] - fast[k]);
      slow[k] += share * (newer.slow[k] - slow[k]);
    }
    visits[l] = static_cast<std::uint32_t>(std::min(all, double{most_visits}));
  }
};

/// Saved history that a policy starts from, named by its parameter `from=FILE`. The file is read once; all policies
/// made from the same configuration share it.
struct history_source {
  std::shared_ptr<const saved_history> saved{};
  std::uint64_t model = 0;  ///< the engine's model; 0: unspecified
  std::string file{};       ///< path that it was read from; empty: none
  std::string trouble{};    ///< reason if the file gave no history

  template <class From>
  static history_source read(From& from) {
    history_source out;
    out.model = from.number("model", out.model);
    out.file = from.text("from", "");
    if (!out.file.empty())
      out.saved = detail::shared_or_trouble(saved_history::read_file(out.file), out.trouble);
    return out;
  }
  [[nodiscard]] validation validate() const {
    if (!trouble.empty()) return error{trouble};
    return std::nullopt;
  }
  [[nodiscard]] validation validate(const geometry& shape) const {
    if (saved == nullptr) return std::nullopt;
    auto bad = saved->check(shape, model);
    if (bad && !file.empty()) bad->message = printable(file, 4096) + ": " + bad->message;
    return bad;
  }
};

}  // namespace hotset
