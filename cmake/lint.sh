#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy over the library, the command line and the examples, as .clang-tidy says.
#   cmake/lint.sh <build folder with compile_commands.json>
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:?usage: cmake/lint.sh <build folder>}
if [[ ! -f $build/compile_commands.json ]]; then
  echo "lint.sh: $build/compile_commands.json is not there; configure with 'cmake --preset dev'" >&2
  exit 1
fi

# Checks the compiled files of src/ and examples/, and all_headers.cpp, which includes every header of the core and
# the CUDA backend once. Kernels (.cu) are excluded: nvcc compiles them. Drops clang-tidy's count of suppressed
# warnings. clang ignores g++ warning options that it does not know. The analyzer runs in shallow mode, which saves a
# third of the total time.
sed -n 's/^ *"file": "\(.*\.cpp\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
  { grep -F -e "$PWD/src/" -e "$PWD/examples/" -e /all_headers.cpp || true; } |
  tr '\n' '\0' |
  xargs -0 -r -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=mode=shallow 2>&1 |
  { grep -vE '^[0-9]+ warnings?( and [0-9]+ errors?)? generated\.$' || true; }
