#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tokens per second of llama.cpp with paged experts, compared with llama.cpp that maps its file, if memory is short.
# Pairs of runs, one after the other, in a memory cgroup of each limit, with the page cache dropped before each. Needs
# root and cgroup v1 or v2.
#   memory_limit.sh <build folder with hotset-llama> <model.gguf> <tokens file> [pairs] [limits in MiB ...]
# The paged run chooses its budget. CONTEXT (256) and PREDICT (32): tokens; SEQUENCES (1): completed side by side.
# HOTSET_LLAMA_OPTIONS: further options of the paged run.
set -euo pipefail
build=${1:?usage: memory_limit.sh <build folder> <model.gguf> <tokens> [pairs] [limits in MiB ...]}
model=$2
tokens=$3
pairs=${4:-3}
limits=("${@:5}")
[[ ${#limits[@]} -gt 0 ]] || limits=(500 700 900)
common=(--tokens "$tokens" -n "${PREDICT:-32}" -c "${CONTEXT:-256}" --sequences "${SEQUENCES:-1}")
read -ra options <<<"${HOTSET_LLAMA_OPTIONS:-}"
llama=$build/integrations/llama_cpp/hotset-llama

if [[ -d /sys/fs/cgroup/memory ]]; then
  group=/sys/fs/cgroup/memory/hotset-benchmark limit_file=memory.limit_in_bytes members=tasks
else
  group=/sys/fs/cgroup/hotset-benchmark limit_file=memory.max members=cgroup.procs
fi
mkdir -p "$group"
trap 'rmdir "$group"' EXIT

# Prints prompt and decode tokens per second of a run within this many MiB.
run() {
  local mib=$1
  shift
  dd of="$model" oflag=nocache conv=notrunc,fdatasync count=0 status=none
  echo $((mib << 20)) >"$group/$limit_file"
  sh -c "echo \$\$ >$group/$members; exec \"\$@\"" - "$llama" "$model" "${common[@]}" "$@" 2>&1 >/dev/null |
    sed -n 's/^prompt: [0-9]* tokens, \([0-9.]*\) tokens\/s; generated: [0-9]* tokens, \([0-9.]*\) tokens\/s$/\1 \2/p'
}
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

echo "limit MiB  prompt: mapped  paged  ratio   decode: mapped  paged  ratio"
for mib in "${limits[@]}"; do
  plain=() paged=()
  for ((i = 0; i < pairs; ++i)); do
    plain+=("$(run "$mib" --plain)")
    paged+=("$(run "$mib" "${options[@]}")")
  done
  for column in 1 2; do
    a=$(printf '%s\n' "${plain[@]}" | awk -v c=$column '{ print $c }' | median)
    b=$(printf '%s\n' "${paged[@]}" | awk -v c=$column '{ print $c }' | median)
    row+=("$a" "$b" "$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", b / a }')")
  done
  printf '%9s  %14s  %5s  %5s  %15s  %5s  %5s\n' "$mib" "${row[@]}"
  row=()
done
