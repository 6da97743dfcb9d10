// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by the tests of predictors: views, forecasts, refusals, files, and damaged bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/core/error.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/registry/parameters.hpp"
#include "temporary_folder.hpp"

namespace hotset::support {

/// A view of ids and sequences that the caller keeps alive.
inline routing_view view_of(layer_id layer, step_id step, id_view<expert_id> ids,
                            const std::vector<sequence_id>& sequences = {}) {
  return {.layer = layer, .step = step, .experts = ids, .sequences = sequences};
}
/// The predictor's forecast rows.
template <class P>
std::vector<float> said(P& predictor, const routing_view& view) {
  const auto found = predictor.expect(view, {}, 0).probabilities;
  return {found.begin(), found.end()};
}
/// Row i of rows with this many experts.
template <class Rows>
std::vector<float> row_at(const Rows& rows, std::size_t i, std::size_t experts) {
  const auto at = rows.begin() + static_cast<std::ptrdiff_t>(experts * i);
  return {at, at + static_cast<std::ptrdiff_t>(experts)};
}

/// The reason of a refusal.
template <class T>
std::string why(const result<T>& made) {
  return made ? "accepted" : made.error().message;
}
inline std::string why(const validation& checked) {
  return checked ? checked->message : "accepted";
}

/// The parsed configuration of a predictor; every parameter must be known.
template <class P>
typename P::config config_of(const std::string& text) {
  const auto spec = parse_policy(text).value();
  parameters from(spec);
  auto out = P::config::read(from);
  EXPECT_FALSE(from.finish());
  return out;
}
/// Writes a file of these bytes and returns its path.
inline std::string file_of(const temporary_folder& folder, const std::string& name,
                           const std::vector<std::byte>& bytes) {
  return folder.write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}).string();
}
/// The bytes with one number replaced.
inline std::vector<std::byte> with_number(std::vector<std::byte> bytes, std::size_t at,
                                          std::uint32_t number) {
  for (std::size_t b = 0; b < 4; ++b)
    bytes[at + b] = static_cast<std::byte>((number >> (8 * b)) & 0xffU);
  return bytes;
}
/// load(bytes) gives a reason for refusing truncated bytes and trailing bytes.
template <class Load>
void expect_other_lengths_refused(const std::vector<std::byte>& bytes, Load load) {
  for (std::size_t length = 0; length < bytes.size(); ++length)
    ASSERT_NE(load(std::span(bytes).first(length)), "accepted") << length;
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_NE(load(longer).find("accepted: " + std::to_string(bytes.size())), std::string::npos);
}

}  // namespace hotset::support
