// SPDX-License-Identifier: Apache-2.0
// The policy of the document joins the installed suite unchanged.

#include "hotset/policy/policy_config.hpp"
#include "policies_2_includes.inc"

namespace {
#include "policies_1.inc"
}  // namespace

#include "policies_2.inc"
