#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Formats the C++ sources in place. With --check: lists unformatted files and fails if there are any.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
  --check) mode="--dry-run -Werror" ;;
  "") mode="-i" ;;
  *)
    echo "usage: cmake/format.sh [--check]" >&2
    exit 2
    ;;
esac
find include src examples integrations tests benchmarks -type f \
  \( -name '*.hpp' -o -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -print0 |
  xargs -0 -r -n 16 -P "$(nproc)" clang-format $mode --style=file
