# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share. Sourced with BUILD_DIR STUDY, after `studies` has been set; leaves hotset, tiny_moe,
# data (absolute, or empty) and asked, in an empty folder that goes in the end.
set -euo pipefail

script=$(basename "$0")
if [ $# -ne 2 ]; then
  echo "usage: benchmarks/reproduction/$script BUILD_DIR STUDY; accepted studies: $studies all" >&2
  exit 2
fi
asked=$2
case " $studies all " in
  *" $asked "*) ;;
  *)
    echo "$script: study '$asked'; accepted: $studies all" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" 2>/dev/null && pwd) || build=$1
hotset=$build/hotset
tiny_moe=$build/examples/tiny_moe/tiny_moe
for program in "$hotset" "$tiny_moe"; do
  if [ ! -x "$program" ]; then
    echo "$script: $program is missing; accepted: a build folder with the target demo_programs built" >&2
    exit 1
  fi
done
export HOTSET_TINY_MOE_DIR=$root/examples/data/tiny-moe
data=${HOTSET_DATA_DIR:-}
if [ -n "$data" ] && ! data=$(cd "$data" 2>/dev/null && pwd); then
  echo "$script: HOTSET_DATA_DIR: $HOTSET_DATA_DIR is missing; accepted: a folder as docs/data.md describes, or none" >&2
  exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# The study that was asked for, or all of them, each a function.
run_studies() {
  if [ "$asked" != all ]; then
    "$asked"
    return
  fi
  local study
  for study in $studies; do
    echo "== $study"
    "$study"
  done
}
