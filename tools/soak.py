"""Many clients for many queries at one server, some of them bad: does it go on, and does its memory stay flat?

    python3 tools/soak.py MODEL INPUT [--jaguar target/release/jaguar] [--queries 1200] [--clients 8] [--json FILE]

MODEL is a compiled model, INPUT a picture or tensor for it. Honest clients ask again and again, each in sessions of `--session`
queries, until `--queries` are answered. Beside them, all the time:

- two hostile ones: one sends random bytes, one greets rightly (another client's first bytes) and then sends random bytes;
- a slow one, whose bytes pass through a relay at `--slow` bytes a second;
- one that leaves: a client that is killed at a random moment.

Printed: what each kind of client met, seconds of a query by percentile, the server's memory over the queries with its slope and the
slope's standard error, and open files. The exit code is 1 if the server died, if an honest client's query failed, if memory grows
(slope above three standard errors and above 1 KiB a query), or if files stay open.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Tally:
    """What was seen; every list is appended to by many threads."""

    seconds: list[float] = field(default_factory=list)
    slow: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    hostile: int = 0
    killed: int = 0
    memory: list[tuple[int, int]] = field(default_factory=list)
    files: list[int] = field(default_factory=list)


class Soak:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder, self.tally = options, folder, Tally()
        self.done = threading.Event()
        self.greeting = b""
        log = (folder / "server.log").open("w")
        self.server = subprocess.Popen(
            [options.jaguar, "serve", options.model, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--calibrate", "off",
             "--max-clients", str(2 * options.clients + 8), "--log", "json",
             # All of them come from one address.
             "--max-sessions-per-address-and-hour", "1000000"], stdout=log, stderr=subprocess.STDOUT)
        self.address, self.metrics = self.addresses()

    def addresses(self) -> tuple[str, str]:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and self.server.poll() is None:
            text = (self.folder / "server.log").read_text()
            events = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
            found = {event["event"]: event["address"] for event in events if event.get("event") in ("listening", "metrics")}
            if len(found) == 2:
                return found["listening"], found["metrics"]
            time.sleep(0.1)
        sys.exit(f"the server did not start:\n{(self.folder / 'server.log').read_text()}")

    def predict(self, address: str, cache: str, queries: int) -> subprocess.Popen[str]:
        command = [self.options.jaguar, "predict", "--server", address, "--json", "--cache", str(self.folder / cache)]
        return subprocess.Popen(command + [self.options.input] * queries, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ask(self, address: str, cache: str, queries: int, into: list[float]) -> None:
        """One session; the seconds of its queries, waiting included."""
        process = self.predict(address, cache, queries)
        assert process.stdout and process.stderr
        last = time.monotonic()
        count = 0
        for _ in process.stdout:
            now = time.monotonic()
            into.append(now - last)
            last, count = now, count + 1
        complaint = process.stderr.read()
        if process.wait() != 0 or count != queries:
            self.tally.failed.append(f"{cache}: {count} of {queries}: {complaint.strip()[-300:]}")

    def honest(self, number: int) -> None:
        while not self.done.is_set():
            self.ask(self.address, f"client-{number}", self.options.session, self.tally.seconds)
            if len(self.tally.seconds) >= self.options.queries or self.tally.failed:
                self.done.set()

    def slow_one(self) -> None:
        relay = relay_to(self.address, self.options.slow)
        while not self.done.is_set():
            self.ask(relay, "slow", 1, self.tally.slow)

    def hostile_one(self, greets: bool) -> None:
        host, port = self.address.rsplit(":", 1)
        while not self.done.is_set():
            try:
                with socket.create_connection((host, int(port)), timeout=10) as connection:
                    if greets and self.greeting:
                        connection.sendall(self.greeting)
                    connection.sendall(random.randbytes(random.randrange(1, 1 << 16)))
                    connection.settimeout(10)
                    while connection.recv(1 << 16):
                        pass
            except OSError:
                pass
            self.tally.hostile += 1
            time.sleep(0.2)

    def leaver(self) -> None:
        while not self.done.is_set():
            process = self.predict(self.address, "leaver", 3)
            time.sleep(random.uniform(0.05, self.options.leave_within))
            process.kill()
            process.communicate()
            self.tally.killed += 1

    def watcher(self) -> None:
        while not self.done.wait(0.5):
            self.look()

    def look(self) -> None:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as page:
            text = page.read().decode()
        figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        queries = sum(float(value) for name, value in figures.items() if name.startswith("jaguar_queries_total"))
        self.tally.memory.append((int(queries), int(float(figures["jaguar_memory_resident_bytes"]))))
        self.tally.files.append(len(os.listdir(f"/proc/{self.server.pid}/fd")))

    def learn_greeting(self) -> None:
        """The first bytes of an honest client."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            process = self.predict("127.0.0.1:%d" % listener.getsockname()[1], "greeting", 1)
            connection, _ = listener.accept()
            with connection:
                self.greeting = connection.recv(1 << 12)
            process.kill()
            process.communicate()

    def run(self) -> bool:
        self.learn_greeting()
        self.ask(self.address, "client-0", 1, [])
        self.look()
        files = self.tally.files[-1]
        threads = [threading.Thread(target=self.honest, args=(number,)) for number in range(self.options.clients)]
        threads += [threading.Thread(target=work, args=arguments) for work, arguments in (
            (self.hostile_one, (False,)), (self.hostile_one, (True,)), (self.slow_one, ()), (self.leaver, ()), (self.watcher, ()))]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - started
        time.sleep(2)
        alive = self.server.poll() is None
        if alive:
            self.look()
        passed = self.report(alive, files, seconds)
        self.server.terminate()
        self.server.wait(timeout=90)
        return passed

    def report(self, alive: bool, files: int, seconds: float) -> bool:
        tally = self.tally
        # The first half makes what stays: buffers, and what the allocator keeps of them for each thread.
        points = [(queries, memory) for queries, memory in tally.memory[:-1] if queries >= tally.memory[-1][0] / 2]
        slope, error = line(points)
        cuts = statistics.quantiles(tally.seconds, n=100) if len(tally.seconds) > 1 else [math.nan] * 99
        grows = slope > 3 * error and slope > 1024
        leaks = tally.files[-1] > files
        figures = {
            "queries": len(tally.seconds), "slow queries": len(tally.slow), "hostile connections": tally.hostile,
            "clients killed": tally.killed, "seconds": round(seconds, 1), "failed": tally.failed, "server alive": alive,
            "seconds of a query": {f"{p} %": round(cuts[p - 1], 3) for p in (50, 90, 99)},
            "memory, MiB": [round(memory / 2**20, 1) for _, memory in (tally.memory[0], max(tally.memory, key=lambda m: m[1]), tally.memory[-1])],
            "slope, bytes a query": [round(slope, 1), round(error, 1)], "open files": [files, tally.files[-1]],
        }
        for name, value in figures.items():
            print(f"{name}: {value}")
        if self.options.json:
            series = [[queries, round(memory / 2**20, 1)] for queries, memory in tally.memory]
            self.options.json.write_text(json.dumps(figures | {"memory by query, MiB": series}) + "\n")
        return alive and not tally.failed and not grows and not leaks


def line(points: list[tuple[int, int]]) -> tuple[float, float]:
    """Slope of the least-squares line, and its standard error."""
    count = len(points)
    if count < 3:
        return math.nan, math.nan
    mean_x, mean_y = (sum(values) / count for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread == 0:
        return math.nan, math.nan
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, math.sqrt(rest / (count - 2) / spread)


def relay_to(address: str, rate: int) -> str:
    """Relays connections to `address` at `rate` bytes a second and direction. Returns where to connect to."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = address.rsplit(":", 1)

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
                time.sleep(len(data) / rate)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()

    def serve() -> None:
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((host, int(port)))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=copy, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("--jaguar", default=str(ROOT / "target" / "release" / "jaguar"))
    parser.add_argument("--queries", type=int, default=1200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--session", type=int, default=5, help="queries of one session")
    parser.add_argument("--slow", type=int, default=2_000_000, help="bytes a second of the slow client")
    parser.add_argument("--leave-within", type=float, default=3.0, help="seconds within which a client is killed")
    parser.add_argument("--json", type=Path)
    with tempfile.TemporaryDirectory() as folder:
        return 0 if Soak(parser.parse_args(), Path(folder)).run() else 1


if __name__ == "__main__":
    sys.exit(main())
