// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Marks a function that a CUDA kernel shares with the host, so that its logic is tested without a device.

#include "hotset/version.hpp"

#if defined(__CUDACC__)
#define HOTSET_HOST_DEVICE __host__ __device__
#else
#define HOTSET_HOST_DEVICE
#endif
