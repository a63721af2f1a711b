"""Type-checks the command, with all that it is made of, for systems on which the project is not tested.

    python3 tools/check_platforms.py           # what `make check-platforms` runs

Only where Rust has its std for the target (`rustup target add`), and a C compiler for it, which dependencies' build scripts call: zig
(`pip install ziglang`), or one that CC_<target> names. Says what it leaves out.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class System:
    """A target, by Rust's name and by zig's, and what of the command is checked for it."""

    target: str
    zig: str
    options: tuple[str, ...] = ()
    without: str = ""


SYSTEMS = [
    System("aarch64-apple-darwin", "aarch64-macos"),
    System(
        "x86_64-pc-windows-gnu", "x86_64-windows-gnu", ("--no-default-features", "--features", "fregata,hyena"),
        " but for one round (convfhe), which nobody has tried to check there",
    ),
]


def has_std(target: str) -> bool:
    """Whether this toolchain has std for the target."""
    asked = subprocess.run(["rustc", "--print", "target-libdir", "--target", target], capture_output=True, text=True)
    return asked.returncode == 0 and any(Path(asked.stdout.strip()).glob("libstd-*"))


def compiler(system: System, folder: Path) -> dict[str, str] | None:
    """What tells build scripts of a C compiler for the target; nothing, where there is none."""
    name = system.target.replace("-", "_")
    if f"CC_{name}" in os.environ:
        return {}
    if importlib.util.find_spec("ziglang") is None:
        return None
    found = {}
    for variable, tool in (("CC", ["cc", "-target", system.zig]), ("AR", ["ar"])):
        script = folder / f"{variable}-{system.target}"
        # Build scripts name the target as clang does, which zig does not know.
        script.write_text(
            f"#!{sys.executable}\nimport subprocess, sys\n"
            "left = [a for a in sys.argv[1:] if not a.startswith(('--target=', '-mmacosx', '-arch', 'arm64'))]\n"
            f"sys.exit(subprocess.run([{sys.executable!r}, '-m', 'ziglang', *{tool!r}, *left]).returncode)\n"
        )
        script.chmod(0o755)
        found[f"{variable}_{name}"] = str(script)
    return found


def main() -> int:
    failed = False
    with tempfile.TemporaryDirectory(prefix="jaguar-platforms-") as folder:
        for system in SYSTEMS:
            if not has_std(system.target):
                print(f"skip: {system.target}: Rust's std for it is not there (rustup target add {system.target})")
                continue
            tools = compiler(system, Path(folder))
            if tools is None:
                print(f"skip: {system.target}: no C compiler for build scripts of dependencies (pip install ziglang)")
                continue
            command = ["cargo", "check", "--locked", "--quiet", "--target", system.target, "--package", "jaguar-cli", *system.options]
            environment = {**os.environ, **tools, "JAGUAR_UNTESTED_PLATFORM": "1"}
            bad = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0
            print(f"{system.target}: the command{system.without} {'does not type-check' if bad else 'type-checks'}", flush=True)
            failed |= bad
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
