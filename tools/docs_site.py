"""What mkdocs does not know of this repository (a hook of mkdocs.yml).

Pages link to files beside docs/. Some of these are pages of the site too (`PAGES`). Links to all others, which are code, become
plain text there. Either way the file has to exist: `make docs` fails on a link that leads nowhere.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOG = logging.getLogger("mkdocs.hooks.docs_site")

#: Pages of the site that lie elsewhere in the repository.
PAGES = {
    "python/jaguar/README.md": "repository/python.md",
    "params/README.md": "repository/params.md",
    "SECURITY.md": "repository/security.md",
    "CONTRIBUTING.md": "repository/contributing.md",
}
SOURCES = {page: source for source, page in PAGES.items()}

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
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    text, broken = rewritten(markdown, page.file.src_uri)
    for target in broken:
        LOG.warning("%s: a link to %s, which is not there", source_of(page.file.src_uri), target)
    return text
