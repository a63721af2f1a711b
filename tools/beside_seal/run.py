"""Times BFV's operations beside Microsoft SEAL's, by turns: a record for docs/protocols/hyena.md.

    git clone https://github.com/microsoft/SEAL    (any release of version 4)
    cargo build --release --package jaguar-bench
    python3 tools/beside_seal/run.py --seal SEAL [--hexl FOLDER] [--turns 7] [--json docs/figures/seal.json]

Needs cmake and a C++ compiler. SEAL is built in target/seal for this machine (-O3 -march=native), without HEXL. With `--hexl`, the
folder where Intel HEXL 1.2 was installed (`cmake --install`), it is built a second time with it. HEXL is fast where the processor has
AVX-512 (DQ, and IFMA for primes of up to 50 bits). All run on one thread, N = 8192, four primes in a ciphertext: SEAL with its
default primes for 128 bits (4 of 43 and 44 bits, and one of 44 for keys alone), ours with 4 of 50 bits and digits of 25. Each
operation runs some times in a row, so that what it reads is in the caches; what counts is the time on a core.
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
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DSEAL_USE_MSGSL=OFF", "-DSEAL_USE_ZLIB=OFF", "-DSEAL_USE_ZSTD=OFF",
           "-DSEAL_BUILD_DEPS=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG -O3 -march=native"]
# What one of SEAL's does in two of ours: (times, name).
TOGETHER = {"both transforms of a ciphertext": [(2, "transform of a polynomial"), (2, "inverse transform of a polynomial")]}


def build(seal: Path, hexl: Path | None, jobs: int) -> Path:
    """SEAL and the program beside it; returns the program."""
    folder = ROOT / "target" / ("seal-hexl" if hexl else "seal")
    installed, program = folder / "installed", folder / "operations"
    with_hexl = ["-DSEAL_USE_INTEL_HEXL=ON", f"-DCMAKE_PREFIX_PATH={hexl}"] if hexl else ["-DSEAL_USE_INTEL_HEXL=OFF"]
    for command in (["cmake", "-S", str(seal), "-B", str(folder / "build"), f"-DCMAKE_INSTALL_PREFIX={installed}", *OPTIONS, *with_hexl],
                    ["cmake", "--build", str(folder / "build"), "--target", "install", "--parallel", str(jobs)]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    libraries, include = [next(installed.glob("lib*/libseal*.a"))], next((installed / "include").glob("SEAL-4*"))
    folders = [include]
    if hexl:
        libraries += [*hexl.glob("lib*/libhexl*.a"), *hexl.glob("lib*/libcpu_features*.a")]
        folders.append(hexl / "include")
    subprocess.run(["c++", "-std=c++17", "-O3", "-march=native", "-DNDEBUG", *(f"-I{folder}" for folder in folders),
                    str(Path(__file__).with_name("operations.cpp")), *map(str, libraries), "-lpthread", "-o", str(program)], check=True)
    return program


def seal_times(program: Path) -> dict[str, float]:
    printed = subprocess.run([program, "5"], check=True, capture_output=True, text=True).stdout
    return {name: float(time) for name, time in (line.split("\t") for line in printed.splitlines())}


def our_times(program: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """Ours, and the setting in which they were taken."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "operations.json"
        subprocess.run([program, "hyena", "--only", "operations", "--repeats", "1", "--json", file], check=True,
                       capture_output=True)
        report = json.loads(file.read_text())
    ring = next(ring for ring in report["figures"]["operations"] if ring["n"] == 8192)
    times = {operation["name"]: operation["seconds"] * 1e6 for operation in ring["operations"]}
    return times | {name: sum(count * times[part] for count, part in parts) for name, parts in TOGETHER.items()}, report["setting"]


def table(turns: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Medians of all turns, and of the ratios within each turn. A turn has times by program, ours last."""
    *peers, ours = turns[0]
    header = ["operation", *(f"{peer}, µs" for peer in peers), f"{ours}, µs", *(f"{peer} / {ours}" for peer in peers)]
    rows = []
    for name in turns[0][peers[0]]:
        median = [f"{statistics.median(turn[who][name] for turn in turns):.0f}" for who in turns[0]]
        ratios = [f"{statistics.median(turn[peer][name] / turn[ours][name] for turn in turns):.2f}" for peer in peers]
        rows.append([name, *median, *ratios])
    notes = ("A ratio above 1: ours is faster. Ours encodes with the step from p to q, which SEAL takes when it encrypts. SEAL's keys "
             "have a special prime and as many digits as primes; ours have eight digits and no special prime.")
    return {"name": "operations", "title": "BFV beside SEAL", "header": header, "numbers_from": 1, "rows": rows, "notes": notes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seal", type=Path, required=True, help="the folder of SEAL's sources")
    parser.add_argument("--hexl", type=Path, help="the folder where Intel HEXL is installed")
    parser.add_argument("--jaguar-bench", type=Path, default=ROOT / "target" / "release" / "jaguar-bench")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the compiler")
    parser.add_argument("--json", type=Path, help="writes a record")
    arguments = parser.parse_args()
    if not (arguments.seal / "CMakeLists.txt").is_file():
        sys.exit(f"{arguments.seal}: not the folder of SEAL's sources")
    programs = {"SEAL": build(arguments.seal, None, arguments.jobs)}
    if arguments.hexl:
        programs["SEAL with HEXL"] = build(arguments.seal, arguments.hexl, arguments.jobs)
    turns: list[dict[str, dict[str, float]]] = []
    setting: dict[str, Any] = {}
    for _ in range(arguments.turns):
        ours, now = our_times(arguments.jaguar_bench)
        before = setting.get("load_before", now["load_before"])
        setting = now | {"load_before": before}
        turns.append({name: seal_times(program) for name, program in programs.items()} | {"ours": ours})
    command = "tools/beside_seal/run.py --seal SEAL" + (" --hexl HEXL" if arguments.hexl else "") + f" --turns {arguments.turns}"
    setting |= {"command": command, "threads": "one thread, time on a core", "link": "by turns", "repeats": arguments.turns}
    found = table(turns)
    for row in [found["header"], ["---"] * len(found["header"]), *found["rows"]]:
        print("| " + " | ".join(row) + " |")
    if arguments.json:
        record = {"setting": setting, "tables": [found], "figures": {"turns": turns}}
        arguments.json.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
