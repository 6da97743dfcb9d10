// SPDX-License-Identifier: Apache-2.0
#include "slot_plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <exception>
#include <string_view>

#include "lab/sizes.hpp"

namespace hotset_llama_cpp {

using namespace hotset;

namespace {

/// Bytes of one expert of every layer.
std::uint64_t bytes_of_each(const lab::expert_files& files) {
  std::uint64_t out = 0;
  for (const auto l : each<layer_id>(files.shape.layers)) out += files.shape.bytes_of(l);
  return std::max<std::uint64_t>(1, out);
}
std::uint64_t widest_expert(const lab::expert_files& files) {
  std::uint64_t out = 0;
  for (const auto l : each<layer_id>(files.shape.layers))
    out = std::max(out, files.shape.bytes_of(l));
  return out;
}

/// Adds the spare slots if they take at most a quarter of the memory.
slot_plan with_spares(const lab::expert_files& files, std::int32_t slots) {
  const auto spares = files.shape.experts - slots;
  const auto of_spares = static_cast<std::uint64_t>(spares) * widest_expert(files);
  const auto of_slots = static_cast<std::uint64_t>(slots) * bytes_of_each(files);
  return {slots, of_spares <= of_slots / 3 ? spares : 0};
}

/// The most slots for which the spare slots have room too.
std::int32_t slots_beside_spares(const lab::expert_files& files, std::uint64_t bytes) {
  const auto widest = widest_expert(files);
  const auto of_each = bytes_of_each(files);
  const auto whole_layer = static_cast<std::uint64_t>(files.shape.experts) * widest;
  return of_each <= widest || bytes < whole_layer
             ? 0
             : static_cast<std::int32_t>((bytes - whole_layer) / (of_each - widest));
}

validation check_slots(const lab::expert_files& files, std::int32_t slots) {
  const auto& shape = files.shape;
  const auto of_each = bytes_of_each(files);
  if (slots < shape.top_k || slots > shape.experts)
    return error{std::to_string(slots) +
                 " slots of each layer, accepted: " + std::to_string(shape.top_k) + ".." +
                 std::to_string(shape.experts) + ", which is " +
                 std::to_string(of_each * static_cast<std::uint64_t>(shape.top_k)) + ".." +
                 std::to_string(of_each * static_cast<std::uint64_t>(shape.experts)) + " bytes"};
  return std::nullopt;
}

/// Bytes of a budget's text.
result<std::uint64_t> budget_of(const std::string& text, const lab::expert_files& files) {
  if (text.ends_with('%')) {
    double percent = 0;
    const auto* const end = text.data() + text.size() - 1;
    const auto read = std::from_chars(text.data(), end, percent);
    if (read.ec != std::errc() || read.ptr != end || !(percent > 0 && percent <= 100))
      return error{"a budget of '" + text + "', accepted: more than 0%, at most 100%"};
    return static_cast<std::uint64_t>(static_cast<double>(bytes_of_all(files)) * percent / 100);
  }
  try {
    return lab::read_size(text);
  } catch (const std::exception& e) {
    return error{"a budget of " + std::string(e.what()) + ", or 50% of all experts, or auto"};
  }
}

}  // namespace

std::uint64_t bytes_of_all(const lab::expert_files& files) {
  return bytes_of_each(files) * static_cast<std::uint64_t>(files.shape.experts);
}

result<slot_plan> plan_budget(const lab::expert_files& files, std::uint64_t bytes) {
  const auto& shape = files.shape;
  if (const auto slots = slots_beside_spares(files, bytes);
      slots >= shape.top_k && slots < shape.experts)
    if (const auto out = with_spares(files, slots); out.spares != 0) return out;
  const auto slots = static_cast<std::int32_t>(std::min<std::uint64_t>(
      bytes / bytes_of_each(files), static_cast<std::uint64_t>(shape.experts)));
  if (auto bad = check_slots(files, slots)) return *std::move(bad);
  return slot_plan{slots, 0};
}

result<slot_plan> plan_slots(const lab::expert_files& files, std::int32_t slots) {
  if (auto bad = check_slots(files, slots)) return *std::move(bad);
  return with_spares(files, slots);
}

namespace {

/// Bytes that "auto" leaves to the system: pages of the file that prompts read, and what the process still allocates.
std::uint64_t margin_of(const memory_limit& left) {
  return (std::uint64_t{32} << 20U) + left.bytes / 32;
}

slot_choice choose_by_memory(const lab::expert_files& files, const other_memory& other,
                             const memory_limit& left) {
  const auto all = slot_plan{files.shape.experts, 0};
  if (!other.experts_are_mapped)
    return {all, true, "auto: llama.cpp has read all experts into memory"};
  const auto needed = other.weights + other.buffers + margin_of(left);
  const auto rest = left.bytes - std::min(left.bytes, needed);
  const auto reason = "auto: " + left.name + " leaves " + mebibytes(left.bytes) + ", of which " +
                      mebibytes(needed) + " are for other weights, buffers and the system";
  if (rest >= bytes_of_all(files)) return {all, true, reason};
  if (const auto plan = plan_budget(files, rest)) return {*plan, false, reason};
  return {
      {files.shape.top_k, 0}, false, reason + ", which is too little: a token needs these slots"};
}

}  // namespace

result<slot_choice> choose_slots(const lab::expert_files& files, const char* budget,
                                 std::int32_t slots, const other_memory& other,
                                 const memory_limit& left) {
  if (budget != nullptr && slots != 0)
    return error{"a budget of '" + std::string(budget) + "' and " + std::to_string(slots) +
                 " slots, accepted: one of them"};
  auto out = choose_by_memory(files, other, left);
  if (slots == 0 && (budget == nullptr || std::string_view(budget) == "auto")) return out;
  out.reason.clear();
  if (other.slots != 0)
    out.reason = "other contexts of this process hold " + mebibytes(other.slots) +
                 " of slots besides: such a budget is each context's own";
  auto plan = slots != 0 ? plan_slots(files, slots) : [&]() -> result<slot_plan> {
    const auto bytes = budget_of(budget, files);
    return bytes ? plan_budget(files, *bytes) : bytes.error();
  }();
  if (!plan) return plan.error();
  out.plan = *plan;
  out.pages_fit = other.weights + other.buffers + bytes_of_all(files) +
                      static_cast<std::uint64_t>(plan->slots) * bytes_of_each(files) +
                      static_cast<std::uint64_t>(plan->spares) * widest_expert(files) <=
                  left.bytes;
  return out;
}

std::string mebibytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text.data();
}

}  // namespace hotset_llama_cpp
