// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Co-activation tables of users: learnt from traces, judged on tokens that they have not seen, compared by training size.
/// Source: WiSP 4, 5.4, Appendix C and G.1 (Figure 4).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/predict/co_activation.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// Of JSON text.
inline constexpr std::string_view coactivation_schema = "hotset.coactivation/1";

/// The tokens of one user in order. The trace must outlive it.
struct user_tokens {
  std::string name;
  const routing_trace* trace = nullptr;
  std::vector<std::uint32_t> rows{};  ///< of the trace
};
/// All tokens of a trace are one user's.
[[nodiscard]] user_tokens user_of(const routing_trace& trace);
/// Each sequence of a trace is a user, in the order in which they begin; named "<trace>/<sequence>".
[[nodiscard]] std::vector<user_tokens> users_by_sequence(const routing_trace& trace);

/// Tokens of a user, by position; `end` may lie past the last one.
struct token_range {
  std::size_t begin = 0;
  std::size_t end = SIZE_MAX;
};

/// Takes in the tokens one by one. Pre: the table was made for the trace's shape.
void learn(co_activation& table, const user_tokens& user, token_range range = {});

/// How well the K experts with the highest scores name the K that the next layer routes. An expert without a score is
/// not named, and the K places count all the same: a table that knows nothing has a precision of 0.
struct next_layer_quality {
  std::uint64_t tokens = 0;
  std::uint64_t places = 0;  ///< K for each token and each layer but the first
  std::uint64_t hits = 0;    ///< of the table
  /// Of the layer's K most used experts, by the same table's counts.
  std::uint64_t popular_hits = 0;

  [[nodiscard]] double precision() const noexcept { return share(hits); }
  [[nodiscard]] double popular_precision() const noexcept { return share(popular_hits); }

 private:
  [[nodiscard]] double share(std::uint64_t part) const noexcept {
    return places == 0 ? 0 : static_cast<double>(part) / static_cast<double>(places);
  }
};
/// The table learns nothing from it. Pre: as learn.
[[nodiscard]] next_layer_quality judge(co_activation& table, const user_tokens& user,
                                       token_range range = {});

/// The residency that a table's uses ask for. Units: experts of a layer.
struct table_support {
  std::size_t cap = 0;  ///< of the layer that needs most: support_cap
  double mean = 0;      ///< over the layers that were used
};
/// The residency that covers so much of the uses, by layer.
[[nodiscard]] table_support support_of(const co_activation& table, std::size_t experts,
                                       double coverage);

/// Users, sizes of training, and the tables that are compared.
struct study_request {
  std::vector<user_tokens> users{};
  std::vector<std::uint64_t> sizes{};  ///< tokens of training of each user, ascending
  co_activation::config table{};
  double coverage = 0.95;  ///< of the caps

  [[nodiscard]] validation validate() const;
};
/// Of one table on one user's held-out tokens.
struct study_score {
  next_layer_quality quality{};
  std::size_t cap = 0;
};
/// One user at one size. A table is trained on the first n tokens of: this user; every user; every other user.
struct study_cell {
  study_score personal{}, population{}, others{};
};
/// The cells of one user.
struct study_user {
  std::string name;
  std::uint64_t tested = 0;         ///< tokens, all those after the largest size
  std::vector<study_cell> cells{};  ///< by size
};
/// All users and sizes.
struct study_result {
  std::vector<std::uint64_t> sizes{};
  std::vector<study_user> users{};
  std::vector<std::string> left_out{};  ///< users without a token after the largest size
  std::int32_t layers = 0, experts = 0, top_k = 0;
  co_activation::config table{};
  double coverage = 0;
};

/// Personal tables against the population's, on the same held-out tokens of each user.
/// Errors: usage_error if the traces are of different shapes, or fewer than two users are long enough.
[[nodiscard]] study_result compare_personal_and_population(const study_request& request);

}  // namespace hotset::lab
