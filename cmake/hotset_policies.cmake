# SPDX-License-Identifier: Apache-2.0

# hotset::policies: all policies by name, standard library only. This list is the only place that registers a policy:
# a new policy is a header and one line here. The class has the header's name; a decorator is a template.
set(hotset_policies
    eviction/lru
    eviction/lfu
    eviction/lfru
    eviction/lhu
    eviction/fifo
    eviction/activation_ratio
    eviction/expert_map_priority
    eviction/furthest_layer
    eviction/gate_score
    eviction/importance
    eviction/least_stale
    eviction/popularity
    eviction/similar_steps
    eviction/two_rate
    eviction/belady
    eviction/next_visit_oracle
    admission/always
    admission/after_n_uses
    admission/budgeted
    admission/least_valuable
    prefetch/no_prefetch
    prefetch/next_layer_top_k
    prefetch/score_threshold
    prefetch/cumulative_probability
    prefetch/previous_step
    prefetch/popular
    prefetch/noisy_oracle
    miss/fetch
    miss/fetch_lowest
    miss/fetch_priority
    miss/drop
    miss/drop_cascade
    miss/substitute
    miss/compute_on_host
    routing/router_order
    routing/budget_top_k
    routing/cache_aware
    predict/gate_predictors:recorded_scores
    predict/gate_predictors:current_gate
    predict/gate_predictors:next_router
    predict/activation_matrix
    predict/co_activation
    predict/expert_map
    predict/last_routed
    predict/learned_gate
    predict/mixed
    predict/similar_steps_predictor)
set(hotset_decorators eviction/protect_hot eviction/protect_decode eviction/reserve_prefetch)

# Compiled in groups of files: as one file they occupy one core for more than a minute.
set(hotset_policies_in_a_file 20)
set(generated "")
set(declarations "")
set(calls "")
set(includes "")
set(rows "")
macro(hotset_write_policies)
  list(LENGTH generated number)
  set(file ${PROJECT_BINARY_DIR}/library_policies_${number}.cpp)
  list(APPEND generated ${file})
  string(APPEND declarations "void add_library_policies_${number}(policy_registry& out);\n")
  string(APPEND calls "  add_library_policies_${number}(out);\n")
  file(CONFIGURE OUTPUT ${file} CONTENT [[
// Generated from cmake/hotset_policies.cmake.
#include "hotset/registry/policy_registry.hpp"

@includes@
namespace hotset {

void add_library_policies_@number@(policy_registry& out);
void add_library_policies_@number@(policy_registry& out) {
@rows@}

}  // namespace hotset
]] @ONLY)
  set(includes "")
  set(rows "")
  set(in_file 0)
endmacro()

set(in_file 0)
foreach(call add add_decorator)
  set(listed "${hotset_policies}")
  if(call STREQUAL "add_decorator")
    set(listed "${hotset_decorators}")
  endif()
  foreach(policy IN LISTS listed)
    string(REGEX MATCH "^([a-z_/]+):?([a-z_]*)$" matched ${policy})
    set(header ${CMAKE_MATCH_1})
    set(class ${CMAKE_MATCH_2})
    if(NOT class)
      cmake_path(GET header FILENAME class)
    endif()
    if(call STREQUAL "add_decorator")
      string(APPEND class "<any_eviction_policy>")
    endif()
    string(APPEND includes "#include \"hotset/${header}.hpp\"\n")
    string(APPEND rows "  require_valid(out.${call}<${class}>());\n")
    math(EXPR in_file "${in_file} + 1")
    if(in_file EQUAL hotset_policies_in_a_file)
      hotset_write_policies()
    endif()
  endforeach()
endforeach()
if(in_file GREATER 0)
  hotset_write_policies()
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/library_policies.cpp CONTENT [[
// Generated from cmake/hotset_policies.cmake.
#include "hotset/registry/policy_registry.hpp"

namespace hotset {

@declarations@
namespace {
policy_registry library_policies() {
  policy_registry out;
@calls@  return out;
}
}  // namespace

policy_registry& policies() {
  static policy_registry all = library_policies();
  return all;
}

}  // namespace hotset
]] @ONLY)

file(GLOB hotset_policies_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/registry/*.cpp)
add_library(hotset_policies STATIC ${hotset_policies_sources} ${generated} ${PROJECT_BINARY_DIR}/library_policies.cpp)
add_library(hotset::policies ALIAS hotset_policies)
set_target_properties(hotset_policies PROPERTIES EXPORT_NAME policies POSITION_INDEPENDENT_CODE ON)
target_link_libraries(hotset_policies PUBLIC hotset::hotset)
if(NOT PROJECT_IS_TOP_LEVEL AND NOT HOTSET_INSTALL)
  # Takes a minute to compile, so it is built only if a target links it.
  set_target_properties(hotset_policies PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
hotset_target_warnings(hotset_policies)
