"""Checks that the crates depend on each other only downwards, along the arrows of the crate map, and that nothing outside a linear
backend's folder and the registry names a backend.

    python3 tools/check_layers.py

It also checks that one crate alone asks the processor for its features. Prints every violation and exits with 1 if there is
one. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PREFIX = "jaguar-"

# crate -> what it may depend on, bottom layer first. Tests (dev-dependencies) may use every crate listed before
# theirs, since they run protocols over channels and draw cases that the library itself knows nothing of.
ARROWS: dict[str, set[str]] = {
    "cpu": set(),
    "share": set(),
    "semantics": set(),
    "ring": {"cpu"},
    "gpu": set(),
    "wire": set(),
    "net": {"wire"},
    "graph": {"cpu", "semantics"},
    "samples": {"graph"},
    "he": {"cpu", "ring"},
    "ot": {"cpu", "wire", "ring"},
    "mpc": {"cpu", "share", "ot", "wire", "semantics"},
    "linear": {"cpu", "gpu", "share", "semantics", "he", "ring", "wire", "graph"},
    "plan": {"share", "graph", "linear", "mpc", "he"},
    "bundle": {"graph", "ring"},
    "profile": {"cpu", "ring", "wire", "graph", "he", "ot", "mpc", "linear", "plan", "bundle"},
    "compile": {"cpu", "graph", "mpc", "plan", "bundle"},
    "engine": {"cpu", "share", "ring", "wire", "graph", "he", "ot", "mpc", "linear", "plan", "bundle"},
    "convfhe": {"graph", "ring", "wire", "bundle", "engine"},
    "terminal": set(),
    "serve": {"wire", "net", "engine"},
    "accuracy": {"cpu", "graph", "samples", "plan", "engine"},
    "tables": {"terminal", "graph", "linear", "mpc", "plan", "engine", "serve"},
    "report": {"terminal", "graph", "plan", "compile"},
    "bench": {"terminal", "accuracy", "samples", "convfhe", "cpu", "ring", "wire", "graph", "he", "ot", "mpc", "linear", "plan", "bundle", "profile", "engine"},
    "cli": {"convfhe", "terminal", "tables", "report", "accuracy", "samples", "compile", "serve", "bench", "cpu", "ring", "wire", "net", "graph", "he", "ot", "mpc", "linear", "plan", "bundle", "profile", "engine"},
    # Foreign bytes for every reader, in `fuzz`.
    "fuzz": {"accuracy", "bundle", "convfhe", "cpu", "engine", "graph", "linear", "mpc", "net", "ot", "plan", "ring", "samples", "serve", "wire"},
    # The native part of the Python package, in `python/jaguar`.
    "python": {"terminal", "tables", "report", "accuracy", "samples", "compile", "serve", "cpu", "wire", "net", "graph", "linear", "plan", "profile", "engine"},
}

# Crates that are not in the folder of their name.
ELSEWHERE = {"fuzz": "fuzz", "python": "python/jaguar"}


def tables(manifest: dict, kind: str) -> list[dict]:
    """The dependency tables of one kind, those for single platforms included."""
    platforms = manifest.get("target", {}).values()
    return [manifest.get(kind, {}), *(platform.get(kind, {}) for platform in platforms)]


def dependencies(manifest: dict, kind: str) -> set[str]:
    """The project's own crates among the dependencies of one kind, without the prefix."""
    names = set()
    for table in tables(manifest, kind):
        for name, value in table.items():
            package = value.get("package", name) if isinstance(value, dict) else name
            if package.startswith(PREFIX):
                names.add(package.removeprefix(PREFIX))
    return names


def violations(crates: Path) -> list[str]:
    found = []
    order = list(ARROWS)
    elsewhere = [crates.parent / folder / "Cargo.toml" for folder in ELSEWHERE.values()]
    for path in [*sorted(crates.glob("*/Cargo.toml")), *(path for path in elsewhere if path.exists())]:
        manifest = tomllib.loads(path.read_text())
        name = manifest["package"]["name"].removeprefix(PREFIX)
        if name != path.parent.name and not path.parent.as_posix().endswith("/" + ELSEWHERE.get(name, "/")):
            found.append(f"{path}: the crate is called {name}, its folder {path.parent.name}")
        if name not in ARROWS:
            found.append(f"{path}: {name} is not in the crate map; give it a place in tools/check_layers.py")
            continue
        for kind in ("dependencies", "build-dependencies"):
            for other in sorted(dependencies(manifest, kind) - ARROWS[name]):
                allowed = ", ".join(sorted(ARROWS[name])) or "no other crate"
                found.append(f"{path}: {name} must not depend on {other} (it may use {allowed})")
        below = set(order[: order.index(name)])
        for other in sorted(dependencies(manifest, "dev-dependencies") - below - {name}):
            found.append(f"{path}: the tests of {name} must not use {other}, which is not below it")
    return found


# Where backends may be named besides their folders, the registry, tests and documentation, and why.
MAY_NAME_BACKENDS = {
    "bench": "compares the backends by name, piece by piece",
    "profile/src/measure.rs": "times the power-of-two ring's kernels, which planners price by, where they run",
    "linear/src/lib.rs": "lists its modules",
    "linear/src/registry.rs": "is the registry",
    "linear/src/published_insecure.rs": "is a backend's attack, for reproduction: neither planned nor registered",
}


def backend_names(crates: Path) -> list[str]:
    """Folders that hold a linear backend."""
    return sorted(path.parent.name for path in (crates / "linear" / "src").glob("*/layer.rs"))


def named_backends(crates: Path) -> list[str]:
    """Lines outside a backend's folder that name it: by its module, its constant or its name in options.

    A backend called as the project is found by the first two only.
    """
    found = []
    folders = backend_names(crates)
    words = "|".join(folders)
    in_options = "|".join(re.escape(folder.split("_")[0]) for folder in folders if folder != PREFIX.rstrip("-"))
    patterns = [
        re.compile(rf"\blinear::({words})\b"),
        re.compile(rf"\blinear::\{{[^;]*\b({words})\b"),
        re.compile(rf"\b(crate|super)::({words})\b"),
        re.compile(r"\bBackendId::[A-Z][A-Z_]+\b"),
        re.compile(rf'"({in_options})(-[a-z-]+)?"'),
    ]
    for path in sorted(crates.glob("*/src/**/*.rs")):
        inside = path.relative_to(crates)
        parts = inside.parts
        exempt = any(inside.as_posix() == place or parts[0] == place for place in MAY_NAME_BACKENDS)
        own_folder = parts[:2] == ("linear", "src") and parts[2] in folders
        if exempt or own_folder or "tests" in parts or path.name == "tests.rs":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("#[cfg(test)]"):
                break
            code = line.split("//")[0]
            if any(pattern.search(code) for pattern in patterns):
                found.append(f"{path}:{number}: names a backend: {line.strip()}")
    return found


def asked_processors(crates: Path) -> list[str]:
    """Lines outside the crate `cpu` that ask the processor what it has."""
    found = []
    for path in sorted(crates.glob("*/**/*.rs")):
        if path.relative_to(crates).parts[0] == "cpu":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "is_x86_feature_detected" in line.split("//")[0]:
                found.append(f"{path}:{number}: asks the processor; take a `Cpu` instead: {line.strip()}")
    return found


def main() -> int:
    crates = Path(__file__).resolve().parent.parent / "crates"
    found = violations(crates) + named_backends(crates) + asked_processors(crates)
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"layers: {len(ARROWS)} crates, every arrow points downwards; {len(backend_names(crates))} backends, named nowhere else")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
