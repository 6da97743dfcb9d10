// SPDX-License-Identifier: Apache-2.0
/// Eviction policies of a program: reading their struct, and the conformance suite.

#include <string>
#include <utility>

#include "called_eviction.hpp"
#include "calls.hpp"
#include "hotset/testing/eviction_walk.hpp"

namespace hotset::c {

result<called_eviction::config> read_policy(const hotset_eviction_policy* given,
                                            policy_failure& failure) {
  called_eviction::config out{.failure = &failure};
  if (take(given, out.calls, "policy") != HOTSET_OK) return error{last_words()};
  if (out.calls.name != nullptr) out.name = out.calls.name;
  out.calls.name = nullptr;  // need not outlive this call
  if (auto bad = out.validate()) return *std::move(bad);
  return out;
}

namespace {

/// The suite's entry.
struct called_entry {
  using policy = called_eviction;
  called_eviction::config how;

  [[nodiscard]] called_eviction::config options(const geometry&, const suites::script&) const {
    return how;
  }
  static void prepare(reference::state&, const geometry&, const suites::script&) {}
  [[nodiscard]] std::string problem() const {
    return how.failure->happened() ? how.failure->text() : "";
  }
};

/// Returns the first rule that the policy breaks, or an empty text.
std::string problem_of(const called_entry& entry) {
  const auto with_reason = [&](std::string rule) {
    return entry.problem().empty() ? std::move(rule) : entry.problem();
  };
  if (auto bad = with_reason(suites::problem_with_nothing(entry)); !bad.empty()) return bad;
  if (auto bad = with_reason(suites::problem_of_determinism(entry)); !bad.empty()) return bad;
  return suites::problem_in_walks(entry, 4);
}

}  // namespace
}  // namespace hotset::c

using namespace hotset;  // NOLINT(google-build-using-namespace): a source of one function

extern "C" {

hotset_status hotset_check_eviction(const hotset_eviction_policy* policy) {
  return c::guarded([&]() -> hotset_status {
    c::policy_failure failure;
    const auto read = c::read_policy(policy, failure);
    if (!read) return c::refuse(HOTSET_INVALID_ARGUMENT, "%s", read.error().message.c_str());
    const auto problem = c::problem_of({*read});
    return problem.empty() ? HOTSET_OK : c::refuse(HOTSET_POLICY_FAILED, "%s", problem.c_str());
  });
}

}  // extern "C"
