// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results of finished runs, kept in files so that an interrupted sweep can go on.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lab/replay/sweep.hpp"

namespace hotset::lab {

/// A folder with one file for each run, named by run_result::key. Threads: any, in any number of
/// processes: a file written twice has the same bytes.
class finished_runs {
 public:
  /// Creates the folder. `complain`: called with a line for each damaged file.
  /// Errors: usage_error if the folder cannot be made.
  finished_runs(std::filesystem::path folder, std::function<void(const std::string&)> complain);

  /// Returns the kept result. Nothing: there is none, or its file is damaged.
  [[nodiscard]] std::optional<run_result> find(const std::string& key) const;
  /// Keeps a result; its file appears complete or not at all. Errors: std::runtime_error if it cannot be written.
  /// Pre: the run was replayed by a sweep and has a key.
  void keep(const run_result& run) const;

 private:
  [[nodiscard]] std::filesystem::path file_of(const std::string& key) const;

  std::filesystem::path folder_;
  std::function<void(const std::string&)> complain_;
};

}  // namespace hotset::lab
