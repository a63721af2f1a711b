"""What operator_run.py, soak.py and try_networks.py run: servers, clients, a relay with faults; HAProxy and Prometheus with
the files of packaging/."""

from __future__ import annotations

import json
import math
import shutil
import socket
import struct
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
# As they are in packaging/jaguar.toml. The first two may use both models there.
CLIENTS = ["alice", "clinic-north", "guest", "dora", "erik", "fay", "gus", "hana"]
# Seconds.
PATIENCE = 600.0

# What is replaced in the files of packaging/.
# Where the balancer's connections come from: another address of this machine than that of clients and of the tool itself.
BALANCER = "127.0.0.9"
REPLICAS = ("192.0.2.11:7447", "192.0.2.12:7447")
TARGETS = '["192.0.2.11:9447", "192.0.2.12:9447"]'
REPLACED = {
    "haproxy.cfg": ("bind :7447", " check port 9447", "balance source", "inter 1s", "send-proxy-v2", *REPLICAS),
    "prometheus.yml": (TARGETS, "scrape_interval: 15s"),
}


@dataclass
class Place:
    """Where everything is, and what runs."""

    folder: Path
    jaguar: str
    processes: list[subprocess.Popen[str] | subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Starts a program that logs to a file of that name."""
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def changed(name: str, texts: tuple[str, ...]) -> str:
    """A file of packaging/ with other texts in place of those in `REPLACED`."""
    text = (PACKAGING / name).read_text()
    for old, new in zip(REPLACED[name], texts, strict=True):
        if old not in text:
            raise RuntimeError(f"packaging/{name} has no {old!r}")
        text = text.replace(old, new)
    return text


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def until(what: str, look: Callable[[], object], seconds: float = PATIENCE) -> object:
    """What `look` gives, once that is true."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := look():
                return found
        except (OSError, KeyError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def page(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return str(answer.read().decode())


class Server:
    """`jaguar serve` with metrics."""

    def __init__(self, place: Place, name: str, arguments: list[str], ports: tuple[int, int], tls: str = "on") -> None:
        self.ports = ports
        self.address, self.metrics = (f"127.0.0.1:{port}" for port in ports)
        command = [place.jaguar, "serve", *arguments, "--listen", self.address, "--metrics", self.metrics]
        command += ["--measure", "off", "--log", "json", "--tls", tls]
        self.process, self.log = place.start(name, command), place.folder / f"{name}.log"
        until(f"{name} is ready", lambda: self.process.poll() is not None or page(self.metrics, "/ready"))
        if self.process.poll() is not None:
            raise RuntimeError(f"{' '.join(command)}\n{self.log.read_text()}")

    def events(self, kind: str) -> list[dict[str, str]]:
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for event in map(json.loads, lines) if event.get("event") == kind]

    def figures(self) -> dict[str, float]:
        """All figures, by name and labels."""
        lines = [line for line in page(self.metrics, "/metrics").splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def figure(self, name: str) -> float:
        """A figure of that name and labels; 0 if there is none."""
        return self.figures().get(name, 0.0)

    def quiet(self) -> None:
        """Waits until nobody is served: a client may be gone before its place is free."""
        until("nobody is served", lambda: self.figure("jaguar_clients") == 0)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=PATIENCE)


class Client:
    """`jaguar predict`, and what it says."""

    def __init__(self, place: Place, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.running = place.processes
        self.running.append(self.process)
        self.answers: list[dict[str, Any]] = []
        self.times = [time.monotonic()]
        self.errors = ""
        self.readers = [threading.Thread(target=read) for read in (self.read_answers, self.read_errors)]
        for reader in self.readers:
            reader.start()

    def read_answers(self) -> None:
        for line in self.process.stdout or ():
            self.times.append(time.monotonic())
            if line.startswith("{"):
                self.answers.append(json.loads(line))

    def read_errors(self) -> None:
        for line in self.process.stderr or ():
            self.errors += line

    def ask(self, path: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()

    def answered(self, count: int) -> Client:
        until("an answer", lambda: len(self.answers) >= count or self.process.poll() is not None)
        if len(self.answers) < count:
            raise RuntimeError(self.errors)
        return self

    def end(self) -> str:
        """Closes its input and waits for its end; what it complained of, in one line."""
        assert self.process.stdin
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(timeout=PATIENCE)
        for reader in self.readers:
            reader.join()
        # It is let go, and its pipes with it: there may be thousands of clients.
        if self.process in self.running:
            self.running.remove(self.process)
        return " ".join(self.errors.split())


class Relay:
    """Passes connections on, at most `rate` bytes a second and direction. After `after` bytes from a client it does
    `what` with one connection: "hold" them until `go`, "silence" both directions, "cut", "reset", or "flip", "lose",
    "repeat" the next bytes."""

    def __init__(self, address: str, what: str = "", after: float = math.inf, rate: float = math.inf) -> None:
        self.target, self.what, self.after, self.rate = address, what, after, rate
        self.reached, self.go = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            server = connect(self.target)
            for ends, up in (((client, server), True), ((server, client), False)):
                threading.Thread(target=self.copy, args=(*ends, up), daemon=True).start()

    def copy(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        passed = 0
        try:
            while data := source.recv(1 << 14):
                passed += len(data)
                if up and passed >= self.after and not self.reached.is_set():
                    self.reached.set()
                    data = self.fault(data, source, sink)
                elif not up and self.what == "silence" and self.reached.is_set():
                    self.go.wait()
                sink.sendall(data)
                time.sleep(len(data) / self.rate)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, sink):
                end.close()

    def fault(self, data: bytes, source: socket.socket, sink: socket.socket) -> bytes:
        match self.what:
            case "hold" | "silence":
                self.go.wait()
            case "cut":
                for end in (source, sink):
                    end.shutdown(socket.SHUT_RDWR)
            case "reset":
                for end in (source, sink):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.close()
            case "flip":
                return data[:-1] + bytes([data[-1] ^ 1])
            case "lose":
                return b""
            case "repeat":
                return data + data
        return data


class Prometheus:
    """Debian's, with the files of packaging/."""

    INTERVAL = 1

    def __init__(self, place: Place, metrics: list[str]) -> None:
        folder = place.folder / "prometheus"
        folder.mkdir()
        shutil.copy(PACKAGING / "alerts.yml", folder)
        interval = f"scrape_interval: {self.INTERVAL}s\n  evaluation_interval: {self.INTERVAL}s"
        (folder / "prometheus.yml").write_text(changed("prometheus.yml", (json.dumps(metrics), interval)))
        check = ["promtool", "check", "config", folder / "prometheus.yml"]
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
        self.address = f"127.0.0.1:{free_port()}"
        place.start("prometheus", ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
                                   f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={self.address}"])
        until("Prometheus", lambda: page(self.address, "/-/ready"))

    def get(self, path: str) -> dict[str, list[dict[str, object]]]:
        found = json.loads(page(self.address, f"/api/v1/{path}"))
        assert found["status"] == "success", found
        data: dict[str, list[dict[str, object]]] = found["data"]
        return data

    def values(self, expression: str) -> list[float]:
        """What an expression gives now, a number for each series."""
        found = self.get("query?" + urllib.parse.urlencode({"query": expression}))["result"]
        return [float(series["value"][1]) for series in found]  # type: ignore[index]

    def rules(self) -> list[dict[str, str]]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]  # type: ignore[attr-defined]

    def alerts(self) -> list[tuple[str, str]]:
        """Name and expression of each."""
        return [(rule["name"], rule["query"]) for rule in self.rules()]

    def states(self) -> dict[str, str]:
        """Of each alert: inactive, pending or firing."""
        rules = self.rules()
        assert all(rule["health"] in ("ok", "unknown") for rule in rules), rules
        return {rule["name"]: rule["state"] for rule in rules}


def balancer(place: Place, replicas: list[Server]) -> str:
    """HAProxy before two replicas, by turns. Returns where clients connect to."""
    front = f"127.0.0.1:{free_port()}"
    servers = tuple(f"{server.address} check port {server.metrics.rsplit(':', 1)[1]}" for server in replicas)
    file = place.folder / "haproxy.cfg"
    file.write_text(changed("haproxy.cfg", (f"bind {front}", "", "balance roundrobin", "inter 500ms", f"send-proxy-v2 source {BALANCER}", *servers)))
    place.start("haproxy", ["haproxy", "-db", "-f", str(file)])
    until("HAProxy", lambda: connect(front).close() is None)
    return front
