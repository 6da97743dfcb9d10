#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pkg_config_test.sh PKG_CONFIG PREFIX COMPILER SOURCE VERSION WORK: compiles a program with pkg-config's flags for
# the installation in PREFIX, and again after the installation was moved.
set -euo pipefail
pkg_config=$1 prefix=$2 compiler=$3 source=$4 version=$5 work=$6
rm -rf "$work"
mkdir -p "$work"

build_and_run() {
  local found
  found=$(dirname "$(find "$1" -name hotset.pc)")
  export PKG_CONFIG_PATH=$found
  [[ $("$pkg_config" --modversion hotset) == "$version" ]] || { echo "another version than $version" >&2; exit 1; }
  local flags
  read -ra flags <<<"$("$pkg_config" --cflags --libs hotset-policies)"
  "$compiler" -std=c++20 "$source" "${flags[@]}" -o "$work/program"
  "$work/program"
  # The C interface as an archive.
  read -ra flags <<<"$("$pkg_config" --cflags --libs hotset-c-static)"
  cc "$(dirname "$source")/../c/main.c" "${flags[@]}" -o "$work/c_program"
  "$work/c_program"
}

build_and_run "$prefix"
cp -r "$prefix" "$work/moved"
build_and_run "$work/moved"
[[ $("$pkg_config" --cflags --libs hotset-policies) != *"$prefix"* ]] || { echo "the place of installation is fixed" >&2; exit 1; }
