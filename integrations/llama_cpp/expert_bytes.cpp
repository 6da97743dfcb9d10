// SPDX-License-Identifier: Apache-2.0
#include "expert_bytes.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "hotset/transfer/file_expert_source.hpp"
#if HOTSET_LLAMA_HAS_URING
#include "hotset/uring/uring_file.hpp"
#endif

namespace hotset_llama_cpp {

using namespace hotset;

namespace {

template <class Source>
class file_of final : public expert_file {
 public:
  explicit file_of(Source source) : source_(std::move(source)) {}
  [[nodiscard]] bool read(expert_key key, std::size_t tensor, std::uint64_t at,
                          std::span<std::byte> to) const noexcept override {
    return source_.read(key, {}, tensor, at, to);
  }
  [[nodiscard]] std::string problem() const override { return source_.problem(); }

 private:
  Source source_;
};

using opened = result<std::unique_ptr<expert_file>>;

template <class Source>
opened open_as(const lab::expert_files& files, file_reads how, std::size_t readers) {
  auto source = Source::open(files.shape, files.paths, how, readers);
  if (!source) return source.error();
  for (const auto l : each<layer_id>(files.shape.layers))
    for (const auto e : each<expert_id>(files.shape.experts))
      if (auto bad = source->add({l, e}, {}, files.at({l, e}))) return *std::move(bad);
  return std::unique_ptr<expert_file>(std::make_unique<file_of<Source>>(*std::move(source)));
}

opened open_by(std::int32_t source, const lab::expert_files& files, std::size_t readers) {
  switch (source) {
    case HOTSET_LLAMA_READ: return open_as<file_expert_source>(files, file_reads::cached, readers);
    case HOTSET_LLAMA_DIRECT:
      return open_as<file_expert_source>(files, file_reads::direct, readers);
#if HOTSET_LLAMA_HAS_URING
    case HOTSET_LLAMA_URING:
      return open_as<uring_expert_source>(files, file_reads::direct, readers);
#endif
    default:
      return error{"source " + std::to_string(source) +
                   ", accepted: 0..3, and 4 where it was built with liburing"};
  }
}

const char* name_of(std::int32_t source) {
  return source == HOTSET_LLAMA_READ     ? "reads"
         : source == HOTSET_LLAMA_DIRECT ? "direct reads"
                                         : "io_uring";
}

}  // namespace

result<expert_bytes> expert_bytes::open(const lab::expert_files& files,
                                        const layer_weights& weights, std::int32_t source,
                                        std::size_t readers, bool pages_fit) {
  expert_bytes out;
  out.readers_ = readers;
  out.pages_fit_ = pages_fit;
  for (const auto& of_layer : weights) {
    auto& sizes = out.sizes_.emplace_back();
    auto& whole = out.whole_.emplace_back();
    for (const auto& w : of_layer) {
      sizes.push_back(w.bytes);
      whole.emplace_back(static_cast<const std::byte*>(w.tensor->data),
                         w.bytes * static_cast<std::size_t>(w.experts));
    }
  }
  out.mapping_ = std::make_unique<weight_mapping>(out.whole_, pages_fit);
  if (source == HOTSET_LLAMA_MAPPED) return out;
  const bool any = source == HOTSET_LLAMA_AUTO;
  for (auto way = any ? HOTSET_LLAMA_URING : source;; --way) {
    auto file = open_by(way, files, readers);
    if (file) {
      out.file_ = *std::move(file);
      out.name_ = name_of(way);
      return out;
    }
    if (!any || way == HOTSET_LLAMA_READ) return file.error();
  }
}

bool expert_bytes::read(expert_key key, precision_id, std::size_t tensor, std::uint64_t at,
                        std::span<std::byte> to) const noexcept {
  const late_copy what{key, tensor, at, to};
  {
    const std::lock_guard lock(late_->mutex);
    if (late_->layer == key.layer && late_->left.empty()) {
      // A visit may take a slot from a copy ahead that still waits.
      std::erase_if(late_->waiting,
                    [&](const late_copy& one) { return one.to.data() == to.data(); });
      late_->waiting.push_back(what);
      return true;
    }
  }
  return copy(what);
}

bool expert_bytes::copy(const late_copy& what) const noexcept {
  if (file_ != nullptr) return file_->read(what.key, what.tensor, what.at, what.to);
  mapping_->request(in_memory(what));
  copy_from_memory(what);
  mapping_->give_back(in_memory(what));
  return true;
}

void expert_bytes::copy_from_memory(const late_copy& what) const noexcept {
  std::memcpy(what.to.data(), in_memory(what).data(), what.to.size());
}

void expert_bytes::begin_visit(layer_id layer, copies when) noexcept {
  mapping_->set_read_ahead(when == copies::after_use);
  const std::lock_guard lock(late_->mutex);
  late_->when = when;
  if (when != copies::at_once) late_->layer = layer;
}

void expert_bytes::start_copies() {
  auto& late = *late_;
  if (late.when != copies::before_use) return;
  const std::lock_guard lock(late.mutex);
  const auto rank = [&](const late_copy& one) {
    return std::ranges::find(late.order_of_use, one.tensor) - late.order_of_use.begin();
  };
  std::ranges::stable_sort(late.waiting, {}, rank);
  for (std::size_t t = 0; t < sizes_[index_of(late.layer)].size(); ++t)
    late.left.emplace_back(std::ranges::count(late.waiting, t, &late_copy::tensor));
  late.next = 0;
  const auto copy_all = [this, &late] {
    for (std::size_t i = late.next++; i < late.waiting.size(); i = late.next++) {
      if (!copy(late.waiting[i])) late.failed = true;
      late.left[late.waiting[i].tensor].count_down();
    }
  };
  try {
    while (late.threads.size() < std::min(readers_, late.waiting.size()))
      late.threads.emplace_back(copy_all);
  } catch (const std::system_error&) {  // no more threads
    copy_all();
  }
}

bool expert_bytes::has_arrived(std::size_t tensor) {
  auto& order = late_->order_of_use;
  if (std::ranges::find(order, tensor) == order.end()) order.push_back(tensor);
  late_->left[tensor].wait();
  return !late_->failed;
}

void expert_bytes::computed(layer_id layer, std::size_t tensor) noexcept {
  if (late_->when != copies::after_use) return;
  {
    const std::lock_guard lock(late_->mutex);
    std::erase_if(late_->waiting, [&](const late_copy& one) {
      if (one.tensor == tensor) copy_from_memory(one);
      return one.tensor == tensor;
    });
  }
  if (!pages_fit_) mapping_->give_back(whole_[index_of(layer)][tensor]);
}

std::optional<layer_id> expert_bytes::end_visit() noexcept {
  late_->threads.clear();  // joins them
  const std::lock_guard lock(late_->mutex);
  if (late_->when == copies::after_use)
    for (const auto& one : late_->waiting) copy_from_memory(one);
  late_->waiting.clear();
  late_->left.clear();
  const auto layer = std::exchange(late_->layer, before_layers);
  return late_->failed.exchange(false) ? std::optional(layer) : std::nullopt;
}

std::span<const std::byte> expert_bytes::in_memory(const late_copy& what) const noexcept {
  const auto bytes = static_cast<std::size_t>(sizes_[index_of(what.key.layer)][what.tensor]);
  return whole_[index_of(what.key.layer)][what.tensor].subspan(
      index_of(what.key.expert) * bytes + static_cast<std::size_t>(what.at), what.to.size());
}

}  // namespace hotset_llama_cpp
