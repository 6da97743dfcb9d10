# SPDX-License-Identifier: Apache-2.0
"""OpenAI's API over HTTP, by llama_cpp.server, with paged experts.

python -m hotset.llama_cpp.server --model m.gguf --hotset-budget auto
python -m hotset.llama_cpp.server --help
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from hotset._errors import Error


def _parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m hotset.llama_cpp.server",
        description="Serves OpenAI's API by llama_cpp.server, with paged experts.",
        usage="%(prog)s --model MODEL [--hotset-...] [options of llama_cpp.server]",
        add_help=False,
        allow_abbrev=False,
    )
    for name, default, text in (
        ("budget", "auto", "memory of all slots: 6GiB, 50%% of the experts, auto"),
        ("source", "auto", "source of copies: auto, mapped, read, direct, uring"),
        ("threads", 2, "reading threads, 1 to 256"),
        ("eviction", "similar_steps", "eviction policy"),
        ("prefetch", "next_layer_top_k", "prefetch policy, or none"),
        ("metrics", "", "address that shows metrics to Prometheus, such as 127.0.0.1:9100"),
        ("timeline", "", "file for a timeline, as Chrome trace events for Perfetto"),
    ):
        out.add_argument(
            f"--hotset-{name}",
            dest=name,
            default=default,
            type=type(default),
            metavar=name.upper(),
            help=f"{text} (default: {default or 'none'})",
        )
    return out


def main() -> None:
    """Takes hotset's options out of sys.argv; llama_cpp.server reads the others."""
    parser = _parser()
    options, rest = parser.parse_known_args()
    if {"-h", "--help"} & set(rest):
        parser.print_help()
    sys.argv[1:] = rest
    try:
        from llama_cpp.server.__main__ import main as serve

        from hotset.llama_cpp import paged

        with paged(**vars(options)):
            serve()
    except ImportError as missing:
        _refuse(f"{missing}, accepted: pip install 'hotset[llama]'")
    except (Error, ValueError) as bad:
        _refuse(str(bad))


def _refuse(why: str) -> NoReturn:
    print(f"hotset.llama_cpp.server: {why}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
