#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the tables of docs/papers/wisp.md about its co-activation predictor: Figure 4 and prefetch.
#   benchmarks/reproduction/coactivation.sh BUILD_DIR STUDY
# STUDY: figure4 reach prefetch, or all.
# HOTSET_DATA_DIR, if set, adds the held-out texts and the recorded traces that are not in the repository; reach and
# prefetch need it.
studies='figure4 reach prefetch'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"
study='--study personal-vs-population'

# Users are topics. Sessions have 256 bytes, the length of the model's training texts.
held_out() {
  for topic in code math prose tool; do
    split -b 256 -d -a 3 "$data/tiny-moe/heldout/$topic.txt" $topic-
    "$tiny_moe" trace $topic.trace --prompts $topic-??? --tokens 1 >/dev/null 2>&1
  done
}
law=$data/routing/esft-law/esft-law.tar.xz
figure4() {
  echo '-- tiny-moe: the prompts of each topic, each continued by 512 tokens'
  for topic in code math prose tool; do
    "$tiny_moe" trace $topic.trace --prompts "$HOTSET_TINY_MOE_DIR"/prompts/$topic-?.txt \
      --tokens 512 >/dev/null 2>&1
  done
  studies coactivation {code,math,prose,tool}.trace $study --sizes 64,128,256,512
  if has_held_out; then
    echo '-- tiny-moe: held-out texts, 128 sessions of 256 tokens a topic'
    held_out
    studies coactivation {code,math,prose,tool}.trace $study --sizes 64,256,512,1024,4096,16384
  else
    skipped 'the held-out texts' tiny-moe/heldout
  fi
  if [ -z "$data" ]; then
    skipped 'the law texts' routing/esft-law
    return
  fi
  echo '-- law texts: each sequence is a user'
  studies coactivation "$law" $study --users sequences --sizes 16,32,64,128
  studies coactivation "$law" $study --users sequences --sizes 64,128,256
}

# Figure 4 at other settings of the predictor; the rows over all users.
reach() {
  if ! has_held_out; then
    leave_out reach tiny-moe/heldout
    return
  fi
  held_out
  for reach in 1 3 4 6; do
    for decay in 0.25 0.5 0.8 1; do
      echo "-- reach $reach, decay $decay: held-out texts, then law texts"
      studies coactivation {code,math,prose,tool}.trace $study --sizes 256,4096 --reach $reach \
        --decay $decay | grep '^all'
      studies coactivation "$law" $study --users sequences --sizes 64,128 --reach $reach \
        --decay $decay | grep '^all'
    done
  done
}

# One row per link and size: stall of a step, time of a token and GiB copied under each prefetcher.
table() {
  awk -F, '
    NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { key = $at["link"] " | " $at["slots"]
      if (!(key in seen)) { seen[key] = 1; order[++rows] = key }
      arm = $at["prefetch"] == "no_prefetch" ? "off" : $at["prefetch"] == "noisy_oracle" ? "oracle" \
            : $at["prefetch_guard"]
      stall[key, arm] = 1000 * $at["blocking_io_s"] / $at["steps"]
      token[key, arm] = 1000 * $at["tpot_s"]; gib[key, arm] = $at["bytes_filled"] / 2 ^ 30
      right[key] = arm == "named" ? 100 * $at["prefetch_precision"] : right[key] }
    END {
      print "| link | slots | stall, ms a step: off / named / none / oracle | ms a token | GiB copied | precision % |"
      print "|---|---|---|---|---|---|"
      for (r = 1; r <= rows; ++r) { k = order[r]
        printf "| %s | %.2f / %.2f / %.2f / %.2f | %.2f / %.2f / %.2f / %.2f | %.1f / %.1f / %.1f / %.1f | %.1f |\n", k,
          stall[k, "off"], stall[k, "named"], stall[k, "none"], stall[k, "oracle"],
          token[k, "off"], token[k, "named"], token[k, "none"], token[k, "oracle"],
          gib[k, "off"], gib[k, "named"], gib[k, "none"], gib[k, "oracle"], right[k] } }'
}
# Rows over one link by the number of requests; a copy gives way to a demand after CHUNK bytes (0: never).
by_eagerness() { # CHUNK SIMULATE_ARGUMENTS
  "$hotset" simulate "${@:2}" --chunk "$1" 2>/dev/null | awk -F, -v chunk="$1" '
    NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { printf "| %s | %s | `%s` | %.2f | %.1f |\n", chunk, $at["slots"], $at["prefetch"],
        1000 * $at["tpot_s"], $at["bytes_filled"] / 2 ^ 30 }'
}
# One token per step; 200 us of arithmetic in each layer.
prefetch() {
  if [ -z "$data" ]; then
    leave_out prefetch routing
    return
  fi
  local common='--as decode --eviction lru --prefetch no_prefetch,next_layer_top_k,noisy_oracle'
  common="$common --prefetch-guard named,none --predictor co-activation --compute 200us --csv"
  echo '-- gemma'
  "$hotset" simulate "$data/routing/bigmoe-gemma/gemma.route.csv" $common \
    --slots 5%,12.5%,25%,50% --link 5GB/s,25GB/s,200GB/s 2>/dev/null | table
  echo '-- gemma, a cap for every layer'
  "$hotset" simulate "$data/routing/bigmoe-gemma/gemma.route.csv" $common --scope per-layer \
    --slots 6.25%,12.5%,25%,50% --link 5GB/s,25GB/s,200GB/s 2>/dev/null | table
  echo '-- gemma, the slow link: more and more asked for'
  echo '| chunk | slots | prefetch | ms a token | GiB copied |'
  echo '|---|---|---|---|---|'
  local ask=no_prefetch,next_layer_top_k,next_layer_top_k:overfetch=2,next_layer_top_k:overfetch=4
  for chunk in 1MiB 0; do
    by_eagerness $chunk "$data/routing/bigmoe-gemma/gemma.route.csv" --as decode --eviction lru \
      --prefetch $ask --prefetch-guard none --predictor co-activation --compute 200us --csv \
      --slots 5%,12.5%,25% --link 5GB/s
  done
  echo '-- law texts, experts of the size of DeepSeek-V2-Lite (3 x 2048 x 1408 of two bytes)'
  "$hotset" import "$law" law.trace --expert-bytes 17301504B >/dev/null
  "$hotset" simulate law.trace $common --slots 12.5%,25%,50%,75% --link 25GB/s,200GB/s,1000GB/s \
    2>/dev/null | table
  echo '-- law texts, a cap for every layer'
  "$hotset" simulate law.trace $common --scope per-layer --slots 12.5%,25%,50%,75% \
    --link 25GB/s,200GB/s,1000GB/s 2>/dev/null | table
}

run_studies
