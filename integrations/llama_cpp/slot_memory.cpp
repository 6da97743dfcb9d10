// SPDX-License-Identifier: Apache-2.0
#include "slot_memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "model_file.hpp"

namespace hotset_llama_cpp {

using namespace hotset;

namespace {

/// Matrix kernels may read a few bytes past the last expert, as in the model's own memory.
constexpr std::size_t beyond = 1024;

std::atomic<std::uint64_t> bytes_of_process{0};

/// Takes the memory of one weight after the other.
class slot_taker {
 public:
  slot_taker(const lab::expert_files& files, const slot_plan& plan, slot_memory& out)
      : files_(files), plan_(plan), out_(out) {}

  memory_status take_all() {
    if (const auto code = make_spare_blocks(); code != memory_status::ok) return code;
    for (const auto l : each<layer_id>(files_.shape.layers)) {
      out_.first.emplace_back();
      const auto& tensors = layout_of(files_, l).tensors;
      for (std::size_t t = 0; t < tensors.size(); ++t)
        if (const auto code = take(tensors[t].bytes, t); code != memory_status::ok) return code;
    }
    // Mapped pages stay until their last mapping goes.
    for (const auto& block : spare_)
      if (const auto code = out_.pages->destroy_block(block); code != memory_status::ok)
        return code;
    return memory_status::ok;
  }

 private:
  [[nodiscard]] std::size_t whole_pages(std::uint64_t bytes) const {
    const auto page = out_.pages->granularity();
    return (static_cast<std::size_t>(bytes) + page - 1) / page * page;
  }
  /// One block for the first tensor of every layer, one for the second, and so on.
  memory_status make_spare_blocks() {
    std::vector<std::uint64_t> widest;
    for (const auto l : each<layer_id>(plan_.spares == 0 ? 0 : files_.shape.layers)) {
      const auto& tensors = layout_of(files_, l).tensors;
      widest.resize(std::max(widest.size(), tensors.size()));
      for (std::size_t t = 0; t < tensors.size(); ++t)
        widest[t] = std::max(widest[t], tensors[t].bytes);
    }
    for (const auto bytes : widest) {
      const auto of_all = static_cast<std::uint64_t>(plan_.spares) * bytes;
      out_.bytes += of_all;
      if (const auto code =
              out_.pages->create_block(whole_pages(of_all + beyond), spare_.emplace_back());
          code != memory_status::ok)
        return code;
    }
    return memory_status::ok;
  }
  /// The slots of one weight. They end where the spare slots begin, at a page.
  memory_status take(std::uint64_t expert_bytes, std::size_t tensor) {
    const auto of_slots =
        static_cast<std::size_t>(plan_.slots) * static_cast<std::size_t>(expert_bytes);
    const auto own = whole_pages(spare_.empty() ? of_slots + beyond : of_slots);
    const auto shared = spare_.empty() ? 0 : static_cast<std::size_t>(spare_[tensor].bytes);
    auto range = virtual_range<host_virtual_memory>::reserve(*out_.pages, own + shared);
    if (!range) return memory_status::out_of_memory;
    if (const auto code = range->populate(0, own, 1); code != memory_status::ok) return code;
    if (shared != 0)
      if (const auto code = range->map(own, std::array{spare_[tensor]}); code != memory_status::ok)
        return code;
    const auto first = spare_.empty() ? 0 : own - of_slots;
    out_.first.back().push_back(range->addresses().data() + first);
    out_.ranges.push_back(*std::move(range));
    out_.bytes += of_slots;
    return memory_status::ok;
  }

  const lab::expert_files& files_;
  const slot_plan& plan_;
  slot_memory& out_;
  std::vector<memory_block> spare_{};  ///< [most tensors of a layer]
};

}  // namespace

result<slot_memory> take_slots(const lab::expert_files& files, const slot_plan& plan) {
  slot_memory out;
  out.plan = plan;
  auto pages = host_virtual_memory::create();
  if (!pages) return pages.error();
  out.pages = std::make_unique<host_virtual_memory>(*std::move(pages));
  if (const auto code = slot_taker(files, plan, out).take_all(); code != memory_status::ok)
    return error{"no memory for " + std::to_string(plan.slots) + " slots of each layer and " +
                 std::to_string(plan.spares) + " spare slots: " + std::string(describe(code))};
  bytes_of_process += out.bytes;
  out.counted = {nullptr, [bytes = out.bytes](void*) { bytes_of_process -= bytes; }};
  return out;
}

std::uint64_t slot_bytes_of_process() noexcept { return bytes_of_process; }

}  // namespace hotset_llama_cpp
