// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/oracle_general.hpp"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/traces/kv_trace.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {
namespace {

struct oracle_record {
  std::uint32_t clock = 0;
  std::uint64_t object = 0;
  std::uint32_t size = 0;
  std::int64_t next = -1;
};

oracle_record unpack(std::string_view bytes, std::size_t i) noexcept {
  const char* const at = bytes.data() + i * oracle_general_record;
  oracle_record r;
  std::memcpy(&r.clock, at, 4);
  std::memcpy(&r.object, at + 4, 8);
  std::memcpy(&r.size, at + 12, 4);
  std::memcpy(&r.next, at + 16, 8);
  return r;
}

std::array<char, oracle_general_record> pack(const oracle_record& r) noexcept {
  std::array<char, oracle_general_record> out{};
  std::memcpy(out.data(), &r.clock, 4);
  std::memcpy(out.data() + 4, &r.object, 8);
  std::memcpy(out.data() + 12, &r.size, 4);
  std::memcpy(out.data() + 16, &r.next, 8);
  return out;
}

std::string_view fault_of(const oracle_record& r, std::uint32_t clock_before) noexcept {
  if (r.clock < clock_before) return "the clock falls";
  if (r.size == 0) return "the size is 0";
  if (r.next < -1) return "the next access is negative";
  return {};
}

/// next[i]: next record after i with the same object, or -1.
std::vector<std::int64_t> next_accesses(const visit_sequence& visits) {
  std::vector<std::int64_t> latest(visits.shape().keys(), -1);
  std::vector<std::int64_t> next(visits.size(), -1);
  for (std::size_t i = visits.size(); i-- > 0;) {
    auto& last = latest[visits.shape().index({visits.at(i).layer, visits[i].experts.front()})];
    next[i] = std::exchange(last, static_cast<std::int64_t>(i));
  }
  return next;
}

}  // namespace

std::string_view why_no_expert_bytes(const routing_trace& trace) {
  return trace.fact("sizes") == "differ"
             ? "the sizes of its objects differ, and all slots of a pool have one size"
             : "the trace does not say how large an expert is";
}

bool looks_like_oracle_general(std::string_view beginning) noexcept {
  const auto count = beginning.size() / oracle_general_record;
  std::uint32_t clock = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto r = unpack(beginning, i);
    if (!fault_of(r, clock).empty()) return false;
    if (r.next != -1 && r.next <= static_cast<std::int64_t>(i)) return false;
    clock = r.clock;
  }
  return count > 0;
}

routing_trace parse_oracle_general(std::string_view bytes, const std::string& file) {
  const auto rest = bytes.size() % oracle_general_record;
  if (bytes.empty() || rest != 0)
    refuse_input(file, "byte " + std::to_string(bytes.size() - rest),
                 bytes.empty() ? "the file is empty" : "the file ends inside a record",
                 "one or more records of 24 bytes");
  const auto count = bytes.size() / oracle_general_record;
  kv_trace accesses;
  accesses.name = trace_name(file);
  accesses.source = "oracleGeneral";
  accesses.timestamp = {0};
  accesses.input_length = {0};
  accesses.output_length = {0};
  accesses.block_end = {count};
  accesses.blocks.reserve(count);
  const auto size = unpack(bytes, 0).size;
  bool same = true;
  std::uint32_t clock = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto r = unpack(bytes, i);
    if (const auto fault = fault_of(r, clock); !fault.empty())
      refuse_input(file, "byte " + std::to_string(i * oracle_general_record), fault,
                   "clocks that never fall, sizes of 1 or more, a next access of -1 or more");
    clock = r.clock;
    same = same && r.size == size;
    accesses.blocks.push_back(r.object);
  }
  auto made = block_accesses(accesses, size);
  if (!made) refuse_input(file, "", made.error().message, "");
  if (!same) {
    made->expert_bytes.clear();
    made->metadata.emplace_back("sizes", "differ");
  }
  return *std::move(made);
}

routing_trace read_oracle_general(const std::filesystem::path& path) {
  return parse_oracle_general(read_single_input(path), path.string());
}

void write_oracle_general(const routing_trace& trace, output_file&& out) {
  auto made = visit_sequence::create(trace, {.per_access = true, .max_tokens = 0});
  if (!made) refuse_input(out.name(), "", "not written: " + made.error().message, "");
  const visit_sequence& visits = *made;
  const auto next = next_accesses(visits);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto& v = visits.at(i);
    const auto size = visits.shape().bytes_of(v.layer);
    if (size > std::numeric_limits<std::uint32_t>::max())
      refuse_input(out.name(), "",
                   "not written: an expert of layer " + to_string(v.layer) + " has " +
                       std::to_string(size) + " bytes",
                   "1..4294967295");
    const expert_key key{v.layer, visits[i].experts.front()};
    const auto record =
        pack({v.step, visits.shape().index(key), static_cast<std::uint32_t>(size), next[i]});
    out.write({record.data(), record.size()});
  }
  out.commit();
}

}  // namespace hotset::lab
