#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks comments, documents and test names for words and lengths that make readers translate (CONTRIBUTING.md).

Usage: cmake/words.py [FILE...]    without files: every file that git tracks
Exit code 1 and one line a finding: file:line: what is wrong.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh"}
SCRIPT = {".py", ".sh", ".cmake", ".txt", ".yml", ".toml"}
LINE = 120      # characters of a line of prose
SENTENCE = 35   # words of a sentence in a document
TEST_NAME = 80  # characters
BEGINS = re.compile(r"(What|Which|Of|As|Whoever|Who|The same)\b")
WORDS = re.compile(r"\b(nobody|whoever|anyone's guess)\b", re.IGNORECASE)
# Lines that may stand as they are: part of the line, and the file that it stands in.
ALLOWED = {
    "cmake/words.py": ["(What|Which|", "(nobody|whoever|"],
}


def comments(path, lines):
    """Yields (number, text) of each comment line."""
    if path.suffix in CODE:
        marker = re.compile(r"^\s*(?:///<|///|//|\*)\s?(.*)$")
        behind = re.compile(r"\s(?:///<|//)\s(.*)$")
    else:
        marker = re.compile(r"^\s*#(?!!)\s?(.*)$")
        behind = None
    for number, line in enumerate(lines, 1):
        found = marker.match(line) or (behind.search(line) if behind and '"' not in line else None)
        if found:
            yield number, found.group(1)


def paragraphs(lines):
    """Yields (number of the first line, text) of each paragraph and list item outside code and tables."""
    start, text, fenced = 0, [], False
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced
        is_prose = not fenced and stripped and not stripped.startswith(("```", "|", "#", "<", "    "))
        if not is_prose or re.match(r"([-*>]|\d+\.) ", stripped):
            if text:
                yield start, " ".join(text)
            text = []
        if is_prose:
            if not text:
                start = number
            text.append(re.sub(r"^([-*>]|\d+\.) ", "", stripped))
    if text:
        yield start, " ".join(text)


def sentences(text):
    text = re.sub(r"`[^`]*`", "x", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.split(r"(?<=[.!?:;])\s+", text)


def findings(path):
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if path.suffix == ".md":
        fenced = False
        for number, line in enumerate(lines, 1):
            if line.strip().startswith("```"):
                fenced = not fenced
            if fenced or line.lstrip().startswith("|"):
                continue
            if len(line) > LINE and " " in line[LINE:]:
                yield number, f"{len(line)} characters, accepted: at most {LINE}"
            if found := WORDS.search(line):
                yield number, f"'{found.group(0)}': name who or what it is"
        for number, text in paragraphs(lines):
            for one in sentences(text):
                if (words := len(one.split())) > SENTENCE:
                    yield number, f"a sentence of {words} words, accepted: at most {SENTENCE}: {one[:60]}..."
        return
    for number, text in comments(path, lines):
        if found := BEGINS.match(text):
            yield number, f"a comment begins with '{found.group(0)}': begin with what it describes, or with a verb"
        if found := WORDS.search(text):
            yield number, f"'{found.group(0)}': name who or what it is"
        if len(lines[number - 1]) > LINE:
            yield number, f"{len(lines[number - 1])} characters, accepted: at most {LINE}"
    if path.suffix == ".cpp":
        for found in re.finditer(r"^(?:TYPED_)?TEST(?:_[FP])?\(([^,()]+),\s*(\w+)\)", "\n".join(lines), re.M):
            if len(found.group(2)) > TEST_NAME:
                number = "\n".join(lines)[: found.start()].count("\n") + 1
                yield number, f"a test name of {len(found.group(2))} characters, accepted: at most {TEST_NAME}"


def main(arguments):
    names = arguments or subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    count = 0
    for name in names:
        path = (ROOT / name) if not arguments else Path(name).resolve()
        relative = path.relative_to(ROOT).as_posix()
        is_text = path.suffix in CODE | SCRIPT | {".md"} or path.name == "Makefile"
        if not is_text or not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, what in findings(path):
            if any(part in lines[number - 1] for part in ALLOWED.get(relative, [])):
                continue
            print(f"{relative}:{number}: {what}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
