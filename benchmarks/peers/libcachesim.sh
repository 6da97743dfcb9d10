#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Million accesses per second of hotset's replay and of libCacheSim, one after the other on the same trace and
# machine: processor time, best of several runs.
#   libcachesim.sh BUILD_DIR
# libCacheSim is installed from PyPI into a virtual environment under BUILD_DIR. It judges single accesses; hotset
# judges whole visits, with its usual protection, statistics and decision hash. Slots are shared by all layers, or
# equal in each layer.
set -euo pipefail
build=${1:?usage: libcachesim.sh BUILD_DIR}
release=libcachesim==0.3.5
hotset=$build/hotset
benchmark=$build/benchmarks/replay_benchmark
for program in "$hotset" "$benchmark"; do
  [[ -x $program ]] || { echo "libcachesim.sh: $program is missing; accepted: a build folder with the targets hotset and replay_benchmark built" >&2; exit 1; }
done
env=$build/libcachesim-env
[[ -x $env/bin/python ]] || python3 -m venv "$env"
"$env/bin/pip" install -q --disable-pip-version-check "$release" numpy
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Same trace as replay_benchmark's rows with sticky:40.
"$hotset" synth "$scratch/trace" --layers 48 --experts 128 --top-k 8 --tokens 20000 --zipf 0.8 --stickiness 0.4 --seed 42 >/dev/null
"$hotset" export "$scratch/trace" "$scratch/trace.oracleGeneral" --to oracle-general >/dev/null

echo "-- $release: policy, slots, M accesses/s, misses; shared by all layers, then of each layer, which is a cache and a trace of its own"
"$env/bin/python" - "$scratch/trace.oracleGeneral" <<'END'
import sys
import time

import libcachesim
import numpy

LAYERS, EXPERTS = 48, 128
RECORD = numpy.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])


def layer_files(path):
    """Writes what each layer accesses, its next accesses numbered anew; returns the paths."""
    records = numpy.fromfile(path, RECORD)
    layer_of = records["object"] // EXPERTS
    for layer in range(LAYERS):
        own = records[layer_of == layer].copy()
        place = {}
        for at in range(len(own) - 1, -1, -1):
            own["next"][at] = place.get(own["object"][at], -1)
            place[own["object"][at]] = at
        own.tofile(f"{path}.{layer}")
    return [f"{path}.{layer}" for layer in range(LAYERS)]


def measure(policy, slots, paths):
    """Seconds of processor time, and the share of misses, of a cache for each trace."""
    seconds = missed = accesses = 0
    for path in paths:
        reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE,
                                         libcachesim.ReaderInitParam(ignore_obj_size=True))
        cache = getattr(libcachesim, policy)(slots)
        begin = time.process_time()
        misses, _ = cache.process_trace(reader)
        seconds += time.process_time() - begin
        count = reader.get_num_of_req()
        missed += misses * count
        accesses += count
    return seconds, missed / accesses, accesses


shared = sys.argv[1]
for paths, sizes, rounds in (([shared], (768, 3072), 5), (layer_files(shared), (16, 64), 3)):
    for policy in ("LRU", "FIFO", "LFU", "Belady"):
        for slots in sizes:
            seconds, misses, accesses = min(measure(policy, slots, paths) for _ in range(rounds))
            print(f"{policy} {slots} {accesses / seconds / 1e6:.1f} {misses:.3f}", flush=True)
END
echo '-- hotset: policy, scope, slots, M accesses/s, hits'
"$benchmark" --benchmark_filter='/(shared|per-layer)/.*sticky:40' --benchmark_min_time=0.2 --benchmark_repetitions=3 --benchmark_format=csv 2>/dev/null |
  awk -F, '/^"BM_Replay.*[0-9]"/ { split($1, part, "/"); name = part[2] " " part[3] " " part[4]; gsub(/slots:|"/, "", name)
             rate = $7 / 1e6; if (!(name in best)) order[++n] = name; if (rate > best[name]) best[name] = rate; hits[name] = $NF }
           END { for (i = 1; i <= n; ++i) printf "%s %.1f %.3f\n", order[i], best[order[i]], hits[order[i]] }'
