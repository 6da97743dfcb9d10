// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Serves the adapters of one base model by name: known, cached on the host, or on the device while requests use
/// them.
///
/// Rule: the first acquire loads an adapter. It reads the bytes unless the host has them, maps memory, copies, and
///   waits for the copies. Only then does it write the expert maps. To make room, it unloads as few unpinned adapters
///   as possible, least recently used first: it clears their map entries, waits for the last reader, then unmaps.
///   Strided: an adapter lies at experts + index * stride in every layer. Dense: it lies in each layer's first gap
///   that is long enough.
/// Source: ExpertWeave, sections 4.1 and 4.2; the publication order and the dense placement are ours.
/// Cost: O(log known) if the adapter is on the device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/adapters/expert_redirect.hpp"
#include "hotset/adapters/page_pool.hpp"
#include "hotset/adapters/uploader.hpp"
#include "hotset/adapters/virtual_weight_tensor.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

// clang-format off: version 14 takes an attributed enum for a function
/// Outcome of a call.
enum class [[nodiscard]] adapter_status : std::uint8_t{
    ok = 0,
    unknown,      ///< no adapter of that name was added
    pinned,       ///< a request uses it
    not_pinned,   ///< no request uses it
    no_room,      ///< no places or pages: pinned adapters hold them, or all would not suffice
    not_read,     ///< the loader failed, or host memory ran out
    not_mapped,   ///< the device refused memory
    not_copied,   ///< a copy or its fence failed
    not_drained,  ///< waiting for the readers of an adapter to unload failed
};
// clang-format on

/// Complexity: O(1). Returns a sentence fragment fit for a message.
[[nodiscard]] constexpr std::string_view describe(adapter_status s) noexcept {
  switch (s) {
    case adapter_status::ok: return "ok";
    case adapter_status::unknown: return "no adapter of that name";
    case adapter_status::pinned: return "the adapter is in use";
    case adapter_status::not_pinned: return "the adapter is not in use";
    case adapter_status::no_room: return "no room: the adapters on the device are in use";
    case adapter_status::not_read: return "the adapter could not be read";
    case adapter_status::not_mapped: return "the device has no memory for the adapter";
    case adapter_status::not_copied: return "the adapter could not be copied";
    case adapter_status::not_drained: return "waiting for the readers of another adapter failed";
  }
  return "unknown adapter status";
}

/// One expert's bytes of one weight, to be read.
struct adapter_part {
  std::string_view adapter;
  layer_id layer{};
  std::size_t weight = 0;
  std::int32_t ordinal = 0;  ///< position among the layer's tuned experts, by ascending expert
  expert_id expert = no_expert;
};
/// Fills the bytes of a part. Returns false if it cannot.
using adapter_loader = std::function<bool(const adapter_part&, std::span<std::byte>)>;

/// Sizes of a registry: the model, the device and the host cache.
struct adapter_registry_config {
  std::int32_t layers = 0;
  std::int32_t experts = 0;     ///< experts in each layer of the base model, M
  std::int32_t adapters = 0;    ///< most adapters on the device at once, A
  std::int32_t most_tuned = 0;  ///< most experts that one adapter may tune in a layer, E_max
  std::vector<std::size_t> expert_bytes{};  ///< [weights] bytes of one expert
  /// Most bytes of adapters cached on the host. An adapter that is being read takes its bytes in addition.
  std::uint64_t host_bytes = 0;
  std::uint32_t most_known = 0;  ///< most adapters that are known by name
  std::int32_t stride = 0;       ///< this and the next two: see expert_redirect::config
  adapter_placement placement = adapter_placement::strided;
  std::int32_t places = 0;

  [[nodiscard]] expert_redirect::config redirect() const noexcept {
    return {experts, adapters, most_tuned, stride, placement, places};
  }

  static constexpr std::int32_t layer_limit = 4096;
  static constexpr std::int64_t weight_limit = 64;
  static constexpr std::uint64_t host_limit = std::uint64_t{1} << 60;
  static constexpr std::uint32_t name_limit = 1 << 20;

  [[nodiscard]] validation validate() const {
    if (auto bad = detail::within("layers", layers, 1, layer_limit)) return bad;
    if (auto bad = detail::within("weights", std::ssize(expert_bytes), 1, weight_limit)) return bad;
    if (host_bytes > host_limit)
      return refuse_value("host_bytes", host_bytes, "at most " + std::to_string(host_limit));
    if (most_known > name_limit)
      return refuse_value("most_known", most_known, "at most " + std::to_string(name_limit));
    if (adapters < 1) return refuse_value("adapters", adapters, "1 or more");
    return redirect().validate();
  }
};

/// Counts since construction.
struct adapter_registry_stats {
  std::uint64_t loads = 0;      ///< to the device
  std::uint64_t reads = 0;      ///< from the loader
  std::uint64_t evictions = 0;  ///< from the device, to make room
  std::uint64_t refusals = 0;   ///< acquires that failed
};

/// Threads: compatible.
template <virtual_memory Memory, uploader Uploader>
class adapter_registry {
 public:
  using config = adapter_registry_config;
  using tensor_type = virtual_weight_tensor<Memory>;
  /// Result of `acquire`.
  struct acquired {
    adapter_status code = adapter_status::ok;
    std::int32_t index = -1;  ///< the token's adapter number for the reroute; -1 unless ok
  };

  /// `pool` and `copies` must not move and must outlive the registry. Errors: those of the configuration and of the
  /// tensors.
  static result<adapter_registry> create(page_pool<Memory>& pool, Uploader& copies,
                                         const config& setup, adapter_loader loader) noexcept {
    if (auto bad = setup.validate()) return *std::move(bad);
    return unless_out_of_memory(
        [&]() -> result<adapter_registry> {
          adapter_registry out(pool, copies, setup, std::move(loader));
          for (std::int32_t l = 0; l < setup.layers; ++l) {
            auto redirect = expert_redirect::create(setup.redirect());
            if (!redirect) return redirect.error();
            out.maps_.push_back(*std::move(redirect));
            for (const auto bytes : setup.expert_bytes) {
              const auto all = static_cast<std::int32_t>(setup.redirect().all_places());
              auto tensor = tensor_type::create(pool, {setup.experts, all, bytes});
              if (!tensor) return tensor.error();
              out.tensors_.push_back(*std::move(tensor));
            }
          }
          return out;
        },
        no_host_memory());
  }
  adapter_registry(adapter_registry&&) noexcept = default;
  adapter_registry& operator=(adapter_registry&&) = delete;
  /// Frees all memory. Pre: nothing reads or writes it any more.
  ~adapter_registry() = default;

  /// Makes an adapter known. Shape: tuned [layers], the experts of each layer in any order.
  /// Errors: an empty or known name; too many names; a wrong number of layers; more than most_tuned experts in a
  /// layer; an expert out of range or named twice; more bytes than the host may keep. On an error nothing has
  /// changed.
  validation add(const std::string& name, std::vector<std::vector<expert_id>> tuned) {
    if (name.empty()) return error{"an adapter without a name"};
    const auto refuse = [&](const auto&... what) {
      return validation(refusal("adapter ", name, ": ", what...));
    };
    if (known_.contains(name)) return refuse("known already");
    if (known_.size() >= setup_.most_known)
      return refuse("known adapters = ", known_.size() + 1, ", accepted: at most ",
                    setup_.most_known);
    if (tuned.size() != maps_.size())
      return refuse("layers = ", tuned.size(), ", accepted: ", maps_.size());
    std::uint64_t bytes = 0;
    for (std::size_t l = 0; l < tuned.size(); ++l) {
      if (auto bad = check(tuned[l]); !bad.empty()) return refuse("layer ", l, ": ", bad);
      std::ranges::sort(tuned[l]);
      for (const auto each : setup_.expert_bytes) {
        bytes += tuned[l].size() * each;
        if (bytes > setup_.host_bytes)
          return refuse("bytes = ", bytes, " or more, accepted: at most ", setup_.host_bytes);
      }
    }
    std::vector<expert_id> first(tuned.size(), expert_id{setup_.experts});
    known_.try_emplace(name, adapter{std::move(tuned), std::move(first), bytes});
    return std::nullopt;
  }

  /// Pins an adapter while a request uses it, and loads it if it is not on the device.
  /// If it fails, the maps and the device are unchanged, except that unpinned adapters may already have been unloaded
  /// to make room. If room cannot be made, none is unloaded. Bytes that were read stay on the host.
  acquired acquire(std::string_view name) {
    const auto found = known_.find(name);
    if (found == known_.end()) return {adapter_status::unknown, -1};
    auto& wanted = found->second;
    if (wanted.index < 0)
      if (const auto code = load(found->first, wanted); code != adapter_status::ok) {
        ++stats_.refusals;
        return {code, -1};
      }
    ++wanted.pins;
    wanted.used = ++clock_;
    return {adapter_status::ok, wanted.index};
  }
  /// Ends one `acquire`.
  adapter_status release(std::string_view name) noexcept {
    const auto found = known_.find(name);
    if (found == known_.end()) return adapter_status::unknown;
    if (found->second.pins == 0) return adapter_status::not_pinned;
    --found->second.pins;
    return adapter_status::ok;
  }
  /// Unloads an adapter from the device; it stays known. On an error nothing has changed.
  adapter_status unload(std::string_view name) noexcept {
    const auto found = known_.find(name);
    if (found == known_.end()) return adapter_status::unknown;
    if (found->second.pins != 0) return adapter_status::pinned;
    return found->second.index < 0 ? adapter_status::ok : leave(found->second);
  }
  /// Removes an adapter from the device and from the host, and forgets its name. On an error nothing has changed.
  adapter_status forget(std::string_view name) noexcept {
    if (const auto code = unload(name); code != adapter_status::ok) return code;
    const auto found = known_.find(name);
    if (found->second.bytes != nullptr) host_bytes_ -= found->second.size;
    known_.erase(found);
    return adapter_status::ok;
  }

  /// Returns -1 if the adapter is not on the device.
  [[nodiscard]] std::int32_t index_of(std::string_view name) const noexcept {
    const auto found = known_.find(name);
    return found == known_.end() ? -1 : found->second.index;
  }
  [[nodiscard]] bool is_cached(std::string_view name) const noexcept {
    const auto found = known_.find(name);
    return found != known_.end() && found->second.bytes != nullptr;
  }
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return host_bytes_; }
  [[nodiscard]] const adapter_registry_stats& stats() const noexcept { return stats_; }
  /// Pre: 0 <= layer < layers.
  [[nodiscard]] const expert_redirect& map(layer_id layer) const noexcept {
    return maps_[hotset::index_of(layer)];
  }
  /// Grows with each change of the maps. A copy of the rows is valid as long as the version is unchanged.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  /// The caller fills the base model's experts. Pre: layer and weight in range.
  [[nodiscard]] const tensor_type& tensor(layer_id layer, std::size_t weight) const noexcept {
    return tensors_[hotset::index_of(layer) * setup_.expert_bytes.size() + weight];
  }

 private:
  struct adapter {
    std::vector<std::vector<expert_id>> tuned{};  ///< [layers], ascending
    std::vector<expert_id> first{};        ///< [layers], places while the adapter is on the device
    std::uint64_t size = 0;                ///< bytes of all parts
    std::unique_ptr<std::byte[]> bytes{};  ///< by layer, weight and ordinal; null: not on the host
    std::int32_t index = -1;
    std::uint32_t pins = 0;
    std::uint64_t used = 0;
  };
  /// How an adapter gets room. The places are in planned_.
  struct room {
    std::int32_t index = -1;
    std::size_t leaving = 0;  ///< number of adapters to unload, from the front of by_age_
  };
  /// Adjacent places.
  struct run {
    expert_id first = no_expert;
    std::int32_t count = 0;
  };

  adapter_registry(page_pool<Memory>& pool, Uploader& copies, const config& setup,
                   adapter_loader loader)
      : pool_(&pool),
        copies_(&copies),
        setup_(setup),
        loader_(std::move(loader)),
        there_(static_cast<std::size_t>(setup.adapters), nullptr),
        stays_(static_cast<std::size_t>(setup.adapters), nullptr),
        planned_(static_cast<std::size_t>(setup.layers), no_expert) {
    by_age_.reserve(there_.size());
    runs_.reserve(there_.size() + 1);
    maps_.reserve(static_cast<std::size_t>(setup.layers));
    tensors_.reserve(maps_.capacity() * setup.expert_bytes.size());
  }

  /// Returns why the experts of a layer are refused, or an empty string.
  [[nodiscard]] std::string check(std::vector<expert_id> experts) const {
    if (experts.size() > static_cast<std::size_t>(setup_.most_tuned))
      return "tuned experts = " + std::to_string(experts.size()) + ", accepted: at most " +
             std::to_string(setup_.most_tuned);
    std::ranges::sort(experts);
    for (const auto e : experts)
      if (e < 0 || e >= setup_.experts)
        return "expert = " + to_string(e) + ", accepted: 0.." + std::to_string(setup_.experts - 1);
    const auto twice = std::ranges::adjacent_find(experts);
    return twice == experts.end() ? "" : "expert " + to_string(*twice) + " is named twice";
  }
  [[nodiscard]] static std::int32_t tuned(const adapter& a, std::size_t layer) noexcept {
    return static_cast<std::int32_t>(a.tuned[layer].size());
  }
  [[nodiscard]] tensor_type& tensor_at(std::size_t layer, std::size_t weight) noexcept {
    return tensors_[layer * setup_.expert_bytes.size() + weight];
  }
  /// Calls visit(layer, weight) in order until one returns false. Returns whether all returned true.
  template <class Visit>
  bool for_each_tensor(Visit visit) const {
    for (std::size_t l = 0; l < maps_.size(); ++l)
      for (std::size_t w = 0; w < setup_.expert_bytes.size(); ++w)
        if (!visit(l, w)) return false;
    return true;
  }

  adapter_status load(const std::string& name, adapter& wanted) {
    const auto plan = find_room(wanted);
    if (plan.index < 0) return adapter_status::no_room;
    if (!read(name, wanted)) return adapter_status::not_read;
    for (std::size_t n = 0; n < plan.leaving; ++n) {
      if (const auto code = leave(*by_age_[n]); code != adapter_status::ok) return code;
      ++stats_.evictions;
    }
    std::ranges::copy(planned_, wanted.first.begin());
    if (!map_places(wanted)) return adapter_status::not_mapped;
    if (!copy(wanted)) {
      unmap_places(wanted, tensors_.size());
      return adapter_status::not_copied;
    }
    name_in_maps(wanted, plan.index);
    wanted.index = plan.index;
    there_[static_cast<std::size_t>(plan.index)] = &wanted;
    ++stats_.loads;
    return adapter_status::ok;
  }
  /// Unloads an adapter. On a failure the maps are as they were.
  adapter_status leave(adapter& gone) noexcept {
    const auto index = gone.index;
    for (auto& redirect : maps_) (void)redirect.clear(index);
    ++version_;
    if (!copies_->wait_for_readers()) {
      name_in_maps(gone, index);
      return adapter_status::not_drained;
    }
    unmap_places(gone, tensors_.size());
    there_[static_cast<std::size_t>(index)] = nullptr;
    gone.index = -1;
    return adapter_status::ok;
  }

  void name_in_maps(const adapter& a, std::int32_t index) noexcept {
    const bool is_dense = setup_.placement == adapter_placement::dense;
    for (std::size_t l = 0; l < maps_.size(); ++l)
      (void)maps_[l].assign(index, a.tuned[l], is_dense ? a.first[l] : no_expert);
    ++version_;
  }
  /// Plans before anything changes: the fewest adapters to unload, least recently used first, so that places and
  /// pages suffice. Returns no index if unloading all unpinned adapters does not suffice.
  room find_room(const adapter& wanted) noexcept {
    for (auto& t : tensors_) (void)t.reclaim();
    by_age_.clear();
    for (auto* const a : there_)
      if (a != nullptr && a->pins == 0) by_age_.push_back(a);
    std::ranges::sort(by_age_, {}, [](const adapter* a) { return a->used; });
    stays_.assign(there_.begin(), there_.end());
    const auto others = pool_->in_use() - pages();  // idle pages included
    const auto pages_left = pool_->attainable() - std::min(pool_->attainable(), others);
    for (std::size_t leaving = 0;; ++leaving) {
      const auto place = std::find(stays_.begin(), stays_.end(), nullptr);
      const auto index = static_cast<std::int32_t>(place - stays_.begin());
      if (place != stays_.end() && plan_places(wanted, index) && pages(&wanted) <= pages_left)
        return {index, leaving};
      if (leaving == by_age_.size()) return {};
      *std::find(stays_.begin(), stays_.end(), by_age_[leaving]) = nullptr;
    }
  }
  /// Fills planned_ with the adapter's first place in each layer, beside the adapters of `stays_`. Returns false if a
  /// layer has no room.
  bool plan_places(const adapter& wanted, std::int32_t index) noexcept {
    for (std::size_t l = 0; l < maps_.size(); ++l) {
      planned_[l] = place_in(l, index, tuned(wanted, l));
      if (planned_[l] == no_expert) return false;
    }
    return true;
  }
  /// Strided: the places of the index. Dense: the layer's first gap that is long enough, or no_expert.
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters)
  [[nodiscard]] expert_id place_in(std::size_t layer, std::int32_t index,
                                   std::int32_t count) noexcept {
    expert_id place{setup_.experts};
    if (count == 0) return place;
    if (setup_.placement == adapter_placement::strided) return maps_[layer].first_place(index);
    list_runs(layer);
    for (const auto& r : runs_) {
      if (r.first - place >= count) break;
      place = r.first + r.count;
    }
    return place + count <= maps_[layer].virtual_experts() ? place : no_expert;
  }
  /// Fills runs_ with the places that the adapters of `stays_` have in a layer, in ascending order.
  void list_runs(std::size_t layer) noexcept {
    runs_.clear();
    for (const auto* const a : stays_)
      if (a != nullptr && tuned(*a, layer) != 0)
        runs_.push_back({a->first[layer], tuned(*a, layer)});
    std::ranges::sort(runs_, {}, &run::first);
  }
  /// Counts the pool's pages that the adapters of `stays_` take. If `coming` is not null, includes this adapter,
  /// placed at planned_. Pages that neighbours share count once.
  [[nodiscard]] std::uint64_t pages(const adapter* coming = nullptr) noexcept {
    std::uint64_t count = 0;
    for (std::size_t l = 0; l < maps_.size(); ++l) {
      list_runs(l);
      if (coming != nullptr) {
        runs_.push_back({planned_[l], tuned(*coming, l)});
        std::ranges::sort(runs_, {}, &run::first);
      }
      for (std::size_t w = 0; w < setup_.expert_bytes.size(); ++w) {
        std::size_t end = 0;
        for (const auto& r : runs_) {
          const auto touched = tensor_at(l, w).pages_of(r.first, r.count);
          count += touched.to - std::min(touched.to, std::max(touched.from, end));
          end = std::max(end, touched.to);
        }
      }
    }
    return count;
  }

  /// Reads an adapter's bytes to the host. After a successful read, drops the least recently used bytes to stay
  /// within host_bytes.
  bool read(const std::string& name, adapter& wanted) {
    if (wanted.bytes != nullptr || wanted.size == 0) return true;
    std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[wanted.size]);
    if (bytes == nullptr) return false;
    std::uint64_t at = 0;
    const bool done = for_each_tensor([&](std::size_t l, std::size_t w) {
      for (std::int32_t i = 0; i < tuned(wanted, l); ++i) {
        const auto each = setup_.expert_bytes[w];
        const adapter_part part{name, static_cast<layer_id>(l), w, i,
                                wanted.tuned[l][static_cast<std::size_t>(i)]};
        if (!loader_(part, {bytes.get() + at, each})) return false;
        at += each;
      }
      return true;
    });
    if (!done) return false;
    ++stats_.reads;
    make_host_room(wanted.size);
    wanted.bytes = std::move(bytes);
    host_bytes_ += wanted.size;
    return true;
  }
  void make_host_room(std::uint64_t bytes) noexcept {
    while (bytes > setup_.host_bytes - host_bytes_) {
      adapter* oldest = nullptr;
      for (auto& [name, a] : known_)
        if (a.bytes != nullptr && (oldest == nullptr || a.used < oldest->used)) oldest = &a;
      oldest->bytes.reset();
      host_bytes_ -= oldest->size;
    }
  }

  /// Maps all tensors or none.
  bool map_places(const adapter& a) noexcept {
    std::size_t done = 0;
    const bool all = for_each_tensor([&](std::size_t l, std::size_t w) {
      if (tensor_at(l, w).place(a.first[l], tuned(a, l)) != memory_status::ok) return false;
      ++done;
      return true;
    });
    if (!all) unmap_places(a, done);
    return all;
  }
  /// Unmaps the first `count` tensors.
  void unmap_places(const adapter& a, std::size_t count) noexcept {
    (void)for_each_tensor([&](std::size_t l, std::size_t w) {
      if (count == 0) return false;
      --count;
      (void)tensor_at(l, w).remove(a.first[l], tuned(a, l));
      return true;
    });
  }
  /// Returns when no copy is under way any more, whether all succeeded or not.
  bool copy(const adapter& a) noexcept {
    std::uint64_t at = 0;
    const bool begun = for_each_tensor([&](std::size_t l, std::size_t w) {
      const auto each = setup_.expert_bytes[w];
      const auto bytes = a.tuned[l].size() * each;
      if (bytes == 0) return true;
      const auto first = hotset::index_of(a.first[l]) * each;
      const auto to = tensor_at(l, w).addresses().subspan(first, bytes);
      const bool done = copies_->copy(to, {a.bytes.get() + at, bytes});
      at += bytes;
      return done;
    });
    return copies_->fence() && begun;
  }

  page_pool<Memory>* pool_;
  Uploader* copies_;
  config setup_;
  adapter_loader loader_;
  std::map<std::string, adapter, std::less<>> known_{};
  std::vector<expert_redirect> maps_{};  ///< [layers]
  std::vector<tensor_type> tensors_{};   ///< [layers][weights]
  std::vector<adapter*> there_;          ///< [adapters]; null: the index is free
  std::vector<const adapter*> stays_;  ///< [adapters], scratch of `find_room`, like the next three
  std::vector<adapter*> by_age_{};
  std::vector<expert_id> planned_;  ///< [layers]
  std::vector<run> runs_{};
  std::uint64_t host_bytes_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t version_ = 0;
  adapter_registry_stats stats_{};
};

}  // namespace hotset
