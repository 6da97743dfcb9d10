#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three adapters of the example model, each fine-tuned on a text of its own: how data/tiny-moe/adapters was made.
#   examples/train_adapters.sh BUILD_DIR [TEXT_DIR] OUT_DIR
# TEXT_DIR holds code.txt, prose.txt and tool.txt of more than 24 KiB each: the first 24 KiB are trained on, the others
# evaluated. Without it, the held-out texts of HOTSET_DATA_DIR, which are not in the repository.
set -euo pipefail

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  echo 'usage: examples/train_adapters.sh BUILD_DIR [TEXT_DIR] OUT_DIR' >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
tiny_moe=$1/examples/tiny_moe/tiny_moe
out=${*: -1}
if [ $# -eq 3 ]; then
  texts=$2
elif [ -n "${HOTSET_DATA_DIR:-}" ]; then
  texts=$HOTSET_DATA_DIR/tiny-moe/heldout
else
  echo 'train_adapters.sh: no texts; accepted: TEXT_DIR, or HOTSET_DATA_DIR as docs/data.md describes' >&2
  exit 1
fi
if [ ! -x "$tiny_moe" ]; then
  echo "train_adapters.sh: $tiny_moe is missing; accepted: a build folder with the target tiny_moe built" >&2
  exit 1
fi
export HOTSET_TINY_MOE_DIR=$here/data/tiny-moe

train() { # name, score
  echo "== $1, experts by $2 score"
  "$tiny_moe" fine-tune --text "$texts/$1.txt" --train-bytes 24576 --score "$2" --p 0.1 --steps 120 --window 128 \
    --step-size 0.02 --momentum 0.9 --seed 1 "$out/$1"
}
train code gate
train prose gate
train tool token
