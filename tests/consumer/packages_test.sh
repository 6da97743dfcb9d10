#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the packages that cmake/install-packages.sh requests from apt, on a simulated machine: scripts replace
# dpkg-query, apt-get and id in a folder that is the script's whole path.
#   packages_test.sh <hotset>
set -euo pipefail
source=${1:?usage: packages_test.sh <hotset>}
work=$(mktemp -d)
: "${work:?no temporary folder}"
trap 'rm -rf "${work:?}"' EXIT
bin=$work/bin
mkdir "$bin"

# The last argument is a package. It counts as installed if a line of the file names it.
printf '%s\n' '#!/bin/sh' 'for package do :; done' \
  "if grep -qx \"\$package\" '$work/installed'; then echo installed; else exit 1; fi" >"$bin/dpkg-query"
# Logs its arguments.
printf '%s\n' '#!/bin/sh' "echo \"\$*\" >>'$work/log'" >"$bin/apt-get"
printf '%s\n' '#!/bin/sh' 'echo 0' >"$bin/id"
chmod +x "$bin/dpkg-query" "$bin/apt-get" "$bin/id"
for tool in sh sed tr grep env dirname; do ln -s "$(type -P "$tool")" "$bin/$tool"; done

fail() {
  echo "packages_test.sh: $*" >&2
  exit 1
}
# Runs the script for a make target and stores the last request in $request.
ask() {
  target=$1
  : >"$work/log"
  PATH=$bin "$bin/sh" "$source/cmake/install-packages.sh" "$target" >/dev/null
  request=$(tail -n 1 "$work/log")
}
has() {
  for word in "$@"; do
    [[ " $request " == *" $word "* ]] || fail "$target does not ask for $word: $request"
  done
}
lacks() {
  for word in "$@"; do
    [[ " $request " != *" $word "* ]] || fail "$target asks for $word: $request"
  done
}
# `make check` creates no environment with PyPI packages, so it draws nothing for a browser.
all=$(sed -n -E -e '/^(venv|browser|wheel|chroot|engines|prometheus):/d' -e 's/^[a-z]*: *//p' "$source/cmake/debian-packages.txt")
[[ $(wc -w <<<"$all") -ge 15 ]] || fail "the list of packages cannot be read: $all"

: >"$work/installed"
while IFS='|' read -r target wanted unwanted; do
  ask "$target"
  # shellcheck disable=SC2086  # lists of words
  has $wanted && lacks $unwanted
done <<'TABLE'
demo|g++ cmake ninja-build libfmt-dev libeigen3-dev --no-upgrade --no-install-recommends|libcurl4-openssl-dev libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev clang-tidy clang-format
install-headers|g++ cmake|libfmt-dev libeigen3-dev
install|libfmt-dev libcli11-dev|libeigen3-dev libgtest-dev libbenchmark-dev
test|libgtest-dev libeigen3-dev python3-numpy python3-pytest liburing-dev libcurl4-openssl-dev nginx-light|libbenchmark-dev clang-tidy
wheel|python3-venv g++ libfmt-dev libzstd-dev debootstrap|libgtest-dev
python|python3-venv g++ libfmt-dev libzstd-dev|libgtest-dev python3-pytest debootstrap
engines|python3-venv python3-numpy curl pkg-config|clang-tidy libgtest-dev
bench|libbenchmark-dev|libgtest-dev
style|clang-format python3 libgtest-dev|libbenchmark-dev clang-tidy
reference|doxygen|g++
TABLE
ask check
has $all

# Installed packages are not requested; if none is missing, apt is not called.
printf '%s\n' g++ libfmt-dev >"$work/installed"
ask install
has libcli11-dev
lacks g++ libfmt-dev
printf '%s\n' $all >"$work/installed"
ask check
[[ -z $request ]] || fail "nothing is missing, and apt was asked for: $request"

# A cmake or ninja that was installed without a package counts.
: >"$work/installed"
ln -s "$(type -P true)" "$bin/cmake"
ask install-headers
has g++ ninja-build
lacks cmake

# Every make target requests its own packages.
for target in demo test bench figures style reference check python engines install install-headers; do
  steps=$(env -u MAKEFLAGS make -n -C "$source" "$target")
  grep -q "install-packages.sh $target\$" <<<"$steps" ||
    fail "make $target does not ask for the packages of $target"
done

if PATH=$bin "$bin/sh" "$source/cmake/install-packages.sh" nonsense 2>"$work/err"; then
  fail "an unknown target was taken"
fi
grep -q "unknown target 'nonsense'; accepted: install-headers, install, demo" "$work/err" ||
  fail "$(cat "$work/err")"
