"""What mkdocs does not know of this repository (a hook of mkdocs.yml).

Two pages are made here, from sources: the references of Python and of Rust. Pages link to files beside docs/. Some of
these are pages of the site too (`PAGES`). Links to all others, which are code, become plain text there. Either way the
file has to exist: `make docs` fails on a link that leads nowhere.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import python_reference

ROOT = Path(__file__).resolve().parent.parent
LOG = logging.getLogger("mkdocs.hooks.docs_site")

#: Pages of the site that lie elsewhere in the repository.
PAGES = {
    "python/jaguar/README.md": "repository/python.md",
    "params/README.md": "repository/params.md",
    "papers/convfhe/params/README.md": "repository/params-convfhe.md",
    "SECURITY.md": "repository/security.md",
    "CONTRIBUTING.md": "repository/contributing.md",
}
SOURCES = {page: source for source, page in PAGES.items()}

#: Where `cargo doc` leaves its pages, and where they are on the site.
RUSTDOC = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc"
RUST = "rust"

RUST_INTRODUCTION = """# Rust: reference

A program uses the crate `jaguar`: `crates/jaguar/examples/two_parties.rs` is the shortest one. It promises to stay as it is.
The other crates of the workspace are its parts, each with what its first lines say. Which depends on which, and where to
start reading: [architecture](../architecture.md). {where}

| crate | what it is |
|---|---|
"""


def rust_reference(built: bool) -> str:
    """The list of crates, with links into rustdoc's pages where these were `built`."""
    rows = []
    for manifest in [*sorted(ROOT.glob("crates/*/Cargo.toml")), *sorted(ROOT.glob("papers/*/Cargo.toml"))]:
        folder = manifest.parent
        root = next((f for f in (folder / "src/lib.rs", folder / "src/main.rs") if f.exists()), None)
        if root is None:
            continue
        first = re.match(r"(?://! ?(.*)\n)*", root.read_text())
        words = re.sub(r"^//! ?", "", first[0], flags=re.M).split("\n\n")[0].replace("\n", " ") if first else ""
        # What links to other items of the crate is text here.
        words = re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", words).replace("|", "\\|")
        name = tomllib.loads(manifest.read_text())["package"]["name"].replace("-", "_")
        there = built and (RUSTDOC / name / "index.html").exists()
        rows.append(f'| {f"""<a href="../{RUST}/{name}/index.html">{folder.name}</a>""" if there else f"`{folder.name}`"} | {words} |')
    where = "" if built else "The pages of each crate are not on this site: `cargo doc --workspace --no-deps --open` makes them."
    return RUST_INTRODUCTION.format(where=where) + "\n".join(rows) + "\n"


#: Pages of the site that are made from sources.
MADE = {
    "repository/python-reference.md": python_reference.page,
    "repository/rust-reference.md": lambda: rust_reference((RUSTDOC / "jaguar" / "index.html").exists()),
}

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def source_of(page: str) -> str:
    """Where a page of the site lies in the repository."""
    return SOURCES.get(page, f"docs/{page}")


def rewritten(text: str, page: str) -> tuple[str, list[str]]:
    """A page's text with its links as the site has them, and links that lead nowhere."""
    source, broken = source_of(page), []

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match.group(0)
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / file).exists():
            broken.append(target)
            return match.group(0)
        there = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
        if there is None or (ROOT / file).is_dir():
            return words
        relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"[{words}]({relative}{'#' + anchor if anchor else ''})"

    # Code is left as it is.
    blocks = re.split(r"(^ *```.*?^ *```)", text, flags=re.M | re.S)
    return "".join(b if re.match(r" *```", b) else LINK.sub(link, b) for b in blocks), broken


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page, made in MADE.items():
        files.append(File.generated(config, page, content=made()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    if page.file.src_uri in MADE:
        return markdown
    text, broken = rewritten(markdown, page.file.src_uri)
    for target in broken:
        LOG.warning("%s: a link to %s, which is not there", source_of(page.file.src_uri), target)
    return text


def options_whole(html: str) -> str:
    """Names of options within a line's code, marked so that no line ends after their dashes."""

    def code(match: re.Match[str]) -> str:
        return match[0] if match[1] else re.sub(r"(?<![\w-])(--?[a-z][\w-]*)", r'<span class="option">\1</span>', match[0])

    return re.sub(r"(<pre.*?</pre>)|<code>[^<]*</code>", code, html, flags=re.S)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    # A column of numbers needs no room for words (docs/site.css).
    return options_whole(html).replace("<th>#</th>", '<th class="number">#</th>')


def on_post_build(config: Any) -> None:
    """rustdoc's pages, where they were made, beside the site's."""
    if (RUSTDOC / "jaguar" / "index.html").exists():
        shutil.copytree(RUSTDOC, Path(config["site_dir"]) / RUST, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
