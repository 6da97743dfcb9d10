// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/timeline_writer.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace hotset::timeline_writer_test {
namespace {

TEST(timeline_writer, writes_an_array_with_one_event_per_line) {
  std::ostringstream out;
  timeline_writer events(out, "engine");
  events.track(2, "copies");
  events.span(2, "layer 1", 1000, 3005, "\"slot\":4");
  events.span(1, "wait", 7, 7);
  events.arrow(9, 2, 3005, 1, 4000);
  events.finish();
  EXPECT_EQ(out.str(),
            R"([{"name":"process_name","ph":"M","pid":1,"args":{"name":"engine"}},
{"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"copies"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":2,"args":{"sort_index":2}},
{"name":"layer 1","ph":"X","pid":1,"tid":2,"ts":1.000,"dur":2.005,"args":{"slot":4}},
{"name":"wait","ph":"X","pid":1,"tid":1,"ts":0.007,"dur":0.000},
{"name":"copy","ph":"s","pid":1,"tid":2,"cat":"copy","id":9,"ts":3.005},
{"name":"copy","ph":"f","pid":1,"tid":1,"cat":"copy","bp":"e","id":9,"ts":4.000}
]
)");
}

}  // namespace
}  // namespace hotset::timeline_writer_test
