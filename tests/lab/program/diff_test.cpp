// SPDX-License-Identifier: Apache-2.0
#include "run_program.hpp"

namespace diff_test {
namespace {

using hotset_test::read_text;
using hotset_test::write_text;
using nlohmann::ordered_json;
using testing::HasSubstr;
class diff : public hotset_test::command_line {
 protected:
  void SetUp() override {
    command_line::SetUp();
    make_trace("t.trace");
    ASSERT_EQ(run("simulate t.trace --eviction lru,lfu --slots 3,8 --json --out a.json").code, 0);
    root = ordered_json::parse(read_text(path("a.json")));
  }
  void write(const char* name) const { write_text(path(name), root.dump()); }

  ordered_json root;
};

TEST_F(diff, equal_files_are_0) {
  write("b.json");
  const auto result = run("diff a.json b.json");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out,
            "5 rows equal, 0 changed, 0 removed, 0 added\n");  // 4 replays and the trace
}

TEST_F(diff, order_of_rows_does_not_matter) {
  std::reverse(root["results"].begin(), root["results"].end());
  write("b.json");
  EXPECT_EQ(run("diff a.json b.json").code, 0);
}

TEST_F(diff, changed_counters_are_named) {
  auto& changed = root["results"][1];
  changed["hits"] = changed["hits"].get<int>() + 7;
  changed["by_kind"]["decode"]["hits"] = 0;
  changed["per_layer"][1]["accesses"] = 1;
  write("b.json");
  const auto result = run("diff a.json b.json");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "");
  for (const char* text : {"~ synthetic: lfu always shared event-atomic slots 3\n", "  hits: ",
                           " (+7)\n", "  by_kind.decode.hits: ", "  per_layer[1].accesses: ",
                           "4 rows equal, 1 changed, 0 removed, 0 added\n"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST_F(diff, added_removed_and_repeated_rows) {
  root["results"].push_back(root["results"][0]);
  root["results"].erase(1);
  write("b.json");
  const auto result = run("diff a.json b.json");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("- synthetic: lfu always shared event-atomic slots 3\n"));
  EXPECT_THAT(result.out, HasSubstr("+ synthetic: lru always shared event-atomic slots 3 (#2)\n"));
  EXPECT_THAT(result.out, HasSubstr("4 rows equal, 0 changed, 1 removed, 1 added"));
}

TEST_F(diff, other_facts_of_the_trace_are_a_difference) {
  root["trace"]["tokens"] = 1;
  write("b.json");
  const auto result = run("diff a.json b.json");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("~ synthetic\n  tokens: 24 -> 1 (-23)\n"));
}

TEST_F(diff, tolerance_is_a_share_of_the_larger) {
  root["results"][0]["accesses"] = 99;
  write("b.json");
  root["results"][0]["accesses"] = 100;
  write("c.json");
  EXPECT_EQ(run("diff b.json c.json").code, 1);
  EXPECT_EQ(run("diff b.json c.json --tolerance 0.009").code, 1);
  EXPECT_EQ(run("diff b.json c.json --tolerance 0.01").code, 0);
  refused("diff b.json c.json --tolerance 2", 2, {"--tolerance: '2'; accepted: 0..1"});
  refused("diff b.json c.json --tolerance nan", 2, {"--tolerance"});
}

TEST_F(diff, arrays_of_several_traces) {
  ASSERT_EQ(run("simulate t.trace t.trace --slots 4 --json --out two.json").code, 0);
  EXPECT_EQ(run("diff two.json two.json").code, 0);
  EXPECT_EQ(run("diff a.json two.json").code, 1);
}

TEST_F(diff, bad_files_are_4) {
  refused("diff a.json nowhere.json", 4,
          {"nowhere.json: cannot be opened: No such file or directory"});
  refused("diff a.json .", 4, {".: is a folder; accepted: a file or a pipe"});
  write_text(path("b.json"), "{\"schema\": ");
  refused("diff a.json b.json", 4, {"b.json: byte ", "not JSON"});
  write_text(path("b.json"), "{\"schema\":\"other/1\"}");
  refused("diff a.json b.json", 4, {"b.json: ", "other/1", "hotset.simulate/1"});
  write_text(path("b.json"), "17");
  refused("diff a.json b.json", 4, {"b.json: ", "not an object"});
  root["results"][2].erase("eviction");
  write("b.json");
  refused("diff a.json b.json", 4, {"b.json: results[2]", "\"eviction\""});
}

TEST_F(diff, deep_nesting_keys_given_twice_and_huge_numbers_are_refused) {
  write_text(path("b.json"), std::string(1000000, '['));
  refused("diff a.json b.json", 4, {"b.json: nested"});
  const auto text = root.dump();
  const auto with = [&](const std::string& value) {
    auto changed = text;
    write_text(path("b.json"),
               changed.insert(changed.find("\"trace\":{") + 9, "\"x\":" + value + ","));
  };
  with(std::string(100000, '[') + std::string(100000, ']'));
  refused("diff a.json b.json", 4, {"b.json: nested"});
  with("1e400");
  refused("diff a.json b.json", 4, {"b.json: a number is out of range"});
  with("1,\"x\":2");
  refused("diff a.json b.json", 4, {"b.json: key 'x': is there twice"});
  with("18446744073709551616");
  refused("diff a.json b.json", 4, {"b.json: trace.x", "whole number"});
}

TEST_F(diff, rows_are_told_apart_by_every_dimension) {
  const auto result = [&] {
    root["results"][0]["prefetch"] = "previous_step";
    root["results"][0]["link"] = "25GB/s";
    write("b.json");
    return run("diff a.json b.json");
  }();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("prefetch previous_step link 25GB/s\n"));
  EXPECT_THAT(result.out, HasSubstr("1 removed, 1 added"));
}

TEST_F(diff, seconds_and_quality_are_compared_where_they_were_measured) {
  root["results"][0]["ttft_s"] = 1.0;
  root["results"][0]["quality"] = 2.0;
  write("b.json");
  EXPECT_THAT(run("diff a.json b.json").out, testing::AllOf(HasSubstr("  ttft_s: none -> 1\n"),
                                                            HasSubstr("quality: none -> 2\n")));
  root["results"][0]["ttft_s"] = 1.05;
  write("c.json");
  EXPECT_THAT(run("diff b.json c.json").out, HasSubstr("  ttft_s: 1 -> 1.05\n"));
  EXPECT_EQ(run("diff b.json c.json --tolerance 0.1").code, 0);
  root["results"][0]["ttft_s"] = "soon";
  write("c.json");
  refused("diff b.json c.json", 4, {"c.json: results[0].ttft_s: \"soon\"", "a number, or null"});
}

TEST_F(diff, results_from_before_the_dimensions_can_be_compared) {
  for (auto& result : root["results"])
    for (const auto* name : {"preset", "prefetch", "prefetch_guard", "miss", "routing", "precision",
                             "link", "ttft_s", "quality"})
      result.erase(name);
  write("b.json");
  EXPECT_EQ(run("diff a.json b.json").code, 0);
}

TEST_F(diff, counters_must_be_counts) {
  for (const auto& bad :
       {ordered_json(-1), ordered_json(0.5), ordered_json("many"), ordered_json()}) {
    root["results"][0]["hits"] = bad;
    write("b.json");
    refused("diff a.json b.json", 4, {"b.json: results[0].hits: ", bad.dump(), "whole number"});
  }
}

}  // namespace
}  // namespace diff_test
