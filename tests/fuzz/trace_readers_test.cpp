// SPDX-License-Identifier: Apache-2.0
// Every reader of traces on damaged input: it returns a valid trace or throws trace_error only.
#include <functional>

#include <gtest/gtest.h>

#include "damage.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/esft.hpp"
#include "lab/traces/importers.hpp"
#include "lab/traces/native_trace.hpp"
#include "lab/traces/open_trace.hpp"
#include "lab/traces/oracle_general.hpp"
#include "lab/traces/requests.hpp"
#include "lab/traces/routed_arrays.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "npy_samples.hpp"
#include "trace_samples.hpp"

namespace trace_readers_test {
namespace {
using namespace hotset;
using namespace hotset::lab;

using reader = std::function<routing_trace(const std::string&)>;

void fuzz(const std::string& sample, std::uint64_t rounds, const reader& read) {
  ASSERT_FALSE(read(sample).validate()) << "the undamaged sample";
  fuzz_reader(sample, rounds, [&](const std::string& bytes, splitmix64&) {
    const auto trace = read(bytes);
    const auto bad = trace.validate();
    EXPECT_FALSE(bad) << bad->message;
    (void)visit_sequence::create(trace);
    return true;
  });
}

routing_trace accesses(const kv_trace& kv) {
  auto made = block_accesses(kv);
  if (!made) throw trace_error(made.error().message);
  return *std::move(made);
}

/// Through a file, for readers that map or unpack files.
reader through_file(std::function<routing_trace(const std::filesystem::path&)> open) {
  const auto folder = std::make_shared<trace_samples::temporary_folder>();
  return [folder, open = std::move(open)](const std::string& bytes) {
    return open(folder->write("input", bytes));
  };
}

TEST(fuzz_traces, native) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.path() / "t";
  ASSERT_FALSE(write_native_trace(trace_samples::full_trace(), path.string()));
  fuzz(trace_samples::read_all(path), 4000, through_file(read_native_trace));
}

/// A reader of text, with an example.
struct text_format {
  const char* name;
  std::string sample;
  routing_trace (*parse)(std::string_view, const std::string&, const open_trace_options&);
  open_trace_options options{};
};

TEST(fuzz_traces, text) {
  const std::vector<text_format> formats = {
      {"bigmoe", std::string(trace_samples::bigmoe_text), parse_bigmoe_route_csv},
      {"layer_expert", std::string(trace_samples::layer_expert_text), parse_layer_expert_csv},
      {"json_lines", std::string(trace_samples::json_lines_text), parse_json_lines},
      {"columns",
       "token,layer,experts,weights,phase\n0,0,3 1,.5 .5,decode\n0,1,\"[0, 2]\",.5 .5,0\n"
       "1,0,2|3,.25 .75,prefill\n1,1,1 -1,1 0,1\n",
       parse_column_csv},
      {"lines_without_places",
       "{\"type\":\"meta\"}\n{\"layer\":0,\"experts\":[3,1],\"sequence\":\"a\"}\n"
       "{\"layer\":0,\"experts\":[0,2],\"sequence\":\"a\"}\n"
       "{\"layer\":1,\"experts\":[2,1],\"sequence\":\"a\"}\n"
       "{\"layer\":1,\"experts\":[1,0],\"sequence\":\"a\"}\n",
       parse_json_lines},
      {"columns_without_places",
       "layer,e0,e1,w0,w1\n0,3,1,.5,.5\n0,1,,.5,0\n1,0,2,.5,.5\n1,2,1,.5,.5\n",
       parse_column_csv,
       {.fields = parse_field_map("experts=e0..e1,weights=w0..w1")}}};
  for (const auto& format : formats) {
    SCOPED_TRACE(format.name);
    fuzz(format.sample, 4000,
         [&](const std::string& bytes) { return format.parse(bytes, "fuzz", format.options); });
  }
}

TEST(fuzz_traces, maps_and_rows_filled_up) {
  fuzz(npy_samples::npy(
           "|b1", "(2, 2, 4)",
           npy_samples::bytes_of<std::uint8_t>({0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0})),
       4000, through_file([](const auto& path) { return open_trace(path); }));
  fuzz(npy_samples::npy("<i4", "(2, 2, 2)",
                        npy_samples::bytes_of<std::int32_t>({3, 1, 0, 0, 3, 2, 0, 0})),
       4000, through_file([](const auto& path) { return open_trace(path); }));
}

TEST(fuzz_traces, arrays) {
  fuzz(npy_samples::npy("<i2", "(2, 2, 2)",
                        npy_samples::bytes_of<std::int16_t>({3, 1, 0, 2, 3, 2, 1, -1})),
       6000, [](const std::string& bytes) {
         return trace_of_arrays({parse_npy(bytes, "fuzz")}, "fuzz", {.top_k = 2});
       });
}

TEST(fuzz_traces, archives_of_arrays) {
  const std::string saved(reinterpret_cast<const char*>(npy_samples::saved_npz),
                          sizeof npy_samples::saved_npz);
  fuzz(saved, 2000, through_file([](const auto& path) { return open_trace(path); }));
}

TEST(fuzz_traces, requests) {
  fuzz(std::string(trace_samples::mooncake_text), 4000,
       [](const std::string& bytes) { return accesses(parse_requests(bytes, "fuzz")); });
}

TEST(fuzz_traces, requests_without_blocks) {
  const std::string text =
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
      "2024-05-10 00:00:00.009930+00:00,110,27\n";
  fuzz(text, 4000, [](const std::string& bytes) {
    auto kv = parse_requests(bytes, "fuzz");
    if (const auto bad = kv.validate()) throw std::logic_error(bad->message);
    kv.blocks.push_back(0);  // this format has no blocks; a trace of accesses needs one
    kv.block_end.back() = 1;
    return accesses(kv);
  });
}

TEST(fuzz_traces, esft) {
  fuzz(std::string(trace_samples::esft_layer_1), 1500, [](const std::string& bytes) {
    return parse_esft({{"expert_weights_1.txt", bytes}}, "fuzz");
  });
}

TEST(fuzz_traces, esft_summary) {
  const std::string summary = R"({"gate_scores":{"1":{"0":0.5,"1":0.25,"2":0.1,"3":0.1}}})";
  fuzz(summary, 1500, [](const std::string& bytes) {
    return parse_esft({{"expert_weights_1.txt", std::string(trace_samples::esft_layer_1)},
                       {"summary.json", bytes}},
                      "fuzz");
  });
}

TEST(fuzz_traces, oracle_general) {
  fuzz(trace_samples::oracle_bytes(), 6000,
       [](const std::string& bytes) { return parse_oracle_general(bytes, "fuzz"); });
}

TEST(fuzz_traces, recogniser) {
  const std::vector<std::string> samples = {
      std::string(trace_samples::bigmoe_text), std::string(trace_samples::json_lines_text),
      trace_samples::oracle_bytes(), std::string(trace_samples::layer_expert_text)};
  for (const auto& sample : samples)
    fuzz(sample, 1000, through_file([](const auto& path) { return open_trace(path); }));
}

TEST(fuzz_traces, compressed) {
  const std::vector<std::span<const unsigned char>> samples = {
      trace_samples::mooncake_xz, trace_samples::mooncake_gz, trace_samples::mooncake_zst,
      trace_samples::esft_tar_xz};
  for (const auto sample : samples)
    fuzz(std::string(trace_samples::text_of(sample)), 700,
         through_file([](const auto& path) { return open_trace(path); }));
}

}  // namespace
}  // namespace trace_readers_test
