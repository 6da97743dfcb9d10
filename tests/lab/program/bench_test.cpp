// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "run_program.hpp"

namespace bench_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class bench_command : public hotset_test::traced_command_line {
 protected:
  [[nodiscard]] std::ptrdiff_t lines_of(const std::string& file) const {
    const auto text = read(file);
    return std::count(text.begin(), text.end(), '\n');
  }
};

const std::string few = " --eviction lfu --scope shared --slots 25%,50% --out r.csv";

TEST_F(bench_command, writes_a_row_for_each_cache_and_policy) {
  const auto result = run("bench t.trace" + few);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("1 trace, 2 caches\n"));
  EXPECT_THAT(result.out, HasSubstr("above belady  host ns a visit  synthetic\n"));
  EXPECT_EQ(lines_of("r.csv"), 1 + 2 * 3) << "lru and belady are added";
  const auto sweep = json_of("simulate t.trace --eviction lru,lfu,belady --slots 25%,50% --json");
  EXPECT_THAT(read("r.csv"), HasSubstr(sweep["generator"]["trace_hash"].get<std::string>()));
  const auto lfu = sweep["results"][4];
  EXPECT_THAT(read("r.csv"), HasSubstr(",shared,50%,8,lfu,false," + lfu["accesses"].dump() + ',' +
                                       lfu["misses"].dump() + ',' + lfu["fills"].dump() + ','));
}

TEST_F(bench_command, by_default_replays_the_policies_sizes_and_scopes_of_a_ranking) {
  const auto result = run("bench t.trace --out r.csv");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("t.trace: not replayed: popularity: "));
  const auto ranking = json_of("simulate t.trace --rank --json");
  const auto cells = static_cast<std::ptrdiff_t>(ranking["cells"].size());
  EXPECT_EQ(lines_of("r.csv"), 1 + cells * static_cast<std::ptrdiff_t>(ranking["policies"].size()));
}

TEST_F(bench_command, keeps_rows_that_it_has) {
  (void)out_of("bench t.trace" + few);
  (void)out_of_shell("sed -i 's/,[0-9]*,\\(0[.][0-9.]*\\)$/,12345,\\1/' r.csv");
  const auto before = read("r.csv");
  EXPECT_THAT(before, HasSubstr(",12345,"));
  const auto again = out_of("bench t.trace" + few);
  EXPECT_EQ(read("r.csv"), before) << "no replay has measured a new time";
  EXPECT_THAT(again, HasSubstr("12345"));
  (void)out_of("bench t.trace --eviction fifo --scope shared --slots 50% --out r.csv");
  EXPECT_TRUE(read("r.csv").starts_with(before));
  EXPECT_EQ(lines_of("r.csv"), 1 + 2 * 3 + 1);
}

TEST_F(bench_command, an_interrupted_run_is_continued) {
  (void)out_of("bench t.trace" + few);
  const auto whole = read("r.csv");
  (void)out_of_shell("head -n 4 r.csv >cut.csv && mv cut.csv r.csv");
  (void)out_of("bench t.trace" + few);
  EXPECT_EQ(lines_of("r.csv"), 1 + 2 * 3);
  EXPECT_TRUE(read("r.csv").starts_with(whole.substr(0, whole.find(",50%,"))));
}

TEST_F(bench_command, rows_of_another_version_are_kept_beside) {
  (void)out_of("bench t.trace" + few);
  (void)out_of_shell("sed -i 's/,0[.][0-9.]*$/,0.0.9/' r.csv");
  const auto table = out_of("bench t.trace" + few);
  EXPECT_THAT(table, HasSubstr("1 trace, 2 caches\n"));
  EXPECT_THAT(table, HasSubstr("not shown: 6 rows of other versions in r.csv\n"));
  EXPECT_EQ(lines_of("r.csv"), 1 + 2 * 2 * 3);
}

TEST_F(bench_command, takes_the_traces_of_folders) {
  (void)out_of_shell("mkdir -p all/deep && mv t.trace all/deep/");
  (void)out_of(
      "synth all/u.trace --layers 2 --experts 8 --top-k 2 --tokens 20 --seed 5 --name other");
  write("all/README", "no trace\n");
  write("all/bad.trace", std::string("\x20\0\0\0\0\0\0\0{\"broken\": 0}   ", 24));
  const auto result = run("bench all" + few);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("hotset: all: no traces: README\n"));
  EXPECT_THAT(result.err, HasSubstr("hotset: left out: all/bad.trace: "));
  EXPECT_THAT(result.out, HasSubstr("2 traces, 4 caches\n"));
  EXPECT_EQ(lines_of("r.csv"), 1 + 2 * 2 * 3);
}

TEST_F(bench_command, names_caches_that_are_too_small) {
  (void)out_of("synth s.trace --layers 2 --experts 4 --top-k 2 --tokens 20 --seed 1 --name small");
  const auto result =
      run("bench t.trace s.trace --eviction lru --scope per-layer --slots 25% --out r.csv");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("s.trace: not replayed: scope per-layer, size 25%: fewer slots than"));
  EXPECT_THAT(result.out, Not(HasSubstr("small")));
  refused("bench s.trace --slots 1 --out none.csv --scope shared --eviction nope", 2, {"'nope'"});
  EXPECT_EQ(run("bench s.trace --slots 1 --out none.csv").code, 3);
}

TEST_F(bench_command, refuses_what_cannot_keep_results) {
  refused("bench t.trace --out -", 2, {"--out", "a regular file"});
  refused("bench t.trace --out /dev/null", 2, {"--out", "a regular file"});
  refused("bench t.trace --out no/r.csv", 1, {"no/r.csv"});
  refused("bench t.trace", 2, {"--out"});
  refused("bench none.trace --out r.csv", 4, {"none.trace"});
  write("notes.csv", "a,b\n1,2\n");
  refused("bench t.trace --out notes.csv", 4, {"notes.csv: line 1: the header is 'a,b'"});
  (void)out_of_shell("mkdir empty");
  refused("bench empty --out r.csv", 4, {"empty: the folder holds no trace"});
  EXPECT_THAT(files(), ElementsAre("empty", "notes.csv", "t.trace"));
}

}  // namespace
}  // namespace bench_test
