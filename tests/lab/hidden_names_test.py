# SPDX-License-Identifier: Apache-2.0
"""Releases compile sources in batches. A function of a source's unnamed namespace hides one of a header there, in the
sources behind it too: calls then convert their arguments, and nothing is said. No source may define such a name.

    hidden_names_test.py <root of the project>
"""

import collections
import pathlib
import re
import sys

DECLARED = re.compile(r"^(?:\[\[\w+\]\] |template <.*> |inline |constexpr |static )*[A-Za-z_][\w:<>,&* ]*[ &*](\w+)\(", re.M)
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)


def functions(text):
    """Names of the functions that are declared at the beginning of a line."""
    return {m[1] for m in DECLARED.finditer(text) if not m[0].startswith(("return ", "else ", "using ", "namespace "))}


def main(root):
    lab = pathlib.Path(root) / "src" / "lab"
    declared = collections.defaultdict(list)  # of hotset::lab; the program has its own namespace
    sources = [path for path in sorted(lab.rglob("*.?pp")) if path.parent.name != "program"]
    for path in sources:
        if path.suffix == ".hpp":
            for name in functions(path.read_text()):
                declared[name].append(path.name)
    assert "or_null" in declared and "share_of" in declared, "the headers' functions are found"
    bad, seen = 0, 0
    for path in sources:
        for body in UNNAMED.findall(path.read_text()) if path.suffix == ".cpp" else ():
            names = functions(body)
            seen += len(names)
            for name in sorted(names & declared.keys()):
                print(f"{path.relative_to(root)}: {name} hides that of {declared[name][0]}, accepted: another name")
                bad += 1
    assert seen > 300, f"{seen} functions of sources are found"
    return 1 if bad else 0


sys.exit(main(pathlib.Path(sys.argv[1])))
