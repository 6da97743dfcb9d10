#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the wheel of dist/ in a Debian with Python and NumPy and without a compiler, and uses it there.
#   cmake/wheel-test.sh <folder>    run as root; the folder keeps the Debian for the next run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:?usage: cmake/wheel-test.sh <folder>}
wheel=$(ls dist/hotset-*.whl)

mkdir -p "$folder"
root=$(cd "$folder" && pwd)/debian
if [[ ! -e $root/made ]]; then
  rm -rf "$root"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | sed -n 1p)
  debootstrap --variant=minbase --include=python3-venv,python3-numpy bookworm "$root" "$mirror" >"$folder/debian.log" ||
    { tail -n 5 "$folder/debian.log" >&2; exit 1; }
  touch "$root/made"
fi
rm -rf "$root/trial"
mkdir "$root/trial"
cp "$wheel" cmake/wheel/use_wheel.py "$root/trial"
in_debian() { chroot "$root" /usr/bin/env -i PATH=/trial/env/bin:/usr/bin:/bin HOME=/trial "$@"; }

for compiler in cc gcc g++ clang cmake; do
  ! in_debian which "$compiler" || { echo "wheel-test.sh: the Debian has $compiler" >&2; exit 1; }
done
in_debian python3 -m venv --system-site-packages /trial/env
begin=$(date +%s%N)
in_debian pip install -q --no-index "/trial/$(basename "$wheel")"
took=$((($(date +%s%N) - begin) / 1000000))
echo "installed in $took ms without a compiler"
((took < 10000)) || { echo "wheel-test.sh: accepted: below 10000 ms" >&2; exit 1; }
in_debian hotset --version
in_debian python3 /trial/use_wheel.py
