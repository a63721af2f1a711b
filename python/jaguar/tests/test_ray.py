"""Replicas on Ray Serve with real servers, and questions of Ray Data, on this machine: `make test-ray`.

JAGUAR names the command; Ray has to be installed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jaguar
import numpy as np
import pytest
from conftest import TINY, images
from test_pages import blocks, ppm
from test_private import close

pytest.importorskip("ray")
import jaguar.ray
import ray
from ray import serve

PROGRAM = os.environ.get("JAGUAR", "jaguar")
WATCHDOG = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ray, and a folder with a model."""
    folder = tmp_path_factory.mktemp("cluster")
    os.environ["XDG_CACHE_HOME"] = str(folder)  # what actors see
    jaguar.compile(TINY, images(12), labels=["cat", "dog", "crane", "tabby, cat"]).save(folder / "tiny.jaguar")
    ray.init(address="local", num_cpus=16, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    serve.start(proxy_location="Disabled")
    yield folder
    serve.shutdown()
    ray.shutdown()


def replicas(folder: Path, *arguments: str, **options: Any) -> Any:
    given = [str(folder / "tiny.jaguar"), "--measure", "off", *arguments]
    return jaguar.ray.replicas(*given, program=PROGRAM, host="127.0.0.1", **options)


def becomes(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + WATCHDOG
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.1)
    return False


class Fleet:
    """What runs as the application `tiny`, and its relay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, **options: Any) -> None:
        serve.run(replicas(self.folder, *arguments, **options), name="tiny", route_prefix=None)

    def listen(self) -> str:
        handle = serve.run(jaguar.ray.relay("tiny", listen="127.0.0.1:0", grace=5), name="relay", route_prefix=None)
        return str(handle.address.remote().result())

    def loads(self, app: str = "tiny") -> list[tuple[str, int, int]]:
        """Of each replica that answers: address, places, clients."""
        try:
            found = serve.get_app_handle(app).broadcast("load").results(timeout_s=10, return_exceptions=True)
        except Exception:
            return []
        return [load for load in found if not isinstance(load, Exception)]


@pytest.fixture
def fleet(cluster: Path) -> Iterator[Fleet]:
    yield Fleet(cluster)
    for app in list(serve.status().applications):
        serve.delete(app)


def server_of(address: str) -> int:
    """The process that listens at this address of loopback."""
    port = f"{int(address.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    [inode] = [line.split()[9] for line in lines if line.split()[1].endswith(f":{port}") and line.split()[3] == "0A"]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(file) == f"socket:[{inode}]" for file in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"nobody listens at {address}")


def test_clients_know_nothing_of_ray(fleet: Fleet) -> None:
    model = jaguar.Model.load(fleet.folder / "tiny.jaguar")
    fleet.run("--max-clients", "2", num_replicas=2)
    address = fleet.listen()
    x = images(4, seed=1)
    clients = [jaguar.Client(address, cache=False) for _ in range(4)]
    found = [client.predict(image) for client, image in zip(clients, x, strict=True)]
    assert all(close(a, b) for a, b in zip(found, model.simulate(x), strict=True))
    assert [taken for _, _, taken in fleet.loads()] == [2, 2], "each goes where there is a place"
    with pytest.raises(jaguar.ServerBusyError, match="as many clients as it takes"):
        jaguar.Client(address, cache=False)
    for client in clients:
        client.close()
    # And the command.
    np.save(fleet.folder / "x.npy", x[0])
    command = [PROGRAM, "predict", "--server", address, "--json", str(fleet.folder / "x.npy")]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told["label"] == found[0].label, told


def test_limits_by_address_are_those_of_clients(fleet: Fleet) -> None:
    """The servers believe the relay, and what they are told is not the relay's address."""
    fleet.run("--max-clients-per-address", "1")
    address = fleet.listen()
    with jaguar.Client(address, cache=False), pytest.raises(jaguar.ServerBusyError, match="1 clients from this address"):
        jaguar.Client(address, cache=False)


def test_a_server_that_is_killed_loses_its_queries_alone(fleet: Fleet) -> None:
    fleet.run(num_replicas=2)
    address = fleet.listen()
    before = fleet.loads()
    x = images(2, seed=2)
    clients = [jaguar.Client(address, cache=False) for _ in range(2)]
    for client, image in zip(clients, x, strict=True):
        client.predict(image)
    outcomes: list[Any] = [None, None]

    def ask(number: int) -> None:
        try:
            outcomes[number] = clients[number].predict(x[number])
        except jaguar.JaguarError as error:
            outcomes[number] = error

    # It stands still in the middle of a query, until it is killed.
    server = server_of(before[0][0])
    os.kill(server, signal.SIGSTOP)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    assert becomes(lambda: sum(outcome is not None for outcome in outcomes) == 1)
    os.kill(server, signal.SIGKILL)
    for thread in threads:
        thread.join(WATCHDOG)
    lost = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(lost) == 1, outcomes
    assert isinstance(lost[0], jaguar.ConnectionFailedError), lost[0]
    # The same client asks again, at the same address.
    which = outcomes.index(lost[0])
    assert clients[which].predict(x[which]).label in range(4)
    for client in clients:
        client.close()
    # Serve brings another.
    addresses = {address for address, _, _ in before}
    assert becomes(lambda: len(fleet.loads()) == 2 and {address for address, _, _ in fleet.loads()} != addresses)


def test_the_server_of_an_actor_that_is_killed_ends_in_order(fleet: Fleet) -> None:
    fleet.run()
    [(address, _, _)] = fleet.loads()
    server = server_of(address)
    actor = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    x = images(1)[0]
    with jaguar.Client(fleet.listen(), cache=False) as client:
        client.predict(x)
        os.kill(actor, signal.SIGKILL)
        assert becomes(lambda: not Path(f"/proc/{server}").exists())
        with pytest.raises(jaguar.JaguarError, match="shutting down; come back"):
            client.predict(x)
        assert becomes(lambda: len(fleet.loads()) == 1)
        assert client.predict(x).label in range(4)


def test_a_new_version_loses_no_query(fleet: Fleet) -> None:
    fleet.run(num_replicas=2)
    address = fleet.listen()
    before = {address for address, _, _ in fleet.loads()}
    failed: list[str] = []
    answered, sent, over = [0, 0, 0], [0, 0, 0], threading.Event()

    def ask(number: int) -> None:
        image = images(1, seed=number)[0]
        with jaguar.Client(address, cache=False) as client:
            while not over.is_set():
                try:
                    client.predict(image)
                    answered[number] += 1
                except jaguar.JaguarError as error:
                    if "shutting down; come back" in str(error):  # between two queries it is sent away
                        sent[number] += 1
                    else:
                        failed.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    assert becomes(lambda: min(answered) > 0)
    fleet.run("--max-clients", "9", num_replicas=2)
    assert becomes(lambda: [places for _, places, _ in fleet.loads()] == [9, 9])
    assert not before & {address for address, _, _ in fleet.loads()}
    old = list(answered)
    assert becomes(lambda: min(now - then for now, then in zip(answered, old, strict=True)) > 2)
    over.set()
    for thread in threads:
        thread.join(WATCHDOG)
    assert failed == [] and sum(sent) >= 3, (failed, sent)


def test_more_replicas_when_there_is_much_ahead(fleet: Fleet) -> None:
    scaling = {"min_replicas": 1, "max_replicas": 2, "upscale_delay_s": 0, "downscale_delay_s": 0, "look_back_period_s": 1}
    fleet.run("--max-clients", "1", autoscaling_config={**scaling, "metrics_interval_s": 0.5})
    np.save(fleet.folder / "x.npy", images(1)[0])
    with jaguar.Client(fleet.listen(), cache=False) as first:
        first.predict(images(1)[0])
        waiting = subprocess.Popen(
            [PROGRAM, "predict", "--server", first.server, "--wait", "600", "--cache", str(fleet.folder), str(fleet.folder / "x.npy")]
        )
        try:
            assert becomes(lambda: len(fleet.loads()) == 2), fleet.loads()
        finally:
            waiting.kill()
            waiting.wait()
    assert becomes(lambda: len(fleet.loads()) == 1)


def context(ahead: list[float], busy: list[float], target: int) -> Any:
    return SimpleNamespace(
        target_num_replicas=target,
        aggregated_metrics={"seconds_ahead": dict(enumerate(ahead)), "busy": dict(enumerate(busy))},
    )


@pytest.mark.parametrize(
    ("ahead", "busy", "target", "wanted"),
    [
        ([0, 0], [1, 1], 2, 2),  # all places taken, nobody waits
        ([15, 0], [1, 1], 2, 2),  # 7.5 seconds as a mean
        ([30, 20], [1, 1], 2, 5),  # 25 seconds: five would have ten
        ([30, 20], [1, 1], 7, 7),  # five more are coming already
        ([0, 0, 0], [0.5, 0.25, 0.25], 3, 1),
        ([0, 0, 0], [0.5, 0.5, 0.25], 3, 2),
        ([0, 0], [0, 0], 2, 1),
        ([5, 0], [1, 0], 2, 2),
        ([], [], 3, 3),  # nothing was heard yet
    ],
)
def test_how_many_replicas(ahead: list[float], busy: list[float], target: int, wanted: int) -> None:
    assert jaguar.ray.SecondsAhead(10)(context(ahead, busy, target)) == (wanted, {})


def test_what_cannot_be_said(cluster: Path) -> None:
    for argument in ["--listen", "--metrics=1", "--threads", "--grace", "--log", "--balancers"]:
        with pytest.raises(jaguar.OptionError, match=argument.partition("=")[0]):
            jaguar.ray.replicas("model.jaguar", argument)
    with pytest.raises(jaguar.OptionError, match="listen: '7447' is no address"):
        jaguar.ray.relay("tiny", listen="7447")
    with pytest.raises(jaguar.OptionError, match="grace"):
        jaguar.ray.relay("tiny", grace=-1)
    with pytest.raises(jaguar.JaguarError, match=r"(?s)ended with code [12]:.*nowhere.jaguar"):
        jaguar.ray.Replica([PROGRAM, "serve", "nowhere.jaguar"], "127.0.0.1", 5)
    with pytest.raises(jaguar.JaguarError, match="/no/jaguar: it cannot be started on this node"):
        jaguar.ray.Replica(["/no/jaguar"], "127.0.0.1", 5)


@pytest.fixture
def server(cluster: Path) -> Iterator[jaguar.Server]:
    """One that Ray does not know."""
    with jaguar.Server(cluster / "tiny.jaguar", measure="off") as server:
        yield server


def queries(caplog: pytest.LogCaptureFixture) -> int:
    return sum("answered a" in record.getMessage() for record in caplog.records)


def test_a_data_set(server: jaguar.Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jaguar.server")
    x = images(6, seed=3)
    model = server.models["tiny"]
    given = [{"image": image, "number": number} for number, image in enumerate(x)]
    ask: dict[str, Any] = {"checkpoint": tmp_path / "answers", "batch_size": 2, "cache": False}

    def rows(count: int, concurrency: int = 1) -> list[dict[str, Any]]:
        found = jaguar.ray.predict(ray.data.from_items(given[:count]), server.address, concurrency=concurrency, **ask).take_all()
        return sorted(found, key=lambda row: int(row["number"]))

    assert len(rows(4)) == 4 and becomes(lambda: queries(caplog) == 4)
    kept = {file.name: file.stat() for file in (tmp_path / "answers").iterdir()}
    assert len(kept) == 4 and all(about.st_mode & 0o777 == 0o600 for about in kept.values())
    found = rows(6, 2)
    assert becomes(lambda: queries(caplog) >= 6) and queries(caplog) == 6, "rows that were answered are not asked again"
    for row, exact in zip(found, model.simulate(x), strict=True):
        told = jaguar.Prediction(row["label"], row["name"], row["logits"], row["probabilities"], None)
        assert close(told, exact) and told.name == model.labels[told.label]
        assert abs(float(np.sum(row["probabilities"])) - 1) < 1e-9
    # A file that was not finished is no answer.
    file = next(iter((tmp_path / "answers").iterdir()))
    file.write_bytes(file.read_bytes()[:20])
    assert len(rows(6)) == 6 and becomes(lambda: queries(caplog) == 7)


ASK = """
import sys, ray, jaguar.ray
ray.init(address="local", num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
rows = [{"image": path} for path in sys.argv[3:]]
data = jaguar.ray.predict(ray.data.from_items(rows), sys.argv[1], checkpoint=sys.argv[2], batch_size=1, cache=False)
print(len(data.take_all()))
"""


def test_a_run_that_was_killed_continues(server: jaguar.Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jaguar.server")
    names = []
    for number, image in enumerate(images(40, seed=4)):
        np.save(tmp_path / f"{number}.npy", image)
        names.append(str(tmp_path / f"{number}.npy"))
    answers = tmp_path / "answers"
    command = [sys.executable, "-c", ASK, server.address, str(answers), *names]
    run = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    assert becomes(lambda: answers.exists() and len(list(answers.glob("*.json"))) >= 5)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    time.sleep(3)  # its actors end with it
    kept, asked = len(list(answers.glob("*.json"))), queries(caplog)
    assert 5 <= kept < 40 and kept <= asked
    told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    assert told.strip() == "40"
    assert becomes(lambda: queries(caplog) - asked >= 40 - kept) and queries(caplog) - asked == 40 - kept


def test_a_data_set_that_cannot_be(server: jaguar.Server, cluster: Path) -> None:
    rows = ray.data.from_items([{"image": "/nowhere/cat.jpg"}])
    with pytest.raises(Exception, match=r"/nowhere/cat.jpg: No such file"):
        jaguar.ray.predict(rows, server.address, cache=False).take_all()
    with pytest.raises(Exception, match=r"column='picture': the data set has image"):
        jaguar.ray.predict(rows, server.address, column="picture", cache=False).take_all()


def test_a_query_is_asked_again_while_the_server_is_gone(fleet: Fleet, tmp_path: Path) -> None:
    fleet.run()
    address = fleet.listen()
    rows = ray.data.from_items([{"image": image} for image in images(60, seed=5)])
    found: list[Any] = []
    ask = jaguar.ray.predict(rows, address, checkpoint=tmp_path / "answers", batch_size=1, cache=False)
    run = threading.Thread(target=lambda: found.extend(ask.take_all()))
    run.start()
    assert becomes(lambda: len(list((tmp_path / "answers").glob("*.json"))) >= 3)
    os.kill(server_of(fleet.loads()[0][0]), signal.SIGKILL)
    assert len(list((tmp_path / "answers").glob("*.json"))) < 60
    run.join(WATCHDOG)
    assert len(found) == 60


def test_the_snippets_of_the_page_run(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TLS, since they are for more than one machine."""
    (tmp_path / "photographs").mkdir()
    for number in range(3):
        ppm(tmp_path / "photographs" / f"{number}.ppm", number)
    monkeypatch.setattr(jaguar.ray, "replicas", functools.partial(jaguar.ray.replicas, program=PROGRAM))
    model = repr(str(fleet.folder / "tiny.jaguar"))
    texts = [text.replace('"/models/resnet18.jaguar"', model).replace("7447", "0") for text in blocks("docs/ray.md")]
    # (That of one round is run in `test_ray_nodes.py`.)
    servers, scaled, _, data = texts
    names: dict[str, Any] = {}
    for text in (servers, scaled):
        exec(compile(text, "ray.md", "exec"), names)
    port = serve.get_app_handle("relay").address.remote().result().rpartition(":")[2]
    address = f"{ray.util.get_node_ip_address()}:{port}"
    assert becomes(lambda: len(fleet.loads("resnet18")) >= 1)
    with pytest.raises(jaguar.JaguarError) as unknown:
        jaguar.Client(address, cache=False)
    [pin] = set(re.findall(r"\b[0-9a-f]{64}\b", str(unknown.value)))
    data = data.replace("head.example:0", address).replace("/data", str(tmp_path)).replace('pin="..."', f"pin={pin!r}")
    exec(compile(data, "ray.md", "exec"), names)
    rows = ray.data.read_parquet(str(tmp_path / "labels")).take_all()
    assert sorted(Path(row["path"]).name for row in rows) == ["0.ppm", "1.ppm", "2.ppm"]
    assert len(list((tmp_path / "answers").iterdir())) == 3 and all(row["label"] in range(4) for row in rows)


def test_nobody_gets_ray_who_does_not_ask_for_it() -> None:
    subprocess.run([sys.executable, "-c", "import jaguar, sys; assert not {'ray', 'jaguar.ray'} & sys.modules.keys()"], check=True)
