#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks tiny-moe in an unmodified llama.cpp: its routing equals the reference engine's, and paging changes no bit.
#   check.sh <build folder with hotset-llama> <work folder>
set -euo pipefail
build=${1:?usage: check.sh <build folder> <folder to work in>}
work=${2:?usage: check.sh <build folder> <folder to work in>}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=$here/../../examples/data/tiny-moe
llama=$build/integrations/llama_cpp/hotset-llama
record=$build/integrations/llama_cpp/hotset-llama-record
tests=$build/integrations/llama_cpp/hotset-llama-tests
matrix=$build/integrations/llama_cpp/hotset-llama-matrix
tiny_moe=$build/examples/tiny_moe/tiny_moe
hotset=$build/hotset
. "$here/checks.sh"
# Runs a program of checks, which prints a line for each.
counted() {
  local code=0
  "$@" >"$work/counted" || code=$?
  cat "$work/counted"
  [[ $code -eq 0 ]] || fail "$(basename "$1") ended with $code"
  checks=$((checks + $(grep -c '^ok: ' "$work/counted")))
}
# Checks that a command is refused with these words.
refused() {
  local words=$1 code=0 text
  shift
  text=$("$@" 2>&1 >"$work/refused.out") || code=$?
  [[ $code -ne 0 ]] || fail "accepted: $*"
  [[ $text == *"$words"* ]] || fail "'$text' does not say '$words'"
  [[ ! -s $work/refused.out || $(wc -l <"$work/refused.out") -le 1 ]] || fail "text before a refusal: $*"
}

for program in "$llama" "$record"; do
  [[ $("$program" --version) == "$("$hotset" --version)" ]] || fail "$program --version differs from hotset --version"
done

for type in F32 F16 Q4_0; do
  "$python" "$here/convert/tiny_moe_to_gguf.py" "$model" "$work/tiny-$type.gguf" --type $type
done
# Tokens are bytes.
for prompt in "$model"/prompts/*.txt; do
  "$python" -c 'import sys, numpy; numpy.frombuffer(open(sys.argv[1], "rb").read(), "u1").astype("<i4").tofile(sys.argv[2])' \
    "$prompt" "$work/$(basename "$prompt" .txt).tokens"
done

# Recorded ids equal those of the reference engine, in rank order.
for prompt in "$model"/prompts/*.txt; do
  name=$(basename "$prompt" .txt)
  "$record" "$work/tiny-F32.gguf" --tokens "$work/$name.tokens" -o "$work/$name.llama.trace" >/dev/null
  "$tiny_moe" trace "$work/$name.own.trace" --model "$model" --prompts "$prompt" --tokens 1 >/dev/null
  "$python" - "$work/$name.llama.trace" "$work/$name.own.trace" <<'END' || fail "$name is routed otherwise"
import json, sys
import numpy

def ids(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(length))["ids"]
    return numpy.memmap(path, "<u2", "r", 8 + length + about["data_offsets"][0], tuple(about["shape"]))

a, b = ids(sys.argv[1]), ids(sys.argv[2])
n = min(len(a), len(b))
sys.exit(0 if n > 0 and (a[:n] == b[:n]).all() else 1)
END
done
say "ids of $(ls "$model"/prompts/*.txt | wc -l) prompts are those of the reference engine"

# Outputs are equal byte for byte at all sizes, prompt and decode.
identical() {
  "$llama" "$work/tiny-$1.gguf" --tokens "$work/code-1.tokens" -n 24 --slots "$2" -t "$3" --source "${4:-mapped}" --eviction lru --verify >"$work/text" 2>"$work/stats" &&
    grep -q 'verify: byte-identical' "$work/stats" || fail "$1, $2 slots, $3 threads: $(tail -n 1 "$work/stats")"
}
for type in F32 F16 Q4_0; do
  for slots in 32 16 8 4; do
    identical $type $slots 1 mapped
    identical $type $slots 1 read
  done
done
say "outputs are byte-identical at 32, 16, 8 and 4 of 32 slots, F32, F16 and Q4_0, with and without spare slots"
# llama.cpp's threads spin while they wait for each other: slow if another process runs.
identical F16 8 2
say "and so are those of two threads"
for source in mapped read direct uring; do
  for prefetch in none next_layer_top_k; do
    code=0
    "$llama" "$work/tiny-F16.gguf" --tokens "$work/math-1.tokens" -n 24 --slots 8 --source $source --readers 2 --prefetch $prefetch \
      --verify >"$work/text" 2>"$work/stats" || code=$?
    if [[ $code -ne 0 && $source =~ direct|uring ]] && grep -qE 'accepted: (cached ones|plain reads)' "$work/stats"; then continue; fi
    [[ $code -eq 0 ]] || fail "$source, $prefetch: $(tail -n 1 "$work/stats")"
  done
done
say "from the mapping, by reads, by direct reads and by io_uring, with and without copies ahead"
for eviction in lru lfu similar_steps least_stale; do
  "$llama" "$work/tiny-F16.gguf" --tokens "$work/prose-1.tokens" -n 24 --expert-budget 2MiB --eviction $eviction --verify >/dev/null 2>"$work/stats" ||
    fail "$eviction: $(tail -n 1 "$work/stats")"
  sed -n 's/^experts:.* spare slots: \([0-9.]*\) MiB of .*/\1/p' "$work/stats" | awk '{ found = 1; exit !($1 <= 2.0) } END { if (!found) exit 1 }' ||
    fail "$eviction: more than the budget: $(grep '^experts' "$work/stats")"
done
say "within 2 MiB, whatever the policy"

# Reads that fail during generation give an error and no text after it; short reads give the same text.
cc -O1 -shared -fPIC "$here/faulty_reads.c" -o "$work/faulty_reads.so" -ldl
generate() { # options and environment as of env
  env "$@" "$llama" "$work/tiny-F16.gguf" --tokens "$work/math-1.tokens" -n 48 --slots 8 --source read >"$work/text" 2>"$work/stats"
}
generate FAULTY_READS= || fail "reads: $(tail -n 1 "$work/stats")"
cp "$work/text" "$work/whole-text"
generate LD_PRELOAD="$work/faulty_reads.so" FAULTY_READS=short || fail "short reads: $(tail -n 1 "$work/stats")"
cmp -s "$work/text" "$work/whole-text" || fail "short reads: another text"
for how in eio end; do
  for after in 0 700 1500; do
    if generate LD_PRELOAD="$work/faulty_reads.so" FAULTY_READS=$how FAULTY_AFTER=$after; then fail "$how after $after reads: accepted"; fi
    grep -q '^hotset-llama: .*tiny-F16.gguf' "$work/stats" || fail "$how after $after reads: $(tail -n 1 "$work/stats")"
    # The text before the error is a proper prefix of the whole text.
    [[ $(wc -c <"$work/text") -lt $(wc -c <"$work/whole-text") ]] &&
      cmp -s -n "$(wc -c <"$work/text")" "$work/text" "$work/whole-text" || fail "$how after $after reads: text"
  done
done
say "short reads give the same text; reads that fail, and a file that is cut, an error and no text after it"

# A timeline has the run's computations, and its copies if a policy copies; metrics have an address that is free.
"$llama" "$work/tiny-F16.gguf" --tokens "$work/math-1.tokens" -n 24 --slots 8 --source read --metrics 127.0.0.1:0 \
  --timeline "$work/timeline.json" >"$work/text" 2>"$work/stats" || fail "timeline: $(tail -n 1 "$work/stats")"
grep -q 'metrics: http://127.0.0.1:[1-9][0-9]*/metrics' "$work/stats" || fail "metrics: $(cat "$work/stats")"
for name in '"name":"layer 11","ph":"X"' '"name":"layer 11 expert '; do
  grep -q "$name" "$work/timeline.json" || fail "the timeline has no $name"
done
[[ $(tail -n 1 "$work/timeline.json") == ']' ]] || fail "the timeline does not end"
say "a run writes its timeline and shows its metrics"
refused "metrics address 'here'" "$llama" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" --slots 8 --metrics here
refused 'No such file or directory' "$llama" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" --slots 8 --timeline "$work/absent/t.json"

# Invalid input.
refused '3 slots of each layer, accepted: 4..32' "$llama" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" --slots 3
refused 'unknown eviction policy' "$llama" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" --slots 8 --eviction lur
refused 'has no unit' "$llama" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" --expert-budget 2000
refused 'llama.cpp does not load it' "$llama" "$work/absent.gguf" --tokens "$work/code-1.tokens" --slots 8
refused 'has no vocabulary' "$llama" "$work/tiny-F16.gguf" -p text --slots 8
refused 'cannot be read' "$llama" "$work/tiny-F16.gguf" --tokens "$work/absent.tokens" --slots 8
refused 'accepted: more than 0%' "$llama" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" --expert-budget 0%
head -c 5000000 "$work/tiny-F16.gguf" >"$work/cut.gguf"
refused 'llama.cpp does not load it' "$llama" "$work/cut.gguf" --tokens "$work/code-1.tokens" --slots 8
say "wrong input is refused in one line"

# A paged context with llama.cpp's own features: adapters, other contexts, warm-up, devices, orders of destruction.
"$python" "$here/convert/check_models.py" "$work/models"
counted "$tests" "$work/models"

# Models of every shape in every type, with every feature of llama.cpp.
"$python" "$here/convert/shapes.py" "$work/shapes"
counted "$matrix" "$work/shapes"
rm -r "$work/shapes"

"$hotset" simulate "$work/code-1.llama.trace" --eviction lru,similar_steps,belady --slots 50% >"$work/simulated"
say "what was recorded is replayed"

# A trace with scores, and a gate of its shape with weights of 0.
"$record" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" -n 24 -o "$work/scored.trace" --scores --next-layers 3 --hidden >/dev/null
"$python" - "$work/scored.trace" "$work/gate" <<'END' || fail "recorded scores"
import json, struct, sys
import numpy

TYPES = {"U16": "<u2", "F16": "<f2", "F32": "<f4"}
with open(sys.argv[1], "rb") as file:
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))

def array(name):
    about = header[name]
    return numpy.memmap(sys.argv[1], TYPES[about["dtype"]], "r", 8 + length + about["data_offsets"][0], tuple(about["shape"]))

ids, logits, probabilities, predictions, hidden = map(array, ("ids", "logits", "probabilities", "predictions", "hidden"))
layers, experts, depth = logits.shape[1], logits.shape[2], predictions.shape[2]
best = numpy.argsort(-logits, -1, kind="stable")[..., : ids.shape[2]]
assert (best == ids).all(), "the greatest logits are not those of the routed experts"
assert numpy.allclose(probabilities, numpy.exp(logits) / numpy.exp(logits).sum(-1, keepdims=True), atol=1e-3)
assert depth == 3 and not predictions[:, -1].any() and not predictions[:, -2, 1:].any()
assert numpy.allclose(predictions[:, :-3].sum(-1, dtype=float), 1, atol=1e-2)
foreseen = numpy.argsort(-predictions[:, :-1, 0], -1)[..., : ids.shape[2]]
assert (foreseen[..., None] == ids[:, 1:, None]).any(-1).mean() > 2 * ids.shape[2] / experts, "predictions foresee little"
networks = sum(min(depth, layers - 1 - l) for l in range(layers))
with open(sys.argv[2], "wb") as file:
    file.write(b"hslearng" + struct.pack("<6I", 1, layers, experts, hidden.shape[2], depth, 0))
    file.write(bytes(4 * networks * experts * (hidden.shape[2] + 1)))
END
"$hotset" simulate "$work/scored.trace" --compare systems --gate-weights "$work/gate" --slots 25% --link 10GB/s --compute 200us >"$work/systems"
for system in on-demand deepspeed brainstorm mixtral-offloading promoe moe-infinity fmoe active-evict belady; do
  grep -q "^$system " "$work/systems" || fail "$system does not replay recorded scores: $(cat "$work/systems")"
done
refused '--next-layers 12, accepted: 0..11' "$record" "$work/tiny-F16.gguf" --tokens "$work/code-1.tokens" -o "$work/no.trace" --scores --next-layers 12
say "recorded scores choose the recorded ids; every system replays them"
echo "$checks checks passed"
