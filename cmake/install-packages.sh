#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of cmake/debian-packages.txt that are missing; silent when none is.
# Nothing that is installed is upgraded, unless a missing package cannot go without.
#   install-packages.sh install-headers|install|demo|test|bench|style|reference|check|python|engines|format   for that target of make
set -eu

here=$(cd "$(dirname "$0")" && pwd)
list="$here/debian-packages.txt"
target=${1:-test}
case $target in
  install-headers) parts="build" ;;
  install) parts="build lab" ;;
  demo) parts="build lab examples" ;;
  bench) parts="build lab examples benchmarks uring" ;;
  test) parts="build lab examples tests uring python" ;;
  style) parts="build lab examples tests uring python format" ;;
  reference) parts="reference" ;;
  python) parts="build lab venv" ;;
  engines) parts="build lab examples tests uring venv" ;;
  check) parts="build lab examples tests uring python benchmarks format lint sanitizers reference" ;;
  format) parts="format" ;;
  *)
    echo "install-packages.sh: unknown target '$target';" \
      "accepted: install-headers, install, demo, test, bench, style, reference, check, python, engines, format" >&2
    exit 2
    ;;
esac

wanted=""
for part in $parts; do
  wanted="$wanted $(sed -n -e 's/#.*//' -e 's/[[:space:]]//g' -e "s/^$part://p" "$list" | tr '\n' ' ')"
done

if ! command -v dpkg-query >/dev/null 2>&1; then
  # Not a Debian: the build itself says what it does not find.
  echo "install-packages.sh: no dpkg here; the build needs what these Debian packages hold:" \
    $wanted >&2
  exit 0
fi

missing=""
for package in $wanted; do
  case $package in
    cmake | ninja-build)  # one from elsewhere does as well
      if command -v "${package%-build}" >/dev/null 2>&1; then continue; fi
      ;;
  esac
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  case $state in
    installed*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

give_up() {
  {
    echo "install-packages.sh: $1"
    echo "missing packages:$missing"
    echo "install them with:"
    echo "  sudo apt-get update && sudo apt-get install -y --no-upgrade --no-install-recommends$missing"
  } >&2
  exit 1
}

command -v apt-get >/dev/null 2>&1 || give_up "apt-get is not on this machine"
if [ "$(id -u)" -eq 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo -n env"
else
  give_up "not root, and no passwordless sudo"
fi

apt() { $as_root DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"; }
install() { apt install -y -q --no-upgrade --no-install-recommends "$@" $missing; }

echo "installing:$missing"
# An image's package lists may be absent or too old to fetch from: refresh only then.
if install -s >/dev/null 2>&1 && install; then
  exit 0
fi
apt update -q || give_up "apt-get update failed"
install || give_up "apt-get install failed"
