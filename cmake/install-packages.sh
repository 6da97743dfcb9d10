#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the missing Debian packages of cmake/debian-packages.txt for a make target; silent if none is missing.
# Upgrades an installed package only if a missing one requires it.
#   install-packages.sh <target>
#   targets: install-headers|install|demo|test|bench|figures|style|reference|check|wheel|python|engines|format
set -eu

here=$(cd "$(dirname "$0")" && pwd)
list="$here/debian-packages.txt"
target=${1:-test}
case $target in
  install-headers) parts="build" ;;
  install) parts="build lab" ;;
  demo) parts="build lab examples" ;;
  bench) parts="build lab examples benchmarks uring http" ;;
  test) parts="build lab examples tests uring http web python words venv browser" ;;
  figures) parts="build lab examples python venv" ;;
  style) parts="build lab examples tests uring http python format words" ;;
  reference) parts="reference" ;;
  wheel) parts="build lab uring wheel venv chroot" ;;
  python) parts="build lab uring wheel venv" ;;
  engines) parts="build lab examples uring python venv engines" ;;
  check) parts="build lab examples tests uring http web python benchmarks format words lint sanitizers reference" ;;
  format) parts="format" ;;
  *)
    echo "install-packages.sh: unknown target '$target';" \
      "accepted: install-headers, install, demo, test, bench, figures, style, reference, check, wheel, python, engines, format" >&2
    exit 2
    ;;
esac

wanted=""
for part in $parts; do
  wanted="$wanted $(sed -n -e 's/#.*//' -e 's/[[:space:]]//g' -e "s/^$part://p" "$list" | tr '\n' ' ')"
done

if ! command -v dpkg-query >/dev/null 2>&1; then
  # Not a Debian system: only name the packages; the build reports missing libraries.
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
# An image's package lists may be missing or outdated. Refresh them only if the installation fails.
if install -s >/dev/null 2>&1 && install; then
  exit 0
fi
apt update -q || give_up "apt-get update failed"
install || give_up "apt-get install failed"
