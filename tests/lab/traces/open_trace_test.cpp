// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/open_trace.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/native_trace_writer.hpp"
#include "lab/errors.hpp"
#include "lab/files/output_file.hpp"
#include "lab/traces/trace_hash.hpp"
#include "trace_samples.hpp"

namespace open_trace_test {
namespace {
using namespace hotset;
using namespace hotset::lab;
using ::testing::ElementsAre;
using trace_samples::expect_refused;
using trace_samples::text_of;

TEST(open_trace, recognises_formats_by_content) {
  const trace_samples::temporary_folder folder;
  const auto expect = [&](std::string_view bytes, trace_format format) {
    const auto path = folder.write("nondescript", bytes);
    EXPECT_EQ(name_of(recognise_trace(path)), name_of(format));
    EXPECT_GT(open_trace(path).tokens(), 0U);
  };
  expect(trace_samples::bigmoe_text, trace_format::bigmoe);
  expect(trace_samples::bigmoe_text.substr(trace_samples::bigmoe_text.find("turn,")),
         trace_format::bigmoe);
  expect("0,1,0,0,0,4,0.5\n", trace_format::bigmoe);
  expect(trace_samples::layer_expert_text, trace_format::layer_expert);
  expect("0,1\n0,2\n", trace_format::layer_expert);
  expect(trace_samples::json_lines_text, trace_format::json_lines);
  expect(trace_samples::mooncake_text, trace_format::requests);
  expect(trace_samples::oracle_bytes(), trace_format::oracle);
  expect(text_of(trace_samples::mooncake_xz), trace_format::requests);
  expect(text_of(trace_samples::mooncake_gz), trace_format::requests);
  expect(text_of(trace_samples::mooncake_zst), trace_format::requests);
  expect(text_of(trace_samples::esft_tar_xz), trace_format::esft);
  const auto native = folder.path() / "native";
  ASSERT_FALSE(write_native_trace(trace_samples::full_trace(), native.string()));
  EXPECT_EQ(recognise_trace(native), trace_format::native);
  EXPECT_EQ(open_trace(native).ids, trace_samples::full_trace().ids);
}

TEST(open_trace, opens_an_esft_folder) {
  const trace_samples::temporary_folder folder;
  folder.write("expert_weights_1.txt", trace_samples::esft_layer_1);
  folder.write("expert_weights_2.txt", trace_samples::esft_layer_2);
  EXPECT_EQ(recognise_trace(folder.path()), trace_format::esft);
  const auto trace = open_trace(folder.path());
  const trace_samples::temporary_folder other;
  EXPECT_EQ(open_trace(other.write("t", text_of(trace_samples::esft_tar_xz))).ids, trace.ids);
  EXPECT_EQ(trace.top_k, 2);
}

TEST(open_trace, refuses_unknown_formats) {
  const trace_samples::temporary_folder folder;
  const auto refused = [&](std::string_view bytes, std::initializer_list<std::string_view> said) {
    expect_refused([&] { (void)open_trace(folder.write("what", bytes)); }, said);
  };
  refused("", {"what", "byte 0", "is empty"});
  refused("budget_mib,policy\n1,lru\n",
          {"not recognised", "budget_mib,policy", "--field layer=NAME,experts=NAME"});
  refused("1,2,3,4\n", {"4 columns of numbers", "token,layer,e0,e1"});
  refused("[{\"layer\": 0}]\n", {"begins with '[{", "jq -c '.[]'"});
  refused("TIMESTAMP,ContextTokens\n1,2\n", {"or columns", "GeneratedTokens"});
  refused("{\"experts\": {\"1\": [4]}, \"shared_experts\": false, \"non_expert_modules\": false}\n",
          {"ESFT holds no trace", "hotset adapters plan"});
  refused("what\1\n", {"not recognised; it begins with 'what?'", "JSON lines"});
  refused("PAR1....", {"a Parquet file", "python3 -m hotset convert"});
  refused("\n\n", {"not recognised"});
  refused(std::string(48, '\0'), {"not recognised"});
  refused(text_of(trace_samples::mooncake_xz).substr(0, 60), {"cannot be unpacked"});
  refused(text_of(trace_samples::mooncake_gz).substr(0, 40), {"what"});
  refused(text_of(trace_samples::esft_tar_xz).substr(0, 100), {"cannot be unpacked"});
  expect_refused([&] { (void)open_trace(folder.path() / "absent"); }, {"cannot be opened"});
  const trace_samples::temporary_folder empty;
  expect_refused([&] { (void)open_trace(empty.path()); }, {"holds no expert_weights_<layer>.txt"});
  expect_refused(
      [&] {
        (void)open_trace(folder.write("m", trace_samples::mooncake_text),
                         {.format = trace_format::bigmoe});
      },
      {"line 1", "columns"});
}

TEST(open_trace, the_refusal_of_a_csv_names_fields_that_read_it) {
  const trace_samples::temporary_folder folder;
  const auto path =
      folder.write("ids.csv", ",token,moe_layer,e0,e1,req\n0,0,3,7.0,2,x\n1,1,3,1,,x\n");
  expect_refused(
      [&] { (void)open_trace(path); },
      {",token,moe_layer,e0,e1,req", "--field layer=moe_layer,experts=e0..e1,sequence=req"});
  const auto fields = parse_field_map("layer=moe_layer,experts=e0..e1,sequence=req");
  EXPECT_EQ(recognise_trace(path, fields), trace_format::columns);
  const auto trace = open_trace(path, {.fields = fields});
  EXPECT_THAT(trace.ids, ElementsAre(7, 2, 1, -1));
  EXPECT_EQ(trace.fact("layers"), "3");
}

TEST(open_trace, files_of_pytorch_are_named) {
  using namespace std::string_view_literals;
  const trace_samples::temporary_folder folder;
  const auto zip =
      "PK\3\4\x14\0\0\0\0\0\0\0!\0\x58\xfb\x0a\x72"
      "\4\0\0\0\4\0\0\0\x10\0\0\0"
      "archive/data.pkl\x80\2}q"sv;
  for (const auto bytes : {zip, "\x80\2}q\0X\3\0\0\0"sv}) {
    const auto path = folder.write("recorder.pt", bytes);
    expect_refused([&] { (void)open_trace(path); },
                   {"PyTorch", "accepted: what this writes: python3 -m hotset convert "});
  }
}

// A header of 1,408 bytes (0x580) starts like pickles of protocol 5.
TEST(open_trace, a_native_trace_is_no_pickle_whatever_its_length) {
  const trace_samples::temporary_folder folder;
  ASSERT_FALSE(write_native_trace(trace_samples::full_trace(), (folder.path() / "n").string()));
  auto bytes = trace_samples::read_all(folder.path() / "n");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  ASSERT_LT(length, 0x580U);
  bytes.insert(8 + length, 0x580 - length, ' ');
  length = 0x580;
  std::memcpy(bytes.data(), &length, 8);
  const auto path = folder.write("n", bytes);
  EXPECT_EQ(recognise_trace(path), trace_format::native);
  EXPECT_EQ(open_trace(path).ids, trace_samples::full_trace().ids);
}

TEST(open_trace, counts_are_no_trace) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("c.json", "{\n \"logical_count\": [[1, 2]]\n}\n");
  expect_refused([&] { (void)open_trace(path); }, {"hold no trace", "(hotset counts)"});
  const auto csv = folder.write("c.csv", "layer_id,expert_id,count\n3,0,24990\n");
  expect_refused([&] { (void)open_trace(csv); }, {"hold no trace", "(hotset counts)"});
}

/// 3 tokens, 3 layers, top-2: layer 0 is all zeros, and so is token 1 in layer 2.
constexpr std::string_view filled_up =
    "token,layer,experts\n0,0,0 0\n0,1,3 1\n0,2,4 5\n1,0,0 0\n1,1,2 0\n1,2,0 0\n"
    "2,0,0 0\n2,1,1 0\n2,2,5 4\n";

TEST(open_trace, a_row_that_names_an_expert_twice_is_not_routed) {
  const trace_samples::temporary_folder folder;
  reading_notes notes;
  const auto trace = open_trace(folder.write("t", filled_up), {.experts = 8, .notes = &notes});
  EXPECT_EQ(trace.layers, 2) << "layer 0 has no routed row";
  EXPECT_EQ(trace.fact("layers"), "1,2");
  EXPECT_THAT(trace.ids, ElementsAre(3, 1, 4, 5, 2, 0, -1, -1, 1, 0, 5, 4));
  EXPECT_THAT(notes, ElementsAre("4 of 9 rows name an expert twice, which no router does: taken as "
                                 "not routed",
                                 "layer 0 without a routed row: left out as dense"));
}

/// Padding with the number of experts, or with 255, counts no experts.
TEST(open_trace, ids_of_filler_count_no_experts) {
  const trace_samples::temporary_folder folder;
  for (const auto* text :
       {"token,layer,experts\n0,0,3 1\n1,0,255 255\n2,0,0 2\n",
        "{\"experts\":[[3,1]]}\n{\"experts\":[[4,4]]}\n{\"experts\":[[0,2]]}\n"}) {
    const auto trace = open_trace(folder.write("t", text));
    EXPECT_EQ(trace.experts, 4);
    EXPECT_THAT(trace.ids, ElementsAre(3, 1, -1, -1, 0, 2));
  }
}

TEST(open_trace, asks_about_layers_of_one_expert) {
  const trace_samples::temporary_folder folder;
  std::string text = "token,layer,expert\n";
  for (const auto* id : {"1", "0", "1", "2", "0", "1", "3", "2"}) {
    const auto token = std::to_string(text.size());
    text += token + ",0,0\n" + token + ",4," + id + "\n";
  }
  reading_notes notes;
  (void)open_trace(folder.write("t", text), {.experts = 4, .notes = &notes});
  EXPECT_THAT(notes,
              ElementsAre("layer 0 with one expert in all rows: dense? --layers selects others"));
}

TEST(open_trace, texts_may_begin_with_a_byte_order_mark) {
  const trace_samples::temporary_folder folder;
  for (const auto* text :
       {"token,layer,experts\r\n0,0,3 1\r\n", "{\"layer\":0,\"experts\":[3,1]}\n"})
    EXPECT_THAT(open_trace(folder.write("t", std::string("\xEF\xBB\xBF") + text)).ids,
                ElementsAre(3, 1));
}

TEST(open_trace, layers_are_selected_by_their_numbers) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("t", "token,layer,expert\n0,1,1\n0,2,2\n0,5,3\n1,1,4\n1,5,6\n");
  const auto read = [&](const char* layers) {
    return open_trace(path, {.layers = parse_layer_ranges(layers), .experts = 8});
  };
  EXPECT_THAT(read("2..5").ids, ElementsAre(2, 3, -1, 6));
  EXPECT_EQ(read("2..5").fact("layers"), "2,5");
  EXPECT_THAT(read("1").ids, ElementsAre(1, 4));
  EXPECT_EQ(read("0..9").layers, 3);
  EXPECT_EQ(read("2..").fact("layers"), "2,5");
  EXPECT_EQ(read("5,0..1").fact("layers"), "1,5");
  expect_refused([&] { (void)read("3..4"); }, {"has none of the layers", "within 1..5"});
  for (const auto* bad : {"", "5..2", "-1..2", "a", "..3", "1..65536", "1...3", "1,", "1.5..2"})
    EXPECT_THROW((void)parse_layer_ranges(bad), invalid_config) << bad;
}

TEST(open_trace, arrays_of_a_dense_layer_are_dropped) {
  auto trace = trace_samples::full_trace();
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t k = 0; k < 2; ++k) {
      trace.ids[trace.index(t, 0_layer) + k] = no_expert;
      trace.weights[trace.index(t, 0_layer) + k] = 0;
      trace.hidden = half_array(
          std::vector<std::uint16_t>{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6});
    }
  for (std::size_t i = 0; i < trace.logits.size(); ++i) trace.logits[i] = static_cast<float>(i);
  const trace_samples::temporary_folder folder;
  const auto path = folder.path() / "native";
  ASSERT_FALSE(write_native_trace(trace, path.string()));
  auto kept = open_trace(path);
  EXPECT_EQ(kept.layers, 2) << "as the engine counts them";
  reading_notes notes;
  leave_out_dense_layers(kept, &notes);
  EXPECT_THAT(notes, ElementsAre("layer 1 without a routed row: left out as dense"));
  EXPECT_EQ(kept.layers, 1);
  EXPECT_EQ(kept.fact("layers"), "2");
  EXPECT_THAT(kept.expert_bytes, ElementsAre(200));
  EXPECT_THAT(kept.ids, ElementsAre(2, 3, 3, -1, -1, -1));
  EXPECT_THAT(kept.weights, ElementsAre(.5F, .5F, 1, 0, 0, 0));
  EXPECT_THAT(std::vector(kept.logits.begin(), kept.logits.begin() + 5),
              ElementsAre(4, 5, 6, 7, 12));
  EXPECT_EQ(kept.hidden.size(), 9U);
  EXPECT_EQ(kept.hidden.raw(0), 2);
  EXPECT_EQ(kept.hidden.raw(8), 6);
  EXPECT_TRUE(kept.predictions.empty()) << "they count layers";
  EXPECT_FALSE(kept.validate());
  const auto again = kept.ids;
  leave_out_dense_layers(kept);
  EXPECT_EQ(kept.ids, again);
}

TEST(open_trace, refuses_a_trace_without_a_routed_row) {
  const trace_samples::temporary_folder folder;
  expect_refused(
      [&] { (void)open_trace(folder.write("t", "token,layer,experts\n0,0,0 0\n1,0,0 0\n")); },
      {"2 of 2 rows name an expert twice"});
}

TEST(open_trace, objects_of_a_cache_are_no_routers) {
  const trace_samples::temporary_folder folder;
  reading_notes notes;
  (void)open_trace(folder.write("m", trace_samples::mooncake_text), {.notes = &notes});
  EXPECT_THAT(notes, ElementsAre());
}

TEST(open_trace, cuts_steps_as_asked) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("t", text_of(trace_samples::esft_tar_xz));
  EXPECT_THAT(open_trace(path).step, ElementsAre(0, 1, 2));
  const auto whole = open_trace(path, {.as = parse_step_shape("prefill")});
  EXPECT_THAT(whole.step, ElementsAre(0, 0, 1)) << "a sequence is a step";
  EXPECT_EQ(whole.kind[0], request_class::prefill);
  auto trace = trace_samples::full_trace();
  trace.sequence = {0, 0, 0};
  cut_steps(trace, parse_step_shape("prefill:2"));
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 1));
  cut_steps(trace, parse_step_shape("decode"));
  EXPECT_THAT(trace.step, ElementsAre(0, 1, 2));
  EXPECT_EQ(trace.kind[0], request_class::decode);
  for (const auto* text : {"", "prefill:", "prefill:0", "prefill:x", "verify", "prefill:-1",
                           "decode:", "decode:0", "decode:4097", "decode:x"})
    EXPECT_THROW((void)parse_step_shape(text), invalid_config) << text;
}

TEST(open_trace, sequences_go_on_abreast_and_the_next_one_takes_a_free_place) {
  routing_trace trace;
  trace.name = "six";
  trace.layers = 2;
  trace.experts = 8;
  trace.top_k = 1;
  trace.hidden_width = 2;
  std::vector<std::uint16_t> hidden;
  for (std::uint16_t t = 0; t < 6; ++t)
    for (std::uint16_t l = 0; l < 2; ++l) {
      trace.ids.push_back(static_cast<expert_id>(t + l));
      trace.weights.push_back(static_cast<float>(10 * t + l));
      hidden.insert(hidden.end(), 2, static_cast<std::uint16_t>(100 * t + l));
    }
  trace.hidden = half_array(hidden);
  trace.token_ids = {50, 51, 52, 53, 54, 55};
  trace.step = {0, 1, 2, 3, 4, 5};
  trace.kind.assign(6, request_class::prefill);
  trace.sequence = {7, 8, 8, 8, 9, 9};  // rows 0, 1 2 3, 4 5
  const auto before = trace;
  cut_steps(trace, parse_step_shape("decode:2"));
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(trace.sequence, ElementsAre(7, 8, 8, 9, 8, 9));
  EXPECT_THAT(trace.token_ids, ElementsAre(50, 51, 52, 54, 53, 55));
  EXPECT_EQ(trace.kind, std::vector(6, request_class::decode));
  for (std::size_t t = 0; t < 6; ++t) {
    const auto from = static_cast<std::size_t>(trace.token_ids[t] - 50);
    for (const auto l : each<layer_id>(2)) {
      EXPECT_EQ(trace.ids_of(t, l)[0], before.ids_of(from, l)[0]);
      EXPECT_EQ(trace.weights_of(t, l)[0], before.weights_of(from, l)[0]);
    }
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(trace.hidden.raw(4 * t + i), before.hidden.raw(4 * from + i));
  }
  EXPECT_EQ(trace.validate(), std::nullopt);
}

TEST(open_trace, only_the_first_tokens_are_kept) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("t", text_of(trace_samples::esft_tar_xz));
  const auto whole = open_trace(path);
  ASSERT_EQ(whole.tokens(), 3U);
  const auto cut = open_trace(path, {.as = parse_step_shape("prefill"), .first = 2});
  EXPECT_EQ(cut.tokens(), 2U);
  EXPECT_EQ(cut.validate(), std::nullopt);
  EXPECT_TRUE(std::ranges::equal(cut.ids, std::span(whole.ids).first(cut.ids.size())));
  EXPECT_THAT(cut.step, ElementsAre(0, 0));
  EXPECT_EQ(open_trace(path, {.first = 3}).ids, whole.ids);
  EXPECT_EQ(open_trace(path, {.first = 99}).ids, whole.ids);
}

/// A trace of six tokens: sequences 5, 7 and 9 take turns in steps of two tokens.
routing_trace taking_turns() {
  routing_trace trace;
  trace.layers = 2;
  trace.experts = 8;
  trace.top_k = 1;
  trace.step = {0, 0, 1, 1, 2, 2};
  trace.sequence = {5, 7, 5, 9, 7, 9};
  trace.kind.assign(6, request_class::decode);
  trace.kind[3] = request_class::prefill;
  for (int i = 0; i < 12; ++i) {
    trace.ids.push_back(expert_id{i % 7});
    trace.weights.push_back(static_cast<float>(i));
  }
  for (int i = 0; i < 6; ++i) trace.token_ids.push_back(100 + i);
  return trace;
}

/// A naive cut: the given tokens, in steps of the given sizes.
routing_trace cut_by_hand(const routing_trace& whole, const std::vector<std::size_t>& tokens,
                          const std::vector<std::uint32_t>& steps) {
  auto out = whole;
  out.step = steps;
  out.sequence.clear();
  out.kind.clear();
  out.ids.clear();
  out.weights.clear();
  out.token_ids.clear();
  for (const auto t : tokens) {
    out.sequence.push_back(whole.sequence[t]);
    out.kind.push_back(whole.kind[t]);
    out.token_ids.push_back(whole.token_ids[t]);
    for (const auto i : {2 * t, 2 * t + 1}) {
      out.ids.push_back(whole.ids[i]);
      out.weights.push_back(whole.weights[i]);
    }
  }
  return out;
}

TEST(open_trace, a_cut_is_the_trace_of_these_tokens_or_sequences_alone) {
  const trace_samples::temporary_folder folder;
  const auto whole = taking_turns();
  const auto path = (folder.path() / "whole").string();
  ASSERT_FALSE(write_native_trace(whole, path));
  const auto expect = [&](const open_trace_options& options, const std::vector<std::size_t>& tokens,
                          const std::vector<std::uint32_t>& steps) {
    const auto cut = open_trace(path, options);
    const auto by_hand = cut_by_hand(whole, tokens, steps);
    EXPECT_EQ(cut.validate(), std::nullopt);
    EXPECT_EQ(cut.step, by_hand.step);
    EXPECT_EQ(cut.sequence, by_hand.sequence);
    EXPECT_EQ(content_hash(cut), content_hash(by_hand));
    EXPECT_NE(content_hash(cut), content_hash(whole));
    EXPECT_NE(trace_hash(cut), trace_hash(whole));
  };
  const auto tokens = [](std::string_view range) {
    return open_trace_options{.tokens = parse_row_range(range)};
  };
  const auto sequences = [](std::string_view range) {
    return open_trace_options{.sequences = parse_row_range(range)};
  };
  expect(tokens("0:3"), {0, 1, 2}, {0, 0, 1});
  expect(tokens("1:4"), {1, 2, 3}, {0, 1, 1});
  expect(tokens("3..4"), {3, 4}, {0, 1});
  expect(tokens("4:"), {4, 5}, {0, 0});
  expect(tokens("5..99"), {5}, {0});
  expect(sequences("5:6"), {0, 2}, {0, 1});
  expect(sequences("6..7"), {1, 4}, {0, 1});
  expect(sequences("7:"), {1, 3, 4, 5}, {0, 1, 2, 2});
  expect(sequences("9:10"), {3, 5}, {0, 1});
  for (const auto& all : {tokens("0:6"), tokens("0.."), sequences("5:10"), sequences("0:99")})
    EXPECT_EQ(content_hash(open_trace(path, all)), content_hash(whole));
  expect_refused([&] { (void)open_trace(path, tokens("6:9")); },
                 {"has no token 6", "--tokens within 0:6"});
  expect_refused([&] { (void)open_trace(path, sequences("10:12")); },
                 {"has none of the sequences", "--sequences within 5:10"});
}

TEST(open_trace, a_range_of_rows_without_a_row_is_refused) {
  for (const auto* text : {"", ":", "3", ":3", "..3", "3:3", "4..3", "5:3", "a:b", "1:2:3", "-1:3",
                           "1:99999999999", "1.5:3", " 1:2"})
    EXPECT_THROW((void)parse_row_range(text), invalid_config) << text;
  const auto last = parse_row_range("4294967295..4294967295");
  EXPECT_EQ(last.first, 4294967295U);
  EXPECT_EQ(last.end, 4294967296U);
}

TEST(open_trace, notes_options_that_the_trace_was_not_read_by) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("t", "layer,expert\n0,1\n0,2\n1,0\n1,3\n");
  reading_notes notes;
  (void)open_trace(path, {.top_k = 2, .experts = 4, .notes = &notes});
  EXPECT_THAT(notes, ElementsAre());
  const auto trace = open_trace(path, {.experts = 4});
  const auto native = folder.path() / "native";
  ASSERT_FALSE(write_native_trace(trace, native.string()));
  (void)open_trace(native, {.fields = parse_field_map("layer=l"),
                            .top_k = 3,
                            .experts = 8,
                            .block_bytes = 16,
                            .notes = &notes});
  EXPECT_THAT(notes, ElementsAre("--experts has no effect: the trace has 4 experts per layer",
                                 "--top-k has no effect: the trace has 2 experts per token",
                                 "--field has no effect: only jsonl and csv have named fields",
                                 "--block-bytes has no effect: only requests have blocks"));
}

TEST(open_trace, format_names_can_be_parsed) {
  for (const auto* name : {"auto", "native", "bigmoe", "esft", "layer-expert", "jsonl", "csv",
                           "npy", "oracle", "requests"})
    EXPECT_EQ(name_of(parse_trace_format(name)), name);
  EXPECT_THROW((void)parse_trace_format("parquet"), lab::usage_error);
}

TEST(output_file, appears_complete_or_not_at_all) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("f", "earlier");
  {
    output_file file(path);
    file.write("half");
    EXPECT_EQ(folder.files(), 2U);
  }
  EXPECT_EQ(trace_samples::read_all(path), "earlier");
  EXPECT_EQ(folder.files(), 1U);
  write_file(path, "new");
  EXPECT_EQ(trace_samples::read_all(path), "new");
  EXPECT_EQ(folder.files(), 1U);
  EXPECT_THROW(write_file(folder.path() / "no" / "f", ""), std::runtime_error);
}

}  // namespace
}  // namespace open_trace_test
