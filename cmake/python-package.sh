#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the wheel of dist/ into a fresh virtual environment, and tests it there.
#   cmake/python-package.sh <folder>
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:?usage: cmake/python-package.sh <folder>}
python=/usr/bin/python3
[[ -x $python ]] || python=python3

rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install -q "$(echo dist/hotset-*.whl)[dask,plot]" pytest pandas mypy
echo "installed: $("$folder/env/bin/python" -c 'import hotset; print(hotset.__file__, hotset.__version__)')"
"$folder/env/bin/hotset" --version
"$folder/env/bin/mypy" --cache-dir "$folder/mypy" --ignore-missing-imports python/hotset
# Runs in another folder, so that the installed package is tested and not the source tree.
root=$PWD
cd "$folder"
"$folder/env/bin/mypy" --cache-dir "$folder/mypy" --strict "$root/python/tests/user_script.py"
HOTSET_SOURCE_DIR=$root "$folder/env/bin/python" -B -m pytest -q -p no:cacheprovider --rootdir "$folder" "$root"/python/tests/*_test.py
