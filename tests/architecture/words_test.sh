#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a copy of cmake/words.py over files with each fault and over a file without one.
#   words_test.sh <hotset> <python3>
set -euo pipefail
source=${1:?usage: words_test.sh <hotset> <python3>}
python=${2:?usage: words_test.sh <hotset> <python3>}
work=$(mktemp -d)
: "${work:?no temporary folder}"
trap 'rm -rf "${work:?}"' EXIT
mkdir "$work/cmake"
cp "$source/cmake/words.py" "$work/cmake/"
long=$(printf 'word %.0s' {1..30})
name=$(printf 'name_%.0s' {1..17})

# expect_code CODE FILE...: runs the script and stores its output in $found.
expect_code() {
  local wanted=$1 code=0
  shift
  found=$("$python" "$work/cmake/words.py" "$@") || code=$?
  if [[ $code -ne $wanted ]]; then
    echo "words.py: exit code $code, expected: $wanted; it printed: $found" >&2
    exit 1
  fi
}

{
  echo '// What this is.'
  echo 'int value = 1;  // nobody reads it'
  echo "// $long"
  echo "TEST(suite, $name) {}"
} >"$work/bad.cpp"
printf '# %s\n' 'Who calls this.' >"$work/bad.sh"
printf '%s\n' "Whoever reads this. $long" "$long" '```' "$long" '```' "| $long |" >"$work/bad.md"
expect_code 1 "$work/bad.cpp" "$work/bad.sh" "$work/bad.md"
wanted="bad.cpp:1: a comment begins with 'What'
bad.cpp:2: 'nobody'
bad.cpp:3: 153 characters
bad.cpp:4: a test name of 85 characters
bad.sh:1: a comment begins with 'Who'
bad.md:1: 170 characters
bad.md:1: 'Whoever'
bad.md:2: 150 characters
bad.md:1: a sentence of 60 words"
shown=$(sed -E 's/(: begin|: name who|, accepted).*//' <<<"$found")
[[ $shown == "$wanted" ]] || { diff <(echo "$wanted") <(echo "$shown") >&2; exit 1; }

{
  echo '// Returns the value.'
  echo 'const char* text = "// What nobody reads";'
  echo 'TEST(suite, returns_the_value) {}'
} >"$work/good.cpp"
printf '%s\n' '# Title' 'A short sentence.' >"$work/good.md"
expect_code 0 "$work/good.cpp" "$work/good.md"
[[ -z $found ]] || { echo "words.py printed: $found" >&2; exit 1; }
