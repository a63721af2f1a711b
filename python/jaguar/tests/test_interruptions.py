"""Ctrl-C, and what it leaves behind: nothing. No time is asserted; what waits too long is a failure all the same, by a limit that a
call which went on would exceed."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import jaguar
import pytest
from conftest import TINY, images

# Threads of the native part that must not outlive what they were started for. (Those of rayon's pool stay.)
OURS = {"jaguar", "server", "client", "model", "prepare", "wire-writer", "wire-reader"}


def threads() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue  # it has just ended
    return sorted(name for name in names if name in OURS)


def wait_for(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s there are still {threads()}"
        time.sleep(0.02)


def test_control_c_ends_a_compilation() -> None:
    """It would take minutes."""
    seen: list[tuple[str, int, int]] = []

    def interrupt(what: str, done: int, of: int, detail: str) -> None:
        seen.append((what, done, of))
        if what == "calibrating":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        jaguar.compile(TINY, images(20_000), progress=interrupt)
    what, done, of = seen[-1]
    assert what == "calibrating" and done < of, "in the middle of it"
    wait_for(lambda: not threads())


def test_control_c_from_a_terminal(tmp_path: Path) -> None:
    """As a person presses it: a signal from outside, in the middle of a script."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import jaguar
            from conftest import TINY, images
            from test_interruptions import threads, wait_for
            def tell(what, done, of, detail):
                if what == "calibrating" and done:
                    print("calibrating", flush=True)
            try:
                jaguar.compile(TINY, images(20_000), progress=tell)
            except KeyboardInterrupt:
                wait_for(lambda: not threads())
                print("interrupted, nothing left", flush=True)
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "calibrating\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert out.splitlines()[-1] == "interrupted, nothing left"
    assert process.returncode == 0


def test_control_c_ends_a_query(model: jaguar.Model, server: jaguar.Server) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with jaguar.Client(server.address, cache=False) as client:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                client.predict(images(1)[0], progress=interrupt)
        assert client.predict(images(1)[0]).label in range(4), "the client goes on"
    server.close()
    wait_for(lambda: not threads())


def test_a_callback_that_raises_ends_a_call(model: jaguar.Model) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        model.evaluate(images(2), [0, 1], private=2, progress=fail)
    wait_for(lambda: not threads())


def test_another_thread_interrupts(model: jaguar.Model, server: jaguar.Server) -> None:
    """In the middle of many queries, and the next one works."""
    raised: list[BaseException] = []
    with jaguar.Client(server.address, cache=False) as client:
        begun = threading.Event()

        def ask() -> None:
            try:
                for _ in client.iterate(images(10_000)):
                    begun.set()
            except BaseException as error:
                raised.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(120)
        # Between two calls there is nothing to interrupt.
        while asking.is_alive():
            client.interrupt()
            asking.join(0.05)
        assert [type(error) for error in raised] == [jaguar.InterruptedCallError]
        assert client.predict(images(1)[0]).label in range(4)


def test_the_lock_is_given_away(model: jaguar.Model) -> None:
    """Other threads of Python run while a call computes."""
    ticks = 0
    over = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not over.wait(0.001):
            ticks += 1

    ticking = threading.Thread(target=tick)
    ticking.start()
    before = ticks
    while ticks == before:
        time.sleep(0.001)
    during: list[int] = []
    jaguar.compile(TINY, images(300), activation_bits=18, progress=lambda *_: during.append(ticks))
    over.set()
    ticking.join()
    assert during and during[-1] > during[0], "the other thread went on between two looks"
