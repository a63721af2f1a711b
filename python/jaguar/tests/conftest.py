"""What several tests need: a small compiled model, images for it, and a server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import jaguar
import numpy as np
import pytest
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
TINY = HERE / "tiny.onnx"
VECTOR = HERE / "vector.onnx"
UNSUPPORTED = HERE / "unsupported.onnx"


# A shell starts what runs in the background with Ctrl-C ignored, and Python then leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)


def images(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Tensors `[N, 3, 16, 16]` around zero."""
    return np.random.default_rng(seed).normal(size=(count, 3, 16, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's cache, or measures the machine for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def model() -> jaguar.Model:
    return jaguar.compile(TINY, images(12), labels=["cat", "dog", "crane", "tabby, cat"])


@pytest.fixture
def server(model: jaguar.Model) -> Iterator[jaguar.Server]:
    with jaguar.Server(model, measure="off") as server:
        yield server


@pytest.fixture
def client(server: jaguar.Server) -> Iterator[jaguar.Client]:
    with jaguar.Client(server.address, cache=False) as client:
        yield client
