// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/learn_history.hpp"

#include "hotset/core/error.hpp"
#include "hotset/predict/history/next_use_values.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"

namespace hotset::lab {

saved_history learn_history(const routing_trace& trace, std::int32_t rows, std::uint64_t model) {
  next_use_values::config setup;
  setup.history = routing_history::config{.rows = rows};
  if (const auto bad = setup.validate()) throw usage_error(bad->message);
  const auto visits = visit_sequence::create(trace);
  if (!visits) throw trace_error(visits.error().message);
  next_use_values learned(visits->shape(), setup);
  for (std::size_t i = 0; i < visits->size(); ++i) {
    learned.stage((*visits)[i]);
    learned.keep();
  }
  return learned.save(visits->shape(), model);
}

}  // namespace hotset::lab
