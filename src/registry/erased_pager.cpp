// SPDX-License-Identifier: Apache-2.0
#include "hotset/registry/policy_registry.hpp"

namespace hotset {

template class pager<any_eviction_policy, any_admission_policy, any_miss_policy>;

}  // namespace hotset
