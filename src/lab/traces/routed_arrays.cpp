// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/routed_arrays.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/router_scores.hpp"
#include "hotset/predict/layer_scores.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/traces/trace_rows.hpp"

namespace hotset::lab {
namespace {

constexpr std::array<std::string_view, 4> id_names = {"routed_experts", "experts", "topk_ids",
                                                      "ids"};
constexpr std::array<std::string_view, 2> logit_names = {"logits", "router_logits"};
constexpr std::string_view accepted_ids = "integers [tokens, layers, top_k]";
constexpr std::string_view accepted_logits = "real numbers [tokens, layers, experts]";
constexpr std::size_t widest = most_experts;

using id_list = std::vector<std::int64_t>;

bool are_whole(const npy_array& array) {
  const auto are = [](const npy_array& some) {
    return std::ranges::all_of(floats_of(some), [](float x) {
      return std::isnan(x) || x == std::floor(x);  // pandas's absent numbers are NaN
    });
  };
  auto beginning = array;  // a few numbers decide for most arrays, without a copy of all
  beginning.shape = {std::min<std::size_t>(array.size(), 64)};
  beginning.bytes = array.bytes.substr(0, beginning.shape.front() * array.item);
  return are(beginning) && are(array);
}
/// Whether rows are a map: as ids, a row of 3 or more zeros and ones would repeat an expert.
bool are_a_map(const id_list& ids, std::size_t width) {
  return width > 2 && std::ranges::all_of(ids, [](auto n) { return n == 0 || n == 1; }) &&
         std::ranges::find(ids, 1) != ids.end();
}

/// Routed experts of each row of a map, by ascending id; rows with fewer than the fullest one end in -1.
id_list ids_of_map(const id_list& map, std::size_t width, std::size_t& top_k) {
  top_k = 0;
  for (std::size_t at = 0; at < map.size(); at += width) {
    const auto routed = std::ranges::count(std::span(map).subspan(at, width), 1);
    top_k = std::max(top_k, static_cast<std::size_t>(routed));
  }
  id_list ids(map.size() / width * top_k, -1);
  for (std::size_t at = 0; at < map.size(); at += width) {
    auto next = at / width * top_k;
    for (std::size_t e = 0; e < width; ++e)
      if (map[at + e] == 1) ids[next++] = static_cast<std::int64_t>(e);
  }
  return ids;
}

/// Orders "req2" before "req10".
bool before(const npy_array& a, const npy_array& b) {
  const auto split = [](std::string_view name) {
    // 0 without digits at the end.
    const auto digits_begin = name.find_last_not_of("0123456789") + 1;
    auto digits = name.substr(digits_begin);
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    return std::tuple(name.substr(0, digits_begin), digits.size(), digits);
  };
  return split(a.name) < split(b.name);
}

class array_reader {
 public:
  array_reader(const std::vector<npy_array>& arrays, const std::string& file,
               const open_trace_options& options)
      : arrays_(arrays), file_(file), options_(options) {}

  routing_trace read() {
    trace_.name = trace_name(file_);
    trace_.source = "NumPy arrays";
    const auto* const ids = one_of(id_names);
    const auto* const logits = one_of(logit_names);
    if (ids != nullptr) {
      add_request(*ids);
      if (const auto* const given = find("weights")) add_weights(*given, *ids);
    } else if (logits != nullptr) {
      choose(*logits);
    } else if (arrays_.size() == 1 && !arrays_.front().is_integer()) {
      // Real ids come from pandas or JSON: a router's logits are never all whole numbers.
      if (are_whole(arrays_.front()))
        refuse(arrays_.front(), "holds whole numbers stored as real ones",
               "ids as integers (astype(numpy.int32)), or router logits");
      choose(arrays_.front());
    } else {
      add_requests();
    }
    note_guesses();
    if (ids != nullptr || logits != nullptr) {
      if (const auto* const given = find("sequences")) trace_.sequence = of_tokens(*given);
      if (const auto* const given = find("steps")) trace_.step = of_tokens(*given);
    }
    for (std::size_t t = 1; t < trace_.tokens(); ++t)
      if (trace_.step[t - 1] == trace_.step[t] && trace_.sequence[t - 1] == trace_.sequence[t])
        trace_.kind[t - 1] = trace_.kind[t] = request_class::prefill;
    if (const auto bad = trace_.validate()) refuse_input(file_, "", bad->message, "");
    return std::move(trace_);
  }

 private:
  [[nodiscard]] const npy_array* find(std::string_view name) const {
    const auto at = std::ranges::find(arrays_, name, &npy_array::name);
    if (std::ranges::count(arrays_, name, &npy_array::name) > 1)
      refuse_input(file_, fmt::format("array '{}'", name), "is there twice", "each name once");
    return at == arrays_.end() ? nullptr : &*at;
  }
  [[nodiscard]] const npy_array* one_of(std::span<const std::string_view> names) const {
    const npy_array* found = nullptr;
    for (const auto name : names) {
      const auto* const held = find(name);
      if (held != nullptr && found != nullptr)
        refuse_input(file_, "", fmt::format("arrays '{}' and '{}'", found->name, held->name),
                     "one of them");
      if (held != nullptr) found = held;
    }
    return found;
  }
  [[noreturn]] void refuse(const npy_array& array, std::string_view found,
                           std::string_view accepted) const {
    refuse_input(file_, fmt::format("'{}'", array.name), found, accepted);
  }
  [[noreturn]] void refuse(const npy_array& array, std::string_view accepted) const {
    refuse(array, array.description(), accepted);
  }
  template <class... Parts>
  void note(fmt::format_string<Parts...> text, Parts&&... parts) const {
    add_note(options_.notes, fmt::format(text, std::forward<Parts>(parts)...));
  }

  /// Axes: tokens, layers, and the values of a token in a layer.
  void check_shape(const npy_array& array, std::string_view accepted) const {
    if (array.shape.size() != 3 || array.size() == 0 || array.shape[1] > std::size_t{most_layers})
      refuse(array, accepted);
  }
  /// Whether a layer may have this number of experts, as far as it is known.
  [[nodiscard]] bool may_be_experts(std::size_t extent) const {
    return extent <= widest &&
           (options_.experts <= 0 || extent == static_cast<std::size_t>(options_.experts));
  }

  void add_request(const npy_array& array) {
    check_shape(array, accepted_ids);
    if (!array.is_integer()) refuse(array, accepted_ids);
    auto ids = integers_of(array);
    auto wide = array.shape[2];
    if (are_a_map(ids, wide)) {
      if (!may_be_experts(wide))
        refuse(array, fmt::format("a map of {} experts", options_.experts));
      if (find("weights") != nullptr)
        refuse(array, "ids where weights stand beside them: a map has no ranks");
      mapped_experts_ = static_cast<std::int32_t>(wide);
      ids = ids_of_map(ids, array.shape[2], wide);
    }
    if (wide > std::size_t{most_ranks}) refuse(array, accepted_ids);
    const auto layers = static_cast<std::int32_t>(array.shape[1]);
    const auto ranks = static_cast<std::int32_t>(wide);
    if (options_.top_k > 0 && ranks != options_.top_k)
      refuse(array, fmt::format("{} experts of a token in a layer", ranks),
             fmt::format("as many as the top_k of {} (--top-k)", options_.top_k));
    const bool first = trace_.ids.empty();
    if (!first && (layers != trace_.layers || ranks != trace_.top_k))
      refuse(array,
             fmt::format("requests of one model: [tokens, {}, {}]", trace_.layers, trace_.top_k));
    trace_.layers = layers;
    trace_.top_k = ranks;
    add_ids(array, std::move(ids));
    add_tokens(array.shape[0], first ? 0 : trace_.sequence.back() + 1);
  }

  void add_ids(const npy_array& array, id_list ids) {
    const auto given = options_.experts > 0 ? options_.experts : mapped_experts_;
    const auto most = given > 0 ? given : most_experts;
    // The highest value of an unsigned type means absent, unless it is an expert's id.
    const auto filler = array.kind == 'u' && array.item < 8
                            ? (std::int64_t{1} << (8 * array.item)) - 1
                            : std::int64_t{-1};
    for (auto& id : ids) {
      if (id == filler && array.kind == 'u' && array.item == 1 && given == 0)
        refuse(array, fmt::format("an expert {}, which may stand for none", id),
               "such arrays with the number of experts of a layer (--experts)");
      if (id < 0 || (id == filler && (given == 0 || id >= given))) id = -1;
    }
    const auto wide = static_cast<std::size_t>(trace_.top_k);
    std::int64_t highest = -1;
    for (auto row = std::span(ids); !row.empty(); row = row.subspan(wide)) {
      const bool filled = names_twice(row.first(wide));
      for (const auto id : row.first(wide)) {
        if (!filled && id >= most)
          refuse(array, fmt::format("an expert {}", id),
                 fmt::format("0..{}, or below 0 for none", most - 1));
        // Numbers of filler, such as that of all experts, count no experts.
        trace_.ids.push_back(static_cast<expert_id>(filled && id >= 0 ? 0 : id));
        if (!filled) highest = std::max(highest, id);
      }
    }
    const auto seen = std::max(static_cast<std::int32_t>(highest + 1), trace_.top_k);
    trace_.experts = given > 0 ? given : std::max(trace_.experts, seen);
  }

  void note_guesses() const {
    if (mapped_experts_ > 0)
      note("zeros and ones: read as a map of the routed experts, top-{} of {}", trace_.top_k,
           trace_.experts);
    else if (options_.experts == 0 && trace_.logits.empty())
      note_inferred_experts(options_.notes, trace_.experts);
    if (trace_.layers > 1 && static_cast<std::size_t>(trace_.layers) >= trace_.tokens())
      note("{} layers and {} tokens: transposed? Arrays are [tokens, layers, top_k]", trace_.layers,
           trace_.tokens());
  }

  void add_tokens(std::size_t count, std::uint32_t sequence) {
    constexpr auto most = std::size_t{std::numeric_limits<std::uint32_t>::max()} - 1;
    const auto before = trace_.tokens();
    if (count >= most - before)
      refuse_input(file_, "", fmt::format("{} tokens", before + count), "fewer than 2^32 - 1");
    trace_.step.resize(before + count);
    std::iota(trace_.step.begin() + static_cast<std::ptrdiff_t>(before), trace_.step.end(),
              static_cast<std::uint32_t>(before));
    trace_.sequence.resize(before + count, sequence);
    trace_.kind.resize(before + count, request_class::decode);
  }

  void add_requests() {
    std::vector<npy_array> requests;
    std::string held;
    for (const auto& array : arrays_) {
      held += fmt::format("{}'{}': {}", held.empty() ? "" : ", ", array.name, array.description());
      if (array.is_integer() && array.shape.size() == 3) requests.push_back(array);
    }
    const auto empty =
        std::erase_if(requests, [](const npy_array& array) { return array.shape[0] == 0; });
    if (requests.empty()) refuse_input(file_, "", held.empty() ? "no arrays" : held, accepted_ids);
    if (empty > 0) note("{} requests without tokens: left out", empty);
    std::ranges::sort(requests, before);
    for (const auto& request : requests) add_request(request);
  }

  void add_weights(const npy_array& array, const npy_array& ids) {
    if (array.shape != ids.shape) refuse(array, "the shape of '" + ids.name + "'");
    trace_.weights = floats_of(array);
    for (std::size_t i = 0; i < trace_.ids.size(); ++i)
      if (trace_.ids[i] == no_expert) trace_.weights[i] = 0;
  }

  void choose(const npy_array& array) {
    check_shape(array, accepted_logits);
    const auto experts = array.shape[2];
    if (array.is_integer() || !may_be_experts(experts))
      refuse(array, options_.experts > 0
                        ? fmt::format("real numbers of {} experts", options_.experts)
                        : std::string(accepted_logits));
    if (options_.top_k == 0)
      refuse(array, array.description() + ", which is router logits, and no top_k is given",
             fmt::format("--top-k 1..{}; or ids: {}", experts, accepted_ids));
    if (options_.top_k < 1 || static_cast<std::size_t>(options_.top_k) > experts)
      refuse(array, fmt::format("logits with a top_k of {}", options_.top_k),
             fmt::format("1..{} (--top-k)", experts));
    trace_.layers = static_cast<std::int32_t>(array.shape[1]);
    trace_.experts = static_cast<std::int32_t>(experts);
    trace_.top_k = options_.top_k;
    add_tokens(array.shape[0], 0);
    trace_.logits = floats_of(array);
    select();
  }

  void select() {
    if (const auto bad = trace_.shape().validate()) refuse_input(file_, "", bad->message, "");
    const auto rows = trace_.tokens() * static_cast<std::size_t>(trace_.layers);
    const auto wide = static_cast<std::size_t>(trace_.experts);
    const auto chosen = static_cast<std::size_t>(trace_.top_k);
    trace_.ids.resize(rows * chosen);
    trace_.weights.resize(rows * chosen);
    std::vector<float> scores(wide);
    std::vector<detail::scored_expert> best(wide);
    for (std::size_t r = 0; r < rows; ++r) {
      softmax(std::span(trace_.logits).subspan(r * wide, wide), scores);
      for (std::size_t e = 0; e < wide; ++e) best[e] = detail::make_scored(scores[e], e);
      detail::sort_best(best, chosen);
      const auto weights = std::span(trace_.weights).subspan(r * chosen, chosen);
      for (std::size_t k = 0; k < chosen; ++k) {
        trace_.ids[r * chosen + k] = detail::expert_of(best[k]);
        weights[k] = scores[index_of(detail::expert_of(best[k]))];
      }
      divide_by_sum(weights);
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> of_tokens(const npy_array& array) const {
    if (!array.is_integer() || array.shape != std::vector{trace_.tokens()})
      refuse(array, fmt::format("integers [{}], one for each token", trace_.tokens()));
    const auto values = integers_of(array);
    for (const auto value : values)
      if (value < 0 || value > std::numeric_limits<std::uint32_t>::max())
        refuse(array, fmt::format("a {}", value), "0..2^32 - 1");
    return {values.begin(), values.end()};
  }

  const std::vector<npy_array>& arrays_;
  const std::string& file_;
  open_trace_options options_;
  std::int32_t mapped_experts_ = 0;  ///< number of experts of a map; else 0
  routing_trace trace_;
};

}  // namespace

routing_trace trace_of_arrays(const std::vector<npy_array>& arrays, const std::string& file,
                              const open_trace_options& options) {
  return array_reader(arrays, file, options).read();
}

routing_trace read_routed_arrays(const std::filesystem::path& path,
                                 const open_trace_options& options) {
  const auto input = read_input(path);
  std::vector<npy_array> arrays;
  arrays.reserve(input.size());
  for (const auto& entry : input)
    arrays.push_back(parse_npy(
        entry.text, input.size() == 1 ? path.string() : path.string() + "/" + entry.name));
  return trace_of_arrays(arrays, path.string(), options);
}

}  // namespace hotset::lab
