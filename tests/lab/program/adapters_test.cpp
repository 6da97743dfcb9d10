// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "run_program.hpp"

namespace adapters_test {
namespace {

using testing::HasSubstr;

class adapters : public hotset_test::command_line {
 protected:
  adapters() {
    write("one.json", R"({"experts": {"1": [1], "2": [0, 2]}, "shared_experts": false})");
    write("two.json", R"({"experts": {"1": [0, 1], "2": [3]}})");
  }
};

const std::string plan = "adapters plan --base 4x2 --expert-bytes 3MiB ";

// Two layers, tensors of 2 and 1 MiB an expert, pages of 2 MiB: 4 base experts are 4 and 2 pages.
TEST_F(adapters, plan_counts_every_placement) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
  const auto found = json_of(plan + "one.json two.json --json");
  EXPECT_EQ(found["schema"], "hotset.adapters/1");
  EXPECT_EQ(found["adapters"][0]["name"], "one");
  EXPECT_EQ(found["adapters"][0]["max"], 2);
  EXPECT_EQ(found["adapters"][0]["mean"], 1.5);
  EXPECT_EQ(found["adapters"][0]["sparsity"], 0.25);
  EXPECT_EQ(found["adapters"][1]["name"], "two");
  EXPECT_EQ(found["e_max"], 2);
  EXPECT_EQ(found["stride"], 2);
  EXPECT_DOUBLE_EQ(found["fragmentation"], 16.0 / 14);
  EXPECT_EQ(found["tensor_bytes"], (std::vector<std::uint64_t>{2 * mib, mib}));
  EXPECT_EQ(found["bytes"]["exact"], 14 * 3 * mib);
  EXPECT_EQ(found["bytes"]["padding"], 16 * 3 * mib);
  EXPECT_EQ(found["bytes"]["merged"], 2 * 8 * 3 * mib);
  // In a layer: the base model has 4 + 2 pages; three experts have 3 pages of one tensor and 1 + 1 of the other.
  EXPECT_EQ(found["bytes"]["virtual"], 2 * (6 + 3 + 2) * 2 * mib);
  EXPECT_EQ(found["bytes"]["dense"], 2 * (6 + 3 + 2) * 2 * mib)
      << "1.5 pages of the other, rounded";
  EXPECT_EQ(found["reserved_bytes"], 2 * (8 + 4) * 2 * mib);
  EXPECT_EQ(found["smallest"], "virtual") << "of equals the first";
  EXPECT_EQ(found["kv_tokens"], nullptr);
  EXPECT_EQ(json_of(plan + "--tensors 3MiB one.json two.json --stride aligned --json")["stride"],
            2);
  EXPECT_EQ(json_of(plan + "one.json --stride 3 --page 4KiB --json")["stride"], 3);
  EXPECT_EQ(json_of(plan + "one.json --stride aligned --page 16MiB --json")["stride"], 16);
}

TEST_F(adapters, plan_counts_the_bytes_left_for_the_cache) {
  const auto found = json_of(plan +
                             "one.json two.json --resident-bytes 10MiB --budget 58MiB "
                             "--kv-bytes-per-token 1MiB --json");
  EXPECT_EQ(found["bytes"]["exact"], 52U << 20U);
  EXPECT_EQ(found["kv_tokens"]["exact"], 6);
  EXPECT_EQ(found["kv_tokens"]["virtual"], 4);
  EXPECT_EQ(found["kv_tokens"]["padding"], 0);
  EXPECT_EQ(found["kv_tokens"]["merged"], nullptr) << "it does not fit";
}

TEST_F(adapters, plan_prints_tables_that_fit_80_columns) {
  EXPECT_EQ(out_of_shell("export COLUMNS=80; hotset " + plan +
                         "one.json two.json --budget 60MiB --kv-bytes-per-token 64KiB"),
            "2 adapters of 4 experts x 2 layers; an expert is 3 MiB (2 MiB + 1 MiB)\n"
            "\n"
            "adapter  max  mean  sparsity\n"
            "one        2  1.50      0.25\n"
            "two        2  1.50      0.25\n"
            "all        2  1.50      0.25\n"
            "\n"
            "E_max 2, stride 2, pages of 2 MiB; fragmentation of padding 1.1429 (16 / 14)\n"
            "\n"
            "placement    MiB  over exact  KV tokens\n"
            "exact      42.00         0 B        288\n"
            "virtual    44.00       2 MiB        256\n"
            "dense      44.00       2 MiB        256\n"
            "padding    48.00       6 MiB        192\n"
            "merged     48.00       6 MiB        192\n"
            "smallest: virtual\n");
}

TEST_F(adapters, one_adapter_alone_is_smallest_merged) {
  const auto found = json_of(plan + "one.json --json");
  EXPECT_EQ(found["bytes"]["merged"], 24U << 20U);
  EXPECT_EQ(found["bytes"]["exact"], 33U << 20U);
  EXPECT_EQ(found["smallest"], "merged");
  EXPECT_THAT(run(plan + "one.json").out, HasSubstr("merged     24.00      -9 MiB"));
}

TEST_F(adapters, plan_takes_folders_by_name_and_layers_that_are_not_all_named) {
  std::filesystem::create_directory(path("law"));
  write("law/expert_cfg.json", R"({"experts": {"2": [3]}})");
  const auto found = json_of(plan + "--first-moe-layer 1 law law/ law/expert_cfg.json --json");
  for (std::size_t a = 0; a < 3; ++a) EXPECT_EQ(found["adapters"][a]["name"], "law");
  EXPECT_EQ(found["adapters"][0]["mean"], 0.5);
  refused(plan + "law", 4, {"law/expert_cfg.json: key 'experts': has 1 layers"});
}

TEST_F(adapters, plan_refuses_invalid_arguments) {
  write("shared.json", R"({"experts": {"1": [], "2": []}, "shared_experts": true})");
  write("later.json", R"({"experts": {"2": [1], "3": [1]}})");
  refused(plan + "one.json shared.json", 4, {"shared.json: key 'shared_experts': is true"});
  refused(plan + "absent.json", 4, {"absent.json"});
  refused(plan + "one.json later.json", 4,
          {"later.json: key 'experts': has layers 2..3; accepted: those of one.json, 1..2"});
  refused(plan + "later.json --first-moe-layer 1", 4, {"layer 3: is no MoE layer; accepted: 1..2"});
  refused("adapters plan --base 4x1 --expert-bytes 3MiB one.json", 4, {"has 2 layers"});
}

TEST_F(adapters, plan_refuses_options_that_cannot_be) {
  refused("adapters plan --expert-bytes 3MiB one.json", 2, {"--base is required"});
  refused("adapters plan --base 4x2 one.json", 2, {"--expert-bytes is required"});
  refused("adapters plan --base 4x2 --expert-bytes 3MiB", 2, {"CONFIG is required"});
  for (const char* base : {"4", "4x", "x2", "4x2x1", "0x2", "4x0", "4*2", "-4x2"})
    refused(std::string("adapters plan --expert-bytes 3MiB one.json --base=") + base, 2,
            {"--base: '", "experts x MoE layers, such as 64x26"});
  refused("adapters plan --base 4x2 --expert-bytes 3 one.json", 2, {"has no unit", "3MiB"});
  for (const auto& [option, said] :
       {std::pair("--tensors 2MiB,2MiB",
                  "--tensors: '2MiB,2MiB'; accepted: sizes that sum to 3MiB"),
        {"--tensors 2MiB", "--tensors: '2MiB'; accepted: sizes that sum to 3MiB"},
        {"--tensors 2MiB,,1MiB", "--tensors"},
        {"--stride 1", "stride = 1, accepted: 2.."},
        {"--stride alinged", "--stride: 'alinged'; accepted: aligned"},
        {"--page 0B", "--page"},
        {"--budget 1GiB", "--kv-bytes-per-token"},
        {"--kv-bytes-per-token 1KiB", "--budget"}})
    refused(plan + "one.json " + option, 2, {said});
  refused("adapters plan --base 1048576x65536 --expert-bytes 1TiB one.json", 4, {"has 2 layers"});
  refused("adapters plan --base 4x2 --expert-bytes 3TiB one.json", 2, {"tensor_bytes = "});
  refused("adapters plan --base 4x2 --expert-bytes 1TiB one.json --stride 1099511627776", 2,
          {"bytes of "});
}

}  // namespace
}  // namespace adapters_test
