// SPDX-License-Identifier: Apache-2.0
// Holds every header to the rules, and shows for each rule a text that breaks it.
#include "header_rules.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
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

/// One idea to a folder: what does not fit is a room, or a part of one, of its own.
TEST(rooms, have_some_fifteen_headers_each) {
  constexpr std::size_t most = 16;
  const std::set<std::string> lists = {"eviction"};  // of policies, one a header
  std::map<std::string, std::size_t> headers;
  for (const auto& h : hotset_rules::read_headers(include_folder))
    ++headers[std::filesystem::path(h.path).parent_path().generic_string()];
  for (const auto& [folder, count] : headers)
    EXPECT_TRUE(count <= most || lists.contains(folder)) << folder << " has " << count;
}

/// Who looks for a rule finds its room in a listing: docs/architecture.md names ten.
TEST(rooms, are_where_the_table_of_rules_says) {
  const auto rows = hotset_rules::table_of_rules(
      hotset_rules::text_of(std::filesystem::path(HOTSET_SOURCE_DIR) / "docs/architecture.md"));
  EXPECT_EQ(rows.size(), 10U);
  const auto headers = hotset_rules::read_headers(include_folder);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.rule);
    EXPECT_TRUE(hotset_rules::rooms().contains(hotset_rules::folder_of(row.folder))) << row.folder;
    EXPECT_EQ(std::count_if(headers.begin(), headers.end(),
                            [&](const header& h) { return h.path == row.folder + row.header; }),
              1)
        << row.folder << row.header;
  }
}

/// The stranger's test of CONTRIBUTING.md: its last column names files.
TEST(rooms, have_the_files_that_answer_a_stranger) {
  const std::filesystem::path root(HOTSET_SOURCE_DIR);
  static const std::regex row(R"(^\| .+\? \| `([a-z_/]+/)` \| `([a-z_/.]+)` \|$)");
  std::size_t rows = 0;
  for (const auto& line : hotset_rules::lines_of(hotset_rules::text_of(root / "CONTRIBUTING.md"))) {
    std::smatch parts;
    if (!std::regex_match(line, parts, row)) continue;
    ++rows;
    EXPECT_TRUE(std::filesystem::is_regular_file(root / parts[2].str())) << line;
    EXPECT_EQ(parts[2].str().rfind(parts[1].str(), 0), 0U) << line;
  }
  EXPECT_EQ(rows, 5U);
}

TEST(rule_table, is_read_from_its_heading_to_the_next) {
  const std::string text =
      "| a | `x/` | `y.hpp` |\n## Where a rule stands\n\n| rule | folder | header "
      "|\n|---|---|---|\n"
      "| One, two | `eviction/` | `lru.hpp` |\n\n## Next\n| b | `x/` | `y.hpp` |\n";
  const auto rows = hotset_rules::table_of_rules(text);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].rule, "One, two");
  EXPECT_EQ(rows[0].folder, "eviction/");
  EXPECT_EQ(rows[0].header, "lru.hpp");
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

TEST(floor_rule, refuses_what_looks_up_or_sideways) {
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
  EXPECT_TRUE(
      hotset_rules::foreign_include_breaches({"core/a.hpp", "#include <cstdint>\n"}).empty());
  EXPECT_TRUE(
      hotset_rules::foreign_include_breaches({"cuda/a.hpp", "#include <fmt/core.h>\n"}).empty());
  for (const char* bad :
       {"#include <fmt/core.h>\n", "#include <Eigen/Core>\n", "#include <cuda_runtime.h>\n",
        "#include <unistd.h>\n", "#include \"ids.hpp\"\n"}) {
    EXPECT_EQ(hotset_rules::foreign_include_breaches({"core/a.hpp", bad}).size(), 1U) << bad;
  }
}

TEST(foreign_include_rule, allows_by_name_what_one_header_needs_and_to_no_other) {
  const auto refused = [](const std::string& path, const std::string& text) {
    return hotset_rules::foreign_include_breaches({path, text}).size();
  };
  EXPECT_EQ(refused("transfer/memory/host_virtual_memory.hpp", "#include <sys/mman.h>\n"), 0U);
  EXPECT_EQ(refused("transfer/memory/host_virtual_memory.hpp", "#include <sys/stat.h>\n"), 1U);
  EXPECT_EQ(refused("transfer/memory/host_virtual_memory.hpp", "#include \"sys/mman.h\"\n"), 1U);
  EXPECT_EQ(refused("transfer/memory/elastic_arrays.hpp", "#include <sys/mman.h>\n"), 1U);
}

TEST(foreign_include_rule, allows_nothing_that_no_header_includes) {
  for (const auto& allowed : hotset_rules::allowed_foreign_includes()) {
    const auto headers = hotset_rules::read_headers(include_folder);
    EXPECT_TRUE(std::any_of(headers.begin(), headers.end(),
                            [&](const header& h) {
                              const auto lines = hotset_rules::includes_of(h.text);
                              return h.path == allowed.first &&
                                     std::any_of(lines.begin(), lines.end(), [&](const auto& line) {
                                       return line.name == allowed.second;
                                     });
                            }))
        << allowed.first << " does not include <" << allowed.second << ">";
  }
}

TEST(opening_rule, refuses_every_missing_part) {
  const std::string spdx = "// SPDX-License-Identifier: Apache-2.0\n";
  const std::string once = "#pragma once\n";
  const std::string sentence = "/// What this is.\n";
  const std::string rest = "\n#include <cstdint>\nint declared();\n";
  EXPECT_TRUE(
      hotset_rules::opening_breaches({"core/a.hpp", spdx + once + sentence + rest}).empty());
  EXPECT_TRUE(
      hotset_rules::opening_breaches({"core/a.hpp", spdx + once + "\n" + sentence + rest}).empty());
  for (const std::string& bad :
       {std::string{}, once + sentence + rest, spdx + sentence + rest, spdx + once + rest,
        spdx + once + "int declared();\n" + sentence, spdx + once + "///\n" + rest,
        spdx + once + "/// no full stop\n" + rest}) {
    EXPECT_EQ(hotset_rules::opening_breaches({"core/a.hpp", bad}).size(), 1U) << bad;
  }
}

TEST(comment_rule, refuses_a_comment_behind_a_declaration_of_two_lines) {
  for (const std::string good :
       {"int a = 0;  ///< one\n", "/// One.\nint a = 0;\n", "int a;\nint b = 0;  ///< one\n",
        "int a = 0;  ///< one, and\n           ///< more\n",
        "void f(int a,  ///< one\n"
        "       int b);\n",
        "struct s {\n  int a = 0;  ///< one\n};\n", "\nint a = 0;  ///< one\n"})
    EXPECT_TRUE(hotset_rules::comment_breaches({"core/a.hpp", good}).empty()) << good;
  for (const std::string bad :
       {"int a =\n    0;  ///< one\n", "std::vector<int>\n    a{};  ///< one\n"})
    EXPECT_EQ(hotset_rules::comment_breaches({"core/a.hpp", bad}).size(), 1U) << bad;
}

TEST(dropped_status_rule, refuses_a_struct_with_a_status_that_may_be_dropped) {
  const std::string body = " {\n  status code = status::ok;\n};\n";
  EXPECT_EQ(hotset_rules::dropped_status_breaches({"core/a.hpp", "struct done" + body}).size(), 1U);
  EXPECT_TRUE(
      hotset_rules::dropped_status_breaches({"core/a.hpp", "struct [[nodiscard]] done" + body})
          .empty());
  EXPECT_TRUE(hotset_rules::dropped_status_breaches({"core/a.hpp", "  status plan();\n"}).empty());
}

TEST(length_rule, refuses_a_long_header_of_paging_or_cache_and_no_other) {
  std::string text;
  for (int line = 0; line < 500; ++line) text += "//\n";
  EXPECT_TRUE(hotset_rules::length_breaches({"paging/a.hpp", text}).empty());
  text += "//\n";
  EXPECT_EQ(hotset_rules::length_breaches({"paging/a.hpp", text}).size(), 1U);
  EXPECT_EQ(hotset_rules::length_breaches({"cache/a.hpp", text}).size(), 1U);
  EXPECT_TRUE(hotset_rules::length_breaches({"core/a.hpp", text}).empty());
}

TEST(language_rule, refuses_a_header_that_includes_only_others) {
  const auto refused = [](const std::string& text) {
    return hotset_rules::language_breaches({"core/a.hpp", text}).size();
  };
  EXPECT_EQ(refused("#include <vector>\n"), 1U);
  EXPECT_EQ(refused(""), 1U);
  EXPECT_EQ(refused("#include \"hotset/version.hpp\"\n"), 0U);
  EXPECT_EQ(refused("#include <vector>\n#include \"hotset/core/ids.hpp\"\n"), 0U);
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
