#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs real, unpatched engines under <folder>, builds hotset's integration for each, runs it, and prints "ok" or
# the reason of the failure.
#   cmake/engines.sh <folder> [llama.cpp] [transformers] [vllm]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
folder=${1:?usage: cmake/engines.sh <folder> [llama.cpp] [transformers] [vllm]}
shift
engines=("$@")
[[ ${#engines[@]} -gt 0 ]] || engines=(llama.cpp transformers vllm)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python=/usr/bin/python3
[[ -x $python ]] || python=python3
jobs=$(nproc 2>/dev/null || echo 2)

# This PyPI package contains the original llama.cpp source.
llama_carrier=llama-cpp-python==0.3.36

# Runs a step and logs its output; if the step fails, prints the end of the log.
step() {
  local name=$1
  shift
  echo "  $name"
  if ! "$@" >"$folder/$name.log" 2>&1; then
    tail -n 20 "$folder/$name.log" | sed 's/^/    /'
    return 1
  fi
}

llama_cpp() {
  local source
  # GGML_RPC provides a device with memory apart from the host's, so that the checks need no GPU.
  if [[ ! -e $folder/llama.cpp/lib/libllama.so ]]; then
    "$python" -m venv "$folder/download-env" && mkdir -p "$folder/download" &&
      step download "$folder/download-env/bin/pip" download --no-deps --no-binary "${llama_carrier%%=*}" -d "$folder/download" "$llama_carrier" &&
      step unpack bash -c "tar -xzf '$folder'/download/*.tar.gz -C '$folder/download'" || return 1
    source=$(echo "$folder"/download/*/vendor/llama.cpp)
    step configure-llama.cpp cmake -S "$source" -B "$folder/llama-build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_INSTALL_PREFIX="$folder/llama.cpp" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=ON -DGGML_OPENMP=OFF -DGGML_RPC=ON \
      -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
      -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF '-DCMAKE_INSTALL_RPATH=$ORIGIN' &&
      step build-llama.cpp cmake --build "$folder/llama-build" -j "$jobs" --target install || return 1
  fi
  step configure-hotset cmake -S "$root" -B "$folder/hotset" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$folder/llama.cpp" -DHOTSET_BUILD_BENCHMARKS=OFF -DHOTSET_BUILD_TESTS=OFF -DHOTSET_BUILD_PYTHON=OFF \
    -DHOTSET_BUILD_CUDA=OFF &&
    step build-hotset cmake --build "$folder/hotset" -j "$jobs" \
      --target hotset-llama hotset-llama-record hotset-llama-tests hotset-llama-matrix tiny_moe hotset &&
    step check-llama.cpp "$root/integrations/llama_cpp/check.sh" "$folder/hotset" "$folder/check" &&
    sed 's/^/  /' "$folder/check-llama.cpp.log"
}

# Builds hotset's wheel once for all environments.
hotset_wheel() {
  [[ -n ${wheel:-} ]] && return
  rm -rf "$folder/wheel"
  step "build-hotset-wheel" "$1" wheel --no-deps -w "$folder/wheel" "$root" && wheel=$(echo "$folder"/wheel/hotset-*.whl)
}

# Creates a Python environment with hotset, torch and the given packages. Engines need different releases, so each has
# its own environment.
python_env() {
  local engine=$1 pip=$folder/$1-env/bin/pip
  shift
  [[ -x $pip ]] || "$python" -m venv "$folder/$engine-env" || return 1
  "$folder/$engine-env/bin/python" -c 'import torch' 2>/dev/null || echo "  torch and what it requires: about 3 GB to download"
  step "install-torch-$engine" "$pip" install torch transformers pytest "$@" &&
    hotset_wheel "$pip" &&
    step "install-hotset-$engine" "$pip" install --no-deps --force-reinstall "$wheel"
}

# Runs the tests of an engine and prints their count.
python_check() {
  local engine=$1 code
  cd "$folder"
  step "check-$engine" env HOTSET_SOURCE_DIR="$root" "$folder/$engine-env/bin/python" -B -m pytest -q -p no:cacheprovider \
    --rootdir "$folder" "$root/python/tests/engines/${engine}_test.py"
  code=$?
  tail -n 1 "$folder/check-$engine.log" | sed 's/^/  /'
  cd "$root"
  return $code
}

transformers() {
  python_env transformers accelerate || return 1
  "$folder/transformers-env/bin/python" -c 'import torch, transformers; print("  torch", torch.__version__, "transformers", transformers.__version__)'
  python_check transformers
}

# vLLM's PyPI wheels run models on NVIDIA devices only and need gigabytes of packages for them. With the packages
# below, the front end (which loads plug-ins) and the expert layers without their kernels run on any machine.
vllm_release=0.33.0
vllm_front_end=(msgspec cachetools cloudpickle psutil pillow pyzmq opentelemetry-api prometheus_client openai fastapi py-cpuinfo blake3 gguf
  diskcache lark cbor2 aiohttp openai_harmony pybase64 uvloop apache-tvm-ffi partial-json-parser llguidance einops)

vllm() {
  python_env vllm &&
    step install-vllm "$folder/vllm-env/bin/pip" install --no-deps "vllm==$vllm_release" xgrammar &&
    step install-vllm-front-end "$folder/vllm-env/bin/pip" install "${vllm_front_end[@]}" || return 1
  echo "  vllm $vllm_release, its front end and its layers of experts: no model runs, for these wheels run them on NVIDIA devices alone"
  python_check vllm
}

result=0
for engine in "${engines[@]}"; do
  echo "$engine"
  case $engine in
    llama.cpp) run=llama_cpp ;;
    transformers) run=transformers ;;
    vllm) run=vllm ;;
    *)
      echo "engines.sh: unknown engine '$engine', accepted: llama.cpp, transformers, vllm" >&2
      exit 2
      ;;
  esac
  if $run; then
    echo "$engine: ok"
  else
    echo "$engine: failed (logs: $folder/*.log)"
    result=1
  fi
done
exit $result
