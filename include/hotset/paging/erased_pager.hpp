// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The pagers whose policies are chosen at run time, compiled once: who links hotset::policies does not compile them again.

#include "hotset/admission/always.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_admission_policy.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"

namespace hotset {

/// Any eviction policy; every miss is admitted and fetched.
using erased_pager = pager<any_eviction_policy>;

extern template class pager<any_eviction_policy>;
extern template class pager<any_eviction_policy, any_admission_policy>;
extern template class pager<any_eviction_policy, always, any_miss_policy>;
extern template class pager<any_eviction_policy, any_admission_policy, any_miss_policy>;

}  // namespace hotset
