#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# conan_create_test.sh CONAN HOTSET WORK COMPILER POLICIES: runs `conan create` with its own Conan home and without a
# network. Leaves nothing in the source tree. Exit code 77: skipped.
set -euo pipefail
conan=$1 source=$2 work=$3 compiler=$4 policies=$5
case $conan in
  "" | *-NOTFOUND)
    echo "skipped: no conan; python3 -m venv V && V/bin/pip install conan, then cmake -DHOTSET_CONAN=V/bin/conan"
    exit 77
    ;;
esac
rm -rf "${work:?}"
mkdir -p "$work"
export CONAN_HOME=$work/home CXX=$compiler
"$conan" profile detect
"$conan" create "$source/packaging/conan" --no-remote -s compiler.cppstd=20 -o "hotset/*:policies=$policies" \
  -c "tools.cmake.cmake_layout:test_folder=$work/test_package" -c tools.cmake.cmaketoolchain:user_presets=
