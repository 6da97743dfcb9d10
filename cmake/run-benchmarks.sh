#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every benchmark of a build; each gets the arguments after the folder.
#   cmake/run-benchmarks.sh <build folder> [--benchmark_... flags]
set -eu
build=${1:?usage: cmake/run-benchmarks.sh <build folder> [flags]}
shift
found=0
for program in "$build"/benchmarks/*_benchmark; do
  [ -x "$program" ] || continue
  found=1
  echo "== $(basename "$program")"
  "$program" "$@"
done
[ "$found" -eq 1 ] || {
  echo "run-benchmarks.sh: no benchmark was built in $build" >&2
  exit 1
}
