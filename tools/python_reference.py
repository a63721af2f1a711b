"""The reference of the Python package as a page, made from its sources: signatures, docstrings, and what `#:` comments say of fields.

    python3 tools/python_reference.py      # prints the page; `make docs` puts it on the site
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "jaguar" / "python" / "jaguar"

#: Parts of the page, in its order; a name is in the first that has it, and what none has comes last.
PARTS = {
    "From a network to a model": ["compile", "Preprocessing", "Model", "Agreement", "OutputAgreement", "Plan", "Accuracy", "Score"],
    "Serving and asking": ["Server", "Client", "Prediction", "Cost"],
    "Errors and warnings": [],
}

INTRODUCTION = """# Python: reference

Every public name of the package `jaguar`, made from its sources by `tools/python_reference.py`. What it is for and how its
parts go together: [the package](python.md).

Shapes are in brackets: `[C, H, W]` is channels, height, width. **Images** are paths, arrays of bytes (pixels) or of floats
(tensors that are preprocessed), pictures of PIL, tensors of torch; where several are taken, a list of them, an array with one
dimension more, or a folder. `progress` is `None` (a bar where somebody watches), `False`, or a function that is called instead.
"""


def public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def exported() -> list[str]:
    """`__all__` of the package."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    raise ValueError("the package has no __all__")


def definitions() -> dict[str, tuple[ast.AST, list[str]]]:
    """By name: where it is defined, and the lines of that file."""
    found: dict[str, tuple[ast.AST, list[str]]] = {}
    for path in sorted(PACKAGE.glob("*.py")):
        text = path.read_text()
        for node in ast.parse(text).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found.setdefault(node.name, (node, text.splitlines()))
    return found


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, method: bool) -> str:
    """How it is called, one argument a line where they are many. `method`: the first argument is left out."""
    arguments = ast.arguments(**{f: getattr(function.args, f) for f in function.args._fields})
    if method:
        arguments.args = arguments.args[1:]
    parts = re.split(r", (?![^\[(]*[\])])", ast.unparse(arguments))
    parts = [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", part) for part in parts if part]
    makes = function.name == "__init__" or function.returns is None
    returns = "" if makes else f" -> {ast.unparse(function.returns)}"
    prefix = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    one = f"{prefix}{name}({', '.join(parts)}){returns}"
    if len(one) <= 96:
        return one
    return f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def prose(node: ast.AST) -> str:
    """Its docstring, with indented parts as blocks of code."""
    text = ast.get_docstring(node) if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else None  # type: ignore[arg-type]
    return re.sub(r"(?:^    .*\n?)+", lambda block: "```python\n" + re.sub(r"^    ", "", block[0].rstrip(), flags=re.M) + "\n```\n", text or "", flags=re.M)


def decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(d) for d in node.decorator_list}


def fields(node: ast.ClassDef, lines: list[str]) -> list[tuple[str, str, str]]:
    """Public fields: name, type, and what the comment before says. Those that `__init__` sets and says something of, too."""
    found = []

    def comment(line: int) -> str:
        words: list[str] = []
        while line > 1 and lines[line - 2].strip().startswith("#:"):
            words.insert(0, lines[line - 2].strip()[2:].strip())
            line -= 1
        return " ".join(words)

    for part in ast.walk(node):
        if isinstance(part, ast.AnnAssign):
            name = part.target.id if isinstance(part.target, ast.Name) else getattr(part.target, "attr", "_")
            direct = part in node.body
            if public(name) and (direct or comment(part.lineno)):
                found.append((name, ast.unparse(part.annotation), comment(part.lineno)))
        elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Attribute) and comment(part.lineno):
            found.append((part.targets[0].attr, "", comment(part.lineno)))
    return found


def of_class(node: ast.ClassDef, lines: list[str]) -> list[str]:
    text = [f"### {node.name}\n"]
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    functions = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    made = next((f for f in functions if f.name == "__init__"), None)
    if made is not None and node.name not in ("Plan", "Cost"):
        text.append(f"```python\n{signature(made, node.name, True)}\n```\n")
    elif bases:
        text.append(f"A kind of {bases}.\n")
    text.append(prose(node) + "\n")
    if made is not None and prose(made):
        text.append(prose(made) + "\n")
    properties = [f for f in functions if "property" in decorators(f) and public(f.name)]
    rows = fields(node, lines) + [(f.name, ast.unparse(f.returns) if f.returns else "", prose(f)) for f in properties]
    if rows:
        def cell(words: str) -> str:
            return re.sub(r"\s+", " ", words).replace("|", "\\|")

        text.append("| | type | |\n|---|---|---|")
        # (Within code a bar ends no cell.)
        text.extend(f"| `{name}` | {f'`{kind}`' if kind else ''} | {cell(words)} |" for name, kind, words in rows)
        text.append("")
    for function in functions:
        if public(function.name) and function is not made and function not in properties:
            static = decorators(function) & {"staticmethod"}
            name = f"{node.name}.{function.name}" if static or "classmethod" in decorators(function) else function.name
            text.append(f"#### {node.name}.{function.name}\n\n```python\n{signature(function, name, not static)}\n```\n\n{prose(function)}\n")
    return text


def page() -> str:
    """The page as Markdown."""
    names = [name for name in exported() if public(name)]
    known = definitions()
    placed = [name for part in PARTS.values() for name in part]
    missing = [name for name in placed if name not in names or name not in known]
    if missing:
        raise ValueError(f"not in the package: {missing}")
    text = [INTRODUCTION]
    for title, own in PARTS.items():
        text.append(f"## {title}\n")
        for name in own or [name for name in names if name not in placed]:
            node, lines = known[name]
            if isinstance(node, ast.ClassDef):
                text.extend(of_class(node, lines))
            elif isinstance(node, ast.FunctionDef):
                text.append(f"### {name}\n\n```python\n{signature(node, 'jaguar.' + name, False)}\n```\n\n{prose(node)}\n")
    return "\n".join(text)


if __name__ == "__main__":
    print(page())
