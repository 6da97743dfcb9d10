// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/importers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/oracle_general.hpp"
#include "lab/traces/requests.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "trace_samples.hpp"

namespace importers_test {
namespace {
using namespace hotset;
using namespace hotset::lab;
using ::testing::ElementsAre;
using trace_samples::expect_refused;

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  const auto at = out.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return out.replace(at, from.size(), to);
}

// --- BigMoeOnEdge

TEST(bigmoe_route_csv, a_prompt_is_one_step_and_layers_become_dense) {
  const auto trace = parse_bigmoe_route_csv(trace_samples::bigmoe_text, "toy.route.csv");
  EXPECT_EQ(trace.name, "toy");
  EXPECT_EQ(trace.model, "toy.gguf");
  EXPECT_EQ(trace.layers, 2);
  EXPECT_EQ(trace.experts, 8);
  EXPECT_EQ(trace.top_k, 2);
  EXPECT_EQ(trace.fact("layers"), "2,5");
  EXPECT_THAT(trace.expert_bytes, ElementsAre(100, 200));
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 1, 2));
  EXPECT_EQ(trace.kind[1], request_class::prefill);
  EXPECT_EQ(trace.kind[2], request_class::decode);
  EXPECT_THAT(trace.ids_of(1, 0_layer), ElementsAre(1, 0));
  EXPECT_THAT(trace.ids_of(3, 1_layer), ElementsAre(4, 2));
  EXPECT_EQ(trace.weights_of(0, 1_layer)[0], 0.75F);
  EXPECT_THAT(visit_sequence(trace)[0].experts, ElementsAre(7, 1, 1, 0)) << "token-major";
}

TEST(bigmoe_route_csv, without_header_comments_the_shape_is_inferred) {
  const auto rows = trace_samples::bigmoe_text.substr(trace_samples::bigmoe_text.find("turn,"));
  const auto trace = parse_bigmoe_route_csv(rows, "toy");
  EXPECT_EQ(trace.experts, 8);
  EXPECT_EQ(trace.top_k, 2);
  EXPECT_THAT(trace.expert_bytes, ElementsAre(100, 200)) << "as read on misses";
  const auto bare = parse_bigmoe_route_csv("0,1,0,0,0,4,1\n1,1,0,0,0,3,1\n", "bare");
  EXPECT_TRUE(bare.expert_bytes.empty());
  EXPECT_THAT(bare.sequence, ElementsAre(0, 1)) << "a turn is a sequence";
  EXPECT_THAT(bare.step, ElementsAre(0, 1));
  EXPECT_FALSE(bare.fact("layers"));
}

TEST(bigmoe_route_csv, a_prompt_token_may_miss_the_last_layer) {
  const auto trace = parse_bigmoe_route_csv(
      "0,0,0,0,0,1,1\n0,0,1,0,0,2,1\n0,0,1,1,0,3,1\n0,1,2,0,0,1,1\n0,1,2,1,0,1,1\n", "t");
  EXPECT_THAT(trace.ids_of(0, 1_layer), ElementsAre(-1));
  EXPECT_THAT(trace.ids_of(1, 1_layer), ElementsAre(3));
}

TEST(bigmoe_route_csv, refuses_bad_rows_in_one_line) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string_view> said) {
    expect_refused([&] { (void)parse_bigmoe_route_csv(text, "toy.csv"); }, said);
  };
  const auto text = trace_samples::bigmoe_text;
  refused(replaced(text, "0,0,0,2,0,7,", "0,0,0,2,0,8,"),
          {"toy.csv: line 6", "expert is '8'", "an integer in 0..7"});
  refused(replaced(text, "0,0,0,2,0,7,", "0,0,0,2,0,-1,"), {"line 6", "expert is '-1'"});
  refused(replaced(text, "0,0,0,2,0,", "0,0,0,2,2,"), {"slot is '2'", "0..1"});
  refused(replaced(text, "7,0.75", "7,nan"), {"line 6", "weight is 'nan'", "a finite number"});
  refused(replaced(text, "7,0.75", "7,1e99"), {"weight is '1e99'"});
  refused(replaced(text, "7,0.75,0,100", "7,0.75,0"), {"line 6", "8 columns"});
  refused(replaced(text, "7,0.75,0,100", "7,0.75,0,100,1"), {"10 columns"});
  refused(replaced(text, "0,0,0,2,0,7", "0,2,0,2,0,7"), {"phase is '2'", "0..1"});
  refused(replaced(text, "0,0,0,2,1,1", "0,0,0,2,0,1"), {"line 7", "was given in line 6"});
  refused(replaced(text, "n_expert=8", "n_expert=0"), {"line 2", "n_expert is '0'"});
  refused("", {"routes no expert"});
  refused("# route_trace v1\n", {"routes no expert"});
  refused("0,0,0,0,0,99999999,1\n", {"expert is '99999999'"});
}

TEST(bigmoe_route_csv, refuses_a_file_cut_short) {
  const auto text = trace_samples::bigmoe_text;
  const auto last_row = text.rfind('\n', text.size() - 2) + 1;
  expect_refused([&] { (void)parse_bigmoe_route_csv(text.substr(0, last_row), "cut"); },
                 {"line 20", "ends inside a token, at layer 5, slot 0", "slot 1"});
  expect_refused([&] { (void)parse_bigmoe_route_csv(text.substr(0, text.size() - 14), "cut"); },
                 {"line 21"});
}

TEST(bigmoe_route_csv, few_rows_cannot_ask_for_much_memory) {
  std::string rows;
  for (int t = 0; t < 100; ++t)
    rows += "0,1," + std::to_string(t) + "," + std::to_string(t * 600) + ",4095,1,1\n";
  rows += "0,1,100,65000,4095,1,1\n";
  expect_refused([&] { (void)parse_bigmoe_route_csv(rows, "t"); },
                 {"most tokens visit most layers"});
}

// --- layer,expert CSV

TEST(layer_expert_csv, batches_are_prefill_and_the_last_layer_may_route_fewer) {
  const auto trace = parse_layer_expert_csv(trace_samples::layer_expert_text, "dump.csv");
  EXPECT_EQ(trace.layers, 2);
  EXPECT_EQ(trace.top_k, 2);
  EXPECT_EQ(trace.experts, 6);
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 1));
  EXPECT_EQ(trace.kind[0], request_class::prefill);
  EXPECT_EQ(trace.kind[2], request_class::decode);
  EXPECT_THAT(trace.ids_of(0, 0_layer), ElementsAre(3, 1));
  EXPECT_THAT(trace.ids_of(0, 1_layer), ElementsAre(-1, -1));
  EXPECT_THAT(trace.ids_of(1, 1_layer), ElementsAre(5, 4));
  EXPECT_TRUE(trace.weights.empty());
}

TEST(layer_expert_csv, headers_weights_and_options) {
  const auto trace =
      parse_layer_expert_csv("4,1,0.5\r\n9,2,0.25\r\n4,0,1\r\n9,2,1\r\n", "t", {.experts = 64});
  EXPECT_EQ(trace.experts, 64);
  EXPECT_EQ(trace.fact("layers"), "4,9");
  EXPECT_THAT(trace.weights, ElementsAre(0.5F, 0.25F, 1.0F, 1.0F));
  const auto pairs =
      parse_layer_expert_csv("0,1\n0,2\n0,3\n0,4\n1,1\n1,2\n1,3\n1,4\n", "t", {.top_k = 2});
  EXPECT_EQ(pairs.tokens(), 2U);
}

TEST(layer_expert_csv, refuses_bad_rows_in_one_line) {
  const auto refused = [](std::string_view text, std::initializer_list<std::string_view> said,
                          const open_trace_options& options = {}) {
    expect_refused([&] { (void)parse_layer_expert_csv(text, "d.csv", options); }, said);
  };
  refused("", {"has no rows"});
  refused("layer,expert\n", {"has no rows"});
  refused("expert,layer\n0,1\n", {"line 1", "layer,expert[,weight]"});
  refused("0,1\n0,x\n", {"line 2", "expert is 'x'"});
  refused("0,1\n0,-2\n", {"expert is '-2'"});
  refused("0,1\n0,9\n", {"expert is '9'", "-1..7"}, {.experts = 8});
  refused("0,1\n0,1,0.5\n", {"line 2", "3 columns"});
  refused("0,1,0.5\n0,1,nan\n", {"weight is 'nan'"});
  refused("0,1\n0,2\n1,3\n1,4\n0,1\n0,2\n1,3\n",
          {"line 7", "layer 1 ends after 1 rows", "top_k = 2"}, {.top_k = 2});
  refused("0,1\n1,3\n0,1\n", {"line 3", "ends inside a token, at layer 0"});
}

// --- JSON lines

TEST(json_lines, reads_records_of_steps_and_phases) {
  const auto trace = parse_json_lines(trace_samples::json_lines_text, "t.jsonl");
  EXPECT_EQ(trace.tokens(), 3U);
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 1));
  EXPECT_EQ(trace.kind[0], request_class::prefill);
  EXPECT_EQ(trace.kind[2], request_class::decode);
  EXPECT_THAT(trace.ids_of(1, 1_layer), ElementsAre(0, 3));
  EXPECT_THAT(trace.ids_of(2, 1_layer), ElementsAre(3, -1));
  EXPECT_EQ(trace.weights_of(1, 0_layer)[0], 0.7F);
}

TEST(json_lines, names_follow_the_field_map_and_steps_the_layers) {
  const auto fields = parse_field_map("layer=l,experts=ids");
  const auto trace = parse_json_lines(
      "{\"l\":3,\"ids\":[1]}\n\n{\"l\":5,\"ids\":[0]}\n{\"l\":3,\"ids\":[2]}\n"
      "{\"l\":5,\"ids\":[2]}\n",
      "t", {.fields = fields, .experts = 16});
  EXPECT_EQ(trace.tokens(), 2U);
  EXPECT_EQ(trace.experts, 16);
  EXPECT_EQ(trace.fact("layers"), "3,5");
  EXPECT_THROW((void)parse_field_map("layers=l"), invalid_config);
  EXPECT_THROW((void)parse_field_map("layer="), invalid_config);
  EXPECT_THROW((void)parse_field_map("layer"), invalid_config);
  EXPECT_EQ(parse_field_map("").layer, "layer");
}

TEST(json_lines, lines_of_one_step_and_layer_are_tokens) {
  const auto trace = parse_json_lines(
      "{\"layer\":0,\"experts\":[1],\"step\":4}\n{\"layer\":0,\"experts\":[2],\"step\":4}\n"
      "{\"layer\":1,\"experts\":[3],\"step\":4}\n{\"layer\":1,\"experts\":[0],\"step\":4}\n",
      "t");
  EXPECT_EQ(trace.tokens(), 2U);
  EXPECT_THAT(trace.ids, ElementsAre(1, 3, 2, 0));
  const auto tokens = parse_json_lines(
      "{\"layer\":0,\"experts\":[1],\"token\":9}\n"
      "{\"layer\":0,\"experts\":[2],\"token\":12}\n",
      "t");
  EXPECT_THAT(tokens.step, ElementsAre(0, 1));
}

TEST(json_lines, a_prompt_layer_by_layer_is_a_step) {
  const auto line = [](int layer, int expert) {
    return "{\"layer\":" + std::to_string(layer) + ",\"experts\":[" + std::to_string(expert) +
           "]}\n";
  };
  const auto prompt = line(0, 1) + line(0, 2) + line(2, 3) + line(2, 4) + line(5, 5) + line(5, 6);
  const auto token = line(0, 7) + line(2, 8) + line(5, 9);
  lab::reading_notes notes;
  const auto trace =
      parse_json_lines(prompt + token + prompt, "t", {.experts = 10, .notes = &notes});
  EXPECT_THAT(trace.step, ElementsAre(0, 0, 1, 2, 2));
  EXPECT_THAT(trace.ids, ElementsAre(1, 3, 5, 2, 4, 6, 7, 8, 9, 1, 3, 5, 2, 4, 6));
  EXPECT_EQ(trace.kind[0], request_class::prefill);
  EXPECT_EQ(trace.kind[2], request_class::decode);
  EXPECT_THAT(notes, ElementsAre(testing::HasSubstr("layer by layer: taken for 2 steps of a")));
}

TEST(json_lines, rows_that_fit_no_rule_are_reported_to_lack_layers) {
  lab::reading_notes notes;
  const auto lacking = [&](std::string_view text) {
    notes.clear();
    return parse_json_lines(text, "t", {.experts = 10, .notes = &notes}).tokens();
  };
  const std::string first = "{\"layer\":0,\"experts\":[1]}\n";
  const std::string second = "{\"layer\":1,\"experts\":[2]}\n";
  EXPECT_EQ(lacking(first + first + first + second), 3U);
  EXPECT_THAT(notes, ElementsAre(testing::HasSubstr("2 of 3 tokens have not all layers")));
  EXPECT_EQ(lacking(first + first + second), 2U);
  EXPECT_THAT(notes, ElementsAre()) << "half of them have";
}

TEST(json_lines, records_of_a_logger) {
  lab::reading_notes notes;
  const auto trace = parse_json_lines(
      "{\"type\":\"meta\",\"experts\":8}\n{\"note\":\"\"}\n"
      "{\"layer\":0,\"experts\":[1],\"sequence\":\"r2\",\"token\":0,\"phase\":\"prompt\"}\n"
      "{\"layer\":0,\"experts\":[2],\"sequence\":\"r1\",\"token\":0,\"phase\":\"prompt\"}\n"
      "{\"layer\":0,\"experts\":[3],\"sequence\":\"r2\",\"token\":1,\"phase\":\"decode\"}\n",
      "t", {.experts = 8, .notes = &notes});
  EXPECT_THAT(trace.ids, ElementsAre(1, 3, 2));
  EXPECT_THAT(trace.sequence, ElementsAre(0, 0, 1)) << "by first appearance";
  EXPECT_THAT(trace.kind,
              ElementsAre(request_class::prefill, request_class::decode, request_class::prefill));
  EXPECT_THAT(notes, ElementsAre(testing::HasSubstr("2 records have neither 'layer' nor")));
}

/// Two tokens through layers 2 and 10, top-2: 1 2, 3 4; 5 6, 7 0.
TEST(json_lines, spellings_of_loggers) {
  struct {
    std::string_view text;
    std::string_view fields = "";
    std::string_view note = "";
  } const logs[] = {
      {R"({"token":0,"layer":"2","experts":[1,2]}
{"token":0,"layer":"model.layers.10.mlp","experts":[3,4]}
{"event":"checkpoint","at":3.5}
{"token":1,"layer":"2","experts":[5,6]}
{"token":1,"layer":"h.10","experts":[7,0],"phase":null,"sequence":null}
{"layer":null,"event":"end"})",
       "", "2 records have neither 'layer' nor 'experts': left out"},
      {R"({"experts":{"layers.10":[3,4],"layers.2":[1,2]},"step":0}
{"experts":{"layers.2":[5,6],"layers.10":[7,0],"total":2},"step":1})"},
      {R"({"routes":{"2":[[1,2],[5,6]],"10":[[3,4],[7,0]]}})", "experts=routes"},
      {R"({"id":1,"layers":{"model.layers.2":[1,2],"model.layers.10":[3,4]}}
{"id":2,"layers":{"model.layers.2":[5,6],"model.layers.10":[7,0]}}
{"layer":1,"experts":null})"},
      {R"({"layer_2":[1,2],"layer_10":[3,4]}
{"layer_2":[5,6],"layer_10":[7,0]})"},
      {R"({"layer":2,"experts":[[1,2],[5,6]]}
{"layer":10,"experts":[[3,4],[7,0]]})",
       "",
       "rows of several tokens stand layer by layer: taken for 1 step of a prompt; fields token "
       "and step say otherwise"},
      {R"({"t":0,"l":2,"e0":1,"e1":2.0}
{"t":0,"l":10,"e0":3,"e1":4}
{"t":1,"l":2,"e0":5,"e1":6}
{"t":1,"l":10,"e0":7,"e1":0})",
       "layer=l,token=t,experts=e0..e1"},
      {R"({"token":0,"layer":2,"expert":1}
{"token":0,"layer":2,"expert":2}
{"token":0,"layer":10,"expert":3}
{"token":0,"layer":10,"expert":4}
{"token":1,"layer":2,"expert":5}
{"token":1,"layer":2,"expert":6}
{"token":1,"layer":10,"expert":7}
{"token":1,"layer":10,"expert":0})"},
      {R"({"token":0,"layer":2,"experts":[1,2],"request_id":"a"}
{"token":0,"layer":10,"experts":[3,4],"request_id":"a"}
{"token":1,"layer":2,"experts":[5,6],"request_id":"a"}
{"token":1,"layer":10,"experts":[7,0],"request_id":"a"})",
       "", "fields of tokens or requests are not read: --field sequence=request_id"},
  };
  for (const auto& log : logs) {
    SCOPED_TRACE(log.text);
    lab::reading_notes notes;
    const auto trace = parse_json_lines(
        log.text, "t", {.fields = parse_field_map(log.fields), .experts = 8, .notes = &notes});
    EXPECT_THAT(trace.ids, ElementsAre(1, 2, 3, 4, 5, 6, 7, 0));
    EXPECT_EQ(trace.fact("layers"), "2,10");
    EXPECT_EQ(trace.sequence.back(), 0U);
    EXPECT_THAT(notes, log.note.empty() ? ElementsAre()
                                        : testing::Matcher<reading_notes>(ElementsAre(log.note)));
  }
}

TEST(json_lines, phases_of_engines) {
  for (const auto& [text, phase] : {std::pair("extend", request_class::prefill),
                                    {"PREFILL", request_class::prefill},
                                    {"context", request_class::prefill},
                                    {"Generation", request_class::decode},
                                    {"DECODE", request_class::decode},
                                    {"verify", request_class::verify}})
    EXPECT_EQ(parse_phase(text), phase) << text;
}

TEST(json_lines, lists_may_hold_the_layers_or_tokens) {
  const auto read = [](std::string_view text) { return parse_json_lines(text, "t"); };
  const auto tokens = read("{\"experts\":[[1,2],[3,0]]}\n{\"experts\":[[2,1],[0,3]]}\n");
  EXPECT_EQ(tokens.layers, 2);
  EXPECT_THAT(tokens.ids, ElementsAre(1, 2, 3, 0, 2, 1, 0, 3));
  EXPECT_THAT(tokens.step, ElementsAre(0, 1));
  const auto requests = read(
      "{\"experts\":[[[1],[2]],[[3],[4]]],\"weights\":[[[0.5],[0.25]],[[1],[2]]]}\n"
      "{\"experts\":[[[5],[6]]],\"weights\":[[[3],[4]]]}\n");
  EXPECT_THAT(requests.ids, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(requests.weights, ElementsAre(0.5F, 0.25F, 1, 2, 3, 4));
  EXPECT_THAT(requests.sequence, ElementsAre(0, 0, 1));
  const auto batches = read(
      "{\"layer\":0,\"experts\":[[1],[2]]}\n{\"layer\":1,\"experts\":[[3.0],[4]]}\n"
      "{\"layer\":0,\"experts\":[[5]]}\n{\"layer\":1,\"experts\":[[6]]}\n");
  EXPECT_THAT(batches.ids, ElementsAre(1, 3, 2, 4, 5, 6));
  EXPECT_THAT(batches.step, ElementsAre(0, 0, 1));
}

/// Two tokens through two layers, top-1: 1 2, 3 4 as 32-bit integers.
TEST(json_lines, answers_of_engines_hold_arrays_in_base64) {
  const auto expect = [](std::string_view line, std::int32_t top_k) {
    const auto text = std::string(line) + "\n" + std::string(line) + "\n";
    const auto trace = parse_json_lines(text, "t", {.top_k = top_k});
    EXPECT_THAT(trace.ids, ElementsAre(1, 2, 3, 4, 1, 2, 3, 4)) << line;
    EXPECT_EQ(trace.layers, 2);
    EXPECT_THAT(trace.sequence, ElementsAre(0, 0, 1, 1));
  };
  expect(R"({"text": "", "meta_info": {"prompt_tokens": 2, "completion_tokens": 1, )"
         R"("routed_experts": "AQAAAAIAAAADAAAABAAAAA=="}})",
         1);
  expect(R"({"routed_experts": {"data": "AQAAAAIAAAADAAAABAAAAA==", "dtype": "torch.int32", )"
         R"("shape": [2, 2, 1], "encoding": "base64"}})",
         0);
  expect(R"({"routed_experts": "AQIDBA==", "routed_experts_shape": [2, 2, 1], "dtype": "uint8"})",
         0);
  expect(
      R"({"experts": {"b64": "AQACAAMABAA=", "axes": "t,l,k", "dtype": "<i2", "shape": [2, 2, 1]}})",
      0);
  expect(R"({"choices": [{"index": 0, "routed_experts": ")"
         "k05VTVBZAQA9AHsnZGVzY3InOiAnPGk0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDIs"
         "IDEpfQoBAAAAAgAAAAMAAAAEAAAA"
         R"("}]})",
         0);
}

TEST(json_lines, sequences_may_be_interleaved) {
  const auto trace = parse_json_lines(
      "{\"layer\":0,\"experts\":[1],\"sequence\":5}\n{\"layer\":0,\"experts\":[2],\"sequence\":3}\n"
      "{\"layer\":1,\"experts\":[3],\"sequence\":5}\n{\"layer\":1,\"experts\":[4],\"sequence\":3}"
      "\n",
      "t");
  EXPECT_THAT(trace.ids, ElementsAre(2, 4, 1, 3)) << "by number";
}

TEST(json_lines, refuses_bad_lines_in_one_line) {
  const auto refused = [](std::string_view text, std::initializer_list<std::string_view> said,
                          std::int32_t experts = 0) {
    expect_refused([&] { (void)parse_json_lines(text, "t.jsonl", {.experts = experts}); }, said);
  };
  refused("", {"routes no expert"});
  refused("{\"layer\":0,\"experts\":[1]}\n{\"layer\":0,", {"line 2: ends before its JSON does"});
  refused("[1]\n", {"t.jsonl: line 1: is no JSON object; accepted: one JSON object a line"});
  refused("{\"layer\":0,\"experts\":[1],\"layer\":1}\n",
          {"line 1: key 'layer': is there twice; accepted: each key once"});
  refused("{\"experts\":[1]}\n", {"has no 'layer'", "it has experts", "--field"});
  refused("\n{\"l\":0,\"ids\":[1]}\n", {"line 2", "has no 'layer' (it has ids, l)", "--field"});
  refused(
      "{\"top_k\":1,\"layers\":2}\n{\"layer_id\":0,\"topk_ids\":[1],\"token_idx\":0,\"req_id\":1}"
      "\n",
      {"line 2",
       "--format jsonl --field layer=layer_id,experts=topk_ids,token=token_idx,sequence=req_id"});
  refused("{\"routed_experts\":{\"data\":\"AQI=\",\"dtype\":\"float16\"}}\n",
          {"of type \"float16\"", "int8 to uint64"});
  refused("{\"routed_experts\":\"AQAAAA==\",\"shape\":[1,2,1]}\n",
          {"1 numbers in base64 for a shape of [1,2,1]"});
  refused("{\"layer\":\"a.1.2\",\"experts\":[1]}\n", {"layer is \"a.1.2\""});
  refused("{\"experts\":{\"a\":[1]}}\n", {"has no 'layer'"});
  refused("{\"layer\":0}\n", {"has no 'experts'"});
  refused("{\"layer\":-1,\"experts\":[1]}\n", {"layer is -1"});
  refused("{\"layer\":0,\"experts\":3}\n", {"has one expert", "'token' or 'rank'"});
  refused("{\"layer\":0,\"expert\":3,\"rank\":4294967295}\n", {"rank is 4294967295", "0..4095"});
  refused("{\"layer\":0,\"experts\":[4]}\n", {"experts is 4", "-1..3"}, 4);
  refused("{\"layer\":0,\"experts\":[1.5]}\n", {"experts is 1.5"});
  refused("{\"layer\":0,\"experts\":[\"x\\n\"]}\n", {"line 1"});
  refused("{\"layer\":0,\"experts\":[1],\"weights\":[null]}\n", {"a weight is null"});
  refused("{\"layer\":0,\"experts\":[1],\"weights\":[1e39]}\n", {"a weight is"});
  refused("{\"layer\":0,\"experts\":[1],\"weights\":[1,2]}\n", {"2 weights for 1 experts"});
  refused("{\"layer\":0,\"experts\":[[1],[[2]]]}\n",
          {"experts is an array of 1; accepted: an integer"});
  refused("{\"layer\":0,\"experts\":[[[1]]]}\n", {"experts has 3 axes"});
  refused("{\"experts\":[[1],[2]],\"weights\":[[1]]}\n", {"1 weights for 2 experts"});
  refused("{\"routed_experts\":\"AQ*A\"}\n", {"accepted: an array, or one in base64"});
  refused("{\"routed_experts\":\"AQAAAAIAAAA=\"}\n",
          {"2 numbers in base64, and their shape is unknown", "--top-k"});
  refused("{\"layer\":0,\"experts\":[1],\"weights\":[1]}\n{\"layer\":0,\"experts\":[1]}\n",
          {"line 2", "in every line or in none"});
  refused("{\"layer\":0,\"experts\":[1],\"phase\":\"warm\"}\n", {"phase is 'warm'", "phase=none"});
  refused("{\"layer\":0,\"experts\":[-1]}\n", {"routes no expert"});
}

// --- requests

constexpr std::string_view azure_text =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,4808,10\n"
    "2023-11-16 18:17:04.0319600,3180,8\n"
    "2024-02-29 00:00:00+00:00,110,27";

TEST(requests, of_public_traces_are_read_by_the_names_of_their_columns_or_keys) {
  struct {
    std::string_view text;
    std::vector<std::uint64_t> times;
    std::vector<std::uint32_t> inputs;
    std::vector<std::uint32_t> outputs;
    std::uint32_t block_tokens = 512;
    std::vector<std::string> notes{};
  } const traces[] = {
      {azure_text, {1700158623979, 1700158624031, 1709164800000}, {4808, 3180, 110}, {10, 8, 27}},
      {"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
       "2024-10-15 00:00:00.009930+00:00,1,2162,5\n",
       {1728950400009},
       {2162},
       {5}},
      {"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
       "Type\n5,s,1.5,ChatGPT,472,18,490,\"API, log\"\n45.25,,2,GPT-4,1087.0,0,1087,API log\n",
       {5000, 45250},
       {472, 1087},
       {18, 0}},
      {"arrived_at;num_prefill_tokens;num_decode_tokens\n0.5;7;2\n", {500}, {7}, {2}},
      {"created|input_len|output_len\n2024-05-10T02:00:00.5+02:00|3|1\n2024-05-09T23:00:00-01:30|4|"
       "2\n"
       "2024-05-10T00:00:00Z|5|3\n",
       {1715299200500, 1715301000000, 1715299200000},
       {3, 4, 5},
       {1, 2, 3}},
      {"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:01+00:00,1,2\n",
       {1715299201000},
       {1},
       {2}},
      {"completion_tokens,time,num_prompt_tokens\n9,1.5,8\n", {1500}, {8}, {9}},
      {trace_samples::mooncake_text, {0, 40}, {1024, 1500}, {6, 3}},
      {R"({"chat_id": 3, "timestamp": 61.25, "input_length": 52, "output_length": 20, "turn": 1, "hash_ids": [1, 2, 3, 4]}
{"chat_id": 4, "timestamp": 65, "input_length": 90, "output_length": 21, "turn": 2, "hash_ids": [1, 2, 3, 4, 5, 6]}
)",
       {61250, 65000},
       {52, 90},
       {20, 21},
       16,
       {"times of requests have fractions: read as seconds",
        "blocks of requests have 16 tokens, by the lengths of the prompts"}},
  };
  for (const auto& trace : traces) {
    SCOPED_TRACE(trace.text);
    EXPECT_TRUE(looks_like_requests(trace.text.substr(0, trace.text.find('\n'))));
    reading_notes notes;
    const auto kv = parse_requests(trace.text, "a.csv", &notes);
    EXPECT_EQ(kv.timestamp, trace.times);
    EXPECT_EQ(kv.input_length, trace.inputs);
    EXPECT_EQ(kv.output_length, trace.outputs);
    EXPECT_EQ(kv.block_tokens, trace.block_tokens);
    EXPECT_EQ(notes, trace.notes);
    EXPECT_FALSE(kv.validate());
  }
}

TEST(requests, have_blocks_if_they_name_them) {
  const auto kv = parse_requests(trace_samples::mooncake_text, "m.jsonl");
  EXPECT_THAT(kv.blocks_of(1), ElementsAre(7, 9, 11));
  EXPECT_EQ(kv.distinct(), 3U);
  const auto accesses = block_accesses(parse_requests(azure_text, "a.csv"));
  ASSERT_FALSE(accesses);
  EXPECT_EQ(accesses.error().message,
            "a: the requests name no blocks, accepted: a trace of what prompts share");
}

TEST(requests, are_written_as_they_are_read) {
  const auto kv = parse_requests(trace_samples::mooncake_text, "m.jsonl");
  const auto text = format_requests(kv);
  const auto again = parse_requests(text, "m.jsonl");
  EXPECT_EQ(again.timestamp, kv.timestamp);
  EXPECT_EQ(again.input_length, kv.input_length);
  EXPECT_EQ(again.output_length, kv.output_length);
  EXPECT_EQ(again.block_end, kv.block_end);
  EXPECT_EQ(again.blocks, kv.blocks);
  EXPECT_EQ(format_requests(again), text);
}

TEST(requests, refuse_bad_lines_in_one_line) {
  const auto refused = [](std::string_view text, std::initializer_list<std::string_view> said) {
    expect_refused([&] { (void)parse_requests(text, "a"); }, said);
  };
  const auto text = trace_samples::mooncake_text;
  refused("", {"holds no requests"});
  refused(text.substr(0, text.size() - 5), {"line 2: ends before its JSON does"});
  refused(replaced(text, "[7, 9]", "[7, -9]"), {"line 1", "'hash_ids' holds -9"});
  refused(replaced(text, "[7, 9]", "7"), {"line 1", "'hash_ids' is 7"});
  refused(replaced(text, "\"hash_ids\"", "\"hash_ids\": [], \"hash_ids\""),
          {"line 1: key 'hash_ids': is there twice"});
  refused(replaced(text, "input_length", "in"),
          {"line 1: has the keys hash_ids, in, ", "accepted"});
  refused(replaced(text, "1024", "-1"), {"input_length is '-1'", "0..4294967295"});
  refused(replaced(text, "1024", "[]"), {"input_length is 'an array of 0'"});
  refused(replaced(text, "40", "-40"), {"line 2", "timestamp is '-40'", "0 or more"});
  refused("7\n", {"line 1", "'7'", "TIMESTAMP,ContextTokens,GeneratedTokens"});
  refused(replaced(azure_text, "ContextTokens", "Context"), {"line 1", "Context"});
  refused(azure_text.substr(0, 40), {"holds no requests"});
  refused(replaced(azure_text, ",4808,", ",-1,"), {"line 2", "ContextTokens is '-1'"});
  refused(replaced(azure_text, ",3180,8", ",3180"), {"line 3", "2 columns", "GeneratedTokens"});
  refused(replaced(azure_text, ",27", ",27,1"), {"line 4", "4 columns"});
  for (const auto* time :
       {"2023-02-29 00:00:00", "2024-13-01 00:00:00", "2024-1-01 00:00:00", "2024-01-01X00:00:00",
        "2024-01-01 24:00:00", "2024-01-01 00:00:00*02:00", "2024-01-01 00:00:00.",
        "2024-01-01 00:00:00.x", "1969-01-01 00:00:00", "", "+00:00", "5"})
    refused(replaced(azure_text, "2023-11-16 18:17:04.0319600", time), {"line 3", "TIMESTAMP"});
}

// --- oracleGeneral

TEST(oracle_general, reads_records) {
  const auto trace = parse_oracle_general(trace_samples::oracle_bytes(), "o.oracleGeneral.bin");
  EXPECT_THAT(trace.ids, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(trace.step, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(trace.expert_bytes, ElementsAre(64));
  EXPECT_EQ(trace.name, "o");
  const auto mixed = parse_oracle_general(
      trace_samples::oracle_record(0, 1, 5, -1) + trace_samples::oracle_record(0, 2, 6, INT64_MAX),
      "o");
  EXPECT_TRUE(mixed.expert_bytes.empty());
  EXPECT_EQ(mixed.fact("sizes"), "differ");
  EXPECT_EQ(lab::why_no_expert_bytes(mixed),
            "the sizes of its objects differ, and all slots of a pool have one size");
}

TEST(oracle_general, refuses_invalid_records) {
  const auto refused = [](const std::string& bytes, std::initializer_list<std::string_view> said) {
    expect_refused([&] { (void)parse_oracle_general(bytes, "o"); }, said);
  };
  const auto good = trace_samples::oracle_bytes();
  refused("", {"byte 0", "is empty"});
  refused(good.substr(0, 95), {"byte 72", "ends inside a record"});
  refused(good + trace_samples::oracle_record(8, 1, 1, -1), {"byte 96", "the clock falls"});
  refused(trace_samples::oracle_record(0, 1, 0, -1), {"the size is 0"});
  refused(trace_samples::oracle_record(0, 1, 1, -2), {"the next access is negative"});
}

TEST(oracle_general, exports_every_access_with_its_next_one) {
  const trace_samples::temporary_folder folder;
  const auto trace = parse_bigmoe_route_csv(trace_samples::bigmoe_text, "toy");
  const auto path = folder.path() / "t.oracleGeneral";
  write_oracle_general(trace, output_file(path));
  const auto bytes = trace_samples::read_all(path);
  ASSERT_EQ(bytes.size(), 16U * 24U);
  const auto record = [&](std::size_t i) { return bytes.substr(i * 24, 24); };
  // step 0: layer 0: 7 1 1 0; layer 1: 2 3 3 2; step 1: 1 7 4 2; step 2: 5 7 4 2
  EXPECT_EQ(record(0), trace_samples::oracle_record(0, 7, 100, 9));
  EXPECT_EQ(record(1), trace_samples::oracle_record(0, 1, 100, 2));
  EXPECT_EQ(record(3), trace_samples::oracle_record(0, 0, 100, -1));
  EXPECT_EQ(record(4), trace_samples::oracle_record(0, 8 + 2, 200, 7));
  EXPECT_EQ(record(15), trace_samples::oracle_record(2, 8 + 2, 200, -1));
  EXPECT_TRUE(looks_like_oracle_general(bytes));
  EXPECT_EQ(folder.files(), 1U);
}

TEST(oracle_general, a_trace_of_one_layer_is_written_back) {
  const trace_samples::temporary_folder folder;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace =
        synthetic_trace({.layers = 1, .top_k = 1, .tokens = 200, .expert_bytes = 9, .seed = seed})
            .value();
    write_oracle_general(trace, output_file(folder.path() / "a"));
    const auto read = read_oracle_general(folder.path() / "a");
    write_oracle_general(read, output_file(folder.path() / "b"));
    write_oracle_general(read_oracle_general(folder.path() / "b"),
                         output_file(folder.path() / "c"));
    EXPECT_EQ(read.ids.size(), trace.ids.size());
    EXPECT_EQ(trace_samples::read_all(folder.path() / "b"),
              trace_samples::read_all(folder.path() / "c"));
  }
}

}  // namespace
}  // namespace importers_test
