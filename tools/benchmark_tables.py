#!/usr/bin/env python3
"""Puts the tables of recorded benchmarks into pages.

    tools/benchmark_tables.py [--check] [--figures FOLDER] [PAGE ...]

Pages are, if none is named, README.md and all in docs. A page asks for a table of FOLDER/conv.json, which `jaguar-bench conv --json` wrote, by a comment, optionally for some of its columns
and for the rows that contain a text, or do not:

    <!-- figures: conv groups -->
    <!-- figures: conv groups [group; cases] (dense) -->
    <!-- figures: conv groups (not depthwise) -->
    <!-- figures: conv plot -->

The last one shows conv.svg, if it is there.

What stands between it and the comment `<!-- end of figures -->` is replaced: by the commit, the command with its conditions, and the
table as it was recorded. So page and figures cannot differ; `--check` says whether they do, and changes nothing. Where FOLDER has no such
file, the page keeps what it has, and a line says so. A record that does not say of which commit it is, is refused.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REGION = re.compile(
    r"(?P<open><!-- figures: (?P<file>[\w-]+) (?P<table>[\w-]+)(?: \[(?P<columns>[^\]]*)\])?(?: \((?P<rows>[^)]*)\))? -->\n)"
    r"(?P<body>.*?)"
    r"(?P<close><!-- end of figures -->)",
    re.DOTALL,
)


COMMIT = re.compile(r"[0-9a-f]{7,40}")


class Missing(Exception):
    """What a page asks for is not recorded."""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def commit(setting: dict) -> str:
    """Of which commit a record is: without one nobody knows of what it tells."""
    found = setting.get("commit")
    if not isinstance(found, str) or COMMIT.fullmatch(found) is None:
        raise Missing(f"the record of `{setting['command']}` is of commit {found!r}: build from a clean commit, and record it again")
    return found[:7]


def caption(setting: dict) -> str:
    """The commit, the command and its conditions, as `jaguar-bench` prints them."""
    load = [f"{setting[key]:.1f}" if setting[key] is not None else "?" for key in ("load_before", "load_after")]
    parts = [
        f"`{setting['command']}`",
        f"{setting['machine']}, {setting['hardware_threads']} hardware threads, {setting['kernel']}",
        setting["threads"],
        setting["link"],
        f"{setting.get('statistic', 'medians')} of {setting['repeats']}",
    ]
    if load != ["?", "?"]:
        parts.append(f"load {load[0]} to {load[1]}")
    return f"Commit {commit(setting)}: " + "; ".join(parts) + "."


def markdown(report: dict, name: str, columns: str | None, rows: str | None) -> str:
    """One table of a report."""
    found = [table for table in report["tables"] if table["name"] == name]
    if not found:
        raise Missing(f"there is no table '{name}', only {', '.join(t['name'] for t in report['tables'])}")
    table = found[0]
    header = table["header"]
    chosen = list(range(len(header)))
    if columns is not None:
        wanted = [column.strip() for column in columns.split(";")]
        unknown = [column for column in wanted if column not in header]
        if unknown:
            raise Missing(f"table '{name}' has no column '{unknown[0]}', only {'; '.join(header)}")
        chosen = [header.index(column) for column in wanted]
    text = (rows or "").removeprefix("not ")
    without = rows is not None and rows.startswith("not ")
    lines = [row for row in table["rows"] if any(text in value for value in row) != without]
    if not lines:
        raise Missing(f"no row of table '{name}' {'is without' if without else 'contains'} '{text}'")
    head = "| " + " | ".join(cell(header[i]) for i in chosen) + " |"
    rule = "|" + "|".join("---:" if i >= table["numbers_from"] else "---" for i in chosen) + "|"
    body = ["| " + " | ".join(cell(row[i]) for i in chosen) + " |" for row in lines]
    shown = caption(report["setting"]) + "\n\n" + "\n".join([head, rule, *body]) + "\n"
    return shown + (f"\n{table['notes']}\n" if table["notes"] else "")


def plot(svg: str, address: str) -> str:
    """A picture, with the title that it carries as what it shows."""
    title = re.search(r"<title>(.*?)</title>", svg)
    if title is None:
        raise Missing(f"{address} has no title")
    return f"![{title[1]}]({address})\n"


def fill(page: str, figures: Path, folder: Path) -> str:
    """The page, which lies in `folder`, with every table and plot that it asks for."""

    def region(match: re.Match) -> str:
        if match["table"] == "plot":
            path = figures / f"{match['file']}.svg"
            if not path.exists():
                return match[0]
            address = os.path.relpath(path, folder).replace(os.sep, "/")
            return f"{match['open']}\n{plot(path.read_text(encoding='utf-8'), address)}\n{match['close']}"
        path = figures / f"{match['file']}.json"
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            print(f"{path.name} is not recorded: table '{match['table']}' stays as it is", file=sys.stderr)
            return match[0]
        table = markdown(report, match["table"], match["columns"], match["rows"])
        return f"{match['open']}\n{table}\n{match['close']}"

    return REGION.sub(region, page)


def unread(page: str, figures: Path) -> list[str]:
    """What a check must not pass over: comments that no request reads as one, and requests of what is not recorded."""
    found = [f"{count} comments ask for figures, and {read} are read" for count, read in [(page.count("<!-- figures:"), len(REGION.findall(page)))] if count != read]
    for match in REGION.finditer(page):
        ending = "svg" if match["table"] == "plot" else "json"
        if not (figures / f"{match['file']}.{ending}").exists():
            found.append(f"{match['file']}.{ending} is not recorded")
    return found


def pages() -> list[Path]:
    """README.md and the pages in docs that ask for figures."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if "<!-- figures: " in page.read_text(encoding="utf-8")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", nargs="*", type=Path)
    parser.add_argument("--figures", type=Path, default=ROOT / "docs/figures")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    status = 0
    for path in args.page or pages():
        page = path.read_text(encoding="utf-8")
        try:
            filled = fill(page, args.figures, path.parent)
        except Missing as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
            continue
        if not args.check:
            path.write_text(filled, encoding="utf-8")
            continue
        found = unread(page, args.figures)
        if filled != page:
            found.append(f"it does not show what {args.figures} holds: run tools/benchmark_tables.py")
        for line in found:
            print(f"{path}: {line}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
