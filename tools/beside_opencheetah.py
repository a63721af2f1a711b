"""Runs whole networks beside OpenCheetah by turns: a record for docs/benchmarks.md.

    python3 tools/beside_opencheetah.py BUILD "SqueezeNet 1.1=sq.jaguar" ResNet-50=r50.jaguar --commit COMMIT \
      [--turns 3] [--json docs/figures/opencheetah.json]

BUILD is OpenCheetah's folder (f71d4d4), built as its scripts say with `sqnet-cheetah` and `resnet50-cheetah`, `-DCMAKE_CXX_FLAGS=-march=native`, and
without `VERIFY_LAYERWISE` in SCI/src/library_fixed_uniform_cheetah.cpp: with it each party shows the other one what it computed, to check itself.
Models are compiled with the default options (`jaguar compile`); as many turns are asked as --turns says, of each program.

- OpenCheetah: shares of 37 bits, scale 2^12 (its own settings), `--threads` threads a party, random weights (its trained ones are downloads), the picture
  that it brings. What it costs does not depend on values.
- Ours: `jaguar serve` and `jaguar predict`, a thread each; the hint is there. The model as it is (noise in answers, guard bits); by our own Cheetah
  backend; and, where sq.plain lies beside sq.jaguar, that model, which has neither (`compile --hide-for 1`).

All take turns, over TCP on loopback without TLS. What counts are the processes' clocks, of both parties together, start included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from operator_parts import free_port, until

ROOT = Path(__file__).resolve().parent.parent
PHOTO = ROOT / "demo" / "photo.jpg"
# By our name: OpenCheetah's program, and at least as many weights as it reads.
NETWORKS = {"SqueezeNet 1.1": ("sqnet", 1_300_000), "ResNet-50": ("resnet50", 26_000_000)}
THEIRS, OURS, PLAIN, BACKEND = "OpenCheetah", "ours", "ours, `--hide-for 1`", "our Cheetah backend"
HEADER = ["network", "program", "CPU s, both parties", "seconds", "online s", "MiB", "rounds", "times ours, CPU", "times ours, bytes"]


class Process:
    """A child whose processor time is known when it has ended."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command, self.began, self.took = command, time.monotonic(), (0.0, 0.0)
        self.child = subprocess.Popen(command, text=True, **options)


def ended(*processes: Process) -> list[tuple[float, float]]:
    """Waits for these; no other child may end meanwhile. Processor seconds of each, and seconds. If one fails, the others are ended: a party
    of OpenCheetah waits for the other one for ever."""
    left = {process.child.pid: process for process in processes}
    while left:
        pid, status, used = os.wait4(-1, 0)
        process = left.pop(pid)
        process.child.returncode = os.waitstatus_to_exitcode(status)
        process.took = (used.ru_utime + used.ru_stime, time.monotonic() - process.began)
        if process.child.returncode != 0:
            for other in left.values():
                other.child.kill()
            raise SystemExit(f"{process.command} ended with {process.child.returncode}")
    return [process.took for process in processes]


def open_cheetah(build: Path, name: str, weights: Path, threads: int, folder: Path) -> dict[str, float]:
    """One query. It keeps correlations in `data`, which is a new folder each time."""
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "data").mkdir()
    [picture] = (build / "pretrained").glob(f"{name}_input*.inp")
    given = ["k=12", "ell=37", f"nt={threads}", f"p={free_port()}"]
    parties = []
    for role, (own, values) in enumerate([([], weights), (["ip=127.0.0.1"], picture)], 1):
        command = [str(build / "build" / "bin" / f"{name}-cheetah"), f"r={role}", *given, *own]
        with values.open() as source, (place / f"{role}.log").open("w") as log:
            parties.append(Process(command, stdin=source, stdout=log, stderr=log, cwd=place))
    took = ended(*parties)
    said = (place / "1.log").read_text()

    def told(pattern: str) -> float:
        return float(re.findall(pattern, said)[-1])

    return {"cpu": sum(cpu for cpu, _ in took), "seconds": max(seconds for _, seconds in took),
            "mib": told(r"Total comm \(sent\+received\) = ([\d.]+)"), "rounds": told(r"Number of rounds = (\d+)")}


def ours(jaguar: str, model: Path, options: list[str], cache: Path) -> dict[str, float]:
    """One query of a client that has the hint."""
    port = free_port()
    command = [jaguar, "serve", str(model), "--listen", f"127.0.0.1:{port}", "--tls", "off", "--measure", "off", "--threads", "1", *options]
    log = cache / "server.log"
    cache.mkdir(exist_ok=True)
    with log.open("w") as sink:
        server = Process(command, stdout=sink, stderr=subprocess.STDOUT)
    until("the server listens", lambda: "listening on" in log.read_text())
    asked = [jaguar, "predict", "--server", f"127.0.0.1:{port}", "--threads", "1", "--cache", str(cache), "--json", str(PHOTO)]
    client = Process(asked, stdout=subprocess.PIPE)
    assert client.child.stdout
    said = client.child.stdout.read()
    server.child.terminate()
    (cpu, seconds), (spent, _) = ended(client, server)
    cost = json.loads(said)["cost"]
    stages = [cost[stage] for stage in ("offline", "online")]
    return {"cpu": cpu + spent, "seconds": seconds, "online": cost["online_seconds"],
            "mib": sum(stage["bytes_up"] + stage["bytes_down"] for stage in stages) / 2**20, "rounds": sum(stage["rounds"] for stage in stages)}


def measure(args: argparse.Namespace, name: str, model: Path, folder: Path) -> dict[str, list[dict[str, float]]]:
    program, count = NETWORKS[name]
    weights = folder / "weights"
    # About one: it multiplies some with others, and a filter that becomes zero ends it.
    made = random.Random(1)
    weights.write_text("\n".join(" ".join(str(made.choice((-1, 1)) * made.randrange(1000, 4000)) for _ in range(1000)) for _ in range(count // 1000)))
    forms = {OURS: (model, []), BACKEND: (model, ["--backends", "cheetah"])}
    if (plain := model.with_suffix(".plain")).exists():
        forms[PLAIN] = (plain, [])
    turns: dict[str, list[dict[str, float]]] = {form: [] for form in [THEIRS, *forms]}
    for turn in range(args.turns + 1):
        for number, (form, (file, options)) in enumerate(forms.items()):
            found = ours(args.jaguar, file, options, folder / f"cache{number}")
            if turn > 0:  # the first one fetches the hint
                turns[form].append(found)
                print(f"{name}, {form}: {found}, load {os.getloadavg()[0]:.1f}", flush=True)
        if turn > 0:
            turns[THEIRS].append(open_cheetah(args.build, program, weights, args.threads, folder))
            print(f"{name}, {THEIRS}: {turns[THEIRS][-1]}, load {os.getloadavg()[0]:.1f}", flush=True)
    return turns


def row(name: str, form: str, turns: dict[str, list[dict[str, float]]]) -> list[str]:
    """Medians with the least and the most, and medians of the ratios within each turn."""
    def spread(key: str, digits: int) -> str:
        values = [turn[key] for turn in turns[form] if key in turn]
        if not values:
            return "–"
        least, most = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
        return f"{statistics.median(values):.{digits}f}" + (f" ({least}–{most})" if least != most else "")

    def ratio(key: str) -> str:
        return f"{statistics.median(one[key] / own[key] for one, own in zip(turns[form], turns[OURS], strict=True)):.2f}"

    return [name, form, spread("cpu", 2), spread("seconds", 1), spread("online", 2), spread("mib", 1), spread("rounds", 0), ratio("cpu"), ratio("mib")]


def record(args: argparse.Namespace, turns: dict[str, Any], load: float) -> dict[str, Any]:
    def said(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()

    models = [line.split(":", 1)[1].strip() for line in said("lscpu").splitlines() if line.startswith("Model name")]
    setting = {"commit": args.commit, "command": "tools/beside_opencheetah.py BUILD NAME=MODEL …",
               "machine": models[0], "hardware_threads": os.cpu_count(), "kernel": "the kernels that each chooses",
               "threads": f"ours one thread a party, OpenCheetah {args.threads}",
               "link": "TCP on loopback, by turns with OpenCheetah f71d4d4", "statistic": "medians (least–most)", "repeats": "as many turns as the notes say",
               "load_before": load, "load_after": os.getloadavg()[0]}
    rows = [row(name, form, found) for name, found in turns.items() for form in found]
    counts = ", ".join(f"{name} {len(found[OURS])}" for name, found in turns.items())
    notes = f"Turns: {counts}. Others used the machine, so the CPU seconds count."
    table = {"name": "queries", "title": "A query of a whole network beside OpenCheetah", "header": HEADER, "numbers_from": 2, "rows": rows, "notes": notes}
    return {"setting": setting, "tables": [table], "figures": {"turns": turns}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL", help=f"names: {', '.join(NETWORKS)}")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=4, help="OpenCheetah's, of each party; with one it did not end")
    parser.add_argument("--commit", required=True, help="seven digits of the commit that our program was built from")
    parser.add_argument("--jaguar", default=str(ROOT / "target" / "release" / "jaguar"))
    parser.add_argument("--json", type=Path, help="a record to write; networks that are not named stay")
    args = parser.parse_args()
    args.build = args.build.resolve()
    models = dict(text.split("=", 1) for text in args.models)
    if unknown := set(models) - set(NETWORKS):
        parser.error(f"there is no {', '.join(sorted(unknown))}: {', '.join(NETWORKS)}")
    load = os.getloadavg()[0]
    old = json.loads(args.json.read_text())["figures"].get("turns", {}) if args.json and args.json.exists() else {}
    turns = {name: found for name, found in old.items() if name not in models}
    for name, model in models.items():
        with tempfile.TemporaryDirectory() as folder:
            turns[name] = measure(args, name, Path(model).resolve(), Path(folder))
        told = record(args, turns, load)
        if args.json:
            args.json.write_text(json.dumps(told, ensure_ascii=False) + "\n", encoding="utf-8")
    for line in [HEADER, ["---"] * len(HEADER), *told["tables"][0]["rows"]]:
        print("| " + " | ".join(line) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
