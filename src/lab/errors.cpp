// SPDX-License-Identifier: Apache-2.0
#include "lab/errors.hpp"

#include "hotset/core/text/names.hpp"

namespace hotset::lab {

void refuse_name(std::string_view what, std::string_view text,
                 const std::vector<std::string>& known, std::string_view more) {
  throw usage_error(unknown_name(what, text, known, more).message);
}

}  // namespace hotset::lab
