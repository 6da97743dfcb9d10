#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the tables of docs/papers/wisp.md for WiSP's Tables 2 to 6, the engine and the quotas.
#   benchmarks/reproduction/wisp.sh BUILD_DIR STUDY
# STUDY: table2 table3 table4 table5 table6 engine quotas, or all.
# HOTSET_DATA_DIR, if set, adds the recorded traces that are not in the repository.
studies='table2 table3 table4 table5 table6 engine quotas'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"
law=$data/routing/esft-law/esft-law.tar.xz
gemma=$data/routing/bigmoe-gemma/gemma.route.csv
mooncake=$data/kv/mooncake-synthetic/synthetic_trace.jsonl.xz
azure=$data/kv/azure-code/AzureLLMInferenceTrace_code.csv.xz
for file in "$law" "$gemma" "$mooncake" "$azure"; do
  [ -n "$data" ] || break
  if [ ! -r "$file" ]; then
    echo "wisp.sh: HOTSET_DATA_DIR: $file is missing; accepted: a folder as CONTRIBUTING.md describes, or none" >&2
    exit 1
  fi
done

calc() { awk "BEGIN { $1 }"; }

# Prints a number from the first or second level of hotset's JSON, which has one key per line.
number() { awk -F'[:,]' -v key="\"$1\"" '$1 ~ "^  (  )?" key "$" { gsub(/ /, "", $2); print $2; exit }' "$2"; }
# One value of one alternative in the output of plan --json.
alternative() {
  awk -F'[:,]' -v name="\"$1\"" -v key="\"$2\"" \
    '$2 ~ name { found = 1 } found && $1 ~ key { gsub(/ /, "", $2); print $2; exit }' "$3"
}
# Sets slot_bytes, token_bytes and resident_bytes of a model, from plan on a device that holds any model. fixed_bytes:
# bytes that plan does not divide, with the reserve of 1 GiB and one session's windows and state.
describe() { # model
  "$hotset" plan --reserve 1GiB --model "$1" --vram 1TiB --json >model.json
  slot_bytes=$(number bytes_per_expert_slot model.json)
  token_bytes=$(number kv_bytes_per_token model.json)
  resident_bytes=$(number resident_bytes model.json)
  fixed_bytes=$((1024 ** 4 - $(number budget_bytes model.json)))
}
# The device with this many slots and one session of 4096 tokens to divide.
device_with() { # cap
  echo "$((fixed_bytes + $1 * slot_bytes + 4096 * token_bytes))B"
}
# Decode hit rate of LRU pools with this many slots in every layer, one line per size.
decode_hits() { # trace slots
  "$hotset" simulate "$1" --scope per-layer --eviction lru --slots "$2" --csv 2>/dev/null |
    awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
             { print $at["decode_hits"] / $at["decode_accesses"] }'
}

# Qwen3's shape. --zipf 0.7: the top 10 % of experts take 35 % of accesses, 36 % in published counts of Qwen3-30B-A3B.
# --stickiness 0.45: the previous step used half of a step's experts, as in the paper.
popular_and_sticky='--zipf 0.7 --stickiness 0.45 --seed 2026 --no-weights'
qwen_trace() {
  # shellcheck disable=SC2086  # a list of options
  "$hotset" synth qwen3.trace --name qwen3 --layers 48 --experts 128 --top-k 8 --tokens 2000 \
    --expert-bytes 9MiB $popular_and_sticky >/dev/null
}

# The naive rows of the paper's Table 2: GiB offloaded, tokens/s. A line fitted to their times gives seconds per GiB.
fitted_rate() { # share of the offloaded bytes that a token uses, rows -> bytes/s
  printf '50 8.96\n44 10.27\n30 13.21\n15 26.53\n' | head -n "${2:-4}" | awk -v share="$1" '
    { t = 1 / $2; n += 1; x += $1; y += t; xx += $1 * $1; xy += $1 * t }
    END { slope = (n * xy - x * y) / (n * xx - x * x); printf "%.0f\n", share / slope * 1024 ^ 3 }'
}
# Share of a Qwen3 layer's bytes that a token uses: 8 of 128 experts, attention and router.
qwen_share() {
  describe qwen3-30b-a3b
  calc "expert = $slot_bytes / 48; embeddings = 2 * 151936 * 2048 * 2
        dense = ($resident_bytes - embeddings) / 48; print (8 * expert + dense) / (128 * expert + dense)"
}

table2() {
  local share rate whole cap
  share=$(qwen_share)
  rate=$(fitted_rate "$share")
  whole=$(fitted_rate 1)
  echo '-- the rate that the naive rows imply'
  calc "printf \"if all offloaded bytes move: %.0f GB/s\nif what a token uses moves, %.2f %% of them: %.1f GB/s\n\",
        $whole / 1e9, 100 * $share, $rate / 1e9
        printf \"the same without the last row: %.1f GB/s\n\", $(fitted_rate "$share" 3) / 1e9"
  qwen_trace
  echo '-- qwen3-30b-a3b: hit rates of LRU in every layer, and of experts that stay where they are'
  "$hotset" info qwen3.trace | grep 'popularity skew'
  studies working-set qwen3.trace | grep 'next step'
  {
    echo 16 32 64
    echo 0.125 0.25 0.5
    decode_hits qwen3.trace 16,32,64 | paste -sd' '
    if [ -n "$data" ]; then
      decode_hits "$gemma" 16,32,64 | paste -sd' '
      decode_hits "$law" 8,16,32 | paste -sd' '
    fi
  } >hits
  awk 'BEGIN { split("cap of 128;in place;synthetic;gemma;esft-law, the same share of 64", name, ";") }
       { printf "%-34s %7s %7s %7s\n", name[NR], $1, $2, $3 }' hits
  [ -n "$data" ] || skipped 'the rows of gemma and esft-law' routing
  echo '-- ms a step for 384 experts of 9 MiB at that rate; in brackets tokens/s, with 37.3 ms for the rest of their step'
  awk -v rate="$rate" '
    function label(text) { printf "%-34s", text }
    BEGIN { split("in place;synthetic;gemma;esft-law", name, ";") }
    NR == 1 { label("cap of 128"); printf " %18s %18s %18s\n", $1, $2, $3; next }
    { label(name[NR - 1])
      for (i = 1; i <= 3; ++i) {
        ms[NR, i] = (1 - $i) * 384 * 9437184 / rate * 1e3
        printf " %9.1f (%6.2f)", ms[NR, i], 1e3 / (37.3 + ms[NR, i]) }
      print "" }
    END {
      print "-- in place / paged: of the time on the link, then of the whole step"
      for (row = 3; row <= NR; ++row)
        for (rest = 0; rest <= 37.3; rest += 37.3) {
          label(rest ? "" : name[row - 1])
          for (i = 1; i <= 3; ++i) printf " %18.2f", (rest + ms[2, i]) / (rest + ms[row, i])
          print "" } }' hits
  echo '-- the simulator'"'"'s clock, ms a token of the synthetic trace with 37.3 ms / 48 a visit'
  "$hotset" simulate qwen3.trace --scope per-layer --eviction lru --slots 16,32,64 --link "${rate}B/s" \
    --compute 777us --csv |
    awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
             { printf "%s%.1f", (NR > 2 ? ", " : ""), 1e3 * $at["tpot_s"] }
             END { print "" }'
  echo '-- hotset plan on the bytes of each cap: paged, and whole layers moved in every step'
  describe qwen3-30b-a3b
  for cap in 16 32 64 128; do
    "$hotset" plan --reserve 1GiB --model qwen3-30b-a3b --vram "$(device_with $cap)" --link "${rate}B/s" --trace qwen3.trace \
      --json >plan.json
    calc "printf \"cap %d, %.2f GiB of experts: paged %.1f ms, whole layers %.1f ms\n\", $(number cap plan.json),
          $cap * $slot_bytes / 1024 ^ 3, 1e3 * $(alternative one-cap seconds_per_step plan.json),
          1e3 * $(alternative static-offload seconds_per_step plan.json)"
  done
  calc "new = $(number new_bytes_per_step plan.json)
        printf \"a cache of the step before alone: %.2f GiB of new experts a step\", new / 1024 ^ 3
        printf \"; %.1f tokens/s at 25 GB/s, %.1f at %.1f GB/s\n\", 25e9 / new, $rate / new, $rate / 1e9"
  others "$rate"
}
others() { # rate
  local cap model gib
  echo '-- kimi-vl-a3b, cap 8'
  describe kimi-vl-a3b
  if [ -n "$data" ]; then
    "$hotset" plan --reserve 1GiB --model kimi-vl-a3b --vram "$(device_with 8)" --link "$1B/s" --trace "$law" --json >plan.json
    calc "paged = 1e3 * $(alternative one-cap seconds_per_step plan.json); place = 1e3 * 56 / 64 * 6 * $slot_bytes / $1
          printf \"esft-law: paged %.1f ms, in place %.1f ms (%.2f), whole layers %.1f ms\n\", paged, place, place / paged,
          1e3 * $(alternative static-offload seconds_per_step plan.json)"
  else
    skipped kimi-vl-a3b routing/esft-law
  fi
  echo '-- jamba-v0.1 and minimax-m2: no trace of their shapes; routing taken as uniform, which hits cap / experts'
  for row in 'jamba-v0.1 4' 'jamba-v0.1 8' 'minimax-m2 16' 'minimax-m2 32'; do
    read -r model cap <<<"$row"
    describe "$model"
    "$hotset" plan --reserve 1GiB --model "$model" --vram "$(device_with "$cap")" --link "$1B/s" --json >plan.json
    calc "printf \"%-11s cap %2d: %.2f GiB of experts, %.2f GiB always resident, %.1f ms a step for misses\n\",
          \"$model\", $(number cap plan.json), $cap * $slot_bytes / 1024 ^ 3, $resident_bytes / 1024 ^ 3,
          1e3 * $(alternative one-cap seconds_per_step plan.json)"
  done
  for gib in 57 68 94; do
    "$hotset" plan --reserve 1GiB --model jamba-v0.1 --vram ${gib}GiB --json >plan.json
    echo "jamba-v0.1 on $gib GiB: cap $(number cap plan.json)"
  done
}

table3() {
  local budget sessions
  describe qwen3-30b-a3b
  echo "a slot in all layers $slot_bytes bytes, a token $token_bytes bytes: $((slot_bytes / token_bytes)) tokens a slot"
  # The paper's row of cap 8 gives the budget; the sessions are its pools / 4096, rounded down.
  budget=$((8 * slot_bytes + 375792 * token_bytes))
  for sessions in 91 82 64 28; do
    "$hotset" plan --model qwen3-30b-a3b --vram $((budget + resident_bytes))B --reserve 0B --context 4096 \
      --concurrency $sessions --json >plan.json
    echo "$sessions sessions of 4096 tokens: cap $(number cap plan.json), $(($(alternative one-cap kv_bytes plan.json) / token_bytes)) tokens of KV"
  done
}

# Agents in turn, each with its own blocks of 512 tokens, which it sends again in every turn.
agents() { # sessions blocks requests
  awk -v sessions="$1" -v blocks="$2" -v requests="$3" 'BEGIN { for (r = 0; r < requests; ++r) {
    ids = ""; for (b = 0; b < blocks; ++b) ids = ids (b ? "," : "") (r % sessions) * blocks + b
    printf "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": 32, \"hash_ids\": [%s]}\n", r, blocks * 512, ids } }'
}
arms() { # plan.json
  awk -F'[:,]' '
    /"name"/ { gsub(/[ "]/, "", $2); name = $2 }
    name == "" || NF < 2 { next }
    $1 ~ /"cap"/ { cap = $2 + 0 } $1 ~ /"kv_bytes"/ { kv = $2 / 1024 ^ 3 } $1 ~ /"seconds_per_step"/ { ms = 1e3 * $2 }
    $1 ~ /"feasible"/ && cap + kv > 0 {
      printf "  %-15s cap %3s  KV %5.2f GiB  %8.2f ms a step%s\n", name, cap == 0 ? "-" : cap, kv, ms,
        $2 ~ /true/ ? "" : "  does not start" }' "$1"
}
table4() {
  local olmoe='--model olmoe-1b-7b --vram 8GiB --context 4096 --concurrency 4'
  # shellcheck disable=SC2086
  "$hotset" synth olmoe.trace --name olmoe --layers 16 --experts 64 --top-k 8 --positions 4 --steps 2000 \
    --position-stickiness 0.45 --zipf 0.7 --seed 2026 --expert-bytes 12MiB --no-weights >/dev/null
  agents 4 7 400 >agents.jsonl
  echo '-- olmoe-1b-7b, routing taken as uniform'
  # shellcheck disable=SC2086
  "$hotset" plan $olmoe --json >plan.json && arms plan.json
  echo '-- olmoe-1b-7b, synthetic routing of four sessions'
  # shellcheck disable=SC2086
  "$hotset" plan $olmoe --trace olmoe.trace --json >plan.json && arms plan.json
  echo '-- and four agents of 3584 tokens'
  # shellcheck disable=SC2086
  "$hotset" plan $olmoe --trace olmoe.trace --kv-trace agents.jsonl --json >plan.json && arms plan.json
  describe olmoe-1b-7b
  olmoe="--model olmoe-1b-7b --vram $((7059852493 + resident_bytes))B --reserve 0B --context 4096 --concurrency 4"
  echo '-- with what their 50-50 row has to divide, 6.575 GiB: without the agents, and with them'
  # shellcheck disable=SC2086
  "$hotset" plan $olmoe --trace olmoe.trace --json >plan.json && arms plan.json
  # shellcheck disable=SC2086
  "$hotset" plan $olmoe --trace olmoe.trace --kv-trace agents.jsonl --json >plan.json && arms plan.json
  if [ -z "$data" ]; then
    skipped 'deepseek-v2-lite with esft-law and the Mooncake requests' 'routing/esft-law and kv'
    return
  fi
  echo '-- deepseek-v2-lite on 12 GiB, esft-law in steps of four tokens, Mooncake requests'
  "$hotset" plan --reserve 1GiB --model deepseek-v2-lite --vram 12GiB --context 4096 --concurrency 4 --trace "$law" --as prefill:4 \
    --kv-trace "$mooncake" --json >plan.json && arms plan.json
}

# Three workflows that differ like os, db and webshop: from few experts and short contexts to many and long. The
# seeds, the budgets and the prices were fixed before the first run.
split_rows() { # label, options of simulate-split
  local label=$1
  shift
  "$hotset" simulate-split "$@" --link 25GB/s --recompute 100us --json --out split.json
  tr '{' '\n' <split.json | awk -v label="$label" -F'[:,]' '
    function percent(x) { x = sprintf("%.1f", 100 * x); return x == "-0.0" ? "0.0" : x }
    { gsub(/["]/, "") }
    $1 == "name" { kind = $2 ~ />/ ? "shift" : "stationary"; name = $2 }
    $1 == "policy" { cap[$2] = $4; over[$2] = percent($8) }
    $1 == "policy" && $2 == "mv-wsa" {
      gsub(/[][}]/, ""); settled = 0
      for (i = 13; i <= NF && $i != ""; ++i) if ($i != $(i - 1)) settled = i - 12 }
    $1 == "policy" && $2 == "flux-prop" {
      printf "%s|%s|%s|%s|%s|%d|%s|%s|%s\n", label, name, kind, cap["oracle"] ? cap["oracle"] : "-", over["mv-wsa"],
        settled, over["best-fixed"], over["50-50"], over["flux-prop"] }'
}
summary() { # rows
  local kind column name
  for kind in stationary shift; do
    for column in 5:mv-wsa 7:best-fixed 8:50-50 9:flux-prop; do
      name=${column#*:}
      awk -F'|' -v kind=$kind -v column="${column%%:*}" '$3 == kind { print $column }' "$1" | sort -n |
        awk -v label="$kind $name" '{ v[NR] = $1; within += $1 <= 5 }
          END { if (NR) printf "%-22s median %5.1f %%, worst %5.1f %%, within 5 %%: %d of %d\n", label,
                  (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[NR], within, NR }'
    done
  done
}
synthetic_splits() { # options of simulate-split
  local seed budget flow name zipf
  for seed in 1 2 3 4 5; do
    for flow in 'os 1.2' 'db 0.7' 'webshop 0.3'; do
      read -r name zipf <<<"$flow"
      "$hotset" synth "$name.trace" --name "$name" --layers 16 --experts 64 --top-k 8 --tokens 5120 --zipf "$zipf" \
        --stickiness 0.45 --seed "$seed" --expert-bytes 12MiB --no-weights >/dev/null
    done
    for budget in 4 6 8; do
      split_rows "$budget GiB, seed $seed" os.trace db.trace webshop.trace --kv-trace os.jsonl --kv-trace db.jsonl \
        --kv-trace webshop.jsonl --budget ${budget}GiB --kv-token-bytes 128KiB "$@"
    done
  done
}
recorded_splits() { # options of simulate-split
  local budget
  for budget in 6 8 12 16; do
    split_rows "$budget GiB, Mooncake" "$law" --kv-trace "$mooncake" --expert-bytes 17301504B --budget ${budget}GiB \
      --kv-token-bytes 31104B "$@"
    split_rows "$budget GiB, os then webshop" "$law" "$law" --kv-trace os.jsonl --kv-trace webshop.jsonl \
      --expert-bytes 17301504B --budget ${budget}GiB --kv-token-bytes 31104B "$@"
  done
}
table5() {
  local setup options
  agents 2 4 400 >os.jsonl
  agents 6 6 400 >db.jsonl
  agents 12 8 400 >webshop.jsonl
  for setup in '--warmup 32' '--warmup 4'; do
    read -ra options <<<"$setup"
    echo "-- synthetic, $setup: budget | workflow | kind | cap of the optimum | mv-wsa over it in %" \
      '| last moves after burst | best-fixed | 50-50 | flux-prop'
    synthetic_splits "${options[@]}" | sort -s -t' ' -k1,1 >rows
    cat rows
    summary rows
    if [ -n "$data" ]; then
      echo "-- esft-law, $setup"
      recorded_splits "${options[@]}" >rows
      cat rows
      summary rows
    fi
  done
  [ -n "$data" ] || skipped esft-law 'routing/esft-law and kv'
}

# The best fixed split, half of the bytes for each, and both controllers, in seconds of WiSP eq. 4.
serve() { # name, budget in MiB, options of serve-trace
  "$tiny_moe" serve-trace "${@:3}" --budget "$2MiB" --split sweep,mv-wsa,dual-resize --link 100MB/s --recompute 3ms \
    --json >serve.json
  awk -F'": ' -v name="$1" -v half="fixed $(($2 * 1048576 / 2 / 276480))" '
    { gsub(/[",]/, "", $2) }
    $1 ~ "\"split$" { split_name = $2 }
    $1 ~ "\"over_best_fixed$" { over[split_name] = 100 * $2; if ($2 + 0 == 0 && best == "") best = split_name }
    $1 ~ "\"moves$" { moves[split_name] = $2 }
    $1 ~ "\"outputs_identical$" { same = $2 }
    END {
      printf "%s|%s|%.1f|%.1f (%d)|%.1f (%d)|%s\n", name, best, over[half], over["mv-wsa"], moves["mv-wsa"],
             over["dual-resize"], moves["dual-resize"], same
    }' serve.json
}
engine() {
  local seed
  echo '-- workload | best fixed split | over it in %: 50-50 | mv-wsa (moves) | dual-resize (moves) | outputs identical'
  for seed in 11 12 13; do
    "$hotset" synth-requests chats.jsonl --conversations 4 --turns 8 --first-blocks 4 --output-tokens 256 \
      --requests 200 --seed $seed >synth.log
    "$hotset" synth-requests single.jsonl --turns 1 --first-blocks 3 --output-tokens 1024 --requests 200 \
      --seed $seed >synth.log
    serve "chats, seed $seed" 8 chats.jsonl --seed $seed
    serve "chats, seed $seed, 60 requests not counted" 8 chats.jsonl --seed $seed --warmup 60
    serve "single, seed $seed" 8 single.jsonl --seed $seed
    serve "single, then chats, seed $seed" 8 single.jsonl chats.jsonl --seed $seed
    serve "chats, then single, seed $seed" 8 chats.jsonl single.jsonl --seed $seed
  done
  if [ -z "$data" ]; then
    skipped 'Azure and Mooncake' kv
    return
  fi
  serve 'Azure code' 8 "$azure" --requests 200
  serve 'Mooncake' 12 "$mooncake" --requests 200 --scale 128 --block-tokens 4
  serve 'Azure code, then Mooncake' 12 "$azure" "$mooncake" --requests 200 --scale 128 --block-tokens 4
}

table6() {
  describe qwen3-30b-a3b
  echo "4 slots in all layers: $((4 * slot_bytes)) bytes"
  calc "printf \"%.2f GB, %.2f GiB; theirs 3.65 - 1.84 = 1.81\n\", 4 * $slot_bytes / 1e9, 4 * $slot_bytes / 1024 ^ 3"
  # The floor is the startup context, then the peak; the budget is theirs, in GB.
  for tokens in 37120 16384; do
    "$hotset" plan --model qwen3-30b-a3b --vram $((resident_bytes + 36 * slot_bytes + 3650000000))B --reserve 0B \
      --context $tokens --json >plan.json
    calc "printf \"KV floor %d tokens: cap %d, KV %.0f bytes: %.2f GB, %.2f GiB\n\", $tokens, $(number cap plan.json),
          $(alternative one-cap kv_bytes plan.json), $(alternative one-cap kv_bytes plan.json) / 1e9, $(alternative one-cap kv_bytes plan.json) / 1024 ^ 3"
  done
  local rate
  rate=$(fitted_rate "$(qwen_share)")
  qwen_trace
  decode_hits qwen3.trace 36,40 | paste -sd' ' | awk -v rate="$rate" '{
    for (i = 1; i <= 2; ++i) ms[i] = (1 - $i) * 384 * 9437184 / rate * 1e3
    printf "cap 36 -> 40: %.1f -> %.1f %% hits, %.1f -> %.1f ms a step on the link", 100 * $1, 100 * $2, ms[1], ms[2]
    printf ", with 37.3 ms of the rest %.3f times faster\n", (37.3 + ms[1]) / (37.3 + ms[2]) }'
}

# A model with only the trace's shape: quotas depend on misses, and all experts have one size.
shape_config() { # layers experts top-k
  printf '{"model_type": "qwen3_moe", "torch_dtype": "bfloat16", "hidden_size": 2048, "num_hidden_layers": %d,
    "vocab_size": 32000, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": %d,
    "num_experts_per_tok": %d, "moe_intermediate_size": 768, "intermediate_size": 6144, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "max_position_embeddings": 40960, "tie_word_embeddings": false}' "$1" "$2" "$3" >shape.json
}
quota_rows() { # name trace layers experts top-k
  local share cap
  shape_config "$3" "$4" "$5"
  describe shape.json
  for share in 12.5 25 50; do
    cap=$(calc "print int($4 * $share / 100)")
    [ "$cap" -ge "$5" ] || { echo "$1|$cap of $4|fewer than top-$5"; continue; }
    "$hotset" plan --reserve 1GiB --model shape.json --vram "$(device_with "$cap")" --trace "$2" --json >plan.json
    awk -v name="$1" -v cap="$(number cap plan.json)" -v experts="$4" -F'[:,]' '
      /"quotas": \[/ { inside = 1; next } inside && /\]/ { inside = 0 }
      inside { q = $1 + 0; if (!n++ || q < least) least = q; if (q > most) most = q }
      { gsub(/[ "]/, "", $1); v[$1] = $2 }
      END { printf "%s|%d of %d|%d..%d|%.1f|%.1f\n", name, cap, experts, least, most,
              100 * (1 - v["quota_misses_per_step"] / v["uniform_misses_per_step"]),
              100 * (1 - v["held_out_misses"] / v["held_out_uniform_misses"]) }' plan.json
  done
}
# A trace with different layers: in every other one, nine of ten choices go to the same twelve of 64 experts.
uneven_layers() {
  awk 'function random() { seed = seed * 16807 % 2147483647; return seed / 2147483647 }
    BEGIN { seed = 2026
      for (step = 0; step < 2000; ++step) for (layer = 0; layer < 16; ++layer) {
        split("", used); ids = ""
        for (k = 0; k < 8;) {
          expert = int(random() * (layer % 2 && random() < 0.9 ? 12 : 64))
          if (expert in used) continue
          used[expert]; ids = ids (k++ ? "," : "") expert }
        printf "{\"step\": %d, \"layer\": %d, \"experts\": [%s]}\n", step, layer, ids } }'
}
quotas() {
  echo '-- trace | cap | quotas | fewer misses than one cap, %: on itself | made on the first half, measured on the second'
  if [ -n "$data" ]; then
    quota_rows gemma "$gemma" 30 128 6
    quota_rows esft-law "$law" 26 64 6
  else
    skipped 'gemma and esft-law' routing
  fi
  "$tiny_moe" trace tiny-moe.trace --tokens 64 2>/dev/null >/dev/null
  quota_rows tiny-moe tiny-moe.trace 12 32 4
  qwen_trace
  quota_rows 'qwen3 synthetic' qwen3.trace 48 128 8
  "$hotset" synth uniform.trace --layers 16 --experts 64 --top-k 8 --tokens 4000 --zipf 0 --seed 2026 --no-weights >/dev/null
  quota_rows 'synthetic, uniform' uniform.trace 16 64 8
  "$hotset" synth phases.trace --layers 16 --experts 64 --top-k 8 --tokens 4000 --zipf 1.2 --phase-every 500 --seed 2026 \
    --no-weights >/dev/null
  quota_rows 'synthetic, phases' phases.trace 16 64 8
  uneven_layers >uneven.jsonl
  "$hotset" import uneven.jsonl uneven.trace --format jsonl --experts 64 >/dev/null
  quota_rows 'synthetic, layers that differ' uneven.trace 16 64 8
}

run_studies
