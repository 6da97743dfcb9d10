#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What SpecMD claims, measured here: the tables of docs/reproduction.md.
#   benchmarks/reproduction/specmd.sh BUILD_DIR STUDY
# STUDY: collisions ttft prefetch misses routing clock, or all.
# HOTSET_DATA_DIR, if set, adds the recorded traces and the held-out texts that are not in the repository.
studies='collisions ttft prefetch misses routing clock'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"

# The shapes of SpecMD's Table 3, experts at 4 bits; 4 requests of a prompt and an answer each.
shape() { # name layers experts top-k bytes
  "$hotset" synth "$1.trace" --name "$1" --layers "$2" --experts "$3" --top-k "$4" \
    --expert-bytes "$5" --sequences 4 --prefill 32 --tokens 64 --zipf 0.6 --stickiness 0.3 \
    --seed 2026 --scores --predictor-noise 0.1 >/dev/null
}
shapes() {
  shape olmoe 16 64 8 3MB
  shape mixtral 32 8 2 84MB
  shape qwen1.5 24 60 4 4125000B
  shape phi-3.5 32 16 2 37500000B
}
tiny() {
  "$tiny_moe" trace tiny-moe.trace --tokens 64 --with logits,probabilities,predictions 2>/dev/null
}
real() {
  [ -n "$data" ] || return 0
  echo "$data/routing/bigmoe-gemma/gemma.route.csv" "$data/routing/esft-law/esft-law.tar.xz"
}
texts() {
  if [ -n "$data" ] && [ -d "$data/tiny-moe/heldout" ]; then
    ls "$data"/tiny-moe/heldout/*.txt
  else
    ls "$HOTSET_TINY_MOE_DIR"/prompts/*.txt
  fi
}
link='--link 5GB/s --latency 10us --compute 100us+5us'

# Sizes below one token's cycle and below top-k are left out by hand: a size that cannot work ends the program.
collisions() {
  local policies='lru,furthest_layer,gate_score,least_stale'
  shapes; tiny
  echo '-- without prefetch'
  "$hotset" simulate olmoe.trace mixtral.trace qwen1.5.trace phi-3.5.trace \
    --eviction $policies --slots 1%,5%,25%
  "$hotset" simulate tiny-moe.trace $(real) --eviction $policies --slots 12.5%,25%,50%
  echo '-- prefetching the next layer by score, guard none, as SpecMD does'
  "$hotset" simulate olmoe.trace mixtral.trace qwen1.5.trace phi-3.5.trace \
    --eviction $policies --prefetch score_threshold --prefetch-guard none --slots 1%,5%,25%
  "$hotset" simulate tiny-moe.trace --eviction $policies --prefetch score_threshold \
    --prefetch-guard none --slots 12.5%,25%,50%
  if [ -n "$data" ]; then
    echo '-- recorded traces have no predictions: an oracle of 90 % precision and recall'
    "$hotset" simulate $(real) --eviction $policies --prefetch noisy_oracle:precision=0.9:recall=0.9 \
      --prefetch-guard none --slots 12.5%,25%,50%
  fi
}
ttft() {
  local presets=eliseev-23,eliseev-23+least_stale,zhu-25,zhu-25+least_stale
  presets=$presets,mixture-cache-25,mixture-cache-25+least_stale
  shapes; tiny
  for size in 1% 5% 25%; do
    "$hotset" simulate olmoe.trace mixtral.trace qwen1.5.trace phi-3.5.trace \
      --preset $presets --slots $size $link
    "$hotset" simulate olmoe.trace mixtral.trace qwen1.5.trace phi-3.5.trace \
      --preset hobbit-24,hobbit-24+least_stale --precision 4:2 --slots $size $link
  done
  # Of the recorded traces one says how large its experts are; it has no scores, so two systems and an oracle.
  if [ -n "$data" ]; then
    "$hotset" simulate "$data/routing/bigmoe-gemma/gemma.route.csv" --preset eliseev-23,eliseev-23+least_stale \
      --prefetch no_prefetch,noisy_oracle:precision=0.9:recall=0.9 --slots 12.5%,25%,50% $link
  fi
  # The tiny model's experts are 23 KB: a link at which a copy takes as long as OLMoE's does at 5 GB/s.
  "$hotset" simulate tiny-moe.trace --preset $presets --slots 12.5%,25%,50% \
    --link 40MB/s --latency 10us --compute 100us+5us
  "$hotset" simulate tiny-moe.trace --preset hobbit-24,hobbit-24+least_stale --precision 16:8 \
    --slots 12.5%,25%,50% --link 40MB/s --latency 10us --compute 100us+5us
}
prefetch() {
  local prefetchers=no_prefetch,next_layer_top_k,next_layer_top_k:overfetch=1.5
  prefetchers=$prefetchers,next_layer_top_k:overfetch=2,score_threshold
  shapes; tiny
  "$hotset" simulate olmoe.trace mixtral.trace qwen1.5.trace phi-3.5.trace --eviction least_stale \
    --prefetch $prefetchers --prefetch-guard none --slots 1%,5%,25% $link
  "$hotset" simulate tiny-moe.trace --eviction least_stale --prefetch $prefetchers \
    --prefetch-guard none --slots 12.5%,25%,50% --link 40MB/s --latency 10us --compute 100us+5us
}
misses() {
  local common='--limit 4096 --expert-budget 25% --eviction least_stale'
  # The same bytes for all: 8-bit slots alone, or divided among three precisions.
  "$tiny_moe" evaluate --text $(texts) $common --precision 8 --miss fetch,drop,substitute
  "$tiny_moe" evaluate --text $(texts) $common --precision 8:4:2 \
    --miss fetch_lowest,fetch_priority,drop_cascade
}
routing() {
  local lambdas=router_order
  for lambda in 0.05 0.1 0.2 0.3 0.5 0.7 1; do lambdas=$lambdas,cache_aware:lambda=$lambda; done
  "$tiny_moe" evaluate --text $(texts) --limit 2048 --expert-budget 12.5%,25%,50% --eviction lru \
    --routing $lambdas
}
clock() {
  "$tiny_moe" clock --expert-budget 25%,50% --eviction lru,least_stale \
    --prefetch no_prefetch,next_layer_top_k --link 10MB/s --latency 100us --tokens 24 \
    --prompts "$HOTSET_TINY_MOE_DIR"/prompts/tool-1.txt "$HOTSET_TINY_MOE_DIR"/prompts/math-1.txt
}

run_studies
