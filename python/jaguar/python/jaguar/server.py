"""A server in the background of this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType

from jaguar import _native
from jaguar._progress import Listener, Progress
from jaguar.model import Model, PathLike, planning

log = logging.getLogger("jaguar.server")


class Server:
    """Serves one model to clients on a port, in threads of its own, until it is closed.

        with jaguar.Server(model) as server:
            print(server.address)

    What happens is logged as `jaguar.server`, with the command's lines. One server serves one model: start another for another, on
    another port. Beyond this machine the connection is TLS 1.3, under a certificate that is made on first use and kept in the user's
    cache folder: clients know it by its `fingerprint` (`Client(..., pin=...)`, `jaguar predict --pin`).
    """

    def __init__(
        self,
        model: Model | PathLike,
        listen: str = "127.0.0.1:0",
        *,
        reveal: str = "logits",
        prefer: str = "query",
        backends: Sequence[str] | None = None,
        plan_for: PathLike | None = None,
        measure: str = "auto",
        cache: PathLike | None = None,
        max_clients: int = 8,
        hints_per_hour: int | None = None,
        keep_queries: int | None = None,
        keep_memory: int | None = None,
        keep_idle: int | None = None,
        progress: Progress = None,
    ) -> None:
        """`listen`: address and port; port 0 lets the system choose. `reveal`: what clients get to know, "logits" or "label".
        `plan_for`: the link to plan for (as `Model.plan`'s; default: loopback where nobody else can connect, else lan). `max_clients`:
        more are turned away. `hints_per_hour`: whole hints that clients may have, in the long run. `keep_queries`: prepared queries
        that a client may have kept here; `keep_memory`: bytes that those of all clients may hold; `keep_idle`: seconds after which an
        idle client loses them."""
        self._native: _native.Server | None = None
        self._thread: threading.Thread | None = None
        self.model = model if isinstance(model, Model) else Model.load(model)
        settings = {
            "listen": listen,
            "reveal": reveal,
            "max_clients": max_clients,
            "hints_per_hour": hints_per_hour,
            "keep_queries": keep_queries,
            "keep_memory": keep_memory,
            "keep_idle": keep_idle,
        }
        options = planning(plan_for, prefer, backends, measure, cache)
        with Listener(progress, "serve") as listener:
            native = _native.Server(self.model._native, settings, options, listener)
        self._native = native
        self._host, self._port = native.address
        #: What runs the linear layers.
        self.protocol = native.protocol
        #: Of the server's certificate; None where nothing leaves this machine, and TLS is not spoken.
        self.fingerprint = native.fingerprint
        self._thread = threading.Thread(target=_log, args=(native,), name="jaguar-log", daemon=True)
        self._thread.start()
        log.info("%s (model %s), protocol %s, listening on %s", model_name(self.model), self.model.id, self.protocol, self.address)
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
        return f"<jaguar.Server of {model_name(self.model)}, {state}>"


def model_name(model: Model) -> str:
    """The network's name."""
    return model.name or "a model without a name"


def _log(native: _native.Server) -> None:
    more = True
    while more:
        event, more = native.next_event(3600.0)
        if event is not None:
            fault, line = event
            log.log(logging.WARNING if fault else logging.INFO, "%s", line)
