// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/engine_timeline.hpp"

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_folder.hpp"

namespace hotset::engine_timeline_test {
namespace {

using support::temporary_folder;
using testing::HasSubstr;
using testing::StartsWith;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}
auto made(const std::string& path) { return *engine_timeline::create(path, "engine"); }

/// Times in milliseconds after `start`.
struct times {
  observed_clock::time_point start = observed_clock::now();
  [[nodiscard]] observed_clock::time_point at(int milliseconds) const {
    return start + std::chrono::milliseconds(milliseconds);
  }
  [[nodiscard]] ended_copy copy(ticket batch, expert_id expert, int begin, int end) const {
    ended_copy out;
    out.what = {.key = {1_layer, expert}, .slot = 3_slot};
    out.batch = batch;
    out.submitted = at(begin);
    out.begin = at(begin);
    out.end = at(end);
    out.arrived = true;
    return out;
  }
};

/// Tracks of the spans whose names begin with `name`, in order.
std::vector<int> tracks_of(const std::string& text, const std::string& name) {
  const std::regex span("\\{\"name\":\"" + name + "[^\"]*\",\"ph\":\"X\",\"pid\":1,\"tid\":(\\d+)");
  std::vector<int> out;
  for (std::sregex_iterator at(text.begin(), text.end(), span), end; at != end; ++at)
    out.push_back(std::stoi((*at)[1]));
  return out;
}

TEST(engine_timeline, has_copies_waits_computations_and_arrows_to_the_wait) {
  const temporary_folder folder;
  const auto timeline = made(folder.file("t.json"));
  const times t;
  timeline->on_copy(t.copy(7, 4_expert, 10, 20));
  timeline->on_copy(t.copy(7, 5_expert, 20, 30));
  timeline->on_copy(t.copy(8, 6_expert, 30, 35));  // of another ticket
  timeline->on_wait({7, t.at(15), t.at(31), nullptr});
  timeline->on_compute({1_layer, 9, 2, t.at(31), t.at(40)});
  ASSERT_FALSE(timeline->finish());
  const auto text = text_of(folder.file("t.json"));
  EXPECT_THAT(text, StartsWith("[{\"name\":\"process_name\""));
  EXPECT_THAT(text, testing::EndsWith("}\n]\n"));
  EXPECT_EQ(count(text, "\"layer 1 expert "), 3U);
  EXPECT_EQ(count(text, "\"name\":\"wait\""), 1U);
  EXPECT_EQ(count(text, "\"dur\":16.000") + count(text, "\"dur\":16000.000"), 1U);
  EXPECT_THAT(text, HasSubstr("\"args\":{\"step\":9,\"tokens\":2}"));
  EXPECT_EQ(count(text, "\"ph\":\"s\""), 2U);
  EXPECT_EQ(count(text, "\"ph\":\"f\""), 2U);
  EXPECT_EQ(count(text, "\"id\":1,"), 2U) << "an arrow has two ends";
}

TEST(engine_timeline, an_arrow_needs_a_copy_of_the_same_backend_that_ended_during_the_wait) {
  const temporary_folder folder;
  const auto timeline = made(folder.file("t.json"));
  const times t;
  timeline->on_copy(t.copy(7, 4_expert, 10, 20));
  timeline->on_wait({7, t.at(25), t.at(31), nullptr});
  timeline->on_wait({7, t.at(15), t.at(31), timeline.get()});
  timeline->on_wait({no_ticket, t.at(15), t.at(31), nullptr});
  ASSERT_FALSE(timeline->finish());
  const auto text = text_of(folder.file("t.json"));
  EXPECT_EQ(count(text, "\"name\":\"wait\""), 3U);
  EXPECT_EQ(count(text, "\"ph\":\"s\""), 0U);
}

TEST(engine_timeline, copies_that_overlap_have_tracks_of_their_own) {
  const temporary_folder folder;
  const auto timeline = made(folder.file("t.json"));
  const times t;
  auto prefetch = t.copy(4, 4_expert, 12, 50);
  prefetch.what.speculative = true;
  timeline->on_copy(t.copy(1, 1_expert, 10, 20));
  timeline->on_copy(t.copy(2, 2_expert, 15, 30));  // overlaps the first
  timeline->on_copy(t.copy(3, 3_expert, 20, 40));  // begins at its end
  timeline->on_copy(prefetch);
  ASSERT_FALSE(timeline->finish());
  const auto text = text_of(folder.file("t.json"));
  EXPECT_EQ(tracks_of(text, "layer 1 expert "), (std::vector<int>{2, 3, 2, 4}));
  EXPECT_EQ(count(text, "\"copies: demand\""), 2U);
  EXPECT_EQ(count(text, "\"copies: prefetch\""), 1U);
}

/// Ends the process without warning when events have reached the file.
void crash_while_writing(const std::string& path) {
  const auto timeline = made(path);
  for (int n = 0; text_of(path).find("\"wait\"") == std::string::npos; ++n) {
    timeline->on_wait({1, observed_clock::now(), observed_clock::now(), nullptr});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  (void)std::raise(SIGKILL);
}

TEST(engine_timeline_death_test, a_file_that_a_crash_cut_off_has_whole_lines) {
  const temporary_folder folder;
  const auto path = folder.file("t.json");
  EXPECT_EXIT(crash_while_writing(path), testing::KilledBySignal(SIGKILL), "");
  const auto text = text_of(path);
  EXPECT_THAT(text, HasSubstr("\"wait\""));
  EXPECT_THAT(text, testing::Not(HasSubstr("]")));
  // With "]" at its end this is JSON: each line is an event, and commas end all lines but the last.
  std::istringstream lines(text.substr(1) + ",");
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, StartsWith("{"));
    EXPECT_THAT(line, testing::EndsWith("},"));
  }
}

TEST(engine_timeline, a_file_that_cannot_be_written_is_refused) {
  const temporary_folder folder;
  const auto bad = engine_timeline::create(folder.file("none/t.json"), "engine");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("none/t.json: No such file or directory, accepted: "));
}

TEST(engine_timeline, a_full_disk_is_reported_at_the_end) {
  if (!std::ofstream("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto full = engine_timeline::create("/dev/full", "engine");
  if (full) {
    const auto failed = (*full)->finish();
    ASSERT_TRUE(failed);
    EXPECT_THAT(failed->message, HasSubstr("No space left on device"));
  } else {
    EXPECT_THAT(full.error().message, HasSubstr("No space left on device"));
  }
}

TEST(engine_timeline, takes_events_from_several_threads) {
  const temporary_folder folder;
  const auto timeline = made(folder.file("t.json"));
  const times t;
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        timeline->on_copy(t.copy(1, 1_expert, i, i + 1));
        timeline->on_wait({1, t.at(i), t.at(i + 1), nullptr});
      }
    });
  for (auto& thread : threads) thread.join();
  ASSERT_FALSE(timeline->finish());
  EXPECT_EQ(count(text_of(folder.file("t.json")), "\"name\":\"wait\""), 400U);
}

}  // namespace
}  // namespace hotset::engine_timeline_test
