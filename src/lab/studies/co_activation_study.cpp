// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/co_activation_study.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/planning/budget/right_size.hpp"
#include "lab/errors.hpp"
#include "lab/files/input_error.hpp"

namespace hotset::lab {
namespace {

routing_view view_of(const user_tokens& user, std::size_t token, layer_id layer) {
  routing_view view;
  view.layer = layer;
  view.step = user.rows[token];
  view.experts = user.trace->ids_of(user.rows[token], layer);
  return view;
}

/// The positions of the `count` largest values above 0, ties to the lower one.
template <class Values>
void best_of(const Values& values, std::size_t count, std::vector<expert_id>& out) {
  const auto all = each<expert_id>(values.size());
  out.assign(all.begin(), all.end());
  const auto value = [&](expert_id e) { return values[index_of(e)]; };
  const auto last = out.begin() + static_cast<std::ptrdiff_t>(std::min(count, out.size()));
  std::partial_sort(out.begin(), last, out.end(), [&](expert_id a, expert_id b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  });
  out.erase(std::find_if(out.begin(), last, [&](expert_id e) { return !(value(e) > 0); }),
            out.end());
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): counts what both have
std::uint64_t named(id_view<expert_id> routed, id_view<expert_id> guess) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      guess, [&](expert_id e) { return std::ranges::find(routed, e) != routed.end(); }));
}

/// The K most used experts of each layer.
std::vector<std::vector<expert_id>> popular_of(const co_activation& table, const geometry& shape) {
  const auto uses = table.uses();
  const auto experts = shape.expert_count();
  std::vector<std::vector<expert_id>> out(shape.layer_count());
  for (std::size_t l = 0; l < out.size(); ++l)
    best_of(std::span(uses).subspan(l * experts, experts), shape.ranks(), out[l]);
  return out;
}

bool routes_any(id_view<expert_id> ids) {
  return std::ranges::any_of(ids, [](expert_id e) { return e >= 0; });
}

token_range within(const user_tokens& user, token_range range) {
  return {std::min(range.begin, user.rows.size()), std::min(range.end, user.rows.size())};
}

std::string shape_text(const routing_trace& trace) {
  return fmt::format("{} layers x {} experts, top-{}", trace.layers, trace.experts, trace.top_k);
}

/// Users of one shape that have tokens left to be tested on.
std::vector<user_tokens> long_enough(const study_request& request, study_result& out) {
  std::vector<user_tokens> users;
  const auto& first = *request.users.front().trace;
  for (const auto& user : request.users) {
    if (shape_text(*user.trace) != shape_text(first))
      throw usage_error(fmt::format("{}: {}; accepted: {}, as {}", user.name,
                                    shape_text(*user.trace), shape_text(first),
                                    request.users.front().name));
    if (user.rows.size() > request.sizes.back())
      users.push_back(user);
    else
      out.left_out.push_back(user.name);
  }
  if (users.size() < 2)
    throw usage_error(fmt::format(
        "{} of {} users have more than {} tokens; accepted: 2 or more users, or smaller sizes",
        users.size(), request.users.size(), request.sizes.back()));
  return users;
}

study_score score_of(co_activation& table, const user_tokens& user, const study_request& request) {
  const auto experts = static_cast<std::size_t>(user.trace->experts);
  return {judge(table, user, {request.sizes.back(), SIZE_MAX}),
          support_of(table, experts, request.coverage).cap};
}

/// The tables of all users but one (or of all) in one.
co_activation merged(const std::vector<co_activation>& tables, std::size_t without,
                     const geometry& shape, const co_activation::config& options) {
  co_activation out(shape, options);
  for (std::size_t i = 0; i < tables.size(); ++i)
    if (i != without) require_valid(out.merge(tables[i]));
  return out;
}

}  // namespace

user_tokens user_of(const routing_trace& trace) {
  user_tokens out{trace.name, &trace, {}};
  out.rows.resize(trace.tokens());
  std::iota(out.rows.begin(), out.rows.end(), 0U);
  return out;
}

std::vector<user_tokens> users_by_sequence(const routing_trace& trace) {
  std::vector<user_tokens> out;
  std::unordered_map<std::uint32_t, std::size_t> index;
  for (std::uint32_t row = 0; row < trace.tokens(); ++row) {
    const auto sequence = trace.sequence[row];
    const auto [at, is_new] = index.try_emplace(sequence, out.size());
    if (is_new) out.push_back({fmt::format("{}/{}", trace.name, sequence), &trace, {}});
    out[at->second].rows.push_back(row);
  }
  return out;
}

/// A recorded token that the table has no room for.
void require_taken(status taken) {
  if (taken != status::ok)
    throw trace_error(
        fmt::format("{}, accepted: tokens of the table's layers and K", describe(taken)));
}

void learn(co_activation& table, const user_tokens& user, token_range range) {
  const auto [begin, end] = within(user, range);
  for (auto t = begin; t < end; ++t)
    for (const auto l : each<layer_id>(user.trace->layers))
      require_taken(table.observe(view_of(user, t, l)));
}

next_layer_quality judge(co_activation& table, const user_tokens& user, token_range range) {
  const auto shape = user.trace->shape();
  const auto experts = shape.expert_count();
  const auto top_k = shape.ranks();
  const auto popular = popular_of(table, shape);
  const auto [begin, end] = within(user, range);
  next_layer_quality out;
  std::vector<expert_id> guess;
  for (auto t = begin; t < end; ++t) {
    ++out.tokens;
    for (layer_id l{}; l + 1 < shape.layers; ++l) {
      const auto view = view_of(user, t, l);
      require_taken(table.follow(view));
      const auto routed = user.trace->ids_of(user.rows[t], l + 1);
      if (!routes_any(routed)) continue;
      best_of(table.predict(view).probabilities.first(experts), top_k, guess);
      out.places += top_k;
      out.hits += named(routed, guess);
      out.popular_hits += named(routed, popular[index_of(l) + 1]);
    }
  }
  return out;
}

table_support support_of(const co_activation& table, std::size_t experts, double coverage) {
  const auto uses = table.uses();
  table_support out{support_cap(uses, experts, coverage), 0};
  std::size_t total = 0;
  std::size_t layers = 0;
  for (std::size_t first = 0; first < uses.size(); first += experts) {
    const auto size = support_size(std::span(uses).subspan(first, experts), coverage);
    total += size;
    layers += size > 0 ? 1U : 0U;
  }
  if (layers > 0) out.mean = static_cast<double>(total) / static_cast<double>(layers);
  return out;
}

validation study_request::validate() const {
  if (users.empty()) return error{"no user, accepted: 2 or more"};
  if (sizes.empty()) return error{"no size, accepted: tokens of training, such as 64,256"};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0 || (i > 0 && sizes[i] <= sizes[i - 1]))
      return error{
          fmt::format("size {}, accepted: 1 or more, each larger than the one before", sizes[i])};
  if (!(coverage > 0 && coverage <= 1))
    return error{fmt::format("coverage = {}, accepted: more than 0, at most 1", coverage)};
  return table.validate();
}

study_result compare_personal_and_population(const study_request& request) {
  if (const auto bad = request.validate()) throw usage_error(bad->message);
  study_result out;
  out.sizes = request.sizes;
  out.table = request.table;
  out.coverage = request.coverage;
  const auto users = long_enough(request, out);
  const auto shape = users.front().trace->shape();
  out.layers = shape.layers;
  out.experts = shape.experts;
  out.top_k = shape.top_k;
  std::vector<co_activation> personal;
  for (const auto& user : users) {
    out.users.push_back({user.name, user.rows.size() - request.sizes.back(), {}});
    personal.emplace_back(shape, request.table);
  }
  for (std::uint64_t trained = 0; const auto size : request.sizes) {
    for (std::size_t u = 0; u < users.size(); ++u) learn(personal[u], users[u], {trained, size});
    trained = size;
    auto population = merged(personal, users.size(), shape, request.table);
    for (std::size_t u = 0; u < users.size(); ++u) {
      auto others = merged(personal, u, shape, request.table);
      out.users[u].cells.push_back({score_of(personal[u], users[u], request),
                                    score_of(population, users[u], request),
                                    score_of(others, users[u], request)});
    }
  }
  return out;
}

}  // namespace hotset::lab
