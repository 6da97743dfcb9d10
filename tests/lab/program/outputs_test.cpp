// SPDX-License-Identifier: Apache-2.0
// Targets of the programs' outputs: files, links, devices, pipes, standard output; and the files left after an early
// end.
#include <sys/stat.h>
#include <unistd.h>

#include "run_program.hpp"

namespace outputs_test {
namespace {

using testing::HasSubstr;
using names = std::vector<std::string>;

class outputs : public hotset_test::command_line {
 protected:
  [[nodiscard]] mode_t mode_of(const char* name) const {
    struct stat facts {};
    EXPECT_EQ(::stat(path(name).c_str(), &facts), 0) << name;
    return facts.st_mode;
  }
  /// A link in place of /dev/stdout, so that a faulty program causes no damage: tests never write to /dev by name.
  void link_standard_output() const {
    std::filesystem::create_symlink("/proc/self/fd/1", path("stdout"));
  }
  /// Makes a device of major number 1 in the folder, if this machine permits it.
  [[nodiscard]] bool make_device(const std::string& name, int minor) const {
    const auto made = shell("mknod -m 666 " + name + " c 1 " + std::to_string(minor) +
                            " && : 2>/dev/null 1<>" + name);
    return made.code == 0;
  }
};

constexpr const char* small = "--layers 2 --experts 8 --top-k 2 --tokens 20 --seed 3";

TEST_F(outputs, a_device_stays_a_device) {
  if (!make_device("null", 3)) GTEST_SKIP() << "no device can be made here";
  make_trace("t.trace");
  for (const std::string& command :
       {"synth null " + std::string(small), std::string("synth-requests null"),
        std::string("import t.trace null"), std::string("export t.trace null --to native"),
        std::string("export t.trace null --to oracle-general"),
        std::string("simulate t.trace --out null --decisions null"),
        std::string("curve t.trace --out null")}) {
    (void)out_of(command);
    EXPECT_TRUE(S_ISCHR(mode_of("null"))) << command;
    EXPECT_EQ(files(), (names{"null", "t.trace"}));
  }
}

TEST_F(outputs, links_are_followed_and_stay) {
  make_trace("want.trace");
  const std::string same = std::string(small) + " --prefill 4";
  write("old.trace", "earlier");
  const auto listed = out_of_shell(
      "mkdir d; ln -s ../old.trace d/link; hotset synth d/link " + same +
      " && test -L d/link && cmp old.trace want.trace; ln -s new.trace dangling; hotset synth "
      "dangling " +
      same + " && test -L dangling && cmp new.trace want.trace; ls d");
  EXPECT_THAT(listed, testing::EndsWith("\nlink\n"));
  EXPECT_EQ(files(), (names{"d", "dangling", "new.trace", "old.trace", "want.trace"}));
  const auto loop = shell("ln -s b a; ln -s a b; hotset synth a");
  EXPECT_EQ(loop.code, 1);
  EXPECT_THAT(loop.err,
              HasSubstr("hotset: a: cannot be created: Too many levels of symbolic links"));
}

TEST_F(outputs, the_mode_is_kept_and_a_new_file_obeys_the_umask) {
  (void)out_of_shell(
      "umask 022; echo earlier >t.trace; chmod 600 t.trace; hotset synth t.trace && hotset "
      "synth new.trace && umask 077 && hotset synth own.trace && echo earlier >group.json && "
      "chmod 664 group.json && hotset curve t.trace --out group.json");
  EXPECT_EQ(mode_of("t.trace") & 07777U, 0600U);
  EXPECT_EQ(mode_of("new.trace") & 07777U, 0644U);
  EXPECT_EQ(mode_of("own.trace") & 07777U, 0600U);
  EXPECT_EQ(mode_of("group.json") & 07777U, 0664U);
}

TEST_F(outputs, the_owner_is_kept) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make files of others";
  write("t.trace", "earlier");
  ASSERT_EQ(::chown(path("t.trace").c_str(), 1234, 5678), 0);
  (void)out_of("synth t.trace");
  struct stat facts {};
  ASSERT_EQ(::stat(path("t.trace").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_uid, 1234U);
  EXPECT_EQ(facts.st_gid, 5678U);
}

TEST_F(outputs, a_file_that_may_not_be_written_is_not_replaced) {
  const std::string as_other =
      ::geteuid() == 0
          ? "chmod 777 .; setpriv --reuid 1234 --regid 1234 --clear-groups '" HOTSET_CLI "'"
          : "hotset";
  write("t.trace", "earlier");
  const auto result = shell("chmod 444 t.trace; " + as_other + " synth t.trace");
  if (result.code == 127) GTEST_SKIP() << "no setpriv here";
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("hotset: t.trace: cannot be written: Permission denied"));
  EXPECT_EQ(read("t.trace"), "earlier");
}

TEST_F(outputs, a_dash_is_standard_output_everywhere) {
  make_trace("t.trace");
  link_standard_output();
  const std::string same = std::string(small) + " --prefill 4";
  for (const std::string& to : {std::string("-"), std::string("stdout")}) {
    SCOPED_TRACE(to);
    const auto synth = run("synth " + to + " " + same);
    EXPECT_EQ(synth.code, 0);
    EXPECT_EQ(synth.out, read("t.trace"));
    EXPECT_THAT(synth.err, HasSubstr("24 tokens, 2 layers"));
    EXPECT_EQ(run("import t.trace " + to).out, synth.out);
    EXPECT_EQ(run("export t.trace " + to + " --to native").out, synth.out);
    EXPECT_EQ(run("curve t.trace --out " + to).out, run("curve t.trace").out);
    EXPECT_EQ(run("simulate t.trace --csv --out " + to).out, run("simulate t.trace --csv").out);
    const auto json = run("simulate t.trace --json --out " + to).out;
    const auto plain = run("simulate t.trace --json").out;
    EXPECT_EQ(json.substr(json.find("\"trace\":")), plain.substr(plain.find("\"trace\":")));
    EXPECT_EQ(run("plan --model qwen3-30b-a3b --vram 24GiB --out " + to).out,
              run("plan --model qwen3-30b-a3b --vram 24GiB").out);
    const auto requests = run("synth-requests " + to);
    EXPECT_TRUE(requests.out.starts_with("{")) << requests.out.substr(0, 80);
    EXPECT_THAT(requests.err, HasSubstr(" requests, "));
    (void)out_of("export t.trace t.oracle --to oracle-general");
    EXPECT_EQ(run("export t.trace " + to + " --to oracle-general").out, read("t.oracle"));
    const auto decisions = run("simulate t.trace --slots 4 --out ignored --decisions " + to);
    EXPECT_TRUE(decisions.out.starts_with("{")) << decisions.out.substr(0, 80);
  }
  EXPECT_EQ(files(), (names{"ignored", "stdout", "t.oracle", "t.trace"}));
}

TEST_F(outputs, standard_output_that_is_a_file_is_appended_to) {
  make_trace("t.trace");
  link_standard_output();
  const auto last = out_of_shell(
      "{ echo before; hotset curve t.trace --csv --out stdout; echo after; } >all; "
      "{ echo before; hotset curve t.trace --csv; echo after; } >want; cmp all want && "
      "exec 5>five && hotset curve t.trace --csv --out /proc/self/fd/5 && echo more >&5 && "
      "tail -n 1 five");
  EXPECT_EQ(last, "more\n");
}

TEST_F(outputs, a_dot_slash_dash_is_a_file) {
  (void)out_of("synth ./-");
  EXPECT_EQ(files(), names{"-"});
}

TEST_F(outputs, binary_to_a_terminal_is_refused_and_text_is_not) {
  if (shell("script -qec true /dev/null").code != 0) GTEST_SKIP() << "no script(1) here";
  make_trace("t.trace");
  if (shell("mknod tty c 5 0 && : 2>/dev/null").code != 0) GTEST_SKIP() << "no device can be made";
  for (const char* command : {"synth -", "import t.trace -", "export t.trace - --to oracle-general",
                              "history t.trace --out -", "synth tty"}) {
    const auto result =
        shell("script -qec \"'" HOTSET_CLI "' " + std::string(command) + "\" /dev/null </dev/null");
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_THAT(result.out, HasSubstr("is a terminal; accepted: a file or a pipe")) << command;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  }
  EXPECT_THAT(
      out_of_shell("script -qec \"'" HOTSET_CLI "' curve t.trace --out -\" /dev/null </dev/null"),
      HasSubstr("accesses"));
}

TEST_F(outputs, a_folder_is_refused_by_the_name_that_was_given) {
  std::filesystem::create_directory(path("d"));
  refused("synth d", 1, {"d: is a folder; accepted: a file"});
  refused("synth no/where.trace", 1,
          {"no/where.trace: cannot be created: No such file or directory; accepted: a path in a "
           "folder that exists"});
  EXPECT_EQ(files(), names{"d"});
}

TEST_F(outputs, the_longest_name_that_a_file_can_have) {
  const std::string longest(255, 'x');
  (void)out_of("synth " + longest);
  EXPECT_EQ(files(), names{longest});
}

TEST_F(outputs, a_full_file_system_is_reported) {
  const auto result = shell(
      "mkdir d; unshare -m bash -c \"mount -t tmpfs -o size=64k none d || exit 99; echo earlier "
      ">d/t; '" HOTSET_CLI "' synth d/t --tokens 20000; code=\\$?; cat d/t; ls d; exit \\$code\"");
  if (result.code == 99 || result.code == 127 || result.err.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, testing::MatchesRegex("hotset: d/t: cannot be written: No space left on "
                                                "device: [0-9]+ of [0-9]+ bytes .* fitted\n"));
  EXPECT_EQ(result.out, "earlier\nt\n") << "the earlier file, and nothing beside it";
}

TEST_F(outputs, a_file_size_limit_is_a_failure_that_leaves_nothing) {
  const auto result = shell("ulimit -f 4; hotset synth t.trace --tokens 20000");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("t.trace: cannot be written: File too large: 4096 of "));
  EXPECT_EQ(files(), names{});
}

TEST_F(outputs, a_closed_standard_output_is_an_error_and_no_file_takes_its_place) {
  make_trace("t.trace");
  const auto result =
      shell("hotset synth x.trace " + std::string(small) +
            " --prefill 4 >&-; code=$?; cmp x.trace t.trace || exit 99; exit $code");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("hotset: standard output: cannot be written"));
}

TEST_F(outputs, closing_a_named_pipes_reader_is_no_error) {
  const auto result = shell(
      "mkfifo pipe; timeout 60 head -c 10 pipe >/dev/null & hotset synth pipe --tokens 20000; "
      "code=$?; wait; exit $code");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
}

/// Starts hotset in the background and sends it a signal once its unfinished file exists.
std::string interrupted(const std::string& arguments, const std::string& signal) {
  return "set -m; '" HOTSET_CLI "' " + arguments +
         " & for i in {1..1000}; do ls -A | grep -q partial && break; sleep 0.01; done; "
         "ls -A | grep -c partial; kill -" +
         signal + " $!; wait $! 2>/dev/null; code=$?; ls; exit $code";
}

TEST_F(outputs, an_interrupted_program_leaves_nothing_and_ends_by_the_signal) {
  const std::vector<std::pair<std::string, int>> signals{
      {"INT", 130}, {"TERM", 143}, {"HUP", 129}, {"QUIT", 131}};
  for (const auto& [signal, code] : signals) {
    SCOPED_TRACE(signal);
    write("t.trace", "earlier");
    const auto result =
        shell("ulimit -c 0; " + interrupted("synth t.trace --tokens 100000000", signal));
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "1\nt.trace\n");
    EXPECT_EQ(read("t.trace"), "earlier");
  }
}

TEST_F(outputs, all_outputs_of_a_command_are_removed) {
  make_trace("t.trace");
  // The pipe has no reader, so the replay stops in the middle.
  const auto result =
      shell("mkfifo pipe; exec 3<>pipe; hotset synth long.trace --tokens 20000; " +
            interrupted("simulate long.trace --slots 10% --link 1GB/s --timeline pipe "
                        "--decisions d.json --out o.json",
                        "TERM"));
  EXPECT_EQ(result.code, 143) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n2\nlong.trace\npipe\nt.trace\n"));
}

TEST_F(outputs, an_ignored_signal_stays_ignored) {
  make_trace("t.trace");
  // The command has opened its output and waits for its input.
  (void)out_of_shell(
      "mkfifo in; trap '' HUP; hotset import in x.trace & for i in {1..1000}; do ls -A | grep -q "
      "partial && break; sleep 0.01; done; kill -HUP $!; cat t.trace >in; wait $!");
  EXPECT_EQ(files(), (names{"in", "t.trace", "x.trace"}));
}

}  // namespace
}  // namespace outputs_test
