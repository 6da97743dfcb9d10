// SPDX-License-Identifier: Apache-2.0
/// Parameters of models, against published totals and a file made by hand.

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "gguf_samples.hpp"
#include "lab/models/model_description.hpp"
#include "trace_samples.hpp"

namespace model_arithmetic_test {
namespace {
using namespace hotset;
namespace gguf = gguf_samples;

// Billions of parameters, from the model cards; no format changes them.
TEST(model_arithmetic, parameters_are_the_published_ones) {
  for (const auto& [name, total, active] :
       std::vector<std::tuple<std::string, double, double>>{{"qwen3-30b-a3b", 30.5, 3.3},
                                                            {"mixtral-8x7b", 46.7, 12.9},
                                                            {"deepseek-v3", 671, 37.5},
                                                            {"gpt-oss-120b", 116.8, 5.7},
                                                            {"olmoe-1b-7b", 6.9, 1.3}}) {
    const auto described = lab::describe_model(name);
    const auto& a = described.arithmetic;
    const auto& experts = described.memory.experts;
    const auto each = static_cast<double>(a.expert_parameters);
    const auto embeddings = a.lookup_bytes == 0
                                ? 0.0
                                : static_cast<double>(a.hidden) * static_cast<double>(a.vocabulary);
    const auto resident = static_cast<double>(a.resident_parameters) + embeddings;
    EXPECT_NEAR((resident + each * static_cast<double>(experts.keys())) / 1e9 / total, 1, .01)
        << name;
    EXPECT_NEAR((resident + each * experts.layers * experts.top_k) / 1e9 / active, 1, .03) << name;
  }
  EXPECT_NEAR(lab::describe_model("gpt-oss-20b")
                  .arithmetic.expert_bits(lab::describe_model("gpt-oss-20b").memory),
              4.25, .01);
}

TEST(model_arithmetic, a_file_tells_its_tensors_parameters) {
  const trace_samples::temporary_folder folder;
  const auto arithmetic = [&](const gguf::file& file) {
    return lab::describe_model(folder.write("small.gguf", file.bytes()).string()).arithmetic;
  };
  auto file = gguf::small_model();
  const auto tied = arithmetic(file);
  EXPECT_EQ(tied.expert_parameters, gguf::expert_elements);
  EXPECT_EQ(tied.hidden, 64U);
  EXPECT_EQ(tied.vocabulary, 100U);
  EXPECT_EQ(tied.lookup_bytes, 0U) << "the head reads the embeddings";
  EXPECT_EQ(tied.resident_parameters, 64U * 100 + 2 * 64);
  file.tensor("output.weight", {64, 100}, gguf::f16);
  const auto untied = arithmetic(file);
  EXPECT_EQ(untied.lookup_bytes, 64U * 100 * 2);
  EXPECT_EQ(untied.resident_parameters, tied.resident_parameters);
}

}  // namespace
}  // namespace model_arithmetic_test
