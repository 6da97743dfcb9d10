#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the tables of docs/papers/specmd.md, at all sizes.
#   benchmarks/reproduction/specmd.sh BUILD_DIR STUDY
# STUDY: collisions readings layers ttft prefetch misses routing clock, or all.
# HOTSET_DATA_DIR, if set, adds the recorded traces and the held-out texts that are not in the repository. Without them
# the script names each study that it skips or runs on other texts.
studies='collisions readings layers ttft prefetch misses routing clock'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"

# Shapes of SpecMD's Table 3, experts at 4 bits; 16 requests with a prompt and an answer each.
shape() { # name layers experts top-k bytes
  "$hotset" synth "$1.trace" --name "$1" --layers "$2" --experts "$3" --top-k "$4" \
    --expert-bytes "$5" --sequences 16 --prefill 32 --tokens 64 --zipf 0.6 --stickiness 0.3 \
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
real=()
[ -z "$data" ] || real=("$data/routing/bigmoe-gemma/gemma.route.csv" "$data/routing/esft-law/esft-law.tar.xz")
# SpecMD's sizes are shares of the 16-bit bytes. 25 % of those hold every 4-bit expert; at 8 bits they hold half.
sizes='1%@16:4,5%@16:4,25%@16:8'
link='--link 5GB/s --latency 10us'
# A link that is never idle; and the arithmetic that remains in Table 1's fastest configuration beside copying all
# experts of a token: (1 / tokens/s - copies) / layers, divided by the experts used (a prompt of 32 tokens uses nearly
# all).
busy="$link --compute 100us+5us"
table_1() { # name
  case "$1" in
    olmoe) echo "$link --compute 17ms+5ms" ;;           # 1 / 2.33 s - 77 ms: 22 ms a layer
    mixtral) echo "$link --compute 100us+5us" ;;        # 1 / 1.42 s - 1075 ms: nothing remains
    phi-3.5) echo "$link --compute 2500us+720us" ;;     # 1 / 1.72 s - 480 ms: 3.2 ms
    qwen1.5) echo "$link --compute 4700us+3900us" ;;    # 1 / 3.50 s - 79 ms: 8.6 ms
  esac
}
# Table 1's clock with the constant part of a layer's time before its gate: prefetches have that time, too.
before_gate() { # name
  table_1 "$1" | sed -E 's/--compute ([0-9a-z]+ms|[0-9]{3,}us)\+([0-9]+[a-z]+)/--gate \1 --compute 0us+\2/'
}
models='olmoe mixtral qwen1.5 phi-3.5'
policies='lru,furthest_layer,gate_score,least_stale'
prefetched='--prefetch score_threshold --prefetch-guard none'

# Hit rate / collision misses, both in % of accesses: one row per trace and size, one column per policy.
hits_and_collisions() {
  awk -F, '
    $1 == "trace" { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { row = $at["trace"] " | " $at["slots"]; policy = $at["eviction"]
      if (!(policy in known)) { known[policy]; order[++policies] = policy }
      if (!(row in cells)) rows[++n] = row
      cells[row]; a = $at["accesses"]
      cell[row, policy] = sprintf("%.1f / %.2f", 100 * $at["hits"] / a, 100 * $at["collision_misses"] / a) }
    END {
      printf "| trace | slots |"; for (p = 1; p <= policies; ++p) printf " `%s` |", order[p]
      printf "\n|---|---|"; for (p = 1; p <= policies; ++p) printf "---|"; print ""
      for (r = 1; r <= n; ++r) {
        printf "| %s |", rows[r]; for (p = 1; p <= policies; ++p) printf " %s |", cell[rows[r], order[p]]; print "" } }'
}
counted() { # TRACES_AND_OPTIONS...
  "$hotset" simulate "$@" --csv 2>/dev/null
}
on_shapes() { # OPTIONS...
  counted olmoe.trace mixtral.trace qwen1.5.trace phi-3.5.trace --slots "$sizes" "$@"
}
# Sizes below one token's cycle and below top-k are left out by hand, because an impossible size ends the program.
collisions() {
  shapes; tiny
  echo '-- hit rate / collision misses, % of accesses; without prefetch'
  { on_shapes --eviction $policies
    counted tiny-moe.trace "${real[@]}" --eviction $policies --slots 12.5%,25%,50%
  } | hits_and_collisions
  echo '-- prefetching the next layer by score, guard none, as SpecMD does; a visit is one event'
  { on_shapes --eviction $policies $prefetched
    counted tiny-moe.trace --eviction $policies $prefetched --slots 12.5%,25%,50%
  } | hits_and_collisions
  echo '-- the same, expert by expert'
  { on_shapes --replay expert-by-expert --eviction $policies $prefetched
    counted tiny-moe.trace --replay expert-by-expert --eviction $policies $prefetched --slots 12.5%,25%,50%
  } | hits_and_collisions
  echo '-- the same on a clock'
  for model in $models; do
    counted "$model.trace" --replay expert-by-expert --eviction $policies $prefetched --slots "$sizes" $(before_gate "$model")
  done | hits_and_collisions
  if [ -n "$data" ]; then
    echo '-- recorded traces have no predictions: an oracle of 90 % precision and recall'
    counted "${real[@]}" --eviction $policies --prefetch noisy_oracle:precision=0.9:recall=0.9 \
      --prefetch-guard none --slots 12.5%,25%,50% | hits_and_collisions
  else
    skipped 'gemma and esft-law' routing
  fi
}
# Readings of Least-Stale in the paper (eviction/least_stale.hpp): `left`, `stale` and `layer`; compared with LRU.
orders=least_stale,least_stale:order=stale,least_stale:order=layer
readings() {
  shapes
  echo '-- hit rate / collision misses, % of accesses, expert by expert'
  counted olmoe.trace mixtral.trace qwen1.5.trace phi-3.5.trace --replay expert-by-expert \
    --eviction "lru,$orders" $prefetched --slots 5%@16:4 | hits_and_collisions
  for model in $models; do
    echo "-- $model, busy link: time to the first token"
    "$hotset" simulate "$model.trace" --preset eliseev-23,mixture-cache-25 --eviction "lru,$orders" --slots 5%@16:4 $busy \
      --columns preset,eviction,slots,hit,collision,ttft,tpot
  done
}
# Collision misses in % of each layer's accesses, by quarters of the layers from first to last: one line per run.
by_quarter() {
  awk -F'"' '
    /^\{"schema"/ { split($0, part, "\"name\":\""); sub(/".*/, "", part[2]); trace = part[2]; next }
    /^\{"eviction"/ {
      policy = $4; slots = $0; sub(/.*"slots":/, "", slots); sub(/,.*/, "", slots)
      rest = $0; sub(/.*"per_layer":\[/, "", rest); sub(/\].*/, "", rest)
      layers = split(rest, layer, "},")
      split("", used); split("", lost)
      for (l = 1; l <= layers; ++l) {
        split(layer[l], field, /[:,}]/)  # layer, accesses, hits, collision_misses
        quarter = int((l - 1) * 4 / layers)
        used[quarter] += field[4]; lost[quarter] += field[8] }
      printf "%s|%d|%s", trace, slots, policy
      for (q = 0; q < 4; ++q) printf "|%.1f", used[q] ? 100 * lost[q] / used[q] : 0
      print "" }'
}
# Figures 5 and 9: LRU, score-based and Least-Stale as in the paper, and furthest_layer.
layers() {
  shapes
  for model in $models; do
    echo "-- $model: trace|slots|policy|quarters of the layers; expert by expert with prefetch, then events without"
    # shellcheck disable=SC2086  # lists of options
    "$hotset" simulate "$model.trace" --replay expert-by-expert --eviction $policies $prefetched \
      --slots "$sizes" --json 2>/dev/null | by_quarter
    "$hotset" simulate "$model.trace" --eviction $policies --slots "$sizes" --json 2>/dev/null | by_quarter
  done
}
first_tokens() { # TRACES_AND_OPTIONS...
  "$hotset" simulate "$@" --columns preset,eviction,prefetch,slots,hit,ttft,tpot
}
ttft() {
  local presets=eliseev-23,eliseev-23+least_stale,zhu-25,zhu-25+least_stale
  presets=$presets,mixture-cache-25,mixture-cache-25+least_stale,specmd-5
  shapes; tiny
  for model in $models; do
    for clock in "$busy" "$(table_1 "$model")"; do
      echo "-- $model, $clock"
      first_tokens "$model.trace" --preset $presets --slots 5%@16:4 $clock
      first_tokens "$model.trace" --preset hobbit-24,hobbit-24+least_stale --precision 4:2 --slots 5%@16:4 $clock
    done
    echo "-- $model, substitution by its tolerance: system | miss | time to the first token, ms | replaced, % of accesses"
    counted "$model.trace" --preset zhu-25,zhu-25+least_stale \
      --miss substitute:tolerance=0.05,substitute:tolerance=0.2,substitute:tolerance=1 \
      --slots 5%@16:4 $(table_1 "$model") | awk -F, '
      NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
      { printf "%s | %s | %.0f | %.0f\n", $at["preset"], $at["miss"], 1000 * $at["ttft_s"],
          100 * $at["substituted_misses"] / $at["accesses"] }'
  done
  # Only one recorded trace says how large its experts are. It has no scores, so two systems and an oracle.
  if [ -n "$data" ]; then
    first_tokens "${real[0]}" --preset eliseev-23,eliseev-23+least_stale \
      --prefetch no_prefetch,noisy_oracle:precision=0.9:recall=0.9 --slots 12.5%,25%,50% $busy
  else
    skipped gemma routing
  fi
  # The tiny model's experts are 23 KB: the link is set so that a copy takes as long as OLMoE's at 5 GB/s.
  first_tokens tiny-moe.trace --preset $presets --slots 12.5%,25%,50% \
    --link 40MB/s --latency 10us --compute 100us+5us
}
prefetch() {
  local prefetchers=no_prefetch,next_layer_top_k,next_layer_top_k:overfetch=1.5
  prefetchers=$prefetchers,next_layer_top_k:overfetch=2,score_threshold
  local columns=prefetch,slots,prefetch-precision,prefetch-recall,hit,blocking,ttft,tpot
  shapes; tiny
  for model in $models; do
    "$hotset" simulate "$model.trace" --eviction least_stale --prefetch $prefetchers \
      --prefetch-guard none --slots 5%@16:4 $(table_1 "$model") --columns $columns
  done
  "$hotset" simulate tiny-moe.trace --eviction least_stale --prefetch $prefetchers \
    --prefetch-guard none --slots 12.5%,25%,50% --link 40MB/s --latency 10us --compute 1ms+5us --columns $columns
}
misses() {
  choose_texts
  local common='--limit 4096 --expert-budget 25% --eviction least_stale'
  # Equal bytes for all: 8-bit slots alone, or divided among three precisions.
  "$tiny_moe" evaluate --text "${texts[@]}" $common --precision 8 --miss fetch,drop,substitute
  "$tiny_moe" evaluate --text "${texts[@]}" $common --precision 8:4:2 \
    --miss fetch_lowest,fetch_priority,drop_cascade
  # Substitution's tolerance sets how much it replaces.
  local misses=fetch,drop
  for tolerance in 0.01 0.05 0.1 0.2 0.5 1; do misses=$misses,substitute:tolerance=$tolerance; done
  "$tiny_moe" evaluate --text "${texts[@]}" --limit 2048 --expert-budget 25% --eviction lru --precision 8 \
    --miss $misses
}
routing() {
  choose_texts
  local lambdas=router_order
  for lambda in 0.05 0.1 0.2 0.3 0.5 0.7 1; do lambdas=$lambdas,cache_aware:lambda=$lambda; done
  "$tiny_moe" evaluate --text "${texts[@]}" --limit 2048 --expert-budget 12.5%,25%,50% --eviction lru \
    --routing $lambdas
}
clock() {
  "$tiny_moe" clock --expert-budget 25%,50% --eviction lru,least_stale \
    --prefetch no_prefetch,next_layer_top_k --link 10MB/s --latency 100us --tokens 24 \
    --prompts "$HOTSET_TINY_MOE_DIR"/prompts/tool-1.txt "$HOTSET_TINY_MOE_DIR"/prompts/math-1.txt
}

run_studies
