"""Child processes that end with their parent (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_prctl = ctypes.CDLL(None).prctl
_PDEATHSIG = 1


def end_with(parent: int, how: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the child is sent this signal when the thread that starts it ends, and so when its process is killed.
    `parent`: that process."""

    def first() -> None:
        _prctl(_PDEATHSIG, how)
        if os.getppid() != parent:
            os._exit(1)

    return first
