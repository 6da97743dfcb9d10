// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/machine_speeds.hpp"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace hotset::machine_speeds_test {
namespace {

TEST(machine_speeds, cards_have_the_names_that_people_write) {
  for (const auto& [text, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"4090", "rtx4090"},
           {"RTX 4090", "rtx4090"},
           {"rtx-4090", "rtx4090"},
           {"NVIDIA GeForce RTX 3090 24GB", "rtx3090"},
           {"4060 Ti 16GB", "rtx4060ti"},
           {"RTX 4070 Ti Super", "rtx4070tisuper"},
           {"A100 40GB", "a100-40gb"},
           {"A100 80GB", "a100"},
           {"H100 PCIe", "h100-pcie"},
           {"AMD Instinct MI300X", "mi300x"},
           {"Radeon RX 7900 XTX", "rx7900xtx"},
           {"RTX PRO 6000", "rtxpro6000"},
           {"RTX A6000", "rtxa6000"},
           {"a6000", "rtxa6000"},
           {"L40S 48GB", "l40s"},
           {"H200 141GB", "h200"}}) {
    const auto* const found = lab::find_card(text);
    ASSERT_NE(found, nullptr) << text;
    EXPECT_EQ(found->name, name) << text;
  }
  for (const auto* unknown :
       {"", "rtx", "409", "4090ti", "4090 48GB", "4090 GB", "M3 Max", "2x3090"})
    EXPECT_EQ(lab::find_card(unknown), nullptr) << unknown;
}

TEST(machine_speeds, a_driver_reports_less_than_the_card_is_sold_with) {
  for (const auto& [name, gib] :
       std::initializer_list<std::pair<const char*, double>>{{"rtx3060", 12},
                                                             {"rtx4090", 24},
                                                             {"rtx5090", 32},
                                                             {"l4", 24},
                                                             {"l40s", 48},
                                                             {"rtxpro6000", 96},
                                                             {"h100", 80},
                                                             {"h200", 141},
                                                             {"mi300x", 192}}) {
    const auto found = static_cast<double>(lab::find_card(name)->mebibytes) / 1024;
    EXPECT_LE(found, gib) << name;
    EXPECT_GT(found, 0.93 * gib) << name;
  }
}

TEST(machine_speeds, memory_is_measured) {
  const auto found = lab::measure_speeds("");
  EXPECT_GT(found.host_bandwidth, 1e8);
  EXPECT_LT(found.host_bandwidth, 1e13);
  EXPECT_FALSE(found.disk_bandwidth) << "no file";
}

}  // namespace
}  // namespace hotset::machine_speeds_test
