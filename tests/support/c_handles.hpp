// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Structs and handles of the C interface.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset.h"

namespace hotset::support {

/// A zeroed struct with its size set.
template <class Struct>
Struct sized() {
  Struct out{};
  out.struct_size = sizeof out;
  return out;
}
/// A model's options; all others are zero.
template <class Options>
Options options_of(std::int32_t layers, std::int32_t experts, std::int32_t top_k) {
  auto out = sized<Options>();
  out.layers = layers;
  out.experts = experts;
  out.top_k = top_k;
  return out;
}
/// A view of whole tokens. The ids must outlive it.
inline hotset_view view_of(std::int32_t layer, std::uint64_t step,
                           const std::vector<std::int32_t>& ids, std::size_t top_k = 2) {
  auto out = sized<hotset_view>();
  out.layer = layer;
  out.step = step;
  out.tokens = ids.size() / top_k;
  out.experts = ids.data();
  return out;
}

/// Functions that make and destroy a handle.
template <class Options>
struct c_interface;
template <>
struct c_interface<hotset_pager_options> {
  using handle = hotset_pager;
  static constexpr auto create = hotset_pager_create;
  static constexpr auto destroy = hotset_pager_destroy;
};
template <>
struct c_interface<hotset_curve_options> {
  using handle = hotset_curve;
  static constexpr auto create = hotset_curve_create;
  static constexpr auto destroy = hotset_curve_destroy;
};
template <>
struct c_interface<hotset_prefetcher_options> {
  using handle = hotset_prefetcher;
  static constexpr auto create = hotset_prefetcher_create;
  static constexpr auto destroy = hotset_prefetcher_destroy;
};
template <>
struct c_interface<hotset_recorder_options> {
  using handle = hotset_recorder;
  static constexpr auto create = hotset_recorder_create;
  static constexpr auto destroy = hotset_recorder_destroy;
};

/// A handle that ends with the test.
template <class Options>
auto open(const Options& how) {
  using made = c_interface<Options>;
  typename made::handle* out = nullptr;
  EXPECT_EQ(made::create(&how, &out), HOTSET_OK) << hotset_last_error();
  return std::unique_ptr<typename made::handle, void (*)(typename made::handle*)>(out,
                                                                                  made::destroy);
}
/// The message for a refused handle.
template <class Options>
std::string refusal_of(const Options& how) {
  using made = c_interface<Options>;
  auto* out = reinterpret_cast<typename made::handle*>(1);
  EXPECT_NE(made::create(&how, &out), HOTSET_OK);
  EXPECT_EQ(out, nullptr);
  return hotset_last_error();
}

}  // namespace hotset::support
