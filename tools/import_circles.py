"""Finds circles of imports between the files of a Rust crate: files that need each other, directly or through others.

    python3 tools/check_layers.py              # what `make lint` runs: every circle of the tree, and more

A file needs another if its code names, by `use` or by a path, something that the other defines. What is looked up:

- Names are followed through re-exports to the file that defines them. So who only hands a name on, by `pub use`,
  needs nothing, and a child that takes `super::Thing`, which its parent has from a third file, needs that third file.
- A parent that calls what its children define, while they take what it defines, is a circle too, between a module and
  its own parts. `FAMILIES` lists those that there are; each is one thing in several files, and none may be added.
- A macro that a file defines and calls with a list, as that of the operators, is what it makes of the list.
- Code behind `#[cfg(test)]`, files of tests, comments and strings need nothing.

It reads words, not types: a method that is called on a value ties no files. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from unsafe_list import blank

ROOT = Path(__file__).resolve().parent.parent

# Parents that need their children and are needed by them. To take one off: put what the children share into a file of
# its own.
FAMILIES = {
    "papers/circulant/tables/mod.rs",
    "papers/hyena/tables/cirencode/mod.rs",
    "papers/jaguar/tables/conv/mod.rs",
    "papers/convfhe/tables/mod.rs",
    "papers/jaguar/tables/e2e/mod.rs",
    "papers/fregata/tables/mod.rs",
    "papers/hyena/tables/hyena/mod.rs",
    "crates/cli/src/doctor/mod.rs",
    "crates/cli/src/serve.rs",
    "crates/compile/src/lib.rs",
    "papers/convfhe/src/lib.rs",
    "crates/engine/src/hint/mod.rs",
    "crates/graph/src/import/mod.rs",
    "papers/hyena/src/lib.rs",
    "crates/ot/src/aes.rs",
    "crates/plan/src/lib.rs",
    "crates/ring/src/gemm/mod.rs",
    "crates/ring/src/spectral/mod.rs",
    "crates/serve/src/lib.rs",
}

Name = tuple[str, ...]

ITEM = re.compile(r"\b(?:fn|struct|enum|union|trait|type|const|static|macro_rules!)\s+(?:mut\s+)?(\w+)")
MODULE = re.compile(r"(?:\bpub(?:\([^)]*\))?\s+)?\bmod\s+(\w+)\s*([;{])")
USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
LIST_MACRO = re.compile(r"\bmacro_rules!\s+(\w+)\s*\{\s*\(\$\(([^()]*)\),?\*\)\s*=>\s*\{")
PATH = re.compile(r"(?<![\w:.$])(?:(?:crate|self|super|[A-Za-z_]\w*)(?:\s*::\s*\w+)+)")


def block_end(code: str, at: int) -> int:
    """The place behind what begins at `at`: a statement that a `;` ends, or what stands in braces."""
    depth = 0
    for place in range(at, len(code)):
        letter = code[place]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth == 0 and letter == "}":
                return place + 1
            if depth < 0:
                return place
        elif letter in ";," and depth == 0:
            return place + 1
    return len(code)


def without_tests(code: str) -> str:
    """The code with everything behind `#[cfg(test)]` blanked; `#![cfg(test)]` blanks the file."""
    if re.search(r"#!\[cfg\(test\)\]", code):
        return ""
    while found := re.search(r"#\[(?:cfg\((?:test|all\(test\b[^\]]*)\)|test)\]", code):
        end = found.end()
        # Further attributes belong to the same item.
        while more := re.match(r"\s*#\[", code[end:]):
            end = code.index("]", end + more.end()) + 1
        end = block_end(code, end)
        code = code[: found.start()] + re.sub(r"[^\n]", " ", code[found.start() : end]) + code[end:]
    return code


def expanded(code: str) -> str:
    """The code with each macro of its own that makes items of a list, `name! { a: b, }` by one rule `($($x:ident: $y:ident,)*) => {..}`, in
    place of the call. (A `macro_rules!` that is no such one stays as it is.)"""
    for found in LIST_MACRO.finditer(code):
        call = re.search(rf"^{found[1]}!\s*\{{([^}}]*)\}}", code, re.M)
        if not call or call.start() < found.end():
            continue
        body = code[found.end() : block_end(code, found.end() - 1) - 1]
        fields = re.findall(r"\$(\w+)\s*:\s*ident", found[2])
        rows = [dict(zip(fields, re.findall(r"\w+", row), strict=True)) for row in call[1].split(",") if row.strip()]

        def filled(part: str, row: dict[str, str]) -> str:
            return re.sub(r"\$(\w+)", lambda name: row.get(name[1], name[0]), part)

        def repeated(part: re.Match[str], rows: list[dict[str, str]] = rows) -> str:
            return "\n".join(filled(part[1], row) for row in rows)

        made = re.sub(r"\$\(((?:[^()]|\([^()]*\))*)\),?\*", repeated, body)
        after = code[block_end(code, found.start()) : call.start()]
        return expanded(code[: found.start()] + after + made + code[call.end() :])
    return code


def leaves(tree: str) -> list[tuple[Name, str]]:
    """The paths of a `use`, each with the name that it gets. That of a glob ends with `*`."""
    tree = tree.strip().removeprefix("::")
    head, brace, rest = tree.partition("{")
    if not brace:
        path, _, alias = re.sub(r"\s+", " ", tree).partition(" as ")
        parts = tuple(part.strip() for part in path.split("::") if part.strip())
        if parts and parts[-1] == "self":
            parts = parts[:-1]
        return [(parts, alias.strip() or parts[-1])] if parts else []
    depth, piece, pieces = 0, "", list[str]()
    for letter in rest.rstrip()[:-1] + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            pieces.append(piece)
            piece = ""
        else:
            piece += letter
    return [leaf for each in pieces if each.strip() for leaf in leaves(head + each.strip())]


@dataclass
class Module:
    """One module: a file, or a block in a file."""

    name: Name
    file: Path
    code: str
    children: set[str] = field(default_factory=set)
    items: set[str] = field(default_factory=set)
    # What it calls by another path: name -> path, and the paths of globs.
    imports: dict[str, Name] = field(default_factory=dict)
    globs: list[Name] = field(default_factory=list)
    # Paths that it uses, each with whether it only hands it on.
    used: list[tuple[Name, bool]] = field(default_factory=list)


class Crate:
    """The modules of one crate, from its root file on."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[Name, Module] = {}
        self.read((), root, without_tests(blank(root.read_text())), root.parent)
        for module in list(self.modules.values()):
            self.look(module)

    def read(self, name: Name, file: Path, code: str, folder: Path) -> None:
        """Adds a module and those in it. `folder` is where the files of its children are."""
        own = expanded(code)
        module = Module(name, file, own)
        at = 0
        while found := MODULE.search(own, at):
            child, at = found[1], found.end()
            module.children.add(child)
            if found[2] == "{":
                end = block_end(own, found.end() - 1)
                self.read((*name, child), file, own[found.end() : end - 1], folder / child)
                own = own[: found.start()] + re.sub(r"[^\n]", " ", own[found.start() : end]) + own[end:]
                at = end
                continue
            own = own[: found.start()] + " " * (found.end() - found.start()) + own[found.end() :]
            # A paper's tables are modules of a program elsewhere (`#[path]`; strings are blank in `code`).
            told = re.search(rf'#\[path = "([^"]+)"\]\s*(?:pub )?mod {child};', file.read_text())
            places = [(folder / f"{child}.rs", folder / child), (folder / child / "mod.rs", folder / child)]
            for path, below in [((folder / told[1]).resolve(), (folder / told[1]).resolve().parent)] if told else places:
                if path.is_file():
                    self.read((*name, child), path, without_tests(blank(path.read_text())), below)
        module.code = own
        module.items = set(ITEM.findall(own))
        self.modules[name] = module

    def look(self, module: Module) -> None:
        """Fills in what a module imports and uses."""
        handed: list[tuple[str, Name]] = []
        for found in USE.finditer(module.code):
            for path, called in leaves(found["tree"]):
                full = self.absolute(module, path)
                if full is None:
                    continue
                if called == "*":
                    module.globs.append(full[:-1])
                    module.used.append((full[:-1], bool(found["public"])))
                else:
                    module.imports[called] = full
                    if found["public"]:
                        handed.append((called, full))
                    else:
                        module.used.append((full, False))
        rest = USE.sub("", module.code)
        for called, full in handed:
            calls = rf"(?<![.:\w]){called}\b" + ("" if called[0].isupper() else r"\s*(?:\(|::|!)")
            defined = rf"\bfn\s+{called}\b"
            module.used.append((full, not re.search(calls, re.sub(defined, "", rest))))
        for found in PATH.finditer(rest):
            path = tuple(re.split(r"\s*::\s*", found[0]))
            full = self.absolute(module, path)
            if full is not None:
                module.used.append((full, False))

    def absolute(self, module: Module, path: Name) -> Name | None:
        """A path from the crate's root; None if it leads out of the crate."""
        name, first = module.name, path[0]
        if first == "crate":
            return path[1:]
        if first == "self":
            return name + path[1:]
        if first == "super":
            while path and path[0] == "super":
                name, path = name[:-1], path[1:]
            return name + path
        if first in module.children or first in module.imports:
            return name + path
        return None

    def home(self, path: Name, seen: frozenset[Name] = frozenset()) -> Path | None:
        """The file that defines what a path leads to; None if it is not known."""
        if path in seen:
            return None
        seen |= {path}
        name: Name = ()
        for at, part in enumerate(path):
            module = self.modules.get(name)
            if module is None:
                return None
            if part in module.children:
                # (A file that is not found is elsewhere, by `#[path]`.)
                name = (*name, part)
                if name not in self.modules:
                    return None
                continue
            if part in module.imports:
                return self.home(module.imports[part] + path[at + 1 :], seen)
            if part not in module.items:
                for glob in module.globs:
                    if (found := self.home(glob + path[at:], seen)) and self.defines(glob, part, seen):
                        return found
            return module.file
        return self.modules[name].file

    def defines(self, name: Name, item: str, seen: frozenset[Name]) -> bool:
        """Whether a module has an item by its own, or hands one on."""
        module = self.modules.get(name)
        if module is None:
            return False
        known = item in module.items or item in module.imports or item in module.children
        return known or any(glob not in seen and self.defines(glob, item, seen | {glob}) for glob in module.globs)

    def ties(self) -> dict[Path, dict[Path, set[str]]]:
        """file -> the files that it needs, and the names that it takes from them."""
        found: dict[Path, dict[Path, set[str]]] = {}
        for module in self.modules.values():
            mine = found.setdefault(module.file, {})
            for path, handed in module.used:
                home = self.home(path)
                if home is None or home == module.file:
                    continue
                # To hand a name on is no need of it: who takes it needs the file that it comes from.
                if handed:
                    continue
                mine.setdefault(home, set()).add("::".join(path[-2:]))
        return found


def circles(needs: dict[Path, dict[Path, set[str]]]) -> list[list[Path]]:
    """The sets of files that need each other, by Tarjan's algorithm."""
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[list[Path]] = []

    def visit(node: Path) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in needs.get(node, {}):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(needs):
        if node not in index:
            visit(node)
    return sorted(found)


def roots(tree: Path) -> list[Path]:
    """The root files of the crates: libraries and programs."""
    folders = [*sorted((tree / "crates").glob("*/src")), *sorted((tree / "papers").glob("**/src"))]
    folders += [tree / "fuzz/src", tree / "python/jaguar/src"]
    return [path for folder in folders for path in (folder / "lib.rs", folder / "main.rs") if path.is_file()]


def problems(tree: Path, families: set[str] | None = None) -> list[str]:
    """Every circle that may not be, with what ties it, and every family on the list that is none any more."""
    listed = FAMILIES if families is None else families
    found, there = [], set()
    for root in roots(tree):
        crate = Crate(root)
        needs = crate.ties()
        # (A block in a file has the file's name, which is shorter.)
        names = {module.file: module.name for module in sorted(crate.modules.values(), key=lambda m: -len(m.name))}

        def above(one: Path, other: Path, names: dict[Path, Name] = names) -> bool:
            """Whether a file is a parent of another, or the parent of one."""
            return len(names[one]) < len(names[other]) and names[other][: len(names[one])] == names[one]

        def told(group: list[Path], ties: dict[Path, dict[Path, set[str]]]) -> str:
            return "".join(
                f"\n    {one.relative_to(tree)} -> {other.relative_to(tree)}: {', '.join(sorted(ties[one][other]))}"
                for one in group
                for other in sorted(ties[one])
                if other in group
            )

        apart = {
            one: {
                other: taken for other, taken in taken_from.items() if not above(one, other) and not above(other, one)
            }
            for one, taken_from in needs.items()
        }
        found += [f"{len(group)} files need each other:{told(group, apart)}" for group in circles(apart)]
        for group in circles(needs):
            parents = {one.relative_to(tree).as_posix() for one in group if any(above(one, other) for other in group)}
            there |= parents
            if parents - listed:
                new = ", ".join(sorted(parents - listed))
                found.append(f"{new}: a parent and its children need each other:{told(group, needs)}")
    return found + [f"tools/import_circles.py: {name} is no family any more" for name in sorted(listed - there)]
