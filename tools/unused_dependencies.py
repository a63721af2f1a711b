"""Finds dependencies that a crate declares and its code never names, and those that only its tests name.

    python3 tools/unused_dependencies.py    # what `make lint` runs

For each dependency of `cargo metadata` its name (as code writes it) is looked for in the sources of the crate:
those of a library or a program for what it needs to run, tests, examples and benchmarks with them for what only
tests need, the build script for its own. Comments do not count, except examples in documentation, which are tests;
nor does code behind `#[cfg(test)]` for what a program needs to run. What the workspace offers to its members and
none takes is found too. Needs Python 3.11, cargo, and nothing fetched.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from findings import tell
from import_circles import without_tests
from unsafe_list import blank

ROOT = Path(__file__).resolve().parent.parent

# (crate, dependency) -> why it is declared though no code names it.
NAMED_NOWHERE: dict[tuple[str, str], str] = {}


def metadata() -> dict[str, Any]:
    """The members of the workspace."""
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--offline", "--no-deps", "--format-version=1"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def code_of(paths: list[Path], tests_too: bool) -> str:
    """The code of files. With tests, examples in documentation are part of it."""
    parts = []
    for path in paths:
        text = path.read_text()
        code = blank(text)
        parts.append(code if tests_too else without_tests(code))
        if tests_too:
            parts += re.findall(r"^\s*//[/!](.*)$", text, re.M)
    return "\n".join(parts)


def named(code: str, name: str) -> bool:
    """Whether code names a crate: by a path, or by `use` or `extern crate`."""
    used = rf"\buse\s+(?:::)?{name}\b|\bextern\s+crate\s+{name}\b|[{{,]\s*{name}\s+as\b"
    return re.search(rf"(?<![\w.]){name}\s*::|{used}", code) is not None


def taken(paths: list[Path]) -> list[Path]:
    """Other files that `#[path]` takes in."""
    told = [path.parent / name for path in paths for name in re.findall(r'^\s*#\[path = "([^"]+)"\]', path.read_text(), re.M)]
    return sorted({path.resolve() for path in told} - set(paths))


def unused(package: dict[str, Any]) -> list[str]:
    """What is wrong with the dependencies of one crate."""
    folder = Path(package["manifest_path"]).parent
    roots = {
        kind: [Path(t["src_path"]) for t in package["targets"] if kind in t["kind"]]
        for kind in ("custom-build", "proc-macro")
    }
    source = sorted((folder / "src").rglob("*.rs"))
    # Modules that lie elsewhere: a paper's tables.
    for told in re.findall(r'#\[path = "([^"]+)"\]', "".join(path.read_text() for path in source)):
        source += sorted((folder / "src" / told).resolve().parent.rglob("*.rs"))
    # (A file of tests, which `#[cfg(test)] mod` brings in, is no part of what runs.)
    runs = [
        path for path in source if "tests" not in Path(os.path.relpath(path, folder)).parts and not path.stem.endswith("tests")
    ]
    # A file of another crate that `#[path]` takes in is code of this one.
    runs += taken(runs)
    others = [path for part in ("tests", "examples", "benches") for path in sorted((folder / part).rglob("*.rs"))]
    others += taken(others)
    code = {
        None: code_of(runs, tests_too=False),
        "dev": code_of(source + runs + others, tests_too=True),
        "build": code_of(roots["custom-build"], tests_too=True),
    }
    found = []
    where = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    for dependency in package["dependencies"]:
        name = (dependency["rename"] or dependency["name"]).replace("-", "_")
        kind = dependency["kind"]
        if (package["name"], dependency["name"]) in NAMED_NOWHERE:
            if named(code["dev"] + code["build"], name):
                found.append(
                    f"tools/unused_dependencies.py: {package['name']} names {dependency['name']}, so needs no exception"
                )
            continue
        if named(code[kind], name):
            continue
        table = {None: "dependencies", "dev": "dev-dependencies", "build": "build-dependencies"}[kind]
        elsewhere = (
            " (only tests name it: it belongs into dev-dependencies)"
            if kind is None and named(code["dev"], name)
            else ""
        )
        found.append(f"{where}/Cargo.toml: {table}: {dependency['name']} is named nowhere{elsewhere}")
    return found


def offered(root: Path) -> list[str]:
    """What the workspace offers and no member takes."""
    workspace = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]
    manifests = [path for member in workspace["members"] for path in root.glob(f"{member}/Cargo.toml")]
    taken: set[str] = set()
    for path in manifests:
        manifest = tomllib.loads(path.read_text())
        for part in (manifest, *manifest.get("target", {}).values()):
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                taken |= {
                    name
                    for name, value in part.get(kind, {}).items()
                    if isinstance(value, dict) and value.get("workspace")
                }
    return [
        f"Cargo.toml: workspace.dependencies: no crate takes {name}"
        for name in workspace.get("dependencies", {})
        if name not in taken
    ]


def main() -> int:
    packages = metadata()["packages"]
    found = [line for package in packages for line in unused(package)] + offered(ROOT)
    count = sum(len(package["dependencies"]) for package in packages)
    return tell(found, f"dependencies: {count} of {len(packages)} crates, all named")


if __name__ == "__main__":
    sys.exit(main())
