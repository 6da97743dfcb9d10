// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/file_expert_source.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "random_source.hpp"
#include "temporary_folder.hpp"

namespace hotset::file_expert_source_test {
namespace {

using support::fill_of;
using support::pattern;
using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 2};

/// A file whose reads follow a script: byte counts, or negative errno values. After the script, reads succeed.
class scripted_file {
 public:
  struct state {
    std::vector<std::byte> bytes;
    std::uint64_t said = 0;  ///< size when it was opened
    std::vector<std::ptrdiff_t> script;
    std::size_t reads = 0;
    bool direct = false;
  };
  static inline std::shared_ptr<state> next = nullptr;  // NOLINT

  static result<scripted_file> open(const std::string& path, bool direct) {
    scripted_file out;
    out.path_ = path;
    out.state_ = next;
    out.state_->direct = direct;
    return out;
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return state_->said; }
  [[nodiscard]] std::ptrdiff_t read(std::uint64_t at, std::span<std::byte> to) const noexcept {
    auto& s = *state_;
    auto most = static_cast<std::ptrdiff_t>(to.size());
    if (s.direct) {
      EXPECT_EQ(at % 4096, 0U);
      EXPECT_EQ(to.size() % 4096, 0U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(to.data()) % 4096, 0U);
    }
    if (s.reads++ < s.script.size()) {
      const auto how = s.script[s.reads - 1];
      if (how < 0) {
        errno = static_cast<int>(-how);
        return -1;
      }
      most = std::min(most, how);
    }
    const auto left = static_cast<std::ptrdiff_t>(s.bytes.size()) - static_cast<std::ptrdiff_t>(at);
    most = std::max<std::ptrdiff_t>(0, std::min(most, left));
    std::copy_n(s.bytes.begin() + static_cast<std::ptrdiff_t>(at), most, to.begin());
    return most;
  }

 private:
  std::string path_;
  std::shared_ptr<state> state_;
};
using scripted_source = basic_file_expert_source<scripted_file>;

class scripted_reads : public testing::TestWithParam<file_reads> {
 protected:
  scripted_reads() {
    scripted_file::next = file;
    file->bytes.resize(20'000);
    for (std::size_t i = 0; i < file->bytes.size(); ++i)
      file->bytes[i] = pattern({0_layer, 0_expert}, 0, i);
    file->said = file->bytes.size();
  }
  scripted_source open() {
    auto out = scripted_source::open(shape, {"model.gguf"}, GetParam()).value();
    EXPECT_FALSE(out.add({1_layer, 2_expert}, {}, std::array{file_extent{0, 5000, 9001}}));
    return out;
  }
  /// Reads the whole tensor; returns whether it succeeded with the right bytes.
  bool read(const scripted_source& source) {
    std::vector<std::byte> to(9001);
    if (!source.read({1_layer, 2_expert}, {}, 0, 0, to)) return false;
    EXPECT_TRUE(std::equal(to.begin(), to.end(), file->bytes.begin() + 5000));
    return true;
  }
  std::shared_ptr<scripted_file::state> file = std::make_shared<scripted_file::state>();
};

TEST_P(scripted_reads, partial_and_interrupted_reads_are_completed) {
  const auto source = open();
  file->script = {-EINTR, 100, 4096, -EINTR, 1, 5000, 8192};
  EXPECT_TRUE(read(source));
  EXPECT_EQ(source.problem(), "");
}

TEST_P(scripted_reads, a_read_error_of_the_device_is_reported) {
  const auto source = open();
  file->script = {4096, -EIO};
  EXPECT_FALSE(read(source));
  EXPECT_THAT(source.problem(), HasSubstr("cannot read model.gguf at byte"));
  EXPECT_THAT(source.problem(), HasSubstr("Input/output error"));
  EXPECT_TRUE(read(source)) << "the next read is another one";
}

TEST_P(scripted_reads, a_truncated_file_is_reported) {
  const auto source = open();
  file->bytes.resize(9000);
  EXPECT_FALSE(read(source));
  EXPECT_EQ(source.problem(), "cannot read model.gguf at byte 9000: end of file");
}

TEST_P(scripted_reads, any_part_of_a_tensor_is_that_part) {
  const auto source = open();
  support::random_source random(3);
  for (int n = 0; n < 300; ++n) {
    const auto at = random.below(9001);
    std::vector<std::byte> to(1 + random.below(9001 - at));
    file->reads = 0;
    file->script.clear();
    for (int r = 0; r < 2; ++r)
      file->script.push_back(static_cast<std::ptrdiff_t>(1 + random.below(9000)));
    ASSERT_TRUE(source.read({1_layer, 2_expert}, {}, 0, at, to));
    ASSERT_TRUE(std::equal(to.begin(), to.end(),
                           file->bytes.begin() + 5000 + static_cast<std::ptrdiff_t>(at)));
  }
}

INSTANTIATE_TEST_SUITE_P(each_way, scripted_reads,
                         testing::Values(file_reads::cached, file_reads::direct),
                         [](const auto& one) {
                           return one.param == file_reads::direct ? "direct" : "cached";
                         });

TEST(file_expert_source, an_invalid_file_is_refused_when_it_is_added) {
  scripted_file::next = std::make_shared<scripted_file::state>();
  scripted_file::next->said = 100;
  auto source = scripted_source::open(shape, {"a", "b"}).value();
  const expert_key key{0_layer, 1_expert};
  const auto refused = [&](expert_key k, std::vector<file_extent> extents) {
    const auto bad = source.add(k, {}, extents);
    return bad ? bad->message : "accepted";
  };
  EXPECT_EQ(refused({0_layer, 4_expert}, {{0, 0, 1}}),
            "layer 0, expert 4 at precision 0 is outside the model");
  EXPECT_EQ(refused(key, {}), "layer 0, expert 1 of 0 tensors, accepted: 1..8");
  EXPECT_EQ(refused(key, {{2, 0, 1}}), "layer 0, expert 1 in file 2, accepted: 0..1");
  EXPECT_EQ(refused(key, {{1, 90, 11}}),
            "layer 0, expert 1 at 90, 11 bytes of b, accepted: 1 or more of its 100");
  EXPECT_THAT(refused(key, {{1, ~std::uint64_t{0}, 2}}), HasSubstr("accepted: 1 or more"));
  EXPECT_TRUE(source.sizes(key, {}).empty());
  EXPECT_EQ(refused(key, {{1, 90, 10}, {0, 0, 100}}), "accepted");
  EXPECT_THAT(source.sizes(key, {}), testing::ElementsAre(10U, 100U));
  EXPECT_EQ(scripted_source::open(shape, {}).error().message,
            "no files, accepted: one file or more");
  EXPECT_EQ(scripted_source::open(shape, {"a"}, file_reads::direct, 0).error().message,
            "beside = 0, accepted: 1..256");
}

/// A file of all experts' tensors, one after the other.
class files_on_disk : public testing::Test {
 protected:
  files_on_disk() {
    std::ofstream out(path, std::ios::binary);
    std::uint64_t at = 0;
    for (std::size_t k = 0; k < shape.keys(); ++k) {
      auto& extents = where.emplace_back();
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        for (std::size_t i = 0; i < sizes[t]; ++i) {
          const auto byte = static_cast<char>(pattern(shape.key(k), t, i));
          out.write(&byte, 1);
        }
        extents.push_back({0, at, sizes[t]});
        at += sizes[t];
      }
    }
  }

  const std::vector<std::uint64_t> sizes{96, 33, 257};
  std::vector<std::vector<file_extent>> where;
  const support::temporary_folder folder;
  const std::string path = folder.file("experts");
};

TEST_F(files_on_disk, a_backend_copies_from_them) {
  for (const std::size_t threads : {1U, 3U})
    for (const auto how : {file_reads::cached, file_reads::direct}) {
      // Fewer buffers than threads: one thread waits for another.
      auto source = file_expert_source::open(shape, {path}, how, (threads + 1) / 2);
      if (!source && how == file_reads::direct) {
        EXPECT_THAT(source.error().message, HasSubstr("accepted: cached ones"));
        continue;
      }
      for (std::size_t k = 0; k < shape.keys(); ++k)
        ASSERT_FALSE(source->add(shape.key(k), {}, where[k]));
      const support::host_experts experts{pool_layout::shared(shape, 4).value()};
      host_backend<file_expert_source> backend(*source, experts.bank, {.threads = threads});
      host_stream stream;
      for (int round = 0; round < 20; ++round) {
        std::vector<fill> fills;
        for (const auto s : each<slot_id>(4))
          fills.push_back(fill_of({layer_id{round % 2}, expert_id{number(s)}}, s));
        const auto sent = backend.submit(fills, stream, urgency::now);
        ASSERT_EQ(backend.wait(sent.id), transfer_state::arrived);
        for (const auto& f : fills) EXPECT_TRUE(experts.holds(f.slot, f.key));
      }
    }
}

TEST_F(files_on_disk, a_truncated_file_fails_only_its_copy) {
  auto source = file_expert_source::open(shape, {path}).value();
  for (std::size_t k = 0; k < shape.keys(); ++k)
    ASSERT_FALSE(source.add(shape.key(k), {}, where[k]));
  std::filesystem::resize_file(path, where.back().front().offset + 5);
  const support::host_experts experts{pool_layout::shared(shape, 4).value()};
  host_backend<file_expert_source> backend(source, experts.bank);
  host_stream stream;
  const auto bad =
      backend.submit(std::array{fill_of({1_layer, 3_expert}, 0_slot)}, stream, urgency::now);
  const auto good =
      backend.submit(std::array{fill_of({1_layer, 2_expert}, 1_slot)}, stream, urgency::now);
  EXPECT_EQ(backend.wait(bad.id), transfer_state::failed);
  EXPECT_EQ(backend.wait(good.id), transfer_state::arrived);
  EXPECT_TRUE(experts.holds(1_slot, {1_layer, 2_expert}));
  EXPECT_THAT(source.problem(), HasSubstr("end of file"));
}

TEST(posix_file, reads_at_the_given_offset_and_not_past_the_end) {
  const support::temporary_folder folder;
  const auto path = folder.file("digits");
  std::ofstream(path) << "0123456789";
  auto opened = posix_file::open(path, false).value();
  const posix_file file = std::move(opened);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.size(), 10U);
  std::array<std::byte, 4> to{};
  EXPECT_EQ(file.read(3, to), 4);
  EXPECT_EQ(std::memcmp(to.data(), "3456", 4), 0);
  EXPECT_EQ(file.read(8, to), 2);
  EXPECT_EQ(file.read(10, to), 0);
}

TEST(posix_file, a_path_that_is_no_file_is_refused) {
  EXPECT_EQ(posix_file::open("/nowhere/at/all", false).error().message,
            "cannot open /nowhere/at/all: No such file or directory");
  EXPECT_THAT(posix_file::open("/tmp", false).error().message,
              testing::HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace hotset::file_expert_source_test
