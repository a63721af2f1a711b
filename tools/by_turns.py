#!/usr/bin/env python3
"""Whole private queries of several compiled models by turns: processor seconds of both parties, seconds, bytes.

    python3 tools/by_turns.py --inputs SAMPLES --turns 5 --queries 8 dense.jaguar few.jaguar

Each turn starts `jaguar serve` and `jaguar predict` anew for each model, over TCP on this machine, one thread a party,
by the default plan (`--measure off`). The first two queries of a connection warm it up and are not counted. Processor
seconds are of the two processes, so a busy machine changes them less than it does the clock's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from capacity import threads_of
from operator_parts import free_port

ROOT = Path(__file__).resolve().parent.parent
# Queries that are asked before those that count.
WARM = 2


def reachable(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def bytes_of(answer: dict[str, Any]) -> int:
    """Of one query, both ways and both stages, without what is sent once."""
    cost = answer["cost"]
    return sum(cost[stage][way] for stage in ("offline", "online") for way in ("bytes_up", "bytes_down"))


def turn(jaguar: Path, model: Path, inputs: list[Path], cache: Path, wait: float) -> dict[str, float]:
    """Means of the queries of one connection. Raises RuntimeError with what the programs said where one gives up."""
    port = free_port()
    serve = [jaguar, "serve", model, "--listen", f"127.0.0.1:{port}", "--tls", "off", "--measure", "off"]
    predict = [jaguar, "predict", "--server", f"127.0.0.1:{port}", "--json", "--stdin"]
    one_thread = ["--threads", "1", "--cache"]
    with tempfile.TemporaryFile("w+") as said:
        server = subprocess.Popen([*serve, *one_thread, cache / "server"], stdout=said, stderr=said)
        client = None
        try:
            until = time.monotonic() + wait
            while not reachable(port):
                if server.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the server does not listen")
                time.sleep(0.05)
            client = subprocess.Popen(
                [*predict, *one_thread, cache / "client"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            )
            answers: list[dict[str, Any]] = []
            before = (0.0, 0.0)
            for number, path in enumerate(inputs):
                if number == WARM:
                    before = (threads_of(server.pid) + threads_of(client.pid), time.monotonic())
                print(path, file=client.stdin, flush=True)
                line = client.stdout.readline()
                if not line:
                    raise RuntimeError("the client gave no answer")
                answers.append(json.loads(line))
            after = (threads_of(server.pid) + threads_of(client.pid), time.monotonic())
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            said.seek(0)
            raise RuntimeError(f"{model}: {error}\n{said.read()}") from None
        finally:
            if client is not None:
                # (A client that is gone takes no more of what was written for it.)
                with contextlib.suppress(OSError):
                    client.stdin.close()
                client.wait()
            server.terminate()
            server.wait()
    counted = answers[WARM:]
    return {
        "processor_seconds": (after[0] - before[0]) / len(counted),
        "seconds": (after[1] - before[1]) / len(counted),
        "bytes": statistics.mean(bytes_of(answer) for answer in counted),
        "rounds": counted[-1]["cost"]["online"]["rounds"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+", help="compiled; the first is what others are held against")
    parser.add_argument("--inputs", type=Path, required=True, help="a folder of .npy, with folders in it or not")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--queries", type=int, default=8, help="that count, in each turn (default 8)")
    parser.add_argument("--jaguar", type=Path, default=ROOT / "target" / "release" / "jaguar")
    parser.add_argument("--wait", type=float, default=60, help="seconds for a server to listen (default 60)")
    parser.add_argument("--out", type=Path, help="a .json with every turn")
    args = parser.parse_args()
    if args.turns < 1 or args.queries < 1:
        parser.error("--turns and --queries are from 1 on")
    if len({model.stem for model in args.models}) < len(args.models):
        parser.error("two models have one name")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    args.jaguar = args.jaguar.resolve()
    inputs = sorted(args.inputs.rglob("*.npy"))[: WARM + args.queries]
    if len(inputs) < WARM + args.queries:
        print(f"by_turns: {args.inputs} has {len(inputs)} inputs, expected {WARM + args.queries}", file=sys.stderr)
        return 1
    turns: dict[str, list[dict[str, float]]] = {model.stem: [] for model in args.models}
    with tempfile.TemporaryDirectory() as kept:
        for _ in range(args.turns):
            for model in args.models:
                cache = Path(kept) / model.stem
                cache.mkdir(exist_ok=True)
                try:
                    turns[model.stem].append(turn(args.jaguar, model, inputs, cache, args.wait))
                except (RuntimeError, OSError) as error:
                    print(f"by_turns: {error}", file=sys.stderr)
                    return 1
    medians = {
        name: {what: statistics.median(row[what] for row in rows) for what in rows[0]} for name, rows in turns.items()
    }
    # The clock of processes has ticks: below one it reads zero.
    tick = 1 / os.sysconf("SC_CLK_TCK")
    first = max(next(iter(medians.values()))["processor_seconds"], tick)
    for name, row in medians.items():
        spread = [one["processor_seconds"] for one in turns[name]]
        print(
            f"{name:20} processor {row['processor_seconds']:.3f} s ({min(spread):.3f} to {max(spread):.3f}), "
            f"{first / max(row['processor_seconds'], tick):.2f} times faster; {row['seconds']:.3f} s, "
            f"{row['bytes'] / 2**20:.2f} MiB, {row['rounds']:.0f} rounds"
        )
    if args.out is not None:
        setting = {"hardware_threads": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "queries": args.queries}
        args.out.write_text(json.dumps({**setting, "medians": medians, "turns": turns}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
