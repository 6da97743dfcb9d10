// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/cache_size.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {

namespace {

/// Experts of the second precision that fit in the bytes of one of the first: "16:4" gives 4.
std::optional<double> read_precisions(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto whole = parse_number<std::uint32_t>(text.substr(0, colon));
  const auto held = parse_number<std::uint32_t>(text.substr(colon + 1));
  if (!whole || !held || *held < 1 || *whole < *held || *whole > 64) return std::nullopt;
  return static_cast<double>(*whole) / *held;
}

/// Parses "12.5%" or "5%@16:4", shares of the experts.
std::optional<double> read_percent(std::string_view text) {
  const auto at = text.find('@');
  const auto share = text.substr(0, at);
  const auto scale = at == std::string_view::npos ? std::optional<double>(1)
                                                  : read_precisions(text.substr(at + 1));
  if (!share.ends_with('%') || !scale) return std::nullopt;
  const auto percent =
      parse_number<double>(share.substr(0, share.size() - 1), std::chars_format::fixed);
  if (!percent || !(*percent > 0) || *percent * *scale > 100) return std::nullopt;
  return *percent * *scale;
}

}  // namespace

size_request size_request::parse_slots(std::string_view text) {
  size_request out;
  out.text = text;
  if (text.find('%') != std::string_view::npos) {
    if (const auto percent = read_percent(text)) {
      out.what = unit::percent;
      out.value = *percent;
      return out;
    }
  } else if (const auto count = parse_number<std::uint64_t>(text);
             count && *count != 0 && *count <= (1ULL << 31U)) {
    out.count = *count;
    return out;
  }
  throw usage_error(fmt::format(
      "slots '{}', accepted: a whole number from 1, a percentage such as 12.5%, or one of "
      "the bytes at another precision such as 5%@16:4 (at most all experts)",
      text));
}

size_request size_request::parse_budget(std::string_view text) {
  return {unit::bytes, 0, read_size(text), std::string(text)};
}

bool has_bytes(const geometry& shape) {
  return std::ranges::any_of(shape.expert_bytes, [](auto bytes) { return bytes > 1; });
}

cache_scope parse_scope(std::string_view name) {
  return choice_of<cache_scope>("scope", name, {"shared", "per-layer"});
}
std::string_view name_of(cache_scope scope) noexcept {
  return scope == cache_scope::shared ? "shared" : "per-layer";
}

namespace {

/// Rounds half up in decimal: 2.8 % of 125 is 3.5, though the double nearest to 2.8 is below it.
std::int64_t percent_of(double percent, std::size_t experts) {
  const double share = percent * static_cast<double>(experts) / 100;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::floor(share + share * 0x1p-50 + 0.5)));
}

__extension__ using wide = unsigned __int128;

/// floor(count * keys / whole), at most keys.
std::int64_t slots_for(std::uint64_t count, std::uint64_t keys, std::uint64_t whole) {
  return static_cast<std::int64_t>(std::min(wide{keys}, wide{count} * keys / whole));
}
/// The smallest count whose share is at least `wanted`.
std::uint64_t smallest_share(std::uint64_t wanted, std::uint64_t keys, std::uint64_t whole) {
  return static_cast<std::uint64_t>((wide{wanted} * whole + keys - 1) / keys);
}

/// Keys of each size class.
std::vector<std::uint64_t> keys_of_classes(const geometry& shape) {
  const auto classes = shape.size_classes();
  std::vector<std::uint64_t> keys(index_of(*std::ranges::max_element(classes)) + 1);
  for (const auto c : classes) keys[index_of(c)] += static_cast<std::uint64_t>(shape.experts);
  return keys;
}

std::uint64_t largest_expert(const geometry& shape) {
  std::uint64_t most = 0;
  for (const auto l : each<layer_id>(shape.layers)) most = std::max(most, shape.bytes_of(l));
  return most;
}

std::uint64_t all_bytes(const geometry& shape) {
  std::uint64_t total = 0;
  for (const auto l : each<layer_id>(shape.layers))
    total += shape.bytes_of(l) * static_cast<std::uint64_t>(shape.experts);
  return total;
}

pool_layout accept(result<pool_layout> made, const geometry& shape, const size_request& size,
                   std::string_view smallest) {
  if (made) return *std::move(made);
  throw infeasible_error(
      fmt::format("size {}: fewer slots than one token needs (top-{}), accepted: {}", size.text,
                  shape.top_k, smallest));
}

std::int64_t slots_for(const size_request& size, std::size_t experts, std::uint64_t bytes,
                       std::uint64_t bytes_each) {
  switch (size.what) {
    case size_request::unit::slots: return static_cast<std::int64_t>(size.count);
    case size_request::unit::percent: return percent_of(size.value, experts);
    case size_request::unit::bytes: break;
  }
  return static_cast<std::int64_t>(bytes / std::max<std::uint64_t>(bytes_each, 1));
}

void need_bytes(const geometry& shape, const size_request& size) {
  if (size.what == size_request::unit::bytes && shape.expert_bytes.empty())
    throw usage_error(
        "a byte budget needs the bytes of an expert, and the trace has none; give sizes in slots");
}

pool_layout per_layer_slots(const geometry& shape, const size_request& size) {
  std::vector<std::int64_t> quotas;
  quotas.reserve(shape.layer_count());
  const auto share = size.count / static_cast<std::uint64_t>(shape.layers);
  for (const auto l : each<layer_id>(shape.layers))
    quotas.push_back(slots_for(size, shape.expert_count(), share, shape.bytes_of(l)));
  const auto smallest =
      size.what == size_request::unit::bytes
          ? at_least_text(largest_expert(shape) * static_cast<std::uint64_t>(shape.top_k) *
                          static_cast<std::uint64_t>(shape.layers))
          : fmt::format("{} slots or more in every layer", shape.top_k);
  return accept(pool_layout::per_layer(shape, quotas), shape, size, smallest);
}

pool_layout shared_slots(const geometry& shape, const size_request& size, bool size_classes) {
  const auto k = static_cast<std::uint64_t>(shape.top_k);
  if (!size_classes) {
    // An engine's slot holds the largest expert, so this number of slots always fits.
    const auto slots = slots_for(size, shape.keys(), size.count, largest_expert(shape));
    const auto smallest = size.what == size_request::unit::bytes
                              ? at_least_text(k * largest_expert(shape))
                              : fmt::format("{} slots or more", k);
    return accept(pool_layout::shared(shape, slots), shape, size, smallest);
  }
  std::vector<std::int64_t> slots;
  std::uint64_t smallest = 0;
  for (const auto keys : keys_of_classes(shape)) {
    // Each class gets the same share as its keys (or bytes) have in the model.
    const auto whole =
        size.what == size_request::unit::bytes ? all_bytes(shape) : std::uint64_t{shape.keys()};
    slots.push_back(size.what == size_request::unit::percent ? percent_of(size.value, keys)
                                                             : slots_for(size.count, keys, whole));
    smallest = std::max(smallest, smallest_share(k, keys, whole));
  }
  return accept(pool_layout::shared_by_size_class(shape, slots), shape, size,
                size.what == size_request::unit::bytes ? at_least_text(smallest)
                                                       : fmt::format("{} slots or more", smallest));
}

/// A slot for every key, and a byte budget for each pool.
cache_size deferred_size(const geometry& shape, cache_scope scope, const size_request& size) {
  if (size.what != size_request::unit::bytes)
    throw usage_error(
        fmt::format("deferred replay of {}, accepted: --budget 1500MiB or the like", size.text));
  if (scope == cache_scope::shared)
    return {pool_layout::shared(shape, static_cast<std::int64_t>(shape.keys())).value(),
            {size.count}};
  return {pool_layout::per_layer(shape, shape.experts).value(),
          std::vector(shape.layer_count(), size.count / shape.layer_count())};
}

}  // namespace

cache_size make_cache_size(const geometry& shape, cache_scope scope, const size_request& size,
                           replay_mode mode, bool size_classes) {
  need_bytes(shape, size);
  if (mode == replay_mode::deferred && size_classes)
    throw usage_error("deferred replay counts bytes, accepted: no size classes");
  if (mode == replay_mode::deferred) return deferred_size(shape, scope, size);
  if (scope == cache_scope::per_layer) return {per_layer_slots(shape, size), {}};
  return {shared_slots(shape, size, size_classes), {}};
}

}  // namespace hotset::lab
