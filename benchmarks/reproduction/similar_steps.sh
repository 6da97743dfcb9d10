#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the figures of similar_steps in docs/which-policy.md.
#   HOTSET_DATA_DIR=... benchmarks/reproduction/similar_steps.sh BUILD_DIR STUDY
# STUDY: gap batches parts clock history, or all. They need the recorded traces, which are not in the repository.
studies='gap batches parts clock history'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"
if [ -z "$data" ]; then
  echo "similar_steps.sh: no HOTSET_DATA_DIR; accepted: a folder as CONTRIBUTING.md describes" >&2
  exit 1
fi
gemma=$data/routing/bigmoe-gemma/gemma.route.csv
law=$data/routing/esft-law/esft-law.tar.xz

# hotset simulate on both traces, with further options.
on_both() {
  "$hotset" simulate "$gemma" "$@"
  "$hotset" simulate "$law" --first 2000 --as decode "$@"
}

# Every policy's share of the gap, and its mean over both traces.
gap() {
  on_both --rank
  echo '-- mean of both traces'
  on_both --rank --csv 2>/dev/null | awk -F, '
    $1 == "trace" { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    $at["mean_gap_closed"] != "" { mean[$at["trace"], $at["eviction"]] = $at["mean_gap_closed"]; of[$at["eviction"]] }
    { traces[$at["trace"]] }
    END { for (policy in of) {
            sum = n = 0
            for (trace in traces) if ((trace, policy) in mean) { sum += mean[trace, policy]; ++n }
            if (n == 2) printf "%5.1f %s\n", 100 * sum / n, policy } }' | sort -rn
  echo '-- a trace on which nothing was chosen'
  local intent=$data/routing/esft-intent/esft-intent.tar.xz
  if [ -r "$intent" ]; then
    "$hotset" simulate "$intent" --first 2000 --as decode --rank
  else
    skipped intent routing/esft-intent
  fi
}
# Sequences that decode together.
batches() {
  local together
  for together in 4 8; do
    echo "-- law, $together sequences together"
    "$hotset" simulate "$law" --first 2000 --as "decode:$together" --rank
  done
}
# One number per policy: the mean share over gemma and law, three sizes, both scopes.
shares() {
  on_both --eviction "lru,belady,$1" --scope shared,per-layer --slots 12.5%,25%,50% --csv 2>/dev/null |
    awk -F, '
    $1 == "trace" { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { cell = $at["trace"] "/" $at["scope"] "/" $at["slots"]
      misses[$at["eviction"], cell] = $at["misses"]
      if ($at["eviction"] == "lru") cells[++n] = cell
      else if ($at["eviction"] != "belady" && !($at["eviction"] in seen)) { seen[$at["eviction"]]; order[++policies] = $at["eviction"] } }
    END { for (p = 1; p <= policies; ++p) {
            sum = least = 0
            for (c = 1; c <= n; ++c) {
              share = 100 * (misses["lru", cells[c]] - misses[order[p], cells[c]]) / (misses["lru", cells[c]] - misses["belady", cells[c]])
              sum += share
              of[cells[c] ~ /^gemma/ ? "gemma" : "law"] += share
            }
            printf "| `%s` | %.1f | %.1f | %.1f |\n", order[p], of["gemma"] / 6, of["law"] / 6, sum / n
            delete of } }'
}
parts() {
  echo '-- mean share of the gap: gemma, law, both'
  local s=similar_steps
  shares "$s,$s:matches=8,$s:matches=32,$s:horizon=4,$s:horizon=12,$s:rows=256,$s:rows=512,$s:rows=2048,$s:reach=2,$s:reach=8,$s:sharpness=5,$s:sharpness=20,$s:discount=0.4,$s:discount=0.8,two_rate"
}
# Milliseconds a token over 25 GB/s, 100 us of arithmetic a layer, law's experts in 16 bits; without the policy's time.
clock() {
  "$hotset" import "$law" law.trace --first 2000 --as decode --expert-bytes 16.5MiB >/dev/null
  local trace
  for trace in "$gemma" law.trace; do
    "$hotset" simulate "$trace" --eviction lru,lfu,lfru,least_stale,two_rate,similar_steps,belady \
      --scope per-layer --slots 12.5%,25%,50% --link 25GB/s --compute 100us \
      --columns eviction,slots,hit,tpot 2>/dev/null
  done
}

# A history of seven windows of ten, for three other windows of the same kind of text.
history() {
  if ! has_held_out; then
    leave_out history tiny-moe/heldout
    return
  fi
  local kind window n
  for kind in code tool; do
    mkdir -p "$kind.stored" "$kind.replayed"
    split -b 256 -a 4 --additional-suffix=.txt "$data/tiny-moe/heldout/$kind.txt" "$kind-"
    n=0
    for window in "$kind"-????.txt; do
      n=$((n + 1))
      if [ $((n % 10)) -lt 7 ]; then mv "$window" "$kind.stored/"
      elif [ $((n % 40)) -eq 9 ]; then mv "$window" "$kind.replayed/"
      fi
    done
    "$tiny_moe" trace "$kind.trace" --prompts "$kind".replayed/*.txt --tokens 1 2>/dev/null
    "$tiny_moe" trace "$kind.stored.trace" --prompts "$kind".stored/*.txt --tokens 1 2>/dev/null
    "$hotset" history "$kind.stored.trace" --as decode --rows 32768 --out "$kind.history"
    local s=similar_steps
    "$hotset" simulate "$kind.trace" --as decode --slots 25%,50% \
      --eviction "lru,$s,$s:from=$kind.history,$s:rows=8192:from=$kind.history,$s:rows=32768:from=$kind.history,belady"
    "$hotset" simulate "$kind.trace" --as decode --slots 25%,50% --first 256 \
      --eviction "lru,$s,$s:from=$kind.history,$s:rows=8192:from=$kind.history,$s:rows=32768:from=$kind.history,belady"
  done
  echo '-- program code with a history of tool calls'
  "$hotset" simulate code.trace --as decode --slots 25%,50% --eviction "similar_steps,similar_steps:from=tool.history"
}

run_studies
