"""A server as an operator has it: every limit is reached once, every fault happens once, and every figure is looked at.

    python3 tools/operator_run.py MODEL INPUT SECOND INPUT [--jaguar target/release/jaguar] [--queries 4] [--table FILE]

MODEL and SECOND are compiled models, each with a picture or tensor for it; small ones do. What is in packaging/ is used as it is, but
for addresses and times: two replicas by jaguar.toml, with TLS and tokens, behind HAProxy by haproxy.cfg; Prometheus by prometheus.yml
with the rules of alerts.yml. What is not installed (Debian: haproxy, prometheus) is left out, and that is said.

1. Eight clients ask through the balancer at once. Each PromQL expression of grafana.json must give figures meanwhile.
2. Each limit of `jaguar serve` is reached once, at a third server.
3. Each fault happens once: on the connection, at a client, at a replica, on the server's disk. A good client is served after each.

Printed: a table with what was done, what the client was told, and the figure that counts it before and after; then what each alert
came to. The exit code is 1 if anything was not as expected.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from operator_parts import (BALANCER, CLIENTS, PACKAGING, PATIENCE, ROOT, Client, Place, Prometheus, Relay, Server, balancer, connect, free_port,
                            until)


def refusals(reason: str) -> str:
    return f'jaguar_refusals_total{{reason="{reason}"}}'


@dataclass
class Row:
    """A line of the table."""

    name: str
    done: str
    told: str
    figure: str
    before: float
    after: float
    passed: bool


class Run:
    def __init__(self, options: argparse.Namespace, place: Place) -> None:
        self.options, self.place, self.folder = options, place, place.folder
        self.rows: list[Row] = []
        self.wrong: list[str] = []
        self.alerts: dict[str, set[str]] = {}
        self.expressions = 0
        self.prometheus: Prometheus | None = None
        for name in CLIENTS:
            self.token(name)
        # The models under the names that they have in packaging/jaguar.toml.
        for name, model in (("squeezenet", options.model), ("resnet18", options.second)):
            shutil.copy(model, self.folder / f"{name}.jaguar")
        shutil.copy(PACKAGING / "jaguar.toml", self.folder)
        # Which ports the third server has, one after the other.
        self.third = (free_port(), free_port())
        self.address = f"127.0.0.1:{self.third[0]}"
        self.pin = self.front = ""
        self.half = 0

    def token(self, name: str) -> None:
        command = [self.options.jaguar, "token", name, "--tokens", str(self.folder / "clients.txt")]
        token = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        file = self.folder / f"{name}.token"
        file.touch(0o600)
        file.write_text(token)

    # Clients.

    def client(self, who: str, *more: str, to: str = "", cache: str = "", command: str = "predict") -> Client:
        token = ["--token-file", str(self.folder / f"{who}.token")] if who else []
        kept = str(self.folder / (cache or f"cache-{who}"))
        words = [self.options.jaguar, command, "--server", to or self.address, "--pin", self.pin, "--cache", kept, *token]
        if command == "predict":
            words += ["--json"] + ([] if "--keep" in more else ["--keep", "0"])
        return Client(self.place, words + list(more))

    def ask(self, who: str, *more: str, to: str = "", cache: str = "") -> str:
        """One question; what was complained of, and nothing if it was answered."""
        client = self.client(who, *more, self.options.input, to=to, cache=cache)
        told = client.end()
        return told if client.process.returncode else ""

    def held(self, who: str, *more: str, to: str = "") -> Client:
        """A client with an answer that stays."""
        client = self.client(who, "--stdin", *more, to=to)
        client.ask(self.options.input)
        return client.answered(1)

    # The table.

    def row(self, name: str, done: str, server: Server, figure: str, act: Callable[[], str], told: str,
            delta: float = 1, before: float | None = None) -> None:
        """Does something, and looks whether the client is told so and the figure grows by so much."""
        if before is None:
            before = server.figure(figure) if figure else 0
        said = ""
        try:
            said = act()
            after = before
            if figure and server.process.poll() is None:
                until(f"{name}: {figure}", lambda: server.figure(figure) >= before + delta, 20)
                after = server.figure(figure)
            # (A client that is told twice, or that has two connections, is counted as often.)
            passed = re.search(told, said) is not None and after >= before + delta * bool(figure)
        except (TimeoutError, RuntimeError) as e:
            after = server.figure(figure) if figure and server.process.poll() is None else before
            said, passed = f"{said} {e}", False
        found = re.search(told, said)
        self.rows.append(Row(name, done, found[0] if found else said[-300:], figure, before, after, passed))
        if not passed:
            self.wrong.append(f"{name}: told {said!r}, expected {told!r}; {figure} {before:g} -> {after:g}")
        print(f"{'ok' if passed else 'WRONG':6}{name}: {self.rows[-1].told}", flush=True)
        self.see_alerts()

    def refusal(self, option: str, done: str, reason: str, act: Callable[[], str], told: str, *, name: str = "",
                models: list[str] | None = None, times: float = 1) -> None:
        """A limit, at a server of its own with this option; `reason` is one of refusals, or a whole figure."""
        with self.server(*option.split(), models=models) as server:
            self.row(name or option, done, server, reason if "{" in reason else refusals(reason), act, told, times)

    @contextmanager
    def server(self, *arguments: str, models: list[str] | None = None) -> Iterator[Server]:
        """The third server."""
        cache = Path(tempfile.mkdtemp(dir=self.folder))
        common = ["--cache", str(cache), "--tokens", str(self.folder / "clients.txt"), *self.certificate()]
        models = [self.options.model] if models is None else models
        server = Server(self.place, "third", [*models, *common, *arguments], self.third)
        self.now = server
        self.seen()
        try:
            yield server
            self.seen()
        finally:
            server.end()

    def certificate(self) -> list[str]:
        made = self.folder / "one" / "tls"
        return ["--tls-cert", str(made / "certificate.pem"), "--tls-key", str(made / "key.pem")]

    def seen(self) -> None:
        """Waits until Prometheus has seen a server as it is."""
        if self.prometheus:
            time.sleep(2 * Prometheus.INTERVAL)

    def see_alerts(self) -> None:
        if self.prometheus:
            for name, state in self.prometheus.states().items():
                self.alerts.setdefault(name, set()).add(state)

    def alert(self, name: str) -> None:
        """An alert must become true now; how long it has to stay so is its own affair."""
        if not self.prometheus:
            return
        try:
            until(f"alert {name}", lambda: self.prometheus and self.prometheus.states()[name] in ("pending", "firing"), 60)
        except TimeoutError as e:
            self.wrong.append(str(e))
        self.see_alerts()

    # 1. Eight clients at two replicas.

    def start(self) -> None:
        config = ["--config", str(self.folder / "jaguar.toml"), "--balancers", BALANCER]
        one = Server(self.place, "one", [*config, "--cache", str(self.folder / "one")], (free_port(), free_port()))
        self.pin = one.events("tls")[0]["fingerprint"]
        arguments = [*config, "--cache", str(self.folder / "two"), *self.certificate()]
        two = Server(self.place, "two", arguments, (free_port(), free_port()))
        self.replicas = [one, two]
        self.front = one.address
        if shutil.which("haproxy"):
            self.front = balancer(self.place, self.replicas)
        else:
            print("skip: haproxy is not installed (Debian: haproxy); clients ask one replica")
        if shutil.which("prometheus") and shutil.which("promtool"):
            self.prometheus = Prometheus(self.place, [one.metrics, two.metrics, f"127.0.0.1:{self.third[1]}"])
        else:
            print("skip: prometheus is not installed (Debian: prometheus); no expression is looked at")

    def eight(self) -> None:
        seconds: list[float] = []

        def ask(number: int) -> None:
            who = CLIENTS[number]
            name, file = ("scans", self.options.second_input) if number < 2 else ("classify", self.options.input)
            for _ in range(self.options.queries // 2):
                client = self.client(who, "--model", name, file, file, to=self.front)
                told = client.end()
                if len(client.answers) != 2:
                    self.wrong.append(f"{who}: {told}")
                if any(("logits" in answer) == (name == "scans") for answer in client.answers):
                    self.wrong.append(f"{who}: 'scans' gives labels and 'classify' gives logits: {client.answers}")
                seconds.extend(b - a for a, b in zip(client.times, client.times[1:]))

        started = time.monotonic()
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(CLIENTS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, want = time.monotonic() - started, len(CLIENTS) * (self.options.queries // 2) * 2
        figures = [f'jaguar_queries_total{{model="{name}"}}' for name in ("classify", "scans")]
        counts = [sum(map(replica.figure, figures)) for replica in self.replicas]
        print(f"{len(seconds)} of {want} queries of {len(CLIENTS)} clients in {took:.0f} s, at the replicas {counts}; half of them "
              f"took at most {statistics.median(seconds):.1f} s, the longest {max(seconds):.1f} s", flush=True)
        if sum(counts) != want:
            self.wrong.append(f"the replicas count {counts} queries, not {want} in all")
        self.panels(want)

    def panels(self, queries: int) -> None:
        """Every expression of the dashboard, and every alert's left side, gives figures."""
        if not self.prometheus:
            return
        prometheus = self.prometheus
        until("Prometheus has all queries", lambda: prometheus.values("sum(jaguar_queries_total)") == [queries])
        panels = json.loads((PACKAGING / "grafana.json").read_text())["panels"]
        expressions = [(f"panel '{panel['title']}'", target["expr"]) for panel in panels for target in panel.get("targets", [])]
        expressions += [(f"alert {name}", re.split(r"\s(?:==|>|<)\s", query)[0]) for name, query in prometheus.alerts()]
        for name, expression in expressions:
            ready = expression.replace("$instance", ".*").replace("$__rate_interval", "5m")
            values = prometheus.values(ready)
            passed = bool(values) and not any(value != value for value in values)
            least, most = min(values, default=0), max(values, default=0)
            print(f"{'ok' if passed else 'WRONG':6}{name}: {len(values)} series, {least:.4g} to {most:.4g}", flush=True)
            if not passed:
                self.wrong.append(f"{name} gives {values}: {ready}")
        self.expressions = len(expressions)

    # 2. Limits.

    def limits(self) -> None:
        one, many = self.options.input, [self.options.input] * 3

        def second(who: str, other: str) -> Callable[[], str]:
            def act() -> str:
                client = self.held(who)
                told = self.ask(other)
                client.end()
                return told
            return act

        def twice(*more: str) -> Callable[[], str]:
            return lambda: self.ask("dora", *more) + self.ask("dora", *more)

        def late(seconds: float, *more: str) -> Callable[[], str]:
            def act() -> str:
                client = self.held("dora", *more)
                time.sleep(seconds)
                client.ask(one)
                return client.end()
            return act

        def fetched() -> str:
            for _ in range(2):
                told = self.client("dora", cache=tempfile.mkdtemp(dir=self.folder), command="fetch").end()
            return told

        again = r"; try again later, in \d+ seconds or more"
        later = r"; come back in \d+ seconds"
        held = "a session is open, another begins"
        self.refusal("--max-clients 1", held, "busy", second("dora", "erik"), r"busy with as many clients as it takes \(1\)" + again)
        self.refusal("--max-clients-per-address 1", held, "address-busy", second("dora", "erik"),
                     r"1 clients from this address are being served, and no more are at once" + again)
        self.refusal("--max-sessions-per-address-and-hour 1", "two sessions", "too-often", twice(),
                     r"this address has begun as many sessions as the server takes from one \(1 an hour\)" + later)
        self.refusal("--max-sessions-per-client 1", held + " of the same client", "client-busy", second("dora", "dora"),
                     r"1 sessions of this client are open, and no more are at once" + again)
        # (Its connection breaks off, so the client tries once more by itself.)
        self.refusal("--max-queries-per-client-and-day 1", "two queries in a session; the client tries twice", "queries-spent",
                     lambda: self.ask("dora", one), r"has asked the 1 queries that it may ask in a day \(UTC\)" + later, times=2)
        first, other = (json.dumps(str(Path(model).resolve())) for model in (self.options.model, self.options.second))
        config = self.folder / "limits.toml"
        config.write_text(f"[models.first]\nfile = {first}\nmax-queries-per-client-and-day = 1\n"
                          f"[models.second]\nfile = {other}\nclients = ['alice']\n"
                          "[clients.gus]\nmodels = []\n[clients.hana]\nmax-queries-per-day = 0\n")

        def ruled(name: str, done: str, reason: str, act: Callable[[], str], told: str) -> None:
            self.refusal(f"--config {config}", done, reason, act, told, name=name, models=[])

        ruled("`[models.NAME]` max-queries-per-client-and-day = 1", "two sessions", "model-queries-spent", twice("--model", "first"),
              r"has asked the 1 queries that it may ask model 'first' in a day \(UTC\)" + later)
        ruled("`[clients.NAME]` max-queries-per-day = 0", "a session", "queries-spent", lambda: self.ask("hana"),
              r"has asked the 0 queries that it may ask in a day \(UTC\)" + later)
        ruled("`[clients.NAME]` models = []", "a session", "no-model", lambda: self.ask("gus"),
              "no model for this client; its operator says who may use which")
        ruled("`[models.NAME]` clients", "a session of another client", "no-such-model", lambda: self.ask("dora", "--model", "second"),
              "no model 'second' for this client, which may use first")
        ruled("several models", "a client that names none", "which-model", lambda: self.ask("alice"),
              r"this server has several models: name one of first, second \(--model\)")
        with self.server() as server:
            client = self.held("dora")
            memory = int(server.figure("jaguar_session_memory_bytes") * 1.5)
            client.end()
        self.refusal(f"--max-memory {memory}", held + "; there is room for one and a half", "memory", second("dora", "erik"),
                     r"memory for sessions is taken \(\d+ bytes, of which this one needs \d+\)" + again, name="--max-memory")
        self.refusal("--max-session-bytes 100K", "a query", "bytes", lambda: self.ask("dora"),
                     "has moved the 102400 bytes that one may move; connect again for more")
        self.refusal("--max-idle 1", "nothing is asked for 3 s, then a query; the client connects again by itself", "idle", late(3),
                     "nothing was asked for within 1s; connect again when there is something to ask")
        self.refusal("--max-stalled 2", "the client's bytes are held up in a query", "stalled", self.stalled,
                     "no data came for 2s in the middle of a request; connect again and ask anew")
        self.refusal("--new-hints-per-hour 1", "a client without a hint fetches one twice", "hints", fetched,
                     r"as many hints as it may for now: come back in \d+ s")
        self.refusal("--new-hints-per-address-and-hour 1", "the same", "address-hints", fetched,
                     r"as many hints for this client as it may for now: come back in \d+ s")
        kept = f'jaguar_queries_not_kept_total{{model="{Path(self.options.model).stem}"}}'
        self.refusal("--keep-memory 1K", "a client wants a query prepared; it goes on without", kept,
                     lambda: self.client("dora", *many, "--keep", "1").end(),
                     "the server keeps 1024 bytes of prepared queries for all its clients together, and has no room now")
        self.refusal("--keep-queries 0", "a client wants a query prepared; it goes on without", kept,
                     lambda: self.client("dora", *many, "--keep", "1").end(),
                     "the server keeps 0 prepared queries for a client and no more")
        self.refusal("--keep-idle 3", "a client that has one prepared asks for nothing for 9 s, then a query; it connects again by "
                     "itself", "kept-idle", late(9, "--keep", "1"),
                     "nothing was asked for within 3 s: what was prepared is dropped|it was used before, or dropped")
        self.refusal("--max-batch 1", "a query about two images", "not-done",
                     lambda: self.client("dora", *many[:2], "--batch", "2").end(),
                     r"one image a query \(`jaguar serve --max-batch` allows more\)")
        with self.server() as server:
            self.row("connections that have not greeted", "17 connect and say nothing", server,
                     refusals("not-greeted"), lambda: self.crowd(self.address, 17), "closed at once")
            self.row("time to greet, before TLS", "the 16 others say nothing for 5 s", server, "jaguar_failures_total",
                     self.silence_ends, "closed", 16, 0)
            server.quiet()
            self.row("time to greet, inside TLS", "one says nothing for 5 s", server, "jaguar_failures_total",
                     self.silent_in_tls, "JAGUAR/0003")
            self.row("--tokens: none is shown", "a query", server, refusals("no-token"),
                     lambda: self.ask(""), "lets nobody in without a token; its operator gives them out")
            self.token("stranger")
            lines = (self.folder / "clients.txt").read_text().splitlines(keepends=True)
            (self.folder / "clients.txt").write_text("".join(line for line in lines if "stranger" not in line))
            self.row("--tokens: one that is not known", "a query", server, refusals("unknown-token"),
                     lambda: self.ask("stranger"), "does not know the token; ask its operator for another")
            self.many_refusals(server)
        if self.front != self.replicas[0].address:
            self.row("balancer: connections of one address", "13 connect", self.replicas[0], "",
                     lambda: self.crowd(self.front, 13), "closed at once")
            for connection in self.silent:
                connection.close()

    def halfway(self) -> int:
        """How many bytes of a client take a query halfway through its online stage, with the hint there."""
        if not self.half:
            client = self.client("dora", self.options.input)
            client.end()
            cost = client.answers[0]["cost"]
            up = {stage: cost[stage]["bytes_up"] for stage in ("model", "client", "offline", "online")}
            self.half = sum(up.values()) - up["online"] // 2
        return self.half

    def stalled(self) -> str:
        relay = Relay(self.address, "hold", self.halfway())
        client = self.client("dora", self.options.input, to=relay.address)
        relay.reached.wait(PATIENCE)
        until("the server gives up", lambda: self.now.figure(refusals("stalled")) == 1)
        relay.go.set()
        return client.end()

    def crowd(self, address: str, count: int) -> str:
        """So many connect at once and say nothing; whether one of them is closed long before the time to greet is over."""
        self.silent = [connect(address) for _ in range(count)]

        def closed(connection: socket.socket) -> bool:
            connection.settimeout(0.01)
            try:
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionResetError:
                return True

        try:
            until("closed", lambda: any([closed(connection) for connection in self.silent]), 3)
        except TimeoutError:
            return "left open"
        return "closed at once"

    def silence_ends(self) -> str:
        for connection in self.silent:
            connection.settimeout(60)
            while connection.recv(1 << 10):
                pass
        return "closed"

    def silent_in_tls(self) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["jaguar"])
        said = b""
        with connect(self.address) as plain, context.wrap_socket(plain) as connection:
            connection.settimeout(30)
            while data := connection.recv(1 << 16):
                said += data
        return "".join(chr(byte) if 32 <= byte < 127 else " " for byte in said)

    def many_refusals(self, server: Server) -> None:
        """So many that the alerts become true."""
        if not self.prometheus:
            return
        for _ in range(40):
            self.ask("")
            self.garbage()
        self.seen()
        self.alert("JaguarTurnsClientsAway")
        self.alert("JaguarConnectionsFail")

    # 3. Faults.

    def garbage(self, first: bytes = b"") -> str:
        with connect(self.address) as connection:
            try:
                connection.sendall(first + random.randbytes(10_000))
                connection.settimeout(30)
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass
        return "closed"

    def faults(self) -> None:
        failures = "jaguar_failures_total"

        def through(what: str, go: bool = False) -> Callable[[], str]:
            def act() -> str:
                relay = Relay(self.address, what, self.halfway())
                client = self.client("dora", self.options.input, to=relay.address)
                if go:
                    client.process.wait(timeout=PATIENCE)
                    relay.go.set()
                return client.end()
            return act

        def killed() -> str:
            relay = Relay(self.address, "hold", self.halfway())
            client = self.client("dora", self.options.input, to=relay.address)
            relay.reached.wait(PATIENCE)
            client.process.kill()
            relay.go.set()
            return f"{client.end()}killed"

        def plain() -> str:
            command = [self.options.jaguar, "predict", "--server", self.address, "--tls", "off", "--no-cache", self.options.input]
            return Client(self.place, command).end()

        with self.server() as server:
            for name, done, act, told in (
                ("the connection is cut", "halfway through a query", through("cut"), "(the peer|onnection)[^:,(]*"),
                ("it is reset", "halfway through a query", through("reset"), "(the peer|onnection)[^:,(]*"),
                ("one bit is flipped", "of a record of TLS", through("flip"), r"the other side gave up TLS \(\w+\)"),
                ("bytes are lost", "of TLS", through("lose"), r"the other side gave up TLS \(\w+\)"),
                ("bytes are repeated", "of TLS", through("repeat"), r"the other side gave up TLS \(\w+\)"),
                ("silence", "nothing passes any more, both ways", through("silence", True), "the peer has been silent for 15s"),
                ("a client is killed", "halfway through a query", killed, "killed"),
                ("random bytes", "in place of TLS", self.garbage, "closed"),
                ("a client without TLS", "a query", plain, "this server speaks TLS only; ask its operator for the fingerprint to pin"),
            ):
                self.row(name, done, server, failures, act, told)
                server.quiet()
                if told := self.ask("dora"):
                    self.wrong.append(f"after '{name}' a good client is told {told}")
            wrong_pin = self.pin
            self.pin = "0" * 64
            self.row("another certificate", "the client pins 0000...", server, failures, lambda: self.ask("dora"),
                     "the server's certificate is not the pinned one")
            self.pin = wrong_pin
            tokens, away = self.folder / "clients.txt", self.folder / "away"
            tokens.rename(away)
            self.row("the file of tokens is gone", "a query", server, refusals("tokens-unreadable"),
                     lambda: self.ask("dora"), r"cannot tell at present who is let in; try again later, in \d+ seconds")
            away.rename(tokens)
            session = self.held("dora")
            self.row("SIGTERM", "a client is between two queries", server, "", lambda: self.ended(server, session),
                     r"shutting down; come back in \d+ seconds or more, or ask another one")
        counts = self.folder / "counts"
        counts.mkdir()
        with self.server("--max-queries-per-client-and-day", "9", "--counts", str(counts / "queries")) as server:
            shutil.rmtree(counts)
            self.row("queries cannot be counted", "the folder of --counts is gone; a query", server,
                     "jaguar_queries_not_counted_total", lambda: self.ask("dora"), "^$")

    def ended(self, server: Server, session: Client) -> str:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1)
        session.ask(self.options.input)
        return session.end()

    def replicas_fail(self) -> None:
        one, two = self.replicas
        config = self.folder / "squeezenet.jaguar"
        config.rename(self.folder / "kept")
        config.write_bytes(b"no model")

        def reload() -> str:
            one.process.send_signal(signal.SIGHUP)
            until("reloaded", lambda: one.figure("jaguar_last_reload_successful") == 0)
            return self.ask("alice", "--model", "classify", to=one.address)

        self.row("a model is damaged", "SIGHUP; then a query", one, 'jaguar_reloads_total{result="failed"}', reload, "^$")
        self.alert("JaguarReloadFailed")
        config.unlink()
        (self.folder / "kept").rename(config)
        one.process.send_signal(signal.SIGHUP)
        until("reloaded", lambda: one.figure("jaguar_last_reload_successful") == 1)
        if self.front == one.address:
            return

        def killed() -> str:
            two.process.kill()
            two.process.wait()
            # One query may meet the balancer before it has noticed.
            time.sleep(2)
            return "".join(self.ask("alice", "--model", "classify", to=self.front) for _ in range(3))

        self.row("a replica is killed", "three queries through the balancer", one, 'jaguar_queries_total{model="classify"}',
                 killed, "^$", 3)
        self.alert("JaguarDown")
        arguments = ["--config", str(self.folder / "jaguar.toml"), "--balancers", BALANCER, "--cache", str(self.folder / "two"), *self.certificate()]
        self.replicas[1] = two = Server(self.place, "two-again", arguments, two.ports)
        time.sleep(2)
        relay = Relay(two.address, "hold", self.halfway())
        client = self.client("dora", "--model", "classify", self.options.input, to=relay.address)
        relay.reached.wait(PATIENCE)

        def drained() -> str:
            two.process.terminate()
            time.sleep(2)
            self.alert("JaguarNotAccepting")
            told = "".join(self.ask("alice", "--model", "classify", to=self.front) for _ in range(3))
            relay.go.set()
            return told + client.end()

        self.row("a replica drains", "three queries through the balancer; one that it has begun is finished", one,
                 'jaguar_queries_total{model="classify"}', drained, "^$", 3)
        if client.process.returncode or two.process.wait(timeout=PATIENCE):
            self.wrong.append("a query that had begun was not finished, or the replica failed")

    def report(self) -> bool:
        lines = ["| | what was done | what the client was told | counted by | before | after |", "|---|---|---|---|---|---|"]
        for row in self.rows:
            figure = f"`{row.figure}`" if row.figure else "–"
            lines.append(f"| {row.name} | {row.done} | {row.told or 'its answer'} | {figure} | {row.before:g} | {row.after:g} |")
        print("\n" + "\n".join(lines))
        if self.options.table:
            self.options.table.write_text("\n".join(lines) + "\n")
        for name, states in self.alerts.items():
            print(f"alert {name}: {', '.join(sorted(states))}")
        print(f"{len(self.rows)} limits and faults, {self.expressions} expressions, {len(self.wrong)} not as expected")
        for wrong in self.wrong:
            print(f"WRONG {wrong}")
        return not self.wrong

    def run(self) -> bool:
        try:
            self.start()
            self.eight()
            if "limits" in self.options.parts:
                self.limits()
            if "faults" in self.options.parts:
                self.faults()
                self.replicas_fail()
            return self.report()
        finally:
            self.place.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("second", metavar="second-model")
    parser.add_argument("second_input", metavar="second-input")
    parser.add_argument("--jaguar", default=str(ROOT / "target" / "release" / "jaguar"))
    parser.add_argument("--queries", type=int, default=4, help="of each of the eight clients; an even number")
    parser.add_argument("--parts", default="limits,faults", help="what to do after the eight clients (default: both)")
    parser.add_argument("--table", type=Path, help="write the table here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if Run(options, Place(Path(folder), options.jaguar)).run() else 1


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
