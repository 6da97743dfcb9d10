// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Policies of one kind by name, one row each.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/text/names.hpp"
#include "hotset/registry/parameters.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset {

/// `Any`: holder of a policy of this kind, chosen at run time.
template <class Any, class Traits>
struct policy_row {
  std::string name;
  Traits traits{};
  /// Reads the parameters. parameters::finish and the config's validate report what is wrong with them.
  std::function<typename Any::config(parameters&, const policy_knowledge&)> make{};
  /// Reads the source of the policy's profile; empty: the policy takes none.
  std::function<std::optional<profile_request>(parameters&)> profile{};
};

/// Reads the parameters of a policy. Its config may have `read(parameters)` or `read(parameters, knowledge)`; without
/// one it takes none.
template <class P>
[[nodiscard]] typename P::config read_config([[maybe_unused]] parameters& from,
                                             [[maybe_unused]] const policy_knowledge& known) {
  using config = typename P::config;
  if constexpr (requires { config::read(from, known); })
    return config::read(from, known);
  else if constexpr (requires { config::read(from); })
    return config::read(from);
  else
    return config{};
}

/// Makes the row of a policy's class. Its config may have `profile_of(parameters)`.
template <class Any, class P>
[[nodiscard]] auto row_of() {
  policy_row<Any, std::remove_const_t<decltype(P::traits)>> row{std::string(P::name), P::traits};
  row.make = [](parameters& from, const policy_knowledge& known) {
    return Any::template holding<P>(read_config<P>(from, known));
  };
  if constexpr (requires(parameters & from) { P::config::profile_of(from); })
    row.profile = [](parameters& from) { return P::config::profile_of(from); };
  return row;
}

/// Refuses a policy that needs a profile if no uses were counted: it would behave like another policy.
template <class Row>
[[nodiscard]] validation check_profile(const Row& row, const policy_spec& spec,
                                       const policy_knowledge& known) {
  if (!row.profile || !known.profile.empty()) return std::nullopt;
  parameters read(spec);
  const auto wanted = row.profile(read);
  if (!wanted) return std::nullopt;
  return error{row.name + " needs the profile '" + printable(wanted->source) +
               "' of a trace, and none was counted; accepted: another policy, or counts in its "
               "config (hotset simulate counts)"};
}

template <class Row>
class policy_list {
 public:
  /// `kind`: as in "unknown eviction policy". Its first word is the folder of dotted names, as in `eviction.lru`.
  explicit policy_list(std::string kind)
      : policy_list(kind, kind.substr(0, kind.find(' ')) + ".") {}
  /// `folder`: prefix of dotted names, with its dot.
  policy_list(std::string kind, std::string folder)
      : kind_(std::move(kind)), folder_(std::move(folder)) {}

  /// Errors: a name that is taken, is empty, or contains ':', '+', '=' or ','.
  [[nodiscard]] validation add(Row row) {
    if (row.name.empty() || row.name.find_first_of(":+=,") != std::string::npos)
      return error{kind_ + " name '" + printable(row.name) +
                   "', accepted: a name without ':', '+', '=' and ','"};
    if (find(row.name) != nullptr)
      return error{kind_ + " name '" + row.name + "' is taken, accepted: another one"};
    rows_.push_back(std::move(row));
    return std::nullopt;
  }

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& row : rows_) out.push_back(row.name);
    return out;
  }
  /// Finds a row by name, with or without the folder; nullptr if there is none.
  [[nodiscard]] const Row* find(std::string_view name) const noexcept {
    if (name.starts_with(folder_)) name.remove_prefix(folder_.size());
    for (const auto& row : rows_)
      if (row.name == name) return &row;
    return nullptr;
  }
  /// Errors: "unknown <kind> '...' (did you mean ...?); accepted: ...<more>".
  [[nodiscard]] result<const Row*> named(std::string_view name, std::string_view more = "") const {
    if (const auto* row = find(name)) return row;
    return unknown_name("unknown " + kind_, name, names(), more);
  }
  /// Returns a valid config of the policy that a text with parameters names.
  template <class R = Row>
  [[nodiscard]] auto make(std::string_view text, const policy_knowledge& known = {}) const
      -> result<decltype(std::declval<const R&>().make(std::declval<parameters&>(), known))> {
    const auto spec = parse_policy(text);
    if (!spec) return spec.error();
    const auto row = named(spec->name);
    if (!row) return row.error();
    if (auto bad = check_profile(**row, *spec, known)) return *std::move(bad);
    parameters read(*spec);
    auto config = (*row)->make(read, known);
    if (auto bad = read.finish()) return *std::move(bad);
    if (auto bad = config.validate()) return *std::move(bad);
    return config;
  }

 private:
  std::string kind_;
  std::string folder_;
  std::vector<Row> rows_;
};

}  // namespace hotset
