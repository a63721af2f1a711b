"""Checks that the crates depend on each other only downwards, along the arrows of the crate map, that nothing outside a linear
backend's folder and the kits names a backend, that operators are named in their folder only, and that no files of a crate need each other in a circle (import_circles.py).

    python3 tools/check_layers.py

It also checks that one crate alone asks the processor for its features, and that what leaks by design is named in its paper's folder alone
and built by no default. Prints every violation and exits with 1 if there is
one. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import import_circles
from findings import tell
from import_circles import PATH, USE, leaves, without_tests
from unsafe_list import blank

ROOT = Path(__file__).resolve().parent.parent

PREFIX = "jaguar-"

# The one crate without it: what a program uses of all others.
FACADE = "jaguar"

# crate -> what it may depend on, bottom layer first. Tests (dev-dependencies) may use every crate listed before
# theirs, since they run protocols over channels and draw cases that the library itself knows nothing of.
ARROWS: dict[str, set[str]] = {
    "ring": set(),
    "wire": set(),
    "net": {"wire"},
    "ot": {"ring", "wire"},
    "mpc": {"ring", "wire", "ot"},
    "graph": {"ring", "mpc"},
    "linear": {"ring", "wire", "mpc", "graph"},
    "cheetah": {"ring", "wire", "mpc", "graph", "linear"},
    "gpu": set(),
    "fregata": {"ring", "wire", "ot", "mpc", "graph", "linear", "cheetah", "gpu"},
    "hyena": {"ring", "wire", "mpc", "graph", "linear"},
    "plan": {"wire", "mpc", "graph", "linear", "cheetah"},
    "compile": {"ring", "graph", "plan"},
    "profile": {"ring", "wire", "ot", "mpc", "graph", "linear", "plan"},
    "engine": {"ring", "wire", "ot", "mpc", "graph", "linear", "plan"},
    "ckks": {"ring"},
    "convfhe": {"ring", "wire", "graph", "engine", "ckks"},
    "serve": {"wire", "net", "engine"},
    "report": {"ring", "mpc", "graph", "linear", "plan", "compile", "engine", "serve"},
    "jaguar": {
        "ring", "wire", "net", "mpc", "graph", "linear", "plan", "compile", "profile", "engine", "serve", "report",
    },
    "bench": {
        "ring", "wire", "ot", "mpc", "graph", "linear", "cheetah", "fregata", "hyena", "plan", "compile", "profile",
        "engine", "convfhe", "ckks", "report",
    },
    "gateway": {"jaguar"},
    # Programs: of what is below the facade, only papers, which it does not name.
    "cli": {"fregata", "hyena", "convfhe", "jaguar", "gateway"},
    # The client for browsers, in `web`.
    "web": {"wire", "graph", "plan", "engine"},
    # Foreign bytes for every reader, in `fuzz`.
    "fuzz": {
        "ring", "wire", "net", "ot", "mpc", "graph", "linear", "fregata", "hyena", "plan", "compile", "engine",
        "convfhe", "serve",
    },
    # The native part of the Python package, in `python/jaguar`.
    "python": {"fregata", "hyena", "jaguar"},
}

# Crates whose tests may use some above them: a paper's protocol is attacked in whole sessions.
TESTS_ABOVE = {"fregata": {"hyena", "plan", "engine"}}

# Crates that are not in the folder of their name: those of the papers, and those that are no part of a library.
ELSEWHERE = {
    "cheetah": "papers/cheetah",
    "gpu": "papers/fregata/gpu",
    "fregata": "papers/fregata",
    "hyena": "papers/hyena",
    "ckks": "papers/convfhe/ckks",
    "convfhe": "papers/convfhe",
    "fuzz": "fuzz",
    "web": "web",
    "python": "python/jaguar",
}

# Those that hold papers' linear backends and protocols.
PAPERS = ("cheetah", "fregata", "hyena", "convfhe")


def crate(package: str) -> str | None:
    """What the map calls a package: its name without the prefix. `None` for a package of others."""
    return package if package == FACADE else package.removeprefix(PREFIX) if package.startswith(PREFIX) else None


def tables(manifest: dict, kind: str) -> list[dict]:
    """The dependency tables of one kind, those for single platforms included."""
    platforms = manifest.get("target", {}).values()
    return [manifest.get(kind, {}), *(platform.get(kind, {}) for platform in platforms)]


def dependencies(manifest: dict, kind: str, shared: dict) -> set[str]:
    """The project's own crates among the dependencies of one kind. `shared` is what the workspace says of some."""
    names = set()
    for table in tables(manifest, kind):
        for name, value in table.items():
            if isinstance(value, dict) and value.get("workspace"):
                value = shared.get(name, {})
            package = value.get("package", name) if isinstance(value, dict) else name
            names.add(crate(package))
    return names - {None}


def violations(crates: Path) -> list[str]:
    found = []
    order = list(ARROWS)
    root = crates.parent / "Cargo.toml"
    workspace = tomllib.loads(root.read_text()).get("workspace", {}) if root.exists() else {}
    shared = workspace.get("dependencies", {})
    for member in sorted(set(workspace.get("members", [])) - {"crates/*", *ELSEWHERE.values()}):
        if not member.startswith("crates/"):
            found.append(f"{root}: nothing looks at the member {member}; give it a place in tools/check_layers.py")
    elsewhere = [crates.parent / folder / "Cargo.toml" for folder in ELSEWHERE.values()]
    for path in [*sorted(crates.glob("*/Cargo.toml")), *(path for path in elsewhere if path.exists())]:
        manifest = tomllib.loads(path.read_text())
        package = manifest["package"]["name"]
        name = crate(package) or package
        if name != path.parent.name and not path.parent.as_posix().endswith("/" + ELSEWHERE.get(name, "/")):
            found.append(f"{path}: the crate is called {name}, its folder {path.parent.name}")
        if name not in ARROWS:
            found.append(f"{path}: {name} is not in the crate map; give it a place in tools/check_layers.py")
            continue
        for kind in ("dependencies", "build-dependencies"):
            for other in sorted(dependencies(manifest, kind, shared) - ARROWS[name]):
                allowed = ", ".join(sorted(ARROWS[name])) or "no other crate"
                found.append(f"{path}: {name} must not depend on {other} (it may use {allowed})")
        below = set(order[: order.index(name)]) | TESTS_ABOVE.get(name, set())
        for other in sorted(dependencies(manifest, "dev-dependencies", shared) - below - {name}):
            found.append(f"{path}: the tests of {name} must not use {other}, which is not below it")
    return found


def unused_arrows(tree: Path) -> list[str]:
    """What the map allows and no manifest asks for: such an arrow could come back unseen."""
    shared = tomllib.loads((tree / "Cargo.toml").read_text())["workspace"].get("dependencies", {})
    found = []
    for name, allowed in ARROWS.items():
        path = tree / ELSEWHERE.get(name, f"crates/{name}") / "Cargo.toml"
        if not path.exists():
            found.append(f"tools/check_layers.py: there is no crate {name}")
            continue
        manifest = tomllib.loads(path.read_text())
        used = dependencies(manifest, "dependencies", shared) | dependencies(manifest, "build-dependencies", shared)
        found += [f"tools/check_layers.py: {name} may depend on {other}, and does not" for other in sorted(allowed - used)]
    return found


def pages_map(tree: Path) -> list[str]:
    """Rows of the crate map in docs/architecture.md that are not those of `ARROWS`. (A row may say in words what is above or below.)"""
    page = "docs/architecture.md"
    map_ = (tree / page).read_text().split("## Crates\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| ([^|]*) \|$", map_, re.M))
    found = [f"{page}: the crate map has no {name}" for name in ARROWS if name not in rows]
    found += [f"{page}: there is no crate {name}" for name in rows if name not in ARROWS]
    for name in rows.keys() & ARROWS.keys():
        told = set() if rows[name] == "–" else set(rows[name].split(", "))
        in_words = any(" " in other for other in told)
        if not in_words and told != ARROWS[name]:
            said, allowed = (", ".join(sorted(names)) or "none" for names in (told, ARROWS[name]))
            found.append(f"{page}: {name} may depend on {said}; tools/check_layers.py says {allowed}")
    return found


# Where backends may be named besides their folders, tests and documentation, and why.
MAY_NAME_BACKENDS = {
    "crates/bench/": "compares the backends by name, piece by piece",
    "papers/circulant/tables/": "compares them, too",
    "papers/jaguar/tables/": "compares them, too",
    "crates/plan/src/kit.rs": "is the standard kit",
    "crates/cli/src/kit.rs": "is the command's kit",
    "python/jaguar/src/kit.rs": "is the package's kit",
    "crates/linear/src/published_insecure.rs": "is a backend's attack, for reproduction: neither planned nor in a kit",
    "fuzz/src/": "has a target for the sessions of each backend",
}

# The crate of the backends, as code of other crates calls it, and that of the operators (which the facade passes on).
LINEAR = "jaguar_linear"
GRAPH = re.compile(rf"\b(?:jaguar_graph|{FACADE}\s*::)")


def sources(tree: Path) -> list[Path]:
    """The Rust files of all crates that are neither tests nor examples."""
    folders = [*sorted((tree / "crates").glob("*/src")), *(tree / folder / "src" for folder in ELSEWHERE.values())]
    folders += sorted((tree / "papers").glob("*/tables")) + sorted((tree / "papers").glob("*/command"))
    files = [path for folder in folders for path in sorted(folder.rglob("*.rs"))]
    return [path for path in files if "tests" not in path.relative_to(tree).parts and path.name != "tests.rs"]


def backend_folders(tree: Path) -> list[str]:
    """Folders that hold a linear backend."""
    return sorted(path.parent.name for path in (tree / "crates/linear/src").glob("*/layer.rs"))


def option_names(tree: Path, folders: list[str]) -> set[str]:
    """What backends are called in options: their folders' names, and what they say in `name`. One that is called as the project is not
    looked for, since its name stands everywhere."""
    names = {folder.split("_")[0] for folder in folders} | set(PAPERS)
    homes = [tree / "crates/linear/src" / folder for folder in folders] + [tree / ELSEWHERE[paper] / "src" for paper in PAPERS]
    for home in homes:
        for path in home.rglob("*.rs"):
            for body in re.findall(r"\bfn name\((?:&?self)\) -> &'static str \{(.*?)\n    \}", path.read_text(), re.S):
                names.update(re.findall(r'"([a-z][a-z0-9-]*)"', body))
    return names - {FACADE}


def backend_at(path: tuple[str, ...], folders: set[str], in_linear: bool, at_root: bool) -> bool:
    """Whether a path in code leads into a backend's folder, or to all that the crate of the backends has. (`at_root`: in the root file of
    that crate, where a folder is called without more.)"""
    if any(PREFIX.replace("-", "_") + paper in path for paper in PAPERS):
        return True
    if LINEAR in path:
        rest = path[path.index(LINEAR) + 1 :]
        return not rest or rest[0] in folders or rest[0] == "*"
    ways = len(path) - len(path[next((at for at, part in enumerate(path) if part not in ("crate", "self", "super")), len(path)) :])
    return in_linear and (ways > 0 or at_root) and ways < len(path) and path[ways] in folders


def named_backends(tree: Path) -> list[str]:
    """Lines outside the folder of a backend or a protocol that name it: by its module, its constant or its name in options."""
    found = []
    folders = set(backend_folders(tree))
    options = "|".join(sorted(map(re.escape, option_names(tree, sorted(folders))))) or "(?!)"
    words = [re.compile(r"\b(?:BackendId|Kit)::[A-Z][A-Z_]+\b"), re.compile(rf'"({options})(-[a-z-]+)?"')]
    exempt_and_used: set[str] = set()
    for path in sources(tree):
        inside = path.relative_to(tree).as_posix()
        parts = Path(inside).parts
        in_linear = parts[:2] == ("crates", "linear")
        at_root = inside == "crates/linear/src/lib.rs"
        if in_linear and parts[3] in folders or any(inside.startswith(f"papers/{paper}/") for paper in PAPERS):
            continue
        text = blank(path.read_text(), strings=False)
        code = without_tests(blank(text))
        places = []
        for use in USE.finditer(code):
            if any(backend_at(leaf, folders, in_linear, at_root) for leaf, _ in leaves(use["tree"])):
                places.append(use.start("tree"))
        places += [way.start() for way in PATH.finditer(USE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), code))
                   if backend_at(tuple(re.split(r"\s*::\s*", way[0])), folders, in_linear, at_root)]
        # Names in options are strings, which `code` has no longer; what tests say is not looked at.
        lines = code.splitlines()
        for word in words:
            for match in word.finditer(text):
                number = text.count("\n", 0, match.start())
                if number < len(lines) and lines[number].strip():
                    places.append(match.start())
        excuse = next((place for place in MAY_NAME_BACKENDS if inside == place or place.endswith("/") and inside.startswith(place)), None)
        if places and excuse:
            exempt_and_used.add(excuse)
            continue
        for number in sorted({text.count("\n", 0, place) for place in places}):
            found.append(f"{path}:{number + 1}: names a backend or a protocol: {text.splitlines()[number].strip()}")
    for place in sorted(MAY_NAME_BACKENDS.keys() - exempt_and_used):
        if (tree / place).exists():
            found.append(f"tools/check_layers.py: {place} names none and needs no exception")
    return found


# The folder of the operators.
OPERATORS = "crates/graph/src/ops/"

# Where operators may be named besides their folder, on how many lines, and why. A number may only fall.
MAY_NAME_OPERATORS = {
    "crates/graph/src/import/build.rs": (2, "begins a graph, and joins its outputs"),
    "crates/graph/src/import/fuse.rs": (14, "has rules for products, moves and concatenations, which it makes of each other"),
    "crates/graph/src/import/moves.rs": (8, "moves values to where an operator takes them"),
    "papers/convfhe/src/form.rs": (7, "translates float operators into layers of one round"),
    "papers/convfhe/src/lib.rs": (13, "does so, too"),
    "papers/convfhe/src/split.rs": (1, "begins a graph"),
    "papers/fregata/tables/layers.rs": (2, "makes a network of one layer"),
    "fuzz/src/models.rs": (10, "makes networks"),
}

# Types of theirs that are the data of every layer with weights, or no operator of the integer network.
NO_OPERATORS = {"Linear", "Affine"}


def operator_names(tree: Path) -> set[str]:
    """The types of operators, integer or in floating point."""
    implements = re.compile(r"\bimpl (?:Numbered|Operator|FloatOperator) for (\w+)")
    return {name for path in (tree / OPERATORS).rglob("*.rs") for name in implements.findall(path.read_text())} - NO_OPERATORS


def named_operators(tree: Path) -> list[str]:
    """Files outside the operators' folder that name an operator's type, on more or fewer lines than they may."""
    found = []
    names = operator_names(tree)
    for path in sources(tree):
        inside = path.relative_to(tree).as_posix()
        if inside.startswith(OPERATORS):
            continue
        code = without_tests(blank(path.read_text()))
        if not GRAPH.search(code) and not inside.startswith("crates/graph/"):
            continue
        ways = [leaf for use in USE.finditer(code) if not use["public"] for leaf in leaves(use["tree"])]
        called = {as_ for way, as_ in ways if way[-1] in names and {"network", "float", "ops"} & set(way)}
        # (Behind another type's name stands something else: `Part::Product`.)
        word = re.compile(rf"(?<![:\w])(?:{'|'.join(called) or '(?!)'})\b|\b(?:network|float)\s*::\s*(?:{'|'.join(names)})\b")
        code = USE.sub(lambda use: re.sub(r"[^\n]", " ", use[0]), code)
        lines = [number for number, line in enumerate(code.splitlines(), 1) if re.search(word, line)]
        allowed, _ = MAY_NAME_OPERATORS.get(inside, (0, ""))
        if len(lines) > allowed:
            places = ", ".join(map(str, lines))
            found.append(f"{path}: names operators on {len(lines)} lines ({allowed} may); ask the operator instead: lines {places}")
        elif len(lines) < allowed:
            found.append(f"tools/check_layers.py: {inside} names operators on {len(lines)} lines, not {allowed}: say so")
    return found


def asked_processors(tree: Path) -> list[str]:
    """Lines outside `ring/src/cpu` that ask the processor what it has."""
    found = []
    folders = [tree / "crates", *(tree / folder for folder in ELSEWHERE.values())]
    for path in sorted(path for folder in folders for path in folder.rglob("*.rs")):
        if path.relative_to(tree).parts[:4] == ("crates", "ring", "src", "cpu"):
            continue
        for number, line in enumerate(blank(path.read_text(), strings=False).splitlines(), 1):
            if re.search(r"\bis_\w+_feature_detected\b|\b__cpuid|\bcfg!\(target_feature\b", line):
                found.append(f"{path}:{number}: asks the processor; take a `Cpu` instead: {line.strip()}")
    return found


# A comparison that leaks by design, for measurements: its feature, and how else it is written.
LEAKY = "pmax-leaky"
LEAKY_WORD = re.compile("pmax", re.IGNORECASE)

# Where it may be named besides its paper's folder and pages, and why.
MAY_NAME_LEAKY = {
    "crates/bench/Cargo.toml": "has the feature that builds the paper's rows",
    "fuzz/Cargo.toml": "has the feature that fuzzes and times it",
}


def named_leaky(tree: Path) -> list[str]:
    """Lines that name it outside its paper, comments and tests among them; and what builds it though nobody asked: a default feature, or
    a dependency with its feature (which a build of the whole workspace would turn on for all)."""
    found = []
    files = [path for part in ("crates", "fuzz", "python", "examples") for path in sorted((tree / part).rglob("*"))]
    for path in files:
        inside = path.relative_to(tree).as_posix()
        if path.suffix not in (".rs", ".toml", ".html", ".py", ".pyi", ".md") or inside in MAY_NAME_LEAKY or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if LEAKY_WORD.search(line):
                found.append(f"{path}:{number}: names what leaks, which only papers/fregata may: {line.strip()}")
    for path in [tree / "Cargo.toml", *(path for path in tree.glob("*/**/Cargo.toml") if "target" not in path.parts)]:
        if not path.exists():
            continue
        manifest = tomllib.loads(path.read_text())
        features, asked, on = manifest.get("features", {}), ["default"], set()
        while asked:
            feature = asked.pop()
            if feature not in on:
                on.add(feature)
                asked += features.get(feature, [])
        if any(feature.split("/")[-1] == LEAKY for feature in on):
            found.append(f"{path}: builds {LEAKY} by default")
        kinds = ("dependencies", "dev-dependencies", "build-dependencies")
        parts = [manifest.get("workspace", {}).get("dependencies", {}), *(t for kind in kinds for t in tables(manifest, kind))]
        for name, value in (item for part in parts for item in part.items()):
            if isinstance(value, dict) and LEAKY in value.get("features", []):
                found.append(f"{path}: asks {name} for {LEAKY}, which a build of the workspace then has everywhere")
    return found


def problems(tree: Path) -> list[str]:
    """Everything that the tree has and must not have."""
    own = violations(tree / "crates") + unused_arrows(tree) + pages_map(tree) + named_backends(tree) + named_operators(tree)
    return own + asked_processors(tree) + named_leaky(tree) + import_circles.problems(tree)


def main() -> int:
    homes = len(backend_folders(ROOT)) + len(PAPERS)
    fine = f"layers: {len(ARROWS)} crates, every arrow points downwards; {homes} homes of backends and protocols, named nowhere else; no circles"
    return tell(problems(ROOT), fine)


if __name__ == "__main__":
    sys.exit(main())
