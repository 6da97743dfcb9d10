// SPDX-License-Identifier: Apache-2.0
// Must not compile: the backend has no wait, so its copies cannot be awaited.
#include "hotset/transfer/transfer_backend.hpp"

struct mine {
  using stream_type = int;
  hotset::submission submit(std::span<const hotset::fill>, int&, hotset::urgency) noexcept;
  void promote(hotset::ticket) noexcept;
  bool cancel(hotset::ticket) noexcept;
  hotset::status fence(int&, hotset::ticket) noexcept;
  hotset::ticket record(int&) noexcept;
  hotset::transfer_state poll(hotset::ticket) noexcept;
};
static_assert(hotset::is_transfer_backend<mine>());
