"""Builds the fuzzer with coverage, and runs it on every target for a while. `make fuzz` calls this.

    python3 tools/fuzz.py [--seconds 60] [--target NAME]... [--record FILE] [--keep] [--program FILE] [--page docs/fuzzing.md]
    python3 tools/fuzz.py --check    # what `make lint` runs: whether docs/fuzzing.md shows fuzz/record.json

It needs a C++ compiler and the stable toolchain: coverage comes from LLVM's own instrumentation, by flags that are stable, and
from libFuzzer's source, which the crate libfuzzer-sys brings. (cargo-fuzz passes the same flags; what it adds is AddressSanitizer, which
needs a nightly toolchain.) Inputs that were found stay in target/fuzz/corpus, so that the next run goes on there; what crashed is
in target/fuzz/crashes. Exits with 1 if something was. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from findings import put, tell

ROOT = Path(__file__).resolve().parent.parent
TARGET_FOLDER = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = TARGET_FOLDER / "fuzz-work"
KEPT = ROOT / "fuzz" / "corpus"

# Counters for each edge, and where the edges are.
FLAGS = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
]

# An input that takes longer is a hang, on a machine with other things to do too.
TIMEOUT = 60
# Bounds of memory are the targets' own (fuzz/src); this is what stops a run that they miss.
MEMORY_MIB = 6144

# Of the inputs that a fuzzer kept: so many of each target go into the repository, and none that is longer.
MOST_KEPT = 40
LONGEST_KEPT = 1024


def host() -> str:
    """The toolchain's own platform: named, so that build scripts are built without the flags."""
    about = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return re.search(r"^host: (.*)$", about, re.M)[1]


def build() -> Path:
    platform = host()
    command = ["cargo", "build", "--locked", "--package", "jaguar-fuzz", "--features", "coverage", "--profile", "fuzz"]
    subprocess.run([*command, "--target", platform], check=True, cwd=ROOT, env={**os.environ, "RUSTFLAGS": " ".join(FLAGS)})
    return TARGET_FOLDER / platform / "fuzz" / "jaguar-fuzz"


def names(program: Path) -> dict[str, int]:
    """The targets, and how long an input of each may be."""
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")
    return {name: int(longest) for name, longest in (line.split() for line in lines if line)}


def figures(log: str) -> dict:
    """What libFuzzer and the target said."""
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
    edges = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", log)
    worst = [(int(peak), int(length)) for peak, length in re.findall(r"worst: (\d+) bytes for (\d+) bytes", log)]
    slowest = re.search(r"stat::slowest_unit_time_sec:\s*(\d+)", log)
    return {
        "executions": int(executed[1]) if executed else 0,
        "edges": int(edges[-1][0]) if edges else 0,
        "inputs": int(edges[-1][2]) if edges else 0,
        "peak_bytes": max(worst, default=(0, 0))[0],
        "peak_input": max(worst, default=(0, 0))[1],
        "slowest_seconds": int(slowest[1]) if slowest else 0,
    }


def run(program: Path, name: str, longest: int, seconds: int) -> tuple[dict, bool]:
    """Fuzzes one target. Returns its figures, and whether nothing was found."""
    corpus, crashes = WORK / "corpus" / name, WORK / "crashes"
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "JAGUAR_FUZZ_TARGET": name, "RAYON_NUM_THREADS": "1", "RUST_BACKTRACE": "1"}
    with tempfile.TemporaryDirectory() as seeds:
        subprocess.run([program], check=True, env={**environment, "JAGUAR_FUZZ_SEEDS": seeds}, capture_output=True)
        folders = [folder for folder in (corpus, KEPT / name, Path(seeds)) if folder.is_dir()]
        options = {"max_total_time": seconds, "max_len": longest, "timeout": TIMEOUT, "rss_limit_mb": MEMORY_MIB}
        options |= {"print_final_stats": 1, "artifact_prefix": f"{crashes}/{name}-"}
        # (Leaks are no matter: what is recorded once stays.)
        options |= {"detect_leaks": 0, "use_value_profile": 0}
        command = [program, *(f"-{key}={value}" for key, value in options.items()), *folders]
        log = WORK / f"{name}.log"
        with log.open("w") as file:
            done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    # What the child left behind, if it was ended.
    found = figures(log.read_text(errors="replace"))
    if done.returncode:
        print(f"{name}: ended with {done.returncode}; see {log}", file=sys.stderr)
    return found, done.returncode == 0


def keep(program: Path, name: str) -> None:
    """Puts a small set of inputs into the repository that cover as much as all that were found."""
    environment = {**os.environ, "JAGUAR_FUZZ_TARGET": name, "RAYON_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as merged:
        command = [program, "-merge=1", f"-max_len={LONGEST_KEPT}", merged, WORK / "corpus" / name]
        subprocess.run(command, check=True, env=environment, capture_output=True)
        files = sorted(Path(merged).iterdir(), key=lambda file: (file.stat().st_size, file.name))
        # All lengths: the shortest reach the least.
        some = files[:: max(1, -(-len(files) // MOST_KEPT))]
        shutil.rmtree(KEPT / name, ignore_errors=True)
        (KEPT / name).mkdir(parents=True)
        for file in some:
            shutil.copy(file, KEPT / name / file.name[:16])


def table(results: dict[str, dict]) -> str:
    lines = [f"{'target':30} {'inputs tried':>14} {'edges':>8} {'kept':>6} {'peak, MiB':>10} {'of bytes':>9} {'slowest, s':>10}"]
    for name, r in results.items():
        peak = r["peak_bytes"] / 2**20
        lines.append(f"{name:30} {r['executions']:14,} {r['edges']:8} {r['inputs']:6} {peak:10.2f} {r['peak_input']:9} {r['slowest_seconds']:10}")
    return "\n".join([*lines, f"{'all':30} {sum(r['executions'] for r in results.values()):14,}"])


def page(record: dict[str, dict], order: list[str]) -> str:
    """The record as a table of docs/fuzzing.md."""
    lines = ["| target | inputs tried | edges | peak, MiB | for an input of | slowest, s |", "|---|---|---|---|---|---|"]
    for name in order:
        if r := record.get(name):
            cells = [f"{r['executions']:,}", f"{r['edges']:,}", f"{r['peak_bytes'] / 2**20:.2f}", f"{r['peak_input']:,} bytes", r["slowest_seconds"]]
            lines.append(f"| `{name}` | " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, f"| all | {sum(r['executions'] for r in record.values()):,} | | | | |"])


BEGIN, END = "<!-- fuzzing:begin -->\n", "\n<!-- fuzzing:end -->"


def problems(file: Path, record: dict[str, dict]) -> list[str]:
    """Where a page does not show the record: each target once, with what is recorded of it."""
    shown = file.read_text().split(BEGIN)[1].split(END)[0]
    order = re.findall(r"^\| `([^`]+)` \|", shown, re.M)
    found = [f"{name} is recorded and not shown" for name in record if name not in order]
    found += [f"{name} is shown and not recorded" for name in order if name not in record]
    if not found and shown != page(record, order):
        found.append("its table is not that of the record: tools/fuzz.py --record fuzz/record.json --page docs/fuzzing.md puts it there")
    return [f"{file}: {line}" for line in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", action="append", help="this one only (may be given several times)")
    parser.add_argument("--record", type=Path, help="adds what was tried to this file (JSON)")
    parser.add_argument("--program", type=Path, help="the fuzzer, where it is built already")
    parser.add_argument("--page", type=Path, help="puts the table of --record there, between its two marks")
    parser.add_argument("--keep", action="store_true", help="renews fuzz/corpus from what was found")
    parser.add_argument("--check", action="store_true", help="compares docs/fuzzing.md with fuzz/record.json, and runs nothing")
    options = parser.parse_args()
    if options.check:
        return tell(problems(ROOT / "docs/fuzzing.md", json.loads((ROOT / "fuzz/record.json").read_text())))
    program = options.program.resolve() if options.program else build()
    known = names(program)
    wanted = options.target or list(known)
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(known)}")
    record = json.loads(options.record.read_text()) if options.record and options.record.exists() else {}
    results, sound = {}, True
    for name in wanted:
        results[name], clean = run(program, name, known[name], options.seconds)
        sound &= clean
        if clean and options.keep:
            keep(program, name)
        if clean and options.record:
            before = record.get(name, {"executions": 0})
            both = {**results[name], "executions": results[name]["executions"] + before["executions"]}
            for key in ("peak_bytes", "edges", "slowest_seconds"):
                if before.get(key, 0) > both[key]:
                    both[key] = before[key]
                    if key == "peak_bytes":
                        both["peak_input"] = before["peak_input"]
            record[name] = both
            options.record.write_text(json.dumps(record, indent=1) + "\n")
        print(table({name: results[name]}).split("\n")[1], flush=True)
    print(table(results))
    if options.page:
        options.page.write_text(put(options.page.read_text(), BEGIN, END, page(record, list(known))))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
