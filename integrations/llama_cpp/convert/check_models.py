#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small models and adapters with random weights that hotset-llama-tests reads.

    check_models.py FOLDER
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from gguf_writer import GgufWriter
from shapes import Size, make_adapter, make_model

SIZE = Size(layers=4, width=128, expert_width=128)


def files() -> dict[str, GgufWriter]:
    return {
        "moe": make_model("mixtral", SIZE, 1),
        "other": make_model("mixtral", SIZE, 2),
        "more-experts": make_model("mixtral", replace(SIZE, experts=2 * SIZE.experts), 1),
        "wide": make_model("mixtral", replace(SIZE, expert_width=2 * SIZE.width), 1),
        "dense": make_model("mixtral", replace(SIZE, experts=0), 1),
        "scales": make_model("qwen3moe-scales", SIZE, 1),
        "biases": make_model("gpt-oss", SIZE, 1),
        "lora-experts": make_adapter("mixtral", SIZE, of_attention=False),
        "lora-attention": make_adapter("mixtral", SIZE, of_experts=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    for name, writer in files().items():
        writer.write(os.path.join(folder, f"{name}.gguf"))


if __name__ == "__main__":
    main()
