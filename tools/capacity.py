"""What it takes to answer many private queries: measured by query, then multiplied, and the line of a server simulated.

    python3 tools/capacity.py measure target/release/jaguar COMMIT NAME=MODEL.jaguar:IMAGE ... [--queries 6]
    python3 tools/capacity.py tell

`measure` asks each model's server by one client, one query after the other, and writes docs/figures/capacity.json: what the server's
process took of processors for a query, what passed each way, and how much memory a session added. `tell` computes the tables of
docs/capacity.md from it and puts them into the same file; tools/benchmark_tables.py puts them into the page.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import re
import subprocess
import tempfile
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs/figures/capacity.json"

DAY = 86_400
A_DAY = 1_000_000

# Dollars. A hardware thread for an hour: c5 of Amazon EC2, $0.68 for 16 (https://docs.amazonaws.cn/en_us/autoscaling/ec2/userguide/
# weights-spot-price-per-unit-hour-example.html). A gigabyte to the internet, by how many went before it in the month, in thousands:
# Amazon EC2, as https://leanopstech.com/blog/aws-data-transfer-pricing-2026/ and https://www.egresscost.com/aws list them. What comes in
# is free.
THREAD_HOUR = 0.68 / 16
EGRESS = [(10, 0.09), (50, 0.085), (150, 0.07), (float("inf"), 0.05)]

# How much of a machine may be taken on average, so that a busy hour finds room.
LOAD = 0.6

# One round: processor seconds and memory of an evaluation on one thread, by its record; bytes of a query by docs/protocols/convfhe.md.
# Keys (1.18 GB of each client, once) come to it.
ONE_ROUND = ROOT / "docs/figures/convfhe-networks.json"
ONE_ROUND_UP, ONE_ROUND_DOWN = 819_289, 1_638_457


def row_of(table: dict, column: str, value: str) -> dict[str, str]:
    """The row of a record's table that has this value there. KeyError if none has it."""
    for row in table["rows"]:
        named = dict(zip(table["header"], row, strict=True))
        if named[column] == value:
            return named
    raise KeyError(f"no row has {value} as {column}")


def threads_of(process: int) -> float:
    """Processor seconds that a process took."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int, which: str) -> int:
    return int(re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[1]) * 1024


def model_of(text: str) -> tuple[str, str, str]:
    """Its name in tables, its file, and a picture for it."""
    match = re.fullmatch(r"([^=]+)=(.+):([^:]+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MODEL.jaguar:IMAGE")
    return match[1], match[2], match[3]


def measure(jaguar: str, commit: str, models: list[tuple[str, str, str]], queries: int) -> None:
    rows, named = [], []
    load_before = os.getloadavg()[0]
    for name, model, image in models:
        named.append(f'"{name}={Path(model).name}:{Path(image).name}"')
        with tempfile.TemporaryDirectory() as folder:
            serve = [jaguar, "serve", model, "--listen", "127.0.0.1:0", "--measure", "off", "--threads", "1", "--cache", f"{folder}/server"]
            server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                assert server.stdout
                at = next(match[1] for line in server.stdout if (match := re.search(r"listening on (\S+)", line)))
                ask = [jaguar, "predict", "--json", "--keep", "0", "--threads", "1", "--server", at, "--cache", f"{folder}/client"]
                # The hint comes with the first.
                subprocess.run([*ask, image], check=True, capture_output=True)
                seconds, idle = threads_of(server.pid), resident(server.pid, "VmRSS")
                Path(f"/proc/{server.pid}/clear_refs").write_text("5")
                said = subprocess.run([*ask, *[image] * queries], check=True, capture_output=True, text=True).stdout
                seconds = (threads_of(server.pid) - seconds) / queries
                more = resident(server.pid, "VmHWM") - idle
            finally:
                server.terminate()
                server.wait()
        costs = [json.loads(line)["cost"] for line in said.splitlines()]
        up, down = (sum(costs[-1][stage][way] for stage in ("offline", "online")) for way in ("bytes_up", "bytes_down"))
        rows.append({"name": name, "seconds": seconds, "up": up, "down": down, "memory": more,
                     "model": idle, "wall": sorted(it["offline_seconds"] + it["online_seconds"] for it in costs)[len(costs) // 2]})
        print(rows[-1])
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    setting = {
        "commit": commit, "command": f"tools/capacity.py measure target/release/jaguar COMMIT {' '.join(named)}", "machine": f"{cpu}, a shared virtual machine", "hardware_threads": os.cpu_count(),
        "kernel": "the best", "threads": "one thread a party", "link": "TCP on loopback, TLS off", "repeats": queries,
        "statistic": "means", "load_before": load_before, "load_after": os.getloadavg()[0],
    }
    RECORD.write_text(json.dumps({"setting": setting, "peaks": None, "tables": [], "figures": {"models": rows}}, indent=1) + "\n")


def egress(gigabytes: float) -> float:
    """What a month's gigabytes cost."""
    cost, before = 0.0, 0.0
    for most, price in EGRESS:
        part = min(gigabytes, 1000 * most) - before
        if part <= 0:
            break
        cost += part * price
        before += part
    return cost


def million(models: list[dict]) -> dict:
    """A million queries a day."""
    rows = []
    networks, keys = json.loads(ONE_ROUND.read_text())["tables"]
    row = row_of(networks, "network", "k3-d20-w1")
    memory = dict(zip(keys["header"], keys["rows"][0], strict=True))["GB of the server's memory"]
    once = {"name": "20 layers of ResNet-20's size (CIFAR), one round", "seconds": float(row["processor"]), "up": ONE_ROUND_UP,
            "down": ONE_ROUND_DOWN, "memory": 1e9 * float(memory)}
    for model in [*models, once]:
        seconds, down, up = (A_DAY * model[it] for it in ("seconds", "down", "up"))
        threads = seconds / DAY / LOAD
        # As many sessions at once as threads that are at work, each with its memory.
        memory = threads * model["memory"]
        computing, sending = 30 * threads * 24 * THREAD_HOUR, egress(30 * down / 1e9)
        rows.append([
            model["name"], f"{model['seconds']:.2f}", f"{threads:,.0f}", f"{memory / 2**30:,.0f}", f"{model['down'] / 1e6:.0f}",
            f"{model['up'] / 1e6:.0f}", f"{8 * down / DAY / 1e9:.1f}", f"{8 * up / DAY / 1e9:.1f}", f"{computing:,.0f}", f"{sending:,.0f}",
        ])
    return {
        "name": "million", "title": "a million queries a day",
        "header": ["network", "server's processor s a query", f"hardware threads, {LOAD:.0%} at work", "GiB of sessions", "MB to a client, a query", "MB from it",
                   "Gbit/s to clients", "Gbit/s from them", "$ a month, threads", "$ a month, bytes sent"],
        "numbers_from": 1, "rows": rows, "notes": "",
    }


class Server:
    """Hardware threads that sessions share, places, and the line in front of them, fair by client as crates/serve/src/places.rs."""

    def __init__(self, threads: int, places: int, seconds: float, delay: float) -> None:
        self.threads, self.places, self.seconds, self.delay = threads, places, seconds, delay
        self.taken: dict[int, int] = {}
        self.served: dict[int, float] = {}
        self.lines: dict[int, deque[tuple[float, int]]] = {}
        self.waiting = 0
        # Sessions that compute all go on at the same rate: each ends when so much was done for each of them.
        self.done, self.at = 0.0, 0.0
        self.computing: list[tuple[float, float, int]] = []

    def rate(self) -> float:
        return min(1.0, self.threads / len(self.computing)) if self.computing else 0.0

    def advance(self, now: float) -> None:
        self.done += (now - self.at) * self.rate()
        self.at = now

    def next_end(self) -> float:
        return self.at + (self.computing[0][0] - self.done) / self.rate() if self.computing else float("inf")

    def busy(self) -> int:
        return sum(self.taken.values()) + self.waiting

    def begin(self, now: float, came: float, client: int) -> None:
        self.taken[client] = self.taken.get(client, 0) + 1
        self.served[client] = now
        self.advance(now)
        heapq.heappush(self.computing, (self.done + self.seconds, came, client))

    def arrive(self, now: float, client: int) -> None:
        if sum(self.taken.values()) < self.places and not self.waiting:
            return self.begin(now, now, client)
        self.lines.setdefault(client, deque()).append((now, client))
        self.waiting += 1

    def leave(self, now: float, client: int) -> None:
        self.taken[client] -= 1
        if not self.taken[client]:
            del self.taken[client]
        if self.waiting:
            # Whoever has the fewest places; of two alike, who had one longer ago or never; then who came first.
            next_ = min(self.lines, key=lambda it: (self.taken.get(it, 0), self.served.get(it, -1.0), self.lines[it][0][0]))
            came, _ = self.lines[next_].popleft()
            if not self.lines[next_]:
                del self.lines[next_]
            self.waiting -= 1
            self.begin(now, came, next_)


def simulate(servers: int, model: dict, arrivals: list[tuple[float, int]], threads: int) -> list[tuple[float, float, int]]:
    """When each query came, how long it took, and whose it was. A client goes to the server with the fewest sessions."""
    delay = 8 * (model["down"] + model["up"]) / 1e8
    places = math.ceil(threads * (1 + delay / model["seconds"]))
    fleet = [Server(threads, places, model["seconds"], delay) for _ in range(servers)]
    leaving: list[tuple[float, int, float, int]] = []
    told: list[tuple[float, float, int]] = []
    pending = deque(arrivals)
    while pending or leaving or any(it.computing for it in fleet):
        ends = [it.next_end() for it in fleet]
        number = min(range(servers), key=ends.__getitem__)
        next_arrival = pending[0][0] if pending else float("inf")
        next_leave = leaving[0][0] if leaving else float("inf")
        now = min(next_arrival, next_leave, ends[number])
        if now == ends[number]:
            it = fleet[number]
            it.advance(now)
            _, came, client = heapq.heappop(it.computing)
            heapq.heappush(leaving, (now + it.delay, number, came, client))
        elif now == next_leave:
            _, number, came, client = heapq.heappop(leaving)
            told.append((came, now - came, client))
            fleet[number].leave(now, client)
        else:
            _, client = pending.popleft()
            min(fleet, key=Server.busy).arrive(now, client)
    return told


def arrivals(seed: int, hours: float) -> list[tuple[float, int]]:
    """Two thirds of a million queries a day come evenly, the others in one minute of each ten; 1,000 clients, of which client 0 asks for
    a tenth of all."""
    chance = random.Random(seed)
    rate, now, came = A_DAY / DAY, 0.0, []
    while now < hours * 3600:
        now += chance.expovariate(4 * rate)
        burst = now % 600 < 60
        if chance.random() < (4.0 if burst else 2 / 3) / 4:
            client = 0 if chance.random() < 0.1 else chance.randrange(1, 1000)
            came.append((now, client))
    return came


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def line(model: dict) -> dict:
    """How long 1,000 clients wait, with bursts."""
    came, threads = arrivals(1, 1.0), 16
    least = -(-int(A_DAY * model["seconds"]) // (DAY * threads))
    rows = []
    for servers in sorted({math.ceil(part * least) for part in (1, 1.25, 1.5, 2, 3)}):
        told = simulate(servers, model, came, threads)
        assert len(told) == len(came)
        others = [seconds for _, seconds, client in told if client]
        greedy = [seconds for _, seconds, client in told if not client]
        alone = model["seconds"] + 8 * (model["down"] + model["up"]) / 1e8
        rows.append([str(servers), f"{A_DAY * model['seconds'] / DAY / servers / threads:.0%}", f"{alone:.1f}",
                     *[f"{quantile(others, part):.1f}" for part in (0.5, 0.95, 0.99)], *[f"{quantile(greedy, part):.1f}" for part in (0.5, 0.99)]])
    return {
        "name": "line", "title": f"{model['name']}: seconds of a query, simulated",
        "header": [f"servers of {threads} threads", "at work on average", "s of a query alone", "s, half of them", "95 %", "99 %", "the greedy one, half", "99 %, its own"],
        "numbers_from": 0, "rows": rows,
        "notes": f"{len(came):,} queries in an hour, of 1,000 clients at 100 Mbit/s each, one of whom asks a tenth of all; what clients compute "
        "is left out. A session has its place while bytes pass, too, so a server has more places than threads: as many as keep all of "
        "its threads at work.",
    }


def tell() -> None:
    record = json.loads(RECORD.read_text())
    models = record["figures"]["models"]
    record["tables"] = [million(models), line(models[0])]
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    for table in record["tables"]:
        print(table["title"])
        for row in [table["header"], *table["rows"]]:
            print("  " + " | ".join(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("jaguar")
    measuring.add_argument("commit", help="of which the program was built")
    measuring.add_argument("models", nargs="+", type=model_of, metavar="NAME=MODEL.jaguar:IMAGE")
    measuring.add_argument("--queries", type=int, default=6)
    commands.add_parser("tell")
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.jaguar, args.commit, args.models, args.queries)
    tell()


if __name__ == "__main__":
    main()
