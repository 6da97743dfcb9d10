// SPDX-License-Identifier: Apache-2.0
// Must not compile with -fno-rtti.
#include <typeinfo>

const char* name_of(int value) { return typeid(value).name(); }
