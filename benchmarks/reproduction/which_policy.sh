#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the tables of published policies in docs/which-policy.md.
#   HOTSET_DATA_DIR=... benchmarks/reproduction/which_policy.sh BUILD_DIR STUDY
# STUDY: decode prefill prefetch, or all. They need the recorded traces, which are not in the repository.
studies='decode prefill prefetch'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"
if [ -z "$data" ]; then
  echo "which_policy.sh: no HOTSET_DATA_DIR; accepted: a folder as CONTRIBUTING.md describes" >&2
  exit 1
fi
gemma=$data/routing/bigmoe-gemma/gemma.route.csv
law=$data/routing/esft-law/esft-law.tar.xz

# One row per policy, one column per size, for every trace in turn.
hits() {
  awk -F, '
    $1 == "trace" { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { name = $at["eviction"]
      if ($at["prefetch"] != "no_prefetch") name = name "`, `" $at["prefetch_guard"]
      if (!(name in row)) { order[++rows] = name; row[name] = "" }
      row[name] = row[name] sprintf(" %.1f / %.2f |", 100 * $at["hits"] / $at["accesses"],
                                    100 * $at["collision_misses"] / $at["accesses"]) }
    END { for (r = 1; r <= rows; ++r) printf "| `%s` |%s\n", order[r], row[order[r]] }'
}
# Several runs in one table.
decode() {
  local policies=lru,lfu,lfu:history=resident,lfru,fifo,furthest_layer,gate_score,least_stale,protect_hot+lru,belady
  for scope in shared per-layer; do
    echo "-- one token a step, $scope; hits % / collisions % at 12.5, 25, 50 % of gemma, then of law"
    for trace in "$gemma" "$law"; do
      "$hotset" simulate "$trace" --as decode --eviction $policies --scope $scope \
        --slots 12.5%,25%,50% --csv 2>/dev/null
    done | hits
  done
}
prefill() {
  for scope in shared per-layer; do
    echo "-- law, a sequence a step, $scope; hits % / collisions % at 10, 20, 50 %"
    "$hotset" simulate "$law" --as prefill --eviction lru,lfu,lfru,furthest_layer,least_stale,belady \
      --scope $scope --slots 10%,20%,50% --csv 2>/dev/null | hits
  done
}
prefetch() {
  echo '-- gemma, one token a step, shared, prefetch by an oracle of 90 %; hits % / collisions % at 12.5, 25, 50 %'
  "$hotset" simulate "$gemma" --as decode --eviction lru,lfru,furthest_layer,least_stale \
    --prefetch noisy_oracle:precision=0.9:recall=0.9 --prefetch-guard none,named --slots 12.5%,25%,50% \
    --csv 2>/dev/null | hits
}

run_studies
