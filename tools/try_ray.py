"""Two replicas on Ray Serve behind their relay, beside two plain servers: queries a second, by turns, with the same clients.

    target/ray/bin/python tools/try_ray.py target/release/jaguar MODEL INPUT   # `make test-ray` makes that environment

Servers have a thread each. Clients of the plain servers are divided evenly. All of it runs on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import threading
import time

import jaguar
import jaguar.ray
import ray
from ray import serve


def plain(program: str, model: str) -> tuple[subprocess.Popen[str], str]:
    """A server without Ray, and its address."""
    command = [program, "serve", model, "--listen", "127.0.0.1:0", "--log", "json", "--threads", "1"]
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

    def turn(self, seconds: float) -> float:
        """Queries a second, of all together."""
        answered = [0] * len(self.clients)
        began = time.monotonic()

        def ask(number: int) -> None:
            while time.monotonic() - began < seconds:
                self.clients[number].predict(self.image, progress=False)
                answered[number] += 1

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(self.clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(answered) / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    program, model = os.path.abspath(args.program), os.path.abspath(args.model)
    servers = [plain(program, model) for _ in range(2)]
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    try:
        serve.start(proxy_location="Disabled")
        serve.run(jaguar.ray.replicas(model, program=program, host="127.0.0.1", num_replicas=2), name="try", route_prefix=None)
        relay = serve.run(jaguar.ray.relay("try", listen="127.0.0.1:0"), name="relay", route_prefix=None)
        kinds = {
            "plain": Clients([address for _, address in servers], args.clients, args.input),
            "Ray": Clients([relay.address.remote().result()], args.clients, args.input),
        }
        rates: dict[str, list[float]] = {name: [] for name in kinds}
        for turn in range(args.turns):
            for name in sorted(kinds, reverse=turn % 2 == 1):
                rates[name].append(kinds[name].turn(args.seconds))
                print(f"turn {turn + 1}, {name}: {rates[name][-1]:.3f} queries/s, load {os.getloadavg()[0]:.1f}", flush=True)
        ratios = [there / here for there, here in zip(rates["Ray"], rates["plain"], strict=True)]
        middle = {name: statistics.median(found) for name, found in rates.items()}
        spread = " to ".join(f"{ratio:.3f}" for ratio in (min(ratios), max(ratios)))
        print(f"medians of {args.turns} turns of {args.seconds:.0f} s, {args.clients} clients: {middle}")
        print(f"Ray over plain, turn by turn: median {statistics.median(ratios):.3f}, {spread}")
    finally:
        serve.shutdown()
        ray.shutdown()
        for server, _ in servers:
            server.terminate()


if __name__ == "__main__":
    main()
