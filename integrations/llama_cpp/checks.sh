# SPDX-License-Identifier: Apache-2.0
# Common to check.sh and serve_check.sh, which set `work`: an empty folder, a Python with NumPy, counted results.
python=/usr/bin/python3
"$python" -c 'import numpy' 2>/dev/null || python=python3
rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)
checks=0
say() {
  checks=$((checks + 1))
  echo "ok: $*"
}
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
