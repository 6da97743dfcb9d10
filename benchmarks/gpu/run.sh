#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and runs everything that needs a CUDA device, part by part; see `run.sh --help`.
set -u

usage() {
  cat <<'EOF'
run.sh: all tests and measurements that need a CUDA device, in one call

  benchmarks/gpu/run.sh [options] [-- CMAKE_ARGUMENT...]
    --out FOLDER     folder for gpu-results.json, gpu-results.md and gpu-results.log (default: BUILD/results)
    --limit SECONDS  time for the whole run, the build included (default: 480, at least 20); each part gets its share
    --build FOLDER   build folder (default: build/gpu); a second run reuses it
    --jobs N         parallel compilations (default: one per core, and at most one per 2 GiB of free memory)

Needs a C++ compiler, nvcc and CMake with make or ninja. No package is downloaded; GoogleTest is used if it is there.
Parts, most valuable first:
EOF
  plan | while read -r name share what; do printf '    %-13s %3s %%  %s\n' "$name" "$share" "$what"; done
  cat <<'EOF'
The percentage is the largest share of --limit that a part may take. A part that fails or takes too long does not stop
the next ones. The results are rewritten whenever a part begins or ends, so an interrupted run keeps what it has.
Exit codes: 0 no part failed (parts may be skipped: no nvcc, no device); 1 a part failed, or was not run to its end;
2 bad arguments.
EOF
}

# The parts in order: name, largest share of the limit, description.
plan() {
  cat <<'EOF'
configure     15 CMake, for the devices of this machine
build_tests   45 hotset::cuda and the tests on a device
tests         20 tests/gpu: every copy, kernel and graph checked on the device
build_rest    45 examples/cuda_decode and the benchmarks
decode_bf16   25 Qwen3-30B-A3B: hotset compared with static offload and full residency
decode_mxfp4  25 gpt-oss-120b: hotset compared with static offload and full residency
copies        10 copy rates from page-locked memory, single and batched
submit         5 host time to submit copies
fills         10 copies by the backend compared with plain copies
visits         5 host time of a visit
mirror         8 the kernel that maps routed experts to slots
reroute        8 the kernel that maps experts of adapters
memcheck      12 compute-sanitizer: memory errors, on a short run of the tests
racecheck     12 compute-sanitizer: races in shared memory, on a short run of the tests
EOF
}

refuse() {
  echo "run.sh: $1; see run.sh --help" >&2
  exit 2
}
# require_number OPTION VALUE LOWEST
require_number() {
  case $2 in
    '' | 0* | *[!0-9]*) refuse "$1: '$2', accepted: a whole number, $3 or more" ;;
  esac
  [ "${#2}" -le 6 ] && [ "$2" -ge "$3" ] || refuse "$1: '$2', accepted: $3..999999"
}

root=$(cd "$(dirname "$0")/../.." && pwd)
command="benchmarks/gpu/run.sh $*"
build=$root/build/gpu
out=""
total=480
jobs=""
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      usage
      exit 0
      ;;
    --out | --limit | --build | --jobs)
      [ $# -ge 2 ] && [ -n "$2" ] || refuse "$1 has no value"
      case $1 in
        --out) out=$2 ;;
        --build) build=$2 ;;
        --limit) require_number "$1" "$2" 20 && total=$2 ;;
        --jobs) require_number "$1" "$2" 1 && jobs=$2 ;;
      esac
      shift 2
      ;;
    --)
      shift
      break
      ;;
    *) refuse "unknown argument '$1'" ;;
  esac
done
now() { date +%s; }
started=$(now)
date_started=$(date -u +%Y-%m-%dT%H:%M:%SZ)
deadline=$((started + total))

mkdir -p "$build" || refuse "--build: cannot make the folder '$build'"
build=$(cd "$build" && pwd)
out=${out:-$build/results}
mkdir -p "$out" || refuse "--out: cannot make the folder '$out'"
out=$(cd "$out" && pwd)
logs=$build/gpu-run-logs
rm -rf "$logs"
mkdir -p "$logs" || refuse "--build: cannot write into '$build'"
free_kib=$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo 2>/dev/null)
free_gib=$((${free_kib:-16777216} / 1048576))
cores=$(nproc 2>/dev/null || echo 2)
if [ -z "$jobs" ]; then
  jobs=$((free_gib / 2))
  [ "$jobs" -le "$cores" ] || jobs=$cores
  [ "$jobs" -ge 1 ] || jobs=1
fi

# ---- results ----------------------------------------------------------------------------------------------------

# Quotes a line of text as a JSON string.
quoted() {
  case $1 in
    *[!A-Za-z0-9\ .,:\;/_+-]*)
      printf '"%s"' "$(printf '%s' "$1" | LC_ALL=C tr -cd '\40-\176' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g')"
      ;;
    *) printf '"%s"' "$1" ;;
  esac
}

write_json() {
  printf '{\n  "format": "hotset.gpu-results/2",\n  "hotset": "%s",\n  "commit": "%s",\n  "date": "%s",\n' \
    "$version" "$commit" "$date_started"
  printf '  "command": %s,\n  "devices": %s,\n  "driver": %s,\n  "nvcc": %s,\n' \
    "$(quoted "$command")" "$(quoted "$devices")" "$(quoted "$driver")" "$(quoted "$nvcc_version")"
  printf '  "cores": %s,\n  "jobs": %s,\n  "limit_seconds": %s,\n  "seconds": %s,\n  "end": "%s",\n  "parts": [' \
    "$cores" "$jobs" "$total" "$(($(now) - started))" "$end"
  comma=""
  for name in $names; do
    printf '%s\n    {"part": "%s", ' "$comma" "$name"
    if [ -f "$logs/$name.state" ]; then
      cat "$logs/$name.state"
    else
      printf '"state": "not run", "seconds": 0, "limit_seconds": 0, "reason": "the run ended before it"'
    fi
    printf ',\n     "data": '
    if [ -s "$logs/$name.json" ]; then cat "$logs/$name.json"; else printf null; fi
    printf '}'
    comma=","
  done
  printf '\n  ]\n}\n'
}

write_page() {
  printf '# hotset on a device\n\n- hotset %s, commit %s\n- %s, `%s`\n' "$version" "$commit" "$date_started" "$command"
  printf -- '- devices: %s; driver: %s\n- nvcc: %s; %s cores, %s jobs\n' "$devices" "$driver" "$nvcc_version" "$cores" "$jobs"
  printf -- '- end: %s, after %s of %s s\n\n' "$end" "$(($(now) - started))" "$total"
  printf '| part | state | s | at most | why |\n|---|---|---|---|---|\n'
  for name in $names; do
    [ ! -f "$logs/$name.line" ] || cat "$logs/$name.line"
  done
  for name in $names; do
    [ -s "$logs/$name.log" ] || continue
    lines=60
    case $name:$(cat "$logs/$name.line") in
      configure:*'| ok |'* | build_*:*'| ok |'* | *'| skipped |'*) continue ;;
      tests:*'| ok |'* | *check:*'| ok |'*) lines=3 ;;
    esac
    printf '\n## %s\n\n```\n' "$name"
    tail -n "$lines" "$logs/$name.log" | LC_ALL=C tr -cd '\11\12\40-\176' | sed 's/```/` ` `/g'
    printf '```\n'
  done
}

write_log() {
  for name in $names; do
    [ -f "$logs/$name.log" ] || continue
    printf '==== %s\n' "$name"
    tail -c 1000000 "$logs/$name.log"
  done
}

# write_result KIND FILE: writes the file completely or not at all. In a subshell, because the functions share names.
write_result() { ("write_$1" >"$out/$2.part") && mv -f "$out/$2.part" "$out/$2"; }
write_results() {
  write_result json gpu-results.json
  write_result page gpu-results.md
  write_result log gpu-results.log
}

# record PART STATE SECONDS LIMIT REASON
record() {
  printf '"state": "%s", "seconds": %s, "limit_seconds": %s, "reason": %s' "$2" "$3" "$4" "$(quoted "$5")" >"$logs/$1.state"
  printf '| %s | %s | %s | %s | %s |\n' "$1" "$2" "$3" "$4" "$5" >"$logs/$1.line"
  case $2 in
    ok | skipped | running) ;;
    *) failed=1 ;;
  esac
  case $1:$2 in configure:* | build_*) ;; *:ok) measured=$((measured + 1)) ;; esac
  case $2 in
    running) write_result json gpu-results.json ;;
    *)
      write_results
      printf '%-13s %-9s %4s s  %s\n' "$1" "$2" "$3" "$5"
      ;;
  esac
}

# ---- parts ------------------------------------------------------------------------------------------------------

child=""
part=""
failed=0
measured=0
tests_skipped=""
# finish END: writes the results and ends the script.
finish() {
  end=$1
  write_results
  echo "$measured parts measured; results: $out/gpu-results.json, gpu-results.md, gpu-results.log"
  exit $failed
}
cut_off() {
  trap '' TERM INT HUP
  # timeout passes the signal on to all processes of the part.
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
  [ -z "$part" ] || record "$part" "cut off" "$(($(now) - begun))" "$limit" "$1"
  finish "cut off by $1"
}
# skip REASON NAME...
skip() {
  why=$1
  shift
  for name in "$@"; do record "$name" skipped 0 0 "$why"; done
}
runs() {
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  case $stat in *') Z '*) return 1 ;; esac
}

# run_part NAME COMMAND...: runs it within its share of the limit; its output goes to $logs/NAME.log.
run_part() {
  part=$1
  shift
  limit=$((total * $(plan | sed -n "s/^$part  *\([0-9]*\) .*/\1/p") / 100))
  left=$((deadline - $(now) - 3))
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$left" -lt 1 ]; then
    record "$part" "not run" 0 0 "no time was left"
    part=""
    return
  fi
  begun=$(now)
  record "$part" running 0 "$limit" ""
  # timeout creates a process group, so that a signal reaches compilers and sanitizers, too.
  timeout -k 3 "$limit" "$@" >"$logs/$part.log" 2>&1 &
  child=$!
  # Polls, because a program that hangs in the driver survives SIGKILL: wait would never return.
  while runs "$child" && [ "$(now)" -le $((begun + limit + 8)) ]; do sleep 0.1; done
  code=137
  if ! runs "$child"; then
    wait "$child"
    code=$?
  fi
  child=""
  reason=$(sed -n -e 's/^no device: //p' -e 's/^cuda_decode: skipped: //p' "$logs/$part.log" | head -n 1)
  case $part:$code in
    *:0) if [ -n "$reason" ]; then state=skipped reason="no device: $reason"; else state=ok; fi ;;
    *:124 | *:137) state="timed out" reason="took more than $limit s; what it had written is kept" ;;
    decode_*:3) state=skipped reason=$(tail -n 1 "$logs/$part.log") ;;
    *) state=failed reason="exit code $code, see gpu-results.log" ;;
  esac
  [ "$part:$state" != tests:skipped ] || tests_skipped=$reason
  record "$part" "$state" "$(($(now) - begun))" "$limit" "$reason"
  part=""
}
# run_program PROGRAM NAME ARGUMENT...: run_part, if the program was built.
run_program() {
  program=$1 name=$2
  shift 2
  if [ -x "$program" ]; then
    run_part "$name" "$program" "$@"
  else
    record "$name" "not run" 0 0 "$(basename "$program") was not built"
  fi
}

names=$(plan | sed 's/ .*//')
end="not finished"
version=$(sed -n 's/^#define HOTSET_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$root/include/hotset/version.hpp" | paste -sd. -)
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
devices=unknown
driver=unknown
nvcc_version=none
trap 'cut_off SIGTERM' TERM
trap 'cut_off SIGINT' INT
trap 'cut_off SIGHUP' HUP
write_results

# smi FIELD: values of all devices, without repeats.
smi() { timeout 20 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | sort -u; }
found=$(smi name,memory.total,driver_version | paste -sd';' -)
if [ -n "$found" ]; then
  devices=${found%,*}
  driver=${found##*, }
fi
nvcc=""
for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-}/bin/nvcc" "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc"; do
  [ -n "$nvcc" ] || [ ! -f "$candidate" ] || [ ! -x "$candidate" ] || nvcc=$candidate
done
[ -z "$nvcc" ] || nvcc_version=$("$nvcc" --version 2>/dev/null | sed -n 's/^.*release \([0-9.]*\).*/\1/p')
maker=""
for candidate in ninja make; do
  [ -n "$maker" ] || ! command -v "$candidate" >/dev/null 2>&1 || maker=$candidate
done

lacking=""
[ -n "$nvcc" ] || lacking="no nvcc: not on the path, in CUDACXX, CUDA_HOME, CUDA_PATH or /usr/local/cuda"
command -v cmake >/dev/null 2>&1 || lacking="no cmake on the path"
[ -n "$maker" ] || lacking="neither ninja nor make on the path"
if [ -n "$lacking" ]; then
  # shellcheck disable=SC2086  # names without spaces
  skip "$lacking" $names
  finish complete
fi

# Compiles for this machine's devices. If nvidia-smi names none, it compiles for 7.5: every newer device translates
# its PTX at start-up.
architectures=$(smi compute_cap | tr -d '. ' | grep -E '^[0-9]+$' | paste -sd';' -)
set -- "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=${architectures:-75}" "$@"
if [ ! -f "$build/CMakeCache.txt" ]; then
  case $maker in ninja) set -- -G Ninja "$@" ;; *) set -- -G "Unix Makefiles" "$@" ;; esac
fi
tests=$build/hotset_gpu_tests
decode=$build/cuda_decode/cuda_decode
bench=$build/hotset_gpu_bench
# Removes programs of earlier runs, so that none is mistaken for one that was not built now.
rm -f "$tests" "$decode" "$bench"

run_part configure cmake -S "$root/benchmarks/gpu" -B "$build" "$@"
keep_going=-k
! grep -q '^CMAKE_GENERATOR:INTERNAL=Ninja' "$build/CMakeCache.txt" 2>/dev/null || keep_going=-k0
run_part build_tests cmake --build "$build" --config Release -j "$jobs" --target hotset_gpu_tests
run_program "$tests" tests
# The lines with counts, of GoogleTest or of the tests' own main.
counts=$(grep -E '^[0-9]+ tests:|^\[  (PASSED|SKIPPED|FAILED)  ?\] [0-9]+ tests?' "$logs/tests.log" 2>/dev/null |
  sed -e 's/, listed below:$//' | paste -sd';' -)
[ -z "$counts" ] || printf '{"counts": %s}' "$(quoted "$counts")" >"$logs/tests.json"
run_part build_rest cmake --build "$build" --config Release -j "$jobs" --target cuda_decode hotset_gpu_bench -- "$keep_going"

# decode_shape PART SHAPE GIB: uses as many layers as fit in GIB and in half of the free memory.
decode_shape() {
  budget=$((free_gib / 2))
  [ "$budget" -le "$3" ] || budget=$3
  [ "$budget" -ge 1 ] || budget=1
  run_program "$decode" "$1" --shape "$2" --layers fit --host-budget "${budget}GiB" --caps 16,32,64,all \
    --modes eager,layer-graphs --steps 32 --warmup 8 --check-steps 1 --json "$logs/$1.json"
}
# All layers of the first shape, and a part of the second, because page-locking takes time.
decode_shape decode_bf16 qwen3-30b-a3b 60
decode_shape decode_mxfp4 gpt-oss-120b 24
for name in copies submit fills visits mirror reroute; do
  run_program "$bench" "$name" --only "$name" --out "$logs/$name.json"
done

sanitizer=""
for candidate in "$(command -v compute-sanitizer || true)" "${nvcc%/*}/compute-sanitizer" \
  "${nvcc%/bin/nvcc}/compute-sanitizer/compute-sanitizer"; do
  [ -n "$sanitizer" ] || [ ! -x "$candidate" ] || sanitizer=$candidate
done
for tool in memcheck racecheck; do
  if [ -n "$tests_skipped" ]; then
    skip "$tests_skipped" "$tool"
  elif [ -z "$sanitizer" ]; then
    skip "no compute-sanitizer" "$tool"
  else
    # Calls that fail on purpose are separate tests.
    run_part "$tool" env HOTSET_GPU_VISITS=1000 HOTSET_GPU_BATCHES=20 "$sanitizer" --tool "$tool" \
      --report-api-errors no --error-exitcode 9 "$tests"
  fi
done
finish complete
