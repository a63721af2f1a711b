"""Walks through docs/start.md as a stranger does, block by block as it stands, and tells how long each step takes: by the clock, and of the
processor, which is what a machine that is busy with other things would take by itself.

    make wheel
    cargo install --path crates/cli --locked        # or --jaguar FILE
    python3 tools/walk_start.py --torch .venv/torch/bin/python

Blocks that build (`cargo install`, `make wheel`) are left out: what they make must be there. Torch runs step 2 in an environment of its own.
Everything else happens in an empty folder, with an empty cache, so that the first plan measures the machine. `--network FILE` takes another
step 2: a program that writes `own.onnx`, with an input of 3 x 64 x 64. `--only python` leaves out the command, `--only command` the package.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "start.md"

#: Lines of the page that build.
BUILDS = ("cargo install", "make wheel")

#: Tells on standard error when each statement of a program has ended.
CLOCK = """import sys as _sys, time as _time
def _now():
    return _time.monotonic(), _time.process_time()
_began = _now()
def _clock(words):
    global _began
    seconds = [now - then for now, then in zip(_now(), _began)]
    print(f"@{seconds[0]:.2f} {seconds[1]:.2f} {words}", file=_sys.stderr, flush=True)
    _began = _now()
"""


def blocks(page: str) -> list[tuple[str, str, str]]:
    """The blocks of shell and Python: the heading above, the language, the text."""
    found, heading = [], ""
    for line in re.finditer(r"^## ([^\n]*)$|^```(sh|python)\n(.*?)^```$", page, flags=re.M | re.S):
        if line[1] is not None:
            heading = line[1]
        else:
            found.append((heading, line[2], line[3]))
    return found


def commands(text: str) -> list[str]:
    """The commands of a block of shell; lines that end in a backslash go on."""
    lines = [line.strip() for line in re.sub(r"\\\n", " ", text).splitlines()]
    return [re.sub(r"\s+", " ", line) for line in lines if line]


def with_clocks(program: str) -> str:
    """The same program, which tells after each statement, those in a `with` among them, how long it took. A `with` itself takes what its
    first line does."""

    def clocked(body: list[ast.stmt]) -> list[ast.stmt]:
        found = []
        for statement in body:
            words = ast.unparse(statement).splitlines()[0]
            tell = ast.parse(f"_clock({words!r})").body
            if isinstance(statement, ast.With):
                statement.body = [*tell, *clocked(statement.body)]
                tell = ast.parse("_clock('its end')").body
            found += [statement, *tell]
        return found

    tree = ast.parse(program)
    tree.body = clocked(tree.body)
    return CLOCK + ast.unparse(tree)


def children() -> float:
    """Seconds of the processor that programs which have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Walk:
    """In a folder, with a cache and programs of its own."""

    def __init__(self, folder: Path, jaguar: Path | None) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir()
        if jaguar is not None:
            (tools / "jaguar").symlink_to(jaguar.resolve())
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PATH": f"{tools}:{os.environ['PATH']}"}

    def took(self, what: str, seconds: float, processor: float | None = None) -> None:
        busy = f"{processor:8.1f}" if processor is not None else " " * 8
        print(f"{seconds:8.1f} {busy} s  {what}", flush=True)

    def run(self, what: str, command: list[str]) -> subprocess.CompletedProcess[str]:
        began, used = time.monotonic(), children()
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.took(what, time.monotonic() - began, children() - used)
        if done.returncode != 0:
            sys.exit(f"{what}\n{done.stdout}{done.stderr}")
        return done

    def serve(self, command: str) -> subprocess.Popen[bytes]:
        """Starts the server, and waits until it listens."""
        began = time.monotonic()
        with (self.folder / "serve.log").open("w") as log:
            server = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stderr=log, stdout=log)
        while True:
            if server.poll() is not None:
                sys.exit(f"{command}\n{(self.folder / 'serve.log').read_text()}")
            with socket.socket() as port:
                if port.connect_ex(("127.0.0.1", 7447)) == 0:
                    break
            time.sleep(0.02)
        self.took(command, time.monotonic() - began)
        return server

    def python(self, interpreter: str, program: str) -> None:
        """Runs a program, statement by statement by the clock."""
        (self.folder / "own.py").write_text(with_clocks(program))
        done = self.run(f"python own.py, {len(program.splitlines())} lines", [interpreter, "own.py"])
        for seconds, processor, words in re.findall(r"^@([\d.]+) ([\d.]+) (.*)$", done.stderr, flags=re.M):
            self.took(f"    {words}", float(seconds), float(processor))
        print(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True, help="a Python that has torch")
    parser.add_argument("--jaguar", type=Path, default=shutil.which("jaguar"), help="the command")
    parser.add_argument("--network", type=Path, help="another step 2: a program that writes own.onnx")
    parser.add_argument("--only", choices=("command", "python"))
    args = parser.parse_args()
    if args.jaguar is None and args.only != "python":
        parser.error("jaguar is not installed: --jaguar FILE, or --only python")

    server = None
    with tempfile.TemporaryDirectory(prefix="jaguar-start-") as name:
        folder = Path(name)
        (folder / "demo").symlink_to(ROOT / "demo")
        (folder / "target").symlink_to(ROOT / "target")
        walk = Walk(folder, args.jaguar)
        try:
            for heading, language, text in blocks(PAGE.read_text()):
                in_python = "Python" in heading
                if (args.only == "python" and not in_python and language == "sh") or (args.only == "command" and in_python):
                    continue
                print(f"\n{heading}", flush=True)
                if language == "python" and not in_python:
                    (folder / "network.py").write_text(args.network.read_text() if args.network else text)
                    walk.run("python network.py (torch)", [args.torch, "network.py"])
                elif language == "python":
                    walk.python("own-env/bin/python", text)
                else:
                    for command in commands(text):
                        if command.startswith(BUILDS):
                            continue
                        if command.startswith("jaguar serve"):
                            server = walk.serve(command)
                        else:
                            print(walk.run(command, ["bash", "-c", command]).stdout)
        finally:
            if server is not None:
                server.send_signal(signal.SIGTERM)
                server.wait()


if __name__ == "__main__":
    main()
