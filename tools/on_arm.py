"""Runs the crates' tests as programs for 64-bit Arm under qemu, then private queries of Arm clients to a server of this machine.

    python3 tools/on_arm.py              # `make test-arm`: all of it
    python3 tools/on_arm.py ring wire    # the tests of some crates
    python3 tools/on_arm.py client       # the queries

Needs qemu-aarch64 (Debian: qemu-user), aarch64-linux-gnu-gcc (gcc-aarch64-linux-gnu) and Rust's std for the target; says which is
missing and ends well. Tests that take an emulator many minutes are in `LEFT_OUT`, each with its reason. The Arm clients are
crates/engine/examples/ask.rs, and the command where `make static STATIC_TARGET=aarch64-unknown-linux-musl` made it. Their answers and
those of this machine's client must have the same class and nearly the same logits: what they may differ by is the noise that answers
get. `JAGUAR` names this machine's program; without it, it is built. Times are those of an emulator, and say nothing of a processor.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from check_platforms import has_std

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "web" / "tests"))

TARGET = "aarch64-unknown-linux-gnu"
CRATES = ["ring", "wire", "ot", "mpc", "graph", "linear", "engine"]
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]

ATTACK = "a minute of processor time or more: what an attack finds, which no processor changes"
PROCESSES = "it starts itself as a second process, and the emulator starts none for Arm"

# Crate -> test -> why it is not run here. Seconds are of a processor's time under qemu 10.
LEFT_OUT: dict[str, dict[str, str]] = {
    "ot": {
        "cots::tests::any_sequence_of_requests_correlates_and_nothing_repeats":
            "more than 60 s; `cots::tests::iterations_follow_each_other` and others reach the same kernels",
    },
    "linear": {
        "components::tests::components_tell_of_hidden_noise_and_of_opened_noise_nothing": ATTACK,
        "known_coins::tests::the_stated_number_of_queries_holds": ATTACK,
        "own_images::tests::one_colour_shows_nothing_within_the_stated_queries": ATTACK,
    },
    "engine": {
        "tests::a_wholesale_repeat_of_traffic_is_found": "minutes, for it asks many times; every other private query reaches the same kernels",
        "killed::a_killed_process_uses_nothing_again": PROCESSES,
        "killed::fixed_randomness_is_found": PROCESSES,
    },
}

# A program of tests that takes longer hangs.
LONGEST_SECONDS = 3 * 3600

QUERIES = 3

# What logits of one input may differ by: sixteen times the noise of an answer. Those of two classes are further apart.
NEAR = 0.01


def environment() -> dict[str, str]:
    return {"CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": "aarch64-linux-gnu-gcc", **os.environ}


def missing(needed: list[str]) -> list[str]:
    """What of the tools is not there."""
    names = [tool for tool in needed if shutil.which(tool) is None]
    return names if has_std(TARGET) else [*names, f"Rust's std for {TARGET} (rustup target add {TARGET})"]


def cargo(*arguments: str) -> str:
    """What cargo printed for programs to read."""
    began = time.monotonic()
    done = subprocess.run(["cargo", *arguments, "--locked"], cwd=ROOT, env=environment(), check=True, stdout=subprocess.PIPE, text=True)
    print(f"cargo {' '.join(arguments)}: {time.monotonic() - began:.0f} s", flush=True)
    return done.stdout


def packages(crates: list[str]) -> list[str]:
    """How cargo is told of crates."""
    return [word for crate in crates for word in ("--package", f"jaguar-{crate}")]


@dataclass
class Ran:
    """What one or more programs of tests said."""

    passed: int = 0
    failed: int = 0
    ignored: int = 0
    left_out: int = 0
    seconds: float = 0.0

    def __add__(self, other: Ran) -> Ran:
        return Ran(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def read(line: str) -> Ran | None:
    """The numbers of a program's last line."""
    found = re.match(r"test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored; \d+ measured; (\d+) filtered out", line)
    return Ran(*map(int, found.groups())) if found else None


def programs(messages: str) -> list[tuple[Path, Path]]:
    """The programs of tests that cargo built, each with its package's folder."""
    told = [json.loads(line) for line in messages.splitlines()]
    return [(Path(one["executable"]), Path(one["manifest_path"]).parent) for one in told if one.get("executable") and one["profile"]["test"]]


def run_tests(program: Path, folder: Path, left_out: list[str]) -> Ran:
    """Runs a program of tests, and prints what it says but for tests that pass."""
    began, result = time.monotonic(), None
    options = [word for name in left_out for word in ("--skip", name)]
    command = [*EMULATOR, str(program), "--exact", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as running:
        end = threading.Timer(LONGEST_SECONDS, running.kill)
        end.start()
        assert running.stdout is not None
        for line in running.stdout:
            result = read(line) or result
            if not re.match(r"test .* \.\.\. (ok|ignored)|running \d|\s*$", line):
                print(line, end="", flush=True)
        end.cancel()
    seconds = time.monotonic() - began
    if result is None:
        print(f"{program.name} ended after {seconds:.0f} s without a result (status {running.wait()})", flush=True)
        result = Ran(failed=1)
    result.failed += running.wait() != 0 and result.failed == 0
    result.seconds = seconds
    return result


def tests(crate: str, built: list[tuple[Path, Path]]) -> Ran:
    """Runs all tests of a crate but those that are left out."""
    out = LEFT_OUT.get(crate, {})
    total = sum((run_tests(program, folder, list(out)) for program, folder in built if folder.name == crate), Ran())
    print(f"{crate}: {total.passed} passed, {total.failed} failed, {total.ignored} ignored, {total.seconds / 60:.1f} minutes", flush=True)
    for name, reason in out.items():
        print(f"  left out: {name}: {reason}")
    if total.left_out != len(out):
        print(f"{crate}: {len(out)} tests are to be left out, and {total.left_out} were: a name is not that of a test")
        total.failed += 1
    return total


def started(server: subprocess.Popen[str]) -> str:
    """The address at which a server listens."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"listening on ([0-9.:]+)", line):
            return found[1]
    raise SystemExit("the server ended before it listened")


def asked(command: list[str]) -> str:
    """What a client printed."""
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    print(f"a query by {command[0]}: {time.monotonic() - began:.1f} s", flush=True)
    return done.stdout


def difference(here: list[float], there: list[float]) -> str | None:
    """What two clients were told that is not the same."""
    apart = max(abs(a - b) for a, b in zip(here, there, strict=True))
    classes = [values.index(max(values)) for values in (here, there)]
    if classes[0] == classes[1] and apart <= NEAR:
        return None
    return f"class {classes[0]} here and {classes[1]} on Arm, logits {apart:.4f} apart"


def npy(shape: tuple[int, ...], values: bytes) -> bytes:
    """Values as a file of NumPy's."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values


# Asks a server at an address; `input.f32` and `input.npy` are in the folder.
Client = Callable[[str, Path], list[float]]


def command(*program: str) -> Client:
    """`jaguar predict` of a program."""

    def ask(address: str, folder: Path) -> list[float]:
        options = ["--json", "--server", address, "--cache", str(folder / "cache" / program[-1].lstrip("/"))]
        return json.loads(asked([*program, "predict", *options, str(folder / "input.npy")]))["outputs"][0]["values"]

    return ask


def example(*program: str) -> Client:
    """The example `ask`."""
    return lambda address, folder: [float(line) for line in asked([*program, address, str(folder / "input.f32")]).split()]


def queries(native: Path, clients: dict[str, Client]) -> int:
    """This machine's client and others ask a server of this machine about the same inputs: in how many answers they differ."""
    import network  # the six layers that the browser's tests have

    shape, bad, draw = (3, 32, 32), 0, random.Random(5)
    with tempfile.TemporaryDirectory(prefix="jaguar-arm-") as name:
        folder = Path(name)
        (folder / "six.onnx").write_bytes(network.six_layers())
        model = folder / "six.jaguar"
        compile_it = [native, "compile", folder / "six.onnx", "--calibrate", ROOT / "demo/calibration", "--pixel-scale", str(1 / 255)]
        subprocess.run([*map(str, compile_it), "-o", str(model)], check=True, capture_output=True)
        serve = [str(native), "serve", str(model), "--listen", "127.0.0.1:0", "--measure", "off"]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            try:
                address = started(server)
                for number in range(QUERIES):
                    values = struct.pack(f"<{math.prod(shape)}f", *(draw.random() for _ in range(math.prod(shape))))
                    (folder / "input.f32").write_bytes(values)
                    (folder / "input.npy").write_bytes(npy(shape, values))
                    here = command(str(native))(address, folder)
                    for client, ask in clients.items():
                        found = difference(here, ask(address, folder))
                        print(f"input {number}, {client}: {found or 'the same class'}", flush=True)
                        bad += found is not None
            finally:
                server.kill()
    return bad


def client(target: Path) -> int:
    """What fails of the clients for Arm."""
    # With the packages of all tests, so that nothing is built twice.
    cargo("build", "--target", TARGET, *packages(CRATES), "--example", "ask")
    clients = {"the example": example(*EMULATOR, str(target / TARGET / "debug/examples/ask"))}
    static = target / "aarch64-unknown-linux-musl/release/jaguar"
    if static.exists():
        # Static: the emulator needs no libraries.
        subprocess.run([EMULATOR[0], str(static), "doctor"], check=True)
        clients["the static program"] = command(EMULATOR[0], str(static))
    else:
        print("skip: no static program for Arm asks (make static STATIC_TARGET=aarch64-unknown-linux-musl)")
    if native := os.environ.get("JAGUAR"):
        return queries(Path(native), clients)
    cargo("build", "--package", "jaguar-cli")
    return queries(target / "debug/jaguar", clients)


def main(pieces: list[str]) -> int:
    if unknown := set(pieces) - {*CRATES, "client"}:
        print(f"{', '.join(sorted(unknown))}: not a crate that is tested on Arm ({', '.join(CRATES)}), nor `client`", file=sys.stderr)
        return 2
    if lacks := missing(["qemu-aarch64", "aarch64-linux-gnu-gcc"]):
        print(f"skip: nothing is tested on 64-bit Arm, as there is no {', no '.join(lacks)}")
        return 0
    subprocess.run([EMULATOR[0], "--version"], check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    crates = [crate for crate in CRATES if not pieces or crate in pieces]
    total = Ran()
    if crates:
        built = programs(cargo("test", "--no-run", "--message-format", "json-render-diagnostics", "--target", TARGET, *packages(crates)))
        total = sum((tests(crate, built) for crate in crates), Ran())
        print(f"all: {total}")
    return int(total.failed + (client(target) if not pieces or "client" in pieces else 0) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
