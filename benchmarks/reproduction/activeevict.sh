#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the tables of docs/papers/activeevict.md.
#   benchmarks/reproduction/activeevict.sh BUILD_DIR STUDY
# STUDY: table_3 figure_7 figure_8 quality figure_9 without better, or all.
# `quality` reads the held-out texts below HOTSET_DATA_DIR. Without them it reads the prompts, and prints that.
studies='table_3 figure_7 figure_8 quality figure_9 without better'
# shellcheck source=benchmarks/reproduction/study.sh
. "$(dirname "$0")/study.sh"

# The two models' shapes, calibrated to the paper. The correlation with the last token's logits gives its volume on
# demand (9.8 GB a token are 14 of 64). The noise of the forecast gives the precision of its top-k prefetch (.856).
shapes() {
  "$hotset" synth mixtral.trace --name mixtral --layers 32 --experts 8 --top-k 2 \
    --expert-bytes 352300000B --tokens 512 --seed 2026 --zipf 0 --autoregression 0.3 \
    --scores --predictor-noise gaussian:0.25 >/dev/null
  "$hotset" synth llama-moe.trace --name llama-moe --layers 32 --experts 16 --top-k 4 \
    --expert-bytes 16900000B --tokens 512 --seed 2026 --zipf 0 --autoregression 0.3 \
    --scores --predictor-noise gaussian:0.25 >/dev/null
  "$tiny_moe" trace tiny-moe.trace --tokens 64 --with logits,probabilities,predictions 2>/dev/null
}
traces='mixtral llama-moe tiny-moe'
# Mixtral: an expert in 6.98 and out in 7.42 ms beside 4.9 ms of arithmetic a layer. LLaMA-MoE: .335, .356 and .4 ms.
# tiny-moe: experts of 23 KB over links that take as long as Mixtral's.
clock() { # trace
  case "$1" in
    mixtral) echo '--link 50.473GB/s --writeback-link 47.48GB/s --compute 4900us' ;;
    llama-moe) echo '--link 50.448GB/s --writeback-link 47.472GB/s --compute 400us' ;;
    tiny-moe) echo '--link 3.3009MB/s --writeback-link 3.1051MB/s --compute 4900us' ;;
  esac
}
duplex='--scope per-layer --slots 75% --writeback duplex'
# Removes --writeback-link: the link has no way back.
one_way() { clock "$1" | sed -E 's/--writeback-link [^ ]+ //'; }

run() { # trace OPTIONS...: lines of CSV, named by the caller
  local trace=$1
  shift
  "$hotset" simulate "$trace.trace" --csv "$@" 2>/dev/null
}
# Reads "NAME<newline>CSV" blocks and prints a line for each, relative to the first one.
# Redundant: prefetched and not used, or evicted too early.
relative() { # title
  awk -F, -v title="$1" '
    /^@/ { name = substr($0, 2); next }
    /^trace,/ { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    { blocking = $at["blocking_io_s"]; io = $at["total_io_s"]
      filled = $at["bytes_filled"]; moved = filled + $at["bytes_written_back"]
      unused = $at["bytes_prefetch_wasted"] + $at["bytes_prefetch_pending"] + $at["bytes_refetched"]
      if (!rows++) {
        first = blocking; first_io = io; first_moved = moved
        printf "| %s | blocking | total I/O | GB a step | redundant %% | precision / recall %% | lost mass %% |\n|---|---|---|---|---|---|---|\n", title }
      pr = $at["prefetch_precision"] == "" ? "-" : sprintf("%.1f / %.1f", 100 * $at["prefetch_precision"], 100 * $at["prefetch_recall"])
      mass = $at["lost_gate_mass"] == "" ? 0 : 100 * $at["lost_gate_mass"]
      printf "| %s | %.3f | %.3f | %.3g | %.1f | %s | %.2f |\n", name, blocking / first, io / first_io,
        moved / $at["steps"] / 1e9, filled ? 100 * unused / filled : 0, pr, mass
      blocked[name] = blocking; order[rows] = name }
    END {
      if (!("MoE-APEX" in blocked)) exit
      for (r = 1; r <= rows; ++r) if (order[r] ~ /^ActiveEvict/)
        printf "%s: blocking against top-k prefetch %+.0f %%, against MoE-APEX %+.0f %%\n", order[r],
          100 * (blocked[order[r]] / blocked["top-k prefetch"] - 1), 100 * (blocked[order[r]] / blocked["MoE-APEX"] - 1) }'
}
arm() { # NAME trace OPTIONS...
  echo "@$1"
  run "${@:2}"
}

baselines() { # trace OPTIONS...
  arm 'on demand, `lru`' "$@" --eviction lru
  arm 'on demand, `importance`' "$@" --eviction importance
  arm 'top-k prefetch' "$@" --eviction lru --prefetch next_layer_top_k --prefetch-guard none
  # shellcheck disable=SC2046  # a list of options
  arm 'MoE-APEX' "$@" --preset moe-apex $(accuracy "$1")
}
# Precision and recall of MoE-APEX in Table 2, if they differ from the preset's (Mixtral).
accuracy() { # trace
  [ "$1" != llama-moe ] || echo --prefetch noisy_oracle:precision=0.886:recall=0.934
}
table_3() {
  shapes
  for t in $traces; do
    { baselines "$t" $duplex $(clock "$t")
      arm 'ActiveEvict' "$t" $duplex $(clock "$t") --preset active-evict
      arm 'ActiveEvict, dynamic top-k' "$t" $duplex $(clock "$t") --preset active-evict --routing budget_top_k
      arm 'ActiveEvict, dynamic top-k, nothing for uncertainty' "$t" $duplex $(clock "$t") --preset active-evict \
        --pre-eviction active_evict:r_max=0 --routing budget_top_k
      arm 'ActiveEvict, released after the arithmetic' "$t" $duplex $(clock "$t") --preset active-evict \
        --pre-eviction active_evict:release=end
      arm 'ActiveEvict, nothing for uncertainty' "$t" $duplex $(clock "$t") --preset active-evict \
        --pre-eviction active_evict:r_max=0
      arm 'ActiveEvict, tau 0.02' "$t" $duplex $(clock "$t") --preset active-evict --pre-eviction active_evict:tau=0.02
    } | relative "$t, duplex"
    echo
  done
}
figure_7() {
  shapes
  for t in $traces; do
    for slots in 50% 62.5% 75% 87.5%; do
      local common="--scope per-layer --slots $slots --writeback duplex $(clock "$t")"
      { arm 'on demand, `importance`' "$t" $common --eviction importance
        for kind in importance importance:alpha=0 importance:alpha=1 lru; do
          arm "pre-eviction, \`$kind\`" "$t" $common --eviction $kind --pre-eviction active_evict
        done
      } | relative "$t, $slots"
      echo
    done
  done
}
figure_8() {
  shapes
  for t in $traces; do
    for slots in 50% 62.5% 75% 87.5%; do
      local common="--scope per-layer --slots $slots --writeback duplex $(clock "$t") --preset active-evict"
      { arm 'fixed top-k' "$t" $common
        arm '`budget_top_k`' "$t" $common --routing budget_top_k
        arm '`budget_top_k:keep_hits=true`' "$t" $common --routing budget_top_k:keep_hits=true
        for theta in 0.05 0.1 0.2; do
          arm "\`drop:threshold=$theta\`" "$t" $common --miss drop:keep=1:threshold=$theta
        done
      } | relative "$t, $slots"
      echo
    done
  done
}
# Cost of Figure 8's policies in bits per byte of unseen text, decoded byte by byte.
quality() {
  choose_texts
  for slots in 50% 62.5% 75% 87.5%; do
    local at="--scope per-layer --expert-budget $slots --limit 2048 --prefill 1"
    "$tiny_moe" evaluate --text "${texts[@]}" $at --preset active-evict \
      --routing router_order,budget_top_k,budget_top_k:keep_hits=true --columns routing,slots,fills,filled 2>/dev/null
    "$tiny_moe" evaluate --text "${texts[@]}" $at --preset active-evict \
      --miss drop:keep=1:threshold=0.05,drop:keep=1:threshold=0.1,drop:keep=1:threshold=0.2 \
      --columns miss,slots,fills,filled 2>/dev/null
  done
}
figure_9() {
  shapes
  for t in $traces; do
    { arm 'on demand, `lru`' "$t" $duplex $(clock "$t") --eviction lru
      for routing in router_order budget_top_k; do
        for r_max in 2 0; do
          for alpha in 0 0.2 0.4 0.6 0.8 1; do
            arm "$alpha, r_max $r_max, \`$routing\`" "$t" $duplex $(clock "$t") --eviction importance:alpha=$alpha \
              --pre-eviction active_evict:r_max=$r_max --routing $routing
          done
        done
      done
    } | relative "$t, alpha"
    echo
  done
}
# Weights are read-only: nothing has to be copied back.
without() {
  shapes
  for t in $traces; do
    { baselines "$t" --scope per-layer --slots 75% $(one_way "$t")
      arm 'ActiveEvict' "$t" --scope per-layer --slots 75% $(one_way "$t") --preset active-evict
      arm 'top-k prefetch, `importance`, guard `predicted`' "$t" --scope per-layer --slots 75% $(one_way "$t") \
        --eviction importance --prefetch next_layer_top_k --prefetch-guard predicted
    } | relative "$t, nothing back"
    echo
  done
}
# Arms that beat ActiveEvict if victims are copied back.
better() {
  shapes
  for t in $traces; do
    { arm 'on demand, `importance`' "$t" $duplex $(clock "$t") --eviction importance
      arm 'ActiveEvict' "$t" $duplex $(clock "$t") --preset active-evict
      arm 'on demand, one spare slot' "$t" $duplex $(clock "$t") --eviction importance --writeback-spares 1
      arm 'ActiveEvict with top-k prefetch' "$t" $duplex $(clock "$t") --preset active-evict --prefetch next_layer_top_k
      arm 'one spare slot and guarded top-k prefetch' "$t" $duplex $(clock "$t") --eviction importance \
        --writeback-spares 1 --prefetch next_layer_top_k --prefetch-guard predicted
    } | relative "$t, duplex"
    echo
  done
}

run_studies
