"""Checks that what pages name in backticks exists: names of code, files, commands, options, figures; and that links
lead somewhere.

    python3 tools/check_names.py    # what `make lint` runs

For each piece of a line's code in a page:

- a path with an ending, or with a slash, is a file or folder of the repository, or the end of one
  (`linear/src/backend.rs`);
- a bare `--option` is one of some command or of a tool here; `make TARGET` and `python3 FILE --option` are there, and
  so are the commands in blocks of shell code (`jaguar COMMAND --option` is looked up by `crates/cli/src/pages.rs`);
- `name()` is a function or a macro that code defines; `A::b` is a `b` in a file that defines `A`;
- a name that stands beside a path (`name` in `path`, or the other way round) occurs in that file;
- every other word occurs in code: comments do not count, nor do other pages.

What is of other projects is in `FOREIGN`, what only a run makes in `MADE`, each with its reason; one that no page
needs any more is told. CHANGELOG.md is left out: it tells of what went. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path

from findings import tell

ROOT = Path(__file__).resolve().parent.parent

# Pages that are not read, and why.
LEFT_OUT = {"CHANGELOG.md": "tells of what went"}

# Marks of a page between which names come from another project's lists.
REGIONS = {
    ("<!-- zoo: begin (tools/zoo.py --table) -->", "<!-- zoo: end -->"): "names of networks, by torchvision and timm",
}

# What a record says of itself: the command is the one of its commit, which may be called otherwise now.
RECORD = re.compile(r"(?m)^Commit [0-9a-f]{7}: `.*$")

# Our programs whose commands and options clap knows: tests of theirs ask it (`crates/cli/src/pages.rs`).
COMMANDS = {"jaguar", "jaguar-bench"}

# Whose words are in no code here: words, paths and options.
FOREIGN_BY = {
    "networks, weights and preprocessing of torchvision and timm": "CenterCrop IMAGENET1K_FEATURES "
    "IMAGENET1K_V1 IMAGENET1K_V2 tf_ inception resolve_data_config models/_meta.py",
    "preprocessing of Keras and TensorFlow": "load_img image_dataset_from_directory Resizing tf caffe target_size "
    "preprocess_input preprocessing.py keras/src/applications imagenet_utils.py utils/image_utils.py",
    "options of compilers, of cargo and of the shell, beside the command that takes them": "-d",
    "a crate of others": "zune",
    "a directive of nginx": "proxy_http_version",
    "options of Ray Serve": "rolling_update_percentage policy_kwargs",
    "names of an example": "relu_9 cifar10_0 cifar10_1 own.py",
    "stands for a width and a height in a message": "WxH",
    "the end of names": "_async",
}
FOREIGN = {word: reason for reason, words in FOREIGN_BY.items() for word in words.split()}

# Paths that are not in the repository, by what they begin with -> where they come from.
MADE = {
    "target/": "cargo makes it",
    "models/": "`make models` makes it",
    "own.": "the reader makes it, by docs/start.md",
    "clients.txt": "`jaguar token` makes it, under a name that is free",
    "machine-KERNEL-THREADS.json": "a file of the cache folder",
    "links/": "files of the cache folder",
    "choices/": "files of the cache folder",
    "-online.json": "the end of a name of those",
    "hints/": "files of the cache folder",
    "convfhe/SET/secret": "a file of the cache folder",
    "model.convfhe.first.onnx": "`jaguar compile` makes it",
}

# This check and its tests: what they name is planted.
OWN = {"tools/check_names.py", "tools/test_check_names.py"}

# Programs of others, whose words and options are not looked up.
PROGRAMS = {"openssl", "systemctl", "systemd-analyze", "ulimit", "perf"}

# Endings of files of code.
SOURCES = set(
    ".rs .go .py .pyi .toml .sh .yml .yaml .cu .ptx .cpp .ipynb .html .js .css .service .txt .mod".split()
)

INLINE = re.compile(r"(?<![`\\])(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
FENCE = re.compile(r"^( *)(```+|~~~+) *(\w*)[^\n]*\n(.*?)^ *\2 *$", re.M | re.S)
LINK = re.compile(r"\]\(([^()\s]+)\)")
WORD = re.compile(r"[A-Za-z_]\w+")
PYTHON = re.compile(r"(?:\S*/)?python3?")
# A field that clap reads: what its attribute says, and its name.
CLAP = re.compile(r"#\[arg\(([^#]*?)\)\]\s*(?:pub(?:\([^)]*\))? )?(\w+)\s*:")
# A letter of a formula with its index: `C_in`, `k_h`.
SYMBOL = re.compile(r"[A-Za-z]_(?:[a-z]|in|out)")


def without_words_for_people(path: Path, text: str) -> str:
    """Code without comments, strings kept: a name that only a comment has is of nothing."""
    if path.suffix in (".rs", ".go", ".cu", ".cpp", ".js"):
        pattern = r"//[^\n]*|/\*.*?\*/|(r(#*)\".*?\"\2|`[^`]*`|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\.|[^'\\\n])')"
        if path.suffix != ".go":
            pattern = pattern.replace("|`[^`]*`", "")
        return re.sub(pattern, lambda m: m[1] or " ", text, flags=re.S)
    if path.suffix == ".py":
        text = re.sub(r'^\s*(?:"""|\'\'\').*?(?:"""|\'\'\')', "", text, flags=re.S | re.M)
        return re.sub(r"(?m)^\s*#.*$|\s{2}# .*$", "", text)
    if path.suffix in (".toml", ".yml", ".yaml", ".sh", ".service") or path.name == "Makefile":
        return re.sub(r"(?m)^\s*#.*$", "", text)
    return text


class Tree:
    """What the repository has."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # (In a copy without its history, everything but what is built and fetched.)
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True
        )
        names = listed.stdout.splitlines() or [path.relative_to(root).as_posix() for path in root.rglob("*")]
        left_out = ("target/", "models/", ".venv/", ".git/")
        self.files = sorted({name for name in names if (root / name).is_file() and not name.startswith(left_out)})

    @cached_property
    def pages(self) -> list[str]:
        return [name for name in self.files if name.endswith(".md") and name not in LEFT_OUT]

    @cached_property
    def code(self) -> dict[str, str]:
        """Files of code, without what is said to people in them. Tables of names from elsewhere are none, nor is
        this check."""
        found = {}
        for name in self.files:
            path = self.root / name
            if name.startswith(("fuzz/corpus/", "docs/")) or name in OWN:
                continue
            if (
                path.suffix in SOURCES
                or path.name in ("Makefile", "Dockerfile", "Containerfile", ".gitignore")
                or name.startswith("demo/")
            ):
                try:
                    found[name] = without_words_for_people(path, path.read_text())
                except UnicodeDecodeError:
                    continue
        return found

    @cached_property
    def words(self) -> set[str]:
        found = {word for text in self.code.values() for word in re.findall(r"\w+", text)}
        return found | {part for name in self.files for part in re.split(r"\W+", name)}

    @cached_property
    def paths(self) -> set[str]:
        """Every file and folder, and every end of one."""
        found: set[str] = set()
        for name in self.files:
            parts = name.split("/")
            for end in range(1, len(parts) + 1):
                for start in range(end):
                    found.add("/".join(parts[start:end]))
        return found

    @cached_property
    def defined(self) -> dict[str, set[str]]:
        """name -> the files that define it."""
        found: dict[str, set[str]] = {}
        keywords = "fn|struct|enum|union|trait|type|const|static|mod|macro_rules!|def|class|func|var"
        kinds = rf"\b(?:{keywords})\s+(?:\([^)]*\)\s*)?(?:mut\s+)?(\w+)"
        for name, text in self.code.items():
            for word in re.findall(kinds, text):
                found.setdefault(word, set()).add(name)
        return found

    @cached_property
    def targets(self) -> set[str]:
        """What `make` can make."""
        text = (self.root / "Makefile").read_text() if (self.root / "Makefile").exists() else ""
        return set(re.findall(r"^([\w-]+):", text, re.M))

    @cached_property
    def options(self) -> set[str]:
        """Every option that some program here has."""
        found = {"--help", "-h", "--version", "-V"}
        for name, text in self.code.items():
            if name.endswith(".py"):
                found |= set(re.findall(r"""["'](--?[a-z][\w-]*)["']""", text))
            if name.endswith(".rs"):
                found |= set(re.findall(r'"(--[a-z][\w-]*)"', text))
                for told, field in CLAP.findall(text):
                    if long := re.search(r'\blong\b(?:\s*=\s*"([^"]+)")?', told):
                        found.add("--" + (long[1] or field.replace("_", "-")))
                    if short := re.search(r"\bshort\b(?:\s*=\s*'(\w)')?", told):
                        found.add("-" + (short[1] or field[0]))
            if name.endswith(".go"):
                found |= {"--" + flag for flag in re.findall(r'"([a-z][\w-]*)":\s*&', text)}
                found |= {
                    dash + flag
                    for flag in re.findall(r'\b(?:flags?|\w*[sS]et)\.\w+\((?:&\w[\w.]*, )?"([a-z][\w-]*)"', text)
                    for dash in ("-", "--")
                }
        return found


class Page:
    """One page, and what is wrong with it."""

    def __init__(self, tree: Tree, name: str, used: set[str], text: str | None = None) -> None:
        self.tree, self.name, self.used = tree, name, used
        self.text = (tree.root / name).read_text() if text is None else text
        self.text = RECORD.sub("", self.text)
        self.bad: list[tuple[int, str]] = []
        for begin, end in REGIONS:
            if begin in self.text and end in self.text:
                head, rest = self.text.split(begin, 1)
                body, tail = rest.split(end, 1)
                self.text = head + re.sub(r"[^\n]", "", body) + tail
                self.used.add(begin)
        self.prose = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), self.text)

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def tell(self, at: int, what: str) -> None:
        self.bad.append((self.line(at), what))

    def look(self) -> list[str]:
        for fence in FENCE.finditer(self.text):
            if fence[3] in ("sh", "bash", "console", "shell"):
                self.shell(fence)
        spans = [(m.start(), m.end(), " ".join(m[2].split())) for m in INLINE.finditer(self.prose)]
        for start, _, span in spans:
            for what in self.span(span):
                self.tell(start, what)
        self.neighbours(spans)
        for link in LINK.finditer(self.prose):
            path = link[1].partition("#")[0]
            if (
                path
                and not re.match(r"[a-z]+:", link[1])
                and not (self.tree.root / self.name).parent.joinpath(path).exists()
            ):
                self.tell(link.start(), f"a link to {link[1]}, which is not there")
        return [f"{self.name}:{line}: {what}" for line, what in sorted(set(self.bad))]

    def shell(self, fence: re.Match[str]) -> None:
        """Commands in a block."""
        text = re.sub(r"\\\n", "  ", fence[4])
        for number, line in enumerate(text.splitlines()):
            line = re.sub(r"\s#.*$", "", line.strip().removeprefix("$ "))
            for part in re.split(r"\s*(?:&&|\|\||;|\|)\s*", line):
                words = re.sub(r"\$\([^)]*\)|\"[^\"]*\"|'[^']*'", "X", part).split()
                while words and (re.fullmatch(r"\w+=\S*", words[0]) or words[0] in ("sudo", "nice", "time", "env")):
                    words = words[1:]
                for what in self.run(words):
                    self.bad.append((self.line(fence.start(4)) + number, what))

    def run(self, words: list[str]) -> list[str]:
        """What is wrong with a command, if it is one of ours."""
        if not words:
            return []
        program, rest = words[0], words[1:]
        if program == "cargo":
            return self.cargo(rest)
        if program == "make":
            wanted = [word for word in rest if re.fullmatch(r"[a-z][a-z0-9-]*", word)]
            return [f"there is no `make {word}`" for word in wanted if word not in self.tree.targets]
        if PYTHON.fullmatch(program) and rest:
            program, *rest = rest
        if not program.endswith(".py"):
            return []
        found = [name for name in self.tree.files if name == program or name.endswith("/" + program)]
        if not found and (self.foreign(program) or self.path(program)):
            return []
        return self.script(found, rest) if found else [f"there is no file {program}"]

    def cargo(self, words: list[str]) -> list[str]:
        """What is wrong with a command of cargo: the package, the example or the test that it names, and what
        follows `--`."""
        bad, package = [], ""
        before, after = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
        if not words or words[0] not in ("run", "test", "build", "bench", "doc", "check"):
            return []
        for option, value in zip(before, before[1:], strict=False):
            if option in ("-p", "--package"):
                name = value.removeprefix("jaguar-")
                places = ("crates/{}", "papers/{}", "papers/fregata/{}", "papers/convfhe/{}", "{}", "{}/jaguar")
                folders = [place.format(name) for place in places]
                there = [folder for folder in folders if f"{folder}/Cargo.toml" in self.tree.files]
                package = next(iter(there), "")
                if not there:
                    bad.append(f"there is no package {value}")
            elif option in ("--example", "--test", "--bench"):
                kind = {"--example": "examples", "--test": "tests", "--bench": "benches"}[option]
                if not any(
                    re.fullmatch(rf"{package or '.*'}/{kind}/{value}(?:/main)?\.rs", name) for name in self.tree.files
                ):
                    bad.append(f"there is no {option[2:]} {value}")
        theirs = {"--ignored", "--nocapture", "--exact", "--test-threads"} if words[0] == "test" else set()
        for word in after:
            name = word.split("=")[0]
            if word.startswith("--") and name not in theirs and name not in self.tree.options:
                bad.append(f"no program here has an option {name}")
        if words[0] == "test":
            takes = {"-p", "--package", "--test", "--features", "--test-threads", "--profile"}
            values = {value for option, value in zip(words, words[1:], strict=False) if option in takes}
            for word in [*before[1:], *after]:
                if (
                    re.fullmatch(r"[a-z]\w*(?:::\w+)*", word)
                    and word not in values
                    and not any(word.split("::")[-1] in known for known in self.tree.defined)
                ):
                    bad.append(f"no test is called {word}")
        return bad

    def script(self, files: list[str], rest: list[str]) -> list[str]:
        """Options of a program in Python."""
        text = "".join((self.tree.root / name).read_text() for name in files)
        options = [re.split(r"[=/]", word)[0].rstrip("]),.;") for word in rest if word.startswith("--")]
        unknown = [option for option in options if f'"{option}"' not in text and option != "--help"]
        return [f"{files[0]} has no option {option}" for option in unknown]

    def path(self, text: str) -> bool | None:
        """Whether a path exists; None if it is none."""
        if not re.fullmatch(r"[\w.*{},/@-]+", text) or text.startswith(("--", "/")) or text.endswith("."):
            return None
        if "/" not in text and not re.search(
            r"\.(?:rs|go|py|pyi|md|toml|json|yml|yaml|svg|sh|css|lock|ptx|cu|onnx|html|txt)$", text
        ):
            return None
        if "/" in text and not re.search(r"[a-z_]{2,}", text):
            return None
        plain = text.rstrip("/").removeprefix("./").removeprefix("../")
        if plain in self.tree.paths or (self.tree.root / self.name).parent.joinpath(text).exists():
            return True
        for begin in MADE:
            if plain.startswith(begin) or f"{plain}/" == begin:
                self.used.add(begin)
                return True
        if self.foreign(text):
            return True
        # What a run leaves behind is a name in code.
        last = re.sub(r"^.*/", "", plain)
        if re.fullmatch(r"[\w.-]+\.\w+", last) and any(
            f'"{last}"' in code or f"/{last}" in code for code in self.tree.code.values()
        ):
            return True
        pattern = re.escape(plain).replace(r"\*", "[^/]*").replace(r"\{", "(?:").replace(r"\}", ")").replace(",", "|")
        # NAME and the like stand for any.
        pattern = re.sub(r"(?<![A-Za-z])[A-Z]{3,}(?![A-Za-z])", "[^/]*", pattern)
        compiled = re.compile(pattern)
        return any(compiled.fullmatch(path) for path in self.tree.paths) if pattern != re.escape(plain) else False

    def span(self, span: str) -> list[str]:
        words = span.split()
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words = words[1:]
        if not words:
            return []
        program = words[0]
        if program in PROGRAMS:
            self.used.add(program)
        if program in PROGRAMS or program in COMMANDS:
            return []
        if program == "cargo":
            return self.cargo(words[1:])
        if (
            program == "make"
            or program.endswith(".py")
            or PYTHON.fullmatch(program)
            and len(words) > 1
        ):
            return self.run(words)
        found = self.path(span)
        if found is not None:
            return [] if found else [f"there is no path `{span}`"]
        if span.startswith("-") or " --" in span:
            names = [re.split(r"[=/]", word)[0].rstrip(".,;:)]") for word in words if re.match(r"--?[a-z]", word)]
            # `--keep-...` is all that begin so.
            known = self.tree.options | {
                name
                for name in names
                if name.endswith("-") and any(option.startswith(name) for option in self.tree.options)
            }
            unknown = [name for name in names if name not in known and not self.foreign(name)]
            return [f"no program here has an option {name}" for name in unknown]
        return self.names(span)

    def foreign(self, word: str) -> bool:
        if word in FOREIGN:
            self.used.add(word)
            return True
        return False

    def names(self, span: str) -> list[str]:
        """Names of code."""
        bad = []
        tree = self.tree
        if found := re.fullmatch(r"(?:\w+::)*(\w+)(?:\(\)|!)", span):
            if found[1] not in tree.defined and not self.foreign(found[1]):
                return [f"no code defines `{span}`"]
        elif re.fullmatch(r"\w+(?:::\w+)+", span):
            *_, one, two = span.split("::")
            folder = one.removeprefix("jaguar_")
            inside = tree.defined.get(one, set()) | {
                name for name in tree.code if folder in Path(name).with_suffix("").parts
            }
            # (A module's name is a folder or a file too.)
            inside |= {
                name for name in tree.code if two in Path(name).with_suffix("").parts and folder in Path(name).parts
            }
            if not self.foreign(one) and not any(re.search(rf"\b{two}\b", tree.code[name] + name) for name in inside):
                return [f"`{one}` has no `{two}`"]
        for word in WORD.findall(span):
            if word in tree.words or self.foreign(word):
                continue
            # In a sentence of code, a name in capitals stands for any.
            if re.fullmatch(r"[A-Z]+", word) and span != word:
                continue
            if word.startswith("jaguar_") and self.figure(word):
                continue
            if SYMBOL.fullmatch(word):
                continue
            bad.append(f"no code has the name `{word}`" + ("" if span == word else f" of `{span}`"))
        return bad

    def figure(self, word: str) -> bool:
        """Whether a metric is registered by the server: with what all of them begin with, and with a unit or
        `_total` behind it."""
        text = self.tree.code.get("crates/serve/src/metrics.rs", "")
        bare = re.sub(r"_(?:total|bucket)$", "", word.removeprefix("jaguar_"))
        return any(f'"{name}"' in text for name in {bare, re.sub(r"_(?:seconds|bytes)$", "", bare)})

    def neighbours(self, spans: list[tuple[int, int, str]]) -> None:
        """A name beside a path has to be in that file."""
        for (_, end, one), (start, _, other) in zip(spans, spans[1:], strict=False):
            between = self.prose[end:start]
            for name, path, pattern in ((one, other, r"\s+in\s+|,?\s+\("), (other, one, r":\s+|'s\s+")):
                if not re.fullmatch(pattern, between) or not re.fullmatch(
                    r"(?:\w+::)*[a-z_]\w*(?:\(\))?|[A-Z]\w+", name
                ):
                    continue
                files = [file for file in self.tree.code if file == path or file.endswith("/" + path)]
                if not re.search(r"\.(?:rs|go|py|toml|sh)$", path) or not files:
                    continue
                word = name.removesuffix("()").split("::")[-1]
                if not any(re.search(rf"\b{word}\b", self.tree.code[file]) for file in files):
                    self.tell(start, f"`{path}` has no `{word}`")


def in_comments(tree: Tree, used: set[str]) -> list[str]:
    """What comments of code name in backticks: files by their ending, and names of more than one word. (rustdoc looks
    links up, and formulas are no names.)"""
    found = []
    for name in tree.files:
        mark = {".rs": r"//[/!]?", ".go": "//", ".cu": "//", ".py": "#"}.get(Path(name).suffix)
        if mark is None or name in OWN:
            continue
        # Lines of one comment belong together: a name may go on in the next.
        lines = (tree.root / name).read_text().splitlines()
        text = "\n".join(match[1] if (match := re.match(rf"\s*{mark} ?(.*)", line)) else "" for line in lines)
        page = Page(tree, name, used, text)
        for match in INLINE.finditer(page.prose):
            span = " ".join(match[2].split())
            bad: list[str] = []
            if re.fullmatch(r"[\w./*{}-]+\.(?:rs|go|py|md|toml|json|sh)", span) and not page.path(span):
                bad.append(f"there is no path `{span}`")
            elif re.fullmatch(r"[a-z]{2,}(?:_[a-z0-9]{2,})+(?:\(\))?", span):
                bad += page.names(span)
            found += [f"{name}:{page.line(match.start())}: {what}" for what in bad]
    return found


def problems(root: Path) -> list[str]:
    """What pages name and the tree has not."""
    tree = Tree(root)
    used: set[str] = set()
    found = [line for name in tree.pages for line in Page(tree, name, used).look()] + in_comments(tree, used)
    if root == ROOT:
        listed = [*FOREIGN, *MADE, *PROGRAMS, *(begin for begin, _ in REGIONS)]
        found += [f"tools/check_names.py: no page needs the exception {name!r}" for name in listed if name not in used]
    return found


def main() -> int:
    return tell(problems(ROOT), f"names: {len(Tree(ROOT).pages)} pages name nothing that is not there")


if __name__ == "__main__":
    sys.exit(main())
