#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols_test.sh NM LIBRARY LIST: what the shared library shows is what the list names, no more and no less.
set -euo pipefail
shown=$("$1" -D --defined-only "$2" | awk '$2 ~ /^[TDBRVW]$/ {sub(/@.*/, "", $3); print $3}' | sort)
if ! difference=$(diff <(printf '%s\n' "$shown") "$3"); then
  printf 'libhotset.so (<) and %s (>) differ:\n%s\n' "$(basename "$3")" "$difference" >&2
  exit 1
fi
echo "$(wc -l <"$3") symbols"
