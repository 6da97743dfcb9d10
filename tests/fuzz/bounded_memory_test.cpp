// SPDX-License-Identifier: Apache-2.0
// A small file never requests much memory. Readers take at most 64 MiB plus 128 bytes per byte of unpacked input, and
// a packed file unpacks to at most 2 MiB plus 50 times its size.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "allocation.hpp"
#include "gguf_samples.hpp"
#include "hotset/lab/adapter_checkpoint.hpp"
#include "hotset/lab/esft_config.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/models/model_description.hpp"
#include "lab/traces/open_trace.hpp"
#include "lab/traces/requests.hpp"
#include "npy_samples.hpp"
#include "sim_samples.hpp"
#include "trace_samples.hpp"

namespace bounded_memory_test {
namespace {
using namespace hotset;

constexpr std::size_t free_bytes = std::size_t{64} << 20U;
constexpr std::size_t bytes_per_byte = 128;
constexpr std::size_t packed_floor = std::size_t{2} << 20U;
constexpr std::size_t packed_ratio = 50;
constexpr std::size_t file_bytes = 50'000;

/// Repeats part(number) until the text has `bytes` bytes.
std::string many(const std::function<std::string(std::size_t)>& part, std::string text = {},
                 std::size_t bytes = file_bytes) {
  for (std::size_t i = 0; text.size() < bytes; ++i) text += part(i);
  return text;
}
std::string number(std::size_t i) { return std::to_string(i); }

struct bad_file {
  std::string name;
  std::string bytes;
  std::size_t unpacked = 0;  ///< 0: as many as there are
};

/// `read` stays within the bound, refused or not. Returns whether it was accepted.
bool stays_small(const bad_file& file, const std::function<void(const std::string&)>& read) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write(file.name, file.bytes).string();
  bool accepted = false;
  std::string refusal;
  const auto most = support::most_allocated([&] {
    try {
      read(path);
      accepted = true;
    } catch (const trace_error& refused) {
      refusal = refused.what();
    }
  });
  const auto unpacked = file.unpacked == 0 ? file.bytes.size() : file.unpacked;
  EXPECT_LE(most, free_bytes + bytes_per_byte * unpacked) << file.name;
  std::cout << file.name << ", " << file.bytes.size() << " bytes: " << most << " at most; "
            << (accepted ? "accepted" : refusal.substr(0, 200)) << '\n';
  return accepted;
}

/// Opens, checks and cuts a trace into visits as every command does.
void open_and_visit(const std::string& path) {
  const auto trace = lab::open_trace(path);
  if (const auto bad = trace.validate()) throw trace_error(bad->message);
  const auto visits = visit_sequence::create(trace);
  if (!visits) throw trace_error(visits.error().message);
  const std::vector<std::uint64_t> a_key(visits->shape().keys());  // as much as a replay keeps
}

std::vector<bad_file> traces() {
  const std::string csv = "layer,expert\n";
  std::vector<bad_file> out;
  out.push_back({"many layers, one large id.csv",
                 many([](auto i) { return number(i) + ",0\n"; }, csv) + "60000,1048575\n"});
  out.push_back({"few layers, one large id.csv",
                 many([](auto i) { return number(i % 200) + ",0\n"; }, csv) + "200,1048575\n"});
  out.push_back({"rows of one layer.csv", many([](auto) { return "0,0\n"; }, csv)});
  out.push_back(
      {"falling layers.csv", many([](auto i) { return number(65535 - i) + ",0\n"; }, csv)});
  out.push_back({"far steps.jsonl", many([](auto i) {
                   return R"({"layer":)" + number(i % 4096) + R"(,"experts":[1],"step":)" +
                          number(i * 3'000'000) + "}\n";
                 })});
  out.push_back(
      {"one wide token.jsonl",
       many(
           [](auto i) {
             return R"({"layer":)" + number(i) +
                    R"(,"experts":[1]})"
                    "\n";
           },
           R"({"layer":0,"experts":[)" + many([](auto i) { return number(i) + ","; }, {}, 18'000) +
               "1048575]}\n")});
  out.push_back(
      {"long lists.jsonl", many([](auto) { return "0,"; }, R"({"layer":0,"experts":[)") + "0]}\n"});
  out.push_back({"deep lists.jsonl", R"({"layer":0,"experts":)" + many([](auto) { return "["; })});
  out.push_back({"far blocks.jsonl", many([](auto i) {
                   return R"({"timestamp":0,"input_length":4294967295,"output_length":4294967295,)"
                          R"("hash_ids":[)" +
                          number(i * 1'000'000'007) + "]}\n";
                 })});
  out.push_back({"route.csv",
                 many(
                     [](auto i) {
                       return "0,0," + number(i) + "," + number(i % 60000) + ",0,1048575,0.5,0,1\n";
                     },
                     "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n")});
  // Longer than a token may be: refused when the parts are joined, not earlier.
  out.push_back(
      {"long lists.csv", many([](auto i) { return number(i % 7) + ",0,0 0 0 0 0 0 0 0\n"; },
                              "token,layer,experts\n")});
  out.push_back({"small ids.npy", npy_samples::npy("|i1", "(4194304, 1, 1)",
                                                   std::string(std::size_t{4} << 20U, '\1'))});
  out.push_back({"many layers.npy", npy_samples::npy("|i1", "(64, 65536, 1)",
                                                     std::string(std::size_t{4} << 20U, '\1'))});
  return out;
}

TEST(bounded_memory, traces) {
  for (const auto& file : traces()) (void)stays_small(file, open_and_visit);
}

TEST(bounded_memory, requests) {
  for (auto& file : traces())
    (void)stays_small(file, [](const auto& path) { (void)lab::open_requests(path); });
  const bad_file azure{
      "azure.csv", many([](auto) { return "2023-11-16 18:17:03.9799600,4294967295,4294967295\n"; },
                        "TIMESTAMP,ContextTokens,GeneratedTokens\n")};
  (void)stays_small(azure, [](const auto& path) { (void)lab::open_requests(path); });
}

TEST(bounded_memory, a_native_trace_that_claims_many_experts) {
  const trace_samples::temporary_folder folder;
  auto trace = support::empty_trace(200, 65535, 1);
  support::add_step(trace, {std::vector<expert_id>(200, 0_expert)});
  const auto path = (folder.path() / "t").string();
  ASSERT_FALSE(write_native_trace(trace, path));
  EXPECT_FALSE(stays_small({"native", trace_samples::read_all(path)}, open_and_visit));
}

TEST(bounded_memory, large_ids_of_few_records_are_refused) {
  const auto open = [](const auto& path) { (void)lab::open_trace(path); };
  const auto rows = [](std::size_t largest) {
    return bad_file{"ids.csv",
                    many([](auto i) { return number(i % 4) + ",0\n"; }, "layer,expert\n", 2000) +
                        "3," + number(largest) + "\n"};
  };
  EXPECT_TRUE(stays_small(rows(262'143), open)) << "2^20 in all layers";
  EXPECT_FALSE(stays_small(rows(1'048'575), open));
}

/// A Zstandard frame of `blocks` times 131072 equal bytes, four bytes each.
std::string zstd_bomb(char byte, std::size_t blocks) {
  std::string out("\x28\xB5\x2F\xFD\x00\x38", 6);  // magic; no sizes, a window of 128 KiB
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t header = (b + 1 == blocks ? 1U : 0U) | 2U | (std::size_t{131072} << 3U);
    for (const unsigned shift : {0U, 8U, 16U}) out += static_cast<char>((header >> shift) & 0xffU);
    out += byte;
  }
  return out;
}

/// Bits of a deflate stream, lowest first; Huffman codes are written highest bit first.
class bit_writer {
 public:
  void put(unsigned value, int count) {
    for (int i = 0; i < count; ++i) bit((value >> static_cast<unsigned>(i)) & 1U);
  }
  void code(unsigned value, int count) {
    for (int i = count - 1; i >= 0; --i) bit((value >> static_cast<unsigned>(i)) & 1U);
  }
  [[nodiscard]] std::string take() {
    while (used_ != 0) bit(0);
    return std::move(out_);
  }

 private:
  void bit(unsigned value) {
    if (used_ == 0) out_ += '\0';
    out_.back() = static_cast<char>(static_cast<unsigned char>(out_.back()) | (value << used_));
    used_ = (used_ + 1) % 8;
  }
  std::string out_;
  unsigned used_ = 0;
};

/// A gzip file of `four` (four bytes) and `repeats` times 258 repeated bytes: 13 bits each.
std::string gzip_bomb(std::string_view four, std::size_t repeats) {
  bit_writer bits;
  bits.put(1, 1);  // the last block
  bits.put(1, 2);  // with fixed codes
  for (const char c : four) bits.code(0x30U + static_cast<unsigned char>(c), 8);
  for (std::size_t i = 0; i < repeats; ++i) {
    bits.code(0xC5, 8);  // a length of 258
    bits.code(3, 5);     // a distance of 4
  }
  bits.code(0, 7);
  return std::string("\x1F\x8B\x08\0\0\0\0\0\0\x03", 10) + bits.take() + std::string(8, '\0');
}

TEST(bounded_memory, a_file_that_unpacks_to_far_more_is_refused) {
  const auto bomb = [](std::string name, std::string bytes) {
    const auto unpacked = packed_floor + packed_ratio * bytes.size();
    return bad_file{std::move(name), std::move(bytes), unpacked};
  };
  EXPECT_FALSE(stays_small(bomb("blank.zst", zstd_bomb('\n', 12'000)), open_and_visit));
  EXPECT_FALSE(stays_small(bomb("rows.csv.gz", gzip_bomb("0,0\n", 30'000)), open_and_visit));
  EXPECT_FALSE(stays_small(bomb("rows.csv.gz", gzip_bomb("0,0\n", 300'000)), open_and_visit));
  const auto small = gzip_bomb("0,0\n", 2000);
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("rows.csv.gz", small);
  EXPECT_EQ(lab::open_trace(path, {.top_k = 1}).tokens(), (4U + 2000 * 258) / 4)
      << "within 2 MiB any ratio will do, and the streams above are what they should be";
}

TEST(bounded_memory, a_bombs_error_names_the_accepted_size) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("blank.zst", zstd_bomb('\n', 12'000));
  trace_samples::expect_refused(
      [&] { (void)lab::open_trace(path, {.format = lab::trace_format::json_lines}); },
      {"blank.zst", "48006 bytes unpack to more than 4497452",
       "accepted: 50 times its size and 2097152 bytes; or unpack"});
}

TEST(bounded_memory, descriptions_of_models) {
  const auto describe = [](const std::string& path) { (void)lab::describe_model(path); };
  const std::string shape =
      R"({"model_type":"mixtral","hidden_size":64,"vocab_size":10,"num_attention_heads":2,)"
      R"("num_experts_per_tok":2,"intermediate_size":8,)";
  const std::vector<bad_file> files = {
      {"layers.json", shape + R"("num_hidden_layers":65536,"num_experts":1048576})"},
      {"experts.json", shape + R"("num_hidden_layers":2,"num_experts":1048576})"},
      {"deep.json", "{\"model_type\":" + many([](auto) { return "["; })},
      {"wide.json", "{\"model_type\":[" + many([](auto) { return "{},"; })},
      {"lists.json", shape + R"("num_experts":4,"num_hidden_layers":60000,"mlp_only_layers":[)" +
                         many([](auto i) { return number(i) + ","; }) + "0]}"},
      {"patterns.json",
       shape + R"("num_experts":4,"num_hidden_layers":65536,"quantization_config":)" +
           R"({"quant_method":"auto-round","bits":4,"extra_config":{)" +
           many([](auto i) { return "\"layers." + number(i) + ".experts.1\":{\"bits\":8},"; }) +
           R"("lm_head":{"bits":8}}}})"},
      {"tensors.safetensors",
       trace_samples::safetensors_bytes(many(
                                            [](auto i) {
                                              return "\"model.layers." + number(i * 100000) +
                                                     R"(.experts.4000000000.w":{"dtype":"U8",)"
                                                     R"("shape":[0],"data_offsets":[0,0]},)";
                                            },
                                            "{") +
                                            R"("x":{"dtype":"U8","shape":[0],)"
                                            R"("data_offsets":[0,0]}})",
                                        "")},
  };
  for (const auto& file : files) (void)stays_small(file, describe);
  auto gguf = gguf_samples::model("qwen3moe", 65536);
  (void)stays_small({"blocks.gguf", gguf.bytes()}, describe);
}

TEST(bounded_memory, adapters) {
  const lab::esft_base widest{.layers = 65536, .experts = 1 << 20, .first_layer = 0};
  const auto config = [&](const std::string& path) {
    (void)lab::parse_esft_config(trace_samples::read_all(path), path, widest);
  };
  const auto numbers = [](auto i) { return number(i) + ","; };
  const std::vector<bad_file> configs = {
      {"one layer.json", many(numbers, R"({"experts":{"0":[)") + "1048575]}}"},
      {"many layers.json",
       many([](auto i) { return '"' + number(i) + "\":[1048575],"; }, R"({"experts":{)") +
           R"("65535":[]}})"},
      {"deep.json", R"({"experts":{"0":)" + many([](auto) { return "["; })},
      {"wide.json", R"({"experts":{"0":[)" + many([](auto) { return "[],"; })},
  };
  for (const auto& file : configs) (void)stays_small(file, config);
  EXPECT_TRUE(stays_small(configs.front(), config));

  // The configuration requires 64 matrices for each of thousands of experts; the file has one of a few hundred.
  lab::adapter_format format{.base = widest, .weights = {{}}, .dtype = "BF16", .converts = true};
  for (std::size_t m = 0; m < 64; ++m) format.weights.front().push_back({"m" + number(m), 1, 1});
  const auto checkpoint = [&](const std::string& path) {
    const auto folder = std::filesystem::path(path).parent_path();
    std::ofstream(folder / "expert_cfg.json")
        << many(numbers, R"({"experts":{"0":[)") + "1048575]}}";
    (void)lab::adapter_checkpoint(folder, format);
  };
  std::string data;
  const auto header = many(
      [&](auto i) {
        data += "xy";
        return (i == 0 ? "{\"" : ",\"") + ("layers.0.mlp.experts." + number(i)) +
               R"(.m0.weight":{"dtype":"F16","shape":[1,1],"data_offsets":[)" + number(2 * i) +
               "," + number(2 * i + 2) + "]}";
      },
      {});
  const bad_file few{"model.safetensors", trace_samples::safetensors_bytes(header + "}", data)};
  EXPECT_FALSE(stays_small(few, checkpoint));
  for (auto& matrix : format.weights.front()) matrix.rows = matrix.columns = 1U << 24U;
  EXPECT_FALSE(stays_small(few, checkpoint)) << "an expert of 2^54 bytes";
}

}  // namespace
}  // namespace bounded_memory_test
