# SPDX-License-Identifier: Apache-2.0
"""Prints the path of the library that pages an unmodified program.

LD_PRELOAD=$(python -m hotset.llama_cpp.preload) HOTSET_LLAMA_BUDGET=50% llama-server -m m.gguf
"""

import os
import sys

PATH = os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib", "libhotset_llama_preload.so")

if __name__ == "__main__":
    if not os.path.exists(PATH):
        sys.exit(f"{PATH}: no such library, accepted: a hotset that was built with llama.cpp's headers")
    print(PATH)
