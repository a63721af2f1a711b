"""Runs curves, norms, and blocks of networks beside SPU's Cheetah by turns: a record for docs/benchmarks.md.

    python3 -m venv .venv/spu
    .venv/spu/bin/pip install spu==0.9.5 onnx onnxruntime      (nothing is installed by this tool)
    cargo build --release --package jaguar-cli
    .venv/spu/bin/python tools/beside_spu/run.py [--turns 3] [--only NAME ...] [--json docs/figures/spu.json]

Of each network (`networks.py`) both have the same random weights and the same inputs.

- SPU: two processes, one link over TCP on loopback, protocol CHEETAH, FM64, 18 bits after the point (its default). The weights are private to one
  party (its colocated optimisation, which halves the work of its matrix products). A network has one or two forms: what jax writes, and approximations that SPU's examples take.
- Ours: `jaguar compile` with ten inputs, by default options and by those of `OUR_FORMS`; `jaguar serve` and `jaguar predict`, a thread each, over TCP
  on loopback without TLS. A query is prepared while nobody asks, so its two parts can be told apart.

All forms take turns. What counts is the processes' own clocks, of both parties together. The first call of each is not counted: keys, base OTs
and the hint belong to it. SPU makes correlations in large batches, so some of its runs have one batch more than others.

How far off: the root mean square of the differences from onnxruntime's floats, over the span of these (the median of the turns), and the largest of
the differences of any turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).parent)]

from operator_parts import Client, Place, Server, free_port, until  # noqa: E402

SETTINGS = {"protocol": "CHEETAH", "field": "FM64", "fxp_fraction_bits": 18, "experimental_enable_colocated_optimization": True,
            "enable_pphlo_profile": True}
CALIBRATION = 10
# How long clocks stand still when there is nothing to do, in seconds.
QUIET = 1.0
OURS = "ours"
# Options of `jaguar compile`, by the name of the form.
OUR_FORMS = {OURS: [], "ours, `--accuracy-bound 0.1`": ["--accuracy-bound", "0.1"], "ours, `--hide-for 1`": ["--hide-for", "1"]}
HEADER = ["network", "values in", "program", "CPU s, both parties", "before the input", "with it", "MiB, both ways", "error, % of the span",
          "largest of any turn", "times ours, CPU", "times ours, bytes"]


def cpu(process: subprocess.Popen) -> float:
    """Seconds of processor time that a process has taken, by Linux's clock of it."""
    return time.clock_gettime((~process.pid << 3) | 2)


class Spu:
    """Two parties."""

    def __init__(self, place: Place, name: str) -> None:
        ports = [str(free_port()), str(free_port())]
        self.folder, self.logs = place.folder, [place.folder / f"spu{rank}.log" for rank in (0, 1)]
        self.parties = []
        for rank, log in enumerate(self.logs):
            command = [sys.executable, str(Path(__file__).with_name("party.py")), str(rank), name, str(place.folder), json.dumps(SETTINGS), *ports]
            with log.open("w") as sink:
                party = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink, stderr=subprocess.STDOUT, text=True)
            place.processes.append(party)
            self.parties.append(party)
        self.said = [0, 0]
        self.answered()

    def answered(self) -> list[dict[str, Any]]:
        """The next line of JSON of each party, with what it sent since the one before."""
        found = []
        for rank, (party, log) in enumerate(zip(self.parties, self.logs, strict=True)):
            def lines(log: Path = log) -> list[str]:
                return [line for line in log.read_text().split("\n")[:-1] if line.startswith("{") or "Link details" in line]

            def count(log: Path = log) -> int:
                return sum(line.startswith("{") for line in lines(log))

            until(f"party {rank} of SPU", lambda: count() > self.said[rank] or party.poll() is not None, 3600)
            if count() <= self.said[rank]:
                raise SystemExit(f"SPU ended:\n{log.read_text()[-2000:]}")
            self.said[rank] += 1
            told = [number for number, line in enumerate(lines()) if line.startswith("{")]
            *_, last = told[:self.said[rank]]
            first = told[self.said[rank] - 2] if self.said[rank] > 1 else 0
            sent = [re.search(r"total send bytes (\d+)", line) for line in lines()[first:last]]
            found.append(json.loads(lines()[last]) | {"sent": sum(int(match[1]) for match in sent if match)})
        return found

    def ask(self, form: str, turn: int) -> dict[str, Any]:
        import numpy as np

        for party in self.parties:
            party.stdin.write(json.dumps({"form": form, "turn": turn}) + "\n")
            party.stdin.flush()
        told = self.answered()
        return {"cpu": sum(one["cpu"] for one in told), "bytes": sum(one["sent"] for one in told), "answer": np.load(self.folder / "answer.npy")}


class Ours:
    """A server and a client that stay, and prepare a query while nobody asks."""

    def __init__(self, place: Place, bundle: Path) -> None:
        self.server = Server(place, bundle.stem, [str(bundle), "--threads", "1"], (free_port(), free_port()), tls="off")
        command = [place.jaguar, "predict", "--server", self.server.address, "--stdin", "--json", "--keep", "1", "--threads", "1", "--no-cache"]
        self.client = Client(place, command)
        self.asked = 0
        self.settle()

    def spent(self) -> float:
        return cpu(self.client.process) + cpu(self.server.process)

    def settle(self) -> float:
        """Waits until both have nothing to do; what they have spent."""
        before = -1.0
        while self.spent() - before > 0.01 * QUIET:
            before = self.spent()
            time.sleep(QUIET)
        return self.spent()

    def ask(self, path: Path) -> dict[str, Any]:
        import numpy as np

        before = self.spent()
        self.client.ask(str(path))
        self.asked += 1
        # (Looked for often: from the answer on, the next query is prepared.)
        while len(self.client.answers) < self.asked and self.client.process.poll() is None:
            time.sleep(0.002)
        online = self.spent() - before
        reply = self.client.answered(self.asked).answers[-1]
        whole = self.settle() - before
        cost = reply["cost"]
        sent = {stage: cost[stage]["bytes_up"] + cost[stage]["bytes_down"] for stage in ("offline", "online")}
        if "error" in reply or cost.get("kept") is None:
            raise SystemExit(f"the query was not prepared before its input: {reply.get('error', 'see --keep-memory')}")
        return {"cpu": whole, "online": online, "bytes": sum(sent.values()), "sent": sent, "answer": np.array(reply["outputs"][0]["values"], np.float64)}


def errors(got: Any, want: Any) -> tuple[float, float]:
    import numpy as np

    difference, span = got.ravel() - want.ravel(), float(want.max() - want.min())
    return float(np.abs(difference).max()) / span, float(np.sqrt(np.square(difference).mean())) / span


def measure(case: Any, turns: int, jaguar: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The turns of a network, by program."""
    import numpy as np
    import onnxruntime

    case.export(folder / "network.onnx")
    inputs = case.inputs(CALIBRATION + turns + 1)
    for number, value in enumerate(inputs):
        np.save(folder / (f"calibration-{number}.npy" if number < CALIBRATION else f"asked-{number - CALIBRATION}.npy"), value)
    session = onnxruntime.InferenceSession(folder / "network.onnx", providers=["CPUExecutionProvider"])
    samples = [str(folder / f"calibration-{number}.npy") for number in range(CALIBRATION)]
    bundles = {}
    for number, (form, options) in enumerate(OUR_FORMS.items()):
        bundles[form] = folder / f"network{number}.jaguar"
        command = [jaguar, "compile", str(folder / "network.onnx"), "--calibrate", *samples, *options, "-o", str(bundles[form])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        print(done.stdout, file=sys.stderr, flush=True)
    place, found = Place(folder, jaguar), {name: [] for name in [*case.forms, *OUR_FORMS]}
    try:
        ours, spu = {form: Ours(place, bundle) for form, bundle in bundles.items()}, Spu(place, case.name)
        for turn in range(turns + 1):
            (want,) = session.run(None, {"x": inputs[CALIBRATION + turn]})
            told = {form: spu.ask(form, turn) for form in case.forms}
            told |= {form: one.ask(folder / f"asked-{turn}.npy") for form, one in ours.items()}
            for name, one in told.items():
                largest, mean = errors(one.pop("answer"), want.astype(np.float64))
                print(f"{case.name}, {name}: {one}, {largest:.2e}, {mean:.2e}", file=sys.stderr, flush=True)
                if turn > 0:
                    found[name].append(one | {"largest": largest, "mean": mean})
    finally:
        place.end()
    return found


def rows(case_name: str, values: int, turns: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """Medians, medians of the ratios within each turn, and the largest error of any."""
    def median(name: str, key: str) -> float:
        return statistics.median(turn[key] for turn in turns[name])

    def ratio(name: str, key: str) -> float:
        return statistics.median(theirs[key] / own[key] for theirs, own in zip(turns[name], turns[OURS], strict=True))

    made = []
    for name in turns:
        whole, own = median(name, "cpu"), name in OUR_FORMS
        parts = [f"{whole - median(name, 'online'):.2f}", f"{median(name, 'online'):.2f}"] if own else ["–", "–"]
        ratios = [f"{ratio(name, 'cpu'):.1f}", f"{ratio(name, 'bytes'):.1f}"]
        worst = max(turn["largest"] for turn in turns[name])
        made.append([case_name, f"{values:,}", name if own else f"SPU, {name}", f"{whole:.2f}", *parts, f"{median(name, 'bytes') / 2**20:.0f}",
                     f"{100 * median(name, 'mean'):.4f}", f"{100 * worst:.3f}", *ratios])
    return made


def record(made: list[list[str]], turns: dict[str, Any], count: int, load: float, versions: str) -> dict[str, Any]:
    def said(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()

    models = [line.split(":", 1)[1].strip() for line in said("lscpu").splitlines() if line.startswith("Model name")]
    setting = {"commit": said("git", "rev-parse", "--short=7", "HEAD"), "command": f"tools/beside_spu/run.py --turns {count}",
               "machine": (models or [platform.machine()])[0], "hardware_threads": os.cpu_count(), "kernel": "the kernels that each chooses",
               "threads": "ours one thread a party", "link": f"TCP on loopback, by turns with SPU {versions}", "statistic": "medians", "repeats": count,
               "load_before": load, "load_after": os.getloadavg()[0]}
    table = {"name": "networks", "title": "Beside SPU", "header": HEADER, "numbers_from": 3, "rows": made, "notes": ""}
    return {"setting": setting, "tables": [table], "figures": {"turns": turns}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="networks by name; all of them unless named")
    parser.add_argument("--jaguar", default=str(ROOT / "target" / "release" / "jaguar"))
    parser.add_argument("--json", type=Path, help="a record to write; with --only, its other networks stay")
    arguments = parser.parse_args()
    try:
        import math

        import spu

        from networks import CASES
    except ImportError as missing:
        sys.exit(f"{missing}: see the head of {__file__} for what it needs")
    names = [case.name for case in CASES]
    if unknown := set(arguments.only or []) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}: {', '.join(names)}")
    old = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() and arguments.only else None
    turns, load = (old["figures"]["turns"] if old else {}), (old["setting"]["load_before"] if old else os.getloadavg()[0])
    for case in CASES:
        if arguments.only and case.name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            turns[case.name] = measure(case, arguments.turns, arguments.jaguar, Path(folder))
        made = [row for one in CASES if one.name in turns for row in rows(one.name, math.prod(one.shape), turns[one.name])]
        if arguments.json:
            told = record(made, turns, arguments.turns, load, spu.__version__)
            arguments.json.write_text(json.dumps(told, ensure_ascii=False) + "\n", encoding="utf-8")
    for row in [HEADER, ["---"] * len(HEADER), *made]:
        print("| " + " | ".join(row) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
