#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks what serves an unmodified llama.cpp: the installed libraries and programs, and LD_PRELOAD in programs that know
# nothing of hotset.
#   serve_check.sh <build folder with hotset_llama> <work folder> <llama.cpp> <its sources> [<llama-server>]
# A llama-server that is linked to the same libllama.so is checked, too. `make engines` builds none.
set -euo pipefail
usage='usage: serve_check.sh <build folder> <folder to work in> <prefix of llama.cpp> <sources of llama.cpp>'
build=${1:?$usage} work=${2:?$usage} llama=${3:?$usage} source=${4:?$usage} server=${5:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/checks.sh"

tiny=$here/../../examples/data/tiny-moe
for type in F16 Q4_0; do
  "$python" "$here/convert/tiny_moe_to_gguf.py" "$tiny" "$work/tiny-$type.gguf" --type $type --vocabulary bytes
done
"$python" "$here/convert/check_models.py" "$work/models"

# The installation: programs that find llama.cpp, and libraries that a user's C program is built with.
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install.log"
for program in hotset-llama hotset-llama-record; do
  [[ $("$prefix/bin/$program" --version) == "$("$build/hotset" --version)" ]] || fail "$program --version differs"
done
"$prefix/bin/hotset-llama" "$work/tiny-F16.gguf" -p 'def main(' -n 8 --expert-budget 50% --verify >"$work/out" 2>&1 ||
  fail "hotset-llama: $(tail -n 1 "$work/out")"
pkgconfig=$(dirname "$(find "$prefix" -name hotset_llama.pc)")
LD_LIBRARY_PATH=$(dirname "$pkgconfig"):$llama/lib
export LD_LIBRARY_PATH
consume() { # name, command
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 || fail "$name: $(tail -n 1 "$work/$name.log")"
  "$work/consumer" "$work/tiny-F16.gguf" 50% >"$work/out" 2>&1 || fail "$name: $(tail -n 1 "$work/out")"
  grep -q 'ggml [0-9.]*: [1-9][0-9]* slots, 48 accesses' "$work/out" || fail "$name: $(cat "$work/out")"
}
flags() { PKG_CONFIG_PATH=$pkgconfig:$llama/lib/pkgconfig pkg-config --cflags --libs "$1"; }
for library in hotset_llama hotset_llama_static; do
  # shellcheck disable=SC2046  # a list of words
  consume $library cc "$here/llama_consumer.c" -o "$work/consumer" $(flags $library)
done
for component in llama llama_static; do
  mkdir "$work/$component"
  cat >"$work/$component/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.24)
project(consumer LANGUAGES C CXX)
find_package(hotset REQUIRED COMPONENTS $component)
add_executable(consumer $here/llama_consumer.c)
target_link_libraries(consumer PRIVATE hotset::$component)
END
  consume "cmake-$component" bash -c "cmake -S '$work/$component' -B '$work/$component/build' -DCMAKE_PREFIX_PATH='$prefix;$llama' &&
    cmake --build '$work/$component/build' && cp '$work/$component/build/consumer' '$work/consumer'"
done
say "installed: programs, the shared library and the archive, by pkg-config and by CMake"

# LD_PRELOAD in a program of ours and in one of llama.cpp's own.
preload=$(find "$prefix" -name libhotset_llama_preload.so)
link=(-isystem "$llama/include" -L"$llama/lib" -Wl,-rpath,"$llama/lib" -lllama -lggml -lggml-base -pthread)
cc -std=c11 -O1 "$here/llama_program.c" -o "$work/program" "${link[@]}"
c++ -std=c++17 -O1 "$source/examples/simple/simple.cpp" -o "$work/llama-simple" "${link[@]}"
# Runs with variables of hotset: the text is in $work/text, standard error in $work/errors.
paged() { env LD_PRELOAD="$preload" HOTSET_LLAMA_STATS=1 "$@" >"$work/text" 2>"$work/errors"; }
# Checks that a program prints the same with LD_PRELOAD, and that its standard error has these words.
same() { # words, command
  local words=$1
  shift
  "$@" >"$work/plain" 2>/dev/null || fail "without LD_PRELOAD: $*"
  [[ -s $work/plain || $* == *' sizes '* ]] || fail "no output: $*"
  paged HOTSET_LLAMA_BUDGET=30% "$@" || fail "$*: $(grep '^hotset' "$work/errors" || tail -n 1 "$work/errors")"
  cmp -s "$work/plain" "$work/text" || fail "another output: $*"
  grep -q "$words" "$work/errors" || fail "'$(grep '^hotset' "$work/errors")' does not say '$words': $*"
}
hits='of 32 experts in slots of each of 12 layers; [0-9.]* % hits of [1-9][0-9]*, [1-9][0-9.]* MiB copied'
for way in decode process unfreed leaked; do same "$hits" "$work/program" $way "$work/tiny-F16.gguf"; done
# It computes with four threads, which spin while they wait for each other.
same "$hits" "$work/llama-simple" -m "$work/tiny-F16.gguf" -n 3 'def'
same "$hits" "$work/program" threads "$work/tiny-F16.gguf"
[[ $(grep -c "$hits" "$work/errors") -eq 2 ]] || fail "two contexts: $(cat "$work/errors")"
# Without LD_PRELOAD llama.cpp repacks Q4_0 and computes otherwise: all experts in slots are the reference.
paged HOTSET_LLAMA_BUDGET=100% "$work/program" decode "$work/tiny-Q4_0.gguf" || fail "Q4_0: $(cat "$work/errors")"
cp "$work/text" "$work/plain"
paged HOTSET_LLAMA_BUDGET=30% "$work/program" decode "$work/tiny-Q4_0.gguf" && cmp -s "$work/plain" "$work/text" &&
  grep -q "$hits" "$work/errors" || fail "Q4_0: $(cat "$work/errors")"
say "LD_PRELOAD: unmodified programs print the same, by llama_decode and llama_process, in two threads"

# A file of two parts, by the first part's name and by all names.
"$python" "$here/convert/tiny_moe_to_gguf.py" "$tiny" "$work/parts.gguf" --type F16 --parts 2
same "$hits" "$work/program" decode "$work/parts-00001-of-00002.gguf"
same "$hits" "$work/program" splits "$work/parts-00001-of-00002.gguf" "$work/parts-00002-of-00002.gguf"
say "LD_PRELOAD: a model in parts"

# Contexts that stay plain.
same 'dense.gguf runs without paging: the model has no experts' "$work/program" decode "$work/models/dense.gguf"
same 'runs without paging: the context computes embeddings' "$work/program" embeddings "$work/tiny-F16.gguf"
same 'no experts were paged in this process' "$work/program" sizes "$work/tiny-F16.gguf"
same 'no experts were paged in this process' bash -c 'echo a program without llama.cpp'
say "LD_PRELOAD: models without experts, embeddings, sizes only and other programs run as without it"

# The program ends with an error, after one line.
refused() { # words, variables, command
  local words=$1
  shift
  if paged "$@"; then fail "accepted: $*"; fi
  [[ ! -s $work/text ]] || fail "output after a refusal: $*"
  [[ $(grep '^hotset: ' "$work/errors") == *"$words"* ]] || fail "'$(grep '^hotset' "$work/errors")' does not say '$words'"
  [[ $(grep -c '^hotset: ' "$work/errors") -le 2 ]] || fail "several lines: $(cat "$work/errors")"
}
run=("$work/program" decode "$work/tiny-F16.gguf")
refused "budget" HOTSET_LLAMA_BUDGET=lots "${run[@]}"
refused "budget" HOTSET_LLAMA_BUDGET=150% "${run[@]}"
refused "budget" HOTSET_LLAMA_BUDGET= "${run[@]}"
refused "accepted: 4..32" HOTSET_LLAMA_BUDGET=1KiB "${run[@]}"
refused "HOTSET_LLAMA_SOURCE = 'disk', accepted: auto, mapped, read, direct, uring" HOTSET_LLAMA_SOURCE=disk "${run[@]}"
refused "HOTSET_LLAMA_THREADS = '2x', accepted: 1..256" HOTSET_LLAMA_THREADS=2x "${run[@]}"
refused "HOTSET_LLAMA_THREADS = '0', accepted: 1..256" HOTSET_LLAMA_THREADS=0 "${run[@]}"
refused "HOTSET_LLAMA_STATS = 'yes', accepted: 0, 1" HOTSET_LLAMA_STATS=yes "${run[@]}"
refused "unknown eviction policy" HOTSET_LLAMA_EVICTION=lur "${run[@]}"
refused "metrics address 'here'" HOTSET_LLAMA_METRICS=here HOTSET_LLAMA_BUDGET=50% "${run[@]}"
refused "No such file or directory" HOTSET_LLAMA_TIMELINE="$work/absent/t.json" HOTSET_LLAMA_BUDGET=50% "${run[@]}"
refused "unknown prefetch policy" HOTSET_LLAMA_PREFETCH=all "${run[@]}"
refused "was not loaded by its path" HOTSET_LLAMA_BUDGET=50% "$work/program" stream "$work/tiny-F16.gguf"
say "LD_PRELOAD: wrong variables are refused in one line"

# Another version of llama.cpp, as a library in front of the real one says.
echo 'const char* ggml_version(void) { return "0.1.2"; }' | cc -shared -fPIC -x c - -o "$work/version.so"
refused 'the program runs llama.cpp' LD_PRELOAD="$work/version.so:$preload" "${run[@]}"
grep -q 'ggml 0.1.2, accepted: llama.cpp' "$work/errors" || fail "another version: $(cat "$work/errors")"
say "LD_PRELOAD: another version of llama.cpp is refused"

# A read that fails ends the generation with an error; the program prints no text after it.
cc -O1 -shared -fPIC "$here/faulty_reads.c" -o "$work/faulty_reads.so" -ldl
for way in decode process; do
  refused 'tiny-F16.gguf' LD_PRELOAD="$work/faulty_reads.so:$preload" FAULTY_READS=eio FAULTY_AFTER=300 HOTSET_LLAMA_BUDGET=30% \
    HOTSET_LLAMA_SOURCE=read "$work/program" $way "$work/tiny-F16.gguf"
done
say "LD_PRELOAD: a read that fails is an error of the computation"
# llama-server with its default flags, which warm up and decode several sequences at once.
ask() { # path, body
  curl -sS "127.0.0.1:$port/$1" -H 'Content-Type: application/json' -d "$2" |
    "$python" -c 'import json, sys; answer = json.load(sys.stdin); print(answer["content"] if "content" in answer else answer["choices"][0]["message"])'
}
# Prints answers one after another, then of four requests at once.
answers() { # variables
  local asked=() process
  port=$((20000 + RANDOM % 10000))
  env "$@" "$server" -m "$work/tiny-F16.gguf" -c 2048 -t 1 --host 127.0.0.1 --port "$port" >"$work/server.log" 2>&1 &
  process=$!
  for _ in $(seq 300); do
    curl -s "127.0.0.1:$port/health" | grep -q ok && break
    kill -0 "$process" 2>/dev/null || fail "llama-server: $(tail -n 1 "$work/server.log")"
    sleep 0.2
  done
  for text in 'import os' 'class Test'; do
    ask v1/chat/completions '{"messages": [{"role": "user", "content": "'"$text"'"}], "max_tokens": 20, "temperature": 0}'
  done
  for text in import def class return; do
    ask completion '{"prompt": "'$text'", "n_predict": 20, "temperature": 0}' >"$work/answer-$text" &
    asked+=($!)
  done
  wait "${asked[@]}"
  cat "$work"/answer-*
  kill -INT "$process"
  wait "$process" || true
}
if [[ -n $server ]]; then
  answers HOTSET=plain >"$work/plain"
  answers LD_PRELOAD="$preload" HOTSET_LLAMA_BUDGET=30% HOTSET_LLAMA_STATS=1 >"$work/text"
  [[ $(wc -l <"$work/plain") -ge 6 ]] && cmp -s "$work/plain" "$work/text" || fail "llama-server: another answer"
  grep -q "$hits" "$work/server.log" || fail "llama-server: $(grep '^hotset' "$work/server.log")"
  say "LD_PRELOAD: llama-server answers the same, in chats and to four requests at once"
fi
echo "$checks checks passed"
