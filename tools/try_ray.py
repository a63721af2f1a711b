"""The goals of a fleet, measured: many clients beside few, fair load, Ray beside plain servers, a replica that is killed.

    target/ray/bin/python tools/try_ray.py target/release/jaguar MODEL INPUT   # `make test-ray` makes that environment

Servers have a thread each, and all of it runs on this machine. By turns, so that what else runs there meets both:

- `--many` clients beside two, at one plain server: queries a second, and queries a second of the server's processor;
- of all queries of the many, how much longer the slowest of a hundred took than half of them;
- two replicas on Ray Serve behind their relay beside two plain servers, with `--clients` clients each, divided evenly;
- one of the two replicas is killed while all of its clients ask: which queries fail, and whether their clients succeed when they
  ask again.

Printed: each turn, and a table of what came out beside the goal. The exit code is 1 if a goal that no load excuses was missed: the last
one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jaguar
import jaguar.ray
import ray
from capacity import threads_of
from ray import serve


# All servers plan alike, and begin at once.
MEASURE = ["--measure", "off"]


def plain(program: str, model: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    """A server without Ray, and its address."""
    command = [program, "serve", model, "--listen", "127.0.0.1:0", "--log", "json", "--threads", "1", *MEASURE, *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    for line in server.stdout:
        said = json.loads(line)
        if said["event"] == "listening":
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, said["address"]
    raise SystemExit(f"{command} ended before it listened")


class Clients:
    """Clients that are connected, each to one of these addresses in turn, and have asked once."""

    def __init__(self, addresses: list[str], count: int, image: str) -> None:
        self.image = image
        self.clients = [jaguar.Client(addresses[number % len(addresses)]) for number in range(count)]
        for client in self.clients:
            client.predict(image)

    def turn(self, seconds: float) -> tuple[float, list[float]]:
        """Queries a second, of all together, and the seconds of each."""
        took: list[float] = []
        began = time.monotonic()

        def ask(number: int) -> None:
            while (asked := time.monotonic()) - began < seconds:
                self.clients[number].predict(self.image, progress=False)
                took.append(time.monotonic() - asked)

        self.all(ask)
        return len(took) / (time.monotonic() - began), took

    def all(self, ask: Callable[[int], None]) -> None:
        """Each client does so, in a thread."""
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(self.clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        for client in self.clients:
            client.close()


class Turn(NamedTuple):
    """What came of one: queries a second, queries a second of processor, and seconds of each query."""

    rate: float
    a_processor: float
    took: list[float]


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def by_turns(kinds: dict[str, Clients], turns: int, seconds: float, cost: Callable[[], float]) -> dict[str, list[Turn]]:
    """Each kind's turns. `cost`: processor seconds so far."""
    found: dict[str, list[Turn]] = {name: [] for name in kinds}
    for turn in range(turns):
        for name in sorted(kinds, reverse=turn % 2 == 1):
            before = cost()
            rate, took = kinds[name].turn(seconds)
            found[name].append(Turn(rate, len(took) / max(cost() - before, 1e-9), took))
            print(f"turn {turn + 1}, {name}: {rate:.3f} queries/s, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


class Row(NamedTuple):
    """A line of the table."""

    what: str
    found: str
    goal: str
    reached: bool


def many_beside_few(args: argparse.Namespace, program: str, model: str) -> list[Row]:
    """At one plain server."""
    places = ["--max-clients", str(args.many + 2)]
    server, address = plain(program, model, *places)
    try:
        kinds = {"few": Clients([address], 2, args.input), "many": Clients([address], args.many, args.input)}
        found = by_turns(kinds, args.turns, args.seconds, lambda: threads_of(server.pid))
        for clients in kinds.values():
            clients.close()
    finally:
        server.terminate()
    pairs = list(zip(found["many"], found["few"], strict=True))
    rates, costs = [a.rate / b.rate for a, b in pairs], [a.a_processor / b.a_processor for a, b in pairs]
    cuts = statistics.quantiles([seconds for turn in found["many"] for seconds in turn.took], n=100)
    return [
        Row(f"{args.many} clients over two: queries a second", spread(rates), "at least 0.95", statistics.median(rates) >= 0.95),
        Row("the same, a second of the server's processor", spread(costs), "at least 0.95", statistics.median(costs) >= 0.95),
        Row(f"{args.many} clients: p99 over p50", f"{cuts[98]:.2f} s over {cuts[49]:.2f} s: {cuts[98] / cuts[49]:.2f}",
            "at most 3", cuts[98] <= 3 * cuts[49]),
    ]


def killed(args: argparse.Namespace, loads: list[tuple[str, int, int]], clients: Clients) -> Row:
    """One replica, in the middle of its clients' queries. `loads`: of each, its address, its places, and how many it serves."""
    address, _, taken = loads[0]
    server = listens_at(address)
    # It stands still, so that its clients' queries are under way for sure; others are answered meanwhile.
    os.kill(server, signal.SIGSTOP)
    outcomes: list[str] = [""] * len(clients.clients)

    def ask(number: int) -> None:
        try:
            clients.clients[number].predict(args.input, progress=False)
            outcomes[number] = "answered"
        except jaguar.ConnectionFailedError:
            clients.clients[number].predict(args.input, progress=False)
            outcomes[number] = "asked again"

    killer = threading.Timer(5, os.kill, (server, signal.SIGKILL))
    killer.start()
    clients.all(ask)
    killer.join()
    again, answered = outcomes.count("asked again"), outcomes.count("answered")
    told = f"{again} of {len(outcomes)} queries lost, answered when asked again"
    return Row("a replica is killed", told, f"{taken}: those of its clients", again == taken and again + answered == len(outcomes))


def listens_at(address: str) -> int:
    """The process that listens at this address of this machine."""
    port = f"{int(address.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    [inode] = [line[9] for line in lines if line[1].endswith(f":{port}") and line[3] == "0A"]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(file) == f"socket:[{inode}]" for file in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    raise SystemExit(f"nobody listens at {address}")


def on_ray(args: argparse.Namespace, program: str, model: str) -> list[Row]:
    """Two replicas and their relay beside two plain servers."""
    servers = [plain(program, model) for _ in range(2)]
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    try:
        serve.start(proxy_location="Disabled")
        serve.run(jaguar.ray.replicas(model, *MEASURE, program=program, host="127.0.0.1", num_replicas=2), name="try", route_prefix=None)
        relay = serve.run(jaguar.ray.relay("try", listen="127.0.0.1:0"), name="relay", route_prefix=None)
        kinds = {
            "plain": Clients([address for _, address in servers], args.clients, args.input),
            "Ray": Clients([relay.address.remote().result()], args.clients, args.input),
        }
        loads = serve.get_app_handle("try").broadcast("load").results(timeout_s=30)
        processes = [server.pid for server, _ in servers] + [listens_at(address) for address, _, _ in loads]
        found = by_turns(kinds, args.turns, args.seconds, lambda: sum(map(threads_of, processes)))
        pairs = list(zip(found["Ray"], found["plain"], strict=True))
        rates, costs = [a.rate / b.rate for a, b in pairs], [a.a_processor / b.a_processor for a, b in pairs]
        reached = [abs(statistics.median(ratios) - 1) <= 0.05 for ratios in (rates, costs)]
        return [
            Row("Ray over plain: queries a second", spread(rates), "0.95 to 1.05", reached[0]),
            Row("the same, a second of the servers' processor", spread(costs), "0.95 to 1.05", reached[1]),
            killed(args, loads, kinds["Ray"]),
        ]
    finally:
        serve.shutdown()
        ray.shutdown()
        for server, _ in servers:
            server.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--many", type=int, default=16)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    program, model = os.path.abspath(args.program), os.path.abspath(args.model)
    rows = many_beside_few(args, program, model) + on_ray(args, program, model)
    print(f"\nmedians of {args.turns} turns of {args.seconds:.0f} s, and the least and the most:\n")
    print("| what | found | goal | reached |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.found} | {row.goal} | {'yes' if row.reached else 'no'} |")
    return 0 if rows[-1].reached else 1


if __name__ == "__main__":
    sys.exit(main())
