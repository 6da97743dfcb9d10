// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/reference_decode.hpp"

#include <algorithm>

#include "cuda_decode/model/first_token.hpp"

namespace cuda_decode {
namespace {

// out = the expert applied to `in`. The expert's tensors serve as a bank of one slot.
void run_expert(const model_shape& shape, std::span<const hotset::tensor_bytes> tensors,
                const std::vector<float>& in, std::vector<float>& inner, float* out) {
  const hotset::expert_id id{};
  const hotset::slot_id row{};
  std::uint32_t skipped = 0;
  expert_arguments a;
  a.form = shape.form;
  for (std::size_t t = 0; t < tensors.size(); ++t) a.bank.base[t] = tensors[t].data();
  a.ids = &id;
  a.row = &row;
  a.experts = a.places = a.top_k = 1;
  a.in = in.data();
  a.inner = inner.data();
  a.out = out;
  a.skipped = &skipped;
  on_host::gate_up(a);
  on_host::down(a);
}

}  // namespace

std::vector<std::vector<float>> reference_decode(const model_shape& shape,
                                                 const hotset::memory_expert_source& source,
                                                 const decode_routing& routing, std::size_t steps) {
  const auto size = shape.form.hidden;
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  std::vector<float> carried(size);
  write_first_token(carried);
  std::vector<float> hidden(size);
  std::vector<float> normed(size);
  std::vector<float> inner(shape.form.inner);
  std::vector<float> out(top_k * size);
  std::vector<std::vector<float>> results;
  for (std::size_t s = 0; s < steps; ++s) {
    on_host::normalize({carried.data(), hidden.data(), size});
    for (const auto l : hotset::each<hotset::layer_id>(shape.layers)) {
      on_host::normalize({hidden.data(), normed.data(), size});
      const auto ids = routing.ids(s, l);
      for (std::size_t k = 0; k < top_k; ++k) {
        std::fill_n(out.data() + k * size, size, 0.0F);
        if (ids[k] >= 0)
          run_expert(shape, source.tensors({l, ids[k]}, hotset::precision_id{0}), normed, inner,
                     out.data() + k * size);
      }
      on_host::combine({.weights = routing.weights(s).data() + index_of(l) * top_k,
                        .out = out.data(),
                        .hidden = hidden.data(),
                        .tokens = 1,
                        .top_k = static_cast<std::uint32_t>(top_k),
                        .size = size});
    }
    carried = hidden;
    results.push_back(hidden);
  }
  return results;
}

}  // namespace cuda_decode
