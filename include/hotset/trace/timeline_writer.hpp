// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes a timeline as Chrome trace events (JSON), which Perfetto (ui.perfetto.dev) shows.
///
/// The document is an array with one event per line, and a line is written whole. Perfetto also reads an array without
/// its end, so a file that a crash cut off between two lines still opens.

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "hotset/version.hpp"

namespace hotset {

/// Units: times and durations in nanoseconds. Names and arguments must not need escapes in JSON.
class timeline_writer {
 public:
  /// Pre: `out` outlives the writer.
  timeline_writer(std::ostream& out, std::string_view process) : out_(&out) {
    out << R"([{"name":"process_name","ph":"M","pid":1,"args":{"name":")" << process << "\"}}";
  }

  /// Names a track. Perfetto shows tracks in the order of their ids.
  void track(int id, std::string_view name) {
    begin("thread_name", "M", id) << R"(,"args":{"name":")" << name << "\"}}";
    begin("thread_sort_index", "M", id) << R"(,"args":{"sort_index":)" << id << "}}";
  }
  /// `args`: members of a JSON object, such as `"slot":3,"bytes":10`, or empty.
  void span(int track, std::string_view name, std::uint64_t from, std::uint64_t to,
            std::string_view args = {}) {
    auto& out = begin(name, "X", track);
    out << R"(,"ts":)" << microseconds(from) << R"(,"dur":)" << microseconds(to - from);
    if (!args.empty()) out << R"(,"args":{)" << args << '}';
    out << '}';
  }
  /// An arrow from the span of one track that covers `from` to the span of the other that covers `to`. Each arrow has
  /// its own `id`.
  void arrow(std::uint64_t id, int from_track, std::uint64_t from, int to_track, std::uint64_t to) {
    begin("copy", "s", from_track)
        << R"(,"cat":"copy","id":)" << id << R"(,"ts":)" << microseconds(from) << '}';
    begin("copy", "f", to_track) << R"(,"cat":"copy","bp":"e","id":)" << id << R"(,"ts":)"
                                 << microseconds(to) << '}';
  }
  /// Ends the document; call nothing afterwards.
  void finish() { *out_ << "\n]\n"; }

 private:
  std::ostream& begin(std::string_view name, std::string_view phase, int track) {
    return *out_ << ",\n"
                 << R"({"name":")" << name << R"(","ph":")" << phase << R"(","pid":1,"tid":)"
                 << track;
  }
  /// Formats nanoseconds as microseconds with three decimals, exactly.
  static std::string microseconds(std::uint64_t time) {
    const auto rest = std::to_string(1000 + time % 1000);
    return std::to_string(time / 1000) + '.' + rest.substr(1);
  }

  std::ostream* out_;
};

}  // namespace hotset
