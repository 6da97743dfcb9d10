// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads a sample of Prometheus text.

#include <string>

#include <gtest/gtest.h>

namespace hotset::support {

/// `name`: with its labels, as written. Fails the test if there is no such sample.
inline double sample_of(const std::string& text, const std::string& name) {
  const auto begin = text.find("\n" + name + " ");
  if (begin != std::string::npos) return std::stod(text.substr(begin + name.size() + 2));
  ADD_FAILURE() << "no sample " << name;
  return 0;
}

}  // namespace hotset::support
