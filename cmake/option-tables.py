#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the option table of docs/command-line.md, and the man page, from the program's --help.

Usage: cmake/option-tables.py PROGRAM               rewrite the table between <!-- options --> and <!-- end -->
       cmake/option-tables.py PROGRAM --check       write nothing; exit code 1 if the table differs
       cmake/option-tables.py PROGRAM --man FILE    write the man page
Many commands have the same options for reading traces. These are listed once; a command repeats only those that it
describes differently.
"""
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "command-line.md"
SHARED = "Reading traces"
COLUMN = 28  # where --help begins descriptions in 100 columns
MARKED = re.compile(r"(<!-- options -->\n).*?(<!-- end -->)", re.S)
HEADING = re.compile(
    r"(?P<name>(?:-\w,)?--[\w-]+|[A-Z]+)(?: (?P<type>[^\s=]+)(?:=(?P<default>.+?))?)?(?: \.\.\.)?"
    r"(?P<required> REQUIRED)?(?: Needs: (?P<needs>--[\w -]+?))?(?: Excludes: (?P<excludes>--[\w -]+))?"
)

# A heading can be longer than its column. No description begins with these words, so the heading continues.
LONG = re.compile(r"$| |\.\.\.|REQUIRED|Needs:|Excludes:")
# The table omits options that the page explains once for all commands, and commands that have their own page.
REPORTS = ("--json", "--csv", "--columns LIST", "-o, --out FILE")
OTHER_PAGES = ("adapters plan",)
# --help prints the number of cores of this machine.
DEFAULTS = {"--jobs": "all cores"}


@dataclass
class Option:
    heading: str
    words: str = ""

    def parts(self):
        found = HEADING.fullmatch(self.heading)
        if not found:
            sys.exit(f"option-tables.py: '{self.heading}' is no heading of an option that can be read")
        return found

    def default(self):
        found = self.parts()
        return DEFAULTS.get(found["name"], found["default"])

    def title(self):
        found = self.parts()
        return found["name"].replace(",", ", ") + (f" {found['type']}" if found["type"] else "")

    def limits(self):
        found = self.parts()
        # CLI11 orders these names by the addresses of their options.
        return [f"{key} {', '.join(sorted(found[key].split()))}" for key in ("needs", "excludes") if found[key]]


@dataclass
class Command:
    name: str
    about: str = ""
    usage: str = ""
    groups: dict = field(default_factory=dict)  # title -> options
    footer: list = field(default_factory=list)  # lines
    subcommands: list = field(default_factory=list)


def help_of(program, name):
    given = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run([program, *name.split(), "--help"], env=given, capture_output=True, text=True, check=True)
    return done.stdout


def read(program, name):
    out = Command(name)
    group = None
    for line in help_of(program, name).splitlines():
        if not line.startswith(" "):
            if line.startswith("Usage: "):
                out.usage = line.removeprefix("Usage: ")
            elif not out.usage:
                out.about = f"{out.about} {line}".strip()
            elif re.fullmatch(r"[A-Z].*:", line) and not out.footer and line not in ("Examples:", "Placements:"):
                group = line[:-1]
                out.groups[group] = []
            elif line or out.footer:
                group = None
                out.footer.append(line)
        elif group is None:
            out.footer.append(line)
        elif line.startswith(" " * COLUMN):
            out.groups[group][-1].words += " " + line.strip()
        else:
            # A heading that does not fit into its column stands on a line of its own.
            head, words = line[:COLUMN], line[COLUMN:]
            lists = words.startswith("--") and re.search("Needs:|Excludes:", head)
            if not head.endswith(" ") or head.endswith(": ") or lists or LONG.match(words):
                head, words = line, ""
            out.groups[group].append(Option(head.strip(), words))
    out.subcommands = [o.heading for o in out.groups.pop("Subcommands", [])]
    for options in out.groups.values():
        for option in options:
            option.words = option.words.strip()
            option.parts()
    return out


def read_all(program):
    found = {"": read(program, "")}
    waiting = list(found[""].subcommands)
    while waiting:
        name = waiting.pop(0)
        found[name] = read(program, name)
        waiting[:0] = [f"{name} {below}" for below in found[name].subcommands]
    return found


def shared_options(commands):
    return next(c.groups[SHARED] for c in commands.values() if SHARED in c.groups)


def options_of(command, shared):
    """All but --help, positional arguments and what the shared table says."""
    known = [(o.heading, o.words) for o in shared]
    for title, options in command.groups.items():
        for option in options:
            if title != "Positionals" and "--help" not in option.heading and (option.heading, option.words) not in known:
                yield option


def rows(options):
    for option in options:
        default = option.default() or ("required" if option.parts()["required"] else "")
        words = "; ".join([option.words, *option.limits()]).replace("|", "\\|")
        yield f"| `{option.title()}` | {default} | {words} |".replace("|  |", "| |")


def table(commands):
    """Each command has a row, and rows of its options behind it."""
    shared = shared_options(commands)
    readers = ", ".join(f"`{name}`" for name, command in commands.items() if SHARED in command.groups)
    out = ["| option | default | meaning |", "|---|---|---|"]
    out.append(f'| <a id="options-of-reading"></a>**{SHARED.lower()}** | | options of {readers} |')
    out.extend(rows(shared))
    for name, command in commands.items():
        told = [o for o in options_of(command, shared) if o.title() not in REPORTS or o.parts()["required"]]
        if name and name not in OTHER_PAGES and (options := list(rows(told))):
            out.append(f'| <a id="options-of-{name.replace(" ", "-")}"></a>**{name}** | | {command.about} |')
            out.extend(options)
    return "\n".join(out) + "\n"


def page(text, commands):
    made, count = MARKED.subn(lambda m: m[1] + table(commands) + m[2], text)
    if count != 1:
        sys.exit(f"option-tables.py: docs/{PAGE.name}: {count} tables; accepted: one, between <!-- options --> and <!-- end -->")
    return made


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.M)


def man_options(options):
    for option in options:
        notes = ["required"] if option.parts()["required"] else []
        if option.default():
            notes.append(f"default: {option.default()}")
        notes += option.limits()
        words = option.words + (f" ({'; '.join(notes)})" if notes else "")
        yield f".TP\n.B {roff(option.title())}\n{roff(words)}\n"


def man_block(lines):
    return ".nf\n" + roff("\n".join(lines).strip("\n")) + "\n.fi\n"


def man_page(commands, version):
    root = commands[""]
    shared = shared_options(commands)
    out = [
        '.\\" Generated by cmake/option-tables.py from hotset --help.\n',
        f'.TH HOTSET 1 "" "{version}" "User Commands"\n',
        ".SH NAME\nhotset \\- replay expert routing of Mixture\\-of\\-Experts models through caching policies\n",
        f".SH SYNOPSIS\n.B hotset\n.I COMMAND\n[options]\n.SH DESCRIPTION\n{roff(root.about)}\n.SH OPTIONS\n",
        *man_options(root.groups["Options"]),
        ".SH COMMANDS\n",
    ]
    for name, command in commands.items():
        if not name:
            continue
        out.append(f".SS {roff(command.usage)}\n{roff(command.about)}.\n")
        out.extend(man_options(o for o in command.groups.get("Positionals", [])))
        out.extend(man_options(options_of(command, shared)))
        if SHARED in command.groups:
            out.append(f".PP\nOptions under {SHARED.upper()} are accepted, too.\n")
        if command.footer:
            out.append(".PP\n" + man_block(command.footer))
    out.append(f".SH {SHARED.upper()}\n")
    out.extend(man_options(shared))
    examples = root.footer.index("") if "" in root.footer else len(root.footer)
    out.append(".SH EXAMPLES\n" + man_block(root.footer[1:examples]))
    out.append(".SH NOTES\n" + "\n.PP\n".join(roff(line) for line in root.footer[examples:] if line) + "\n")
    return "".join(out)


def main(words):
    if not words or words[1:] not in ([], ["--check"]) and words[1:2] != ["--man"]:
        sys.exit(__doc__)
    program = str(Path(words[0]).resolve())
    commands = read_all(program)
    if words[1:2] == ["--man"]:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        Path(words[2]).write_text(man_page(commands, version), encoding="utf-8")
        return
    text = PAGE.read_text(encoding="utf-8")
    made = page(text, commands)
    if "--check" not in words:
        PAGE.write_text(made, encoding="utf-8")
    elif made != text:
        old, new = text.splitlines(), made.splitlines()
        first = next((b for a, b in zip(old, new) if a != b), "")
        sys.exit(f"docs/{PAGE.name}: the option table differs from --help, first at: {first}\n"
                 f"repair: python3 cmake/option-tables.py {words[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
