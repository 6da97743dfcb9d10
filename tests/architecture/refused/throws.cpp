// SPDX-License-Identifier: Apache-2.0
// Must not compile with -fno-exceptions.
int halve(int value) {
  if (value < 0) throw value;
  return value / 2;
}
