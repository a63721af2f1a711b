"""Compiles the GPU's kernels: papers/fregata/gpu/src/product.cu to product.ptx beside it.

    python3 tools/gpu_kernel.py

Needs clang 16 or newer (Debian: clang-16) and nothing of NVIDIA's. The result is committed, so that building the project needs no
clang either; a test compares the source's hash with the one in its first line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "papers" / "fregata" / "gpu" / "src" / "product.cu"
# The oldest cards that are taken: Volta. Newer ones take its code.
ARCHITECTURE = "sm_70"


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def main() -> int:
    clang = next(filter(None, map(shutil.which, ["clang-19", "clang-18", "clang-17", "clang-16", "clang"])), None)
    if clang is None:
        print("clang is not installed (Debian: clang-16)", file=sys.stderr)
        return 1
    options = ["-x", "cuda", "--cuda-device-only", f"--cuda-gpu-arch={ARCHITECTURE}", "-nocudainc", "-nocudalib", "-fwrapv", "-O3"]
    made = subprocess.run([clang, *options, "-S", "-o", "-", str(SOURCE)], check=True, capture_output=True, text=True).stdout
    target = SOURCE.with_suffix(".ptx")
    target.write_text(f"// of product.cu, FNV-1a {fnv1a(SOURCE.read_bytes()):016x}\n{made}")
    print(f"{target.name}: {len(made.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
