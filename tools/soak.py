"""Many clients for many queries at one server, some of them bad: does it go on, and does its memory stay flat?

    python3 tools/soak.py MODEL INPUT [--jaguar target/release/jaguar] [--queries 1200] [--clients 8] [--places 4]

MODEL is a compiled model, INPUT a picture or tensor for it. Honest clients ask again and again, each in sessions of
`--session` queries, until `--queries` are answered or `--seconds` are over. The server has `--places`; with fewer than
there are clients, they stand in its line before each session. Beside them, all the time:

- two hostile ones: one sends random bytes, one greets rightly (another client's first bytes) and then sends random
  bytes;
- a slow one, whose bytes pass through a relay at `--slow` bytes a second;
- one that leaves: a client that is killed at a random moment.

Printed: what each kind of client met, seconds of a query by percentile (those of a session's first one hold the line
and the session's beginning, and stand apart), the longest line, the server's memory over the queries with its slope over
the second half and that slope's standard error, by the means of twenty stretches, and open files. The exit code is 1 if
the server died, if an honest client's query failed, if memory grows (slope above three standard errors and above 1 KiB a
query), or if files stay open.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import random
import socket
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from operator_parts import ROOT, Client, Place, Relay, Server, connect, free_port

# Seconds that a client stands in line at most.
WAIT = 600
# The second half of the server's memory is looked at in so many pieces.
STRETCHES = 20


@dataclass
class Tally:
    """What was seen; every list is appended to by many threads."""

    first: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    slow: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    hostile: int = 0
    killed: int = 0
    memory: list[tuple[int, int]] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    line: list[int] = field(default_factory=list)

    def answered(self) -> int:
        return len(self.first) + len(self.seconds)


class Soak:
    def __init__(self, options: argparse.Namespace, place: Place) -> None:
        self.options, self.place, self.tally = options, place, Tally()
        self.done = threading.Event()
        self.greeting = b""
        arguments = [options.model, "--max-clients", str(options.places or 2 * options.clients + 8)]
        # All of them come from one address.
        arguments += ["--max-sessions-per-address-and-hour", "1000000"]
        self.server = Server(place, "server", arguments, (free_port(), free_port()), tls="off")

    def predict(self, address: str, cache: str, queries: int) -> Client:
        command = [self.options.jaguar, "predict", "--server", address, "--json"]
        # All of them are on one machine.
        command += ["--threads", "1", "--cache", str(self.place.folder / cache), "--wait", str(WAIT)]
        return Client(self.place, command + [self.options.input] * queries)

    def ask(self, address: str, cache: str, queries: int, first: list[float], rest: list[float]) -> None:
        """One session; the seconds of its queries, waiting included."""
        client = self.predict(address, cache, queries)
        complaint = client.end()
        took = [after - before for before, after in itertools.pairwise(client.times)]
        first.extend(took[:1])
        rest.extend(took[1:])
        if client.process.returncode != 0 or len(client.answers) != queries:
            self.tally.failed.append(f"{cache}: {len(client.answers)} of {queries}: {complaint[-300:]}")

    def honest(self, number: int) -> None:
        while not self.done.is_set():
            self.ask(self.server.address, f"client-{number}", self.options.session, self.tally.first, self.tally.seconds)
            if self.tally.answered() >= self.options.queries or self.tally.failed:
                self.done.set()

    def slow_one(self) -> None:
        relay = Relay(self.server.address, rate=self.options.slow).address
        while not self.done.is_set():
            self.ask(relay, "slow", 1, self.tally.slow, self.tally.slow)

    def hostile_one(self, greets: bool) -> None:
        while not self.done.is_set():
            try:
                with connect(self.server.address) as connection:
                    connection.settimeout(10)
                    if greets and self.greeting:
                        connection.sendall(self.greeting)
                    connection.sendall(random.randbytes(random.randrange(1, 1 << 16)))
                    while connection.recv(1 << 16):
                        pass
            except OSError:
                pass
            self.tally.hostile += 1
            time.sleep(0.2)

    def leaver(self) -> None:
        while not self.done.is_set():
            client = self.predict(self.server.address, "leaver", 3)
            time.sleep(random.uniform(0.05, self.options.leave_within))
            client.process.kill()
            client.end()
            self.tally.killed += 1

    def watcher(self) -> None:
        began = said = time.monotonic()
        while not self.done.wait(0.5):
            self.look()
            now = time.monotonic()
            if now - said >= 30:
                said = now
                memory = self.tally.memory[-1][1] / 2**20
                print(f"{now - began:.0f} s: {self.tally.answered()} queries, {memory:.0f} MiB", file=sys.stderr)
            if now - began > self.options.seconds:
                self.done.set()

    def look(self) -> None:
        figures = self.server.figures()
        queries = sum(value for name, value in figures.items() if name.startswith("jaguar_queries_total"))
        self.tally.memory.append((int(queries), int(figures["jaguar_memory_resident_bytes"])))
        self.tally.files.append(int(figures["jaguar_open_files"]))
        self.tally.line.append(int(figures["jaguar_waiting"]))

    def learn_greeting(self) -> None:
        """The first bytes of an honest client."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = self.predict("127.0.0.1:%d" % listener.getsockname()[1], "greeting", 1)
            connection, _ = listener.accept()
            with connection:
                self.greeting = connection.recv(1 << 12)
            client.process.kill()
            client.end()

    def run(self) -> bool:
        self.learn_greeting()
        self.ask(self.server.address, "client-0", 1, [], [])
        self.look()
        files = self.tally.files[-1]
        work = [functools.partial(self.honest, number) for number in range(self.options.clients)]
        work += [functools.partial(self.hostile_one, greets) for greets in (False, True)]
        threads = [threading.Thread(target=each) for each in (*work, self.slow_one, self.leaver, self.watcher)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - started
        time.sleep(2)
        alive = self.server.process.poll() is None
        if alive:
            self.look()
        passed = self.report(alive, files, seconds)
        self.server.end()
        return passed

    def report(self, alive: bool, files: int, seconds: float) -> bool:
        tally = self.tally
        # The first half makes what stays: buffers, and what the allocator keeps of them for each thread.
        points = [(queries, memory) for queries, memory in tally.memory[:-1] if queries >= tally.memory[-1][0] / 2]
        slope, error, grows = growth(points)
        leaks = tally.files[-1] > files
        most = max(memory for _, memory in tally.memory)
        figures = {
            "queries": tally.answered(),
            "slow queries": len(tally.slow),
            "hostile connections": tally.hostile,
            "clients killed": tally.killed,
            "seconds": round(seconds, 1),
            "failed": tally.failed,
            "server alive": alive,
            "longest line": max(tally.line),
            "seconds of a session's first query": percentiles(tally.first),
            "seconds of a query": percentiles(tally.seconds),
            "memory, MiB": [round(m / 2**20, 1) for m in (tally.memory[0][1], most, tally.memory[-1][1])],
            "slope, bytes a query": [round(slope, 1), round(error, 1)],
            "open files": [files, tally.files[-1]],
        }
        for name, value in figures.items():
            print(f"{name}: {value}")
        if self.options.json:
            series = [[queries, round(memory / 2**20, 1)] for queries, memory in tally.memory]
            self.options.json.write_text(json.dumps(figures | {"memory by query, MiB": series}) + "\n")
        return alive and not tally.failed and not grows and not leaks


def percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100) if len(seconds) > 1 else [math.nan] * 99
    return {f"{percent} %": round(cuts[percent - 1], 3) for percent in (50, 90, 99)}


def means(points: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Of `STRETCHES` pieces as long as each other: samples beside each other are too alike to count as so many."""
    length = max(1, len(points) // STRETCHES)
    pieces = [points[start : start + length] for start in range(0, len(points) - length + 1, length)]
    return [tuple(statistics.fmean(values) for values in zip(*piece, strict=True)) for piece in pieces]  # type: ignore[misc]


def growth(points: list[tuple[int, int]]) -> tuple[float, float, bool]:
    """Bytes a query that memory rises by, that slope's standard error, and whether it counts as growing."""
    slope, error = line(means(points))
    return slope, error, slope > 3 * error and slope > 1024


def line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Slope of the least-squares line, and its standard error."""
    count = len(points)
    if count < 3 or len({x for x, _ in points}) == 1:
        return math.nan, math.nan
    all_x, all_y = zip(*points, strict=True)
    slope, start = statistics.linear_regression(all_x, all_y)
    rest = sum((y - start - slope * x) ** 2 for x, y in points)
    return slope, math.sqrt(rest / (count - 2) / (statistics.pvariance(all_x) * count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("--jaguar", default=str(ROOT / "target" / "release" / "jaguar"))
    parser.add_argument("--queries", type=int, default=1200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--session", type=int, default=5, help="queries of one session")
    parser.add_argument("--places", type=int, help="clients that are served at once (default: more than there are)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after these no session begins any more")
    parser.add_argument("--slow", type=int, default=2_000_000, help="bytes a second of the slow client")
    parser.add_argument("--leave-within", type=float, default=3.0, help="seconds within which a client is killed")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), options.jaguar)
        try:
            return 0 if Soak(options, place).run() else 1
        finally:
            place.end()


if __name__ == "__main__":
    sys.exit(main())
