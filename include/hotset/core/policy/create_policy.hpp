// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Builds a policy for who embeds one without a pager: nothing is built of a configuration that cannot work.

#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/policy/validate_for.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset::inline v0 {

/// Eviction and admission. Errors: those of the configuration, for this layout's model.
template <class P>
[[nodiscard]] result<P> create_policy(const pool_layout& layout,
                                      const typename P::config& options = {}) {
  if (auto bad = validate_for(options, layout.shape())) return *std::move(bad);
  return P(layout, options);
}
/// Prefetch, miss and routing. Errors: those of the configuration, for this model.
template <class P>
[[nodiscard]] result<P> create_policy(const geometry& shape,
                                      const typename P::config& options = {}) {
  if (auto bad = shape.validate()) return *std::move(bad);
  if (auto bad = validate_for(options, shape)) return *std::move(bad);
  return P(shape, options);
}

}  // namespace hotset::inline v0
