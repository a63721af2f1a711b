"""Runs the crates' tests as programs for 64-bit Arm under qemu, then private queries of an Arm client to a server of this machine.

    python3 tools/on_arm.py    # `make test-arm`

Needs qemu-aarch64 (Debian: qemu-user), aarch64-linux-gnu-gcc (gcc-aarch64-linux-gnu) and Rust's std for the target; says which is
missing and ends well. The Arm client is crates/engine/examples/ask.rs. Its answers and those of this machine's client must have the
same class and nearly the same logits: what they may differ by is the noise that answers get. Times are those of an emulator, and say
nothing of a processor.
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
import time
from pathlib import Path

from check_platforms import has_std

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "web" / "tests"))

TARGET = "aarch64-unknown-linux-gnu"
CRATES = ["ring", "wire", "ot", "mpc", "graph", "linear", "engine"]
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]

QUERIES = 3

# What logits of one input may differ by: sixteen times the noise of an answer. Those of two classes are further apart.
NEAR = 0.01


def environment() -> dict[str, str]:
    name = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU"
    return {f"{name}_LINKER": "aarch64-linux-gnu-gcc", f"{name}_RUNNER": " ".join(EMULATOR), **os.environ}


def missing(needed: list[str]) -> list[str]:
    """What of the tools is not there."""
    names = [tool for tool in needed if shutil.which(tool) is None]
    return names if has_std(TARGET) else [*names, f"Rust's std for {TARGET} (rustup target add {TARGET})"]


def cargo(*arguments: str) -> None:
    started = time.monotonic()
    subprocess.run(["cargo", *arguments, "--locked"], cwd=ROOT, env=environment(), check=True)
    print(f"cargo {' '.join(arguments)}: {time.monotonic() - started:.0f} s", flush=True)


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
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


def queries(native: Path, client: list[str]) -> int:
    """Both clients ask a server of this machine about the same inputs."""
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
                    ask = [str(native), "predict", "--json", "--server", address, "--cache", str(folder / "cache")]
                    here = json.loads(asked([*ask, str(folder / "input.npy")]))["outputs"][0]["values"]
                    there = [float(line) for line in asked([*client, address, str(folder / "input.f32")]).split()]
                    found = difference(here, there)
                    print(f"input {number}: {found or 'the same class'}", flush=True)
                    bad += found is not None
            finally:
                server.kill()
    return min(bad, 1)


def main() -> int:
    if lacks := missing(["qemu-aarch64", "aarch64-linux-gnu-gcc"]):
        print(f"skip: nothing is tested on 64-bit Arm, as there is no {', no '.join(lacks)}")
        return 0
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    # The same packages for both, so that nothing is built twice.
    packages = [word for crate in CRATES for word in ("--package", f"jaguar-{crate}")]
    cargo("test", "--target", TARGET, *packages)
    cargo("build", "--target", TARGET, *packages, "--example", "ask")
    cargo("build", "--package", "jaguar-cli")
    return queries(target / "debug/jaguar", [*EMULATOR, str(target / TARGET / "debug/examples/ask")])


if __name__ == "__main__":
    sys.exit(main())
