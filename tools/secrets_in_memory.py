"""Looks for branches and addresses that depend on secrets, by valgrind's memcheck, in the programs as they were compiled.

    python3 tools/secrets_in_memory.py cases target/release/examples/timing     # single steps: fuzz/examples/timing.rs
    python3 tools/secrets_in_memory.py sessions target/release/jaguar           # whole inferences, by the program that ships

Secrets are marked as undefined memory (crates/ring/src/cpu/secret.rs), and memcheck reports each branch and each address that depends on
undefined memory. *Cases* mark the secrets of one step. In *sessions* all randomness of the operating system is marked where it is drawn,
and so is whatever follows from it: one party runs under memcheck, the other one beside it, and then the other way round. Some lines are
meant to depend on a secret: MEANT says which and why, and what is found there is counted apart. Fails if anything else is found, if a
line that is meant is not found (then nothing was marked), or if a case that leaks on purpose has nothing. Needs Python 3.11 and valgrind,
which knows the instructions up to AVX2.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VALGRIND = ["valgrind", "--tool=memcheck", "--leak-check=no", "--error-limit=no", "--fullpath-after=", "--num-callers=40", "-q"]

# Lines that depend on a secret and may: the file, what stands in the line, and why.
REJECTED = {"sample.rs: accepted[count] = byte": "which bytes are refused for a ternary secret: they are not taken"}
TERNARY = {"mod.rs: if outside == 0": "whether a secret is ternary: all are"}

UNIFORM = {"ring.rs: if candidate < modulus.value()": "which words are refused for a uniform polynomial: they are not taken"}
UNIFORM_RNS = {"rns.rs: if candidate < tables.prime": "the same"}

# What a case of fuzz/examples/timing.rs may depend on, by the first words of its name; all others may on nothing. Cases with PLANTED
# leak on purpose.
CASES: dict[str, dict[str, str]] = {
    "ternary secret": REJECTED,
    "ring product": TERNARY,
    "product with secret weights": {"mod.rs: .all(|&w| i32::from(w).abs() <= most)": "whether weights are in range: no others are served"},
    "token": {"token.rs: bool::from(known.ct_eq(&hash))": "whose token it is: the answer"},
}


@dataclass(frozen=True)
class Session:
    """One private inference: which network, what both sides are told, and what either party's lines may depend on."""

    name: str
    network: str
    serve: tuple[str, ...] = ()
    client: dict[str, str] | None = None
    server: dict[str, str] | None = None


TINY = "python/jaguar/tests/tiny.onnx"
GATES = "crates/graph/tests/fixtures/mobilenet_v3_14.onnx"
CURVES = "crates/graph/tests/fixtures/named_curves_20.onnx"
# (Its products of matrices are made by ciphertexts, those of rows by correlations.)
ATTENTION = "crates/graph/tests/fixtures/attention_13.onnx"
# (Its norm's rows are opened once, for their squares and for their products.)
NORM = "crates/graph/tests/fixtures/norm_of_tokens_17.onnx"

SESSIONS = [
    Session("jaguar", TINY, client=REJECTED | TERNARY),
    Session("jaguar, with products of values", GATES, client=REJECTED | TERNARY),
    Session("jaguar, with curves", CURVES, client=REJECTED | TERNARY | UNIFORM, server=REJECTED),
    Session("jaguar, with attention", ATTENTION, client=REJECTED | TERNARY | UNIFORM, server=REJECTED),
    Session("jaguar, with a norm", NORM, client=REJECTED | TERNARY | UNIFORM, server=REJECTED),
    Session("jaguar, the label only", TINY, ("--reveal", "label"), client=REJECTED | TERNARY),
    Session("cheetah", TINY, ("--backends", "cheetah"), REJECTED | TERNARY | UNIFORM_RNS, REJECTED),
    Session("fregata-hme", TINY, ("--backends", "fregata-hme"), REJECTED | TERNARY | UNIFORM_RNS, REJECTED),
    Session("cirencode", TINY, ("--backends", "cirencode"), REJECTED | UNIFORM, REJECTED | UNIFORM),
    Session("hyena", TINY, ("--backends", "hyena"), REJECTED | UNIFORM, REJECTED | UNIFORM),
]

REPORT = re.compile(r"depends on uninitialised|Use of uninitialised")
# What is sent depends on secrets, masked by others: memcheck says so too.
SENT = re.compile(r"Syscall param \w+\([^)]*\) points to uninitialised byte")
FRAME = re.compile(r"==\d+==\s+(?:at|by) 0x[0-9A-F]+: .* \((/.*):(\d+)\)$")


def lines(said: str, sources: Path | None = None) -> list[str]:
    """Of each report the line of this project that it is in: the innermost one, the standard library and dependencies left out.

    `sources`: only files below it count as the project's; without it, any file that is there.
    """
    found: list[str] = []
    waiting = False
    for line in said.splitlines():
        if REPORT.search(line):
            found.append("?")
            waiting = True
        elif waiting and (frame := FRAME.match(line)):
            path = Path(frame[1])
            if path.is_file() and (sources is None or path.is_relative_to(sources)):
                text = path.read_text().splitlines()[int(frame[2]) - 1].strip()
                found[-1] = f"{path.name}:{frame[2]}: {text}"
                waiting = False
    return found


def is_in(meant: str, line: str) -> bool:
    """Whether a line `file:number: text` is one of `file: part of the text`."""
    file, _, part = meant.partition(": ")
    name, _, text = line.partition(":")
    return file == name and part in text


def sort(found: list[str], meant: dict[str, str]) -> tuple[Counter[str], Counter[str]]:
    """What was found in each line that is meant, and elsewhere."""
    inside: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    for line in found:
        if text := next((text for text in meant if is_in(text, line)), None):
            inside[text] += 1
        else:
            outside[line] += 1
    return inside, outside


def judge(name: str, found: list[str], meant: dict[str, str], planted: bool = False) -> bool:
    """Prints what was found, and says whether it is as it should be."""
    inside, outside = sort(found, meant)
    fine = bool(outside) == planted and set(inside) == set(meant)
    print(f"{name:44} {sum(outside.values()):3} branches or addresses depend on secrets{'' if fine else '  <-- wrong'}", flush=True)
    for text, why in meant.items():
        print(f"{'':44} {inside[text]:3} more in `{text}`: {why}")
    if not planted:
        for line, count in outside.most_common():
            print(f"{'':44} {count:3} in {line}")
    return fine


def under_memcheck(command: list[str]) -> tuple[str, str]:
    """What a program wrote, and what memcheck did."""
    with tempfile.NamedTemporaryFile("r") as log:
        done = subprocess.run([*VALGRIND, f"--log-file={log.name}", *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout, Path(log.name).read_text()


def cases(program: str) -> bool:
    """Every case of the program, one by one."""
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    unknown = [case for case in CASES if not any(name.startswith(case) for name in names)]
    if unknown or not any("PLANTED" in name for name in names):
        raise SystemExit(f"{program} has no cases {unknown}, or none that is planted")
    sound = True
    for name in names:
        said, report = under_memcheck([program, "--secrets", "--exactly", name])
        if said.count("secret bytes") != 1:
            raise SystemExit(f"{name}: no secret was marked, or those of several cases")
        meant = next((meant for case, meant in CASES.items() if name.startswith(case)), {})
        sound &= judge(name, lines(report), meant, "PLANTED" in name)
    return sound


def serve(jaguar: str, model: Path, options: tuple[str, ...], folder: Path, log: Path | None) -> tuple[subprocess.Popen, str]:
    """A server on a free port, under memcheck if there is a log for it; and its address."""
    said = folder / "server.txt"
    command = [jaguar, "serve", str(model), "--listen", "127.0.0.1:0", "--measure", "off", *options]
    prefix = [*VALGRIND, f"--log-file={log}"] if log else []
    with said.open("w") as out:
        server = subprocess.Popen([*prefix, *command], stdout=out, stderr=out, env=environment(folder))
    for _ in range(1200):
        if listening := re.search(r"listening on (127\.0\.0\.1:\d+)", said.read_text()):
            return server, listening[1]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    server.kill()
    raise SystemExit(f"the server did not listen:\n{said.read_text()}")


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}


def ask(jaguar: str, address: str, folder: Path, log: Path | None) -> None:
    """One query, under memcheck if there is a log for it. Without a hint that was kept."""
    picture = ROOT / "demo" / "photo.jpg"
    command = [jaguar, "predict", "--server", address, "--no-cache", str(picture)]
    prefix = [*VALGRIND, f"--log-file={log}"] if log else []
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, env=environment(folder))
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def sessions(jaguar: str) -> bool:
    """Every session, with either party under memcheck."""
    sound = True
    for session in SESSIONS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model, log = folder / "model.jaguar", folder / "memcheck.txt"
            pictures = ROOT / "demo" / "calibration"
            compiled = [jaguar, "compile", str(ROOT / session.network), "--calibrate", str(pictures), "-o", str(model)]
            subprocess.run(compiled, check=True, capture_output=True, env=environment(folder))
            for party, meant in (("client", session.client), ("server", session.server)):
                logs = {"client": None, "server": None} | {party: log}
                server, address = serve(jaguar, model, session.serve, folder, logs["server"])
                try:
                    ask(jaguar, address, folder, logs["client"])
                finally:
                    server.send_signal(signal.SIGTERM)
                    server.wait(120)
                sound &= judge(f"{session.name}: {party}", lines(log.read_text(), ROOT), meant or {})
                if not SENT.search(log.read_text()):
                    raise SystemExit(f"{session.name}: {party}: nothing that it sent depends on a secret, so none was marked")
    return sound


def main() -> int:
    kinds = {"cases": cases, "sessions": sessions}
    if len(sys.argv) != 3 or sys.argv[1] not in kinds:
        raise SystemExit(__doc__)
    return 0 if kinds[sys.argv[1]](sys.argv[2]) else 1


if __name__ == "__main__":
    sys.exit(main())
