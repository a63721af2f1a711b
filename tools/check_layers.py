"""Checks that the crates depend on each other only downwards, along the arrows of the crate map.

    python3 tools/check_layers.py

Prints every violation and exits with 1 if there is one. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PREFIX = "jaguar-"

# crate -> what it may depend on, bottom layer first. Tests (dev-dependencies) may use every crate listed before
# theirs, since they run protocols over channels and draw cases that the library itself knows nothing of.
ARROWS: dict[str, set[str]] = {
    "semantics": set(),
    "ring": set(),
    "wire": set(),
    "graph": {"semantics"},
    "samples": {"graph"},
    "he": {"ring"},
    "ot": {"wire", "ring"},
    "mpc": {"ot", "wire", "semantics"},
    "linear": {"he", "ring", "wire", "graph"},
    "plan": {"graph", "linear", "mpc", "he"},
    "bundle": {"graph", "ring"},
    "profile": {"ring", "wire", "graph", "he", "ot", "mpc", "linear", "plan", "bundle"},
    "compile": {"graph", "mpc", "plan", "bundle"},
    "engine": {"ring", "wire", "graph", "he", "ot", "mpc", "linear", "plan", "bundle"},
    "terminal": set(),
    "serve": {"wire", "engine"},
    "bench": {"terminal", "ring", "wire", "graph", "he", "ot", "mpc", "linear", "plan", "bundle", "profile", "engine"},
    "cli": {"terminal", "samples", "compile", "serve", "bench", "ring", "wire", "graph", "he", "ot", "mpc", "linear", "plan", "bundle", "profile", "engine"},
}


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
    for path in sorted(crates.glob("*/Cargo.toml")):
        manifest = tomllib.loads(path.read_text())
        name = manifest["package"]["name"].removeprefix(PREFIX)
        if name != path.parent.name:
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


def main() -> int:
    crates = Path(__file__).resolve().parent.parent / "crates"
    found = violations(crates)
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"layers: {len(list(crates.glob('*/Cargo.toml')))} crates, every arrow points downwards")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
