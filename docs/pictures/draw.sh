#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws the pictures of docs/pictures.md again, from traces that `hotset synth` makes.
#   docs/pictures/draw.sh    hotset on the path, with the Python package and vl-convert-python
set -eu
out=$(cd "$(dirname "$0")" && pwd)
configs=${HOTSET_DATA_DIR:?docs/pictures/draw.sh: HOTSET_DATA_DIR is not set; accepted: the folder with adapters/esft (CONTRIBUTING.md)}/adapters/esft
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
draw() { hotset plot "$1" --figure "$2" -o "$out/$2.svg" && rm "$out/$2.csv"; }

hotset synth demo.trace --layers 16 --experts 64 --top-k 4 --tokens 800 --zipf 0.9 --stickiness 0.3 --phase-every 200 --expert-bytes 6MiB --seed 7
hotset simulate demo.trace --eviction lru,lfu,two_rate,similar_steps,belady --slots 6.25%,12.5%,25%,50%,75% --scope shared,per-layer --json --out sizes.json
hotset simulate demo.trace --eviction lru,lfu,similar_steps,belady --slots 12.5%,25% --json --out run.json
hotset simulate demo.trace --rank --json --out rank.json
hotset curve demo.trace --eviction lru,belady --scope shared,per-layer --json --out curve.json
hotset simulate demo.trace --eviction lru --slots 25% --link 25GB/s --compute 300us --timeline timeline.json >/dev/null
hotset plan --model gpt-oss-120b --gpu rtx4090 --host-ram 64GiB --json --out plan.json
hotset synth many.trace --layers 8 --experts 32 --top-k 4 --tokens 3200 --zipf 0.2 --stickiness 0.3 --seed 1
hotset synth-requests chats.jsonl --requests 200 --conversations 4 --turns 8 --output-tokens 256 --seed 1
hotset simulate-split many.trace --kv-trace chats.jsonl --budget 240MiB --kv-token-bytes 4KiB --recompute 2us --json --out split.json
hotset adapters plan --base 64x26 --expert-bytes 16.5MiB --stride aligned --resident-bytes 2.4431GiB \
  --kv-bytes-per-token 30.375KiB --budget 80GiB --json "$configs/intent.json" "$configs/law.json" >adapters.json

draw sizes.json sizes
draw run.json layers
draw run.json time
draw rank.json rank
draw curve.json value
draw demo.trace working-set
draw demo.trace heat
draw timeline.json timeline
draw plan.json marginals
draw plan.json divisions
draw split.json split
draw adapters.json adapters
