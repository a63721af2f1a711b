"""A client: it holds images, and gets predictions from a server that may not see them."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from jaguar import _inputs, _native, _options
from jaguar._inputs import Image, Images
from jaguar._progress import Listener, Progress
from jaguar.errors import JaguarError, OptionError
from jaguar.model import PathLike
from jaguar.results import Cost, Prediction, prediction

T = TypeVar("T")


def _default_cache() -> Path | None:
    """Where a user's caches belong: `$XDG_CACHE_HOME/jaguar`, or `~/.cache/jaguar`."""
    named, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
    if os.path.isabs(named):
        return Path(named) / "jaguar"
    return Path(home) / ".cache" / "jaguar" if os.path.isabs(home) else None


class Client:
    """Stays connected to a server, and asks it about images.

        with jaguar.Client("server.example:7447") as client:
            print(client.predict("cat.jpg").top(3))

    One call at a time uses the connection; others wait. A connection that breaks raises `ConnectionFailedError`; the next call connects
    anew.
    """

    def __init__(
        self,
        server: str,
        *,
        model: str | None = None,
        pin: str | None = None,
        ca: PathLike | None = None,
        token_file: PathLike | None = None,
        cache: PathLike | bool = True,
        keep: int = 0,
        keep_memory: int | None = None,
        wait: float = 0,
        lpn_noise: str = "fresh",
        progress: Progress = None,
    ) -> None:
        """`server`: address and port, `unix:` and a path, or a WebSocket (`wss://host/path`). `model`: the name of one
        of the server's models (None: the only one that this client may use). Beyond this machine the connection is TLS
        1.3: `pin` is the fingerprint of the server's certificate, as the server tells it, or `ca` a file (PEM) with the
        authority that signed it. `token_file`: the token to show to a server that asks for one (`jaguar token`).
        `cache`: where the hint is kept between runs (True: the user's cache folder; False: in memory). `keep`: how many
        prepared queries to have ready, so that an image waits for the online part only: both parties hold them in
        memory, at most `keep_memory` bytes here (default: 2 GiB), and there is a second connection. `wait`: for how many
        seconds to wait for a place, where the server has none free (0: `ServerBusyError` at once). The server says which
        place it is in its line: `progress` hears it. `lpn_noise`: with "stationary", the server may choose it
        (`Model.plan`); with "fresh", one that has is refused."""
        self._progress = progress
        self._native: _native.Client | None = None
        folder = (_default_cache() if cache else None) if isinstance(cache, bool) else _options.path("cache", cache)
        if not isinstance(server, str):
            raise OptionError(f"server={server!r}: an address is needed, such as 127.0.0.1:7447, or the `address` of a Server")
        keep = _options.whole("keep", keep, 0, 2**32 - 1)
        if keep_memory is not None:
            keep_memory = _options.whole("keep_memory", keep_memory, 0, 2**64 - 1)
        wait = _options.seconds("wait", wait)
        believed = {"model": model, "pin": pin, "ca": ca, "token_file": token_file, "wait": wait, "lpn_noise": lpn_noise}
        with Listener(progress, "connect") as listener, _options.checked(believed):
            self._native = _native.Client(server, believed, folder, keep, keep_memory, listener)
        self._keep = keep
        self.server = server
        self._labels = tuple(self._native.labels)

    def _open(self) -> _native.Client:
        if self._native is None:
            raise JaguarError("this client is closed")
        return self._native

    @property
    def model(self) -> str:
        """The model's public name: it commits to the weights."""
        return self._open().model

    @property
    def name(self) -> str:
        """The network's name."""
        return self._open().name

    @property
    def protocol(self) -> str:
        """What runs the linear layers."""
        return self._open().protocol

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes; empty if the model has none."""
        return self._labels

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width of the network's input."""
        channels, height, width = self._open().input_shape
        return channels, height, width

    @property
    def reveals(self) -> str:
        """What the server reveals: "logits" or "label"."""
        return self._open().reveals

    @property
    def ready(self) -> int:
        """How many prepared queries are there now."""
        return self._open().ready

    def fetch(self, *, batch: int = 1, progress: Progress = None) -> int:
        """Fetches now what is missing of the hint, into the cache folder, as `jaguar fetch` does. A first query would fetch it on its
        way. Returns how many bytes came: 0 where all was there, or the protocol has no hint.

        `batch`: for `predict_many(batch=...)`. Each size has a hint of its own. The server must allow it.
        """
        with Listener(self._progress if progress is None else progress, "fetch") as listener:
            return self._open().fetch(_options.batch(batch), listener)

    def predict(self, image: Image, *, progress: Progress = None) -> Prediction:
        """Asks about one image. The server learns nothing of it, and the client nothing but the result."""
        [found] = self._predict([_inputs.one(image)], 0, 1, self._progress if progress is None else progress, "predict")
        return found

    def _predict(self, given: list[_native.Input], first: int, images: int, progress: Progress, title: str) -> list[Prediction]:
        """One query, about `given`, the first of which is the caller's input number `first`."""
        with Listener(progress, title) as listener:
            answers, document, line, tables = self._open().predict(given, first, images, listener)
        cost = Cost(document, line, tables)
        return [prediction(answer, self._labels, cost) for answer in answers]

    def iterate(self, images: Images, *, batch: int = 1, progress: Progress = None) -> Iterator[Prediction]:
        """As `predict_many`, one after the other as they come: with `batch`, the answers of a query come together."""
        batch = _options.batch(batch)
        return self._iterate(self._open().each(_inputs.many(images)), batch, self._progress if progress is None else progress)

    def _iterate(self, given: list[_native.Input], batch: int, progress: Progress) -> Iterator[Prediction]:
        native = self._open()
        # With no query kept, the next is prepared while one is answered, for these images only. Those that are kept are for one image.
        row = batch > 1 or (self._keep == 0 and len(given) > 1)
        if row:
            native.begin_many(-(-len(given) // batch))
        try:
            for first in range(0, len(given), batch):
                some = given[first : first + batch]
                which = f"image {first + 1}" if batch == 1 else f"images {first + 1} to {first + len(some)}"
                yield from self._predict(some, first, batch, progress, f"{which} of {len(given)}")
        finally:
            if row:
                native.end_many()

    def predict_many(self, images: Images, *, batch: int = 1, progress: Progress = None) -> list[Prediction]:
        """Asks about images: a list, an array with one dimension more, or a folder. The next query is prepared while one is
        answered.

        `batch`: ask about so many of them in one query, a power of two up to 64: in the rounds of one, with less work for layers with
        small maps. The server must allow it (`Server(..., max_batch=...)`, `jaguar serve --max-batch`). Zeros fill up the last query.
        Predictions of one query share its `cost`. `Model.plan(batch=...)` tells where it pays.
        """
        return list(self.iterate(images, batch=batch, progress=progress))

    async def fetch_async(self, *, batch: int = 1) -> int:
        """As `fetch`."""
        return await self._in_thread(functools.partial(self.fetch, batch=batch, progress=False))

    async def predict_async(self, image: Image) -> Prediction:
        """As `predict`. If the task is cancelled, the query ends, and the next one connects anew."""
        [found] = await self._in_thread(functools.partial(self._predict, [_inputs.one(image)], 0, 1, False, ""))
        return found

    async def predict_many_async(self, images: Images, *, batch: int = 1) -> list[Prediction]:
        """As `predict_many`."""
        return [found async for found in self.iterate_async(images, batch=batch)]

    async def iterate_async(self, images: Images, *, batch: int = 1) -> AsyncIterator[Prediction]:
        """As `iterate`."""
        batch = _options.batch(batch)
        found = self._iterate(self._open().each(_inputs.many(images)), batch, False)
        try:
            while (each := await self._in_thread(functools.partial(next, found, None))) is not None:
                yield each
        finally:
            await self._in_thread(found.close)  # type: ignore[attr-defined]

    async def _in_thread(self, call: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(None, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # It ends within a second, begun or not; what it raises then is of no interest.
            while not future.done():
                self.interrupt()
                await asyncio.wait([future], timeout=0.05)
            if not future.cancelled():
                future.exception()
            raise

    def interrupt(self) -> None:
        """Ends a call of another thread, which raises `InterruptedCallError`."""
        if self._native is not None:
            self._native.interrupt()

    def close(self) -> None:
        """Ends the connection, and drops what was prepared."""
        native, self._native = self._native, None
        if native is not None:
            native.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __repr__(self) -> str:
        state = f"{self.name} at {self.server}" if self._native is not None else "closed"
        return f"<jaguar.Client: {state}>"
