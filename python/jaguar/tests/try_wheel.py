"""What a newcomer does, in an environment with nothing but the wheel: `make test-wheel`. Fails where anything of it does.

It is also type-checked against the wheel's stubs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path

import jaguar
import numpy as np

TINY = Path(__file__).resolve().parent / "tiny.onnx"


def images(count: int, seed: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Tensors `[3, 16, 16]` around zero."""
    return list(np.random.default_rng(seed).normal(size=(count, 3, 16, 16)).astype(np.float32))


def step(words: str, began: float) -> None:
    print(f"{words}: {time.monotonic() - began:.1f} s", flush=True)


def interrupted() -> float:
    """Seconds from Ctrl-C until a long call has ended."""
    pressed: list[float] = []

    def press(*_: object) -> None:
        if not pressed:
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        jaguar.compile(TINY, images(20_000, 4), progress=press)
    except KeyboardInterrupt:
        return time.monotonic() - pressed[0]
    raise AssertionError("Ctrl-C did nothing")


async def ask(address: str) -> list[jaguar.Prediction]:
    async with jaguar.Client(address, cache=False) as client:
        found = [await client.predict_async(images(1, 5)[0])]
        async for one in client.iterate_async(images(2, 6)):
            found.append(one)
        return found


def main() -> None:
    began = time.monotonic()
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"torch", "onnx", "pandas"}, "the import takes what is not needed"
    assert metadata.version("jaguar-pi") and metadata.requires("jaguar-pi")
    assert jaguar.__file__ is not None and (Path(jaguar.__file__).parent / "py.typed").exists()
    step(f"imported {jaguar.__version__}", began)

    began = time.monotonic()
    model = jaguar.compile(TINY, images(12, 1), labels=["a", "b", "c", "d"], progress=False)
    assert model.agreement is not None and model.agreement.worst_relative_error < 0.01
    step("compiled", began)
    plan = model.plan(measure="off")
    assert plan.bytes_up > 0 and "query: online" in str(plan)

    with tempfile.TemporaryDirectory() as folder:
        page = model.report(Path(folder) / "report.html", images(2, 2)).read_text()
        assert page.rstrip().endswith("</html>") and model.id in page
        model.plan(measure="off", explain=True, report=Path(folder) / "plan.html")
        assert "What else there was" in (Path(folder) / "plan.html").read_text()
        model.save(Path(folder) / "tiny.jaguar")
        assert jaguar.Model.load(Path(folder) / "tiny.jaguar").id == model.id
    step("planned, reported, saved", began)

    began = time.monotonic()
    x = images(3, 3)
    exact = model.simulate(x, progress=False)
    with jaguar.Server(model, max_batch=2, measure="off") as server:
        with jaguar.Client(server.address, cache=False) as client:
            private = [client.predict(x[0], progress=False), *client.predict_many(x[1:], progress=False)]
            private += client.predict_many(x, batch=2, progress=False)
        assert len(asyncio.run(ask(server.address))) == 3
    for a, b in zip(private, [*exact, *exact], strict=True):
        assert a.logits is not None and b.logits is not None
        assert float(np.abs(a.logits - b.logits).max()) < 0.02 * max(float(np.ptp(b.logits)), 0.1)
    # (A query that is prepared ahead has a number, and those behind the first of a connection begin with what that left.)
    cost = private[0].cost
    assert cost is not None and cost.bytes_up == plan.bytes_up, "the plan's bytes are those of the query"
    last = private[-1].cost
    assert last is not None and (last.images, last.inputs) == (2, 1)
    step("served and asked, nine times", began)

    seconds = interrupted()
    step(f"Ctrl-C took {seconds:.2f} s", began)
    time.sleep(1)
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    assert not left, f"threads are left: {left}"
    print("all of it works")


if __name__ == "__main__":
    main()
