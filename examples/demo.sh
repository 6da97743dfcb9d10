#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A tour: a model that runs from an expert cache, a check that its outputs are unchanged, and policies compared on its
# routing. Called by `make demo`.
#   examples/demo.sh BUILD_DIR
set -euo pipefail

if [ $# -ne 1 ]; then
  echo 'usage: examples/demo.sh BUILD_DIR' >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
tiny_moe=$1/examples/tiny_moe/tiny_moe
hotset=$1/hotset
for program in "$tiny_moe" "$hotset"; do
  if [ ! -x "$program" ]; then
    echo "demo.sh: $program is missing; accepted: a build folder with the target demo_programs built" >&2
    exit 1
  fi
done
export HOTSET_TINY_MOE_DIR=$here/data/tiny-moe
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

echo '== 1. A Mixture-of-Experts model with room for a quarter of its experts'
"$tiny_moe" generate --prompt-file "$HOTSET_TINY_MOE_DIR/prompts/tool-2.txt" --tokens 120 \
  --expert-budget 25% --scope shared --eviction similar_steps 2>&1

echo
echo '== 2. Does paging change the output? Every policy, from the smallest cache up, against full residency'
"$tiny_moe" verify | tail -n 2

echo
echo '== 3. What the model routed, replayed under every policy; belady knows the future and is the bound'
"$tiny_moe" trace "$scratch/tiny-moe.safetensors" --tokens 128 2>/dev/null
"$hotset" simulate "$scratch/tiny-moe.safetensors" \
  --eviction lru,lfu,lfru,fifo,furthest_layer,gate_score,least_stale,two_rate,similar_steps,popularity,belady,belady_bypass \
  --slots 12.5%,25%,50% --scope shared,per-layer
echo
"$hotset" simulate "$scratch/tiny-moe.safetensors" --rank

echo
echo '== 4. The same with a clock: the next layer is prefetched, over a link at which a copy takes 0.6 ms'
"$tiny_moe" trace "$scratch/scored.safetensors" --tokens 64 --with predictions 2>/dev/null
"$hotset" simulate "$scratch/scored.safetensors" --eviction lru,lfru,least_stale --slots 25% \
  --prefetch no_prefetch,next_layer_top_k,score_threshold --link 40MB/s --compute 2ms+50us
