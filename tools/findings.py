"""What checks share: how they tell what they found, and text between two marks of a page."""

from __future__ import annotations

import sys


def tell(found: list[str], fine: str = "") -> int:
    """Prints what was found to standard error; that all is fine, if nothing was. Gives the exit code."""
    for line in found:
        print(line, file=sys.stderr)
    if fine and not found:
        print(fine)
    return 1 if found else 0


def put(page: str, begin: str, end: str, text: str) -> str:
    """The page with this text in place of the one between the marks. ValueError if it has them not."""
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the page has no lines {begin} and {end}")
    return before + begin + text + end + after
