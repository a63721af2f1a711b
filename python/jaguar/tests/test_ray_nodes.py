"""More than one node: `ray.cluster_utils.Cluster` starts several of Ray's nodes on this machine, each with its own processes, and they
are killed here. `make test-ray`.

JAGUAR names the command; Ray has to be installed. With FULL_SIZE=1 a trained network is evaluated as well.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaguar
import numpy as np
import pytest
from conftest import TINY, VECTOR, images

pytest.importorskip("ray")
import jaguar.ray
import ray
from ray import serve
from ray.cluster_utils import Cluster
from test_pages import blocks
from test_ray import PROGRAM, WATCHDOG, becomes, server_of

#: What a node has that evaluates, and what one has that does not: an evaluation of these parameters takes more than that.
MUCH, LITTLE = 8 << 30, 10 << 20

#: Evaluates when it may, and says that it has begun.
HELD = """#!/bin/sh
if [ "$1" = evaluate ]; then
  echo $$ >> "{folder}/begun"
  [ ! -e "{folder}/broken" ] || exit 3
  while [ ! -e "{folder}/go" ]; do sleep 0.1; done
fi
exec "{program}" "$@"
"""


class Nodes:
    """A cluster of Ray. Its head computes little: replicas and evaluations that ask for much are on other nodes."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        head = {"num_cpus": 4, "memory": LITTLE, "object_store_memory": 100 << 20, "include_dashboard": False}
        self.cluster = Cluster()
        self._node(**head)
        ray.init(address=self.cluster.address, log_to_driver=False)
        serve.start(proxy_location="Disabled")

    def add(self) -> Any:
        return self._node(num_cpus=4, memory=MUCH, object_store_memory=100 << 20)

    def _node(self, **options: Any) -> Any:
        """A node. (Ray gives one 30 seconds to start, which is little on a machine that does other things.)"""
        for _ in range(4):
            try:
                return self.cluster.add_node(**options)
            except Exception as error:
                if "timed out during startup" not in str(error):
                    raise
        raise AssertionError("no node starts")

    def end(self) -> None:
        """All at once: nobody is asked."""
        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    os.environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")  # what actors see
    nodes = Nodes()
    yield nodes
    serve.shutdown()
    nodes.end()


def loads(app: str) -> list[tuple[str, int, int]]:
    try:
        found = serve.get_app_handle(app).broadcast("load").results(timeout_s=10, return_exceptions=True)
    except Exception:
        return []
    return [load for load in found if not isinstance(load, Exception)]


def listen(app: str, address: str = "127.0.0.1:0") -> str:
    handle = serve.run(jaguar.ray.relay(app, listen=address, grace=5), name="relay", route_prefix=None)
    return str(handle.address.remote().result())


def alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def runs_on(child: int, node: Any) -> bool:
    """Whether the worker of Ray whose child this is belongs to a node: it is a child of that one's raylet."""
    return any(parent(parent(child)) == raylet.process.pid for raylet in node.all_processes["raylet"])


def test_a_node_that_dies_loses_its_queries_alone(nodes: Nodes, tmp_path: Path) -> None:
    jaguar.compile(TINY, images(12)).save(tmp_path / "tiny.jaguar")
    second = nodes.add()
    given = [str(tmp_path / "tiny.jaguar"), "--measure", "off"]
    two = jaguar.ray.replicas(*given, program=PROGRAM, host="127.0.0.1", num_replicas=2, max_replicas_per_node=1)
    serve.run(two, name="tiny", route_prefix=None)
    before = loads("tiny")
    servers = [server_of(address) for address, _, _ in before]
    there = [runs_on(server, second) for server in servers]
    assert sorted(there) == [False, True], "a replica on each node"
    address = listen("tiny")
    x = images(4, seed=1)
    clients = [jaguar.Client(address, cache=False) for _ in range(4)]
    for client, image in zip(clients, x, strict=True):
        client.predict(image)
    assert becomes(lambda: sorted(taken for _, _, taken in loads("tiny")) == [2, 2])
    outcomes: list[Any] = [None] * 4

    def ask(number: int) -> None:
        try:
            outcomes[number] = clients[number].predict(x[number])
        except jaguar.JaguarError as error:
            outcomes[number] = error

    # In the middle of two queries: all of the node, as by a power cut.
    lost = servers[there.index(True)]
    os.kill(lost, signal.SIGSTOP)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert becomes(lambda: sum(outcome is not None for outcome in outcomes) == 2)
    nodes.cluster.remove_node(second, allow_graceful=False)
    os.kill(lost, signal.SIGKILL)
    for thread in threads:
        thread.join(WATCHDOG)
    failed = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
    assert len(failed) == 2 and all(isinstance(outcomes[number], jaguar.ConnectionFailedError) for number in failed), outcomes
    # They ask again, at the same address, and the other node serves them.
    for number in failed:
        assert clients[number].predict(x[number]).label in range(4)
    for client in clients:
        client.close()
    # Another node comes, and gets a replica.
    nodes.add()
    assert becomes(lambda: len(loads("tiny")) == 2)


class OneRound:
    """A model that is evaluated on ciphertexts, of these inputs: at a size that protects nothing, unless `parameters` says otherwise."""

    def __init__(
        self, folder: Path, network: Path, inputs: list[Path], preprocessing: jaguar.Preprocessing, parameters: str = "insecure-n10"
    ) -> None:
        self.folder = folder
        self.inputs = inputs
        self.secure = not parameters.startswith("insecure")
        # As it is computed in integers.
        self.exact = jaguar.compile(network, inputs, preprocessing=preprocessing).simulate(inputs)
        (folder / "samples").mkdir()
        for file in inputs:
            (folder / "samples" / file.name).symlink_to(file)
        command = [PROGRAM, "compile", str(network), "--protocol", "convfhe", "--parameters", parameters]
        command += ["--pixel-scale", str(preprocessing.pixel_scale), "--resize", str(preprocessing.resize)]
        for option, values in [("--mean", preprocessing.mean), ("--std", preprocessing.std)]:
            command += [option, ",".join(map(str, values)) if isinstance(values, tuple) else str(values)]
        made = [*command, "--calibrate", str(folder / "samples"), "-o", str(folder / "one.convfhe")]
        subprocess.run(made, check=True, capture_output=True)
        self.program = folder / "held"
        self.program.write_text(HELD.format(folder=folder, program=PROGRAM))
        self.program.chmod(0o755)

    def run(self, **options: Any) -> None:
        given = [str(self.folder / "one.convfhe"), "--key-dir", str(self.folder / "keys")]
        app = jaguar.ray.one_round(
            *given, evaluations=self.folder / "work", program=str(self.program), host="127.0.0.1", grace=5, **options
        )
        serve.run(app, name="vector", route_prefix=None)

    def command(self, address: str, *words: str) -> list[str]:
        own = ["predict", "--protocol", "convfhe", "--json", "--server", address, "--cache", str(self.folder / "client")]
        return [PROGRAM, *own, *([] if self.secure else ["--accept-insecure-parameters"]), *words]

    def ask(self, address: str, *words: str) -> Any:
        told = subprocess.run(self.command(address, *words), capture_output=True, text=True, timeout=WATCHDOG)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    def begun(self) -> list[int]:
        """The processes that began to evaluate."""
        file = self.folder / "begun"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def is_near(self, answer: Any, number: int) -> None:
        """As the network computes it in integers."""
        exact = self.exact[number]
        assert exact.logits is not None
        found = np.array(answer["logits"])
        assert np.abs(found - exact.logits).max() < 0.1 * np.abs(exact.logits).max(), (found, exact.logits)

    def left(self) -> list[str]:
        return [file.name for file in (self.folder / "work").iterdir()]


@pytest.fixture
def one_round(tmp_path: Path) -> OneRound:
    files = [tmp_path / f"{number}.npy" for number in range(4)]
    for file, values in zip(files, np.random.default_rng(7).normal(size=(4, 12)).astype(np.float32), strict=True):
        np.save(file, values)
    return OneRound(tmp_path, VECTOR, files, jaguar.Preprocessing())


def test_an_evaluation_outlives_its_node(nodes: Nodes, one_round: OneRound) -> None:
    second = nodes.add()
    one_round.run()
    address = listen("vector")
    client = subprocess.Popen(
        one_round.command(address, str(one_round.inputs[1])), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert becomes(lambda: len(one_round.begun()) == 1)
    # Where its memory is: the head has too little.
    [first] = one_round.begun()
    assert runs_on(first, second)
    nodes.cluster.remove_node(second, allow_graceful=False)
    assert becomes(lambda: not alive(first)), "it ends with its worker"
    time.sleep(1)
    assert client.poll() is None and len(one_round.begun()) == 1, "there is no node for it"
    (one_round.folder / "go").touch()
    nodes.add()
    out, said = client.communicate(timeout=WATCHDOG)
    assert client.returncode == 0, said
    one_round.is_near(json.loads(out), 1)
    assert len(one_round.begun()) == 2
    assert one_round.left() == []


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_trained_network_outlives_its_node(nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At full size: 6 GB and a minute or two for each evaluation."""
    if os.environ.get("FULL_SIZE") != "1":
        pytest.skip("FULL_SIZE is not 1: no network of full size is evaluated on Ray")
    repository = Path(__file__).parents[3]
    network = repository / "crates/cli/tests/models/resnet20_cifar10_32.onnx"
    pictures = sorted((repository / "demo/calibration").glob("*.jpg"))
    preprocessing = dataclasses.replace(jaguar.Preprocessing.imagenet(), resize=32)
    it = OneRound(tmp_path, network, pictures, preprocessing, "n16")
    second = nodes.add()
    it.run(task={"num_cpus": 2})
    (tmp_path / "go").touch()
    address = listen("vector")
    began = time.monotonic()
    client = subprocess.Popen(it.command(address, str(pictures[1])), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Keys are made, sent and read, and some layers are through.
    while not it.begun() or processor_seconds(it.begun()[0]) < 60:
        assert client.poll() is None, client.communicate()
        time.sleep(0.1)
    [first] = it.begun()
    assert runs_on(first, second)
    nodes.cluster.remove_node(second, allow_graceful=False)
    lost = time.monotonic()
    assert becomes(lambda: not alive(first))
    nodes.add()
    out, said = client.communicate(timeout=1800)
    assert client.returncode == 0, said
    it.is_near(json.loads(out), 1)
    assert len(it.begun()) == 2 and it.left() == []
    with capsys.disabled():
        print(f"\nits node was lost after {lost - began:.0f} s, the answer was there after {time.monotonic() - began:.0f} s: {out}")


def test_a_worker_that_is_killed_is_replaced(nodes: Nodes, one_round: OneRound) -> None:
    nodes.add()
    one_round.run()
    address = listen("vector")
    waits = [one_round.ask(address, "--detach", str(one_round.inputs[number]))["ticket"] for number in range(2)]
    # Both at once: there is room for many.
    assert becomes(lambda: len(one_round.begun()) == 2)
    # The program itself, and a worker of Ray with it.
    first, second = one_round.begun()
    os.kill(first, signal.SIGKILL)
    os.kill(parent(second), signal.SIGKILL)
    assert becomes(lambda: not alive(second) and len(one_round.begun()) == 4)
    (one_round.folder / "go").touch()
    for number, ticket in enumerate(waits):
        one_round.is_near(one_round.ask(address, "--ticket", ticket), number)
    assert one_round.left() == []


def test_a_restart_of_everything_loses_nothing(nodes: Nodes, one_round: OneRound) -> None:
    """Ray's head included: what waits is on the disk."""
    nodes.add()
    one_round.run()
    address = listen("vector")
    ticket = one_round.ask(address, "--detach", str(one_round.inputs[2]))["ticket"]
    assert becomes(lambda: len(one_round.begun()) == 1)
    # The server's actor alone: another one goes on.
    [(own, _, _)] = loads("vector")
    server = server_of(own)
    os.kill(parent(server), signal.SIGKILL)
    assert becomes(lambda: not alive(server) and len(loads("vector")) == 1)
    assert becomes(lambda: len(one_round.begun()) == 2)
    # And all of the cluster.
    [(own, _, _)] = loads("vector")
    server = server_of(own)
    nodes.end()
    assert becomes(lambda: not alive(server) and not any(map(alive, one_round.begun())))
    nodes.start()
    nodes.add()
    (one_round.folder / "go").touch()
    one_round.run()
    # At the address that clients know: they own answers there.
    one_round.is_near(one_round.ask(listen("vector", address), "--ticket", ticket), 2)
    assert one_round.left() == []


def test_the_snippet_of_the_page_runs(nodes: Nodes, one_round: OneRound, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TLS, since it is for more than one machine."""
    nodes.add()
    (one_round.folder / "go").touch()
    monkeypatch.setattr(jaguar.ray, "one_round", functools.partial(jaguar.ray.one_round, program=PROGRAM))
    [_, _, text, _] = blocks("docs/ray.md")
    for there, here in [("/models/resnet20", "one"), ("/shared/keys", "keys"), ("/shared/evaluations", "work")]:
        text = text.replace(there, str(one_round.folder / here))
    exec(compile(text.replace("7447", "0"), "ray.md", "exec"), {})
    port = serve.get_app_handle("relay").address.remote().result().rpartition(":")[2]
    address = f"{ray.util.get_node_ip_address()}:{port}"
    photo = str(one_round.inputs[3])
    told = subprocess.run(one_round.command(address, photo), capture_output=True, text=True, timeout=WATCHDOG)
    [pin] = set(re.findall(r"\b[0-9a-f]{64}\b", told.stderr))
    one_round.is_near(one_round.ask(address, "--pin", pin, photo), 3)


def test_what_never_succeeds_is_told(nodes: Nodes, one_round: OneRound) -> None:
    nodes.add()
    (one_round.folder / "broken").touch()
    one_round.run(retries=1)
    address = listen("vector")
    words = one_round.command(address, str(one_round.inputs[0]))
    told = subprocess.run(words, capture_output=True, text=True, timeout=WATCHDOG)
    assert told.returncode == 1 and "broke off again and again" in told.stderr, told.stderr
    assert len(one_round.begun()) == 2 and one_round.left() == []


def test_what_cannot_be_said_of_one_round() -> None:
    for argument in ["--evaluations", "--protocol=interactive", "--listen"]:
        with pytest.raises(jaguar.OptionError, match=argument.partition("=")[0]):
            jaguar.ray.one_round("model.convfhe", argument, evaluations="/work")
    wrong: list[dict[str, Any]] = [{"num_replicas": 2}, {"autoscaling_config": {}}, {"task": {"memory": 1}}, {"retries": -1}]
    for option in wrong:
        with pytest.raises(jaguar.OptionError):
            jaguar.ray.one_round("model.convfhe", evaluations="/work", **option)
