// SPDX-License-Identifier: Apache-2.0
#include "expert_provider.hpp"

#include "model.hpp"

namespace tiny_moe {

void expert_provider::on_step(const step_inputs& /*step*/) {}

void expert_provider::on_sequence_end(std::uint32_t /*sequence*/) noexcept {}

void resident_experts::run(const visit_inputs& visit, visit_compute& compute) {
  compute.all([&](std::int32_t expert) {
    return model_->expert(index_of(visit.layer), static_cast<std::size_t>(expert));
  });
}

}  // namespace tiny_moe
