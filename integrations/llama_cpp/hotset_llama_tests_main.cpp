// SPDX-License-Identifier: Apache-2.0
/// hotset-llama-tests: checks a paged context together with llama.cpp's own features. Prints one line per check.
///     hotset-llama-tests <folder of check.sh> [name of a check]

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expert_bytes.hpp"
#include "ggml-backend.h"
#include "hotset/lab/expert_files.hpp"
#include "hotset_llama.h"
#include "memory_limit.hpp"
#include "model_file.hpp"
#include "reads_watch.hpp"
#include "router_tap.hpp"
#include "slot_memory.hpp"
#include "slot_plan.hpp"
#include "test_session.hpp"
#include "weight_mapping.hpp"

namespace {

using namespace hotset_llama_cpp;

const std::string model_file = "moe.gguf";

/// An adapter that is set, and removed, after the context was attached.
void adapters(const std::string& name) {
  const auto model = load(model_file);
  const auto adapter = load_adapter(*model, name);
  const auto run = [&](session& s) {
    auto out = s.generate(1);
    set_adapter(s, adapter.get());
    const auto with = s.generate(2);
    set_adapter(s, nullptr);
    const auto without = s.generate(3);
    out.insert(out.end(), with.begin(), with.end());
    out.insert(out.end(), without.begin(), without.end());
    return out;
  };
  session plain(*model);
  const auto expected = run(plain);
  session bare(*model);
  auto none = bare.generate(1);
  require(
      !std::equal(none.begin(), none.end(), expected.begin()) ||
          [&] {
            const auto second = bare.generate(2);
            return !std::equal(second.begin(), second.end(),
                               expected.begin() + static_cast<std::ptrdiff_t>(none.size()));
          }(),
      "the adapter changes nothing");
  session s(*model, file_of(model_file), {});
  require_same(expected, run(s), name);
  require(s.stats().hits > 0, "nothing was paged");
}
void adapter_on_experts() { adapters("lora-experts.gguf"); }
void adapter_on_attention() { adapters("lora-attention.gguf"); }
void adapter_set_before_attach() {
  const auto model = load(model_file);
  const auto adapter = load_adapter(*model, "lora-experts.gguf");
  session plain(*model);
  set_adapter(plain, adapter.get());
  const auto expected = plain.generate(1);
  auto paging = make_paging(file_of(model_file));
  auto params = parameters();
  must(hotset_llama_prepare(paging.get(), &params), paging.get());
  session s(*model, params);
  s.paging = std::move(paging);
  set_adapter(s, adapter.get());
  must(hotset_llama_attach(s.paging.get(), s.context.get()), s.paging.get());
  require_same(expected, s.generate(1), "the adapter");
}

void two_pagings() {
  const auto model = load(model_file);
  session plain(*model);
  const auto first = plain.generate(1);
  plain.forget();
  const auto second = plain.generate(2);
  session a(*model, file_of(model_file), {});
  session b(*model, file_of(model_file), {.slots = 5, .source = HOTSET_LLAMA_READ});
  require_same(first, a.generate(1), "the first");
  require_same(second, b.generate(2), "the second");
  a.forget();
  require_same(second, a.generate(2), "the first again");
  hotset_llama_destroy(b.paging.release());
  a.forget();
  require_same(first, a.generate(1), "the first after the second is destroyed");
}

void plain_context_beside() {
  const auto model = load(model_file);
  session plain(*model);
  const auto expected = plain.generate(1);
  session s(*model, file_of(model_file), {});
  require_same(expected, s.generate(1), "paged");
  plain.forget();
  require_same(expected, plain.generate(1), "plain, after a paged batch");
  // At the same time, each in its own thread.
  logits beside;
  plain.forget();
  std::thread other([&] { beside = plain.generate(1); });
  s.forget();
  const auto paged_again = s.generate(1);
  other.join();
  require_same(expected, paged_again, "paged, beside a plain one");
  require_same(expected, beside, "plain, beside a paged one");
}

/// One paging's parameters made two contexts; one thread calls both.
void two_contexts_of_the_same_parameters() {
  const auto model = load(model_file);
  const auto other_model = load("more-experts.gguf");
  session plain(*model);
  const auto expected = plain.generate(1);
  session other_plain(*other_model);
  const auto other_expected = other_plain.generate(1);
  auto paging = make_paging(file_of(model_file));
  auto params = parameters();
  must(hotset_llama_prepare(paging.get(), &params), paging.get());
  session second(*model, params);
  session of_other_model(*other_model, params);
  session s(*model, params);
  s.paging = std::move(paging);
  must(hotset_llama_attach(s.paging.get(), s.context.get()), s.paging.get());
  require_same(expected, s.generate(1), "the attached one");
  require_same(expected, second.generate(1), "another of the model");
  require_same(other_expected, of_other_model.generate(1), "one of another model");
  must(hotset_llama_check(s.paging.get()), s.paging.get());
}

void warm_up() {
  const auto model = load(model_file);
  session plain(*model);
  const auto cold = plain.generate(1);
  plain.forget();
  set_warm_up(plain, true);
  const auto warm = plain.decode(text(3, 7));
  for (const std::int32_t slots : {4, 8, 16}) {
    session s(*model, file_of(model_file), {.slots = slots, .source = HOTSET_LLAMA_READ});
    const auto what = std::to_string(slots) + " slots";
    for (const auto t : text(30, 3)) (void)s.decode({t});
    s.forget();
    set_warm_up(s, true);
    require_same(warm, s.decode(text(3, 7)), what + ", warming up");
    set_warm_up(s, false);
    s.forget();
    require_same(cold, s.generate(1), what + ", then");
  }
}

void change_byte(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  require(file.good(), path + ": cannot be changed");
}
std::string copy_of_model(const std::string& name) {
  auto out = file_of(name);
  fs::copy_file(file_of(model_file), out, fs::copy_options::overwrite_existing);
  return out;
}

void file_of_another_model() {
  const auto model = load(model_file);
  session plain(*model);
  const auto expected = plain.generate(1);
  const auto one_expert = copy_of_model("one-expert.gguf");
  const auto files = hotset::lab::find_experts(one_expert);
  const auto extents = files.at({hotset::layer_id{2}, hotset::expert_id{5}});
  change_byte(one_expert, extents[(2 + 5) % extents.size()].offset);
  for (const auto source : {HOTSET_LLAMA_READ, HOTSET_LLAMA_DIRECT, HOTSET_LLAMA_URING}) {
    const auto attach = [&](const std::string& path) {
      return [&, path] { session(*model, path, {.source = source}); };
    };
    require_refused(attach(file_of("other.gguf")), "has other bytes in", "the same shape");
    require_refused(attach(one_expert), "expert 5 has other bytes in", "one expert is another");
  }
  for (const auto source : {HOTSET_LLAMA_MAPPED, HOTSET_LLAMA_READ}) {
    const auto attach = [&](const std::string& name) {
      return [&, name] { session(*model, file_of(name), {.source = source}); };
    };
    require_refused(attach("more-experts.gguf"), "16 experts of", "more experts");
    require_refused(attach("wide.gguf"), "bytes, in the file", "wider experts");
    require_refused(attach("absent.gguf"), "absent.gguf", "no file");
    require_refused(attach("lora-experts.gguf"), "accepted:", "an adapter");
  }
  // From the mapping: only the shape comes from the file.
  session s(*model, file_of("other.gguf"), {});
  require_same(expected, s.generate(1), "mapped");
}

void copies_that_fail() {
  const auto model = load(model_file);
  session plain(*model);
  const auto asked = text(6, 3);  // fills slots and spare slots
  const auto answered = plain.decode(asked);
  plain.forget();
  const auto expected = plain.generate(1);
  const auto path = copy_of_model("to-be-cut.gguf");
  session s(*model, path, {.source = HOTSET_LLAMA_READ});
  const auto cut = [&] { fs::resize_file(path, 4096); };
  const auto mend = [&] {
    fs::copy_file(file_of(model_file), path, fs::copy_options::overwrite_existing);
    s.forget();
  };
  cut();
  require_refused([&] { (void)s.decode(asked); }, "to-be-cut.gguf", "spare slots");
  mend();
  require_same(answered, s.decode(asked), "spare slots after it");
  s.forget();
  require_same(expected, s.generate(1), "the whole file");
  s.forget();
  cut();
  require_refused([&] { (void)s.generate(2, 60); }, "to-be-cut.gguf", "a file that was cut");
  s.forget();
  require_refused([&] { (void)s.generate(2, 60); }, "to-be-cut.gguf", "the next batch");
  mend();
  require_same(expected, s.generate(1), "the file is whole again");
  cut();
  s.forget();
  require_refused([&] { (void)s.generate(2, 60); }, "to-be-cut.gguf", "cut again");
  hotset_llama_destroy(s.paging.release());
  s.forget();
  require_same(expected, s.generate(1), "destroyed after a failure");
}

int nodes_left = -1;  ///< until the batch is aborted; -1: it is not
bool stops(void*) { return nodes_left >= 0 && nodes_left-- == 0; }

void an_aborted_batch() {
  const auto model = load(model_file);
  session plain(*model);
  const auto expected = plain.generate(1);
  session s(*model, file_of(model_file), {});
  llama_set_abort_callback(s.context.get(), stops, nullptr);
  (void)s.generate(1);
  for (int i = 0; i < 2; ++i) {
    nodes_left = 0;
    require_refused([&] { (void)s.decode({5}); }, "llama_decode returned", "an aborted batch");
    if (i == 1) hotset_llama_destroy(s.paging.release());
    s.forget();
    require_same(expected, s.generate(1), i == 0 ? "the next batch" : "the next, destroyed");
  }
}

/// An aborted prompt has copied only a part of the experts that it left in slots.
void an_aborted_prompt() {
  const auto model = load(model_file);
  session plain(*model);
  const auto expected = plain.generate(1);
  for (int nodes = 0; nodes_left < 0; ++nodes) {
    session s(*model, file_of(model_file), {});
    llama_set_abort_callback(s.context.get(), stops, nullptr);
    nodes_left = nodes;
    try {
      (void)s.decode(text(40, 1));
    } catch (const std::runtime_error&) {
      s.forget();
      require_same(expected, s.generate(1), "after " + std::to_string(nodes) + " nodes");
    }
  }
  nodes_left = -1;
}

void decode_after_destroy() {
  const auto model = load(model_file);
  session plain(*model);
  const auto expected = plain.generate(1);
  session s(*model, file_of(model_file), {.prefetch = "next_layer_top_k"});
  require_same(expected, s.generate(1), "paged");
  hotset_llama_destroy(s.paging.release());
  // Computes the last graph again: its nodes have read slots.
  s.next -= 1;
  llama_memory_seq_rm(llama_get_memory(s.context.get()), 0, s.next, -1);
  const auto last = s.decode({text(12, 2).back()});
  require_same({expected.end() - static_cast<std::ptrdiff_t>(last.size()), expected.end()}, last,
               "the graph of the last batch");
  s.forget();
  require_same(expected, s.generate(1), "destroyed");
}

void orders_of_destruction() {
  auto model = load(model_file);
  hotset_llama_destroy(nullptr);
  (void)make_paging(file_of(model_file));  // neither prepared nor attached
  {
    auto paging = make_paging(file_of(model_file));  // prepared, without a context
    auto params = parameters();
    require(hotset_llama_prepare(paging.get(), &params) == 0, "prepare");
  }
  {
    session s(*model, file_of(model_file), {});  // destroys the context first
    (void)s.generate(1);
    s.context.reset();
  }
  {
    session s(*model, file_of(model_file), {});  // destroys the paging first
    (void)s.generate(1);
    s.paging.reset();
  }
  {
    session plain(*model);
    auto paging = make_paging(file_of("absent.gguf"));  // attach fails; the context continues
    auto params = parameters();
    require(hotset_llama_prepare(paging.get(), &params) == 0, "prepare");
    session s(*model, params);
    require(hotset_llama_attach(paging.get(), s.context.get()) != 0, "an absent file: accepted");
    const auto expected = plain.generate(1);
    require_same(expected, s.generate(1), "after a refused attach");
    paging.reset();
    s.forget();
    require_same(expected, s.generate(1), "after a refused attach, destroyed");
  }
}

void wrong_calls() {
  const auto model = load(model_file);
  const auto said = [](const paging_handle& p, const std::string& words, const std::string& what) {
    const std::string error = hotset_llama_error(p.get());
    require(error.find(words) != std::string::npos,
            what + ": \"" + error + "\" does not say \"" + words + "\"");
  };
  auto params = parameters();
  const auto a = make_paging(file_of(model_file));
  const auto b = make_paging(file_of(model_file));
  require(hotset_llama_prepare(a.get(), &params) == 0, "prepare");
  require(hotset_llama_prepare(a.get(), &params) != 0, "prepared twice: accepted");
  said(a, "prepared already", "prepared twice");
  require(hotset_llama_prepare(b.get(), &params) != 0, "prepared by two: accepted");
  said(b, "another paging", "prepared by two");
  require(hotset_llama_attach(a.get(), nullptr) != 0, "no context: accepted");
  said(a, "no context", "no context");
  require(hotset_llama_check(a.get()) != 0, "check before attach: accepted");
  session unprepared(*model);
  require(hotset_llama_attach(a.get(), unprepared.context.get()) != 0, "unprepared: accepted");
  said(a, "was not made from the parameters", "a context of other parameters");
  require(hotset_llama_attach(b.get(), unprepared.context.get()) != 0, "unprepared: accepted");
  said(b, "were not prepared", "no parameters");
  const auto dense = load("dense.gguf");
  session of_dense(*dense, params);
  require(hotset_llama_attach(a.get(), of_dense.context.get()) != 0, "a dense model: accepted");
  said(a, "no experts", "a dense model");
  session s(*model, params);
  must(hotset_llama_attach(a.get(), s.context.get()), a.get());
  require(hotset_llama_attach(a.get(), s.context.get()) != 0, "attached twice: accepted");
  hotset_llama_options o{};
  o.struct_size = sizeof(std::size_t);
  const paging_handle small(hotset_llama_create(&o));
  require(small != nullptr && hotset_llama_attach(small.get(), s.context.get()) != 0,
          "a small structure: accepted");
  said(small, "struct_size", "a small structure");
  o.struct_size = sizeof o;
  const auto path = file_of(model_file);
  o.model_path = path.c_str();
  o.slots = 8;
  o.budget = "50%";
  const paging_handle both(hotset_llama_create(&o));
  auto of_both = parameters();
  require(hotset_llama_prepare(both.get(), &of_both) == 0, "prepare");
  session third(*model, of_both);
  require(hotset_llama_attach(both.get(), third.context.get()) != 0,
          "slots and a budget: accepted");
  said(both, "accepted: one of them", "slots and a budget");
}

void of_another_kind(const std::string& name) {
  const auto model = load(name);
  session plain(*model);
  const auto expected = plain.generate(1);
  for (const auto source : {HOTSET_LLAMA_MAPPED, HOTSET_LLAMA_READ}) {
    session s(*model, file_of(name), {.source = source});
    require_same(expected, s.generate(1), name);
    require(s.stats().hits > 0, "nothing was paged");
  }
}
void scales_of_experts() { of_another_kind("scales.gguf"); }
void biases_of_experts() { of_another_kind("biases.gguf"); }

/// A model loaded with another top-k than the file's.
void another_top_k() {
  llama_model_kv_override overrides[2] = {};
  overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_INT;
  std::strcpy(overrides[0].key, "llama.expert_used_count");
  overrides[0].val_i64 = 2;
  auto params = on_processor();
  params.kv_overrides = overrides;
  const auto model = load(model_file, params);
  session plain(*model);
  const auto expected = plain.generate(1);
  session s(*model, file_of(model_file), {.slots = 3});  // fewer than the file's top-k
  require_same(expected, s.generate(1), "outputs");
  require(s.stats().hits > 0, "nothing was paged");
}

/// Four sequences with equal text route to the experts of one.
void ids_that_repeat() {
  const auto model = load(model_file);
  session plain(*model);
  session s(*model, file_of(model_file), {.slots = 4});
  for (const auto t : text(8, 5)) require_same(plain.decode({t}, 4), s.decode({t}, 4), "outputs");
  require(s.stats().passed == 0, std::to_string(s.stats().passed) + " visits passed the slots");
  require(s.stats().visits > 0, "nothing was paged");
}

/// A prompt routes more experts than there are slots. It leaves its most used experts in slots.
void more_experts_than_slots() {
  const auto model = load(model_file);
  session plain(*model);
  const auto asked = text(4, 3);
  const auto expected_first = plain.decode(asked);
  const auto expected = plain.decode(text(micro_batch, 1));
  for (const auto source : {HOTSET_LLAMA_MAPPED, HOTSET_LLAMA_READ, HOTSET_LLAMA_URING})
    for (const std::int32_t slots : {4, 8}) {
      const auto what = std::to_string(slots) + " slots, source " + std::to_string(source);
      session s(*model, file_of(model_file), {.slots = slots, .source = source});
      require_same(expected_first, s.decode(asked), what + ", nothing in slots before");
      const auto first = s.stats();
      require(first.spares == (slots == 8 ? 8 : 0), what + ": spare slots");
      require((first.spared > 0) == (slots == 8), what + ": a short prompt reads what it lacks");
      require((first.passed > 0) == (slots == 4), what + ": a prompt without spare slots");
      require_same(expected, s.decode(text(micro_batch, 1)), what + ", a long prompt");
      require(s.stats().passed > first.passed && s.stats().spared == first.spared,
              what + ": a long prompt is faster by the mapping");
      s.forget();
      (void)s.decode(text(40, 1));
      const auto before = s.stats();
      (void)s.decode({7});
      require(s.stats().hits > before.hits, what + ": the prompt left nothing in slots");
    }
}
/// A visit takes the slot of a copy ahead before that copy is made.
void copies_into_one_slot() {
  constexpr std::size_t bytes = std::size_t{4} << 20U;
  std::vector<std::byte> experts(2 * bytes);
  std::fill_n(experts.begin() + bytes, bytes, std::byte{2});
  ggml_tensor tensor{};
  tensor.data = experts.data();
  const layer_weights weights{{{.tensor = &tensor, .bytes = bytes, .experts = 2}}};
  auto from = expert_bytes::open({}, weights, HOTSET_LLAMA_MAPPED, 2, true);
  require(from.has_value(), "not opened");
  std::vector<std::byte> slot(bytes);
  for (int i = 0; i < 100; ++i) {
    from->begin_visit(hotset::layer_id{0}, expert_bytes::copies::before_use);
    for (const auto e : {hotset::expert_id{0}, hotset::expert_id{1}})
      (void)from->read({hotset::layer_id{0}, e}, {}, 0, 0, slot);
    from->start_copies();
    require(from->has_arrived(0), "a copy failed");
    require(std::ranges::count(slot, std::byte{2}) == std::ssize(slot), "the other expert's bytes");
    (void)from->end_visit();
  }
}
/// Sequences side by side, one token of each: the spare slots serve what the slots do not.
void many_sequences() {
  const auto model = load(model_file);
  session plain(*model);
  session s(*model, file_of(model_file), {.slots = 8, .source = HOTSET_LLAMA_READ});
  for (std::uint32_t i = 0; i < 12; ++i) {
    const auto next = text(4, i);
    require_same(plain.decode_each(next), s.decode_each(next), "outputs");
  }
  require(s.stats().passed < s.stats().visits / 4, "visits past the slots");
  require(s.stats().spared > 0, "the slots sufficed: the test shows nothing");
}

void budgets() {
  const auto model = load(model_file);
  session plain(*model);
  const auto expected = plain.generate(1);
  const auto run = [&](const char* budget) {
    session s(*model, file_of(model_file), {.budget = budget});
    require_same(expected, s.generate(1), budget);
    return std::pair(s.stats(), std::string(hotset_llama_describe(s.paging.get())));
  };
  const auto [half, of_half] = run("50%");
  require(half.slots >= 6 && half.slots <= 8 && half.slot_bytes > 0, "50%: " + of_half);
  require(of_half.find(" of 16 experts of each of ") != std::string::npos, "50%: " + of_half);
  const auto [all, of_all] = run("auto");  // the machine has room for all
  require(all.slot_bytes == 0 && of_all.find("nothing is copied; auto: ") != std::string::npos,
          "auto: " + of_all);
  for (const auto* const bad : {"", "0%", "101%", "x%", "50", "-1GiB", "1KiB"})
    require_refused([&] { (void)run(bad); }, "accepted", std::string("budget '") + bad + "'");
}

/// Slots are allocated at once, so "auto" sees those of other contexts as used; other budgets name them.
void budgets_beside_other_contexts() {
  const auto model = load(model_file);
  const session first(*model, file_of(model_file), {.budget = "50%"});
  const auto of_first = first.stats().slot_bytes;
  const session second(*model, file_of(model_file), {.budget = "50%"});
  const std::string words = hotset_llama_describe(second.paging.get());
  require(words.find("; other contexts of this process hold " + mebibytes(of_first)) != words.npos,
          words);
  require(slot_bytes_of_process() == 2 * of_first, "the slots of both");
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}
/// The memory that cgroups of both versions leave, from files like the system's.
void limits_of_cgroups() {
  const auto root = folder / "root";
  const auto left = [&] { return available_memory(root); };
  fs::remove_all(root);
  require(left().bytes == 0, "an unknown limit");
  write(root / "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n");
  require(left().bytes == 8000 * 1024 && left().name == "the machine's memory", "no cgroup");
  write(root / "proc/self/cgroup", "0::/a/b\n");
  write(root / "sys/fs/cgroup/a/memory.max", "5000000\n");
  write(root / "sys/fs/cgroup/a/memory.stat", "anon 1000000\nfile 3000000\nshmem 500000\n");
  write(root / "sys/fs/cgroup/a/b/memory.max", "max\n");
  require(left().bytes == 3500000 && left().name == "the cgroup's limit", "the parent's limit");
  write(root / "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/c\n0::/\n");
  write(root / "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "4000000\n");
  write(root / "sys/fs/cgroup/memory/c/memory.stat", "rss 1\ntotal_rss 1500000\n");
  require(left().bytes == 2500000, "version 1");
  write(root / "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "1000000\n");
  require(left().bytes == 0, "more used than the limit");
  write(root / "proc/self/cgroup", "4:memory:/of/the/host\n");
  write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  require(left().bytes == 2000000, "a container is told the path outside");
}

/// The file cache keeps pages of a mapping if memory has room for them, and otherwise drops what is given back.
void pages_of_a_mapping() {
  const auto path = file_of(model_file);
  const auto size = static_cast<std::size_t>(fs::file_size(path));
  const int file = ::open(path.c_str(), O_RDONLY);
  require(file >= 0 && ::fsync(file) == 0, "the file cannot be opened");
  auto* const at = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0));
  require(at != MAP_FAILED, "the file cannot be mapped");
  struct statfs system {};
  require(::fstatfs(file, &system) == 0, "unknown file system");
  const bool has_cache = system.f_type != 0x01021994;  // tmpfs: its pages are the file
  const auto cached = [&] {
    std::vector<unsigned char> pages(size / 4096 + 1);
    require(::mincore(at, size, pages.data()) == 0, "mincore");
    return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  };
  const auto given_back = [&](bool pages_fit) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < size; i += 4096) sum += static_cast<std::uint64_t>(at[i]);
    require(sum != 0 && cached() > 16, "nothing was read");
    const std::vector<std::vector<std::span<const std::byte>>> experts{{{at, size}}};
    weight_mapping(experts, pages_fit).give_back(experts[0][0]);
    return cached();
  };
  require(given_back(true) > 16, "pages that have room were dropped");
  require(!has_cache || given_back(false) <= 1, "pages without room were kept");
  ::munmap(at, size);
  ::close(file);
}

void reads_without_copies() {
  constexpr std::uint64_t all = 1000;
  reads_watch w;
  w.look(5000, 0, 0);  // loading
  require(!w.is_too_much(all), "the first look");
  w.look(9000, 0, 1);  // a prompt past the slots
  require(!w.is_too_much(all), "a visit past the slots");
  w.look(9900, 50, 1);
  require(!w.is_too_much(all), "less than all experts");
  w.look(10900, 400, 1);
  require(!w.is_too_much(all), "less than ten times the copies");
  w.look(20000, 401, 1);
  require(w.is_too_much(all), "ten times the copies");
}

/// Routers whose scores are not recorded.
void unknown_routers() {
  const auto said = [](const router_tap& tap, const std::string& words) {
    const auto bad = tap.check();
    require(bad && bad->message.find(words) != std::string::npos, "it does not say " + words);
  };
  router_tap tap({3});
  said(tap, "layer 3: its router is not a product");
  ggml_tensor scores{};
  scores.op = GGML_OP_SQRT;
  ggml_set_name(&scores, "ffn_moe_probs-3");
  require(!tap.see(scores, true), "it stops at scores");
  said(tap, "layer 3: its router scores by SQRT, accepted: softmax or sigmoid");
}

struct heard {
  std::size_t asked = 0;
  std::size_t computed = 0;
};
bool hears(ggml_tensor* node, bool ask, void* of) {
  auto& h = *static_cast<heard*>(of);
  if (std::strcmp(node->name, "ffn_moe_out-1") != 0) return false;
  ++(ask ? h.asked : h.computed);
  return true;
}
void a_callback_of_the_program() {
  const auto model = load(model_file);
  session plain(*model);
  const auto expected = plain.generate(1);
  heard h;
  auto params = parameters();
  params.cb_eval = hears;
  params.cb_eval_user_data = &h;
  session s(*model, file_of(model_file), {}, params);
  require(h.asked == 0, "it was asked of attach's own decode");
  require_same(expected, s.generate(1), "paged");
  require(h.asked == 13 && h.computed == 13, "it heard of " + std::to_string(h.computed));
  hotset_llama_destroy(s.paging.release());
  s.forget();
  require_same(expected, s.generate(1), "destroyed");
  require(h.asked == 26 && h.computed == 26,
          "destroyed, it heard of " + std::to_string(h.computed));
}

/// A TCP socket on this machine.
class local_socket {
 public:
  local_socket() : handle_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  local_socket(const local_socket&) = delete;
  local_socket& operator=(const local_socket&) = delete;
  ~local_socket() { ::close(handle_); }
  [[nodiscard]] bool connects_to(std::uint16_t port) {
    address_.sin_port = htons(port);
    return ::connect(handle_, at(), sizeof address_) == 0;
  }
  /// A port without a listener.
  [[nodiscard]] std::uint16_t free_port() {
    ::socklen_t size = sizeof address_;
    require(::bind(handle_, at(), size) == 0 && ::getsockname(handle_, at(), &size) == 0,
            "no port is free");
    return ntohs(address_.sin_port);
  }

 private:
  ::sockaddr* at() { return reinterpret_cast<::sockaddr*>(&address_); }
  int handle_;
  ::sockaddr_in address_{};
};

/// A second process that computes like a GPU: its tensors are not in host memory.
class remote_device {
 public:
  remote_device() : port_(local_socket().free_port()) {
    const auto parent = ::getpid();
    child_ = ::fork();
    if (child_ != 0) return;
    std::thread([parent] {
      while (::getppid() == parent) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ::_exit(0);
    }).detach();
    (void)std::freopen("/dev/null", "w", stdout);
    ggml_backend_load_all();
    auto* const start = function<decltype(&start_type)>("ggml_backend_rpc_start_server");
    auto* device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (start != nullptr) start(endpoint().c_str(), nullptr, 1, 1, &device);
    ::_exit(0);
  }
  remote_device(const remote_device&) = delete;
  remote_device& operator=(const remote_device&) = delete;
  ~remote_device() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  /// Null: llama.cpp was built without GGML_RPC.
  [[nodiscard]] ggml_backend_dev_t find() const {
    auto* const add = function<decltype(&add_type)>("ggml_backend_rpc_add_server");
    if (add == nullptr) return nullptr;
    for (int tries = 0; !local_socket().connects_to(port_); ++tries) {
      require(tries < 100, endpoint() + " does not answer");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    auto* const registered = add(endpoint().c_str());
    require(registered != nullptr, endpoint() + " has no device");
    ggml_backend_register(registered);
    return ggml_backend_reg_dev_get(registered, 0);
  }

 private:
  static void start_type(const char*, const char*, std::size_t, std::size_t, ggml_backend_dev_t*);
  static ggml_backend_reg_t add_type(const char*);
  template <class Function>
  static Function function(const char* name) {
    auto* const rpc = ggml_backend_reg_by_name("RPC");
    return rpc == nullptr
               ? nullptr
               : reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(rpc, name));
  }
  [[nodiscard]] std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  std::uint16_t port_;
  ::pid_t child_ = -1;
};
std::optional<remote_device> remote;

/// All layers on a device except the experts, like llama.cpp's --cpu-moe.
bool ids_on_a_device() {
  auto* const device = remote->find();
  if (device == nullptr) return false;
  ggml_backend_dev_t devices[] = {device, nullptr};
  const llama_model_tensor_buft_override experts[] = {
      {"ffn_(gate|up|down)_exps", ggml_backend_cpu_buffer_type()}, {nullptr, nullptr}};
  auto params = on_processor();
  params.devices = devices;
  params.n_gpu_layers = 99;
  params.tensor_buft_overrides = experts;
  const auto model = load(model_file, params);
  for (const bool offload : {false, true}) {
    auto setup = parameters();
    setup.op_offload = offload;
    session plain(*model, setup);
    const auto expected = plain.generate(1);
    session s(*model, file_of(model_file), {}, setup);
    require_same(expected, s.generate(1), "outputs");
    require(s.stats().hits > 0, "nothing was paged");
  }
  params.tensor_buft_overrides = nullptr;
  const auto offloaded = load(model_file, params);
  require_refused([&] { session(*offloaded, file_of(model_file), {}); }, "not in host memory",
                  "experts on the device");
  return true;
}

struct check {
  const char* name;
  const char* line;
  std::function<bool()> run;  ///< false: skipped
};
template <void call()>
bool always() {
  call();
  return true;
}
const check checks[] = {
    {"adapter_on_experts", "an adapter on experts, set and taken away after attach: the same bytes",
     always<adapter_on_experts>},
    {"adapter_on_attention", "an adapter on attention, likewise", always<adapter_on_attention>},
    {"adapter_set_before_attach", "an adapter on experts that was set before attach",
     always<adapter_set_before_attach>},
    {"two_pagings", "two pagings of one model: the same bytes", always<two_pagings>},
    {"plain_context_beside", "a plain context beside a paged one, by turns and in two threads",
     always<plain_context_beside>},
    {"two_contexts_of_the_same_parameters", "contexts of the same parameters, and of another model",
     always<two_contexts_of_the_same_parameters>},
    {"warm_up", "llama_set_warmup after attach: the same bytes, then and after it",
     always<warm_up>},
    {"file_of_another_model", "a file of another model is refused, down to one expert",
     always<file_of_another_model>},
    {"copies_that_fail",
     "a file that is cut while it decodes: an error, and the next batch is right",
     always<copies_that_fail>},
    {"an_aborted_batch", "a batch that was aborted: the next one is right",
     always<an_aborted_batch>},
    {"an_aborted_prompt", "a prompt that was aborted at any node: the next batch is right",
     always<an_aborted_prompt>},
    {"decode_after_destroy", "a context goes on after its paging is destroyed",
     always<decode_after_destroy>},
    {"orders_of_destruction", "context and paging are freed in either order",
     always<orders_of_destruction>},
    {"wrong_calls", "wrong calls are refused in one line", always<wrong_calls>},
    {"scales_of_experts", "scales of experts stay with the model: the same bytes",
     always<scales_of_experts>},
    {"biases_of_experts", "biases of experts are paged: the same bytes", always<biases_of_experts>},
    {"another_top_k", "a model that was loaded with another top-k is paged: the same bytes",
     always<another_top_k>},
    {"ids_that_repeat", "ids that repeat count once", always<ids_that_repeat>},
    {"more_experts_than_slots",
     "a prompt past the slots is served by spare slots or the mapping, and fills the slots",
     always<more_experts_than_slots>},
    {"copies_into_one_slot", "of two copies into one slot the last one counts",
     always<copies_into_one_slot>},
    {"many_sequences", "sequences side by side are served by slots and spare slots",
     always<many_sequences>},
    {"budgets", "a budget in bytes, as a share, or auto", always<budgets>},
    {"budgets_beside_other_contexts", "what other contexts hold",
     always<budgets_beside_other_contexts>},
    {"limits_of_cgroups", "the memory that a cgroup leaves, in both versions",
     always<limits_of_cgroups>},
    {"pages_of_a_mapping", "pages without room are dropped when they are given back",
     always<pages_of_a_mapping>},
    {"reads_without_copies", "reads that are no copies are noticed", always<reads_without_copies>},
    {"unknown_routers", "routers without a product, or with other scores, are not recorded",
     always<unknown_routers>},
    {"a_callback_of_the_program", "a callback of the program is called as before",
     always<a_callback_of_the_program>},
    {"ids_on_a_device", "ids on another device, experts in host memory (--cpu-moe): the same bytes",
     ids_on_a_device},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: hotset-llama-tests <folder of check.sh> [name of a check]\n");
    return 2;
  }
  folder = argv[1];
  remote.emplace();  // before there are threads
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_backend_init();
  int failed = 0;
  std::size_t ran = 0;
  for (const auto& c : checks) {
    if (argc > 2 && std::string(argv[2]) != c.name) continue;
    ++ran;
    try {
      std::printf(c.run() ? "ok: %s\n" : "left out (llama.cpp has no GGML_RPC): %s\n", c.line);
    } catch (const std::exception& e) {
      std::printf("FAILED: %s: %s\n", c.name, e.what());
      ++failed;
    }
    std::fflush(stdout);
  }
  if (ran == 0) std::fprintf(stderr, "no check of this name\n");
  remote.reset();
  return failed == 0 && ran > 0 ? 0 : 1;
}
