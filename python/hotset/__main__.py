# SPDX-License-Identifier: Apache-2.0
"""`python3 -m hotset`: the studies of the package, and every command of the program `hotset`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from hotset import _program
from hotset.studies import _commands


def main() -> NoReturn:
    """Also the command `hotset` of an installed package."""
    words = sys.argv[1:]
    if not words or words[0] not in _commands.COMMANDS:
        _program.main()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_commands.run(words))


if __name__ == "__main__":
    main()
