// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/adapter_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocation.hpp"
#include "lab/errors.hpp"
#include "random_source.hpp"
#include "sim_samples.hpp"
#include "trace_samples.hpp"

namespace hotset::lab::adapter_checkpoint_test {
namespace {

using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using trace_samples::read_all;

/// A tensor of a handmade file.
struct tensor_sample {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string data;
};

std::string file_of(const std::vector<tensor_sample>& tensors) {
  std::string header;
  std::string data;
  for (const auto& t : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "" : ",", t.name, t.dtype, fmt::join(t.shape, ","),
                          data.size(), data.size() + t.data.size());
    data += t.data;
  }
  return trace_samples::safetensors_bytes("{" + header + "}", data);
}

std::string text_of(std::span<const std::byte> bytes) {
  std::string out;
  for (const auto b : bytes) out += static_cast<char>(b);
  return out;
}

/// Two MoE layers, 1 and 2, of eight experts: w13 is gate_proj and up_proj, w2 is down_proj.
adapter_format small_format() {
  return {.base = {.layers = 2, .experts = 8, .first_layer = 1},
          .weights = {{{"gate_proj", 2, 3}, {"up_proj", 2, 3}}, {{"down_proj", 3, 2}}},
          .dtype = "BF16",
          .converts = false};
}
constexpr std::string_view small_config =
    R"({"experts": {"1": [5, 2], "2": [7]}, "shared_experts": false, "non_expert_modules": false})";

/// A matrix's twelve bytes; all bytes of all matrices differ.
std::string matrix_bytes(std::int32_t layer, support::written_expert expert,
                         std::string_view matrix) {
  const auto first = layer * 100 + number(expert.id) * 12 + static_cast<int>(matrix.front()) * 7;
  std::string out;
  for (int i = 0; i < 12; ++i) out += static_cast<char>((first + i * 5) % 251);
  return out;
}
std::string matrix_name(std::int32_t layer, support::written_expert expert,
                        std::string_view matrix) {
  return fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, expert.id, matrix);
}
tensor_sample matrix_sample(std::int32_t layer, support::written_expert expert,
                            const std::string& matrix) {
  return {
      matrix_name(layer, expert, matrix), "BF16",
      matrix == "down_proj" ? std::vector<std::uint64_t>{3, 2} : std::vector<std::uint64_t>{2, 3},
      matrix_bytes(layer, expert, matrix)};
}
/// Tensors that small_config requires.
std::vector<tensor_sample> small_tensors() {
  std::vector<tensor_sample> out;
  for (const auto& [layer, expert] : {std::pair{1, 5}, std::pair{1, 2}, std::pair{2, 7}})
    for (const auto* const matrix : {"up_proj", "down_proj", "gate_proj"})
      out.push_back(matrix_sample(layer, expert, matrix));
  return out;
}

class adapter_folders : public testing::Test {
 protected:
  trace_samples::temporary_folder folder{};
  adapter_format format = small_format();

  void write(const std::vector<tensor_sample>& tensors,
             const std::string& name = "model.safetensors",
             std::string_view config = small_config) const {
    (void)folder.write("expert_cfg.json", config);
    (void)folder.write(name, file_of(tensors));
  }
  [[nodiscard]] adapter_checkpoint open() const { return {folder.path(), format}; }
  /// The message without the folder's path at its front.
  [[nodiscard]] std::string refused() const {
    const auto message = refusal<trace_error>([&] { (void)open(); });
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    const auto path = folder.path().string();
    EXPECT_TRUE(message.starts_with(path)) << message;
    return message.substr(std::min(message.size(), path.size()));
  }
  /// The refusal's message for these tensors.
  [[nodiscard]] std::string refused(const std::vector<tensor_sample>& tensors) const {
    write(tensors);
    return refused();
  }
  static std::optional<std::string> weight(const adapter_checkpoint& checkpoint,
                                           support::written_layer layer, std::size_t number,
                                           support::written_expert expert, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    if (!checkpoint.read(layer, number, expert, out)) return std::nullopt;
    return text_of(out);
  }
  /// Expects small_config's matrices with the bytes of matrix_bytes().
  static void expect_weights(const adapter_checkpoint& checkpoint) {
    for (const auto& [layer, expert] : {std::pair{0, 2}, std::pair{0, 5}, std::pair{1, 7}}) {
      EXPECT_EQ(weight(checkpoint, layer, 0, expert, 24),
                matrix_bytes(layer + 1, expert, "gate_proj") +
                    matrix_bytes(layer + 1, expert, "up_proj"));
      EXPECT_EQ(weight(checkpoint, layer, 1, expert, 12),
                matrix_bytes(layer + 1, expert, "down_proj"));
    }
  }
};

TEST_F(adapter_folders, a_weight_is_its_matrices_one_behind_the_other) {
  write(small_tensors());
  const auto checkpoint = open();
  EXPECT_THAT(checkpoint.config().layer_numbers, ElementsAre(1, 2));
  EXPECT_THAT(checkpoint.config().tuned, ElementsAre(ElementsAre(5, 2), ElementsAre(7)));
  EXPECT_THAT(format.expert_bytes(), ElementsAre(24, 12));
  expect_weights(checkpoint);
}

TEST_F(adapter_folders, tensors_missing_in_the_checkpoint_are_not_read) {
  write(small_tensors());
  const auto checkpoint = open();
  EXPECT_FALSE(weight(checkpoint, 0, 0, 7, 24)) << "tuned in the other layer";
  EXPECT_FALSE(weight(checkpoint, 1, 0, 5, 24));
  EXPECT_FALSE(weight(checkpoint, 0, 0, -1, 24));
  EXPECT_FALSE(weight(checkpoint, 0, 0, 8, 24));
  EXPECT_FALSE(weight(checkpoint, -1, 0, 5, 24));
  EXPECT_FALSE(weight(checkpoint, 2, 0, 7, 24));
  EXPECT_FALSE(weight(checkpoint, 0, 2, 5, 24));
  for (const std::size_t bytes : {0U, 23U, 25U}) EXPECT_FALSE(weight(checkpoint, 0, 0, 5, bytes));
}

TEST_F(adapter_folders, reading_takes_no_memory) {
  write(small_tensors());
  const auto checkpoint = open();
  std::array<std::byte, 24> out{};
  bool done = false;
  EXPECT_EQ(support::allocations_of([&] { done = checkpoint.read(0_layer, 0, 5_expert, out); }),
            0U);
  EXPECT_TRUE(done);
  static_assert(noexcept(checkpoint.read(layer_id{0}, 0, expert_id{5}, out)));
}

TEST_F(adapter_folders, weights_may_lie_in_several_files_and_names_lack_the_models) {
  auto tensors = small_tensors();
  for (const std::size_t i : {0U, 4U, 8U})
    tensors[i].name = tensors[i].name.substr(std::string("model.").size());
  (void)folder.write("b.safetensors", file_of({tensors.begin(), tensors.begin() + 4}));
  (void)folder.write("a.safetensors", file_of({tensors.begin() + 4, tensors.end()}));
  (void)folder.write("c.safetensors", file_of({}));
  (void)folder.write("expert_cfg.json", small_config);
  (void)folder.write("model.safetensors.index.json", "not looked at");
  (void)folder.write("tokenizer.model", "nor this");
  auto opened = open();
  adapter_checkpoint checkpoint = std::move(opened);
  expect_weights(checkpoint);
  checkpoint = open();
  expect_weights(checkpoint);
}

TEST_F(adapter_folders, an_adapter_may_tune_nothing) {
  write({}, "model.safetensors", R"({"experts": {"2": []}})");
  const auto checkpoint = open();
  EXPECT_THAT(checkpoint.config().tuned, ElementsAre(ElementsAre(), ElementsAre()));
  EXPECT_FALSE(weight(checkpoint, 0, 0, 5, 24));
}

TEST_F(adapter_folders, a_tensor_that_is_missing_is_named) {
  const auto names = [](std::size_t i) { return small_tensors()[i].name; };
  for (std::size_t i = 0; i < 9; ++i) {
    auto tensors = small_tensors();
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(refused(tensors), ": tensor '" + names(i) +
                                    "': is missing; accepted: all 9 of the experts that "
                                    "expert_cfg.json names, with or without 'model.'");
  }
  EXPECT_THAT(refused({}), HasSubstr("layers.1.mlp.experts.2.gate_proj.weight': is missing"))
      << "the first one";
}

TEST_F(adapter_folders, an_unexpected_tensor_is_named_with_an_expected_one) {
  const auto with = [&](const std::string& name) {
    auto tensors = small_tensors();
    tensors.push_back({name, "BF16", {2, 3}, std::string(12, 'x')});
    return refused(tensors);
  };
  EXPECT_EQ(with("model.layers.1.mlp.experts.7.gate_proj.weight"),
            "/model.safetensors: tensor 'model.layers.1.mlp.experts.7.gate_proj.weight': is no "
            "matrix of a tuned expert; accepted: [model.]layers.L.mlp.experts.E.M.weight, M one of "
            "gate_proj, up_proj, down_proj; L: [E] as expert_cfg.json names them: 1: [2, 5], 2: "
            "[7]");
  for (const auto* const name :
       {"layers.0.mlp.experts.5.gate_proj.weight", "model.layers.3.mlp.experts.5.gate_proj.weight",
        "model.layers.1.mlp.shared_experts.gate_proj.weight", "model.layers.1.mlp.gate.weight",
        "lm_head.weight", "", "model.layers.1.mlp.experts.5.gate_proj.bias",
        "model.layers.1.mlp.experts.5.w1.weight", "model.layers.01.mlp.experts.5.gate_proj.weight",
        "model.layers.1.mlp.experts.05.gate_proj.weight",
        "model.model.layers.1.mlp.experts.5.gate_proj.weight",
        "model.layers.1.mlp.experts.5.gate_proj.weight.weight"})
    EXPECT_THAT(with(name), HasSubstr(fmt::format("tensor '{}': is no matrix of a tuned", name)));
}

TEST_F(adapter_folders, a_matrix_that_is_there_twice_is_refused_wherever_it_is) {
  auto tensors = small_tensors();
  auto again = tensors[3];
  again.name = again.name.substr(std::string("model.").size());
  tensors.push_back(again);
  EXPECT_EQ(refused(tensors),
            "/model.safetensors: tensor 'layers.1.mlp.experts.2.up_proj.weight': is in "
            "model.safetensors too, as 'model.layers.1.mlp.experts.2.up_proj.weight'; accepted: "
            "each matrix once");
  (void)folder.write("z.safetensors", file_of({small_tensors()[8]}));
  EXPECT_EQ(refused(small_tensors()),
            "/z.safetensors: tensor 'model.layers.2.mlp.experts.7.gate_proj.weight': is in "
            "model.safetensors too, as 'model.layers.2.mlp.experts.7.gate_proj.weight'; accepted: "
            "each matrix once");
}

TEST_F(adapter_folders, another_shape_or_dtype_is_refused) {
  struct stored {
    const char* dtype;
    std::vector<std::uint64_t> shape;
    std::size_t bytes;
    const char* found;
  };
  const auto expect = [&](const std::vector<stored>& all, const std::string& accepted) {
    for (const auto& [dtype, shape, bytes, found] : all) {
      auto tensors = small_tensors();
      tensors[2] = {tensors[2].name, dtype, shape, std::string(bytes, '\0')};
      EXPECT_EQ(refused(tensors),
                "/model.safetensors: tensor "
                "'model.layers.1.mlp.experts.5.gate_proj.weight': is " +
                    std::string(found) + "; accepted: " + accepted + " [2, 3]");
    }
  };
  expect({{"BF16", {3, 2}, 12, "BF16 [3, 2]"},
          {"BF16", {6}, 12, "BF16 [6]"},
          {"BF16", {2, 3, 1}, 12, "BF16 [2, 3, 1]"},
          {"BF16", {}, 2, "BF16 []"},
          {"BF16", {0, 3}, 0, "BF16 [0, 3]"},
          {"F16", {2, 3}, 12, "F16 [2, 3]"},
          {"F32", {2, 3}, 24, "F32 [2, 3]"}},
         "BF16");
  format.converts = true;
  expect({{"I16", {2, 3}, 12, "I16 [2, 3]"},
          {"F64", {2, 3}, 48, "F64 [2, 3]"},
          {"F32", {3, 2}, 24, "F32 [3, 2]"}},
         "F16, BF16 or F32");
}

TEST_F(adapter_folders, an_incomplete_folder_is_refused) {
  EXPECT_THAT(refused(), HasSubstr("/expert_cfg.json")) << "nothing is there";
  (void)folder.write("expert_cfg.json", small_config);
  (void)folder.write("pytorch_model.bin", "other weights");
  EXPECT_EQ(refused(),
            ": has no weights; accepted: one or more files *.safetensors beside expert_cfg.json");
  std::filesystem::create_directory(folder.path() / "a.safetensors");
  EXPECT_EQ(refused(), "/a.safetensors: is no regular file; accepted: a safetensors file");
  const auto file = folder.path() / "expert_cfg.json";
  for (const auto& path : {file, folder.path() / "absent", std::filesystem::path()})
    EXPECT_EQ(refusal<trace_error>([&] { (void)adapter_checkpoint(path, format); }),
              path.string() +
                  ": is no folder; accepted: a folder with expert_cfg.json and weights, "
                  "*.safetensors");
}

TEST_F(adapter_folders, a_format_that_is_none_has_a_reason) {
  write(small_tensors());
  const auto reason = [&](auto change) {
    auto bad = small_format();
    change(bad);
    const auto message = refusal<usage_error>([&] { (void)bad.expert_bytes(); });
    EXPECT_EQ(refusal<usage_error>([&] { (void)adapter_checkpoint(folder.path(), bad); }), message);
    return message;
  };
  using change = void (*)(adapter_format&);
  for (const auto& [broken, said] :
       {std::pair<change, const char*>([](auto& f) { f.base.layers = 0; },
                                       "layers = 0, accepted: 1..65536"),
        {[](auto& f) { f.base.experts = -1; }, "experts = -1, accepted: 1..1048576"},
        {[](auto& f) { f.base.first_layer = 65535; }, "first_layer = 65535, accepted: 0..65534"},
        {[](auto& f) { f.weights.clear(); }, "weights = 0, accepted: 1..64"},
        {[](auto& f) { f.weights[1].clear(); }, "a weight without matrices, accepted: one or more"},
        {[](auto& f) { f.dtype = "F64"; }, "dtype 'F64', accepted: F16, BF16 or F32"},
        {[](auto& f) { f.weights[1][0].name = "up_proj"; },
         "matrix 'up_proj' is there twice, accepted: each name once"},
        {[](auto& f) { f.weights[1][0].rows = 0; }, "rows of down_proj = 0, accepted: 1..16777216"},
        {[](auto& f) { f.weights[1][0].columns = (1U << 24U) + 1; },
         "columns of down_proj = 16777217, accepted: 1..16777216"}})
    EXPECT_EQ(reason(broken), std::string("adapter format: ") + said);
  for (const std::string name : {"", "a.b", "a b", "a\nb", "\"", "\xc3\xa9"})
    EXPECT_THAT(reason([&](auto& f) { f.weights[1][0].name = name; }),
                HasSubstr("accepted: names of 1..64 letters, digits and '_'"));
  EXPECT_THAT(reason([](auto& f) {
                for (int i = 0; i < 62; ++i) f.weights[1].push_back({fmt::format("m{}", i), 1, 1});
              }),
              HasSubstr("more than 64 matrices"));
}

TEST_F(adapter_folders, tensors_of_several_dtypes_are_converted_on_request) {
  format.converts = true;
  const auto six = [](std::string_view element) {
    std::string out;
    for (int i = 0; i < 6; ++i) out += element;
    return out;
  };
  using namespace std::string_view_literals;
  auto tensors = small_tensors();
  tensors[2].dtype = "F32";  // gate_proj of expert 5
  tensors[2].data = six("\0\0\xc0\x3f"sv);
  tensors[0].dtype = "F16";  // up_proj
  tensors[0].data = six("\0\xc0"sv);
  write(tensors);
  EXPECT_EQ(weight(open(), 0, 0, 5, 24), six("\xc0\x3f"sv) + six("\0\xc0"sv)) << "1.5 and -2";
}

TEST_F(adapter_folders, one_value_that_does_not_fit_refuses_its_weight_and_no_other) {
  using namespace std::string_view_literals;
  format.converts = true;
  format.dtype = "F16";
  auto tensors = small_tensors();
  for (auto& tensor : tensors) tensor.data = std::string(12, '\0');
  tensors[2].data.replace(4, 2, "\x80\x47"sv);  // gate_proj of expert 5: 65536
  tensors[5].data.replace(4, 2, "\x80\x7f"sv);  // gate_proj of expert 2: infinite before
  write(tensors);
  EXPECT_FALSE(weight(open(), 0, 0, 5, 24));
  EXPECT_TRUE(weight(open(), 0, 1, 5, 12));
  EXPECT_TRUE(weight(open(), 0, 0, 2, 24));
}

/// Written by hand from a map of matrices.
class written_adapters : public adapter_folders {
 protected:
  esft_config config{.layer_numbers = {1, 2}, .tuned = {{5_expert, 2_expert}, {7_expert}}};
  std::vector<std::string> asked{};
  std::vector<std::byte> last{};

  matrix_source source() {
    return [this](layer_id layer, expert_id expert, const expert_matrix& matrix) {
      asked.push_back(fmt::format("{} {} {}", layer, expert, matrix.name));
      const auto bytes = matrix_bytes(number(layer) + 1, expert, matrix.name);
      last.clear();
      for (const char c : bytes) last.push_back(static_cast<std::byte>(c));
      return std::span<const std::byte>(last);
    };
  }
  /// The error message of writing `config` to a path.
  template <class Exception>
  std::string not_written(const std::filesystem::path& path, const matrix_source& from) const {
    return refusal<Exception>([&] { write_adapter_checkpoint(path, format, config, from); });
  }
};

TEST_F(written_adapters, are_read_back_as_they_were) {
  const auto path = folder.path() / "a" / "b";
  write_adapter_checkpoint(path, format, config, source());
  EXPECT_THAT(asked, ElementsAre("0 2 gate_proj", "0 2 up_proj", "0 2 down_proj", "0 5 gate_proj",
                                 "0 5 up_proj", "0 5 down_proj", "1 7 gate_proj", "1 7 up_proj",
                                 "1 7 down_proj"));
  EXPECT_EQ(read_all(path / "expert_cfg.json"), std::string(small_config) + "\n");
  const adapter_checkpoint checkpoint(path, format);
  EXPECT_EQ(checkpoint.config().layer_numbers, config.layer_numbers);
  EXPECT_EQ(checkpoint.config().tuned, config.tuned);
  expect_weights(checkpoint);
}

TEST_F(written_adapters, have_bytes_that_depend_on_their_content_alone) {
  write_adapter_checkpoint(folder.path() / "a", format, config, source());
  config.tuned[0] = {2_expert, 5_expert};
  write_adapter_checkpoint(folder.path() / "b", format, config, source());
  const auto bytes = read_all(folder.path() / "a" / "model.safetensors");
  EXPECT_EQ(read_all(folder.path() / "b" / "model.safetensors"), bytes);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0U);
  EXPECT_THAT(bytes.substr(8),
              StartsWith(R"({"__metadata__":{"format":"pt"},)"
                         R"("model.layers.1.mlp.experts.2.gate_proj.weight":)"
                         R"({"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"));
}

TEST_F(written_adapters, of_random_formats_are_read_back_byte_by_byte) {
  support::random_source random(3);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    const std::vector<std::string> dtypes{"F16", "BF16", "F32"};
    const auto first = random.id_below(3);
    format = {.base = {.layers = 1 + random.id_below(4), .experts = 6, .first_layer = first},
              .weights = {},
              .dtype = dtypes[random.below(3)],
              .converts = random.one_in(2)};
    for (std::uint64_t w = 0; w <= random.below(3); ++w) {
      format.weights.emplace_back();
      for (std::uint64_t m = 0; m <= random.below(2); ++m)
        format.weights.back().push_back(
            {fmt::format("w{}_{}", w, m), 1 + random.below(5), 1 + random.below(5)});
    }
    esft_config wanted;
    for (std::int32_t l = 0; l < format.base.layers; ++l) {
      wanted.layer_numbers.push_back(first + l);
      wanted.tuned.emplace_back();
      for (std::int32_t e = 5; e >= 0; --e)
        if (random.one_in(2)) wanted.tuned.back().push_back(expert_id{e});
    }
    std::map<std::tuple<layer_id, expert_id, std::string>, std::string> given;
    const auto path = folder.path() / std::to_string(round);
    write_adapter_checkpoint(
        path, format, wanted, [&](layer_id layer, expert_id expert, const expert_matrix& matrix) {
          const auto bytes = matrix.rows * matrix.columns * (format.dtype == "F32" ? 4U : 2U);
          last.clear();
          for (std::uint64_t i = 0; i < bytes; ++i)
            last.push_back(static_cast<std::byte>(random.below(256)));
          given[{layer, expert, matrix.name}] = text_of(last);
          return std::span<const std::byte>(last);
        });
    const adapter_checkpoint checkpoint(path, format);
    EXPECT_EQ(checkpoint.config().tuned, wanted.tuned);
    const auto bytes = format.expert_bytes();
    for (std::size_t l = 0; l < wanted.tuned.size(); ++l)
      for (const auto expert : wanted.tuned[l])
        for (std::size_t w = 0; w < bytes.size(); ++w) {
          std::string expected;
          for (const auto& matrix : format.weights[w])
            expected += given.at({static_cast<layer_id>(l), expert, matrix.name});
          EXPECT_EQ(weight(checkpoint, static_cast<layer_id>(l), w, expert, bytes[w]), expected);
        }
  }
}

TEST_F(written_adapters, that_the_base_model_cannot_have_are_refused_before_anything_is_made) {
  const std::string who = "adapter configuration: ";
  for (const auto& [bad, said] :
       {std::pair<esft_config, const char*>{{{1}, {{5_expert}}},
                                            "layers = 1 with 1 numbers, accepted: 2"},
        {{{1, 2}, {{5_expert}}}, "layers = 1 with 2 numbers, accepted: 2"},
        {{{2, 1}, {{5_expert}, {}}}, "layers 2, 1, accepted: ascending numbers"},
        {{{1, 1}, {{5_expert}, {}}}, "key '1': is there twice; accepted: each key once"},
        {{{1, 3}, {{5_expert}, {}}}, "layer 3: is no MoE layer; accepted: 1..2"},
        {{{1, 2}, {{8_expert}, {}}}, "layer 1: expert 0 is 8; accepted: 0..7"}}) {
    config = bad;
    EXPECT_EQ(not_written<usage_error>(folder.path() / "new", source()), who + said);
  }
  config = {{1, 2}, {{5_expert}, {}}};
  EXPECT_EQ(not_written<usage_error>(folder.path(), {}),
            "adapter weights: no source, accepted: a function");
  format.weights[0][0].rows = format.weights[0][0].columns = 1U << 24U;
  EXPECT_THAT(not_written<usage_error>(folder.path() / "new", source()),
              HasSubstr("accepted: 281474976710656 bytes"));
  format.dtype = "F64";
  EXPECT_THAT(not_written<usage_error>(folder.path() / "new", source()), HasSubstr("dtype 'F64'"));
  EXPECT_TRUE(asked.empty());
  EXPECT_EQ(folder.files(), 0U);
}

TEST_F(written_adapters, whose_source_fails_change_nothing) {
  const auto one_short = [&](layer_id layer, expert_id expert, const expert_matrix& matrix) {
    const auto bytes = source()(layer, expert, matrix);
    return asked.size() == 5 ? bytes.first(11) : bytes;
  };
  const std::string message =
      "source of model.layers.1.mlp.experts.5.up_proj.weight: 11 bytes, accepted: 12";
  EXPECT_EQ(not_written<usage_error>(folder.path() / "a", one_short), message);
  EXPECT_EQ(folder.files(), 0U) << "no folder is left";
  write_adapter_checkpoint(folder.path(), format, config, source());
  const auto weights = read_all(folder.path() / "model.safetensors");
  asked.clear();
  config.tuned[1] = {3_expert};
  EXPECT_EQ(not_written<usage_error>(folder.path(), one_short), message);
  EXPECT_EQ(folder.files(), 2U);
  EXPECT_EQ(read_all(folder.path() / "model.safetensors"), weights);
  EXPECT_EQ(read_all(folder.path() / "expert_cfg.json"), std::string(small_config) + "\n");
}

TEST_F(written_adapters, replace_an_earlier_one_but_not_among_other_weights) {
  write_adapter_checkpoint(folder.path(), format, config, source());
  config.tuned = {{}, {1_expert, 7_expert}};
  write_adapter_checkpoint(folder.path(), format, config, source());
  EXPECT_EQ(open().config().tuned, config.tuned);
  (void)folder.write("more.safetensors", file_of({}));
  const auto before = std::exchange(config.tuned, {{}, {}});
  EXPECT_EQ(not_written<std::runtime_error>(folder.path(), source()),
            folder.path().string() +
                "/more.safetensors: is in the adapter's folder, too; accepted: a folder without "
                "other weights");
  EXPECT_EQ(open().config().tuned, before);
}

TEST_F(written_adapters, that_cannot_be_written_are_reported) {
  const auto file = folder.write("file", "earlier");
  EXPECT_THAT(not_written<std::runtime_error>(file / "a" / "b", source()),
              HasSubstr("file/a/b: cannot be created"));
  EXPECT_THAT(not_written<std::runtime_error>(file, source()), StartsWith(file.string()));
  EXPECT_THAT(not_written<std::runtime_error>({}, source()), HasSubstr("cannot be created"));
  EXPECT_EQ(read_all(file), "earlier");
  std::filesystem::create_directories(folder.path() / "taken" / "expert_cfg.json");
  EXPECT_THAT(not_written<std::runtime_error>(folder.path() / "taken", source()),
              HasSubstr("expert_cfg.json: is a folder"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "taken" / "model.safetensors"));
  EXPECT_TRUE(asked.empty());
}

}  // namespace
}  // namespace hotset::lab::adapter_checkpoint_test
