#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks benchmarks/gpu/run.sh on simulated machines. nvcc, cmake and their results are replaced by scripts in a
# folder that, with a few tools, is the script's whole path. WORLD selects the machine.
#   gpu_run_test.sh <hotset> <cmake>
set -euo pipefail
source=${1:?usage: gpu_run_test.sh <hotset> <cmake>}
cmake=${2:?usage: gpu_run_test.sh <hotset> <cmake>}
work=$(mktemp -d)
: "${work:?no temporary folder}"
trap 'rm -rf "${work:?}"' EXIT
bin=$work/bin
mkdir "$bin"
for tool in sh env cat sed grep tr head tail sort paste date mkdir rm mv cp chmod dirname basename nproc sleep timeout touch; do
  ln -s "$(type -P "$tool")" "$bin/$tool"
done
printf '#!/bin/sh\necho make\n' >"$bin/make"

# Builds the requested programs.
cat >"$bin/cmake" <<'END'
#!/bin/sh
echo "cmake $*" >>"$FAKES/asked"
mode=configure
while [ $# -gt 0 ]; do
  case $1 in
    --build) mode=build build=$2 ;;
    -B) build=$2 ;;
    --target) shift; targets=$*; break ;;
  esac
  shift
done
if [ "$mode" = configure ]; then
  touch "$build/CMakeCache.txt"
  exit
fi
mkdir -p "$build/cuda_decode"
for target in $targets; do
  case $WORLD:$target in
    no_tests:hotset_gpu_tests) echo "error: no such type"; exit 2 ;;
    *:cuda_decode) cp "$FAKES/program" "$build/cuda_decode/cuda_decode" ;;
    *:hotset_gpu_*) cp "$FAKES/program" "$build/$target" ;;
  esac
done
END
# Replaces the tests, cuda_decode and the benchmarks.
cat >"$work/program" <<'END'
#!/bin/sh
name=${0##*/}
echo "$name $*" >>"$FAKES/calls"
only=""
while [ $# -gt 0 ]; do
  case $1 in
    --out | --json) file=$2 ;;
    --only) only=$2 ;;
  esac
  shift
done
case $WORLD:$name:$only in
  no_device:cuda_decode:*) echo 'cuda_decode: skipped: a "driver" of C:\\old'; echo '{"skipped": "so"}' >"$file" ;;
  no_device:*) echo 'no device: a "driver" of C:\\old'; [ -z "$only" ] || echo '{"no_device": "so"}' >"$file" ;;
  hangs:cuda_decode:*) echo '{"finished": false}' >"$file"; echo "$$" >"$FAKES/hanging"; exec sleep 300 ;;
  deaf:cuda_decode:*) trap '' TERM; echo '{"finished": false}' >"$file"; while :; do sleep 0.1; done ;;
  fails:*:fills) echo 'cudaMalloc: out of memory'; exit 1 ;;
  small:cuda_decode:*) echo 'cuda_decode: the weights do not fit' >&2; exit 3 ;;
  *:hotset_gpu_tests:*) echo '9 tests: 9 passed, 0 failed, 0 skipped' ;;
  *) echo "| rows of $name $only"; printf '{\n"rows":\n[1, 2]}\n' >"$file" ;;
esac
END
printf '#!/bin/sh\nwhile [ "${1#/}" = "$1" ] || [ "${1%%/hotset_gpu_tests}" = "$1" ]; do shift; done\nexec "$@"\n' >"$work/sanitizer"
chmod +x "$bin/cmake" "$bin/make" "$work/program" "$work/sanitizer"

fail() {
  echo "gpu_run_test.sh: $*" >&2
  exit 1
}
with_nvcc() {
  printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' >"$bin/nvcc"
  cp "$work/sanitizer" "$bin/compute-sanitizer"
  chmod +x "$bin/nvcc"
}
# begin WORLD OPTION...: runs the script with a new build folder.
begin() {
  world=$1
  shift
  rm -rf "$work/build" "$work/out" "$work/calls" "$work/asked"
  env -i PATH="$bin" WORLD="$world" FAKES="$work" CUDA_PATH="$work/none" \
    "$bin/sh" "$source/benchmarks/gpu/run.sh" --build "$work/build" --out "$work/out" "$@" -- -DEXTRA=1 >"$work/log" 2>&1
}
# expect_code CODE WORLD OPTION...: calls begin and stores the JSON report in $results.
expect_code() {
  wanted=$1
  shift
  code=0
  begin "$@" || code=$?
  [ "$code" -eq "$wanted" ] || fail "$1: exit code $code, not $wanted: $(cat "$work/log")"
  read_results
}
read_results() {
  results=$("$cmake" -Dfile="$work/out/gpu-results.json" -P "$source/tests/benchmarks/gpu_results.cmake") ||
    fail "$world: the JSON cannot be read: $(cat "$work/out/gpu-results.json")"
  for file in gpu-results.md gpu-results.log; do [ -f "$work/out/$file" ] || fail "$world: no $file"; done
}
expect() {
  for line in "$@"; do
    grep -qx -- "$line" <<<"$results" || fail "$world: no line '$line' in: $results"
  done
}
count() { grep -c -- "$1" <<<"$results" || true; }
parts=$("$bin/sh" "$source/benchmarks/gpu/run.sh" --help | grep -c ' %  ')
[ "$parts" -eq 14 ] || fail "--help lists $parts parts"

# No nvcc: all parts are skipped, and the file gives the reason.
expect_code 0 any
expect "end: complete" "configure: skipped: no nvcc.*" "racecheck: skipped: no nvcc.*"
[ "$(count ': skipped: no nvcc')" -eq "$parts" ] || fail "without nvcc: $results"

# No device: all parts are built; the programs report the driver's error, however it is spelled.
with_nvcc
expect_code 0 no_device
expect "end: complete" 'build_rest: ok: : ' 'tests: skipped: no device: a "driver" of C:.*old:.*' \
  'decode_bf16: skipped: no device: .*' 'reroute: skipped: no device: .*' 'memcheck: skipped: no device: .*'
[ "$(count ': ok: ')" -eq 3 ] || fail "without a device: $results"

# A device: all parts run in order, each has data, and the page gets rows. Compiled for this device only.
printf '#!/bin/sh\ncase $* in *compute_cap*) echo 9.0 ;; *) echo "NVIDIA H100, 81559 MiB, 580.1" ;; esac\n' >"$bin/nvidia-smi"
chmod +x "$bin/nvidia-smi"
expect_code 0 device
grep -q 'DCMAKE_CUDA_ARCHITECTURES=90 ' "$work/asked" || fail "not for the device that is here: $(cat "$work/asked")"
grep -q '"devices": "NVIDIA H100, 81559 MiB", "driver": "580.1"' <(paste -sd' ' "$work/out/gpu-results.json" | tr -s ' ') ||
  fail "not the device that is here: $(head -20 "$work/out/gpu-results.json")"
expect "end: complete" 'tests: ok: : {"counts":"9tests:9passed,0failed,0skipped"}' 'copies: ok: : {"rows":\[1,2\]}'
[ "$(count ': ok: ')" -eq "$parts" ] || fail "with a device: $results"
called=$(sed -e 's/ .*--only / /' -e 's/ --shape \([^ ]*\).*/ \1/' -e 's/ --out.*//' "$work/calls" | paste -sd, -)
in_order="hotset_gpu_tests ,cuda_decode qwen3-30b-a3b,cuda_decode gpt-oss-120b"
for name in copies submit fills visits mirror reroute; do in_order+=",hotset_gpu_bench $name"; done
[ "$called" = "$in_order,hotset_gpu_tests ,hotset_gpu_tests " ] || fail "called: $called"
grep -q '^| rows of cuda_decode' "$work/out/gpu-results.md" || fail "no rows in the page"

# A part that fails, does not fit, is not built or hangs stops no other part.
expect_code 1 fails
expect 'fills: failed: exit code 1, see gpu-results.log: ' 'visits: ok: .*' "end: complete"
grep -q 'out of memory' "$work/out/gpu-results.md" || fail "the page does not say what failed"
expect_code 0 small
expect 'decode_bf16: skipped: cuda_decode: the weights do not fit: .*' 'copies: ok: .*'
expect_code 1 no_tests
expect 'build_tests: failed: .*' 'tests: not run: hotset_gpu_tests was not built: .*' 'copies: ok: .*'
expect_code 1 deaf --limit 20
expect 'decode_bf16: timed out: .*: {"finished":false}' 'tests: ok: .*'
pgrep -f "$work/build/cuda_decode/cuda_decode" >/dev/null && fail "what hangs was not killed"

# Interrupted by any signal while a part runs: the file is complete and has the data measured so far.
for signal in TERM KILL; do
  rm -f "$work/hanging"
  world="hangs, SIG$signal"
  begin hangs &
  run=$!
  for _ in $(seq 200); do [ -s "$work/hanging" ] && break; sleep 0.1; done
  hanging=$(cat "$work/hanging") || fail "nothing hangs: $(cat "$work/log")"
  script=$(pgrep -P "$run" -f run.sh || echo "$run")
  kill -s "$signal" "$script"
  code=0
  wait "$run" || code=$?
  read_results
  expect 'tests: ok: .*' 'copies: not run: .*'
  case $signal in
    TERM)
      [ "$code" -eq 1 ] || fail "after SIGTERM: exit code $code"
      expect 'end: cut off by SIGTERM' 'decode_bf16: cut off: SIGTERM: {"finished":false}'
      ;;
    KILL)
      expect 'end: not finished' 'decode_bf16: running: : .*'
      kill "$hanging"
      ;;
  esac
  for _ in $(seq 100); do kill -0 "$hanging" 2>/dev/null || break; sleep 0.1; done
  ! kill -0 "$hanging" 2>/dev/null || fail "after SIG$signal the part still runs"
done

# Bad arguments: one line and exit code 2.
for bad in --fast "--limit 5" "--limit x" "--jobs 0" --out; do
  code=0
  # shellcheck disable=SC2086
  "$bin/sh" "$source/benchmarks/gpu/run.sh" $bad >"$work/log" 2>&1 || code=$?
  [ "$code" -eq 2 ] && [ "$(wc -l <"$work/log")" -eq 1 ] || fail "$bad: exit code $code: $(cat "$work/log")"
done
