"""A server in the background of this process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from jaguar import _native, _options
from jaguar._progress import Listener, Progress
from jaguar.errors import OptionError
from jaguar.model import Model, PathLike, planning

log = logging.getLogger("jaguar.server")


class Server:
    """Serves models to clients on a port, in threads of its own, until it is closed.

        with jaguar.Server(model) as server:
            print(server.address)

    Several models have a name each, which clients ask for (`Client(..., model="birds")`):

        with jaguar.Server({"birds": birds, "flowers": "flowers.jaguar"}) as server:
            print(server.protocols)

    What happens is logged as `jaguar.server`, with the command's lines. Beyond this machine the connection is TLS 1.3, under a
    certificate that is made on first use and kept in the user's cache folder: clients know it by its `fingerprint`
    (`Client(..., pin=...)`, `jaguar predict --pin`).
    """

    def __init__(
        self,
        model: Model | PathLike | Mapping[str, Model | PathLike] | Sequence[Model | PathLike],
        listen: str = "127.0.0.1:0",
        *,
        reveal: str = "logits",
        prefer: str = "query",
        backends: Sequence[str] | None = None,
        plan_for: PathLike | None = None,
        measure: str = "auto",
        cache: PathLike | None = None,
        lpn_noise: str = "fresh",
        max_clients: int = 8,
        max_batch: int = 1,
        hints_per_hour: int | None = None,
        keep_queries: int | None = None,
        keep_memory: int | None = None,
        keep_idle: int | None = None,
        progress: Progress = None,
    ) -> None:
        """`model`: one, or several by name (1 to 64 letters, digits, `-`, `_` and `.`); in a list each has its own name, or that of its
        file. Prepared queries, hints and clients are bounded for all of them together. `listen`: address and port; port 0 lets the
        system choose. `reveal`: what clients get to know, "logits" or "label". `plan_for`: the link to plan for (as `Model.plan`'s;
        default: loopback where nobody else can connect, else lan). `max_clients`: more are turned away. `max_batch`: images that a query
        may have, a power of two up to 64: clients ask for 1, 2, 4, ... of them at once (`Client.predict_many(batch=...)`). What would not
        fit this machine's memory is left out, with a warning. `hints_per_hour`: whole hints
        that clients may have, in the long run. `keep_queries`: prepared queries that a client may have kept here; `keep_memory`: bytes
        that those of all clients may hold; `keep_idle`: seconds after which an idle client loses them. `lpn_noise`: as `Model.plan`'s;
        with "stationary", clients that did not ask for it are refused."""
        self._native: _native.Server | None = None
        self._thread: threading.Thread | None = None
        #: By name.
        self.models = _named(model)
        settings = {
            "listen": listen,
            "reveal": reveal,
            "max_clients": max_clients,
            "max_batch": max_batch,
            "hints_per_hour": hints_per_hour,
            "keep_queries": keep_queries,
            "keep_memory": keep_memory,
            "keep_idle": keep_idle,
        }
        options = planning(plan_for, prefer, backends, measure, cache, lpn_noise)
        with Listener(progress, "serve") as listener, _options.checked(settings, options):
            models = [(name, each._native) for name, each in self.models.items()]
            native = _native.Server(models, settings, options, listener)
        self._native = native
        self._host, self._port = native.address
        #: By model: what runs its linear layers.
        self.protocols = dict(native.protocols)
        #: By model: how many images a query may have.
        self.batches = dict(native.batches)
        #: Of the server's certificate; None where nothing leaves this machine, and TLS is not spoken.
        self.fingerprint = native.fingerprint
        self._thread = threading.Thread(target=_log, args=(native,), name="jaguar-log", daemon=True)
        self._thread.start()
        for name, each in self.models.items():
            log.info("%s (model %s), protocol %s, listening on %s", name, each.id, self.protocols[name], self.address)
            if self.batches[name] > 1:
                log.info("%s: up to %d images a query", name, self.batches[name])
        if self.fingerprint is not None:
            log.info("TLS 1.3; clients know this server by its fingerprint %s", self.fingerprint)

    @property
    def port(self) -> int:
        """The port that is really bound."""
        return self._port

    @property
    def address(self) -> str:
        """Where clients connect to: host and port."""
        if self._host.startswith("unix:"):
            return self._host
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def close(self) -> None:
        """Ends the server: the port is free, clients are told, its threads have ended."""
        native, self._native = self._native, None
        if native is not None:
            native.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"on {self.address}" if self._native is not None else "closed"
        return f"<jaguar.Server of {', '.join(self.models)}, {state}>"


def _named(models: Model | PathLike | Mapping[str, Model | PathLike] | Sequence[Model | PathLike]) -> dict[str, Model]:
    """Models by the names that clients ask for."""
    if isinstance(models, (Model, str, os.PathLike)):
        one = _loaded(models)
        # There is no other: clients need not ask for it, so it has a name even where its own cannot be one.
        name = one.name if _native.is_model_name(one.name) else "model"
        return {name: one}
    if isinstance(models, Mapping):
        given = list(models.items())
    elif not isinstance(models, Sequence):
        raise OptionError(f"model: a {type(models).__name__}; a Model is needed, the path of one, a list or a dictionary of them")
    else:
        given = [(each.name if isinstance(each, Model) else Path(each).stem, each) for each in models]
    found: dict[str, Model] = {}
    for name, each in given:
        if name in found:
            raise OptionError(f"two models are called {name!r}: give names, as in {{'a': one, 'b': other}}")
        found[name] = _loaded(each)
    if not found:
        raise OptionError("model: at least one is needed")
    return found


def _loaded(model: Model | PathLike) -> Model:
    return model if isinstance(model, Model) else Model.load(model)


def _log(native: _native.Server) -> None:
    more = True
    while more:
        event, more = native.next_event(3600.0)
        if event is not None:
            fault, line = event
            log.log(logging.WARNING if fault else logging.INFO, "%s", line)
