// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into host slots on threads of its own, demand before speculation, each in order of submission.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/transfer/copy_thread.hpp"

namespace hotset {

/// As fast as the memory is. Large experts give way to demand at every MiB.
/// A full queue makes demand wait and refuses speculation (`accepted` tells), as copy_thread says.
/// Threads: safe. No allocation after construction.
template <expert_origin Source, host_destination Bank = const host_slot_bank>
class host_backend : public copy_thread<Source, unpaced, Bank> {
  struct checked {
    explicit checked() = default;
  };

 public:
  struct config {
    std::size_t most_fills = 4096;  ///< waiting at one time
    /// More than one for a source that waits and whose reads are safe beside each other: files.
    std::size_t threads = 1;

    static constexpr std::size_t most_threads = 256;

    [[nodiscard]] validation validate() const {
      if (most_fills == 0) return error{"most_fills = 0, accepted: 1 or more"};
      if (threads == 0 || threads > most_threads)
        return error{"threads = " + std::to_string(threads) + ", accepted: 1.." +
                     std::to_string(most_threads)};
      return std::nullopt;
    }
  };

  /// `source` and `bank` outlive the backend. Errors: those of config; the system refuses a thread.
  static result<std::unique_ptr<host_backend>> create(const Source& source, Bank& bank,
                                                      const config& setup = {}) {
    if (auto bad = setup.validate()) return *std::move(bad);
    auto made = std::make_unique<host_backend>(source, bank, setup, checked{});
    if (auto refused = made->start(setup.threads)) return *std::move(refused);
    return made;
  }
#if HOTSET_EXCEPTIONS
  /// As `create`. Errors: throws invalid_config.
  host_backend(const Source& source, Bank& bank, const config& setup = {})
      : host_backend(source, bank, setup, (require_valid(setup.validate()), checked{})) {
    require_valid(this->start(setup.threads));
  }
#endif
  /// For create, which starts the threads.
  host_backend(const Source& source, Bank& bank, const config& setup, checked)
      : copy_thread<Source, unpaced, Bank>(source, bank, setup.most_fills, unpaced{}) {}
};

}  // namespace hotset
