#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what PyPI alone has for tests of the Python package into <folder>/packages. Tests skip without it, so a
# failure is only reported.
#   cmake/python-extras.sh <folder>
set -u
cd "$(dirname "$0")/.."
folder=${1:?usage: cmake/python-extras.sh <folder>}
wanted=$(sed -n 's/^\(plot\|dask\) = \["\(.*\)"\]$/\2/p' pyproject.toml)
[ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ] && exit 0
python=/usr/bin/python3
[ -x $python ] || python=python3
# shellcheck disable=SC2086  # a word for each package
if "$python" -m venv "$folder/env" && "$folder/env/bin/pip" install -q --upgrade --target "$folder/packages" $wanted; then
  echo "$wanted" >"$folder/installed"
else
  echo "python-extras.sh:" $wanted "could not be installed; the tests that need them are skipped" >&2
fi
