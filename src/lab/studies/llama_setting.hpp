// SPDX-License-Identifier: Apache-2.0
#pragma once
/// llama.cpp's command: whole layers on each device, experts of the first ones on the host.

#include <string>

#include "lab/studies/plan.hpp"

namespace hotset::lab {

/// Adds the faster of two commands to plan.settings: experts on the host computed there, or copied through an LRU
/// cache on the device. Returns why llama.cpp cannot serve the model; empty: it can.
[[nodiscard]] std::string add_llama(memory_plan& plan);

}  // namespace hotset::lab
