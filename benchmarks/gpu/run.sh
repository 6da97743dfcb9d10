#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that wants a device, in one go: builds tests/gpu and benchmarks/gpu, runs the tests, runs them
# under compute-sanitizer where that is, runs the benchmarks, and writes one JSON file. Needs nvcc, CMake and
# a C++ compiler. Without a device the file says why, and the script ends with 0.
#   benchmarks/gpu/run.sh [--out FILE] [--build FOLDER] [--jobs N] [--quick] [-- <CMake arguments>]
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
command="benchmarks/gpu/run.sh $*"
build=$root/build/gpu
out=""
jobs=$(nproc 2>/dev/null || echo 2)
quick=""
usage() {
  echo "run.sh: $1" >&2
  echo "usage: run.sh [--out FILE] [--build FOLDER] [--jobs N] [--quick] [-- <CMake arguments>]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --out | --build | --jobs)
      [ $# -ge 2 ] || usage "$1 needs a value"
      case $1 in --out) out=$2 ;; --build) build=$2 ;; --jobs) jobs=$2 ;; esac
      shift 2
      ;;
    --quick)
      quick=--quick
      shift
      ;;
    --)
      shift
      break
      ;;
    *) usage "unknown argument '$1'" ;;
  esac
done
[ -n "$out" ] || out=$build/gpu-results.json

# Only for the devices that are here, unless the caller names others.
architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  tr -d '. ' | grep -E '^[0-9]+$' | sort -un | paste -sd';' - || true)
if [ -n "$architectures" ]; then
  set -- "-DCMAKE_CUDA_ARCHITECTURES=$architectures" "$@"
fi
cmake -S "$root/benchmarks/gpu" -B "$build" "$@"
cmake --build "$build" --config Release -j "$jobs"
mkdir -p "$(dirname "$out")"

failed=0
# check <name> <command...>: runs it, keeps its output, and sets $verdict.
check() {
  name=$1
  shift
  echo "== $name"
  if "$@" >"$build/$name.log" 2>&1; then
    verdict="passed"
  else
    verdict="failed (exit $?), see $name.log"
    failed=1
    cat "$build/$name.log"
  fi
  tail -n 3 "$build/$name.log"
}
tests=$build/hotset_gpu_tests
bench=$build/hotset_gpu_bench

set --
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sort -u | paste -sd' ' - || true)
[ -z "$driver" ] || set -- --fact "driver_version=$driver"

check tests "$tests"
# The lines that count, of GoogleTest or of the tests' own main.
summary=$(grep -E '^[0-9]+ tests:|^\[  (PASSED|SKIPPED|FAILED)  ?\] [0-9]+ tests?' "$build/tests.log" |
  sed -e 's/, listed below:$//' | paste -sd';' - || true)
set -- "$@" --fact "tests=$verdict" --fact "tests.summary=$summary"
device=no
if "$bench" --out "$build/probe.json" --only none >"$build/probe.log" 2>&1 &&
  grep -q '"no_device": null' "$build/probe.json"; then
  device=yes
fi

sanitizer=$(command -v compute-sanitizer || true)
if [ -z "$sanitizer" ]; then
  nvcc=$(command -v nvcc || true)
  for folder in "${CUDA_PATH:-/usr/local/cuda}" "${nvcc%/bin/nvcc}"; do
    for candidate in "$folder/bin/compute-sanitizer" "$folder/compute-sanitizer/compute-sanitizer"; do
      [ -n "$sanitizer" ] || [ ! -x "$candidate" ] || sanitizer=$candidate
    done
  done
fi
for tool in memcheck racecheck initcheck; do
  if [ "$device" = no ]; then
    verdict="not run: no device"
  elif [ -z "$sanitizer" ]; then
    verdict="not run: there is no compute-sanitizer here"
  else
    # Calls that fail on purpose are tests of their own.
    check "$tool" env HOTSET_GPU_VISITS=3000 HOTSET_GPU_BATCHES=50 "$sanitizer" --tool "$tool" \
      --report-api-errors no --error-exitcode 9 "$tests"
  fi
  set -- "$@" --fact "$tool=$verdict"
done

"$bench" --out "$out" --command "$command" $quick "$@" || failed=1
echo "results: $out"
exit $failed
