#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the reference of the headers to build/reference/html. Fails if a public name of a namespace has no
# description.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/reference
rm -f build/reference/warnings.txt
doxygen docs/reference/Doxyfile
# Macros of the test framework and details are not part of the interface.
undocumented=$(grep -E 'Compound .* is not documented|of namespace .* is not documented|enumeration\) of .* is not documented' \
  build/reference/warnings.txt | grep -vE '::detail|TYPED_TEST' | sed "s#^$PWD/##" || true)
if [ -n "$undocumented" ]; then
  printf '%s\n' "$undocumented" >&2
  echo "reference.sh: $(printf '%s\n' "$undocumented" | wc -l) public names without a comment, accepted: none" >&2
  exit 1
fi
pages=$(find build/reference/html -name '*.html' | wc -l)
[ "$pages" -gt 100 ] || { echo "reference.sh: $pages pages, accepted: those of the library" >&2; exit 1; }
echo "build/reference/html/index.html: $pages pages"
