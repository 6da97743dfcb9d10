#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each rank of an engine places for itself, so every compiler and flag must decide alike.
#   every_build_test.sh <compiler> <source folder> <folder to work in>
set -euo pipefail
own=${1:?} source=${2:?} work=${3:?}
rm -f "$work"/decisions.*
seen=' '
for compiler in "$own" g++ clang++; do
  program=$(command -v "$compiler") && program=$(readlink -f "$program") || continue
  [[ $seen == *" $program "* ]] && continue
  seen+="$program "
  for flags in -O0 '-O3 -march=native' '-O2 -ffast-math'; do
    # shellcheck disable=SC2086  # flags are words
    "$compiler" -std=c++20 $flags -I "$source/include" -I "$source/tests/support" \
      "$source/tests/placement/decisions.cpp" -o "$work/decisions"
    "$work/decisions" >"$work/decisions.now"
    [[ -e $work/decisions.first ]] || mv "$work/decisions.now" "$work/decisions.first"
    [[ ! -e $work/decisions.now ]] || cmp "$work/decisions.first" "$work/decisions.now"
    echo "alike: $compiler $flags"
  done
done

