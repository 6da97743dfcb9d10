# SPDX-License-Identifier: Apache-2.0
"""Uses an installed wheel: the library, the program, and the archives that the program reads."""

import json
import os
import re
import tarfile
import tempfile
import zipfile

import numpy

import hotset

FOLDER = os.path.dirname(hotset.__file__)
NEWEST = {"GLIBC": (2, 28), "GCC": (8,), "GLIBCXX": (), "CXXABI": ()}  # manylinux_2_28; () is none at all


def check_versions(path):
    """The names of the versions stand in the file as text, after a NUL."""
    with open(path, "rb") as file:
        text = file.read()
    for kind, newest in NEWEST.items():
        found = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"\0%s_(\d+(?:\.\d+)+)(?=\0)" % kind.encode(), text)}
        assert max(found, default=()) <= newest, (path, kind, max(found))
        assert found or not newest, (path, kind)


def main():
    paths = [os.path.join(FOLDER, "lib", name) for name in os.listdir(os.path.join(FOLDER, "lib"))]
    for path in [*paths, os.path.join(FOLDER, "bin", "hotset")]:
        check_versions(path)

    pager = hotset.Pager(layers=2, experts=16, top_k=2, slots=6, scope="shared", eviction="similar_steps")
    random = numpy.random.default_rng(1)
    for step in range(100):
        for layer in range(2):
            for visit in pager.visits(layer, random.permutation(16)[:2].astype(numpy.int32), step=step):
                visit.commit()
                assert (pager.row(layer)[visit.experts] == visit.slots).all()
    stats = pager.stats()
    assert stats["visits"] == 200 and stats["hits"] > 0 and stats["hits"] + stats["misses"] == 400

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        hotset.run("synth", "a.trace", "--layers", "4", "--experts", "16", "--top-k", "2", "--tokens", "300", "--seed", "3")
        result = hotset.simulate("a.trace", eviction=["lru", "similar_steps", "belady"], slots="25%", jobs=2)
        assert [run["misses"] > 0 for run in result.runs] == [True] * 3
        try:
            hotset.simulate("absent.trace", eviction="lru", slots=4)
            raise AssertionError("not refused")
        except hotset.Error as refused:  # an exception of the program, caught there
            assert "absent.trace" in str(refused)
        with open("expert_weights_1.txt", "w") as file:
            file.write("0\t1\t0\t2\t\t0.5\t0.25\t0.5\t0.25\n" * 2)
        with zipfile.ZipFile("esft.zip", "w", zipfile.ZIP_DEFLATED) as file:
            file.write("expert_weights_1.txt")
        for kind in ("gz", "xz"):
            with tarfile.open(f"esft.tar.{kind}", f"w:{kind}") as file:
                file.add("expert_weights_1.txt")
        for name in ("esft.zip", "esft.tar.gz", "esft.tar.xz"):
            assert json.loads(hotset.run("info", name, "--json"))["tokens"] == 4, name
    print(f"hotset {hotset.version()}: paged {stats['visits']} visits, replayed {len(result.runs)} policies")


if __name__ == "__main__":
    main()
