"""Whether a table in code claims what a record has."""

from __future__ import annotations

import sys
from pathlib import Path


Sets = list[tuple[tuple[int, ...], float]]


def differing(source: Path, rows: Sets, recorded: dict[tuple[int, ...], float], record: str) -> int:
    """1 if a row of a file (a set and its bits) is not as recorded, or if there is none; what is wrong goes to standard error."""
    wrong = [
        f"{key} claims {bits} bits; {record} has {recorded.get(key, 'no such set')}"
        for key, bits in rows
        if recorded.get(key) != bits
    ]
    for what in wrong if rows else ["no table of sets and their bits"]:
        print(f"{source}: {what}", file=sys.stderr)
    if rows and not wrong:
        print(f"{source}: {len(rows)} parameter sets, all as recorded")
    return 1 if wrong or not rows else 0
