// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/errors.hpp"

#include "hotset/core/policy/names.hpp"

namespace hotset::sim {

void refuse_name(std::string_view what, std::string_view text,
                 const std::vector<std::string>& known, std::string_view more) {
  throw usage_error(unknown_name(what, text, known, more).message);
}

}  // namespace hotset::sim
