"""What the project is made of, as a bill of materials (CycloneDX 1.6, JSON), and whether all licences are allowed.

    python3 tools/sbom.py --out target/sbom.cdx.json    # `make sbom`, which also validates it against the schema
    python3 tools/sbom.py --check                       # licences only: what `make lint` runs

Parts: every crate of Cargo.lock (`cargo metadata --locked`), every module of papers/convfhe/oracle/go.mod (a test), and the packages of Python
that the wheel needs at run time, or that tools and tests are pinned to. A part is `required` if a program that is
shipped holds it, and `excluded` if it only builds or tests. The same tree gives the same file: it has no time in it,
and its number is a hash.

Licences of crates are compared with the list in deny.toml; those of Go modules with the texts that they come with, if
they are on this machine, and with `GO_LICENCES` below. What only builds or tests in Python is listed without a licence:
nothing of it is shipped.

Needs Python 3.11, cargo, and the crates of Cargo.lock fetched once; nothing else.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Crates that are shipped: what they need to run is `required`.
SHIPPED = ("jaguar-cli", "jaguar-python")

# module -> licence, as its LICENSE file has it.
GO_LICENCES = {
    "github.com/ALTree/bigfloat": "MIT",
    "github.com/davecgh/go-spew": "ISC",
    "github.com/google/go-cmp": "BSD-3-Clause",
    "github.com/kr/text": "MIT",
    "github.com/pmezard/go-difflib": "BSD-3-Clause",
    "github.com/stretchr/testify": "MIT",
    "github.com/tuneinsight/lattigo/v6": "Apache-2.0",
    "golang.org/x/crypto": "BSD-3-Clause",
    "golang.org/x/exp": "BSD-3-Clause",
    "golang.org/x/sys": "BSD-3-Clause",
    "gopkg.in/yaml.v3": "MIT AND Apache-2.0",
}

# A line of a licence's text that tells which it is.
GO_MARKS = {
    "Apache-2.0": "Apache License",
    "MIT": "Permission is hereby granted, free of charge",
    "ISC": "Permission to use, copy, modify, and",
    "BSD-3-Clause": "Redistributions in binary form must reproduce",
}

# What `import jaguar` needs, and its licence as its metadata has it.
PYTHON_LICENCES = {"numpy": "BSD-3-Clause"}

# Pinned for tools and tests.
REQUIREMENTS = ("python/jaguar", "papers/circulant", "tools", "docs")


def spdx(expression: str) -> str:
    """A licence of Cargo's in today's form: an old `/` means OR."""
    return re.sub(r"\s*/\s*", " OR ", expression)


def allowed_by(expression: str, allow: set[str]) -> bool:
    """Whether an SPDX expression can be met with the licences in `allow`. AND binds closer than OR, as in Python."""

    def word(match: re.Match[str]) -> str:
        return {"AND": "and", "OR": "or"}.get(match[0]) or str(match[0] in allow)

    text = re.sub(r"AND\b|OR\b|[^\s()]+(?: WITH [^\s()]+)?", word, expression)
    try:
        parsed = ast.parse(text, mode="eval")
    except SyntaxError:
        raise ValueError(f"no licence expression: {expression}") from None
    if not all(isinstance(node, (ast.Expression, ast.BoolOp, ast.boolop, ast.Constant)) for node in ast.walk(parsed)):
        raise ValueError(f"no licence expression: {expression}")
    return eval(compile(parsed, expression, "eval"))


def cargo_metadata() -> dict:
    """All crates and how they depend on each other."""
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1", "--all-features"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def shipped(metadata: dict) -> set[str]:
    """The ids of what the shipped crates need to run."""
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [package for package, name in names.items() if name in SHIPPED]
    seen: set[str] = set()
    while todo:
        package = todo.pop()
        if package in seen:
            continue
        seen.add(package)
        for dep in nodes[package]["deps"]:
            # A kind of none is a normal dependency; procedural macros and build scripts are of other kinds, or are
            # here too.
            if any(kind["kind"] is None for kind in dep["dep_kinds"]):
                todo.append(dep["pkg"])
    return seen


def crates(metadata: dict, lock: dict) -> tuple[list[dict], list[dict]]:
    """The crates as components, and their dependencies."""
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    required = shipped(metadata)
    refs = {p["id"]: f"pkg:cargo/{p['name']}@{p['version']}" for p in metadata["packages"]}
    components = []
    for package in metadata["packages"]:
        name, version = package["name"], package["version"]
        licence = spdx(package["license"]) if package.get("license") else None
        part = component("cargo", name, version, package["id"] in required, licence)
        if checksum := checksums.get((name, version)):
            part["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package.get("repository"):
            part["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        components.append(part)
    graph = [
        {"ref": refs[node["id"]], "dependsOn": sorted({refs[dep["pkg"]] for dep in node["deps"]})}
        for node in metadata["resolve"]["nodes"]
    ]
    return components, graph


def component(kind: str, name: str, version: str, required: bool, licence: str | None = None) -> dict:
    """A part, of a kind of package URL. Without a version it is any."""
    purl = f"pkg:{kind}/{name.lower() if kind == 'pypi' else name}" + (f"@{version}" if version else "")
    found = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    found["scope"] = "required" if required else "excluded"
    if not version:
        del found["version"]
    if licence:
        found["licenses"] = [{"expression": licence}]
    return found


def go_modules(root: Path) -> list[dict]:
    """The modules of papers/convfhe/oracle/go.mod. Nothing of them is shipped."""
    line = re.compile(r"^\s*(?:require )?([\w./-]+\.[\w./-]+) (v[\w.+-]+)", re.M)
    return [
        component("golang", path, version, False, GO_LICENCES.get(path))
        for path, version in line.findall((root / "papers/convfhe/oracle/go.mod").read_text())
    ]


def python_packages(root: Path) -> list[dict]:
    """What the wheel needs, and what tools and tests are pinned to."""
    components: dict[str, dict] = {}
    manifest = tomllib.loads((root / "python/jaguar/pyproject.toml").read_text())
    for requirement in manifest["project"]["dependencies"]:
        name = re.match(r"[\w-]+", requirement).group()
        part = component("pypi", name, "", True, PYTHON_LICENCES.get(name))
        components[name] = part | {"properties": [{"name": "jaguar:requirement", "value": requirement}]}
    for folder in REQUIREMENTS:
        text = (root / folder / "requirements.txt").read_text()
        for name, version in re.findall(r"^([\w-]+)==([\w.]+)", text, re.M):
            part = component("pypi", name, version, False)
            components[part["purl"]] = part
    return list(components.values())


def bill(root: Path, metadata: dict) -> dict:
    """The whole bill."""
    lock = tomllib.loads((root / "Cargo.lock").read_text())
    components, graph = crates(metadata, lock)
    components += go_modules(root) + python_packages(root)
    components.sort(key=lambda part: part["bom-ref"])
    graph.sort(key=lambda entry: entry["ref"])
    version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    content = hashlib.sha256(json.dumps([components, graph], sort_keys=True).encode()).hexdigest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "jaguar",
                "name": "jaguar",
                "version": version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": graph,
    }


def licence_problems(components: list[dict], allow: set[str]) -> list[str]:
    """What has no licence, or one that is not allowed. Of Python, only what is shipped."""
    bad = []
    for part in components:
        if part["purl"].startswith("pkg:pypi/") and part["scope"] == "excluded":
            continue
        expression = "".join(licence["expression"] for licence in part.get("licenses", []))
        if not expression:
            bad.append(f"{part['purl']}: no licence")
        elif not allowed_by(expression, allow):
            bad.append(f"{part['purl']}: {expression} is not allowed by deny.toml")
    return bad


def go_problems(modules: Path, components: list[dict]) -> list[str]:
    """Go modules whose text, where it is on this machine, is of another licence than the table says."""
    bad = []
    for part in components:
        if not part["purl"].startswith("pkg:golang/"):
            continue
        name = re.sub(r"[A-Z]", lambda m: "!" + m.group().lower(), part["name"])
        texts = [path.read_text(errors="replace") for path in modules.glob(f"{name}@{part['version']}/LICEN[CS]E*")]
        for licence in GO_LICENCES.get(part["name"], "").split(" AND "):
            if texts and not any(GO_MARKS.get(licence, licence) in text for text in texts):
                bad.append(f"{part['purl']}: its LICENSE does not read as {licence}")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    found = bill(ROOT, cargo_metadata())
    allow = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    modules = Path(os.environ.get("GOMODCACHE", Path(os.environ.get("GOPATH", Path.home() / "go")) / "pkg/mod"))
    bad = licence_problems(found["components"], allow) + go_problems(modules, found["components"])
    for line in bad:
        print(line, file=sys.stderr)
    if args.out and not args.check:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=2) + "\n")
    required = sum(part["scope"] == "required" for part in found["components"])
    print(f"{len(found['components'])} parts, {required} of them shipped; {len(bad)} problems with licences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
