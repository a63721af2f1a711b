"""What a long call tells while it runs: a line that is written over, on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from jaguar.errors import JaguarWarning

Callback = Callable[[str, int, int, str], object]
"""Is called with what is done, how much of it, of how much (0: unknown), and a detail such as a layer's name."""

Progress = bool | Callback | None
"""True: a bar. False: nothing. None: a bar where somebody watches. Or whoever is to be told."""

_WIDTH = 24
_QUIET = 0.5  # seconds that a call may take before there is a bar
_OFTEN = 0.1  # seconds between two of them


def _watched(stream: TextIO) -> bool:
    return stream.isatty() or "ipykernel" in sys.modules


class Listener:
    """Hears what the native part tells, on the thread that called it."""

    def __init__(self, progress: Progress, title: str = "") -> None:
        self._callback = progress if callable(progress) else None
        self._bar = progress is True or (progress is None and _watched(sys.stderr))
        self._title = f"{title}: " if title else ""
        self._start = time.monotonic()
        self._drawn = 0.0
        self._length = 0

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clear()

    def __call__(self, kind: str, text: str, done: int, of: int, detail: str) -> None:
        if kind == "warning":
            self._clear()
            warnings.warn(text, JaguarWarning, stacklevel=_outside())
        elif kind == "note":
            if self._bar:
                self._clear()
                print(f"note: {text}", file=sys.stderr)
        else:
            if self._callback:
                self._callback(text, done, of, detail)
            self._draw(text, done, of, detail)

    def _draw(self, what: str, done: int, of: int, detail: str) -> None:
        now = time.monotonic()
        if not self._bar or now - self._start < _QUIET or now - self._drawn < _OFTEN:
            return
        self._drawn = now
        parts = [f"{self._title}{what}"]
        if of:
            filled = _WIDTH * min(done, of) // of
            parts.append(f"[{'=' * filled}{' ' * (_WIDTH - filled)}]")
            if detail == "bytes":
                parts.append(f"{done / 2**20:.0f}/{of / 2**20:.0f} MiB")
                detail = ""
            else:
                parts.append(f"{done}/{of}")
        parts.append(f"{detail} ({now - self._start:.0f} s)".strip())
        line = " ".join(parts)[:110]
        print(f"\r{line.ljust(self._length)}", end="", file=sys.stderr, flush=True)
        self._length = len(line)

    def _clear(self) -> None:
        if self._length:
            print(f"\r{' ' * self._length}\r", end="", file=sys.stderr, flush=True)
            self._length = 0


def _outside() -> int:
    """How many frames up the first one outside this package is."""
    depth = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "jaguar":
        frame = frame.f_back
        depth += 1
    return depth
