"""What tests of these tools share: a tree with planted files, a tool run as a program, and what it must find."""

import contextlib
import io
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def tree(files: dict[str, str]) -> Iterator[Path]:
    """A folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield Path(folder)


def run(main: Callable[[], int], *arguments: str) -> tuple[int, str]:
    """A program's exit status, and what it said to standard error."""
    with (
        mock.patch.object(sys, "argv", ["program", *arguments]),
        contextlib.redirect_stderr(io.StringIO()) as said,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        return main(), said.getvalue()


class Planted(unittest.TestCase):
    def finds(self, found: list[str], *parts: str) -> None:
        """One line for each part, which is in it."""
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts, strict=True):
            self.assertIn(part, line)
