"""Times BFV's operations beside Microsoft SEAL's, by turns: a table for docs/protocols/hyena.md.

    git clone --branch 4.1.2 https://github.com/microsoft/SEAL    (any release of version 4)
    cargo build --release
    python3 tools/beside_seal/run.py --seal SEAL [--turns 7]

Needs cmake and a C++ compiler. SEAL is built in target/seal for this machine (-O3 -march=native), without HEXL. Both run on one
thread, N = 8192, four primes in a ciphertext: SEAL with its default primes for 128 bits (4 of 43 and 44 bits, and one of 44 for
keys alone), ours with 4 of 50 bits and digits of 25.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DSEAL_USE_MSGSL=OFF", "-DSEAL_USE_ZLIB=OFF", "-DSEAL_USE_ZSTD=OFF",
           "-DSEAL_USE_INTEL_HEXL=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG -O3 -march=native"]
# What one of SEAL's does in two of ours: (times, name).
TOGETHER = {"both transforms of a ciphertext": [(2, "transform of a polynomial"), (2, "inverse transform of a polynomial")]}


def build(seal: Path) -> Path:
    """SEAL and the program beside it; returns the program."""
    folder = ROOT / "target" / "seal"
    installed, program = folder / "installed", folder / "operations"
    cores = str(os.cpu_count() or 1)
    for command in (["cmake", "-S", str(seal), "-B", str(folder / "build"), f"-DCMAKE_INSTALL_PREFIX={installed}", *OPTIONS],
                    ["cmake", "--build", str(folder / "build"), "--target", "install", "--parallel", cores]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    library, include = next(installed.glob("lib*/libseal*.a")), next((installed / "include").glob("SEAL-4*"))
    subprocess.run(["c++", "-std=c++17", "-O3", "-march=native", "-DNDEBUG", f"-I{include}",
                    str(Path(__file__).with_name("operations.cpp")), str(library), "-lpthread", "-o", str(program)], check=True)
    return program


def seal_times(program: Path) -> dict[str, float]:
    printed = subprocess.run([program, "5"], check=True, capture_output=True, text=True).stdout
    return {name: float(time) for name, time in (line.split("\t") for line in printed.splitlines())}


def our_times(jaguar: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "operations.json"
        subprocess.run([jaguar, "bench", "hyena", "--only", "operations", "--repeats", "1", "--json", file], check=True,
                       capture_output=True)
        rings = json.loads(file.read_text())["figures"]["operations"]
    ring = next(ring for ring in rings if ring["n"] == 8192)
    times = {operation["name"]: operation["seconds"] * 1e6 for operation in ring["operations"]}
    return times | {name: sum(count * times[part] for count, part in parts) for name, parts in TOGETHER.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seal", type=Path, required=True, help="the folder of SEAL's sources")
    parser.add_argument("--jaguar", type=Path, default=ROOT / "target" / "release" / "jaguar")
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    if not (arguments.seal / "CMakeLists.txt").is_file():
        sys.exit(f"{arguments.seal}: not the folder of SEAL's sources")
    program = build(arguments.seal)
    turns = [(seal_times(program), our_times(arguments.jaguar)) for _ in range(arguments.turns)]
    print("| operation | SEAL, µs | ours, µs | times faster |\n|---|---|---|---|")
    for name in turns[0][0]:
        seal, ours = ([turn[party][name] for turn in turns] for party in (0, 1))
        ratio = statistics.median(theirs / own for theirs, own in zip(seal, ours, strict=True))
        print(f"| {name} | {statistics.median(seal):.0f} | {statistics.median(ours):.0f} | {ratio:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
