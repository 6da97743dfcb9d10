// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/error.hpp"
#include "lab/traces/importers.hpp"
#include "lab/traces/open_trace.hpp"
#include "trace_samples.hpp"

namespace hotset::column_csv_test {
namespace {

using lab::parse_column_csv;
using lab::parse_field_map;
using testing::ElementsAre;
using trace_samples::expect_refused;

TEST(column_csv, one_expert_a_row_is_joined_by_its_token) {
  const auto trace = parse_column_csv(
      "sequence,token,layer,expert,weight\n"
      "0,0,0,5,.75\n0,0,0,2,.25\n0,0,1,1,1\n"
      "0,1,1,3,.5\n0,1,0,4,.5\n"  // in any order
      "0,1,0,0,.5\n0,0,1,6,0\n0,1,1,7,.5\n",
      "dump.csv", {.experts = 8});
  EXPECT_EQ(trace.name, "dump");
  EXPECT_EQ(trace.experts, 8);
  EXPECT_THAT(trace.ids, ElementsAre(5, 2, 1, 6, 4, 0, 3, 7));
  EXPECT_THAT(trace.weights, ElementsAre(.75F, .25F, 1, 0, .5F, .5F, .5F, .5F));
  EXPECT_THAT(trace.step, ElementsAre(0, 1));
}

TEST(column_csv, a_row_may_list_all_experts_of_a_token) {
  for (const auto* rows :
       {"0,3 1\n1,0 2\n0,3 2\n1,1 0\n", "0,\"[3, 1]\"\n1,\"[0, 2]\"\n0,\"[3, 2]\"\n1,\"[1, 0]\"\n",
        "0,3|1\n1,0|2\n0,3|2\n1,1|0\n"}) {
    const auto trace = parse_column_csv(std::string("layer,experts\n") + rows, "a");
    EXPECT_THAT(trace.ids, ElementsAre(3, 1, 0, 2, 3, 2, 1, 0)) << rows;
    EXPECT_THAT(trace.step, ElementsAre(0, 1)) << "where the layer does not rise";
  }
}

TEST(column_csv, a_rank_that_does_not_rise_begins_a_token) {
  const auto trace = parse_column_csv(
      "layer;expert;rank\n0;3;0\n0;1;1\n1;2;0\n1;0;1\n0;5;0\n0;4;1\n1;1;0\n1;7;1\n", "a");
  EXPECT_THAT(trace.ids, ElementsAre(3, 1, 2, 0, 5, 4, 1, 7));
  EXPECT_THAT(trace.step, ElementsAre(0, 1));
  const auto prompt = parse_column_csv(
      "step\tlayer\texpert\trank\n0\t0\t3\t0\n0\t0\t1\t1\n0\t0\t5\t0\n0\t0\t4\t1\n", "a");
  EXPECT_THAT(prompt.ids, ElementsAre(3, 1, 5, 4)) << "two tokens of one step";
  EXPECT_THAT(prompt.step, ElementsAre(0, 0));
  const auto lists = parse_column_csv("token,layer,experts,rank\n0,0,3 1,0\n0,0,5,2\n", "a");
  EXPECT_THAT(lists.ids, ElementsAre(3, 1, 5));
}

TEST(column_csv, names_are_read_from_the_field_map) {
  const auto trace = parse_column_csv(
      "# from a server\n req "
      ",pos,\"block\",e,p,phase\n1,0,4,9,.5,prefill\n1,1,4,8,.5,1\n2,0,4,7,1,decode\n",
      "a", {.fields = parse_field_map("sequence=req,token=pos,layer=block,experts=e,weights=p")});
  EXPECT_THAT(trace.ids, ElementsAre(9, 8, 7));
  EXPECT_EQ(trace.fact("layers"), "4");
  EXPECT_THAT(trace.sequence, ElementsAre(0, 0, 1));
  EXPECT_THAT(trace.kind,
              ElementsAre(request_class::prefill, request_class::prefill, request_class::decode));
}

TEST(column_csv, an_absent_expert_keeps_its_place) {
  const auto trace = parse_column_csv("token,layer,experts\n0,0,-1 4\n1,0,2 3\n", "a");
  EXPECT_THAT(trace.ids, ElementsAre(-1, 4, 2, 3));
}

TEST(column_csv, experts_may_have_separate_columns) {
  const auto* const text =
      "token,layer,e08,e09,e10,w0,w1,w2\n0,0,5,2,7,.5,.25,.25\n1,0,1,,4,.5,,.5\n";
  const auto trace =
      parse_column_csv(text, "a", {.fields = parse_field_map("experts=e08..e10,weights=w0..w2")});
  EXPECT_THAT(trace.ids, ElementsAre(5, 2, 7, 1, -1, 4));
  EXPECT_THAT(trace.weights, ElementsAre(.5F, .25F, .25F, .5F, 0, .5F));
  const auto two =
      parse_column_csv(text, "a", {.fields = parse_field_map("experts=e09..e10,weights=w1..w2")});
  EXPECT_THAT(two.ids, ElementsAre(2, 7, -1, 4));
  const auto alone = parse_column_csv(text, "a", {.fields = parse_field_map("experts=e08..e08")});
  EXPECT_THAT(alone.ids, ElementsAre(5, 1));
  for (const auto* named : {"experts=e08", "experts=e08..e10,weights=w1"})
    expect_refused([&] { (void)parse_column_csv(text, "a", {.fields = parse_field_map(named)}); },
                   {"line 1", "the field names one", ".."});
  for (const auto* named : {"experts=e08..e11", "experts=e10..e08", "experts=e08..w2",
                            "experts=e..e10", "experts=e08.."})
    expect_refused([&] { (void)parse_column_csv(text, "a", {.fields = parse_field_map(named)}); },
                   {"line 1", "the header has no 'e", "experts=e08..e10"});
}

TEST(column_csv, cells_of_pandas_and_torch) {
  for (const auto* text :
       {"token,layer,experts\n0,layers.3,\"tensor([5, 2], device='cuda:0')\"\n1,layers.3,[1 4]\n",
        "token|layer|experts\n0|3|5 2\n1|3|1 4\n"}) {
    const auto trace = parse_column_csv(text, "a");
    EXPECT_THAT(trace.ids, ElementsAre(5, 2, 1, 4));
    EXPECT_EQ(trace.fact("layers"), "3");
  }
  const auto wide = parse_column_csv("token,layer,e0,e1\n0,0,5.0,NaN\n1,0,1,2\n2,0,,3\n", "a",
                                     {.fields = parse_field_map("experts=e0..e1")});
  EXPECT_THAT(wide.ids, ElementsAre(5, -1, 1, 2, -1, 3));
  lab::reading_notes notes;
  (void)parse_column_csv("pos,layer,rank,expert\n0,0,0,1\n", "a", {.experts = 2, .notes = &notes});
  EXPECT_THAT(notes, ElementsAre("fields of tokens or requests are not read: --field "
                                 "token=pos"));
}

TEST(column_csv, suggested_fields_can_be_pasted) {
  EXPECT_EQ(lab::suggested_fields("w0,w1,w2,Token ID,Layer,Expert 1,Expert 2,frequency"),
            "--format csv --field 'layer=Layer,experts=Expert 1..Expert 2,token=Token ID'");
  EXPECT_EQ(lab::suggested_fields("layer_id,topk_ids,seq_len,rid"),
            "--format csv --field layer=layer_id,experts=topk_ids,sequence=rid");
}

TEST(column_csv, sequences_may_have_names_and_be_interleaved) {
  lab::reading_notes notes;
  const auto trace = parse_column_csv(
      "sequence,layer,experts\nb,0,1 2\n10,0,3 4\nb,1,5 6\n10,1,7 0\nb,0,2 1\nb,1,6 5\n", "a",
      {.experts = 8, .notes = &notes});
  EXPECT_THAT(trace.sequence, ElementsAre(0, 0, 1)) << "by first appearance";
  EXPECT_THAT(trace.ids, ElementsAre(1, 2, 5, 6, 2, 1, 6, 5, 3, 4, 7, 0));
  EXPECT_THAT(notes, ElementsAre());
  const auto numbers = parse_column_csv("sequence,layer,experts\n10,0,1 2\n9,0,3 4\n", "a",
                                        {.experts = 8, .notes = &notes});
  EXPECT_THAT(numbers.ids, ElementsAre(3, 4, 1, 2)) << "by number";
}

TEST(column_csv, a_prompt_layer_by_layer_is_a_step) {
  lab::reading_notes notes;
  const auto trace = parse_column_csv(
      "layer;expert;rank\n0;3;0\n0;1;1\n0;5;0\n0;4;1\n1;2;0\n1;0;1\n1;1;0\n1;7;1\n", "a",
      {.experts = 8, .notes = &notes});
  EXPECT_THAT(trace.step, ElementsAre(0, 0));
  EXPECT_THAT(trace.kind, ElementsAre(request_class::prefill, request_class::prefill));
  EXPECT_THAT(trace.ids, ElementsAre(3, 1, 2, 0, 5, 4, 1, 7));
  EXPECT_THAT(notes, ElementsAre(testing::HasSubstr("layer by layer: taken for 1 step of a")));
}

TEST(column_csv, refuses_bad_rows_in_one_line) {
  const auto refused = [](std::string_view text, std::initializer_list<std::string_view> said) {
    expect_refused([&] { (void)parse_column_csv(text, "a.csv", {.experts = 8}); }, said);
  };
  refused("", {"a.csv", "no rows"});
  refused("token,layer,experts\n", {"routes no expert"});
  refused("token,expert\n0,1\n", {"line 1", "no 'layer'"});
  refused("layer,ids\n0,1\n", {"line 1", "no 'experts'"});
  refused("layer,expert\n0,1\n0,2\n", {"an expert a row", "'token'", "layer-expert"});
  refused("token,layer,experts\n0,0\n", {"line 2", "2 columns", "3"});
  refused("token,layer,experts\n0,0,1,2\n", {"line 2", "4 columns"});
  refused("token,layer,experts\n0,0,\"1,2\n", {"line 2", "quote"});
  refused("token,layer,experts\n0,x,1\n", {"line 2", "layer is 'x'", "0..65535"});
  refused("token,layer,experts\n-1,0,1\n", {"token is '-1'"});
  refused("token,layer,experts\n0,0,8\n", {"experts is '8'", "-1..7"});
  refused("token,layer,experts\n0,0,\n", {"line 2", "experts is empty"});
  refused("token,layer,experts,phase\n0,0,1,late\n", {"phase is 'late'", "prompt"});
  refused("token,layer,experts,weights\n0,0,1 2,.5\n", {"1 weights for 2 experts"});
  refused("token,layer,experts,weights\n0,0,1,inf\n", {"weight is 'inf'"});
  refused("token,layer,expert,rank\n0,0,1,0\n0,0,2,0\n", {"line 3", "rank 0", "line 2"});
  refused("token,layer,expert,rank\n0,0,1,4096\n", {"rank is '4096'", "0..4095"});
}

TEST(column_csv, is_recognised_by_its_header) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("dump", "token,layer,expert\n0,0,3\n0,0,1\n");
  EXPECT_EQ(lab::recognise_trace(path), lab::trace_format::columns);
  EXPECT_THAT(lab::open_trace(path).ids, ElementsAre(3, 1));
  const auto plain = folder.write("plain", "layer,expert\n0,3\n0,1\n");
  EXPECT_EQ(lab::recognise_trace(plain), lab::trace_format::layer_expert);
}

TEST(field_map, names_the_accepted_fields) {
  EXPECT_EQ(parse_field_map("rank=r,token=t").rank, "r");
  EXPECT_THROW((void)parse_field_map("place=r"), invalid_config);
}

}  // namespace
}  // namespace hotset::column_csv_test
