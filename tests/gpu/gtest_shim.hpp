// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The part of GoogleTest that tests/gpu uses, for machines without it, with a main that counts.

#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace gtest_shim {

struct test_case {
  std::string name;
  void (*body)();
};
inline std::vector<test_case>& all_tests() {
  static std::vector<test_case> tests;
  return tests;
}
inline bool add_test(std::string name, void (*body)()) {
  all_tests().push_back({std::move(name), body});
  return true;
}

/// Result of the running test.
struct outcome {
  bool failed = false;
  bool skipped = false;
};
inline outcome& current() {
  static outcome now;
  return now;
}

class message {
 public:
  template <class T>
  message& operator<<(const T& value) {
    text_ << value;
    return *this;
  }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

/// `return failure(...) = message() << ...` is an expression of type void, so that it may leave a test's body.
struct failure {
  const char* file;
  int line;
  std::string what;
  void operator=(const message& more) const {
    current().failed = true;
    std::printf("%s:%d: failure: %s %s\n", file, line, what.c_str(), more.text().c_str());
  }
};
struct skip {
  void operator=(const message& why) const {
    current().skipped = true;
    std::printf("%s\n", why.text().c_str());
  }
};

template <class T>
std::string shown(const T& value) {
  if constexpr (requires(std::ostream & out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "<" + std::to_string(sizeof(T)) + " bytes>";
  }
}
/// Empty if `holds`, else both compared values.
template <class A, class B>
std::string compared(bool holds, const char* text, const A& a, const B& b) {
  return holds ? "" : std::string(text) + ", which is " + shown(a) + " and " + shown(b);
}

inline int run_all() {
  int failed = 0;
  int skipped = 0;
  for (const auto& test : all_tests()) {
    current() = {};
    std::printf("[ RUN     ] %s\n", test.name.c_str());
    try {
      test.body();
    } catch (const std::exception& e) {
      current().failed = true;
      std::printf("failure: threw %s\n", e.what());
    }
    const char* const verdict = current().failed    ? "[  FAILED ]"
                                : current().skipped ? "[ SKIPPED ]"
                                                    : "[      OK ]";
    failed += current().failed ? 1 : 0;
    skipped += !current().failed && current().skipped ? 1 : 0;
    std::printf("%s %s\n", verdict, test.name.c_str());
    std::fflush(stdout);
  }
  const auto count = static_cast<int>(all_tests().size());
  std::printf("%d tests: %d passed, %d failed, %d skipped\n", count, count - failed - skipped,
              failed, skipped);
  return failed == 0 && count > 0 ? 0 : 1;
}

}  // namespace gtest_shim

// NOLINTBEGIN: GoogleTest's names and ways
#define TEST(suite, name)                                              \
  static void suite##_##name##_body();                                 \
  static const bool suite##_##name##_added =                           \
      ::gtest_shim::add_test(#suite "." #name, suite##_##name##_body); \
  static void suite##_##name##_body()

#define GTEST_SHIM_CHECK(problem, leave)                            \
  if (const std::string shim_what = (problem); shim_what.empty()) { \
  } else                                                            \
    leave ::gtest_shim::failure{__FILE__, __LINE__, shim_what} = ::gtest_shim::message()
#define GTEST_SHIM_COMPARE(a, op, b, leave)                                                     \
  GTEST_SHIM_CHECK(([](const auto& shim_a, const auto& shim_b) {                                \
                     return ::gtest_shim::compared(shim_a op shim_b, #a " " #op " " #b, shim_a, \
                                                   shim_b);                                     \
                   }((a), (b))),                                                                \
                   leave)
#define GTEST_SHIM_TRUE(condition, expected, leave) \
  GTEST_SHIM_CHECK((static_cast<bool>(condition) == (expected) ? "" : #condition), leave)

#define EXPECT_TRUE(c) GTEST_SHIM_TRUE(c, true, )
#define EXPECT_FALSE(c) GTEST_SHIM_TRUE(c, false, )
#define EXPECT_EQ(a, b) GTEST_SHIM_COMPARE(a, ==, b, )
#define EXPECT_NE(a, b) GTEST_SHIM_COMPARE(a, !=, b, )
#define EXPECT_LT(a, b) GTEST_SHIM_COMPARE(a, <, b, )
#define EXPECT_LE(a, b) GTEST_SHIM_COMPARE(a, <=, b, )
#define EXPECT_GT(a, b) GTEST_SHIM_COMPARE(a, >, b, )
#define EXPECT_GE(a, b) GTEST_SHIM_COMPARE(a, >=, b, )
#define ASSERT_TRUE(c) GTEST_SHIM_TRUE(c, true, return )
#define ASSERT_FALSE(c) GTEST_SHIM_TRUE(c, false, return )
#define ASSERT_EQ(a, b) GTEST_SHIM_COMPARE(a, ==, b, return )
#define ASSERT_NE(a, b) GTEST_SHIM_COMPARE(a, !=, b, return )
#define ASSERT_LT(a, b) GTEST_SHIM_COMPARE(a, <, b, return )
#define ASSERT_LE(a, b) GTEST_SHIM_COMPARE(a, <=, b, return )
#define ASSERT_GT(a, b) GTEST_SHIM_COMPARE(a, >, b, return )
#define ASSERT_GE(a, b) GTEST_SHIM_COMPARE(a, >=, b, return )
#define GTEST_SKIP() return ::gtest_shim::skip{} = ::gtest_shim::message()
// NOLINTEND
