#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols_test.sh NM LIBRARY LIST: the shared library exports exactly the symbols of the list.
set -euo pipefail
shown=$("$1" -D --defined-only "$2" | awk '$2 ~ /^[TDBRVW]$/ {sub(/@.*/, "", $3); print $3}' | sort)
if ! difference=$(diff <(printf '%s\n' "$shown") "$3"); then
  printf 'libhotset.so (<) and %s (>) differ:\n%s\n' "$(basename "$3")" "$difference" >&2
  exit 1
fi
echo "$(wc -l <"$3") symbols"
