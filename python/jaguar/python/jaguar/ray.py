"""Servers on Ray Serve, and questions about a data set of Ray Data. `jaguar-pi[ray]` brings Ray, and `import jaguar` does not import it.

serve.run(jaguar.ray.replicas("resnet18.jaguar", num_replicas=2), name="resnet18", route_prefix=None)
serve.run(jaguar.ray.relay("resnet18", listen="0.0.0.0:7447"), name="relay", route_prefix=None)
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ipaddress
import json
import logging
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

try:
    import ray
except ImportError as error:
    raise ImportError("jaguar.ray needs Ray: pip install 'jaguar-pi[ray]'") from error

from jaguar import _inputs, _options
from jaguar._children import end_with
from jaguar._relay import Load, Relay, host_and_port
from jaguar.client import Client
from jaguar.errors import ConnectionFailedError, InputError, JaguarError, OptionError, PeerAbortedError, ServerBusyError
from jaguar.model import PathLike
from jaguar.results import Prediction

T = TypeVar("T")

# What Serve shows of a replica.
log = logging.getLogger("ray.serve")

#: Options of `jaguar serve` that are said here.
_OURS = ("--listen", "--metrics", "--log", "--grace", "--threads", "--balancers")


def replicas(
    *arguments: str,
    program: str = "jaguar",
    host: str | None = None,
    grace: float = 60,
    **options: Any,
) -> Any:
    """An application of Ray Serve: `jaguar serve` with these arguments (a model's path, and options), once in each replica.

    `program`: the command, on every node. Paths are those of the node, too. `host`: where servers listen (None: the node's own
    address, with TLS; `127.0.0.1`: on one machine). `grace`: for how many seconds a server finishes queries that have begun, when it
    ends. `options` are those of `serve.deployment`. `ray_actor_options={"num_cpus": 4}` gives a server four threads (default: 1). An
    `autoscaling_config` without a policy has `SecondsAhead`.
    """
    options["ray_actor_options"] = {"num_cpus": 1, **options.get("ray_actor_options", {})}
    threads = max(int(options["ray_actor_options"]["num_cpus"]), 1)
    scaling = options.get("autoscaling_config")
    if isinstance(scaling, Mapping) and "policy" not in scaling:
        options["autoscaling_config"] = {**scaling, "policy": {"policy_function": "jaguar.ray:SecondsAhead"}}
    deployment = _deployment(Replica, arguments, {"name": "jaguar", **options}, grace)
    return deployment.bind([program, "serve", *arguments, "--threads", str(threads)], host, grace)


def _deployment(what: type[Replica], arguments: Iterable[str], options: Mapping[str, Any], grace: float) -> Any:
    """Serve's deployment of a server with these arguments."""
    from ray import serve

    for argument in arguments:
        if not isinstance(argument, str):
            raise OptionError(f"arguments: {argument!r}: a str is needed, as on the command line")
        if argument.partition("=")[0] in _OURS:
            raise OptionError(f"arguments: {argument}: it is said here, by host=, grace= and ray_actor_options=")
    grace = _options.seconds("grace", grace)
    usual = {
        "health_check_period_s": 2,
        # Serve asks for nothing that takes long: replicas end as soon as they are told.
        "graceful_shutdown_wait_loop_s": 0.1,
        "graceful_shutdown_timeout_s": grace + 15,
    }
    return serve.deployment(what).options(**{**usual, **options})


#: How often the evaluation of one input is begun again where its machine or its process died.
_RETRIES = 3


def one_round(
    *arguments: str,
    evaluations: PathLike,
    program: str = "jaguar",
    host: str | None = None,
    grace: float = 60,
    retries: int = _RETRIES,
    task: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """An application of Ray Serve: one `jaguar serve --protocol convfhe` with these arguments, whose inputs are evaluated by tasks of Ray.

    `evaluations`: a folder, which all nodes have at the same path, and so have they the model and `--key-dir`. What waits lies there and
    in `--key-dir`: a server that is started anew goes on with it. A task asks Ray for the memory that the server says an evaluation
    takes, and is begun again up to `retries` times where its node or process dies. `task`: options of `ray.remote` for it, such as
    `{"num_cpus": 8}`: as many threads (default: 1). All else is as for `replicas`; there is one replica, since `--key-dir` is one server's.
    """
    if options.get("num_replicas", 1) != 1 or "autoscaling_config" in options:
        raise OptionError("num_replicas: one server at a time uses --key-dir; what grows is the number of tasks")
    for argument in arguments:
        if isinstance(argument, str) and argument.partition("=")[0] in ("--evaluations", "--protocol"):
            raise OptionError(f"arguments: {argument}: it is said here")
    task = {"num_cpus": 1, **(task or {})}
    for name in ("memory", "max_retries", "retry_exceptions"):
        if name in task:
            raise OptionError(f"task: {name}: it is said here, by the server's estimate and retries=")
    task["max_retries"] = _options.whole("retries", retries, 0, 2**31)
    folder = _options.path("evaluations", evaluations).absolute()
    given = [*arguments, "--protocol", "convfhe", "--evaluations", str(folder)]
    # The server itself computes nothing; it says what evaluations take on that many threads.
    threads = max(int(task["num_cpus"]), 1)
    deployment = _deployment(OneRound, given, {"name": "one-round", **options}, grace)
    return deployment.bind([program, "serve", *given, "--threads", str(threads)], host, grace, folder, task)


def relay(app: str, *, listen: str = "0.0.0.0:7447", grace: float = 60, **options: Any) -> Any:
    """An application of Ray Serve: one address for clients of the application `app`, which is one of `replicas`.

    It runs where Ray's head does, and servers believe no other node where clients come from. Each connection goes to the replica with
    the most free places, and its bytes pass as they are. `grace`: for how many seconds connections are kept when it ends. `options` are
    those of `serve.deployment`.
    """
    from ray import serve

    try:
        host_and_port(listen)
    except ValueError as error:
        raise OptionError(f"listen: {error}") from None
    grace = _options.seconds("grace", grace)
    usual = {
        "name": "relay",
        "graceful_shutdown_wait_loop_s": 0.1,
        "graceful_shutdown_timeout_s": grace + 15,
        # The next one listens before this one ends.
        "max_surge_percent": 100,
        "ray_actor_options": {"num_cpus": 0, "resources": {_HEAD: 0.001}},
    }
    return serve.deployment(Ingress).options(**{**usual, **options}).bind(app, listen, grace)


#: The resource that Ray's head node alone has.
_HEAD = "node:__internal_head__"


def _head() -> str:
    """The address of Ray's head node."""
    return next(str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"] and _HEAD in node["Resources"])


class Replica:
    """A replica: `jaguar serve` as a child."""

    def __init__(self, command: list[str], host: str | None, grace: float) -> None:
        host = host or ray.util.get_node_ip_address()
        alone = ipaddress.ip_address(host).is_loopback
        ours = {
            "--listen": f"[{host}]:0" if ":" in host else f"{host}:0",
            "--metrics": "127.0.0.1:0",
            "--log": "json",
            "--grace": str(math.ceil(grace)),
            "--balancers": host if alone else _head(),
        }
        self.grace = grace
        self.said: deque[str] = deque(maxlen=20)
        self.found: dict[str, str] = {}
        command = [*command, *(word for option in ours.items() for word in option)]
        try:
            self.server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Where this actor is killed, Ray kills its group of processes: the server is in another, and ends in order.
                start_new_session=True,
                preexec_fn=end_with(os.getpid(), signal.SIGTERM),
            )
        except OSError as error:
            raise JaguarError(f"{command[0]}: it cannot be started on this node: {error}") from None
        threading.Thread(target=self._listen, daemon=True).start()
        while not {"metrics", "listening"} <= self.found.keys() or not self._accepts():
            if self.server.poll() is not None:
                time.sleep(0.2)  # for its last words
                raise JaguarError(f"{' '.join(command)} ended with code {self.server.returncode}:\n" + "\n".join(self.said))
            time.sleep(0.05)

    def _listen(self) -> None:
        """To what the server says."""
        assert self.server.stdout is not None
        for given in self.server.stdout:
            line = given.decode(errors="replace").rstrip()
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                line = said["message"]
                if "address" in said:
                    self.found[said["event"]] = said["address"]
            self.said.append(line)
            log.info("%s", line)

    def _page(self, path: str) -> tuple[int, str]:
        host, port = host_and_port(self.found["metrics"])
        connection = http.client.HTTPConnection(host, port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def _accepts(self) -> bool:
        return self._page("/accepting")[0] == 200

    def _figure(self, *names: str) -> list[float]:
        lines = (line.rpartition(" ") for line in self._page("/metrics")[1].splitlines())
        figures = {name: float(value) for name, _, value in lines if name in names}
        return [figures[name] for name in names]

    def load(self) -> tuple[str, int, int]:
        """What the relay hears: a `Load`."""
        places, free, waiting = self._figure("jaguar_places", "jaguar_places_free", "jaguar_waiting")
        return self.found["listening"], int(places), int(places - free + waiting)

    def check_health(self) -> None:
        """Serve asks. A full server is well: it is asked `/accepting`, not `/ready`."""
        if self.server.poll() is not None:
            raise JaguarError(f"the server ended with code {self.server.returncode}: {self.said[-1] if self.said else ''}")
        if not self._accepts():
            raise JaguarError("the server takes nobody")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Serve asks, for `SecondsAhead`."""
        seconds, places, free = self._figure("jaguar_place_in_seconds", "jaguar_places", "jaguar_places_free")
        return {"seconds_ahead": seconds, "busy": (places - free) / places}

    def __del__(self) -> None:
        """Serve ends a replica: the server finishes queries that have begun, and sends others away."""
        if hasattr(self, "server"):
            self.server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.wait(self.grace + 10)


class EvaluationLost(JaguarError):
    """An evaluation ended without an answer: it may go better on another node, or later."""


def _evaluate(program: str, file: str, threads: int) -> None:
    """One evaluation, as a child, which dies with this worker."""
    command = [program, "evaluate", file, "--protocol", "convfhe", "--threads", str(threads)]
    first = end_with(os.getpid(), signal.SIGKILL)
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=first)
    except OSError as error:
        raise EvaluationLost(f"{program}: it cannot be started on this node: {error}") from None
    if ran.returncode:
        said = ran.stdout.decode(errors="replace").strip()
        raise EvaluationLost(f"{' '.join(command)} ended with code {ran.returncode}: {said}")


_TASK: Any = ray.remote(retry_exceptions=[EvaluationLost])(_evaluate)


class OneRound(Replica):
    """A server whose inputs are evaluated by tasks of Ray."""

    def __init__(self, command: list[str], host: str | None, grace: float, folder: Path, task: dict[str, Any]) -> None:
        self.program, self.folder, self.task = command[0], folder, task
        self.ended = threading.Event()
        super().__init__(command, host, grace)
        threading.Thread(target=self._hand_on, daemon=True).start()

    def _hand_on(self) -> None:
        """What the server puts into the folder becomes tasks."""
        # By file, until that is gone: the server has taken the answer then. (Dropped, a task that Ray has not begun is none any more.)
        given: dict[Path, ray.ObjectRef[None]] = {}
        over: set[Path] = set()
        while not self.ended.wait(0.2):
            try:
                there = set(self.folder.glob("*.task"))
                given = {file: task for file, task in given.items() if file in there}
                over &= there
                for file in sorted(there - given.keys()):
                    # An earlier replica's may be through.
                    if file not in over and not _is_through(file):
                        given[file] = self._begin(file)
                through, _ = ray.wait(list(given.values()), num_returns=len(given), timeout=0) if given else ([], [])
                for file in [file for file, task in given.items() if task in through]:
                    over.add(file)
                    self._end(file, given.pop(file))
            except Exception as error:  # a disk or a Ray that fails for now: what is in the folder is still there
                log.warning("evaluations: %s", error)

    def _begin(self, file: Path) -> ray.ObjectRef[None]:
        memory = int(json.loads(file.read_bytes())["memory"])
        most = max((node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if most < memory:
            log.warning("evaluations: one takes %.1f GB of memory, and no node has more than %.1f GB: it waits", memory / 1e9, most / 1e9)
        threads = max(int(self.task["num_cpus"]), 1)
        task: ray.ObjectRef[None] = _TASK.options(memory=memory, **self.task).remote(self.program, str(file), threads)
        return task

    def _end(self, file: Path, task: ray.ObjectRef[None]) -> None:
        """A task is through. Where it left nothing, the server is told."""
        try:
            ray.get(task)
            why = "its process left nothing"
        except Exception as error:  # of the task, or of Ray: its node is gone, and so are the retries
            why = str(error)
        if _is_through(file) or not file.exists():
            return
        log.error("evaluations: %s: %s", file.name, why)
        told = "the evaluation broke off again and again; ask the server's operator"
        beside = file.with_suffix(f".{os.getpid()}.beside")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as failure:
            json.dump({"told": told, "detail": f"evaluation: {why[-2000:]}"}, failure)
        beside.replace(file.with_suffix(".failure"))

    def __del__(self) -> None:
        """The server ends first: it removes what it took."""
        super().__del__()
        self.ended.set()


def _is_through(file: Path) -> bool:
    """Whether there is an answer to a task, or why there is none."""
    return any(file.with_suffix(kind).exists() for kind in (".answer", ".failure"))


class Ingress:
    """The relay, as a replica of Serve."""

    def __init__(self, app: str, listen: str, grace: float) -> None:
        self.app, self.grace = app, grace
        self.relay = Relay(listen, ray.util.get_node_ip_address())
        self.ended = threading.Event()
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        """Every second, which servers there are."""
        from ray import serve

        while not self.ended.wait(1):
            try:
                found = serve.get_app_handle(self.app).broadcast("load").results(timeout_s=5, return_exceptions=True)
            except Exception as error:  # whatever Serve raises while there is none: those that were heard of are tried
                log.warning("no replica of %r answers: %s", self.app, error)
                continue
            self.relay.hear([Load(*load) for load in found if not isinstance(load, Exception)])

    def address(self) -> str:
        """Where clients connect to."""
        return self.relay.address

    def check_health(self) -> None:
        """Serve asks."""
        if not self.relay.listens():
            raise JaguarError("the relay takes no connections")

    def __del__(self) -> None:
        """Serve ends it: connections that are there go on for a while."""
        if hasattr(self, "ended"):
            self.relay.close(self.grace)
            self.ended.set()


class SecondsAhead:
    """A policy of Ray Serve's autoscaling, by the work that is ahead of a client that comes now: the gauge `jaguar_place_in_seconds`.

    Beyond `target` seconds, as a mean of all replicas, there come as many more as bring it there. Where nobody waits, as many stay as
    have places for those who are served. Bounds, factors and delays are those of the `autoscaling_config`.
    """

    def __init__(self, target: float = 10) -> None:
        self.target = target

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """How many replicas there should be."""
        ahead, busy = (list(context.aggregated_metrics.get(name, {}).values()) for name in ("seconds_ahead", "busy"))
        wanted: int = context.target_num_replicas
        if ahead and sum(ahead) / len(ahead) > self.target:
            wanted = max(wanted, math.ceil(len(ahead) * (sum(ahead) / len(ahead)) / self.target))
        elif ahead and not any(ahead):
            wanted = min(wanted, max(math.ceil(sum(busy)), 1))
        return wanted, {}


def predict(
    dataset: Any,
    server: str,
    *,
    column: str = "image",
    checkpoint: PathLike | None = None,
    concurrency: int = 1,
    batch_size: int = 16,
    retry: float = 600,
    keep: int = 1,
    **options: Any,
) -> Any:
    """Asks a server about each row of a data set of Ray Data: the same rows, with columns `label` and `name`, and, unless the server
    reveals the label alone, `logits` and `probabilities`, both `[classes]`.

    `column`: the images, each as `Client.predict` takes one: a path, a file's bytes, pixels, a tensor. `concurrency`: actors, each of
    which has a client that keeps `keep` queries prepared. `options` are those of `Client`. `checkpoint`: a folder that all nodes share;
    there each answer is written as it comes, in a file that its owner alone can read. A run that finds an answer there, to the same
    input by the same model, does not ask again. `retry`: for how many seconds a query is tried anew where the server is gone or busy.
    `batch_size`: rows that go on together.
    """
    import ray.data

    if not isinstance(column, str):
        raise OptionError(f"column={column!r}: a name is needed")
    retry = _options.seconds("retry", retry)
    folder = None if checkpoint is None else str(_options.path("checkpoint", checkpoint).absolute())
    given = {"server": server, "options": {**options, "keep": keep, "progress": False}}
    return dataset.map_batches(
        Asker,
        fn_constructor_kwargs={**given, "column": column, "folder": folder, "retry": retry},
        batch_size=_options.whole("batch_size", batch_size, 1, 2**31),
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=_options.whole("concurrency", concurrency, 1, 2**31)),
    )


class Asker:
    """What asks, in an actor of Ray Data."""

    def __init__(self, server: str, options: dict[str, Any], column: str, folder: str | None, retry: float) -> None:
        self.column, self.retry = column, retry
        self.client = self._tried(lambda: Client(server, **options))
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The batch, with the answers."""
        if self.column not in batch:
            raise OptionError(f"column={self.column!r}: the data set has {', '.join(batch)}")
        answers = [self._answer(image) for image in batch[self.column]]
        return {**batch, **{name: np.array([answer[name] for answer in answers]) for name in (answers[0] if answers else ())}}

    def _answer(self, image: Any) -> dict[str, Any]:
        if isinstance(image, str):
            try:
                image = Path(image).read_bytes()
            except OSError as error:
                raise InputError(f"{image}: {error.strerror}") from None
        if self.folder is None:
            return _told(self._ask(image))
        file = self.folder / _name(f"{self.client.model} {self.client.reveals}", image)
        with contextlib.suppress(FileNotFoundError, ValueError):  # a file that was not finished is no answer
            told: dict[str, Any] = json.loads(file.read_bytes())
            return told
        told = _told(self._ask(image))
        with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as beside:
            json.dump(told, beside)
        os.replace(beside.name, file)
        return told

    def _ask(self, image: Any) -> Prediction:
        one = _inputs.one(image)
        return self._tried(lambda: self.client.predict(one))

    def _tried(self, ask: Callable[[], T]) -> T:
        """Again and again, while the server is gone or busy."""
        until, pause = time.monotonic() + self.retry, 1.0
        while True:
            try:
                return ask()
            except (ConnectionFailedError, ServerBusyError) as error:
                # Who gives up for good says so: but for a server that ends, behind whose address there may be another.
                refused = isinstance(error, PeerAbortedError) and "shutting down" not in str(error)
                if refused or time.monotonic() + pause > until:
                    raise
                log.warning("asking again in %.0f s: %s", pause, error)
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


def _told(found: Prediction) -> dict[str, Any]:
    """An answer, as rows and files have it."""
    told: dict[str, Any] = {"label": found.label, "name": found.name}
    if found.logits is not None and found.probabilities is not None:
        told |= {"logits": found.logits.tolist(), "probabilities": found.probabilities.tolist()}
    return told


def _name(model: str, image: Any) -> str:
    """The file of an answer: by `model`, whose public name commits to its weights, and by all of the input."""
    if isinstance(image, bytes):
        kind, content = "bytes", image
    else:
        array = np.ascontiguousarray(image)
        kind, content = f"{array.dtype.str} {array.shape}", array.tobytes()
    return hashlib.sha256(f"{model}\n{kind}\n".encode() + content).hexdigest() + ".json"
