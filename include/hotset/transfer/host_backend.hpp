// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into host slots on a thread of its own, demand before speculation, each in order of submission.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/transfer/copy_thread.hpp"

namespace hotset::inline v0 {

/// As fast as the memory is. Large experts give way to demand at every MiB.
/// A full queue makes demand wait and refuses speculation (`accepted` tells), as copy_thread says.
/// Threads: safe. No allocation after construction.
template <expert_origin Source>
class host_backend : public copy_thread<Source, unpaced> {
  struct checked {
    explicit checked() = default;
  };

 public:
  struct config {
    std::size_t most_fills = 4096;  ///< waiting at one time

    [[nodiscard]] validation validate() const {
      if (most_fills == 0) return error{"most_fills = 0, accepted: 1 or more"};
      return std::nullopt;
    }
  };

  /// `source` and `bank` outlive the backend. Errors: those of config.
  static result<std::unique_ptr<host_backend>> create(const Source& source,
                                                      const host_slot_bank& bank,
                                                      const config& setup = {}) {
    if (auto bad = setup.validate()) return *std::move(bad);
    return std::make_unique<host_backend>(source, bank, setup, checked{});
  }
#if HOTSET_EXCEPTIONS
  /// `source` and `bank` outlive the backend. Errors: throws invalid_config.
  host_backend(const Source& source, const host_slot_bank& bank, const config& setup = {})
      : host_backend(source, bank, setup, (require_valid(setup.validate()), checked{})) {}
#endif
  /// For create.
  host_backend(const Source& source, const host_slot_bank& bank, const config& setup, checked)
      : copy_thread<Source, unpaced>(source, bank, setup.most_fills, unpaced{}) {}
};

}  // namespace hotset::inline v0
