#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the tables of docs/papers/fmoe.md, and the last column of docs/papers/systems.md (`eviction`).
#   benchmarks/reproduction/fmoe.sh BUILD_DIR STUDY
# STUDY: systems eviction capacity distance replacement predictors learnt, or all.
# Texts are tiny-moe's held-out ones below HOTSET_DATA_DIR; without them its prompts, and the heading says so.
# BUILD_DIR/reproduction keeps the recorded windows, the trained gate and every replay of these programs on these texts:
# a stopped study continues.
studies='systems eviction capacity distance replacement predictors learnt'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"

# Windows of 256 bytes, each a request: seven of ten are stored, every fourth of the others is replayed.
windows() {
  choose_texts
  local key
  key=$(cat "$hotset" "$tiny_moe" "${texts[@]}" | cksum | tr ' ' -)
  kept=$build/reproduction/fmoe-$key
  if [ ! -d "$kept" ]; then
    record_windows
    rm -rf "$build"/reproduction/fmoe-*
    mkdir -p "$kept.part"
    mv stored.trace replayed.trace tiny.gate "$kept.part/"
    mv "$kept.part" "$kept"
  fi
  cd "$kept"
}
record_windows() {
  mkdir -p stored replayed
  local n=0 text
  for text in "${texts[@]}"; do
    split -b 256 -a 4 --additional-suffix=.txt "$text" "$(basename "$text" .txt)-"
    for window in "$(basename "$text" .txt)"-????.txt; do
      n=$((n + 1))
      if [ $((n % 10)) -lt 7 ]; then mv "$window" stored/
      elif [ $((n % 40)) -eq 9 ]; then mv "$window" replayed/
      fi
    done
  done
  local with='hidden,probabilities,predictions,logits'
  "$tiny_moe" trace stored.trace --prompts stored/*.txt --tokens 1 --with $with 2>/dev/null
  "$tiny_moe" trace replayed.trace --prompts replayed/*.txt --tokens 1 --with $with 2>/dev/null
  studies train-gate stored.trace --out tiny.gate --depth 4 --epochs 4 >/dev/null
}
# A copy takes 0.4 or 2 times as long as a layer's arithmetic.
link() { # RHO
  case "$1" in
    0.4) echo '--link 57.6MB/s --compute 1ms' ;;
    2) echo '--link 11.52MB/s --compute 1ms' ;;
  esac
}
# Prints and keeps the output of `hotset simulate OPTIONS... --csv`.
replay() { # OPTIONS...
  local file
  file=$(printf '%s\n' "$@" | cksum | tr ' ' -).csv
  if [ ! -e "$file" ]; then
    "$hotset" simulate "$@" --csv >"$file.part" 2>/dev/null
    mv "$file.part" "$file"
  fi
  cat "$file"
}
run() { # OPTIONS...
  replay replayed.trace --as decode --learn-from stored.trace --scope shared "$@"
}
# Reads CSV under "@NAME" lines. Ready hits are hits whose copy had ended; a step without a stall takes 12 layer times.
# Without a clock each copy holds up the arithmetic for as long as it takes.
rows() { # RHO
  awk -F, -v rho="$1" '
    /^@/ { name = substr($0, 2); next }
    /^trace,/ { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { a = $at["accesses"]
      pr = $at["prefetch_precision"] == "" ? "- | -" : sprintf("%.3f | %.3f", $at["prefetch_precision"], $at["prefetch_recall"])
      sure = $at["forecast_confidence"] == "" ? "-" : sprintf("%.3f", $at["forecast_confidence"])
      copies = $at["bytes_filled"] / 23040 / $at["steps"]
      time = $at["total_s"] == "" ? 12 + rho * copies : 1000 * $at["total_s"] / $at["steps"]
      printf "| %s | %.3f | %.3f | %s | %s | %.2f | %.2f |\n", name, ($at["hits"] - $at["late_prefetches"]) / a,
        $at["hits"] / a, pr, sure, time, copies }'
}
head_of() { # TITLE
  echo "| $1 | hit, ready | hit, or in flight | precision | recall | similarity | layer times a step | copies a step |"
  echo '|---|---|---|---|---|---|---|---|'
}
arm() { # NAME OPTIONS...
  echo "@$1"
  run "${@:2}"
}

systems() {
  windows
  for slots in 25% 50%; do
    for rho in 0.4 2; do
      head_of "$slots, rho $rho"
      local at="--slots $slots $(link $rho)"
      { arm '`on-demand`' $at --preset on-demand
        arm '`deepspeed`' $at --preset deepspeed
        arm '`brainstorm`' $at --preset brainstorm
        arm '`mixtral-offloading`' $at --preset mixtral-offloading
        arm '`mixtral-offloading`, copies that block' --slots $slots --preset mixtral-offloading
        arm '`promoe`' $at --preset promoe --gate-weights tiny.gate
        arm '`promoe`, one layer ahead' $at --preset promoe --gate-weights tiny.gate --prefetch next_layer_top_k
        arm '`promoe`, one, two and three ahead' $at --preset promoe --gate-weights tiny.gate \
          --prefetch next_layer_top_k:depth=3
        arm '`moe-infinity`' $at --preset moe-infinity
        arm '`moe-infinity`, `likeliest` first' $at --preset moe-infinity --prefetch-order likeliest
        arm '`moe-infinity` evicting by `lfu:history=resident`' $at --preset moe-infinity --eviction lfu:history=resident
        arm '`fmoe`' $at --preset fmoe
        arm '`fmoe`, `freq=resident`' $at --preset fmoe --eviction expert_map_priority:freq=resident
        arm '`fmoe` evicting by `lru`' $at --preset fmoe --eviction lru
        arm '`fmoe`, nearest first' $at --preset fmoe --prefetch-order nearest
        arm '`fmoe`, K of one, two and three ahead' $at --preset fmoe --prefetch next_layer_top_k:depth=3
        arm '`moe-infinity`, copies that block' --slots $slots --preset moe-infinity
        arm 'Belady' $at --eviction belady
      } | rows $rho
      echo
    done
  done
}
# Each system unchanged, then with similar_steps as eviction.
eviction() {
  windows
  local rho system
  for rho in 0.4 2; do
    head_of "50 %, rho $rho"
    local at="--slots 50% $(link $rho)"
    for system in mixtral-offloading promoe moe-infinity fmoe; do
      local gate=''
      [ "$system" != promoe ] || gate='--gate-weights tiny.gate'
      { arm "\`$system\`" $at --preset $system $gate
        arm '- evicting by `similar_steps`' $at --preset $system $gate --eviction similar_steps
      } | rows $rho
    done
  done
}

capacity() {
  windows
  head_of 'maps'
  for c in 64 256 1000 4000 10000 50000; do
    arm "$c" --slots 50% $(link 0.4) --preset fmoe --predictor expert-map:capacity=$c
  done | rows 0.4
}
distance() {
  windows
  for rho in 0.4 2; do
    head_of "distance, rho $rho"
    for d in 1 2 3 4 6 8; do
      arm "$d" --slots 50% $(link $rho) --preset fmoe --prefetch cumulative_probability:distance=$d
    done | rows $rho
    echo
  done
}
replacement() {
  windows
  head_of 'when the store is full'
  for replace in fifo redundancy; do
    for c in 64 256 1000; do
      arm "\`$replace\`, $c maps" --slots 50% $(link 0.4) --preset fmoe \
        --predictor expert-map:capacity=$c:replace=$replace
    done
  done | rows 0.4
  echo
  head_of 'storage'
  for storage in fp32 fp16 int8; do
    arm "\`$storage\`" --slots 50% $(link 0.4) --preset fmoe --predictor expert-map:storage=$storage
  done | rows 0.4
}

# Precision and recall at K of the layer D ahead. All K best are requested, resident or not. Only recall compares
# predictors: one without an answer at a step's start requests nothing for the first layers.
precision() { # TRACE OPTIONS...
  replay "$1" --as decode --scope shared --slots 50% --eviction lru "${@:2}" |
    awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
      { printf "%s,%s,%.3f,%.3f\n", $at["predictor"], $at["prefetch"], $at["prefetch_precision"], $at["prefetch_recall"] }'
}
predictors() {
  windows
  local ids=last-routed,co-activation,activation-matrix,mixed+co-activation+last-routed+activation-matrix
  ids+=,similar-steps,mixed+co-activation+last-routed+activation-matrix+similar-steps
  local maps=expert-map:capacity=1000,expert-map:capacity=10000,expert-map:capacity=50000
  local long=similar-steps:rows=1024,similar-steps:rows=32768
  local gates=current-gate,learned-gate:weights=tiny.gate
  local mix=mixed+co-activation+last-routed+activation-matrix+expert-map:capacity=10000+learned-gate:weights=tiny.gate
  mix+=,mixed+co-activation+last-routed+activation-matrix+expert-map:capacity=50000+learned-gate:weights=tiny.gate
  for d in 1 2 3 4; do
    echo "-- tiny-moe, $d ahead: predictor, precision and recall at K"
    precision replayed.trace --learn-from stored.trace --prefetch "next_layer_top_k:from=$d:depth=$d" \
      --predictor "$ids,$long,$maps,$gates,$mix"
  done
  precision replayed.trace --learn-from stored.trace --prefetch next_layer_top_k --predictor recorded
  if [ -z "$data" ]; then
    skipped 'gemma and esft-law' routing
    return
  fi
  local routed=expert-map:capacity=1000:source=weights,expert-map:capacity=10000:source=weights
  routed+=,similar-steps:rows=1024,mixed:rate=3+co-activation+last-routed+activation-matrix+similar-steps
  local three=mixed+co-activation+last-routed+activation-matrix
  local mixes=$three+expert-map:capacity=1000:source=weights,$three+expert-map:capacity=10000:source=weights
  for trace in "$data/routing/bigmoe-gemma/gemma.route.csv" "$data/routing/esft-law/esft-law.tar.xz"; do
    for d in 1 2 3 4; do
      echo "-- $(basename "$trace"), $d ahead"
      precision "$trace" --prefetch "next_layer_top_k:from=$d:depth=$d" --predictor "$ids,$routed,$mixes"
    done
  done
}
# Precision at K one layer ahead over Gemma's tokens after the N-th; the predictors learn from the first N. It is
# (all * precision over all - N * precision over the first N) / (all - N). 29 tokens are the prompt.
learnt() {
  if [ -z "$data" ]; then
    leave_out learnt routing/bigmoe-gemma
    return
  fi
  local trace=$data/routing/bigmoe-gemma/gemma.route.csv tokens=157 first
  local asked=co-activation,expert-map:capacity=1000:source=weights,similar-steps
  asked+=,mixed:rate=3+co-activation+last-routed+activation-matrix+similar-steps
  echo '-- gemma, 1 ahead: predictor, precision at K over the tokens after the 0th, 29th, 60th and 78th'
  for first in $tokens 29 60 78; do
    precision "$trace" --first $first --prefetch next_layer_top_k --predictor "$asked" | sed "s/^/$first,/"
  done | awk -F, -v tokens=$tokens '
    $1 == tokens { order[++n] = $2; all[$2] = line[$2] = $4; next }
    { line[$2] = line[$2] sprintf(" %.3f", (all[$2] * tokens - $4 * $1) / (tokens - $1)) }
    END { for (i = 1; i <= n; ++i) print order[i], line[order[i]] }'
}

run_studies
