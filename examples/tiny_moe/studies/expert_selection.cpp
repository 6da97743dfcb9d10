// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/expert_selection.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace tiny_moe {
namespace {

/// To four decimals of the exact value, as a summary says it.
double rounded(double score) {
  const auto text = fmt::format("{:.4f}", score);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::vector<hotset::expert_id> select(std::span<const double> scores, double p) {
  std::vector<double> all(scores.size());
  std::ranges::transform(scores, all.begin(), rounded);
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t e) { return all[e]; });
  std::vector<hotset::expert_id> out;
  double sum = 0;
  for (const auto e : order) {
    if (!(sum < p)) break;
    out.push_back(static_cast<hotset::expert_id>(e));
    sum += all[e];
  }
  return out;
}

}  // namespace

tuned_experts select_experts(std::span<const double> scores, std::size_t experts, double p) {
  tuned_experts out;
  for (std::size_t first = 0; first < scores.size(); first += experts)
    out.push_back(select(scores.subspan(first, experts), p));
  return out;
}

}  // namespace tiny_moe
