"""Counts the instructions that each Arm kernel takes beside its scalar twin, and prints a table in Markdown.

    python3 tools/arm_counts.py            # builds what it counts, about ten minutes of a free core
    python3 tools/arm_counts.py --write    # puts the table into docs/benchmarks.md

The programs (`counted_ring` of jaguar-ring and `counted_ot` of jaguar-ot) run under qemu-aarch64 with a plugin that counts
(tools/instructions.c). A program that runs a kernel twice takes as many instructions more than one that runs it once as the kernel
takes: the number is exact, and the same on every machine, but for some hundreds of a layer by frequencies, whose tasks go through a
pool. There are two twins. *Compiled*: what the compiler makes of the plain Rust, which on 64-bit Arm may use Neon too. *Scalar*: the
same without the compiler's vectors, and with the `aes` crate's code for any processor.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
TARGET = "aarch64-unknown-linux-gnu"
BEGIN, END = "<!-- instructions: tools/arm_counts.py writes this table -->", "<!-- end of instructions -->"

# What the scalar twins are compiled with, and which crates are: the others have nothing to do with the counts, and are not built again.
SCALAR = ["-C", "no-vectorize-loops", "-C", "no-vectorize-slp", "--cfg", 'aes_backend="soft"']
OURS = ["aes", "jaguar-ring", "jaguar-ot"]
WRAPPER = """#!/usr/bin/env python3
import os, sys
ours = any(name in sys.argv for name in {names!r}) and {target!r} in sys.argv
os.execvp(sys.argv[1], [*sys.argv[1:], *({flags!r} if ours else [])])
"""

# Crate -> features, its kernel for Arm, and for each kernel how it is told of.
PROGRAMS: dict[str, tuple[list[str], str, dict[str, str]]] = {
    "jaguar-ring": (
        [],
        "neon",
        {
            "transform-small": "transform of 2,048 small coefficients, modulo two primes",
            "transform-words": "transform of 2,048 words of 48 bits",
            "product": "product of transformed polynomials, and back",
            "prime-product": "the same modulo one prime",
            "prime-small": "transform of small coefficients, modulo one prime",
            "matrix": "matrix product, 64 terms, 64 outputs, 256 positions",
            "matrix-one-output": "matrix product, 9 terms, one output, 2,048 positions",
            "frequencies": "layer of 128 channels to 64 by frequencies",
        },
    ),
    "jaguar-ot": (
        ["steps"],
        "armv8-aes",
        {
            "pads": "4,096 pads",
            "tables": "1,024 tables of 16 entries",
            "tree-level": "a tree's level of 1,024 nodes",
            "leaves": "1,024 leaves",
            "places": "4,096 places of LPN's rows",
        },
    ),
}


def cargo(*arguments: str, wrapper: Path | None = None) -> None:
    linker = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"
    environment = {linker: "aarch64-linux-gnu-gcc", **os.environ, **({"RUSTC_WRAPPER": str(wrapper)} if wrapper else {})}
    subprocess.run(["cargo", *arguments, "--release", "--locked", "--quiet", "--target", TARGET], cwd=ROOT, env=environment, check=True)


def example_of(crate: str) -> str:
    """The name of what is counted. (All of the workspace's examples are built into one folder.)"""
    return crate.replace("jaguar-", "counted_")


def build(folder: Path, name: str, wrapper: Path | None = None) -> dict[str, Path]:
    """The programs that are counted, by crate."""
    programs = {}
    for crate, (features, _, _) in PROGRAMS.items():
        example = example_of(crate)
        cargo("build", "--package", crate, "--example", example, "--features", ",".join(features), wrapper=wrapper)
        built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / TARGET / "release/examples" / example
        programs[crate] = folder / f"{name}-{crate}"
        programs[crate].write_bytes(built.read_bytes())
        programs[crate].chmod(0o755)
    return programs


def build_scalar(folder: Path) -> dict[str, Path]:
    """The same with scalar twins; what is compiled so is thrown away."""
    wrapper = folder / "rustc.py"
    names = [crate.replace("-", "_") for crate in OURS]
    wrapper.write_text(WRAPPER.format(names=[*names, *map(example_of, PROGRAMS)], target=TARGET, flags=SCALAR))
    wrapper.chmod(0o755)
    packages = [word for crate in OURS for word in ("--package", crate)]
    cargo("clean", *packages)
    try:
        return build(folder, "scalar", wrapper)
    finally:
        cargo("clean", *packages)


def instructions(plugin: Path, program: Path, *arguments: str) -> int:
    """How many the program takes."""
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-plugin", str(plugin), str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return counted(done.stderr)


def counted(stderr: str) -> int:
    """The number that the plugin printed."""
    found = re.search(r"^instructions (\d+)$", stderr, re.MULTILINE)
    if found is None:
        raise SystemExit(f"the plugin counted nothing: {stderr}")
    return int(found[1])


def table(rows: list[tuple[str, int, int, int]]) -> str:
    """What, the Arm kernel's instructions, and those of both twins."""
    text = "| kernel | Arm | compiled twin | ratio | scalar twin | ratio |\n|---|---|---|---|---|---|\n"
    for what, arm, compiled, scalar in rows:
        text += f"| {what} | {arm:,} | {compiled:,} | {compiled / arm:.1f} | {scalar:,} | {scalar / arm:.1f} |\n"
    return text


def put(page: str, text: str) -> str:
    """The page with this table between its marks."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def main() -> int:
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "arm"
    folder.mkdir(parents=True, exist_ok=True)
    plugin = folder / "instructions.so"
    source = ROOT / "tools" / "instructions.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(plugin), str(source)], check=True)
    rows = []
    compiled, scalar = build(folder, "compiled"), build_scalar(folder)
    for crate, (_, kernel, kinds) in PROGRAMS.items():
        programs = [compiled[crate], scalar[crate]]
        twin = subprocess.run(
            ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(programs[0])], capture_output=True, text=True, check=True
        ).stdout.splitlines()[1].split()[0]

        def takes(program: Path, what: str, instruction_set: str) -> int:
            once, twice = (instructions(plugin, program, what, instruction_set, times) for times in ("1", "2"))
            return twice - once

        for what, words in kinds.items():
            counts = takes(programs[0], what, kernel), takes(programs[0], what, twin), takes(programs[1], what, twin)
            rows.append((words, *counts))
            print(words, *counts, file=sys.stderr)
    text = table(rows)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(put(PAGE.read_text(), text))
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
