// SPDX-License-Identifier: Apache-2.0
// Checks every header against the rules. For each rule, also checks a text that violates it.
#include "header_rules.hpp"

#include <cstddef>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace {

using hotset_rules::breaches;
using hotset_rules::header;

const std::filesystem::path include_folder =
    std::filesystem::path(HOTSET_SOURCE_DIR) / "include" / "hotset";

template <class Rule>
void expect_every_header_to_obey(Rule rule) {
  const std::vector<header> headers = hotset_rules::read_headers(include_folder);
  ASSERT_FALSE(headers.empty());
  for (const header& h : headers) {
    for (const std::string& breach : rule(h)) ADD_FAILURE() << breach;
  }
}

std::string include_of(const std::string& name) { return "#include \"" + name + "\"\n"; }

TEST(headers, include_only_lower_floors_and_their_own_folder) {
  expect_every_header_to_obey(hotset_rules::floor_breaches);
}

TEST(headers, include_only_the_standard_library_and_hotset_but_at_the_edges) {
  expect_every_header_to_obey(hotset_rules::foreign_include_breaches);
}

TEST(headers, open_with_licence_pragma_once_and_a_sentence) {
  expect_every_header_to_obey(hotset_rules::opening_breaches);
}

TEST(headers, of_policies_say_rule_source_deviations_exactness_and_cost) {
  expect_every_header_to_obey(hotset_rules::policy_breaches);
}

TEST(headers, of_paging_and_cache_are_short_enough_to_be_read_at_once) {
  expect_every_header_to_obey(hotset_rules::length_breaches);
}

TEST(headers, have_no_declaration_that_its_comment_breaks_in_two) {
  expect_every_header_to_obey(hotset_rules::comment_breaches);
}

TEST(headers, let_no_caller_drop_a_status_in_silence) {
  expect_every_header_to_obey(hotset_rules::dropped_status_breaches);
}

TEST(headers, reach_the_check_of_the_language_before_any_code) {
  expect_every_header_to_obey(hotset_rules::language_breaches);
}

/// A folder has one subject. Unrelated headers need a folder or a subfolder of their own.
TEST(rooms, have_some_fifteen_headers_each) {
  constexpr std::size_t most = 16;
  const std::set<std::string> lists = {"eviction"};  // of policies, one a header
  std::map<std::string, std::size_t> headers;
  for (const auto& h : hotset_rules::read_headers(include_folder))
    ++headers[std::filesystem::path(h.path).parent_path().generic_string()];
  for (const auto& [folder, count] : headers)
    EXPECT_TRUE(count <= most || lists.contains(folder)) << folder << " has " << count;
}

/// docs/architecture.md names the header of each of ten rules; CONTRIBUTING.md names files for newcomers.
TEST(rooms, have_the_files_that_the_documents_name) {
  const std::filesystem::path root(HOTSET_SOURCE_DIR);
  const std::regex rule(R"(^\| .+ \| `([a-z_/]+/)` \| `([a-z_]+\.hpp)` \|$)");
  const std::regex answer(R"(^\| .+\? \| `([a-z_/]+/)` \| `([a-z_/.]+)` \|$)");
  std::size_t rules = 0;
  std::size_t answers = 0;
  std::smatch parts;
  const auto lines = [&](const char* document) {
    return hotset_rules::lines_of(hotset_rules::text_of(root / document));
  };
  for (const auto& line : lines("docs/architecture.md")) {
    if (!std::regex_match(line, parts, rule)) continue;
    ++rules;
    EXPECT_TRUE(std::filesystem::exists(include_folder / parts[1].str() / parts[2].str())) << line;
  }
  for (const auto& line : lines("CONTRIBUTING.md")) {
    if (!std::regex_match(line, parts, answer)) continue;
    ++answers;
    EXPECT_TRUE(std::filesystem::is_regular_file(root / parts[2].str())) << line;
    EXPECT_TRUE(parts[2].str().starts_with(parts[1].str())) << line;
  }
  EXPECT_EQ(rules, 10U);
  EXPECT_EQ(answers, 5U);
}

struct include_case {
  std::string from;
  std::string to;
  bool allowed;
};

TEST(rooms, that_the_rules_name_have_headers) {
  std::set<std::string> with_headers;
  for (const auto& h : hotset_rules::read_headers(include_folder))
    with_headers.insert(hotset_rules::folder_of(h.path));
  for (const auto& [room, floor] : hotset_rules::rooms())
    EXPECT_TRUE(with_headers.contains(room)) << room;
  for (const auto& room : hotset_rules::policy_rooms())
    EXPECT_TRUE(hotset_rules::rooms().contains(room)) << room;
}

/// Number of violations of a rule in a header's text.
template <class Rule>
std::size_t broken(Rule rule, const std::string& text, const std::string& path = "core/a.hpp") {
  return rule({path, text}).size();
}

TEST(floor_rule, refuses_includes_of_higher_floors_and_other_folders) {
  const std::vector<include_case> cases = {
      {"admission/x.hpp", "eviction/order/recency_log.hpp", true},
      {"eviction/lru.hpp", "eviction/lfu.hpp", true},
      {"policy/eviction_policy.hpp", "core/visit_event.hpp", true},
      {"core/ids.hpp", "version.hpp", true},
      {"cache/slot_cache.hpp", "paging/pager.hpp", true},
      {"lab/program.hpp", "cache/slot_cache.hpp", true},
      {"core/ids.hpp", "policy/eviction_policy.hpp", false},          // up
      {"policy/x.hpp", "paging/residency/slot_map.hpp", false},       // up
      {"predict/x.hpp", "trace/routing_trace.hpp", false},            // sideways on floor 2
      {"eviction/lru.hpp", "prefetch/popular.hpp", false},            // sideways on floor 3
      {"paging/pager.hpp", "cache/slot_cache.hpp", false},            // up
      {"planning/control/marginal_value.hpp", "cache/x.hpp", false},  // sideways on floor 6
      {"cache/slot_cache.hpp", "lab/program.hpp", false},             // into the laboratory
      {"eviction/lru.hpp", "attic/x.hpp", false},  // a room that the house has not
      {"attic/x.hpp", "core/ids.hpp", false},
  };
  for (const include_case& c : cases) {
    const breaches found = hotset_rules::floor_breaches({c.from, include_of("hotset/" + c.to)});
    EXPECT_EQ(found.empty(), c.allowed) << c.from << " -> " << c.to;
  }
}

TEST(floor_rule, sees_indented_and_angled_includes) {
  const std::string text = "#if 1\n#  include <hotset/paging/pager.hpp>\n#endif\n";
  EXPECT_EQ(hotset_rules::floor_breaches({"core/ids.hpp", text}).size(), 1U);
}

TEST(foreign_include_rule, refuses_libraries_and_relative_names) {
  const auto rule = hotset_rules::foreign_include_breaches;
  EXPECT_EQ(broken(rule, "#include <cstdint>\n#include <string_view>\n"), 0U);
  EXPECT_EQ(broken(rule, "#include <fmt/core.h>\n", "cuda/a.hpp"), 0U);
  for (const char* bad :
       {"#include <fmt/core.h>\n", "#include <Eigen/Core>\n", "#include <cuda_runtime.h>\n",
        "#include <unistd.h>\n", "#include \"ids.hpp\"\n"})
    EXPECT_EQ(broken(rule, bad), 1U) << bad;
}

TEST(foreign_include_rule, allows_a_system_header_by_name_for_one_header_only) {
  const auto rule = hotset_rules::foreign_include_breaches;
  const std::string one = "transfer/memory/host_virtual_memory.hpp";
  EXPECT_EQ(broken(rule, "#include <sys/mman.h>\n", one), 0U);
  EXPECT_EQ(broken(rule, "#include <sys/stat.h>\n", one), 1U);
  EXPECT_EQ(broken(rule, "#include \"sys/mman.h\"\n", one), 1U);
  EXPECT_EQ(broken(rule, "#include <sys/mman.h>\n", "transfer/memory/elastic_arrays.hpp"), 1U);
}

TEST(foreign_include_rule, allows_nothing_that_no_header_includes) {
  std::set<std::pair<std::string, std::string>> included;
  for (const auto& h : hotset_rules::read_headers(include_folder))
    for (const auto& line : hotset_rules::includes_of(h.text)) included.emplace(h.path, line.name);
  for (const auto& allowed : hotset_rules::allowed_foreign_includes())
    EXPECT_TRUE(included.contains(allowed))
        << allowed.first << " does not include <" << allowed.second << ">";
}

TEST(opening_rule, refuses_every_missing_part) {
  const std::string spdx = "// SPDX-License-Identifier: Apache-2.0\n";
  const std::string once = "#pragma once\n";
  const std::string sentence = "/// What this is.\n";
  const std::string rest = "\n#include <cstdint>\nint declared();\n";
  const auto rule = hotset_rules::opening_breaches;
  EXPECT_EQ(broken(rule, spdx + once + sentence + rest), 0U);
  EXPECT_EQ(broken(rule, spdx + once + "\n" + sentence + rest), 0U);
  for (const std::string& bad :
       {std::string{}, once + sentence + rest, spdx + sentence + rest, spdx + once + rest,
        spdx + once + "int declared();\n" + sentence, spdx + once + "///\n" + rest,
        spdx + once + "/// no full stop\n" + rest}) {
    EXPECT_EQ(broken(rule, bad), 1U) << bad;
  }
}

TEST(comment_rule, refuses_a_comment_behind_a_declaration_of_two_lines) {
  for (const std::string good :
       {"int a = 0;  ///< one\n", "/// One.\nint a = 0;\n", "int a;\nint b = 0;  ///< one\n",
        "int a = 0;  ///< one, and\n           ///< more\n",
        "void f(int a,  ///< one\n"
        "       int b);\n",
        "struct s {\n  int a = 0;  ///< one\n};\n", "\nint a = 0;  ///< one\n"})
    EXPECT_EQ(broken(hotset_rules::comment_breaches, good), 0U) << good;
  for (const std::string bad :
       {"int a =\n    0;  ///< one\n", "std::vector<int>\n    a{};  ///< one\n"})
    EXPECT_EQ(broken(hotset_rules::comment_breaches, bad), 1U) << bad;
}

TEST(dropped_status_rule, refuses_a_struct_with_a_status_that_may_be_dropped) {
  const std::string body = " {\n  status code = status::ok;\n};\n";
  const auto rule = hotset_rules::dropped_status_breaches;
  EXPECT_EQ(broken(rule, "struct done" + body), 1U);
  EXPECT_EQ(broken(rule, "struct [[nodiscard]] done" + body), 0U);
  EXPECT_EQ(broken(rule, "  status plan();\n"), 0U);
}

TEST(length_rule, refuses_a_long_header_of_paging_or_cache_and_no_other) {
  std::string text;
  for (int line = 0; line < 500; ++line) text += "//\n";
  const auto rule = hotset_rules::length_breaches;
  EXPECT_EQ(broken(rule, text, "paging/a.hpp"), 0U);
  text += "//\n";
  EXPECT_EQ(broken(rule, text, "paging/a.hpp"), 1U);
  EXPECT_EQ(broken(rule, text, "cache/a.hpp"), 1U);
  EXPECT_EQ(broken(rule, text), 0U);
}

TEST(language_rule, refuses_a_header_that_includes_only_others) {
  const auto rule = hotset_rules::language_breaches;
  EXPECT_EQ(broken(rule, "#include <vector>\n"), 1U);
  EXPECT_EQ(broken(rule, ""), 1U);
  EXPECT_EQ(broken(rule, "#include \"hotset/version.hpp\"\n"), 0U);
  EXPECT_EQ(broken(rule, "#include <vector>\n#include \"hotset/core/ids.hpp\"\n"), 0U);
}

TEST(policy_rule, refuses_every_missing_or_empty_label) {
  const std::vector<std::string> said = {"/// Rule: oldest.\n", "/// Source: none\n",
                                         "/// Deviations: none\n", "/// Exact: yes\n",
                                         "/// Cost: O(1)\n"};
  std::string whole;
  for (const std::string& line : said) whole += line;
  EXPECT_TRUE(hotset_rules::policy_breaches({"eviction/a.hpp", whole}).empty());
  EXPECT_TRUE(hotset_rules::policy_breaches({"core/a.hpp", ""}).empty());
  for (const std::string& left_out : said) {
    std::string text = whole;
    const auto at = text.find(left_out);
    text.erase(at, left_out.size());
    EXPECT_EQ(hotset_rules::policy_breaches({"admission/a.hpp", text}).size(), 1U) << left_out;
    text.insert(at, left_out.substr(0, left_out.find(':') + 1) + "\n");
    EXPECT_EQ(hotset_rules::policy_breaches({"admission/a.hpp", text}).size(), 1U) << left_out;
  }
}

}  // namespace
