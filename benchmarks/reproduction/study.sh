# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by this folder's scripts. Sourced with BUILD_DIR STUDY, after `studies` is set. Sets hotset, tiny_moe, data
# (absolute, or empty) and asked, and changes to an empty folder that is removed at the end.
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
  echo "$script: HOTSET_DATA_DIR: $HOTSET_DATA_DIR is missing; accepted: a folder as CONTRIBUTING.md describes, or none" >&2
  exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# Runs a study of the build folder's Python package, by Debian's Python if there is one.
studies() { # COMMAND OPTIONS...
  local python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  if [ ! -e "$build/python/hotset/lib/libhotset.so" ]; then
    echo "$script: the Python package is missing below $build; accepted: a build folder with the target python_package built" >&2
    return 1
  fi
  HOTSET_PROGRAM=$hotset PYTHONPATH=$build/python "$python" -B -m hotset "$@"
}
skipped() { # WHAT PATH: data that is not in the repository
  echo "skipped: $1 (needs $2 below HOTSET_DATA_DIR, see CONTRIBUTING.md)"
}
# A study without its data is skipped when all run, and is an error if requested by name.
leave_out() { # STUDY PATH
  skipped "$1" "$2"
  [ "$asked" = all ] || exit 1
}
has_held_out() { [ -n "$data" ] && [ -d "$data/tiny-moe/heldout" ]; }
# Sets the array `texts`: tiny-moe's held-out texts, or its prompts. The heading names them.
choose_texts() {
  if has_held_out; then
    texts=("$data"/tiny-moe/heldout/*.txt)
    echo '-- texts: tiny-moe/heldout'
  else
    texts=("$HOTSET_TINY_MOE_DIR"/prompts/*.txt)
    echo '-- texts: the prompts of the repository, so other figures than those in docs'
    skipped 'the held-out texts' tiny-moe/heldout
  fi
}

# Runs the requested study, or all of them; each is a function.
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
