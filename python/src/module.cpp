// SPDX-License-Identifier: Apache-2.0
/// The C interface of hotset for Python: arrays are passed and returned without copies.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "hotset.h"

namespace {

namespace py = pybind11;

/// Raises the exception of a code, with the library's message or another.
[[noreturn]] void raise(hotset_status code, const std::string& words) {
  const auto kind = py::module_::import("hotset._errors").attr("of_code")(code);
  PyErr_SetObject(kind.ptr(), kind(words, code).ptr());
  throw py::error_already_set();
}
void check(hotset_status code) {
  if (code != HOTSET_OK) raise(code, hotset_last_error());
}
[[noreturn]] void refuse(const std::string& words) { raise(HOTSET_INVALID_ARGUMENT, words); }

/// A name as a template parameter.
template <std::size_t Size>
struct text {
  char letters[Size]{};
  constexpr text(
      const char (&given)[Size]) noexcept {  // NOLINT(google-explicit-constructor): as a literal
    std::copy_n(given, Size, letters);
  }
};
/// An integer of a named parameter. An int outside T's range is a wrong value, not a wrong type:
/// the error names it.
template <class T, text Name>
struct number {
  T value{};
  operator T() const noexcept { return value; }  // NOLINT(google-explicit-constructor): it is one
};
using layer_number = number<std::int32_t, "layer">;
using expert_number = number<std::int32_t, "expert">;
using slot_number = number<std::int32_t, "slot">;
using generation_number = number<std::uint32_t, "generation">;
using step_number = number<std::uint64_t, "step">;
using layers_number = number<std::int32_t, "layers">;
using experts_number = number<std::int32_t, "experts">;
using top_k_number = number<std::int32_t, "top_k">;
using max_tokens_number = number<std::int32_t, "max_tokens">;
using slots_number = number<std::size_t, "slots">;

/// Reads an int into T. Returns false, with the error cleared, if `from` is no int.
template <class T>
bool read_whole(py::handle from, const char* name, T& out) {
  if (!from || PyIndex_Check(from.ptr()) == 0) return false;
  const auto whole = py::reinterpret_steal<py::object>(PyNumber_Index(from.ptr()));
  if (!whole) {
    PyErr_Clear();
    return false;
  }
  if constexpr (std::is_signed_v<T>) {
    int beyond = 0;
    const auto value = PyLong_AsLongLongAndOverflow(whole.ptr(), &beyond);
    if (beyond == 0 && value >= std::numeric_limits<T>::min() &&
        value <= std::numeric_limits<T>::max()) {
      out = static_cast<T>(value);
      return true;
    }
  } else {
    const auto value = PyLong_AsUnsignedLongLong(whole.ptr());
    const bool beyond = PyErr_Occurred() != nullptr;
    PyErr_Clear();
    if (!beyond && value <= std::numeric_limits<T>::max()) {
      out = static_cast<T>(value);
      return true;
    }
  }
  refuse(std::string(name) + " = " + std::string(py::str(whole)) +
         ", accepted: " + std::to_string(std::numeric_limits<T>::min()) + ".." +
         std::to_string(std::numeric_limits<T>::max()));
}

/// A text for C, which ends at the first NUL.
const char* c_text(const char* what, const std::string& given) {
  if (given.find('\0') != std::string::npos)
    refuse(std::string(what) + ": a text with a NUL in it, accepted: one without");
  return given.c_str();
}

class pager;
class visit;
class recorder;
class prefetcher;
class curve;
struct kept_numbers;
struct consumer;

/// Refuses an object whose __init__ has not run, such as Pager.__new__(Pager): it has no handle.
template <class T>
struct made_caster : py::detail::type_caster_base<T> {
  bool load(py::handle from, bool convert) {
    if (py::isinstance<T>(from)) {
      const auto& held = *reinterpret_cast<const py::detail::instance*>(from.ptr());
      if (held.simple_layout && !held.simple_holder_constructed)
        refuse("a " + std::string(py::str(py::type::of(from).attr("__name__"))) +
               " whose __init__ has not run, accepted: one that was made by calling its class");
    }
    return py::detail::type_caster_base<T>::load(from, convert);
  }
};

}  // namespace

namespace pybind11::detail {

template <class T, text Name>
struct type_caster<number<T, Name>> {
  using named = number<T, Name>;
  PYBIND11_TYPE_CASTER(named, const_name("int"));
  bool load(handle from, bool) { return read_whole(from, Name.letters, value.value); }
};
template <>
struct type_caster<pager> : made_caster<pager> {};
template <>
struct type_caster<visit> : made_caster<visit> {};
template <>
struct type_caster<recorder> : made_caster<recorder> {};
template <>
struct type_caster<prefetcher> : made_caster<prefetcher> {};
template <>
struct type_caster<curve> : made_caster<curve> {};
template <>
struct type_caster<kept_numbers> : made_caster<kept_numbers> {};
template <>
struct type_caster<consumer> : made_caster<consumer> {};

}  // namespace pybind11::detail

namespace {

std::string shape_text(const py::array& a) {
  std::string out = "[";
  for (py::ssize_t d = 0; d < a.ndim(); ++d)
    out += (d == 0 ? "" : ", ") + std::to_string(a.shape(d));
  return out + "]";
}

/// Any array in this machine's memory, as NumPy sees it, without a copy.
py::array as_array(const py::object& given, const char* what) {
  if (py::isinstance<py::array>(given)) return py::reinterpret_borrow<py::array>(given);
  const auto numpy = py::module_::import("numpy");
  if (py::hasattr(given, "__dlpack__")) {
    const auto device = given.attr("__dlpack_device__")().cast<std::pair<int, int>>();
    constexpr int cpu = 1;
    if (device.first != cpu)
      refuse(std::string(what) + ": on DLPack device " + std::to_string(device.first) +
             ", accepted: the CPU's memory");
    return numpy.attr("from_dlpack")(given).cast<py::array>();
  }
  if (PyObject_CheckBuffer(given.ptr()) != 0)
    return numpy.attr("asarray")(py::memoryview(given)).cast<py::array>();
  refuse(std::string(what) + ": " + std::string(py::str(py::type::of(given).attr("__name__"))) +
         ", accepted: an array: NumPy, DLPack or a buffer");
}

/// Rows of T without a copy: address, number, and distance.
template <class T>
struct rows {
  py::object kept;  ///< keeps the memory alive; none if the argument was not given
  const T* data = nullptr;
  std::size_t count = 0;
  std::size_t stride = 0;  ///< in units of T
};
/// Refuses unaligned arrays: an array may be a view of bytes at any address.
template <class T>
void check_aligned(const py::array& a, const char* what) {
  if (a.size() != 0 && reinterpret_cast<std::uintptr_t>(a.data()) % alignof(T) != 0)
    refuse(std::string(what) + ": not aligned to " + std::to_string(alignof(T)) +
           " bytes, accepted: an array that is (numpy.ascontiguousarray)");
}
/// [width], one row; or [count, width]. Rows may have gaps between them, but not within them.
template <class T>
rows<T> rows_of(const py::object& given, std::size_t width, const char* what) {
  const auto refused = [&](const std::string& found, const std::string& accepted) {
    refuse(std::string(what) + ": " + found + ", accepted: " + accepted);
  };
  auto a = as_array(given, what);
  if (!py::isinstance<py::array_t<T>>(a))
    refused(std::string(py::str(a.dtype())),
            std::string(py::str(py::dtype::of<T>())) + " (nothing is converted in silence)");
  if (a.ndim() < 1 || a.ndim() > 2 || static_cast<std::size_t>(a.shape(a.ndim() - 1)) != width)
    refused("shape " + shape_text(a), "[tokens, " + std::to_string(width) + "]");
  constexpr auto each = static_cast<py::ssize_t>(sizeof(T));
  check_aligned<T>(a, what);
  const bool has_rows = a.size() != 0;  // NumPy gives strides of 0 to an array without elements
  if (has_rows && width > 1 && a.strides(a.ndim() - 1) != each)
    refused("numbers of a row that lie apart", "rows without gaps (numpy.ascontiguousarray)");
  rows<T> out;
  out.data = static_cast<const T*>(a.data());
  out.count = a.ndim() == 1 ? 1 : static_cast<std::size_t>(a.shape(0));
  if (a.ndim() == 2 && has_rows && out.count > 1) {
    if (a.strides(0) <= 0 || a.strides(0) % each != 0 ||
        static_cast<std::size_t>(a.strides(0) / each) < width)
      refused("rows " + std::to_string(a.strides(0)) + " bytes apart",
              "rows that follow one another and do not overlap");
    out.stride = static_cast<std::size_t>(a.strides(0) / each);
  }
  out.kept = std::move(a);
  return out;
}

/// Memory of `owner` as a read-only array.
template <class T>
py::array view_of(const T* data, std::size_t count, const py::object& owner) {
  py::array_t<T> out(static_cast<py::ssize_t>(count), data, owner);
  out.attr("flags").attr("writeable") = false;
  return out;
}

struct member {
  const char* name;
  const char* format;
  std::size_t offset;
};
py::dtype type_of(const std::vector<member>& members, std::size_t bytes) {
  py::list names, formats, offsets;
  for (const auto& m : members) {
    names.append(m.name);
    formats.append(m.format);
    offsets.append(m.offset);
  }
  return py::dtype(names, formats, offsets, static_cast<py::ssize_t>(bytes));
}
/// Structs of the C interface as NumPy's, with keys split into layer and expert.
py::dtype fill_type() {
  return type_of({{"layer", "i4", offsetof(hotset_fill, key.layer)},
                  {"expert", "i4", offsetof(hotset_fill, key.expert)},
                  {"slot", "i4", offsetof(hotset_fill, slot)},
                  {"generation", "u4", offsetof(hotset_fill, generation)},
                  {"victim_layer", "i4", offsetof(hotset_fill, victim.layer)},
                  {"victim_expert", "i4", offsetof(hotset_fill, victim.expert)},
                  {"precision", "u1", offsetof(hotset_fill, precision)},
                  {"speculative", "?", offsetof(hotset_fill, speculative)},
                  {"after", "u8", offsetof(hotset_fill, after)}},
                 sizeof(hotset_fill));
}
py::dtype request_type() {
  return type_of({{"layer", "i4", offsetof(hotset_request, key.layer)},
                  {"expert", "i4", offsetof(hotset_request, key.expert)},
                  {"for_step", "u8", offsetof(hotset_request, for_step)},
                  {"probability", "f4", offsetof(hotset_request, probability)}},
                 sizeof(hotset_request));
}
/// Made once, with the module.
py::object& fill_dtype() {
  static auto& held = *new py::object;  // never destroyed: Python may have ended by then
  return held;
}
py::object& request_dtype() {
  static auto& held = *new py::object;
  return held;
}
/// The number of a word, or an error that lists the words.
std::int32_t choose(const char* what, const std::string& name,
                    const std::vector<const char*>& names) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const char* n) { return name == n; });
  if (found != names.end()) return static_cast<std::int32_t>(found - names.begin());
  std::string all;
  for (const auto* n : names) all += std::string(all.empty() ? "" : ", ") + n;
  refuse(std::string(what) + ": '" + name + "', accepted: " + all);
}
std::int32_t scope_of(const std::string& name) {
  return choose("scope", name, {"per_layer", "shared"});
}
std::int32_t kind_of(const std::string& name) {
  return choose("kind", name, {"decode", "prefill", "verify"});
}

/// A view of the C interface, and the arrays that it points to.
struct visit_input {
  rows<std::int32_t> experts;
  rows<float> weights;
  rows<float> logits;
  rows<std::uint32_t> sequences;
  hotset_view view{};

  visit_input(std::int32_t layer, std::uint64_t step, std::int32_t kind, std::size_t top_k,
              const py::object& given) {
    experts = rows_of<std::int32_t>(given, top_k, "experts");
    view.struct_size = sizeof view;
    view.layer = layer;
    view.kind = kind;
    view.step = step;
    view.tokens = experts.count;
    view.experts = experts.data;
    view.experts_stride = experts.stride;
  }
  void take_weights(const py::object& given, std::size_t top_k) {
    if (given.is_none()) return;
    weights = rows_of<float>(given, top_k, "weights");
    same_tokens(weights.count, "weights");
    view.weights = weights.data;
    view.weights_stride = weights.stride;
  }
  void take_logits(const py::object& given, std::size_t width) {
    if (given.is_none()) return;
    logits = rows_of<float>(given, width, "logits");
    same_tokens(logits.count, "logits");
    if (logits.stride != 0 && logits.stride != width)
      refuse("logits: rows that lie apart, accepted: rows without gaps");
    view.logits = logits.data;
  }
  void take_sequences(const py::object& given) {
    if (given.is_none()) return;
    sequences = rows_of<std::uint32_t>(given, view.tokens, "sequences");
    view.sequences = sequences.data;
  }

 private:
  void same_tokens(std::size_t count, const char* what) const {
    if (count != view.tokens)
      refuse(std::string(what) + ": of " + std::to_string(count) +
             " tokens, accepted: " + std::to_string(view.tokens) + ", as experts");
  }
};

/// The decisions of a plan. Reading it after the pager's next plan raises.
class visit {
 public:
  visit(std::shared_ptr<pager> of, const hotset_visit& v, std::uint64_t epoch)
      : of_(std::move(of)), v_(v), epoch_(epoch) {}

  [[nodiscard]] py::array experts() const { return view<std::int32_t>(v_.experts, v_.count); }
  [[nodiscard]] py::array slots() const { return view<std::int32_t>(v_.slots, v_.count); }
  [[nodiscard]] py::array services() const { return view(v_.services, v_.count); }
  [[nodiscard]] py::array fills() const;
  [[nodiscard]] py::array tokens() const { return view(v_.tokens, v_.token_count); }
  [[nodiscard]] py::array routed() const { return view<std::int32_t>(v_.routed, v_.routed_count); }
  [[nodiscard]] std::size_t fill_count() const noexcept { return v_.fill_count; }
  [[nodiscard]] std::uint32_t group() const noexcept { return v_.group; }
  [[nodiscard]] std::uint32_t groups() const noexcept { return v_.groups; }
  [[nodiscard]] bool more() const noexcept { return v_.more != 0; }
  [[nodiscard]] bool expert_wise() const noexcept { return v_.expert_wise != 0; }
  void commit() const;
  void abort(const py::object& begun) const;

 private:
  void check_age() const;
  template <class T>
  py::array view(const T* data, std::size_t count) const;

  std::shared_ptr<pager> of_;
  hotset_visit v_;
  std::uint64_t epoch_;
};

/// Arrays of 64-bit numbers that options refer to while a handle is made.
struct kept_numbers {
  std::vector<std::uint64_t> bytes, lower;
  std::vector<std::int64_t> slots;
};

class pager : public std::enable_shared_from_this<pager> {
 public:
  pager(hotset_pager_options& o, const std::string& eviction, const std::string& admission,
        const std::string& miss, py::object removed)
      : experts_(o.experts),
        top_k_(static_cast<std::size_t>(std::max(0, o.top_k))),
        removed_(std::move(removed)) {
    o.struct_size = sizeof o;
    o.eviction = c_text("eviction", eviction);
    o.admission = c_text("admission", admission);
    o.miss = c_text("miss", miss);
    if (!removed_.is_none()) {
      o.removed = tell;
      o.user = this;
    }
    check(hotset_pager_create(&o, &held_));
  }
  pager(const pager&) = delete;
  pager& operator=(const pager&) = delete;
  ~pager() { hotset_pager_destroy(held_); }

  visit plan(layer_number layer, const py::object& experts, const py::object& weights,
             const std::optional<step_number>& step, const std::string& kind,
             const py::object& sequences, const py::object& logits) {
    visit_input in(layer, step_of(layer, step), kind == "decode" ? 0 : kind_of(kind), top_k_,
                   experts);
    in.take_weights(weights, top_k_);
    in.take_sequences(sequences);
    in.take_logits(logits, static_cast<std::size_t>(experts_));
    auto out = empty();
    const auto code = hotset_plan(held_, &in.view, &out);
    if (code == HOTSET_OK) {
      last_layer_ = layer;
      step_ = in.view.step;
      input_ = std::move(in);  // a visit in groups reads it until the last group
    }
    return planned(code, out);
  }
  visit plan_next() {
    auto out = empty();
    const auto code = hotset_plan_next(held_, &out);
    return planned(code, out);
  }
  void commit() { ended(hotset_commit(held_)); }
  void abort(const py::object& begun) {
    if (begun.is_none()) return ended(hotset_abort(held_, nullptr, 0));
    const auto given = py::array::ensure(begun);
    if (!given ||
        (given.size() != 0 && std::string("biu").find(given.dtype().kind()) == std::string::npos))
      refuse("begun: no whole numbers, accepted: a mark for each fill, or None");
    // Converted to bool: a mark is 1 if it is not 0.
    const auto marks = py::array_t<bool, py::array::c_style | py::array::forcecast>::ensure(given);
    static_assert(sizeof(bool) == sizeof(std::uint8_t));
    ended(hotset_abort(held_, reinterpret_cast<const std::uint8_t*>(marks.data()),
                       static_cast<std::size_t>(marks.size())));
  }
  void abandon() { checked(hotset_abandon(held_)); }

  py::array row(layer_number layer) {
    const hotset_id* data = nullptr;
    std::size_t count = 0;
    checked(hotset_row(held_, layer, &data, &count));
    return view_of<std::int32_t>(data, count, self());
  }
  std::uint64_t row_version(layer_number layer) {
    std::uint64_t out = 0;
    checked(hotset_row_version(held_, layer, &out));
    return out;
  }
  std::int32_t locate(layer_number layer, expert_number expert) {
    std::int32_t out = -1;
    checked(hotset_locate(held_, {layer, expert}, &out));
    return out;
  }
  std::int32_t precision(slot_number slot) {
    std::int32_t out = 0;
    checked(hotset_precision(held_, slot, &out));
    return out;
  }
  std::uint64_t pin(slot_number slot) {
    std::uint64_t out = 0;
    checked(hotset_pin(held_, slot, &out));
    return out;
  }
  void unpin(number<std::uint64_t, "pin"> pin, number<std::uint64_t, "reader"> reader) {
    checked(hotset_unpin(held_, pin, reader));
  }

  visit prefetch(layer_number layer, step_number step, const py::object& requests,
                 number<std::size_t, "most"> most) {
    const auto all = as_array(requests, "requests");
    if (!all.dtype().equal(request_dtype()) || all.ndim() != 1 ||
        (all.size() > 1 && all.strides(0) != static_cast<py::ssize_t>(sizeof(hotset_request))))
      refuse(
          "requests: no row of hotset.request without gaps, accepted: what Prefetcher.propose "
          "gives");
    check_aligned<hotset_request>(all, "requests");
    auto out = empty();
    const auto code =
        hotset_prefetch(held_, layer, step, static_cast<const hotset_request*>(all.data()),
                        static_cast<std::size_t>(all.size()), most, &out);
    return planned(code, out);
  }
  void expect(layer_number layer, step_number step, const py::object& probabilities) {
    const auto all = as_array(probabilities, "probabilities");
    if (!py::isinstance<py::array_t<float, py::array::c_style>>(all) || all.ndim() != 3 ||
        all.shape(2) != experts_)
      refuse("probabilities: " + std::string(py::str(all.dtype())) + " of shape " +
             shape_text(all) + ", accepted: float32 [tokens, depth, " + std::to_string(experts_) +
             "] without gaps");
    check_aligned<float>(all, "probabilities");
    checked(hotset_expect(held_, layer, step, static_cast<const float*>(all.data()),
                          static_cast<std::size_t>(all.shape(0)),
                          static_cast<std::int32_t>(std::min<py::ssize_t>(
                              all.shape(1), std::numeric_limits<std::int32_t>::max()))));
  }
  void arrived(slot_number slot, generation_number generation) {
    checked(hotset_arrived(held_, slot, generation));
  }
  void cancelled(slot_number slot, generation_number generation) {
    checked(hotset_cancelled(held_, slot, generation));
  }
  void failed(slot_number slot, generation_number generation) {
    checked(hotset_failed(held_, slot, generation));
  }

  void invalidate(layer_number layer, expert_number expert) {
    checked(hotset_invalidate(held_, {layer, expert}));
  }
  void set_quota(layer_number layer, number<std::int32_t, "slots"> slots) {
    checked(hotset_set_quota(held_, layer, slots));
  }
  std::int32_t quota(layer_number layer) {
    std::int32_t out = 0;
    checked(hotset_quota(held_, layer, &out));
    return out;
  }
  py::array residents() {
    std::size_t count = 0;
    checked(hotset_residents(held_, nullptr, 0, &count));
    py::array_t<std::int32_t> out({static_cast<py::ssize_t>(count), py::ssize_t{2}});
    checked(
        hotset_residents(held_, reinterpret_cast<hotset_key*>(out.mutable_data()), count, &count));
    return out;
  }
  std::pair<visit, std::size_t> plan_warm(const py::object& keys) {
    const auto all = rows_of<std::int32_t>(keys, 2, "keys");
    if (all.stride > 2) refuse("keys: rows that lie apart, accepted: rows without gaps");
    std::size_t consumed = 0;
    auto out = empty();
    const auto code = hotset_plan_warm(held_, reinterpret_cast<const hotset_key*>(all.data),
                                       all.count, &out, &consumed);
    return {planned(code, out), consumed};
  }

  py::dict stats() {
    hotset_stats s{};
    s.struct_size = sizeof s;
    checked(hotset_get_stats(held_, &s));
    py::dict out;
    const auto put = [&](const char* name, std::uint64_t value) { out[name] = value; };
    put("visits", s.visits), put("steps", s.steps), put("accesses", s.accesses),
        put("hits", s.hits);
    put("misses", s.misses), put("compulsory_misses", s.compulsory_misses);
    put("collision_misses", s.collision_misses), put("fills", s.fills), put("bypasses", s.bypasses);
    put("evictions", s.evictions), put("split_visits", s.split_visits), put("groups", s.groups);
    put("failed_fills", s.failed_fills), put("ignored_ids", s.ignored_ids);
    put("bytes_filled", s.bytes_filled), put("speculative_fills", s.speculative_fills);
    put("prefetch_hits", s.prefetch_hits), put("wasted_prefetches", s.wasted_prefetches);
    return out;
  }
  std::uint64_t decision_hash() {
    std::uint64_t out = 0;
    checked(hotset_decision_hash(held_, &out));
    return out;
  }

  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] py::object self() { return py::cast(shared_from_this()); }
  /// For the garbage collector: visits the Python objects held here.
  int traverse(visitproc seen, void* arg) {
    return removed_.ptr() == nullptr ? 0 : seen(removed_.ptr(), arg);
  }
  void clear() { removed_ = py::none(); }

 private:
  static hotset_visit empty() noexcept {
    hotset_visit out{};
    out.struct_size = sizeof out;
    return out;
  }
  /// Returns the visit of a plan. A plan that found no slots has overwritten the previous plan's
  /// arrays.
  visit planned(hotset_status code, const hotset_visit& out) {
    if (code == HOTSET_OK) open_ = true;
    if (code == HOTSET_OK || code == HOTSET_NO_VICTIM || code == HOTSET_DOES_NOT_FIT) ++epoch_;
    checked(code);
    return visit(shared_from_this(), out, epoch_);
  }
  /// An exception of the listener does not undo the commit or abort that called it.
  void ended(hotset_status code) {
    if (code == HOTSET_OK) open_ = false;
    checked(code);
  }
  /// Counts steps if they are not given: a new one begins if the layer does not rise.
  [[nodiscard]] std::uint64_t step_of(std::int32_t layer,
                                      const std::optional<step_number>& given) const {
    if (given) return *given;
    return layer <= last_layer_ ? step_ + 1 : step_;
  }
  /// Raises the listener's exception first: it is the cause.
  void checked(hotset_status code) {
    if (raised_) {
      auto why = std::move(*raised_);
      raised_.reset();
      throw py::error_already_set(std::move(why));
    }
    check(code);
  }
  static void tell(void* user, const hotset_removal* of) {
    auto& self = *static_cast<pager*>(user);
    try {
      self.removed_(of->key.layer, of->key.expert, of->slot, of->precision, of->last_reader);
    } catch (py::error_already_set& e) {
      if (!self.raised_) self.raised_.emplace(std::move(e));
    }
  }

  hotset_pager* held_ = nullptr;
  std::int32_t experts_;
  std::size_t top_k_;
  py::object removed_;
  std::optional<py::error_already_set> raised_{};
  std::optional<visit_input> input_{};
  std::int32_t last_layer_ = -1;
  std::uint64_t step_ = 0;
  std::uint64_t epoch_ = 0;  ///< number of the last plan
  bool open_ = false;        ///< a plan was neither committed nor aborted
};

void visit::check_age() const {
  if (of_->epoch() != epoch_)
    refuse("the visit is over: its pager has planned another one, accepted: the last one's");
}
template <class T>
py::array visit::view(const T* data, std::size_t count) const {
  check_age();
  return view_of<T>(data, count, of_->self());
}
py::array visit::fills() const {
  check_age();
  py::array out(py::reinterpret_borrow<py::dtype>(fill_dtype()),
                static_cast<py::ssize_t>(v_.fill_count), v_.fills, of_->self());
  out.attr("flags").attr("writeable") = false;
  return out;
}
void visit::commit() const {
  check_age();
  of_->commit();
}
void visit::abort(const py::object& begun) const {
  check_age();
  of_->abort(begun);
}

std::shared_ptr<pager> make_pager(layers_number layers, experts_number experts, top_k_number top_k,
                                  max_tokens_number max_tokens, number<std::int64_t, "slots"> slots,
                                  number<std::uint64_t, "budget"> budget,
                                  const kept_numbers& numbers, const std::string& scope,
                                  const std::string& split, const std::string& guard,
                                  const std::string& eviction, const std::string& admission,
                                  const std::string& miss, const py::object& removed) {
  hotset_pager_options o{};
  o.layers = layers;
  o.experts = experts;
  o.top_k = top_k;
  o.max_tokens = max_tokens;
  o.slots = slots;
  o.budget_bytes = budget;
  if (!numbers.bytes.empty()) o.expert_bytes = numbers.bytes.data();
  o.expert_bytes_count = numbers.bytes.size();
  if (!numbers.lower.empty()) {
    o.lower_bytes = numbers.lower.data();
    o.lower_precisions = numbers.lower.size() / std::max<std::size_t>(1, numbers.bytes.size());
    if (numbers.slots.size() != 1 + o.lower_precisions)
      refuse("slots: of " + std::to_string(numbers.slots.size()) +
             " precisions, accepted: " + std::to_string(1 + o.lower_precisions));
  }
  if (!numbers.slots.empty()) o.slots_of_precision = numbers.slots.data();
  o.scope = scope_of(scope);
  o.split = choose("split", split, {"by_token", "by_expert", "refuse", "leave_rest"});
  o.guard = choose("guard", guard, {"none", "named", "predicted"});
  return std::make_shared<pager>(o, eviction, admission, miss, removed);
}

class recorder {
 public:
  recorder(layers_number layers, experts_number experts, top_k_number top_k,
           number<std::size_t, "capacity"> capacity, bool weights,
           const std::optional<std::string>& name, const std::optional<std::string>& model)
      : top_k_(static_cast<std::size_t>(std::max(0, top_k.value))) {
    hotset_recorder_options o{};
    o.struct_size = sizeof o;
    o.layers = layers;
    o.experts = experts;
    o.top_k = top_k;
    o.capacity = capacity;
    o.weights = weights ? 1 : 0;
    o.name = name ? c_text("name", *name) : nullptr;
    o.model = model ? c_text("model", *model) : nullptr;
    check(hotset_recorder_create(&o, &held_));
  }
  recorder(const recorder&) = delete;
  recorder& operator=(const recorder&) = delete;
  ~recorder() { hotset_recorder_destroy(held_); }

  void begin_step(number<std::size_t, "tokens"> tokens, const std::string& kind,
                  const std::optional<step_number>& step, const py::object& sequences) {
    rows<std::uint32_t> of;
    if (!sequences.is_none()) of = rows_of<std::uint32_t>(sequences, tokens, "sequences");
    const std::uint64_t now = step ? step->value : next_;
    check(hotset_recorder_begin_step(held_, now, kind_of(kind), tokens, of.data));
    next_ = now + 1;
  }
  void record(layer_number layer, const py::object& experts, const py::object& weights,
              const py::object& rows_given) {
    visit_input in(layer, 0, 0, top_k_, experts);
    in.take_weights(weights, top_k_);
    if (rows_given.is_none()) return check(hotset_recorder_record(held_, &in.view));
    const auto of = rows_of<std::uint32_t>(rows_given, in.view.tokens, "rows");
    check(hotset_recorder_record_rows(held_, &in.view, of.data));
  }
  void end_step() { check(hotset_recorder_end_step(held_)); }
  std::pair<std::size_t, std::uint64_t> tokens() {
    std::size_t held = 0;
    std::uint64_t lost = 0;
    check(hotset_recorder_tokens(held_, &held, &lost));
    return {held, lost};
  }
  void write(const std::string& path) { check(hotset_recorder_write(held_, c_text("path", path))); }

 private:
  hotset_recorder* held_ = nullptr;
  std::size_t top_k_;
  std::uint64_t next_ = 0;
};

class prefetcher {
 public:
  prefetcher(layers_number layers, experts_number experts, top_k_number top_k,
             max_tokens_number max_tokens, const std::string& prefetch,
             const std::string& predictor)
      : experts_(static_cast<std::size_t>(std::max(0, experts.value))),
        top_k_(static_cast<std::size_t>(std::max(0, top_k.value))) {
    hotset_prefetcher_options o{};
    o.struct_size = sizeof o;
    o.layers = layers;
    o.experts = experts;
    o.top_k = top_k;
    o.max_tokens = max_tokens;
    o.prefetch = c_text("prefetch", prefetch);
    o.predictor = c_text("predictor", predictor);
    check(hotset_prefetcher_create(&o, &held_));
    std::size_t most = 0;
    check(hotset_prefetcher_most(held_, &most));
    asked_.resize(most);
  }
  prefetcher(const prefetcher&) = delete;
  prefetcher& operator=(const prefetcher&) = delete;
  ~prefetcher() { hotset_prefetcher_destroy(held_); }

  py::array propose(layer_number layer, const py::object& experts, step_number step,
                    const py::object& weights, const py::object& logits,
                    const py::object& sequences) {
    visit_input in(layer, step, 0, top_k_, experts);
    in.take_weights(weights, top_k_);
    in.take_logits(logits, experts_);
    in.take_sequences(sequences);
    std::size_t count = 0;
    check(hotset_propose(held_, &in.view, asked_.data(), asked_.size(), &count));
    return py::array(py::reinterpret_borrow<py::dtype>(request_dtype()),
                     static_cast<py::ssize_t>(count), asked_.data());
  }

 private:
  hotset_prefetcher* held_ = nullptr;
  std::size_t experts_;
  std::size_t top_k_;
  std::vector<hotset_request> asked_;
};

class curve {
 public:
  curve(layers_number layers, experts_number experts, top_k_number top_k,
        max_tokens_number max_tokens, const std::string& scope)
      : top_k_(static_cast<std::size_t>(std::max(0, top_k.value))) {
    hotset_curve_options o{};
    o.struct_size = sizeof o;
    o.layers = layers;
    o.experts = experts;
    o.top_k = top_k;
    o.max_tokens = max_tokens;
    o.scope = scope_of(scope);
    check(hotset_curve_create(&o, &held_));
  }
  curve(const curve&) = delete;
  curve& operator=(const curve&) = delete;
  ~curve() { hotset_curve_destroy(held_); }

  void observe(layer_number layer, const py::object& experts,
               const std::optional<step_number>& step) {
    const std::uint64_t now = step ? step->value : layer <= last_layer_ ? step_ + 1 : step_;
    const visit_input in(layer, now, 0, top_k_, experts);
    check(hotset_curve_observe(held_, &in.view));
    last_layer_ = layer;
    step_ = now;
  }
  double misses(slots_number slots, layer_number layer) {
    double out = 0;
    check(hotset_curve_misses(held_, layer, slots, &out));
    return out;
  }
  std::size_t most_slots(layer_number layer) {
    std::size_t out = 0;
    check(hotset_curve_most_slots(held_, layer, &out));
    return out;
  }
  py::array table(layer_number layer) {
    const auto most = most_slots(layer);
    py::array_t<double> out(static_cast<py::ssize_t>(most + 1));
    for (std::size_t s = 0; s <= most; ++s)
      out.mutable_at(static_cast<py::ssize_t>(s)) = misses({s}, layer);
    return out;
  }

 private:
  hotset_curve* held_ = nullptr;
  std::size_t top_k_;
  std::int32_t last_layer_ = -1;
  std::uint64_t step_ = 0;
};

struct consumer {
  py::array_t<double> misses;
  std::uint64_t unit_bytes = 0;
  double seconds_per_miss = 0;
  std::uint64_t min_units = 0;
  std::uint64_t max_units = 0;
};
std::pair<std::vector<std::uint64_t>, double> divide(const std::vector<consumer>& given,
                                                     number<std::uint64_t, "total_bytes"> bytes) {
  std::vector<hotset_consumer> consumers;
  for (const auto& c : given) {
    hotset_consumer one{};
    one.misses = c.misses.data();
    one.misses_count = static_cast<std::size_t>(c.misses.size());
    one.unit_bytes = c.unit_bytes;
    one.seconds_per_miss = c.seconds_per_miss;
    one.min_units = c.min_units;
    one.max_units = c.max_units;
    consumers.push_back(one);
  }
  std::vector<std::uint64_t> units(given.size());
  double seconds = 0;
  check(hotset_divide(consumers.data(), consumers.size(), bytes, units.data(), &seconds));
  return {units, seconds};
}

/// From 2.12 on pybind11 reads the sizes of NumPy 2's types correctly; older versions return arrays
/// of structs with wrong strides.
constexpr bool knows_numpy_2 = PYBIND11_VERSION_HEX >= 0x020C0000;
void refuse_unknown_numpy() {
  const auto version = py::module_::import("numpy").attr("__version__").cast<std::string>();
  if (knows_numpy_2 || version.compare(0, 2, "1.") == 0) return;
  throw py::import_error(
      "hotset was built with pybind11 " + std::to_string(PYBIND11_VERSION_MAJOR) + "." +
      std::to_string(PYBIND11_VERSION_MINOR) + ", which does not know NumPy " + version +
      ", accepted: NumPy 1, or a build with pybind11 2.12 or later (pip install does that)");
}

/// Lets the garbage collector free a pager whose listener refers to it.
void collects(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->ht_type.tp_traverse = [](PyObject* self, visitproc seen, void* arg) -> int {
    if (const int stop = seen(reinterpret_cast<PyObject*>(Py_TYPE(self)), arg); stop != 0)
      return stop;
    if (!reinterpret_cast<py::detail::instance*>(self)->simple_holder_constructed) return 0;
    return py::cast<pager*>(py::handle(self))->traverse(seen, arg);
  };
  type->ht_type.tp_clear = [](PyObject* self) {
    if (reinterpret_cast<py::detail::instance*>(self)->simple_holder_constructed)
      py::cast<pager*>(py::handle(self))->clear();
    return 0;
  };
}

}  // namespace

PYBIND11_MODULE(_hotset, m) {
  refuse_unknown_numpy();
  m.attr("_knows_numpy_2") = knows_numpy_2;
  fill_dtype() = fill_type();
  request_dtype() = request_type();
  m.attr("fill") = fill_dtype();
  m.attr("request") = request_dtype();
  m.def("version", &hotset_version);

  py::class_<visit>(
      m, "Visit",
      "What a plan has decided: which experts, where they are, and the copies to make.\n\n"
      "Made by Pager.plan, plan_next, visits, prefetch and plan_warm. Its arrays are views of the "
      "pager's\n"
      "memory: reading them after the pager has planned again raises InvalidArgument.\n\n"
      "experts, slots, services: one entry for each distinct expert, in order of first appearance. "
      "A slot\n"
      "of -1 stays on the host; a service is 0 (hit), 1 (fill) or 2 (host).\n"
      "fills: the copies, as hotset.fill. tokens: of this group. routed: the ids to compute, -1 "
      "for none.\n"
      "group, groups, more: a visit that does not fit comes in groups. expert_wise: a group is a "
      "part of\n"
      "every token's sum.")
      .def_property_readonly("experts", &visit::experts)
      .def_property_readonly("slots", &visit::slots)
      .def_property_readonly("services", &visit::services)
      .def_property_readonly("fills", &visit::fills)
      .def_property_readonly("fill_count", &visit::fill_count)
      .def_property_readonly("tokens", &visit::tokens)
      .def_property_readonly("routed", &visit::routed)
      .def_property_readonly("group", &visit::group)
      .def_property_readonly("groups", &visit::groups)
      .def_property_readonly("more", &visit::more)
      .def_property_readonly("expert_wise", &visit::expert_wise)
      .def("commit", &visit::commit)
      .def("abort", &visit::abort, py::arg("begun") = py::none());

  const auto none = py::none();
  py::class_<kept_numbers>(m, "Numbers", "Sizes and slots that the options of a Pager point at.")
      .def(py::init([](const std::vector<number<std::uint64_t, "expert_bytes">>& bytes,
                       const std::vector<number<std::uint64_t, "lower_bytes">>& lower,
                       const std::vector<number<std::int64_t, "slots">>& slots) {
        return kept_numbers{{bytes.begin(), bytes.end()},
                            {lower.begin(), lower.end()},
                            {slots.begin(), slots.end()}};
      }));
  py::class_<pager, std::shared_ptr<pager>>(m, "Pager", py::custom_type_setup(collects))
      .def(py::init(&make_pager))
      .def("plan", &pager::plan, py::arg("layer"), py::arg("experts"), py::kw_only(),
           py::arg("weights") = none, py::arg("step") = none, py::arg("kind") = "decode",
           py::arg("sequences") = none, py::arg("logits") = none)
      .def("plan_next", &pager::plan_next)
      .def("commit", &pager::commit)
      .def("abort", &pager::abort, py::arg("begun") = none)
      .def("abandon", &pager::abandon)
      .def("row", &pager::row, py::arg("layer"))
      .def("row_version", &pager::row_version, py::arg("layer"))
      .def("locate", &pager::locate, py::arg("layer"), py::arg("expert"))
      .def("precision", &pager::precision, py::arg("slot"))
      .def("pin", &pager::pin, py::arg("slot"))
      .def("unpin", &pager::unpin, py::arg("pin"), py::arg("reader") = 0)
      .def("prefetch", &pager::prefetch, py::arg("layer"), py::arg("step"), py::arg("requests"),
           py::arg("most"))
      .def("expect", &pager::expect, py::arg("layer"), py::arg("step"), py::arg("probabilities"))
      .def("arrived", &pager::arrived, py::arg("slot"), py::arg("generation"))
      .def("cancelled", &pager::cancelled, py::arg("slot"), py::arg("generation"))
      .def("failed", &pager::failed, py::arg("slot"), py::arg("generation"))
      .def("invalidate", &pager::invalidate, py::arg("layer"), py::arg("expert") = -1)
      .def("set_quota", &pager::set_quota, py::arg("layer"), py::arg("slots"))
      .def("quota", &pager::quota, py::arg("layer"))
      .def("residents", &pager::residents)
      .def("plan_warm", &pager::plan_warm, py::arg("keys"))
      .def("stats", &pager::stats)
      .def("decision_hash", &pager::decision_hash)
      .def_property_readonly("step", &pager::step)
      .def_property_readonly("is_open", &pager::is_open);

  py::class_<recorder>(m, "Recorder")
      .def(py::init<layers_number, experts_number, top_k_number, number<std::size_t, "capacity">,
                    bool, const std::optional<std::string>&, const std::optional<std::string>&>(),
           py::arg("layers"), py::arg("experts"), py::arg("top_k"), py::arg("capacity"),
           py::arg("weights") = false, py::arg("name") = none, py::arg("model") = none)
      .def("begin_step", &recorder::begin_step, py::arg("tokens"), py::arg("kind") = "decode",
           py::arg("step") = none, py::arg("sequences") = none)
      .def("record", &recorder::record, py::arg("layer"), py::arg("experts"),
           py::arg("weights") = none, py::arg("rows") = none)
      .def("end_step", &recorder::end_step)
      .def("tokens", &recorder::tokens)
      .def("write", &recorder::write, py::arg("path"));

  py::class_<prefetcher>(
      m, "Prefetcher",
      "Proposes experts to copy ahead, by a predictor and a prefetch policy of the library.\n\n"
      "prefetch, predictor: by name with parameters, as on the command line. Call propose once "
      "for\n"
      "each visit, in order, and give what it returns to Pager.prefetch.\n"
      "Raises InvalidConfig.")
      .def(py::init<layers_number, experts_number, top_k_number, max_tokens_number,
                    const std::string&, const std::string&>(),
           py::arg("layers"), py::arg("experts"), py::arg("top_k"), py::arg("max_tokens") = 1,
           py::arg("prefetch") = "next_layer_top_k", py::arg("predictor") = "similar-steps")
      .def("propose", &prefetcher::propose, py::arg("layer"), py::arg("experts"), py::arg("step"),
           py::arg("weights") = none, py::arg("logits") = none, py::arg("sequences") = none);

  py::class_<curve>(m, "Curve",
                    "Counts what LRU would have missed at every number of slots, exactly, from the "
                    "visits it is shown.\n\n"
                    "scope: \"shared\", one curve for all layers (layer 0), or \"per_layer\".\n"
                    "misses(slots), table(): misses of a step on average, first uses included.")
      .def(py::init<layers_number, experts_number, top_k_number, max_tokens_number,
                    const std::string&>(),
           py::arg("layers"), py::arg("experts"), py::arg("top_k"), py::arg("max_tokens") = 1,
           py::arg("scope") = "shared")
      .def("observe", &curve::observe, py::arg("layer"), py::arg("experts"), py::arg("step") = none)
      .def("misses", &curve::misses, py::arg("slots"), py::arg("layer") = 0)
      .def("most_slots", &curve::most_slots, py::arg("layer") = 0)
      .def("table", &curve::table, py::arg("layer") = 0);

  py::class_<consumer>(
      m, "Consumer",
      "A part of the engine that wants memory, for hotset.divide: a layer's experts, KV blocks, "
      "adapters.\n\n"
      "misses: [n] misses of a step with 0, 1, ... units, never rising, such as Curve.table().\n"
      "unit_bytes: of a slot, block or page. min_units: below it the engine does not run.\n"
      "max_units: 0 for as many as help.")
      .def(py::init([](py::array_t<double, py::array::c_style | py::array::forcecast> misses,
                       number<std::uint64_t, "unit_bytes"> unit_bytes, double seconds_per_miss,
                       number<std::uint64_t, "min_units"> min_units,
                       number<std::uint64_t, "max_units"> max_units) {
             if (misses.ndim() != 1)
               refuse("misses: shape " + shape_text(misses) + ", accepted: [units + 1]");
             return consumer{std::move(misses), unit_bytes, seconds_per_miss, min_units, max_units};
           }),
           py::arg("misses"), py::arg("unit_bytes"), py::arg("seconds_per_miss"),
           py::arg("min_units") = 0, py::arg("max_units") = 0);
  m.def("divide", &divide, py::arg("consumers"), py::arg("total_bytes"));
}
